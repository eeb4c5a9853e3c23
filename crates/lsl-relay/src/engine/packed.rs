//! Layout of samples in Redis in chunks, one Redis stream per generation: commands, and what their replies mean.
//! Spec: relay §12.1.

use std::sync::Arc;

use lsl_proto::StreamInfo;
use lsl_proto::outlet::frames::Frames;
use lsl_proto::wire::sample110::Restamper;
use lsl_proto::wire::sequence::Generation;
use lsl_proto::{ByteOrder, ChannelFormat};

use super::resp::{Commands, Reply};
use super::{EngineError, ErrorKind, Meta, Result, Stored};
use crate::id::RelayId;

/// Writer of one relay.
#[derive(Debug, Clone, Copy)]
pub struct Packed {
    /// Relay that writes.
    pub relay: RelayId,
    /// Replicas that must have what was appended.
    pub min_replicas: u32,
    /// Time in seconds after which Redis removes streams that nobody looks after. `None`: only the lease is this relay's.
    pub expiry_secs: Option<u64>,
}

/// What Redis has of a stream that is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Whether it is described.
    pub is_known: bool,
    /// Sequence number after the last sample, as far as one is there.
    pub next: Option<u64>,
}

/// Keys of a stream.
struct Keys {
    data: String,
    meta: String,
    writer: String,
}

impl Keys {
    fn of(generation: &Generation) -> Self {
        let key = |end| format!("lsl:{{{generation}}}:{end}");
        Self {
            data: key("d"),
            meta: key("m"),
            writer: key("w"),
        }
    }
}

impl Packed {
    /// Returns the commands that take the lease of a stream, if nobody has it.
    pub fn lease(&self, generation: &Generation) -> Commands {
        let Keys { writer, .. } = Keys::of(generation);
        let (relay, lease) = (self.relay.to_string(), LEASE_MS.to_string());
        let mut commands = Commands::default();
        commands.add(&[&"SET", &writer, &relay, &"NX", &"PX", &lease]);
        commands.add(&[&"GET", &writer]);
        commands
    }

    /// Returns whether the lease is ours, by the replies to [`lease`](Self::lease).
    ///
    /// # Errors
    /// Those of the replies.
    pub fn leased(&self, replies: &[Reply]) -> Result<bool> {
        fail(replies)?;
        let writer = replies.last().and_then(Reply::text);
        Ok(writer == Some(&*self.relay.to_string()))
    }

    /// Returns the commands that ask what there is of a stream.
    pub fn find(&self, generation: &Generation) -> Commands {
        let keys = Keys::of(generation);
        let mut commands = Commands::default();
        commands.add(&[&"PEXPIRE", &keys.writer, &LEASE_MS.to_string()]);
        commands.add(&[&"HGETALL", &keys.meta]);
        commands.add(&[&"XREVRANGE", &keys.data, &"+", &"-", &"COUNT", &"1"]);
        commands
    }

    /// Reads the replies to [`find`](Self::find).
    ///
    /// # Errors
    /// Those of the replies; [`ErrorKind::Conflict`] for another stream, [`ErrorKind::Corrupt`] for another layout.
    pub fn found(&self, meta: &Meta, replies: &[Reply]) -> Result<Found> {
        fail(replies)?;
        let [_, described, last] = replies else {
            return Err(corrupt("too few replies"));
        };
        let is_known = described.list().is_some_and(|it| !it.is_empty());
        if is_known {
            check(&meta.info, described)?;
        }
        let last = last.list().and_then(<[_]>::first);
        let next = last.map(|entry| {
            let (first, count, _) = head(entry)?;
            first.checked_add(count)
        });
        let has_other_form = next == Some(None);
        if has_other_form {
            return Err(corrupt("an entry has another form"));
        }
        let next = next.flatten();
        Ok(Found { is_known, next })
    }

    /// Returns the commands that go on with a stream.
    pub fn claim(&self, meta: &Meta, found: Found) -> Commands {
        let keys = Keys::of(&meta.generation);
        let mut commands = Commands::default();
        let owner = self.relay.to_string();
        if found.is_known {
            // One that is written has not ended, whatever was thought before.
            commands.add(&[&"HSET", &keys.meta, &"owner", &owner, &"end", &""]);
        } else {
            describe(&mut commands, &keys.meta, &meta.info, &owner);
        }
        self.keep_alive(&mut commands, &keys);
        if found.next.is_none() {
            commands.add(&[&"XINFO", &"STREAM", &keys.data]);
        }
        self.wait(&mut commands);
        commands
    }

    /// Returns from which number on to write, by the replies to [`claim`](Self::claim); `None` if there is nothing.
    ///
    /// # Errors
    /// Those of the replies.
    pub fn claimed(&self, found: Found, replies: &[Reply]) -> Result<Option<u64>> {
        let info = found
            .next
            .is_none()
            .then(|| replies.get(INFO_PLACE))
            .flatten();
        let is_absent = |reply: &Reply| match reply {
            Reply::Error(text) => text.starts_with("ERR no such key"),
            _ => false,
        };
        for (place, reply) in replies.iter().enumerate() {
            if !(place == INFO_PLACE && info.is_some_and(is_absent)) {
                fail(std::slice::from_ref(reply))?;
            }
        }
        self.waited(replies)?;
        // Of entries that were trimmed the last id is left: the number of the first sample and 1.
        let trimmed = info.and_then(|info| sequence(info.field("last-generated-id")?));
        Ok(found.next.or_else(|| trimmed.filter(|id| *id > 0)))
    }

    /// Returns the commands that append these samples, as one entry: of several, some could be refused, as they were there
    /// when the request came, and others not, with a gap between that can never be filled.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for samples that have no timestamp.
    pub fn append(&self, meta: &Meta, batches: &[Arc<Frames>]) -> Result<Commands> {
        let Keys { data, .. } = Keys::of(&meta.generation);
        let stamper = Restamper::new(ByteOrder::NATIVE, meta.info.nominal_srate());
        let mut commands = Commands::default();
        if let Some(first) = batches.first() {
            let id = format!("{}-0", first.first.saturating_add(1));
            let stamp = stamper.transmitted(&first.bytes);
            let stamp = stamp.ok_or_else(|| corrupt("samples without a timestamp"))?;
            let count = batches.iter().map(|frames| frames.count).sum::<u64>();
            let (count, stamp, flags) = (count.to_string(), stamp.to_string(), FLAGS.to_string());
            let payload: Vec<_> = batches.iter().map(|frames| &*frames.bytes).collect();
            let payload = payload.concat();
            commands.add(&[
                &"XADD", &data, &id, &"n", &count, &"t", &stamp, &"f", &flags, &"d", &payload,
            ]);
        }
        self.wait(&mut commands);
        Ok(commands)
    }

    /// Reads the replies to [`append`](Self::append).
    ///
    /// # Errors
    /// The first of the replies.
    pub fn appended(&self, replies: &[Reply]) -> Result<()> {
        fail(replies)?;
        self.waited(replies)
    }

    /// Returns the commands that give the lease of a stream up, and note its end if it has ended.
    pub fn finish(&self, generation: &Generation, end: Option<u64>) -> Commands {
        let keys = Keys::of(generation);
        let mut commands = Commands::default();
        if let Some(end) = end {
            commands.add(&[&"HSET", &keys.meta, &"end", &end.to_string()]);
        }
        self.keep_alive(&mut commands, &keys);
        commands.add(&[&"PEXPIRE", &keys.writer, &"1"]);
        commands
    }

    /// Returns the commands that ask who writes a stream.
    pub fn ask_writer(generation: &Generation, commands: &mut Commands) {
        commands.add(&[&"GET", &Keys::of(generation).writer]);
    }

    /// Returns the commands that keep a stream ours, if `writer`, the reply to [`ask_writer`](Self::ask_writer), says
    /// that it is or that nobody's it is; else none.
    pub fn renew(&self, generation: &Generation, writer: &Reply) -> Option<Commands> {
        let keys = Keys::of(generation);
        let (relay, lease) = (self.relay.to_string(), LEASE_MS.to_string());
        // One that is gone is taken by opening anew: the server may have lost what was written, too.
        if writer.text() != Some(&*relay) {
            return None;
        }
        let mut commands = Commands::default();
        commands.add(&[&"PEXPIRE", &keys.writer, &lease]);
        self.keep_alive(&mut commands, &keys);
        Some(commands)
    }

    /// Appends the command that removes samples before a sequence number, as far as their batches end before it.
    pub fn trim(generation: &Generation, first: u64, commands: &mut Commands) {
        let id = format!("{}-0", first.saturating_add(1));
        commands.add(&[&"XTRIM", &Keys::of(generation).data, &"MINID", &"=", &id]);
    }

    /// Appends the command that notes when streams were last written, in seconds since 1970.
    pub fn note(generation: &Generation, unix_secs: u64, commands: &mut Commands) {
        let secs = unix_secs.to_string();
        commands.add(&[&"ZADD", &INDEX, &secs, &generation.as_str()]);
    }

    /// Appends the command that forgets streams which nobody has written for so long that no relay keeps them.
    pub fn forget(unix_secs: u64, commands: &mut Commands) {
        let before = unix_secs.saturating_sub(INDEX_SECS).to_string();
        commands.add(&[&"ZREMRANGEBYSCORE", &INDEX, &"-inf", &before]);
    }

    /// A stream whose relay never comes back goes when its samples would be too old. Spec: relay §12.1.
    fn keep_alive(&self, commands: &mut Commands, keys: &Keys) {
        let Some(secs) = self.expiry_secs.map(|secs| secs.to_string()) else {
            return;
        };
        commands.add(&[&"EXPIRE", &keys.data, &secs]);
        commands.add(&[&"EXPIRE", &keys.meta, &secs]);
    }

    fn wait(&self, commands: &mut Commands) {
        if self.min_replicas > 0 {
            commands.add(&[&"WAIT", &self.min_replicas.to_string(), &"100"]);
        }
    }

    fn waited(&self, replies: &[Reply]) -> Result<()> {
        let wanted = i64::from(self.min_replicas);
        match replies.last() {
            Some(Reply::Integer(have)) if wanted > 0 && *have < wanted => {
                let text = format!("{have} of {wanted} replicas have it");
                Err(EngineError::new(ErrorKind::Retry, text))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the commands that read batches from a sequence number on: the one that has it, and about so many that
/// follow.
pub fn read(generation: &Generation, from: u64, count: usize) -> Commands {
    let Keys { data, .. } = Keys::of(generation);
    let up_to = format!("{}-0", from.saturating_add(1));
    let after = format!("{}-1", from.saturating_add(1));
    let mut commands = Commands::default();
    commands.add(&[&"XREVRANGE", &data, &up_to, &"-", &"COUNT", &"1"]);
    commands.add(&[&"XRANGE", &data, &after, &"+", &"COUNT", &count.to_string()]);
    commands
}

/// Returns the batches of replies to [`read`] that have samples from `from` on, in order. Batches of
/// two writers may overlap: what a reader has already is skipped, whoever wrote it.
///
/// # Errors
/// Those of the replies; [`ErrorKind::Corrupt`] for entries of another form.
pub fn batches(replies: &[Reply], from: u64) -> Result<Vec<Frames>> {
    fail(replies)?;
    let mut found = Vec::new();
    for reply in replies {
        for entry in reply.list().unwrap_or_default() {
            let wrong = || corrupt("an entry has another form");
            let (first, count, fields) = head(entry).ok_or_else(wrong)?;
            let flags = fields.field("f").and_then(Reply::text);
            if flags != Some(&*FLAGS.to_string()) {
                return Err(corrupt("samples are kept in another way"));
            }
            let bytes = fields.field("d").and_then(Reply::bytes).ok_or_else(wrong)?;
            let frames = Frames {
                first,
                count,
                bytes: bytes.to_vec(),
            };
            if frames.end() > from {
                found.push(frames);
            }
        }
    }
    Ok(found)
}

/// Returns the commands that ask for what is known.
pub fn list() -> Commands {
    let mut commands = Commands::default();
    commands.add(&[&"ZRANGEBYSCORE", &INDEX, &"-inf", &"+inf", &"WITHSCORES"]);
    commands
}

/// Returns the streams of the reply to [`list`] and when each was written last, and the commands that ask for each.
///
/// # Errors
/// Those of the replies.
pub fn listed(replies: &[Reply]) -> Result<(Vec<(Generation, f64)>, Commands)> {
    fail(replies)?;
    let parts = replies.first().and_then(Reply::list).unwrap_or_default();
    let streams = parts.as_chunks().0.iter().filter_map(|[name, score]| {
        let written = score.text()?.parse().ok()?;
        Some((Generation::parse(name.bytes()?)?, written))
    });
    let streams: Vec<_> = streams.collect();
    let mut commands = Commands::default();
    for (generation, _) in &streams {
        commands.add(&[&"HGETALL", &Keys::of(generation).meta]);
    }
    Ok((streams, commands))
}

/// Reads one reply to the commands of [`listed`]; `None` for one that is gone, or of another layout.
pub fn stored((generation, written): (Generation, f64), described: &Reply) -> Option<Stored> {
    let text = |name| described.field(name).and_then(Reply::text);
    if text("layout") != Some(LAYOUT) {
        return None;
    }
    let xml = described.field("xml").and_then(Reply::bytes)?;
    let info = Arc::new(StreamInfo::from_xml(xml).ok()?);
    let meta = Meta { generation, info };
    let end = text("end").and_then(|end| end.parse().ok());
    Some(Stored {
        meta,
        end,
        written: Some(written),
    })
}

/// Returns the commands of the layout in a form that changes nothing.
pub fn rehearse() -> Commands {
    let mut commands = Commands::default();
    let key = |end| format!("lsl:{{0}}:{end}");
    let (data, meta, writer) = (key("d"), key("m"), key("w"));
    commands.add(&[&"SET", &writer, &"", &"XX", &"PX", &"1"]);
    commands.add(&[&"GET", &writer]);
    commands.add(&[&"PEXPIRE", &writer, &"1"]);
    commands.add(&[&"EXPIRE", &writer, &"1"]);
    commands.add(&[&"HGETALL", &meta]);
    commands.add(&[&"XADD", &data, &"NOMKSTREAM", &"1-0", &"n", &"0"]);
    commands.add(&[&"XREVRANGE", &data, &"+", &"-", &"COUNT", &"1"]);
    commands.add(&[&"XRANGE", &data, &"-", &"+", &"COUNT", &"1"]);
    commands.add(&[&"XINFO", &"STREAM", &data]);
    commands.add(&[&"XTRIM", &data, &"MINID", &"=", &"1-0"]);
    commands.add(&[&"ZADD", &INDEX, &"XX", &"0", &""]);
    commands.add(&[&"ZRANGEBYSCORE", &INDEX, &"1", &"0"]);
    commands.add(&[&"ZREMRANGEBYSCORE", &INDEX, &"1", &"0"]);
    commands.add(&[&"WAIT", &"0", &"1"]);
    commands
}

/// Reads the replies to [`rehearse`].
///
/// # Errors
/// The first of the replies that says that something is not possible.
pub fn rehearsed(replies: &[Reply]) -> Result<()> {
    let is_absent =
        |reply: &&Reply| matches!(reply, Reply::Error(text) if text.starts_with("ERR no such key"));
    let rest: Vec<_> = replies
        .iter()
        .filter(|reply| !is_absent(reply))
        .cloned()
        .collect();
    fail(&rest)
}

fn describe(commands: &mut Commands, key: &str, info: &StreamInfo, owner: &str) {
    commands.add(&[
        &"HSET",
        &key,
        &"layout",
        &LAYOUT,
        &"uid",
        &&*info.uid(),
        &"xml",
        &info.to_xml(),
        &"fmt",
        &info.channel_format().to_string(),
        &"ch",
        &info.channel_count().to_string(),
        &"srate",
        &info.nominal_srate().to_string(),
        &"session",
        &&*info.session_id(),
        &"owner",
        &owner,
        &"created",
        &info.created_at().to_string(),
    ]);
}

/// Whether what is described is this stream, in this layout.
fn check(info: &StreamInfo, described: &Reply) -> Result<()> {
    let text = |name| described.field(name).and_then(Reply::text);
    match text("layout") {
        Some(LAYOUT) => {}
        layout => {
            let text = format!("it has layout {}", layout.unwrap_or("none"));
            return Err(corrupt(&text));
        }
    }
    let format = text("fmt").and_then(|name| name.parse::<ChannelFormat>().ok());
    let channels = text("ch").and_then(|count| count.parse().ok());
    let is_same = text("uid") == Some(&*info.uid())
        && format == Some(info.channel_format())
        && channels == Some(info.channel_count());
    if is_same {
        return Ok(());
    }
    let text = "another stream has this generation there";
    Err(EngineError::new(ErrorKind::Conflict, text))
}

/// Returns the first sequence number, the number of samples and the fields of an entry.
fn head(entry: &Reply) -> Option<(u64, u64, &Reply)> {
    let [id, fields] = entry.list()? else {
        return None;
    };
    let first = sequence(id)?.checked_sub(1)?;
    let count = fields.field("n")?.text()?.parse().ok()?;
    first.checked_add(count)?;
    (count > 0).then_some((first, count, fields))
}

/// Returns the first part of an id.
fn sequence(id: &Reply) -> Option<u64> {
    let (sequence, _) = id.text()?.split_once('-')?;
    sequence.parse().ok()
}

/// Returns the first error among replies.
///
/// # Errors
/// That one.
pub fn fail(replies: &[Reply]) -> Result<()> {
    let error = replies.iter().find_map(|reply| match reply {
        Reply::Error(text) => Some(EngineError::of_reply(text)),
        _ => None,
    });
    error.map_or(Ok(()), Err)
}

fn corrupt(text: &str) -> EngineError {
    EngineError::new(ErrorKind::Corrupt, text)
}

/// Place of `XINFO` among the commands of [`Packed::claim`].
const INFO_PLACE: usize = 3;

/// Time in milliseconds after which another relay may write.
const LEASE_MS: u64 = 10_000;

const INDEX: &str = "lsl:index";

/// Time in seconds for which the index names streams that are not written.
const INDEX_SECS: u64 = 30 * 24 * 3600;

const LAYOUT: &str = "1";

/// Byte order of the frames: 0 little, 1 big.
const FLAGS: u8 = cfg!(target_endian = "big") as u8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_only_the_lease_lets_no_samples_expire() {
        let generation = Generation::parse(b"1").unwrap();
        for (expiry_secs, expected) in [(None, false), (Some(60), true)] {
            let packed = Packed {
                relay: RelayId(1),
                min_replicas: 0,
                expiry_secs,
            };
            assert!(packed.renew(&generation, &Reply::Nil).is_none());
            let ours = Reply::Bytes(packed.relay.to_string().into_bytes());
            let renewed = packed.renew(&generation, &ours).unwrap();
            for commands in [renewed, packed.finish(&generation, None)] {
                let text = String::from_utf8_lossy(commands.bytes()).into_owned();
                assert_eq!(text.contains("lsl:{1}:d"), expected, "{text}");
                assert!(text.contains("lsl:{1}:w"), "{text}");
            }
        }
    }
}
