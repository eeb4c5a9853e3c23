//! The header of a stream in a segment. A file has no description that strict readers refuse, so it is cleaned there;
//! rules see the true one, after a restart, too. Spec: relay §9.

use std::fmt::Write as _;
use std::sync::Arc;

use lsl_proto::StreamInfo;
use lsl_proto::xml::{Document, NodeId};
use lsl_xdf::{Result, StreamHeader};

use crate::history::{DOCUMENT_ELEMENT, GENERATION_ELEMENT, Numbering};

/// A numbering, and what its stream said of itself.
pub(super) type Stream = (Arc<Numbering>, Arc<StreamInfo>);

/// Returns the header of a stream, from which the same is read, or nothing.
///
/// # Errors
/// [`lsl_xdf::Error::Argument`] if no file can have such a stream.
pub(super) fn of(numbering: &Numbering, info: &StreamInfo) -> Result<StreamHeader> {
    let mut header = StreamHeader::from_info(info)?;
    header.set(GENERATION_ELEMENT, &numbering.generation);
    // As it came: one that never was on a network may have empty texts.
    let document = info.to_xml();
    let document = StreamInfo::from_xml(&document).map_or(document, |info| info.to_xml());
    let is_true = |header: &StreamHeader| {
        let read = header.to_xml().ok().and_then(|xml| parse(&xml));
        read.is_some_and(|(as_read, info)| *as_read == *numbering && info.to_xml() == document)
    };
    if !is_true(&header) {
        header.set(DOCUMENT_ELEMENT, &to_hex(&document));
    }
    if !is_true(&header) {
        tracing::warn!(
            "history: stream {numbering:?} is not served after a restart: its description is too long"
        );
        header.set(DOCUMENT_ELEMENT, "");
    }
    Ok(header)
}

/// Reads the content of a header. `None` if it is none of ours, or does not say what the stream said of itself.
pub(super) fn read(header: &[u8]) -> Option<Stream> {
    parse(header.get(4..)?)
}

fn parse(xml: &[u8]) -> Option<Stream> {
    let mut info = StreamInfo::from_xml(xml).ok()?;
    let document = info.document_mut();
    let element = last(document, GENERATION_ELEMENT)?;
    let generation = text(document, element)?;
    document.remove(element);
    if let Some(element) = last(document, DOCUMENT_ELEMENT) {
        let whole = from_hex(&text(document, element)?)?;
        info = StreamInfo::from_xml(&whole).ok()?;
    }
    let uid = String::from_utf8(info.uid_bytes().to_vec()).ok()?;
    let numbering = Numbering {
        uid: uid.into(),
        generation: generation.into(),
    };
    numbering.generation()?;
    Some((Arc::new(numbering), Arc::new(info)))
}

/// Returns the last element of this name, which is ours: others are as the stream has them.
fn last(document: &Document, name: &str) -> Option<NodeId> {
    let root = document.child(document.root(), "info")?;
    let is_it = |id: &NodeId| document.name(*id) == name.as_bytes();
    document.children(root).filter(is_it).last()
}

fn text(document: &Document, element: NodeId) -> Option<String> {
    let text = document.first_child(element)?;
    String::from_utf8(document.text(text).to_vec()).ok()
}

fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.bytes().map(|digit| char::from(digit).to_digit(16));
    let digits: Vec<u8> = digits
        .map(|it| u8::try_from(it?).ok())
        .collect::<Option<_>>()?;
    let (pairs, []) = digits.as_chunks() else {
        return None;
    };
    Some(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use lsl_proto::ChannelFormat;

    use super::*;

    fn info(desc: &str) -> StreamInfo {
        let info = StreamInfo::new("a", "b", 1, 0.0, ChannelFormat::Int8, "c");
        let mut info = info.expect("an info");
        info.reset_uid("u");
        let xml = String::from_utf8(info.to_xml()).expect("text");
        let xml = xml.replace("<desc />", desc);
        StreamInfo::from_xml(xml.as_bytes()).expect("an info")
    }

    fn header(desc: &str) -> StreamHeader {
        of(&numbering(), &info(desc)).expect("a header")
    }

    fn numbering() -> Numbering {
        let (uid, generation) = ("u".into(), "0-a".into());
        Numbering { uid, generation }
    }

    #[test]
    fn rules_see_after_a_restart_what_the_stream_said() {
        for (desc, is_clean) in [
            ("<desc><x>1 &amp; 2</x></desc>", true),
            ("<desc><a:x>1</a:x></desc>", false),
            ("<desc><x y=\"1\" xmlns=\"z\">\u{1}</x></desc>", false),
            // Who takes our names for its own.
            ("<lsl_generation>0-b</lsl_generation><desc />", false),
            ("<lsl_document>3c</lsl_document>", false),
            ("<lsl_document>00</lsl_document><lsl_document />", false),
            (
                "<lsl:document /><lsl:generation>0-b</lsl:generation>",
                false,
            ),
        ] {
            let header = header(desc);
            let read = parse(&header.to_xml().expect("text")).expect(desc);
            assert_eq!(*read.0, numbering(), "{desc}");
            assert_eq!(read.1.to_xml(), info(desc).to_xml(), "{desc}");
            let is_as_it_was = header.get(DOCUMENT_ELEMENT).is_none();
            assert_eq!(is_as_it_was, is_clean, "{desc}");
        }
    }

    #[test]
    fn what_a_file_cannot_say_is_not_served() {
        // As no network has one.
        let mut info = info("<desc />");
        let document = info.document_mut();
        let mut id = document.child(document.root(), "info").expect("a root");
        for _ in 0..300 {
            id = document.append_element(id, "x").expect("room");
        }
        let header = of(&numbering(), &info).expect("a header");
        let xml = header.to_xml().expect("text");
        assert!(parse(&xml).is_none());
        assert!(read(b"1234<info />").is_none());
    }
}
