//! Mark of a stream that a relay gives out: `<lsl_relay …/>`, the last child of `<info>`. Spec: relay §3, §6.

use super::endpoint::Family;
use super::{Fields, StreamInfo, shortinfo};
use crate::xml::{Document, ElementRef, NodeId};

/// Origin of a stream that came through a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayAdvert {
    /// Uid of the outlet that the stream comes from.
    pub origin: Vec<u8>,
    /// Ids of the relays it came through, the one nearest to the origin first.
    pub path: Vec<String>,
    /// When the last samples came, in seconds since 1970, of a stream that is over.
    pub ended: Option<u64>,
}

impl StreamInfo {
    /// Returns the origin of the stream, if this info was given out by a relay or by an outlet of one.
    pub fn relay_advert(&self) -> Option<RelayAdvert> {
        let element = ElementRef::new(self.document(), self.relay_element()?)?;
        let value = |name: &[u8]| {
            let attribute = (element.attributes().iter()).find(|attribute| attribute.name == name);
            attribute.map_or(&b""[..], |attribute| &attribute.value)
        };
        let path = String::from_utf8_lossy(value(b"path"));
        let path = path.split_ascii_whitespace().take(MAX_PATH);
        Some(RelayAdvert {
            origin: value(b"origin").to_vec(),
            path: path.map(str::to_owned).collect(),
            ended: std::str::from_utf8(value(b"ended"))
                .ok()
                .and_then(|it| it.parse().ok()),
        })
    }

    /// Returns this stream as programs are to see it that read it through a relay: without addresses, which would
    /// not lead to it from here, and without its description.
    #[must_use]
    pub fn relayed(&self) -> Self {
        let fields = Fields {
            v4: Family::default(),
            v6: Family::default(),
            ..self.fields.clone()
        };
        let mut document = shortinfo::document(&fields);
        self.copy_relay_mark(&mut document);
        Self { fields, document }
    }

    /// Removes the mark: an outlet that is made from what a relay gave out is an origin of its own.
    pub fn remove_relay_mark(&mut self) {
        while let Some(element) = self.relay_element() {
            self.document.remove(element);
        }
    }

    /// Appends the mark, if there is one, to a document of this stream.
    pub(super) fn copy_relay_mark(&self, document: &mut Document) {
        if let Some(parent) = document.child(document.root(), "info")
            && let Some(element) = self.relay_element()
        {
            document.append_copy(parent, &self.document, element);
        }
    }

    fn relay_element(&self) -> Option<NodeId> {
        let document = self.document();
        let info = document.child(document.root(), "info")?;
        let marks = document.children(info);
        marks
            .filter(|child| document.name(*child) == ELEMENT)
            .last()
    }
}

const ELEMENT: &[u8] = b"lsl_relay";

/// Relays of a path that are looked at; a stream passes four of them at most.
const MAX_PATH: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChannelFormat;

    #[test]
    fn a_relayed_stream_keeps_its_mark_and_neither_address_nor_description() {
        let mut info = StreamInfo::new("n", "t", 2, 1.0, ChannelFormat::Int8, "s").unwrap();
        info.reset_uid("u-1");
        info.desc_mut().append_child("channels");
        assert_eq!(info.relay_advert(), None);
        let text = String::from_utf8(info.to_xml()).unwrap();
        let mark = r#"<lsl_relay v="1" origin="u-1" path="00112233aabbccdd  ffeeddccbbaa9988" ended="1800000000"/>"#;
        let text = text.replace("</info>", &format!("{mark}</info>"));
        let text = text.replace("<v4address />", "<v4address>10.0.0.1</v4address>");
        let info = StreamInfo::from_xml(text.as_bytes()).unwrap();
        let expected = RelayAdvert {
            origin: b"u-1".to_vec(),
            path: vec!["00112233aabbccdd".into(), "ffeeddccbbaa9988".into()],
            ended: Some(1_800_000_000),
        };
        assert_eq!(info.relay_advert(), Some(expected.clone()));
        let relayed = info.relayed();
        assert_eq!(relayed.v4_address_bytes(), b"");
        assert_eq!(relayed.relay_advert(), Some(expected.clone()));
        // Programs make infos again from their text, and searches from the short one.
        let again = StreamInfo::from_xml(&relayed.to_xml()).unwrap();
        assert_eq!(again.relay_advert(), Some(expected.clone()));
        let mut short = StreamInfo::from_xml(&info.to_shortinfo_xml()).unwrap();
        assert_eq!(short.relay_advert(), Some(expected));
        short.remove_relay_mark();
        assert_eq!(short.relay_advert(), None);
        assert_eq!((again.uid_bytes(), again.channel_count()), (&b"u-1"[..], 2));
        let xml = String::from_utf8(relayed.to_xml()).unwrap();
        assert!(!xml.contains("channels"), "{xml}");
    }
}
