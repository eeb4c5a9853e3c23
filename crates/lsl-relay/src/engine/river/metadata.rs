//! Names of River's streams and keys, and the hash that describes a stream. Spec: relay §12.2.

use std::collections::BTreeMap;
use std::fmt::Write;

use lsl_proto::StreamInfo;
use lsl_proto::wire::sequence::Generation;
use sha2::{Digest, Sha256};

use super::{Schema, Unreadable};
use crate::engine::resp::Reply;

/// Returns the name under which a stream is stored: one writer has it, for ever. After the first, a number says which.
pub fn stream_name(info: &StreamInfo, generation: &Generation, number: u32) -> String {
    let last = if number > 1 {
        format!("{generation}.{number}")
    } else {
        generation.to_string()
    };
    let mut room = MOST_NAME.saturating_sub("lsl...".len() + last.len());
    let session = tame(info.session_id_bytes(), room / 2);
    room = room.saturating_sub(session.len());
    let name = tame(info.name_bytes(), room);
    format!("lsl.{session}.{name}.{last}")
}

fn tame(text: &[u8], most: usize) -> String {
    let kept = text.iter().take(most).map(|&byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte),
        _ => '_',
    });
    kept.collect()
}

/// Returns the numbering of LSL that a stream has by its name, if it comes from there.
pub fn generation_of_lsl(name: &str) -> Option<Generation> {
    let parts = name.strip_prefix("lsl.")?;
    Generation::parse(parts.split('.').nth(2)?.as_bytes())
}

/// Returns the numbering of a stream: that of LSL, if it comes from there, else the SHA-256 of its name and of when it was
/// made, as a name may be used again.
pub fn generation(name: &str, initialized_at_us: i64) -> Option<Generation> {
    let digest = || hex(&Sha256::digest(format!("{name} {initialized_at_us}")));
    generation_of_lsl(name).or_else(|| Generation::parse(digest().as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to memory cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the uid of the LSL stream that a River stream becomes: the same at every relay.
pub fn uid(name: &str) -> String {
    let digits = hex(&Sha256::digest(format!("lsl-relay river {name}")));
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    let parts = parts.map(|part| digits.get(part).unwrap_or_default());
    parts.join("-")
}

/// Returns the key of the hash that describes a stream.
pub fn metadata_key(name: &str) -> String {
    format!("{name}{METADATA}")
}

/// Returns the stream that a hash describes.
pub fn described_by(key: &str) -> Option<&str> {
    key.strip_suffix(METADATA).filter(|name| !name.is_empty())
}

/// Returns the key of samples with this number.
pub fn samples_key(name: &str, number: u64) -> String {
    format!("{name}-{number}")
}

/// Returns the number of a key of samples.
pub(super) fn number_of(name: &str, key: &[u8]) -> Option<u64> {
    let number = key.strip_prefix(name.as_bytes())?.strip_prefix(b"-")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Description of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// Oldest key of samples.
    pub first_key: Vec<u8>,
    /// What each sample consists of.
    pub schema: Schema,
    /// Unix time in µs at which the stream was made.
    pub initialized_at_us: i64,
    /// Clock of the writer minus that of the server, in µs.
    pub local_minus_server_us: Option<i64>,
    /// What the writer says of the stream.
    pub user: BTreeMap<String, String>,
}

impl Metadata {
    /// Parses the fields and values of the hash.
    ///
    /// # Errors
    /// [`Unreadable`] if something is missing, of another form, or the stream is compressed.
    pub fn parse<'a>(
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self, Unreadable> {
        let pairs: BTreeMap<_, _> = pairs.collect();
        let find = |name: &str| pairs.get(name.as_bytes()).copied();
        let need = |name| find(name).ok_or_else(|| Unreadable(format!("it has no {name}")));
        let number = |name| {
            let text = std::str::from_utf8(need(name)?).ok();
            let number = text.and_then(|text| text.parse::<i64>().ok());
            number.ok_or_else(|| Unreadable(format!("its {name} is no number")))
        };
        if find("compression_params_json").is_some() {
            let text = "it is compressed, which takes River's module in the server to read; write it uncompressed";
            return Err(Unreadable(text.to_owned()));
        }
        let first_key = need("first_stream_key")?.to_vec();
        if first_key.is_empty() {
            return Err(Unreadable("its first_stream_key is empty".to_owned()));
        }
        let user = match find("user_metadata") {
            Some(json) => serde_json::from_slice::<Option<BTreeMap<String, String>>>(json)
                .map_err(|error| {
                    Unreadable(format!("its user_metadata cannot be read: {error}"))
                })?,
            None => None,
        };
        Ok(Self {
            first_key,
            schema: Schema::parse(need("schema")?)?,
            initialized_at_us: number("initialized_at_us")?,
            local_minus_server_us: match find("local_minus_server_clock_us") {
                Some(_) => Some(number("local_minus_server_clock_us")?),
                None => None,
            },
            user: user.unwrap_or_default(),
        })
    }

    /// Parses the reply to `HGETALL`; `None` if there is no such stream.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn of_reply(reply: &Reply) -> Result<Option<Self>, Unreadable> {
        let list = reply.list().unwrap_or_default();
        if list.is_empty() {
            return Ok(None);
        }
        let pairs = list.chunks_exact(2).filter_map(|pair| match pair {
            [name, value] => Some((name.bytes()?, value.bytes()?)),
            _ => None,
        });
        Self::parse(pairs).map(Some)
    }

    /// Returns the fields and values as River writes them, in its order.
    pub fn pairs(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut pairs = vec![
            ("first_stream_key", self.first_key.clone()),
            ("schema", self.schema.to_json().into_bytes()),
        ];
        if let Some(us) = self.local_minus_server_us {
            pairs.push(("local_minus_server_clock_us", us.to_string().into_bytes()));
        }
        let at = self.initialized_at_us.to_string();
        pairs.push(("initialized_at_us", at.into_bytes()));
        pairs.push(("user_metadata", user_json(&self.user).into_bytes()));
        pairs
    }
}

/// Returns what the writer says of a stream as River writes it: `null` if that is nothing.
pub fn user_json(user: &BTreeMap<String, String>) -> String {
    let user = Some(user).filter(|user| !user.is_empty());
    // Neither a number nor a key that is no text.
    serde_json::to_string(&user).unwrap_or_default()
}

const METADATA: &str = "-metadata";

/// Bytes of a name.
const MOST_NAME: usize = 255;

#[cfg(test)]
mod tests {
    use lsl_proto::ChannelFormat;

    use super::super::schema::{Field, FieldType};
    use super::*;

    fn metadata() -> Metadata {
        Metadata {
            first_key: b"s-0".to_vec(),
            schema: Schema {
                fields: vec![Field::number("x", FieldType::Float)],
            },
            initialized_at_us: 1_700_000_000_123_456,
            local_minus_server_us: None,
            user: BTreeMap::new(),
        }
    }

    fn parse(pairs: &[(&'static str, Vec<u8>)]) -> Result<Metadata, Unreadable> {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (name.as_bytes(), &value[..]));
        Metadata::parse(pairs)
    }

    #[test]
    fn names_are_tame_and_short_and_keep_their_generation() {
        let mut info = StreamInfo::new("EEG äx.1", "t", 1, 0.0, ChannelFormat::Int8, "").unwrap();
        info.set_session_id("lab 1");
        let generation = Generation::parse(b"0123-ab").unwrap();
        let name = |info: &StreamInfo, number| stream_name(info, &generation, number);
        assert_eq!(name(&info, 1), "lsl.lab_1.EEG___x_1.0123-ab");
        assert_eq!(name(&info, 2), "lsl.lab_1.EEG___x_1.0123-ab.2");
        info = StreamInfo::new("n".repeat(400), "t", 1, 0.0, ChannelFormat::Int8, "").unwrap();
        info.set_session_id("s".repeat(400));
        let long = name(&info, u32::MAX);
        assert_eq!(long.len(), 255);
        assert!(long.ends_with("nnn.0123-ab.4294967295"), "{long}");
    }

    #[test]
    fn a_numbering_is_that_of_lsl_or_of_one_stream_of_a_name() {
        let of = |name, at| generation(name, at).unwrap();
        for name in ["lsl.s.n.0-ab", "lsl.s.n.0-ab.2"] {
            assert_eq!(of(name, 1).as_str(), "0-ab");
            assert_eq!(of(name, 1), of(name, 2));
        }
        let hash = "fb9c5784e26c56f78002017764a3c18ec54d9b39788529744f76469456795e1d";
        assert_eq!(of("other", 7).as_str(), hash);
        assert_ne!(of("other", 7), of("other", 8));
        assert_ne!(of("other", 7), of("another", 7));
        assert_ne!(uid("other"), uid("another"));
    }

    #[test]
    fn descriptions_are_written_in_rivers_order_and_read_back() {
        let mut described = metadata();
        let names = |it: &Metadata| it.pairs().iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let expected = [
            "first_stream_key",
            "schema",
            "initialized_at_us",
            "user_metadata",
        ];
        assert_eq!(names(&described), expected);
        assert_eq!(described.pairs()[3].1, b"null");
        assert_eq!(parse(&described.pairs()), Ok(described.clone()));
        described.local_minus_server_us = Some(-5);
        described.user.insert("b".into(), "\n\"é".into());
        described.user.insert("a".into(), String::new());
        let pairs = described.pairs();
        assert_eq!(pairs[4].1, r#"{"a":"","b":"\n\"é"}"#.as_bytes());
        assert_eq!(parse(&pairs), Ok(described));
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let without = |name| {
            let mut pairs = metadata().pairs();
            pairs.retain(|(it, _)| *it != name);
            parse(&pairs).unwrap_err().to_string()
        };
        assert_eq!(without("schema"), "it has no schema");
        assert_eq!(without("initialized_at_us"), "it has no initialized_at_us");
        let mut pairs = metadata().pairs();
        pairs.push(("compression_params_json", b"{}".to_vec()));
        let why = parse(&pairs).unwrap_err().to_string();
        assert!(why.starts_with("it is compressed"), "{why}");
        pairs = metadata().pairs();
        pairs[3].1 = br#"{"a":1}"#.to_vec();
        assert!(parse(&pairs).is_err());
        assert_eq!(number_of("s", b"s-12"), Some(12));
        assert_eq!(number_of("s", b"s-metadata"), None);
        assert_eq!(
            (described_by("a-metadata"), described_by("-metadata")),
            (Some("a"), None)
        );
    }
}
