//! Says what is sent for samples that are stored, so that none is stored twice. Spec: relay §12.2.
//!
//! Samples go in transactions: all of them, or none. The key is watched from the last reply on, so a transaction that
//! was sent before, and arrives late, finds the key changed and does nothing.

use std::collections::BTreeMap;

use super::metadata::{metadata_key, samples_key, user_json};
use super::opening::Place;
use super::{EntryId, Packing};
use crate::engine::resp::{Commands, Reply};

/// Writer of one stream, on one connection.
#[derive(Debug)]
pub struct Writer {
    name: String,
    place: Place,
    packing: Packing,
    /// Number of the key.
    key: u64,
    /// Index of the next sample; `None` before the first.
    next: Option<u64>,
    /// Time of the first and the last entry of the key, in ms of the server.
    times: Option<(u64, u64)>,
    sent: Option<Sent>,
}

#[derive(Debug)]
struct Sent {
    key: u64,
    next: Option<u64>,
    commands: usize,
}

/// Why samples were not stored, or perhaps were: that says [`Opening`](super::Opening), on a new connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Somebody else wrote to the stream, ended it, or removed it.
    Changed,
    /// The server refused it, with this text.
    Refused(String),
    /// The reply is none to what was sent.
    Unknown,
}

impl Writer {
    pub(super) fn new(
        name: String,
        place: Place,
        packing: Packing,
        (key, next): (u64, Option<u64>),
        times: Option<(u64, u64)>,
    ) -> Self {
        Self {
            name,
            place,
            packing,
            key,
            next,
            times,
            sent: None,
        }
    }

    /// Returns the name of the stream.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how its samples are stored.
    pub fn packing(&self) -> &Packing {
        &self.packing
    }

    /// Returns the index of the next sample; `None` before the first.
    pub fn next(&self) -> Option<u64> {
        self.next
    }

    /// Returns what stores these samples, of rising index, and says something else of the stream if `user` is given.
    /// Those that are stored already are left out. A key that is old enough ends before them.
    pub fn write<'a>(
        &mut self,
        samples: impl Iterator<Item = (u64, &'a [u8])>,
        user: Option<&BTreeMap<String, String>>,
    ) -> Commands {
        let mut commands = Commands::default();
        commands.add(&[&"MULTI"]);
        let mut next = self.next;
        let mut key = self.key;
        let mut name = samples_key(&self.name, key);
        for (index, val) in samples {
            if next.is_some_and(|next| index < next) {
                continue;
            }
            if key == self.key && self.is_old() {
                key += 1;
                let following = samples_key(&self.name, key);
                let last = next.map_or(0, |next| next.saturating_sub(1)).to_string();
                commands.add(&[
                    &"XADD",
                    &name,
                    &"*",
                    &"tombstone",
                    &"1",
                    &"next_stream_key",
                    &following,
                    &"sample_index",
                    &last,
                ]);
                name = following;
            }
            commands.add(&[&"XADD", &name, &"*", &"val", &val, &"i", &index.to_string()]);
            next = Some(index.saturating_add(1));
        }
        if let Some(user) = user {
            let json = user_json(user);
            commands.add(&[&"HSET", &metadata_key(&self.name), &"user_metadata", &json]);
        }
        self.send(commands, key, next)
    }

    /// Returns what ends the stream.
    pub fn finish(&mut self) -> Commands {
        let mut commands = Commands::default();
        commands.add(&[&"MULTI"]);
        let last = self
            .next
            .map_or(0, |next| next.saturating_sub(1))
            .to_string();
        let key = samples_key(&self.name, self.key);
        commands.add(&[&"XADD", &key, &"*", &"eof", &"1", &"sample_index", &last]);
        self.send(commands, self.key, self.next)
    }

    fn send(&mut self, mut commands: Commands, key: u64, next: Option<u64>) -> Commands {
        self.place.note(next, &mut commands);
        self.sent = Some(Sent {
            key,
            next,
            commands: commands.count() - 1,
        });
        commands.add(&[&"EXEC"]);
        commands.add(&[&"WATCH", &samples_key(&self.name, key)]);
        commands
    }

    /// Takes the replies to what was returned last.
    ///
    /// # Errors
    /// [`Fault`]; nothing more can be sent then.
    pub fn written(&mut self, replies: &[Reply]) -> Result<(), Fault> {
        let Sent {
            key,
            next,
            commands,
        } = self.sent.take().ok_or(Fault::Unknown)?;
        // What was wrong with a command in it says more than that of the transaction.
        for reply in replies {
            if let Reply::Error(text) = reply {
                return Err(Fault::Refused(text.clone()));
            }
        }
        let done = match replies {
            [_, queued @ .., done, _watched] if queued.len() == commands => done,
            _ => return Err(Fault::Unknown),
        };
        let done = match done {
            Reply::Nil => return Err(Fault::Changed),
            done => done.list().ok_or(Fault::Unknown)?,
        };
        if let Some(text) = done.iter().find_map(|reply| match reply {
            Reply::Error(text) => Some(text),
            _ => None,
        }) {
            return Err(Fault::Refused(text.clone()));
        }
        let ids = done
            .iter()
            .filter_map(|reply| EntryId::parse(reply.text()?));
        let mut times = self.times.filter(|_| key == self.key);
        // The tombstone is the last of its key.
        for id in ids.skip(usize::from(key != self.key)) {
            let (first, _) = times.unwrap_or((id.ms, id.ms));
            times = Some((first, id.ms));
        }
        (self.key, self.next, self.times) = (key, next, times);
        Ok(())
    }

    fn is_old(&self) -> bool {
        let age = self.times.map(|(first, last)| last.saturating_sub(first));
        age.is_some_and(|age| age >= KEY_MS)
    }
}

/// Time in ms after which a key ends.
const KEY_MS: u64 = 600_000;
