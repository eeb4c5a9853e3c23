//! The reply of an outlet to a search: whether it can be believed, and the address that it came from.
//! Spec: lsl-protocol §2.3, §2.4, §3.2, §15.

use std::net::{IpAddr, SocketAddr};

use crate::StreamInfo;
use crate::query::Query;
use crate::xml::Limits;

/// Fills in the address that a reply came from: the outlet cannot know how it is reached. Returns whether
/// that was news.
pub(super) fn fill_address(info: &mut StreamInfo, from: SocketAddr) -> bool {
    match from {
        SocketAddr::V4(from) => info.fill_v4_address(from.ip().to_string()),
        SocketAddr::V6(from) => match from.ip().to_canonical() {
            IpAddr::V4(mapped) => info.fill_v4_address(mapped.to_string()),
            IpAddr::V6(address) if from.scope_id() != 0 => {
                info.fill_v6_address(format!("{address}%{}", from.scope_id()))
            }
            IpAddr::V6(address) => info.fill_v6_address(address.to_string()),
        },
    }
}

/// Returns whether a short info is none that the query selects, without a doubt. The outlet asked its full info,
/// and itself: what the query looks at must be in the text, and as it was before it was written.
/// Spec: lsl-protocol §2.3, §3.2, §15.
pub(super) fn contradicts(query: Option<&Query>, info: &StreamInfo, xml: &[u8]) -> bool {
    let Some(query) = query else {
        return false;
    };
    let Some(names) = query.named_children() else {
        return false;
    };
    if info.matches(query).unwrap_or(true) || xml.contains(&b'\r') {
        return false;
    }
    let document = info.document();
    let Some(element) = document.child(document.root(), "info") else {
        return false;
    };
    names.into_iter().all(|name| {
        // Who passes answers on may fill these in.
        let is_stable = name != b"v4address" && name != b"v6address";
        // Blanks are dropped when a text is read.
        let is_whole = |child| {
            !document.child_text(child).is_empty() || {
                let empty = [b"<", name, b"></"].concat();
                let none = [b"<", name, b" />"].concat();
                let has = |part: &[u8]| xml.windows(part.len()).any(|bytes| bytes == part);
                has(&empty) || has(&none)
            }
        };
        is_stable && document.child(element, name).is_some_and(is_whole)
    })
}

/// Returns whether a short info is not the real one. Read as a document only if it may be.
pub(super) fn is_redacted(xml: &[u8]) -> bool {
    const MARK: &[u8] = b"lsl_secure";
    xml.windows(MARK.len()).any(|bytes| bytes == MARK)
        && StreamInfo::from_xml_with(xml, &REPLY_LIMITS)
            .ok()
            .and_then(|info| info.security_advert())
            .is_some_and(|advert| advert.minimal)
}

/// Limits of a reply. A short info has 18 elements and no description; one of another make may have a small one. A
/// reply full of empty elements would cost sixty times its size for as long as it is known.
pub const REPLY_LIMITS: Limits = Limits {
    bytes: 65_536,
    depth: 32,
    nodes: 512,
};
