//! Reads a stream of River from a server. Spec: relay §12.2.

use std::sync::Arc;

use lsl_core::{Generation, StreamInfo, local_clock};

use super::redis::{ConnectionId, Redis, Server};
use crate::engine::packed;
use crate::engine::resp::{Commands, Reply};
use crate::engine::river::{
    End, EntryId, Metadata, Packing, Reader, Seek, Turn, Unreadable, described_by, generation,
    metadata_key,
};
use crate::engine::{EngineError, ErrorKind, Result};

/// Reader of one stream. Who waits for its samples wants a connection of its own.
#[derive(Debug)]
pub(in crate::shell) struct Follow {
    redis: Arc<Redis>,
    /// The connection on which it was sought: another one may lead to a server that has less.
    connection: Option<ConnectionId>,
    name: String,
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
            connection: None,
            name: name.to_owned(),
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
    pub(in crate::shell) fn described(&self, srate: f64) -> Result<(Packing, StreamInfo)> {
        Packing::of_metadata(&self.name, &self.metadata, srate).map_err(corrupt)
    }

    /// Returns the numbering of its samples; `None` if nothing numbers them.
    pub(in crate::shell) fn generation(&self) -> Option<Generation> {
        generation(&self.name, self.metadata.initialized_at_us)
    }

    /// Returns the index of the last sample that was read.
    pub(in crate::shell) fn last(&self) -> Option<u64> {
        self.reader.last()
    }

    /// Returns the key that is read.
    pub(super) fn key(&self) -> &[u8] {
        self.reader.key()
    }

    /// Leaves out samples before this index.
    pub(in crate::shell) fn skip(&mut self, next: u64) {
        self.reader.skip(next);
    }

    /// Goes on there. `Over` if the stream has ended there.
    ///
    /// # Errors
    /// [`EngineError`]
    pub(in crate::shell) async fn seek(&mut self, to: Seek) -> Result<Turn> {
        self.connection = None;
        loop {
            let replies = self.ask(self.reader.seek(to)).await?;
            let turn = self.reader.take_seek(to, &replies).map_err(corrupt)?;
            if turn == Turn::More {
                continue;
            }
            if let (Seek::Behind(_, had), Some(given)) = (to, self.reader.given())
                && given < had
            {
                let name = &self.name;
                tracing::warn!(
                    "stream {name} of River: the server lost samples up to {had} that were read; those up to there which \
                     come again are left out"
                );
            }
            return Ok(turn);
        }
    }

    /// Goes behind the last sample, if this is still the stream that was opened; else `None`.
    ///
    /// # Errors
    /// [`EngineError`]
    pub(in crate::shell) async fn look(&mut self) -> Result<Option<Turn>> {
        let described = metadata_key(&self.name);
        let mut commands = Commands::default();
        commands.add(&[
            &"HMGET",
            &described,
            &"initialized_at_us",
            &"first_stream_key",
        ]);
        let (replies, connection) = self.redis.run(None, commands).await?;
        let reply = checked(replies.into_iter().next().unwrap_or(Reply::Nil))?;
        let [begun, first] = reply.list().unwrap_or_default() else {
            return Ok(None);
        };
        let (Some(begun), Some(first)) = (begun.text(), first.bytes()) else {
            return Ok(None);
        };
        let begun = begun.parse().unwrap_or_default();
        if generation(&self.name, begun) != self.generation() {
            return Ok(None);
        }
        if self.connection != Some(connection) || begun != self.metadata.initialized_at_us {
            self.metadata.initialized_at_us = begun;
            first.clone_into(&mut self.metadata.first_key);
            self.reader = Reader::new(&self.name, &self.metadata);
        }
        self.seek(Seek::End).await.map(Some)
    }

    /// Reads the next samples, each of which goes to `sink` with its index. `Wait` if there is none as yet; then waits
    /// for so many ms before.
    ///
    /// # Errors
    /// [`EngineError`]; those of `sink` are [`ErrorKind::Corrupt`]. After [`ErrorKind::Retry`] it is to be opened again
    /// and sought behind what is there: the server may have lost some of it.
    pub(in crate::shell) async fn next(
        &mut self,
        ms: u32,
        mut sink: impl FnMut(EntryId, u64, &[u8]) -> Result<(), Unreadable> + Send,
    ) -> Result<Turn> {
        let waits = (ms > 0).then(|| self.reader.wait(self.most, ms));
        for commands in [Some(self.reader.read(self.most)), waits]
            .into_iter()
            .flatten()
        {
            let replies = self.ask(commands).await?;
            let reply = replies.first().unwrap_or(&Reply::Nil);
            match self.reader.take(reply, &mut sink).map_err(corrupt)? {
                Turn::Wait => {}
                Turn::Again => {
                    let text = format!("stream {} of River comes again from before", self.name);
                    return Err(EngineError::new(ErrorKind::Retry, text));
                }
                turn => return Ok(turn),
            }
        }
        let replies = self.ask(self.reader.check()).await?;
        self.reader.take_check(&replies).map_err(corrupt)
    }

    async fn ask(&mut self, commands: Commands) -> Result<Vec<Reply>> {
        let (replies, connection) = self.redis.run(self.connection, commands).await?;
        self.connection = Some(connection);
        replies.into_iter().map(checked).collect()
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

/// Removes the keys of a stream that ended before this entry was written, and have no sample behind `kept` if that is
/// given; of a stream that ended so all of it. The description says first what the oldest key is then. Returns whether
/// all is removed.
///
/// # Errors
/// [`EngineError`]
pub(super) async fn trim(
    redis: &Redis,
    name: &str,
    until: EntryId,
    kept: Option<u64>,
) -> Result<bool> {
    let mut commands = Commands::default();
    commands.add(&[&"HGETALL", &metadata_key(name)]);
    let described = ask(redis, commands).await?;
    let Some(metadata) = Metadata::of_reply(&described).map_err(corrupt)? else {
        return Ok(true);
    };
    let mut reader = Reader::new(name, &metadata);
    loop {
        let key = reader.key().to_vec();
        let (replies, _) = redis.run(None, reader.seek(Seek::End)).await?;
        packed::fail(&replies)?;
        let end = End::of(replies.first().unwrap_or(&Reply::Nil)).map_err(corrupt)?;
        let is_due = |end: End| end.entry.id < until && kept.is_none_or(|kept| end.index <= kept);
        if !end.is_some_and(is_due) {
            return Ok(false);
        }
        let turn = reader.take_seek(Seek::End, &replies).map_err(corrupt)?;
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
            Turn::Wait | Turn::Gone | Turn::Again => return Ok(false),
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
