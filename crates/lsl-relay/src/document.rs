//! Documents as the port of a relay gives them out, with the path of relays. Spec: relay §3, §6.

use lsl_proto::StreamInfo;
use lsl_proto::xml::{Attribute, ElementMut, ElementRef};

use crate::id::RelayId;

/// Most bytes of a document in a directory.
pub const MAX_DOCUMENT: usize = 1 << 20;

const ELEMENT: &str = "lsl_relay";

/// Attribute of a description that was left out.
const OMITTED: &str = "omitted";

/// Element in place of a description that a recording cannot have.
const LEFT_OUT: &str = "left_out";

/// Origin of a document that came through relays, and the way it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// Uid of the origin.
    pub origin: String,
    /// Relays it passed, nearest to the origin first; empty if the text was no path.
    pub path: Vec<RelayId>,
}

impl Provenance {
    /// Reads the element of a document; `None` if it comes from an outlet of its own.
    pub fn of(info: &StreamInfo) -> Option<Self> {
        let document = info.document();
        let root = document.child(document.root(), "info")?;
        let root = ElementRef::new(document, root)?;
        let element = root.children_named(ELEMENT).last()?;
        let text = |name: &[u8]| {
            let mut attributes = element.attributes().iter();
            let attribute = attributes.find(|attribute| attribute.name == name);
            attribute.map_or_else(String::new, |attribute| {
                String::from_utf8_lossy(&attribute.value).into_owned()
            })
        };
        let path = text(b"path");
        let path: Result<_, _> = path.split_ascii_whitespace().map(str::parse).collect();
        Some(Self {
            origin: text(b"origin"),
            path: path.unwrap_or_default(),
        })
    }
}

/// Returns the document of an origin alone, without what outlets and relays on the way added.
pub fn bare(mut info: StreamInfo) -> StreamInfo {
    if let Some(mut root) = root(&mut info) {
        for name in [ELEMENT, "lsl_secure"] {
            while root.remove_child(name) {}
        }
    }
    info
}

/// Returns when a stream ended, by its document, in seconds since 1970; `None` for one that goes on.
pub fn ended_at(info: &StreamInfo) -> Option<f64> {
    let document = info.document();
    let root = document.child(document.root(), "info")?;
    let root = ElementRef::new(document, root)?;
    let element = root.children_named(ELEMENT).last()?;
    let mut attributes = element.attributes().iter();
    let ended = attributes.find(|it| it.name == b"ended")?;
    let ended: f64 = std::str::from_utf8(&ended.value).ok()?.parse().ok()?;
    ended.is_finite().then_some(ended)
}

/// Whether the description of a document was left out by [`write()`], or where the document was written to disk.
pub fn is_cut(info: &StreamInfo) -> bool {
    let document = info.document();
    let desc = document
        .child(document.root(), "info")
        .and_then(|root| document.child(root, "desc"))
        .and_then(|desc| ElementRef::new(document, desc));
    desc.is_some_and(|desc| {
        (desc.attributes().iter()).any(|it| it.name == OMITTED.as_bytes())
            || desc.children_named(LEFT_OUT).next().is_some()
    })
}

/// Writes a document for directories, as [`write_whole`] does; but a description that makes it longer than
/// [`MAX_DOCUMENT`] is left out, and its absence told.
pub fn write(info: &StreamInfo, path: &[RelayId]) -> Vec<u8> {
    write_short(info, path, None)
}

/// Writes a bare document for others: no addresses and ports, and the path last.
pub fn write_whole(info: &StreamInfo, path: &[RelayId]) -> Vec<u8> {
    write_with(info, path, None)
}

/// Writes the document of a stream that is over, with the time of its last samples, in seconds since 1970: for
/// directories, or whole.
pub fn write_ended(info: &StreamInfo, path: &[RelayId], ended: f64, is_whole: bool) -> Vec<u8> {
    let ended = format!("{ended:.0}");
    if is_whole {
        write_with(info, path, Some(&ended))
    } else {
        write_short(info, path, Some(&ended))
    }
}

fn write_short(info: &StreamInfo, path: &[RelayId], ended: Option<&str>) -> Vec<u8> {
    let whole = write_with(info, path, ended);
    if whole.len() <= MAX_DOCUMENT {
        return whole;
    }
    let mut info = info.clone();
    let document = info.document_mut();
    let Some(id) = document.child(document.root(), "info") else {
        return Vec::new();
    };
    while let Some(desc) = document.child(id, "desc") {
        document.remove(desc);
    }
    if let Some(desc) = document.append_element(id, "desc") {
        document.append_attribute(desc, attribute(OMITTED, b"1"));
    }
    write_with(&info, path, ended)
}

fn write_with(info: &StreamInfo, path: &[RelayId], ended: Option<&str>) -> Vec<u8> {
    let mut info = info.clone();
    let uid = info.uid_bytes().to_vec();
    let path: Vec<String> = path.iter().map(RelayId::to_string).collect();
    let path = path.join(" ");
    info.set_v4_ports(0, 0);
    info.set_v6_ports(0, 0);
    let document = info.document_mut();
    let Some(id) = document.child(document.root(), "info") else {
        return Vec::new();
    };
    for name in ["v4address", "v6address"] {
        if let Some(text) = document
            .child(id, name)
            .and_then(|at| document.first_child(at))
        {
            document.set_text(text, "");
        }
    }
    if let Some(element) = document.append_element(id, ELEMENT) {
        for (name, value) in [
            ("v", &b"1"[..]),
            ("origin", &uid),
            ("path", path.as_bytes()),
        ] {
            document.append_attribute(element, attribute(name, value));
        }
        if let Some(ended) = ended {
            document.append_attribute(element, attribute("ended", ended.as_bytes()));
        }
    }
    info.to_xml()
}

fn attribute(name: &str, value: &[u8]) -> Attribute {
    Attribute {
        name: name.into(),
        value: value.into(),
    }
}

fn root(info: &mut StreamInfo) -> Option<ElementMut<'_>> {
    let document = info.document_mut();
    let id = document.child(document.root(), "info")?;
    ElementMut::new(document, id)
}

#[cfg(test)]
mod tests {
    use lsl_proto::ChannelFormat;

    use super::*;

    fn info(desc: &str) -> StreamInfo {
        let mut info = StreamInfo::new("Amp", "EEG", 8, 250.0, ChannelFormat::Float32, "amp-1")
            .expect("an info");
        info.reset_uid("u1");
        let text = String::from_utf8(info.to_xml()).expect("text");
        let text = text
            .replace("<uid></uid>", "<uid>u1</uid>")
            .replace("<uid />", "<uid>u1</uid>")
            .replace("<v4address />", "<v4address>10.0.0.1</v4address>")
            .replace(
                "<desc />",
                &format!("<desc><x>{desc}</x></desc><lsl_secure v=\"1\" />"),
            );
        let mut info = StreamInfo::from_xml(text.as_bytes()).expect("an info");
        info.set_v4_ports(16_572, 16_573);
        info
    }

    #[test]
    fn a_document_passes_relays_and_gains_nothing_but_its_path() {
        let origin = bare(info("d"));
        let text = write(&origin, &[RelayId(1), RelayId(2)]);
        let read = StreamInfo::from_xml(&text).expect("an info");
        let expected = Provenance {
            origin: "u1".to_owned(),
            path: vec![RelayId(1), RelayId(2)],
        };
        assert_eq!(Provenance::of(&read), Some(expected));
        let shown = String::from_utf8(text).expect("text");
        assert!(
            !shown.contains("10.0.0.1")
                && !shown.contains("16572")
                && !shown.contains("lsl_secure"),
            "{shown}"
        );
        assert!(
            shown.contains("<x>d</x>") && shown.contains("<uid>u1</uid>"),
            "{shown}"
        );
        let again = write(&bare(read), &[RelayId(3)]);
        let again = StreamInfo::from_xml(&again).expect("an info");
        let path = Provenance::of(&again).map(|it| it.path);
        assert_eq!(
            (path, Provenance::of(&origin)),
            (Some(vec![RelayId(3)]), None)
        );
    }

    #[test]
    fn a_long_description_is_left_out() {
        let text = write(&bare(info(&"x".repeat(MAX_DOCUMENT))), &[RelayId(1)]);
        let shown = String::from_utf8(text).expect("text");
        assert!(
            shown.len() < 2000 && shown.contains("<desc omitted=\"1\" />"),
            "{shown}"
        );
        assert!(
            shown.contains("<lsl_relay v=\"1\" origin=\"u1\" path=\"0000000000000001\" />"),
            "{shown}"
        );
        let cut = StreamInfo::from_xml(shown.as_bytes()).expect("an info");
        assert!(is_cut(&cut) && !is_cut(&info("d")));
    }
}
