//! Samples in JetStream of NATS, a subject per generation: requests, and what their replies mean. Spec: relay §12.3.

use std::collections::BTreeMap;

use base64ct::{Base64, Encoding};
use lsl_proto::outlet::frames::Frames;
use lsl_proto::wire::sample110::Restamper;
use lsl_proto::wire::sequence::Generation;
use lsl_proto::{ByteOrder, StreamInfo};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{EngineError, ErrorKind, Meta, Result, Stored};
use crate::id::RelayId;

/// Message to a server that answers it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// Subject.
    pub subject: String,
    /// Headers.
    pub headers: Vec<(&'static str, String)>,
    /// Payload.
    pub payload: Vec<u8>,
}

/// Settings of the JetStream stream that are of importance here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Age in seconds beyond which messages go; 0 if they stay.
    pub max_age_secs: f64,
    /// Whether a message may replace the others of its subject.
    pub allows_rollup: bool,
}

/// Message that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Place in the JetStream stream.
    pub place: u64,
    headers: String,
    /// Payload.
    pub payload: Vec<u8>,
}

impl Message {
    /// Returns the relay that wrote it, if it says so.
    pub fn writer(&self) -> Option<RelayId> {
        self.header(WRITER)?.parse().ok()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.headers.lines().filter_map(|line| line.split_once(':'));
        fields.find_map(|(field, value)| (field == name).then_some(value.trim()))
    }
}

/// What is stored of a stream besides its samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    xml: Vec<u8>,
    /// Relay that writes it; `None` once it does so no more.
    owner: Option<RelayId>,
    end: Option<u64>,
    /// When that was so, in seconds since 1970.
    written: f64,
}

impl Described {
    /// Describes a stream that this relay writes.
    pub fn new(info: &StreamInfo, owner: RelayId) -> Self {
        Self {
            xml: info.to_xml(),
            owner: Some(owner),
            end: None,
            written: 0.0,
        }
    }

    /// Reads a stored description.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for another layout.
    pub fn of(message: Message) -> Result<Self> {
        if message.header(LAYOUT.0) != Some(LAYOUT.1) {
            return Err(corrupt("a description has another form"));
        }
        let written = message.header(WRITTEN).and_then(|at| at.parse().ok());
        Ok(Self {
            owner: message.writer(),
            end: message.header(END).and_then(|end| end.parse().ok()),
            written: written.unwrap_or_default(),
            xml: message.payload,
        })
    }

    /// Whether it is that of this stream.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if it is not.
    pub fn check(&self, info: &StreamInfo) -> Result<()> {
        let found = StreamInfo::from_xml(&self.xml).ok();
        let is_same = found.is_some_and(|found| {
            found.uid() == info.uid()
                && found.channel_format() == info.channel_format()
                && found.channel_count() == info.channel_count()
        });
        let other = || "another stream has this generation there";
        (is_same.then_some(())).ok_or_else(|| EngineError::new(ErrorKind::Conflict, other()))
    }

    /// Returns the description once nobody writes the stream, and the sequence number at which it ended, if it did.
    #[must_use]
    pub fn left(self, end: Option<u64>) -> Self {
        let owner = None;
        Self { owner, end, ..self }
    }

    /// Whether the relay that wrote the stream said that it does so no more.
    pub fn is_left(&self) -> bool {
        self.owner.is_none()
    }

    /// Returns the request that stores it at this time, in seconds since 1970.
    pub fn store(&self, generation: &Generation, on: Settings, unix_secs: u64) -> Request {
        let mut headers = vec![
            (LAYOUT.0, LAYOUT.1.to_owned()),
            (WRITTEN, unix_secs.to_string()),
        ];
        headers.extend(self.owner.map(|owner| (WRITER, owner.to_string())));
        headers.extend(self.end.map(|end| (END, end.to_string())));
        let rollup = on.allows_rollup;
        headers.extend(rollup.then(|| ("Nats-Rollup", "sub".to_owned())));
        Request {
            subject: description_of(generation),
            headers,
            payload: self.xml.clone(),
        }
    }

    /// Returns it as what engines list; `None` if its document is none.
    pub fn stored(&self, generation: Generation) -> Option<Stored> {
        let info = StreamInfo::from_xml(&self.xml).ok()?.into();
        let meta = Meta { generation, info };
        Some(Stored {
            meta,
            end: self.end,
            written: Some(self.written),
        })
    }
}

/// Returns the subject of a stream's samples.
pub fn samples_of(generation: &Generation) -> String {
    format!("lsl.d.{generation}")
}

/// Returns the subject of a stream's description.
pub fn description_of(generation: &Generation) -> String {
    format!("lsl.m.{generation}")
}

/// Returns the request that asks for the JetStream stream.
pub fn ask() -> Request {
    api("STREAM.INFO.LSL", &json!({}))
}

/// Returns the request that makes it.
pub fn make(max_age_secs: f64, max_bytes: u64, replicas: u32) -> Request {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "as many nanoseconds as there may be"
    )]
    let max_age = (max_age_secs * 1e9) as i64;
    let settings = json!({
        "name": "LSL", "subjects": SUBJECTS, "retention": "limits", "storage": "file", "discard": "old",
        "max_age": max_age, "max_bytes": i64::try_from(max_bytes).unwrap_or(i64::MAX),
        "num_replicas": replicas, "allow_direct": true, "allow_rollup_hdrs": true,
    });
    api("STREAM.CREATE.LSL", &settings)
}

/// Returns the request for the last message of a subject.
pub fn last(subject: &str) -> Request {
    api("STREAM.MSG.GET.LSL", &json!({ "last_by_subj": subject }))
}

/// Returns the request for the first message of a subject at this place or behind it.
pub fn next(subject: &str, place: u64) -> Request {
    let wanted = json!({ "seq": place.max(1), "next_by_subj": subject });
    api("STREAM.MSG.GET.LSL", &wanted)
}

/// Returns the request for the names of subjects with descriptions, so many of which are known.
pub fn list(known: usize) -> Request {
    let wanted = json!({ "subjects_filter": "lsl.m.*", "offset": known });
    api("STREAM.INFO.LSL", &wanted)
}

/// Returns the request that appends samples, if the last message of the subject has this place; 0 for none.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for samples that have no timestamp.
pub fn append(meta: &Meta, relay: RelayId, frames: &Frames, last: u64) -> Result<Request> {
    let stamper = Restamper::new(ByteOrder::NATIVE, meta.info.nominal_srate());
    let stamp = stamper.transmitted(&frames.bytes);
    let stamp = stamp.ok_or_else(|| corrupt("samples without a timestamp"))?;
    let count = u32::try_from(frames.count).map_err(|_| corrupt("too many samples"))?;
    let mut payload = Vec::with_capacity(HEAD_BYTES + frames.bytes.len());
    payload.extend_from_slice(&frames.first.to_be_bytes());
    payload.extend_from_slice(&count.to_be_bytes());
    payload.extend_from_slice(&stamp.to_be_bytes());
    payload.push(FLAGS);
    payload.extend_from_slice(&frames.bytes);
    Ok(Request {
        subject: samples_of(&meta.generation),
        headers: vec![
            ("Nats-Expected-Last-Subject-Sequence", last.to_string()),
            (WRITER, relay.to_string()),
        ],
        payload,
    })
}

/// Returns the samples of a message.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for one of another form.
pub fn samples(payload: &[u8]) -> Result<Frames> {
    let wrong = || corrupt("a message has another form");
    let (first, rest) = payload.split_first_chunk().ok_or_else(wrong)?;
    let (count, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
    let (_stamp, rest) = rest.split_first_chunk::<8>().ok_or_else(wrong)?;
    let (flags, bytes) = rest.split_first().ok_or_else(wrong)?;
    let (first, count) = (u64::from_be_bytes(*first), u32::from_be_bytes(*count));
    if *flags != FLAGS {
        return Err(corrupt("samples are kept in another way"));
    }
    if count == 0 || first.checked_add(count.into()).is_none() {
        return Err(wrong());
    }
    Ok(Frames {
        first,
        count: count.into(),
        bytes: bytes.to_vec(),
    })
}

/// Reads the reply to [`ask`]; `None` if there is no such stream.
///
/// # Errors
/// That of the reply, or [`ErrorKind::Denied`] for settings with which samples would be lost.
pub fn settings(reply: &[u8]) -> Result<Option<Settings>> {
    let Some(reply) = unless(NO_STREAM, reply)? else {
        return Ok(None);
    };
    let Config {
        retention,
        max_age,
        allow_rollup_hdrs,
    } = reply.config;
    if retention != "limits" {
        let text = format!(
            "its stream LSL has retention {retention}, which deletes what was read; make it limits"
        );
        return Err(EngineError::new(ErrorKind::Denied, text));
    }
    Ok(Some(Settings {
        max_age_secs: max_age / 1e9,
        allows_rollup: allow_rollup_hdrs,
    }))
}

/// Reads the reply to [`make`]: somebody else may have made it meanwhile.
///
/// # Errors
/// That of the reply.
pub fn made(reply: &[u8]) -> Result<()> {
    let made = unless(HAS_STREAM, reply).map(drop);
    made.map_err(|error| EngineError {
        text: format!(
            "cannot make its stream LSL: {}; max_size says how large, min_replicas how often it is kept",
            error.text
        ),
        ..error
    })
}

/// Reads the reply to [`last`] and [`next`]; `None` if there is no message.
///
/// # Errors
/// That of the reply, or [`ErrorKind::Corrupt`] for one of another form.
pub fn message(reply: &[u8]) -> Result<Option<Message>> {
    let Some(Reply { message, .. }) = unless(NO_MESSAGE, reply)? else {
        return Ok(None);
    };
    let (headers, payload) = (
        Base64::decode_vec(&message.hdrs),
        Base64::decode_vec(&message.data),
    );
    // Places begin at 1.
    let (1.., Ok(headers), Ok(payload)) = (message.seq, headers, payload) else {
        return Err(corrupt("a reply has another form"));
    };
    Ok(Some(Message {
        place: message.seq,
        headers: String::from_utf8_lossy(&headers).into_owned(),
        payload,
    }))
}

/// Reads the reply to what is stored; `None` if another message was the last of its subject.
///
/// # Errors
/// That of the reply.
pub fn stored(reply: &[u8]) -> Result<Option<u64>> {
    let Some(reply) = unless(WRONG_LAST, reply)? else {
        return Ok(None);
    };
    // What is no acknowledgement has no place.
    let place = reply.seq.map(Some);
    place.ok_or_else(|| corrupt("a reply has another form"))
}

/// Reads the reply to [`list`]: names of subjects. Empty if there are no more.
///
/// # Errors
/// That of the reply.
pub fn listed(reply: &[u8]) -> Result<Vec<String>> {
    let reply = unless(NO_STREAM, reply)?.unwrap_or_default();
    Ok(reply.state.subjects.into_keys().collect())
}

/// Returns the generation that a subject of [`listed`] describes.
pub fn described(subject: &str) -> Option<Generation> {
    Generation::parse(subject.strip_prefix("lsl.m.")?.as_bytes())
}

/// Whether a server lets messages be large enough.
///
/// # Errors
/// [`ErrorKind::Denied`] if it does not.
pub fn check_payload(most: usize) -> Result<()> {
    if most >= LEAST_PAYLOAD {
        return Ok(());
    }
    let text =
        format!("its max_payload is {most}, too small for samples; set {LEAST_PAYLOAD} or more");
    Err(EngineError::new(ErrorKind::Denied, text))
}

/// Returns the error for a request that nothing answers.
pub fn unanswered(subject: &str) -> EngineError {
    let text = if subject.starts_with("$JS.") {
        "nobody answers for JetStream; enable it (jetstream {} in the server's settings), and for the account"
    } else {
        "no stream of JetStream takes lsl.d.* and lsl.m.*; give its stream LSL these subjects"
    };
    EngineError::new(ErrorKind::Retry, text)
}

fn api(name: &str, payload: &Value) -> Request {
    Request {
        subject: format!("$JS.API.{name}"),
        headers: Vec::new(),
        payload: payload.to_string().into_bytes(),
    }
}

/// What a server replies, as far as it is of importance here: each request has some of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reply {
    error: Option<Refusal>,
    config: Config,
    message: Found,
    seq: Option<u64>,
    state: State,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    code: u64,
    err_code: u64,
    description: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    retention: String,
    max_age: f64,
    allow_rollup_hdrs: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Found {
    seq: u64,
    hdrs: String,
    data: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    /// With the number of their messages.
    subjects: BTreeMap<String, u64>,
}

/// Returns a reply; `None` if it is this error.
fn unless(absent: u64, reply: &[u8]) -> Result<Option<Reply>> {
    let reply: Reply =
        serde_json::from_slice(reply).map_err(|_| corrupt("a reply has another form"))?;
    let Some(error) = reply.error else {
        return Ok(Some(reply));
    };
    let kind = match (error.err_code, error.code) {
        (number, _) if number == absent => return Ok(None),
        (number, _) if FULL.contains(&number) => ErrorKind::Full,
        (number, _) if DENIED.contains(&number) => ErrorKind::Denied,
        // What may have been there a moment ago, and what another server of a cluster knows better.
        (NO_STREAM, _) | (_, 408 | 500..=599) => ErrorKind::Retry,
        _ => ErrorKind::Denied,
    };
    Err(EngineError::new(kind, error.description))
}

fn corrupt(text: &str) -> EngineError {
    EngineError::new(ErrorKind::Corrupt, text)
}

/// Headers of descriptions: the layout, when it was written, and the sequence number after the last sample.
const LAYOUT: (&str, &str) = ("Lsl-Layout", "1");
const WRITTEN: &str = "Lsl-Written";
const END: &str = "Lsl-End";

const SUBJECTS: [&str; 2] = ["lsl.d.*", "lsl.m.*"];

/// Header of all messages: the relay that writes.
const WRITER: &str = "Lsl-Relay";

/// Bytes before the frames: first number, count, timestamp, byte order.
const HEAD_BYTES: usize = 8 + 4 + 8 + 1;

/// Byte order of the frames: 0 little, 1 big.
const FLAGS: u8 = cfg!(target_endian = "big") as u8;

/// Bytes that a message must be allowed to have: a batch of 64 KiB of which each sample, of one byte and its tag, gets a
/// timestamp besides.
const LEAST_PAYLOAD: usize = 384 << 10;

/// Numbers of errors (`err_code`) in the server's errors.json.
const NO_MESSAGE: u64 = 10037;
const HAS_STREAM: u64 = 10058;
const NO_STREAM: u64 = 10059;
const WRONG_LAST: u64 = 10071;

/// No room in account, server, memory, on the disk; a stream with `discard: new`.
const FULL: [u64; 5] = [10002, 10023, 10028, 10047, 10077];

/// JetStream is off, for the account or at all; more replicas than servers.
const DENIED: [u64; 3] = [10039, 10074, 10076];

#[cfg(test)]
mod tests;
