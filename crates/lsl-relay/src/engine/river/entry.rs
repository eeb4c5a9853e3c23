//! Entries of River's keys. Spec: relay §12.2.

use std::fmt;

use super::Unreadable;
use crate::engine::resp::Reply;

/// Place of an entry in its key: Unix time of the server in ms, and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct EntryId {
    /// Unix time in ms.
    pub ms: u64,
    /// Number within the ms.
    pub number: u64,
}

impl EntryId {
    /// Parses `MS-NUMBER`.
    pub fn parse(text: &str) -> Option<Self> {
        let (ms, number) = text.split_once('-')?;
        Some(Self {
            ms: ms.parse().ok()?,
            number: number.parse().ok()?,
        })
    }

    /// Returns what no entry is behind that was made before this Unix time in seconds.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to what it may be"
    )]
    pub fn before(unix_secs: f64) -> Self {
        Self {
            ms: (unix_secs * 1e3).max(0.0) as u64,
            number: 0,
        }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.number)
    }
}

/// Entry of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Place in the key.
    pub id: EntryId,
    /// What it is.
    pub kind: Kind,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A sample with its index.
    Sample(u64, Vec<u8>),
    /// End of the key: the stream goes on in this one. The last sample has this index.
    Tombstone(Vec<u8>, u64),
    /// End of the stream. The last sample has this index.
    Eof(u64),
}

/// Returns the entries of a reply to `XRANGE` and its like.
///
/// # Errors
/// [`Unreadable`] if there is one that River does not have.
pub fn entries(reply: &Reply) -> Result<Vec<Entry>, Unreadable> {
    let list = match reply {
        Reply::Nil => &[],
        _ => reply
            .list()
            .ok_or_else(|| Unreadable("it is no stream".to_owned()))?,
    };
    list.iter().map(entry).collect()
}

fn entry(reply: &Reply) -> Result<Entry, Unreadable> {
    let wrong = |text: &str| Unreadable(format!("an entry has {text}"));
    let [id, fields] = reply.list().unwrap_or_default() else {
        return Err(wrong("no fields"));
    };
    let id = id
        .text()
        .and_then(EntryId::parse)
        .ok_or_else(|| wrong("no id"))?;
    let number = |name| {
        let text = fields.field(name).and_then(Reply::text);
        let number = text.and_then(|text| text.parse().ok());
        // Those of River are of 64 bits with a sign.
        let number = number.filter(|number| i64::try_from(*number).is_ok());
        number.ok_or_else(|| wrong(&format!("no {name} that is a number")))
    };
    let bytes = |name| {
        fields
            .field(name)
            .and_then(Reply::bytes)
            .map(<[u8]>::to_vec)
    };
    let kind = if let Some(val) = bytes("val") {
        Kind::Sample(number("i")?, val)
    } else if fields.field("eof").is_some() {
        Kind::Eof(number("sample_index")?)
    } else if fields.field("tombstone").is_some() {
        let next = bytes("next_stream_key").filter(|key| !key.is_empty());
        let next = next.ok_or_else(|| wrong("no next_stream_key"))?;
        Kind::Tombstone(next, number("sample_index")?)
    } else if fields.field("reference").is_some() {
        return Err(wrong(
            "a reference: the stream is compressed, which takes River's module to read",
        ));
    } else {
        return Err(wrong("neither val, tombstone nor eof"));
    };
    Ok(Entry { id, kind })
}
