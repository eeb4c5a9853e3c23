//! What an outlet's discovery shows of its security, and what it hides. Spec: LSS/1 §7.1, §7.3.

use std::fmt::Write as _;

use lsl_secure::Policy;
use lsl_secure::policy::Discovery;
use sha2::{Digest, Sha256};

use super::registry::{AnnouncedStream, PublicView};
use crate::StreamInfo;
use crate::xml::{self, Attribute, Document};

/// Security of our own outlets, as far as discovery shows it.
#[derive(Debug, Clone)]
pub struct OwnSecurity {
    /// Policy of the process, now.
    pub policy: Policy,
    /// How much of a stream strangers see.
    pub discovery: Discovery,
    /// Attributes of the advert in order; empty if there is none.
    pub advert: Vec<(&'static str, String)>,
}

/// Writes our advert into the document that `LSL:fullinfo` sends. An info that was received brings the
/// advert of somebody else: it goes, whether or not we have one.
pub fn write_advert(info: &mut StreamInfo, security: &OwnSecurity) {
    let document = info.document_mut();
    while let Some(foreign) = element(document).and_then(|info| document.child(info, NAME)) {
        document.remove(foreign);
    }
    append(document, &security.advert);
}

/// Returns the whole shortinfo with our advert: for everybody, or for those inside a session if discovery
/// shows less.
pub fn shortinfo(info: &StreamInfo, security: &OwnSecurity) -> Vec<u8> {
    let mut document = info.shortinfo_document();
    append(&mut document, &security.advert);
    document.write()
}

/// Returns what strangers see of an outlet and may ask about. `info` has its uid and bears our advert, see
/// [`write_advert`].
pub fn announced(info: &StreamInfo, security: &OwnSecurity) -> AnnouncedStream {
    let view = match security.policy {
        Policy::Off | Policy::Migrate => PublicView {
            document: info.document().clone(),
            shortinfo: visible(info, security, None),
        },
        Policy::Required => strict(info, security),
    };
    let strict = (security.policy == Policy::Migrate).then(|| strict(info, security));
    AnnouncedStream::new(view, strict)
}

/// Under `required` a query sees exactly what its answer would say, so that nobody reads `desc` letter
/// by letter without a key.
fn strict(info: &StreamInfo, security: &OwnSecurity) -> PublicView {
    let shortinfo = visible(info, security, Some("required"));
    PublicView {
        // What we write we can read, but a limit is a limit: beyond it nothing is found.
        document: xml::parse(&shortinfo).unwrap_or_default(),
        shortinfo,
    }
}

/// Returns the shortinfo for strangers, with an advert that names `policy`.
fn visible(info: &StreamInfo, security: &OwnSecurity, policy: Option<&str>) -> Vec<u8> {
    let mut document = match security.discovery {
        Discovery::Minimal if security.policy != Policy::Off => info
            .redacted(pseudonym(info.uid_bytes()))
            .shortinfo_document(),
        Discovery::Open | Discovery::Minimal => info.shortinfo_document(),
    };
    let mut advert = security.advert.clone();
    for (name, value) in &mut advert {
        if let ("policy", Some(policy)) = (*name, policy) {
            policy.clone_into(value);
        }
    }
    append(&mut document, &advert);
    document.write()
}

/// Returns a name that tells streams apart and says nothing else.
fn pseudonym(uid: &[u8]) -> String {
    let mut name = "lss-".to_owned();
    for byte in Sha256::digest(uid).iter().take(4) {
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

fn append(document: &mut Document, attributes: &[(&'static str, String)]) {
    if attributes.is_empty() {
        return;
    }
    let Some(advert) = element(document).and_then(|info| document.append_element(info, NAME))
    else {
        return;
    };
    for (name, value) in attributes {
        let attribute = Attribute {
            name: (*name).into(),
            value: value.as_str().into(),
        };
        document.append_attribute(advert, attribute);
    }
}

fn element(document: &Document) -> Option<xml::NodeId> {
    document.child(document.root(), "info")
}

const NAME: &str = "lsl_secure";
