//! Finds where a stream that this relay writes goes on, or begins it. Spec: relay §12.2.

use std::collections::BTreeMap;

use lsl_proto::StreamInfo;
use lsl_proto::wire::sequence::Generation;

use super::metadata::{Metadata, metadata_key, number_of, samples_key, stream_name};
use super::samples::{USER_UID, USER_XML};
use super::{EntryId, Kind, Packing, Unreadable, Writer, entries};
use crate::engine::resp::{Commands, Reply};

/// Search for the end of what is stored of a stream. Each question is sent alone, on the connection that will write:
/// what is asked last is watched there, so that nothing can be written unnoticed after it.
#[derive(Debug)]
pub struct Opening {
    info: StreamInfo,
    generation: Generation,
    packing: Packing,
    /// Counts the names, as each that ended stays so.
    number: u32,
    /// Whether the name was seen: without a description it is gone for good then.
    was_seen: bool,
    /// Index of the sample after the last that was found.
    next: Option<u64>,
    question: Question,
}

#[derive(Debug)]
enum Question {
    /// Which name was the last?
    Number,
    /// How is the stream of this name described?
    Described,
    /// Describe it, then.
    Create(Vec<(&'static str, Vec<u8>)>),
    /// What are the last entries of this key?
    End(u64),
}

/// What comes next.
#[derive(Debug)]
pub enum Step {
    /// Another question.
    Ask,
    /// The stream can be written.
    Done(Box<Writer>),
}

impl Opening {
    /// Creates the search.
    ///
    /// # Errors
    /// [`Unreadable`] if River has no place for the stream.
    pub fn new(info: &StreamInfo, generation: Generation) -> Result<Self, Unreadable> {
        Ok(Self {
            packing: Packing::of_info(info)?,
            info: info.clone(),
            generation,
            number: 1,
            was_seen: false,
            next: None,
            question: Question::Number,
        })
    }

    /// Returns the name under which the stream goes on, as far as that is known.
    pub fn name(&self) -> String {
        stream_name(&self.info, &self.generation, self.number)
    }

    /// Returns the index of the next sample if all that was stored has ended: another name begins then, once there is a
    /// sample for it.
    pub fn ended(&self) -> Option<u64> {
        self.next
            .filter(|_| matches!(self.question, Question::Create(_)))
    }

    /// Returns the next question.
    pub fn question(&self) -> Commands {
        let mut commands = Commands::default();
        let name = self.name();
        let place = Place::of(&self.generation, self.number);
        match &self.question {
            Question::Number => commands.add(&[&"GET", &place.key]),
            Question::Described => {
                commands.add(&[&"HGETALL", &metadata_key(&name)]);
                commands.add(&[&"TIME"]);
            }
            Question::Create(pairs) => {
                let key = metadata_key(&name);
                let mut parts: Vec<&dyn AsRef<[u8]>> = vec![&"HSET", &key];
                for (field, value) in pairs {
                    parts.extend([field as &dyn AsRef<[u8]>, value]);
                }
                commands.add(&parts);
                place.note(self.next, &mut commands);
            }
            Question::End(key) => {
                let key = samples_key(&name, *key);
                commands.add(&[&"UNWATCH"]);
                commands.add(&[&"WATCH", &key]);
                commands.add(&[&"XREVRANGE", &key, &"+", &"-", &"COUNT", &"2"]);
                commands.add(&[&"XRANGE", &key, &"-", &"+", &"COUNT", &"1"]);
            }
        }
        commands
    }

    /// Takes the replies to the question.
    ///
    /// # Errors
    /// [`Unreadable`] if what is stored makes no sense.
    pub fn take(&mut self, replies: &[Reply]) -> Result<Step, Unreadable> {
        match (&self.question, replies) {
            (Question::Number, [number]) => {
                let (number, next) = number.text().and_then(Place::parse).unzip();
                self.was_seen = number.is_some();
                self.number = number.unwrap_or(1);
                self.next = next.flatten();
                self.question = Question::Described;
            }
            (Question::Described, [described, time]) => self.described(described, time)?,
            (Question::Create(pairs), [added, _]) => {
                let is_new = *added == Reply::Integer(i64::try_from(pairs.len()).unwrap_or(-1));
                self.was_seen = true;
                // Somebody was faster: is it as we would have it?
                self.question = if is_new {
                    Question::End(0)
                } else {
                    Question::Described
                };
            }
            (Question::End(key), [_, _, last, first]) => {
                let key = *key;
                return self.end(key, last, first);
            }
            _ => return Err(Unreadable("the server answers something else".to_owned())),
        }
        Ok(Step::Ask)
    }

    fn described(&mut self, described: &Reply, time: &Reply) -> Result<(), Unreadable> {
        match Metadata::of_reply(described) {
            // River's ingester removes the description of what it has ingested, last.
            Ok(None) if self.was_seen => self.another_name(),
            Ok(None) => {
                self.question = Question::Create(self.description(time)?.pairs());
                Ok(())
            }
            Ok(Some(found)) if found.schema == *self.packing.schema() => {
                self.was_seen = true;
                let key = number_of(&self.name(), &found.first_key);
                let wrong = || Unreadable("its first_stream_key is of another stream".to_owned());
                self.question = Question::End(key.ok_or_else(wrong)?);
                Ok(())
            }
            // Not ours, though it has our name.
            _ => self.another_name(),
        }
    }

    fn another_name(&mut self) -> Result<(), Unreadable> {
        if self.number >= MOST_NAMES {
            return Err(Unreadable(format!("{MOST_NAMES} names of it have ended")));
        }
        self.number += 1;
        self.was_seen = false;
        self.question = Question::Described;
        Ok(())
    }

    fn description(&self, time: &Reply) -> Result<Metadata, Unreadable> {
        let part = |at: usize| time.list()?.get(at)?.text()?.parse::<i64>().ok();
        let now = part(0).zip(part(1)).map(|(secs, us)| secs * 1_000_000 + us);
        let now = now.ok_or_else(|| Unreadable("the server knows no time".to_owned()))?;
        Ok(Metadata {
            first_key: samples_key(&self.name(), 0).into_bytes(),
            schema: self.packing.schema().clone(),
            initialized_at_us: now,
            local_minus_server_us: None,
            user: said_of(&self.info, None),
        })
    }

    fn end(&mut self, key: u64, last: &Reply, first: &Reply) -> Result<Step, Unreadable> {
        let last = entries(last)?;
        let begun = entries(first)?.first().map(|entry| entry.id);
        let before = last.get(1).and_then(|entry| match entry.kind {
            Kind::Sample(index, _) => Some(index),
            _ => None,
        });
        let ended = |index: u64| before.or_else(|| Some(index).filter(|index| *index > 0));
        match last.first().map(|entry| (entry.id, &entry.kind)) {
            Some((_, Kind::Tombstone(next, index))) => {
                self.note(ended(*index));
                let next = number_of(&self.name(), next).filter(|next| *next > key);
                let wrong = || Unreadable("a next_stream_key leads back or elsewhere".to_owned());
                self.question = Question::End(next.ok_or_else(wrong)?);
                return Ok(Step::Ask);
            }
            Some((_, Kind::Eof(index))) => {
                self.note(ended(*index));
                self.another_name()?;
                return Ok(Step::Ask);
            }
            Some((_, Kind::Sample(index, _))) => self.note(Some(*index)),
            None => {}
        }
        let last_id = last.first().map_or_else(EntryId::default, |entry| entry.id);
        Ok(Step::Done(Box::new(Writer::new(
            self.name(),
            Place::of(&self.generation, self.number),
            self.packing.clone(),
            (key, self.next),
            begun.map(|begun| (begun.ms, last_id.ms)),
        ))))
    }

    fn note(&mut self, last: Option<u64>) {
        let next = last.map(|last| last.saturating_add(1));
        self.next = self.next.max(next);
    }
}

/// Returns what is said of a stream in its user metadata; `clock` is the Unix time of the server minus that of the
/// source, in seconds.
pub fn said_of(info: &StreamInfo, clock: Option<f64>) -> BTreeMap<String, String> {
    let xml = String::from_utf8_lossy(&info.to_xml()).into_owned();
    let mut said = BTreeMap::from([
        (USER_XML.to_owned(), xml),
        (USER_UID.to_owned(), info.uid().into_owned()),
    ]);
    if let Some(clock) = clock {
        said.insert(super::USER_CLOCK.to_owned(), format!("{clock:.6}"));
    }
    said
}

/// Which name of a stream is written, and up to where: what River's ingester removes tells it no more. Ours alone.
#[derive(Debug)]
pub(super) struct Place {
    key: String,
    number: u32,
}

impl Place {
    fn of(generation: &Generation, number: u32) -> Self {
        let key = format!("lsl:{{{generation}}}:river");
        Self { key, number }
    }

    fn parse(text: &str) -> Option<(u32, Option<u64>)> {
        let (number, next) = text.split_once(' ')?;
        Some((number.parse().ok()?, next.parse().ok()))
    }

    /// Notes the index of the sample after the last.
    pub(super) fn note(&self, next: Option<u64>, commands: &mut Commands) {
        let next = next.map_or_else(|| "-".to_owned(), |next| next.to_string());
        let text = format!("{} {next}", self.number);
        commands.add(&[&"SET", &self.key, &text, &"EX", &PLACE_SECS]);
    }
}

/// Names of one stream.
const MOST_NAMES: u32 = 10_000;

/// Time in seconds for which the place is known.
const PLACE_SECS: &str = "2592000";
