//! Asks outlets that show strangers only their shape whether they are what is looked for: inside a
//! session, one short question per outlet and search. Spec: LSS/1 §7.3.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::describe::descriptor;
use lsl_proto::discovery::redacted::{
    self, Answered, HiddenOutlet, OutletKey, ProbeAction, ProbeFailure, QueryExposure,
};
use lsl_proto::discovery::reply::REPLY_LIMITS;
use lsl_proto::discovery::search::{Search, Veto};
use lsl_proto::inlet::Exchange;
use lsl_proto::security::ExpectedIdentity;
use lsl_proto::wire::request::shortinfo_request;
use lsl_secure::Cause;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::context::Context;
use crate::drive_discovery::replies::take_in;
use crate::drive_inlet::handshake::{self, Target};
use crate::drive_inlet::peers::Peers;
use crate::net::monitor::{Monitor, lock_ignoring_poison};
use crate::{Error, Result, StreamInfo};

/// Asks the hidden outlets that one search meets. Dropping it ends its probes.
#[derive(Debug)]
pub(crate) struct Prober {
    context: Context,
    search: Arc<Monitor<Search>>,
    outlets: Mutex<redacted::Prober>,
    probes: Mutex<JoinSet<()>>,
}

impl Prober {
    /// Returns `None` if this context does not look for outlets that hide.
    pub(crate) fn new(context: &Context, search: &Arc<Monitor<Search>>) -> Option<Arc<Self>> {
        (query_exposure(context) != QueryExposure::Open).then(|| {
            Arc::new(Self {
                context: context.clone(),
                search: Arc::clone(search),
                outlets: Mutex::default(),
                probes: Mutex::default(),
            })
        })
    }

    /// Takes a short info that came from `from`, and asks its outlet in a session if it hides. Returns whether
    /// it hides. To be called on the runtime.
    pub(crate) fn on_redacted(self: &Arc<Self>, from: SocketAddr, xml: &[u8]) -> bool {
        let Some(HiddenOutlet { info, target }) = HiddenOutlet::read(from, xml) else {
            return false;
        };
        let (Some(target), Ok(security)) = (target, self.context.security()) else {
            return true;
        };
        let Ok(runtime) = Handle::try_current() else {
            return true;
        };
        let now = local_clock();
        let is_allowed = || {
            let trust = security.trust();
            lock_ignoring_poison(self.context.backoff()).allows(target, &trust, now)
        };
        let action =
            lock_ignoring_poison(&self.outlets).handle_redacted(&info, target, is_allowed, now);
        match action {
            ProbeAction::None => {}
            ProbeAction::Found(xml) => self.found(from, &xml),
            ProbeAction::Ask(key) => {
                let query = self.search.lock().query().to_vec();
                let asking = ask(self.context.clone(), info, target, query);
                let prober = Arc::downgrade(self);
                let probe = async move {
                    let answer = asking.await;
                    if let Some(prober) = Weak::upgrade(&prober) {
                        prober.learn(key, from, answer);
                    }
                };
                let mut probes = lock_ignoring_poison(&self.probes);
                while probes.try_join_next().is_some() {}
                probes.spawn_on(probe, &runtime);
            }
        }
        true
    }

    fn learn(&self, key: OutletKey, from: SocketAddr, answer: Result<Vec<u8>>) {
        let target = key.1;
        let answer = answer.map_err(|error| {
            tracing::debug!(address = %target, %error, "an outlet does not show itself");
            match error {
                Error::Protocol(_) => ProbeFailure::WrongUid,
                _ => ProbeFailure::Other,
            }
        });
        let now = local_clock();
        let answered = lock_ignoring_poison(&self.outlets).handle_answer(key, answer, now);
        match answered {
            Answered::No => {}
            Answered::Found(xml) => self.found(from, &xml),
            Answered::LeaveAlone(until) => {
                lock_ignoring_poison(self.context.backoff()).add(target, until);
            }
        }
    }

    fn found(&self, from: SocketAddr, xml: &[u8]) {
        take_in(&self.search, |search, now| {
            search.handle_reply(from, xml, now)
        });
    }
}

/// Returns how searches of this context go about it.
pub(crate) fn query_exposure(context: &Context) -> QueryExposure {
    context.security().map_or(QueryExposure::Open, |security| {
        let has_key = security.local().is_some();
        QueryExposure::new(security.policy(), security.discovery(), has_key)
    })
}

/// Leaves out outlets that announce the key of a peer which may not serve such a stream. Who lies about
/// its key is refused by the handshake. Spec: LSS/1 §3.2.
pub(crate) fn veto(context: &Context) -> Veto {
    let security = context.security().ok().cloned();
    let told = Mutex::new(Vec::new());
    Veto(Arc::new(move |info| {
        let fingerprint = info.security_advert().and_then(|advert| advert.fingerprint);
        let (Some(security), Some(fingerprint)) = (&security, fingerprint) else {
            return false;
        };
        let is_disowned = security.disowns(&fingerprint, &descriptor(info));
        let mut told = lock_ignoring_poison(&told);
        if is_disowned && told.len() < MAX_TOLD && !told.iter().any(|uid| uid == info.uid_bytes()) {
            told.push(info.uid_bytes().to_vec());
            tracing::warn!(
                "stream \"{}\" announces the key {}, which is trusted for other streams only (streams \
                 in the trust file); left out",
                lsl_secure::audit::printable(info.name_bytes()),
                lsl_secure::audit::printable(fingerprint.as_bytes())
            );
        }
        is_disowned
    }))
}

/// Asks an outlet in a session. Returns its full short info if it matches `query`, else nothing.
async fn ask(
    context: Context,
    info: StreamInfo,
    target: SocketAddr,
    query: Vec<u8>,
) -> Result<Vec<u8>> {
    let security = context.security()?;
    // Other outlets have other keys: no reason for a word about a changed one.
    let peers = Arc::new(Peers::of_strangers());
    let outlet = Target {
        info: &info,
        expected: ExpectedIdentity::Redacted,
        peers: &peers,
    };
    let exchange = Exchange::reply(&shortinfo_request(&query), MAX_ANSWER_BYTES);
    let connecting = handshake::secure(security, outlet, target, exchange, CONNECT_LIMIT);
    let connection = connecting.await?;
    let said = connection.descriptor().cloned();
    let xml = connection.reply(ANSWER_LIMIT).await?;
    if xml.is_empty() {
        return Ok(xml);
    }
    let answer = StreamInfo::from_xml_with(&xml, &REPLY_LIMITS)?;
    let wrong = said.and_then(|said| descriptor(&answer).differs_from(&said));
    match wrong {
        None => Ok(xml),
        Some(field) => {
            let text = format!("the outlet at {target} shows another {field} than it vouches for");
            handshake::mismatch(security, &info, target, &text);
            peers.failed(Cause::DescriptorMismatch, &text);
            Err(Error::Security(text))
        }
    }
}

/// Streams that a search reports as left out.
const MAX_TOLD: usize = 16;

const CONNECT_LIMIT: Duration = Duration::from_secs(3);
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const MAX_ANSWER_BYTES: usize = 65_536;
