//! A stream as rows and as JSON, for `list` and `info`.

use lsl_core::StreamInfo;
use lsl_core::xml::ElementRef;
use serde::Serialize;
use serde_json::{Map, Value};

use super::encryption::{self, Claimed, Names};
use crate::ui::text::{printable, rate};

/// The fields of a stream, in the form that `--json` prints. Names follow the XML.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Described {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) stream_type: String,
    pub(crate) channel_count: u32,
    pub(crate) nominal_srate: f64,
    pub(crate) channel_format: &'static str,
    pub(crate) source_id: String,
    pub(crate) hostname: String,
    pub(crate) session_id: String,
    pub(crate) uid: String,
    pub(crate) version: f64,
    /// Seconds of the serving host's clock.
    pub(crate) created_at: f64,
    pub(crate) v4_address: String,
    pub(crate) v4_data_port: u16,
    pub(crate) v4_service_port: u16,
    pub(crate) v6_address: String,
    pub(crate) v6_data_port: u16,
    pub(crate) v6_service_port: u16,
    /// Announcement of the outlet; null if it offers no encryption.
    pub(crate) encryption: Option<Claimed>,
    /// Relays that it came through, nearest to its origin first; null if it comes from its outlet.
    pub(crate) relays: Option<Vec<String>>,
    /// When its last samples came, in seconds since 1970, if it is over; else null.
    pub(crate) ended: Option<u64>,
    /// What people call them, in the same order; their ids before that is known.
    #[serde(skip)]
    pub(crate) relay_names: Vec<String>,
}

impl From<&StreamInfo> for Described {
    fn from(info: &StreamInfo) -> Self {
        Self {
            name: info.name().into_owned(),
            stream_type: info.stream_type().into_owned(),
            channel_count: info.channel_count(),
            nominal_srate: info.nominal_srate(),
            channel_format: info.channel_format().name(),
            source_id: info.source_id().into_owned(),
            hostname: info.hostname().into_owned(),
            session_id: info.session_id().into_owned(),
            uid: info.uid().into_owned(),
            version: f64::from(info.version()) / 100.0,
            created_at: info.created_at(),
            v4_address: info.v4_address().into_owned(),
            v4_data_port: info.v4_data_port(),
            v4_service_port: info.v4_service_port(),
            v6_address: info.v6_address().into_owned(),
            v6_data_port: info.v6_data_port(),
            v6_service_port: info.v6_service_port(),
            encryption: Claimed::of(info),
            relays: info.relay_advert().map(|advert| advert.path),
            ended: info.relay_advert().and_then(|advert| advert.ended),
            relay_names: (info.relay_advert()).map_or_else(Vec::new, |advert| advert.path),
        }
    }
}

impl Described {
    /// Fills in the names of its key and its relays.
    pub(crate) fn name(&mut self, names: &Names) {
        if let Some(claimed) = &mut self.encryption {
            names.complete(claimed);
        }
        let relays = self.relays.iter().flatten();
        self.relay_names = relays.map(|id| names.of_relay(id)).collect();
    }

    /// Returns where samples come from, `address:port`, the preferred way first.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let v4 = (!self.v4_address.is_empty() && self.v4_data_port != 0)
            .then(|| format!("{}:{}", self.v4_address, self.v4_data_port));
        let v6 = (!self.v6_address.is_empty() && self.v6_data_port != 0)
            .then(|| format!("[{}]:{}", self.v6_address, self.v6_data_port));
        let relay = self.relay_names.last();
        let relay = relay.map(|relay| format!("relay {}", printable(relay)));
        v4.into_iter().chain(v6).chain(relay).collect()
    }
}

/// Marks the streams that another one claims to be: same name and same, non-empty source id.
pub(crate) fn duplicates(streams: &[Described]) -> Vec<bool> {
    let same = |a: &Described, b: &Described| {
        a.uid != b.uid && !a.source_id.is_empty() && a.name == b.name && a.source_id == b.source_id
    };
    streams
        .iter()
        .map(|a| streams.iter().any(|b| same(a, b)))
        .collect()
}

/// Converts an element to JSON: text as a string, children as members, repeated names as arrays,
/// attributes as members `@name`, text beside children as `#text`.
pub(crate) fn element_json(element: ElementRef<'_>) -> Value {
    let mut members = Map::new();
    for attribute in element.attributes() {
        let name = format!("@{}", String::from_utf8_lossy(&attribute.name));
        let value = String::from_utf8_lossy(&attribute.value).into_owned();
        members.insert(name, value.into());
    }
    for child in element.children() {
        let value = element_json(child);
        match members.get_mut(child.name().as_ref()) {
            None => drop(members.insert(child.name().into_owned(), value)),
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    let text = element.text().trim().to_owned();
    match (members.is_empty(), text.is_empty()) {
        (true, _) => Value::String(element.text().into_owned()),
        (false, true) => Value::Object(members),
        (false, false) => {
            members.insert("#text".into(), text.into());
            Value::Object(members)
        }
    }
}

/// Formats everything that tells a stream from others, in one line.
pub(crate) fn one_line(stream: &Described) -> String {
    let Described {
        name,
        stream_type,
        channel_count,
        channel_format,
        source_id,
        ..
    } = stream;
    let rate = rate(stream.nominal_srate);
    let encryption = stream
        .encryption
        .as_ref()
        .map_or_else(String::new, |claimed| {
            format!(", encryption {}", encryption::cell(Some(claimed)))
        });
    printable(&format!(
        "{name} [{stream_type}] {channel_count} x {channel_format}, {rate}, source id \
         '{source_id}', {} {}{encryption}",
        stream.hostname,
        stream.addresses().join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use lsl_core::ChannelFormat;
    use serde_json::json;

    use super::*;

    fn described(name: &str, source_id: &str, uid: &str) -> Described {
        let format = ChannelFormat::Float32;
        let info = StreamInfo::new(name, "EEG", 1, 0.0, format, source_id).unwrap();
        Described {
            uid: uid.into(),
            ..Described::from(&info)
        }
    }

    #[test]
    fn streams_that_claim_the_same_identity_are_duplicates() {
        let streams = [
            described("a", "1", "u"),
            described("a", "2", "v"),
            described("a", "1", "w"),
            described("b", "", "x"),
            described("b", "", "y"),
        ];
        assert_eq!(duplicates(&streams), [true, false, true, false, false]);
        // The same outlet seen twice is no duplicate.
        assert_eq!(
            duplicates(&[described("a", "1", "u"), described("a", "1", "u")]),
            [false; 2]
        );
    }

    #[test]
    fn addresses_prefer_version_4() {
        let mut stream = described("a", "1", "u");
        assert_eq!(stream.addresses(), [""; 0]);
        stream.v6_address = "::1".into();
        stream.v6_data_port = 5;
        assert_eq!(stream.addresses(), ["[::1]:5"]);
        stream.v4_address = "127.0.0.1".into();
        assert_eq!(stream.addresses(), ["[::1]:5"]);
        stream.v4_data_port = 4;
        assert_eq!(stream.addresses(), ["127.0.0.1:4", "[::1]:5"]);
    }

    #[test]
    fn metadata_as_json() {
        let mut info = StreamInfo::new("a", "EEG", 2, 0.0, ChannelFormat::Float32, "").unwrap();
        let empty = info.desc_ref().map(element_json);
        assert_eq!(empty, Some(json!("")));
        info.desc_mut().set("manufacturer", "Acme");
        {
            let mut channels = info.desc_mut().into_child("channels");
            channels
                .append_child("channel")
                .set("label", "C3")
                .set("unit", "uV");
            channels.append_child("channel").set("label", "C4");
            channels.append_child("channel");
        }
        let found = info.desc_ref().map(element_json);
        let expected = json!({
            "manufacturer": "Acme",
            "channels": {"channel": [{"label": "C3", "unit": "uV"}, {"label": "C4"}, ""]},
        });
        assert_eq!(found, Some(expected));
    }
}
