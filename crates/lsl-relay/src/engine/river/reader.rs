//! Follows a stream of River from key to key. Spec: relay §12.2.

use super::metadata::{Metadata, number_of};
use super::{EntryId, Kind, Unreadable, entries, metadata_key};
use crate::engine::resp::{Commands, Reply};

/// Reader of one stream.
#[derive(Debug, Clone)]
pub struct Reader {
    name: String,
    key: Vec<u8>,
    /// Last entry of the key that was read.
    after: EntryId,
    /// Index of the last sample that was read.
    last: Option<u64>,
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
}

impl Reader {
    /// Creates a reader that begins with the oldest sample.
    pub fn new(name: &str, metadata: &Metadata) -> Self {
        Self {
            name: name.to_owned(),
            key: metadata.first_key.clone(),
            after: EntryId::default(),
            last: None,
        }
    }

    /// Returns the index of the last sample that was read.
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

    /// Takes the reply to [`read`](Self::read) or [`wait`](Self::wait). Each sample goes to `sink`, with its index.
    ///
    /// # Errors
    /// [`Unreadable`] if indices fall, or what is there makes no sense; those of `sink`.
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
                    if let Some(last) = self.last.filter(|last| index <= *last) {
                        return Err(Unreadable(format!(
                            "its indices fall from {last} to {index}"
                        )));
                    }
                    sink(entry.id, index, &val)?;
                    self.last = Some(index);
                    self.after = entry.id;
                }
                Kind::Tombstone(next, _) => return self.follow(next),
                Kind::Eof(_) => return Ok(Turn::Over),
            }
        }
        Ok(turn)
    }

    /// Asks for the last entry of the key, or the last that is not behind `to`, to go on from there.
    pub fn seek(&self, to: Option<EntryId>) -> Commands {
        let mut commands = Commands::default();
        let to = to.map_or_else(|| "+".to_owned(), |to| to.to_string());
        commands.add(&[&"XREVRANGE", &self.key, &to, &"-", &"COUNT", &"1"]);
        commands
    }

    /// Takes the reply to [`seek`](Self::seek): after `More`, seek again, in the next key.
    ///
    /// # Errors
    /// [`Unreadable`] if what is there makes no sense.
    pub fn take_seek(&mut self, reply: &Reply) -> Result<Turn, Unreadable> {
        let last = entries(reply)?.into_iter().next();
        match last.map(|entry| (entry.id, entry.kind)) {
            None => Ok(Turn::Wait),
            Some((id, Kind::Sample(index, _))) => {
                (self.after, self.last) = (id, Some(index));
                Ok(Turn::Wait)
            }
            Some((_, Kind::Tombstone(next, _))) => self.follow(next),
            Some((_, Kind::Eof(index))) => {
                self.last = Some(index);
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
            return Ok(Turn::Over);
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
