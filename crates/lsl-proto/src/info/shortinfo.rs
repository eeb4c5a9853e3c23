//! Builder of the document from the fields alone: for a new info, and for the shortinfo of
//! discovery. Spec: lsl-protocol §2.2.

use super::{Fields, StreamInfo};
use crate::text::format_g16;
use crate::xml::Document;

impl StreamInfo {
    /// Writes the short form that discovery replies carry: all fields, no description. Reads the
    /// fields alone; changes to the document do not appear, but for the mark of a relay.
    pub fn to_shortinfo_xml(&self) -> Vec<u8> {
        self.shortinfo_document().write()
    }
}

// Hidden for the reason given in `assign`.
#[doc(hidden)]
impl StreamInfo {
    /// Returns the document of the short form, for additions.
    pub fn shortinfo_document(&self) -> Document {
        let mut document = document(&self.fields);
        self.copy_relay_mark(&mut document);
        document
    }

    /// Returns the same stream under another name, without the texts that identify it. Spec: LSS/1 §7.3.
    #[must_use]
    pub fn redacted(&self, name: impl Into<Vec<u8>>) -> Self {
        let fields = Fields {
            name: name.into(),
            stream_type: Vec::new(),
            source_id: Vec::new(),
            hostname: Vec::new(),
            session_id: Vec::new(),
            ..self.fields.clone()
        };
        Self {
            document: document(&fields),
            fields,
        }
    }
}

/// Builds the document with all 18 elements in their order, an empty `<desc>` last.
pub(super) fn document(fields: &Fields) -> Document {
    let decimal = |number: u32| number.to_string().into_bytes();
    let Fields { v4, v6, .. } = fields;
    let texts: [(&str, Vec<u8>); 17] = [
        ("name", fields.name.clone()),
        ("type", fields.stream_type.clone()),
        ("channel_count", decimal(fields.channel_count)),
        ("channel_format", fields.channel_format.name().into()),
        ("source_id", fields.source_id.clone()),
        ("nominal_srate", format_g16(fields.nominal_srate)),
        ("version", version_text(fields.version)),
        ("created_at", format_g16(fields.created_at)),
        ("uid", fields.uid.clone()),
        ("session_id", fields.session_id.clone()),
        ("hostname", fields.hostname.clone()),
        ("v4address", v4.address.clone()),
        ("v4data_port", decimal(v4.data_port.into())),
        ("v4service_port", decimal(v4.service_port.into())),
        ("v6address", v6.address.clone()),
        ("v6data_port", decimal(v6.data_port.into())),
        ("v6service_port", decimal(v6.service_port.into())),
    ];
    let mut document = Document::new();
    // An arena this small refuses nothing.
    if let Some(info) = document.append_element(document.root(), "info") {
        for (name, text) in texts {
            if let Some(element) = document.append_element(info, name) {
                document.append_text(element, text);
            }
        }
        document.append_element(info, "desc");
    }
    document
}

pub(super) fn version_text(version: u32) -> Vec<u8> {
    format_g16(f64::from(version) / 100.0)
}
