//! Reads a stream of River from a server. Spec: relay §12.2.

use std::sync::Arc;

use lsl_core::{StreamInfo, local_clock};

use super::redis::{Redis, Server};
use crate::engine::packed;
use crate::engine::resp::{Commands, Reply};
use crate::engine::river::{
    EntryId, Metadata, Packing, Reader, Turn, Unreadable, described_by, entries, metadata_key,
};
use crate::engine::{EngineError, ErrorKind, Result};

/// Reader of one stream. Who waits for its samples wants a connection of its own.
#[derive(Debug)]
pub(in crate::shell) struct Follow {
    redis: Arc<Redis>,
    metadata: Metadata,
    reader: Reader,
    /// Entries that are asked for at a time.
    most: usize,
}

impl Follow {
    /// Opens a stream, to be read from its oldest sample on; `None` if there is none of this name.
    ///
    /// # Errors
    /// [`EngineError`]
    pub(in crate::shell) async fn open(redis: Arc<Redis>, name: &str) -> Result<Option<Self>> {
        let mut commands = Commands::default();
        commands.add(&[&"HGETALL", &metadata_key(name)]);
        let described = ask(&redis, commands).await?;
        let Some(metadata) = Metadata::of_reply(&described).map_err(corrupt)? else {
            return Ok(None);
        };
        let most = REPLY_BYTES / metadata.schema.sample_len().max(1);
        Ok(Some(Self {
            redis,
            reader: Reader::new(name, &metadata),
            metadata,
            most: most.clamp(1, MOST_ENTRIES),
        }))
    }

    /// Returns what is said of the stream.
    pub(in crate::shell) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns how its samples become those of LSL, and its description there.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if LSL has no stream for it.
    pub(in crate::shell) fn described(
        &self,
        name: &str,
        srate: f64,
    ) -> Result<(Packing, StreamInfo)> {
        Packing::of_metadata(name, &self.metadata, srate).map_err(corrupt)
    }

    /// Returns the index of the last sample that was read.
    pub(in crate::shell) fn last(&self) -> Option<u64> {
        self.reader.last()
    }

    /// Returns the key that is read.
    pub(super) fn key(&self) -> &[u8] {
        self.reader.key()
    }

    /// Goes behind the last sample, or behind this entry. `Over` if the stream has ended there.
    ///
    /// # Errors
    /// [`EngineError`]
    pub(in crate::shell) async fn seek(&mut self, to: Option<EntryId>) -> Result<Turn> {
        loop {
            let reply = ask(&self.redis, self.reader.seek(to)).await?;
            match self.reader.take_seek(&reply).map_err(corrupt)? {
                Turn::More => {}
                turn => return Ok(turn),
            }
        }
    }

    /// Reads the next samples, each of which goes to `sink` with its index. `Wait` if there is none as yet; then waits
    /// for so many ms before.
    ///
    /// # Errors
    /// [`EngineError`]; those of `sink` are [`ErrorKind::Corrupt`].
    pub(in crate::shell) async fn next(
        &mut self,
        ms: u32,
        mut sink: impl FnMut(EntryId, u64, &[u8]) -> Result<(), Unreadable> + Send,
    ) -> Result<Turn> {
        let reply = ask(&self.redis, self.reader.read(self.most)).await?;
        let turn = self.reader.take(&reply, &mut sink).map_err(corrupt)?;
        if turn != Turn::Wait {
            return Ok(turn);
        }
        if ms > 0 {
            let reply = ask(&self.redis, self.reader.wait(self.most, ms)).await?;
            let turn = self.reader.take(&reply, &mut sink).map_err(corrupt)?;
            if turn != Turn::Wait {
                return Ok(turn);
            }
        }
        let (replies, _) = self.redis.run(None, self.reader.check()).await?;
        let replies: Vec<_> = replies.into_iter().map(checked).collect::<Result<_>>()?;
        self.reader.take_check(&replies).map_err(corrupt)
    }
}

/// Returns the names of all streams.
///
/// # Errors
/// [`EngineError`]
pub(in crate::shell) async fn names(redis: &Redis) -> Result<Vec<String>> {
    let (mut names, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let mut commands = Commands::default();
        commands.add(&[&"SCAN", &cursor, &"MATCH", &"*-metadata", &"COUNT", &"1000"]);
        let reply = ask(redis, commands).await?;
        let [next, keys] = reply.list().unwrap_or_default() else {
            return Err(corrupt(Unreadable("no keys in the reply".to_owned())));
        };
        let keys = keys.list().unwrap_or_default().iter();
        names.extend(keys.filter_map(|key| described_by(key.text()?).map(str::to_owned)));
        next.text().unwrap_or("0").clone_into(&mut cursor);
        if cursor == "0" || names.len() > MOST_NAMES {
            break;
        }
    }
    // A scan may find one twice.
    names.sort();
    names.dedup();
    Ok(names)
}

/// Removes the keys of a stream that ended before this entry, and of a stream that ended so all of it. The description
/// says first what the oldest key is then. Returns whether all is removed.
///
/// # Errors
/// [`EngineError`]
pub(super) async fn trim(redis: &Redis, name: &str, until: EntryId) -> Result<bool> {
    let mut commands = Commands::default();
    commands.add(&[&"HGETALL", &metadata_key(name)]);
    let described = ask(redis, commands).await?;
    let Some(metadata) = Metadata::of_reply(&described).map_err(corrupt)? else {
        return Ok(true);
    };
    let mut reader = Reader::new(name, &metadata);
    loop {
        let key = reader.key().to_vec();
        let last = ask(redis, reader.seek(None)).await?;
        let ended = entries(&last).map_err(corrupt)?.first().map(|it| it.id);
        if ended.is_none_or(|ended| ended >= until) {
            return Ok(false);
        }
        let turn = reader.take_seek(&last).map_err(corrupt)?;
        let mut commands = Commands::default();
        match turn {
            Turn::More => {
                let first = reader.key().to_vec();
                commands.add(&[&"HSET", &metadata_key(name), &"first_stream_key", &first]);
                commands.add(&[&"UNLINK", &key]);
            }
            Turn::Over => {
                commands.add(&[&"UNLINK", &key]);
                commands.add(&[&"DEL", &metadata_key(name)]);
            }
            Turn::Wait => return Ok(false),
        }
        let (replies, _) = redis.run(None, commands).await?;
        packed::fail(&replies)?;
        if turn == Turn::Over {
            return Ok(true);
        }
    }
}

/// Returns the Unix time of a server minus our clock, in seconds, how well that is known as a round trip, and as of when.
///
/// # Errors
/// [`EngineError`]
pub(in crate::shell) async fn server_ahead(redis: &Redis) -> Result<(f64, f64, f64)> {
    let asked_at = local_clock();
    let mut commands = Commands::default();
    commands.add(&[&"TIME"]);
    let time = ask(redis, commands).await?;
    let now = local_clock();
    let part = |at: usize| time.list()?.get(at)?.text()?.parse::<f64>().ok();
    let unix_secs = part(0).zip(part(1)).map(|(secs, us)| secs + us * 1e-6);
    let unix_secs = unix_secs.ok_or_else(|| corrupt(Unreadable("no time".to_owned())))?;
    Ok((
        unix_secs - f64::midpoint(asked_at, now),
        now - asked_at,
        asked_at,
    ))
}

/// Runs one command.
///
/// # Errors
/// [`EngineError`]
pub(in crate::shell) async fn ask(redis: &Redis, command: Commands) -> Result<Reply> {
    let (replies, _) = redis.run(None, command).await?;
    let first = replies.into_iter().next();
    checked(first.unwrap_or(Reply::Nil))
}

fn checked(reply: Reply) -> Result<Reply> {
    match reply {
        Reply::Error(text) => Err(EngineError::of_reply(&text)),
        reply => Ok(reply),
    }
}

pub(super) fn corrupt(error: Unreadable) -> EngineError {
    EngineError::new(ErrorKind::Corrupt, error.0)
}

/// Bytes that are asked for at a time.
const REPLY_BYTES: usize = 2 << 20;

const MOST_ENTRIES: usize = 1000;

const MOST_NAMES: usize = 100_000;
