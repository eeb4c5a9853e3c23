//! Follows a stream of River from key to key. Spec: relay §12.2.

use super::metadata::{Metadata, number_of};
use super::{Entry, EntryId, Kind, Unreadable, entries, metadata_key};
use crate::engine::resp::{Commands, Reply};

/// Reader of one stream.
#[derive(Debug, Clone)]
pub struct Reader {
    name: String,
    key: Vec<u8>,
    /// Last entry of the key that was read.
    after: EntryId,
    /// Index of the last sample that was read, or that is not wanted any more.
    last: Option<u64>,
    /// That of the last sample that the server gave: less, where one that failed over gives some again.
    given: Option<u64>,
}

/// Where a reader goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// Behind the last sample.
    End,
    /// Behind the last sample of this time, by the ids.
    Since(EntryId),
    /// Behind the sample with this index, which was here. The server may have lost it since, and have it again elsewhere:
    /// only the index says what is new.
    Behind(EntryId, u64),
}

/// What came of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// There may be more at once.
    More,
    /// There is no more as yet.
    Wait,
    /// The stream ended.
    Over,
    /// It was removed; whether it had ended, nothing says.
    Gone,
    /// The server gives again what it had lost: the reader is to be sought behind what it has.
    Again,
}

impl Reader {
    /// Creates a reader that begins with the oldest sample.
    pub fn new(name: &str, metadata: &Metadata) -> Self {
        Self {
            name: name.to_owned(),
            key: metadata.first_key.clone(),
            after: EntryId::default(),
            last: None,
            given: None,
        }
    }

    /// Leaves out samples before this index.
    pub fn skip(&mut self, next: u64) {
        self.last = self.last.max(next.checked_sub(1));
    }

    /// Returns the index of the last sample that the server gave.
    pub fn given(&self) -> Option<u64> {
        self.given
    }

    /// Returns the index of the last sample that was read, or left out.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// Returns the key that is read.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Asks for the next entries.
    pub fn read(&self, most: usize) -> Commands {
        let mut commands = Commands::default();
        let (after, most) = (format!("({}", self.after), most.to_string());
        commands.add(&[&"XRANGE", &self.key, &after, &"+", &"COUNT", &most]);
        commands
    }

    /// Asks for the next entries, or the first that comes within so many ms.
    pub fn wait(&self, most: usize, ms: u32) -> Commands {
        let mut commands = Commands::default();
        let (most, ms) = (most.to_string(), ms.to_string());
        let after = self.after.to_string();
        commands.add(&[
            &"XREAD", &"COUNT", &most, &"BLOCK", &ms, &"STREAMS", &self.key, &after,
        ]);
        commands
    }

    /// Takes the reply to [`read`](Self::read) or [`wait`](Self::wait). Each sample that is wanted goes to `sink`, with
    /// its index.
    ///
    /// # Errors
    /// [`Unreadable`] if what is there makes no sense; those of `sink`.
    pub fn take(
        &mut self,
        reply: &Reply,
        mut sink: impl FnMut(EntryId, u64, &[u8]) -> Result<(), Unreadable>,
    ) -> Result<Turn, Unreadable> {
        // What waits names the key, too.
        let of_key = reply.list().and_then(|keys| match keys {
            [one] => one
                .list()
                .filter(|it| it.first().and_then(Reply::bytes) == Some(&*self.key)),
            _ => None,
        });
        let reply = of_key.and_then(|it| it.get(1)).unwrap_or(reply);
        let mut turn = Turn::Wait;
        for entry in entries(reply)? {
            turn = Turn::More;
            match entry.kind {
                Kind::Sample(index, val) => {
                    if self.given.is_some_and(|given| index <= given) {
                        return Ok(Turn::Again);
                    }
                    if self.last < Some(index) {
                        sink(entry.id, index, &val)?;
                        self.last = Some(index);
                    }
                    (self.given, self.after) = (Some(index), entry.id);
                }
                Kind::Tombstone(next, _) => return self.follow(next),
                Kind::Eof(_) => return Ok(Turn::Over),
            }
        }
        Ok(turn)
    }

    /// Asks for the end of the key, and for the last entry that is not behind where `to` is.
    pub fn seek(&self, to: Seek) -> Commands {
        let mut commands = Commands::default();
        let to = match to {
            Seek::End => "+".to_owned(),
            Seek::Since(id) | Seek::Behind(id, _) => id.to_string(),
        };
        commands.add(&[&"XREVRANGE", &self.key, &"+", &"-", &"COUNT", &"2"]);
        commands.add(&[&"XREVRANGE", &self.key, &to, &"-", &"COUNT", &"1"]);
        commands
    }

    /// Takes the replies to [`seek`](Self::seek): after `More`, seek again, in the next key.
    ///
    /// # Errors
    /// [`Unreadable`] if what is there makes no sense.
    pub fn take_seek(&mut self, to: Seek, replies: &[Reply]) -> Result<Turn, Unreadable> {
        let [end, found] = replies else {
            return Err(Unreadable("the server answers something else".to_owned()));
        };
        let end = End::of(end)?;
        let mut found = entries(found)?.into_iter().next();
        if let Seek::Behind(_, index) = to {
            self.last = self.last.max(Some(index));
            found = match end {
                // All of the key is known.
                Some(end) if end.index <= index => Some(end.entry),
                // Another server may have other samples at the same time.
                _ => found.filter(|it| matches!(it.kind, Kind::Sample(at, _) if at <= index)),
            };
        }
        match found.map(|entry| (entry.id, entry.kind)) {
            None => {
                (self.after, self.given) = (EntryId::default(), None);
                Ok(Turn::Wait)
            }
            Some((id, Kind::Sample(index, _))) => {
                (self.after, self.given) = (id, Some(index));
                self.last = self.last.max(Some(index));
                Ok(Turn::Wait)
            }
            Some((_, Kind::Tombstone(next, _))) => self.follow(next),
            Some((_, Kind::Eof(index))) => {
                self.last = self.last.max(Some(index));
                Ok(Turn::Over)
            }
        }
    }

    fn follow(&mut self, next: Vec<u8>) -> Result<Turn, Unreadable> {
        let number = |key: &[u8]| number_of(&self.name, key);
        if number(&next).is_none() || number(&next) <= number(&self.key) {
            return Err(Unreadable(
                "a next_stream_key leads back or elsewhere".to_owned(),
            ));
        }
        self.key = next;
        self.after = EntryId::default();
        Ok(Turn::More)
    }

    /// Asks whether what waits is still there: the keys before may be removed, or all of them.
    pub fn check(&self) -> Commands {
        let mut commands = Commands::default();
        commands.add(&[&"EXISTS", &self.key]);
        commands.add(&[&"HGETALL", &metadata_key(&self.name)]);
        commands
    }

    /// Takes the replies to [`check`](Self::check).
    ///
    /// # Errors
    /// [`Unreadable`] if the description makes no sense.
    pub fn take_check(&mut self, replies: &[Reply]) -> Result<Turn, Unreadable> {
        let [exists, described] = replies else {
            return Err(Unreadable("the server answers something else".to_owned()));
        };
        if *exists == Reply::Integer(1) {
            return Ok(Turn::Wait);
        }
        let Some(metadata) = Metadata::of_reply(described)? else {
            return Ok(Turn::Gone);
        };
        let first = number_of(&self.name, &metadata.first_key);
        if first > number_of(&self.name, &self.key) {
            self.key = metadata.first_key;
            self.after = EntryId::default();
            return Ok(Turn::More);
        }
        Ok(Turn::Wait)
    }
}

/// Last entry of a key, and the index of its last sample.
#[derive(Debug)]
pub struct End {
    /// The entry.
    pub entry: Entry,
    /// Index of the last sample of the key: who ends a stream for another may not know it.
    pub index: u64,
}

impl End {
    /// Reads the reply that has the last two entries, the last first; `None` if there is no entry.
    ///
    /// # Errors
    /// [`Unreadable`] if what is there makes no sense.
    pub fn of(reply: &Reply) -> Result<Option<Self>, Unreadable> {
        let mut last = entries(reply)?.into_iter();
        let Some(entry) = last.next() else {
            return Ok(None);
        };
        let before = last.next().map(|it| it.kind);
        let index = match (&entry.kind, before) {
            (Kind::Sample(index, _), _) => *index,
            (_, Some(Kind::Sample(index, _))) => index,
            (Kind::Tombstone(_, index) | Kind::Eof(index), _) => *index,
        };
        Ok(Some(Self { entry, index }))
    }
}
