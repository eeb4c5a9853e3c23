//! What an outlet shows of its stream to those who look for it and ask. Spec: lsl-protocol §3, §6; LSS/1 §7.

use std::net::IpAddr;
use std::sync::Arc;

use lsl_platform::clock::local_clock;
use lsl_proto::discovery::advert;
use lsl_proto::discovery::registry::AnnouncedStream;
use lsl_secure::Security;

use crate::drive_discovery::serve::own_security;
use crate::drive_outlet::identity::Identity;
use crate::{Result, StreamInfo};

/// The short forms of an outlet's info.
#[derive(Debug)]
pub(crate) struct Shown {
    /// For those who may see all of it.
    pub(crate) shortinfo: Vec<u8>,
    /// What everybody may see.
    pub(crate) advertised: Arc<AnnouncedStream>,
}

impl Shown {
    /// Shows an info, which has a uid and bears our advert.
    pub(crate) fn new(info: &StreamInfo, security: &Security) -> Self {
        let own = own_security(security);
        Self {
            shortinfo: advert::shortinfo(info, &own),
            advertised: Arc::new(advert::announced(info, &own)),
        }
    }

    /// Returns what a peer is told in answer to a query; nothing if the query does not select the stream of this info.
    /// Whoever has a session may ask about everything.
    ///
    /// # Errors
    /// [`Error::Query`](crate::Error::Query) if it is none or may not cost what it does.
    pub(crate) fn answer(
        &self,
        info: &StreamInfo,
        identity: &Identity,
        query: &[u8],
        (peer, is_sealed): (IpAddr, bool),
    ) -> Result<&[u8]> {
        let view = self.advertised.view(identity.security.policy());
        let (document, shortinfo) = if is_sealed {
            (info.document(), &self.shortinfo)
        } else {
            (&view.document, &view.shortinfo)
        };
        let service = identity.context.service();
        let is_meant = service.selects(query, peer, document, local_clock())?;
        Ok(if is_meant { shortinfo } else { &[] })
    }
}
