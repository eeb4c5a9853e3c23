//! What an outlet's discovery shows of its security, and what it hides. Spec: LSS/1 §7.1, §7.3.

use std::fmt::Write as _;
use std::sync::Arc;

use lsl_proto::xml::{self, Attribute, Document};
use lsl_secure::policy::Discovery;
use lsl_secure::{Policy, Security};
use sha2::{Digest, Sha256};

use crate::StreamInfo;
use crate::drive_discovery::registry::{AnnouncedStream, PublicView};

/// Writes our advert into the document that `LSL:fullinfo` sends. An info that was received brings the
/// advert of somebody else: it goes, whether or not we have one.
pub(crate) fn write_advert(info: &mut StreamInfo, security: &Security) {
    let document = info.document_mut();
    while let Some(foreign) = element(document).and_then(|info| document.child(info, NAME)) {
        document.remove(foreign);
    }
    append(document, security.advert().unwrap_or_default());
}

/// The whole shortinfo with our advert: for everybody, or for those inside a session if discovery
/// shows less.
pub(crate) fn shortinfo(info: &StreamInfo, security: &Security) -> Vec<u8> {
    let mut document = info.shortinfo_document();
    append(&mut document, security.advert().unwrap_or_default());
    document.write()
}

/// What strangers see of an outlet and may ask about. `info` has its uid and bears our [`write_advert`].
pub(crate) fn advertised(info: &StreamInfo, security: &Arc<Security>) -> AnnouncedStream {
    let shown = match security.policy() {
        Policy::Off | Policy::Migrate => PublicView {
            document: info.document().clone(),
            shortinfo: visible(info, security, None),
        },
        Policy::Required => strict(info, security),
    };
    let later = (security.policy() == Policy::Migrate)
        .then(|| (Arc::clone(security), strict(info, security)));
    AnnouncedStream::new(shown, later)
}

/// Under `required` a query sees exactly what its answer would say, so that nobody reads `desc` letter
/// by letter without a key.
fn strict(info: &StreamInfo, security: &Security) -> PublicView {
    let shortinfo = visible(info, security, Some("required"));
    PublicView {
        // What we write we can read, but a limit is a limit: beyond it nothing is found.
        document: xml::parse(&shortinfo).unwrap_or_default(),
        shortinfo,
    }
}

fn visible(info: &StreamInfo, security: &Security, policy: Option<&str>) -> Vec<u8> {
    let mut document = match security.discovery() {
        _ if security.policy() == Policy::Off => info.shortinfo_document(),
        Discovery::Open => info.shortinfo_document(),
        Discovery::Minimal => info
            .redacted(pseudonym(info.uid_bytes()))
            .shortinfo_document(),
    };
    let mut advert = security.advert().unwrap_or_default();
    for (name, value) in &mut advert {
        if let ("policy", Some(policy)) = (*name, policy) {
            policy.clone_into(value);
        }
    }
    append(&mut document, advert);
    document.write()
}

/// A name that tells streams apart and says nothing.
fn pseudonym(uid: &[u8]) -> String {
    let mut name = "lss-".to_owned();
    for byte in Sha256::digest(uid).iter().take(4) {
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

fn append(document: &mut Document, attributes: Vec<(&'static str, String)>) {
    if attributes.is_empty() {
        return;
    }
    let Some(advert) = element(document).and_then(|info| document.append_element(info, NAME))
    else {
        return;
    };
    for (name, value) in attributes {
        let attribute = Attribute {
            name: name.into(),
            value: value.into(),
        };
        document.append_attribute(advert, attribute);
    }
}

fn element(document: &Document) -> Option<xml::NodeId> {
    document.child(document.root(), "info")
}

const NAME: &str = "lsl_secure";
