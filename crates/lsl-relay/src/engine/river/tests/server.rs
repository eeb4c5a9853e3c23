//! Redis in memory, as far as the layout needs it.

use std::collections::{BTreeMap, HashMap};

use super::super::*;
use crate::engine::resp::{Commands, Replies, Reply};

/// What the layout needs of Redis.
#[derive(Default, Clone)]
pub(super) struct Server {
    pub(super) ms: u64,
    pub(super) hashes: BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>,
    pub(super) texts: HashMap<String, Vec<u8>>,
    pub(super) streams: HashMap<String, Vec<(EntryId, Vec<Reply>)>>,
    /// Last id of each stream, and how often it changed.
    pub(super) ids: HashMap<String, EntryId>,
    pub(super) changes: HashMap<String, u64>,
    /// Commands that add have no room.
    pub(super) is_full: bool,
}

/// What a connection watches, and the commands of its transaction.
#[derive(Default)]
pub(super) struct Link {
    watched: Vec<(String, u64)>,
    queue: Option<Vec<Vec<Vec<u8>>>>,
    is_refused: bool,
}

fn ok() -> Reply {
    Reply::Word("OK".into())
}

impl Server {
    pub(super) fn run(&mut self, link: &mut Link, commands: &Commands) -> Vec<Reply> {
        let mut parser = Replies::default();
        parser.feed(commands.bytes());
        let mut replies = Vec::new();
        while let Some(command) = parser.next_reply().unwrap() {
            let parts = command.list().unwrap().iter();
            let parts: Vec<Vec<u8>> = parts.map(|part| part.bytes().unwrap().to_vec()).collect();
            replies.push(self.command(link, parts));
        }
        assert_eq!(replies.len(), commands.count());
        replies
    }

    fn command(&mut self, link: &mut Link, parts: Vec<Vec<u8>>) -> Reply {
        let text = |at: usize| String::from_utf8(parts[at].clone()).unwrap();
        match &*text(0) {
            "MULTI" => link.queue = Some(Vec::new()),
            "EXEC" => {
                let queue = link.queue.take().unwrap();
                let is_changed = link
                    .watched
                    .drain(..)
                    .any(|(key, version)| self.version(&key) != version);
                return if std::mem::take(&mut link.is_refused) {
                    Reply::Error(
                        "EXECABORT Transaction discarded because of previous errors.".into(),
                    )
                } else if is_changed {
                    Reply::Nil
                } else {
                    Reply::List(queue.into_iter().map(|it| self.execute(&it)).collect())
                };
            }
            "UNWATCH" => link.watched.clear(),
            "WATCH" => link.watched.push((text(1), self.version(&text(1)))),
            "XADD" | "HSET" | "SET" if self.is_full => {
                link.is_refused = link.queue.is_some();
                return Reply::Error(
                    "OOM command not allowed when used memory > 'maxmemory'.".into(),
                );
            }
            _ => match &mut link.queue {
                Some(queue) => {
                    queue.push(parts);
                    return Reply::Word("QUEUED".into());
                }
                None => return self.execute(&parts),
            },
        }
        ok()
    }

    fn version(&self, key: &str) -> u64 {
        self.changes.get(key).copied().unwrap_or_default()
    }

    fn touch(&mut self, key: &str) {
        *self.changes.entry(key.to_owned()).or_default() += 1;
    }

    fn execute(&mut self, parts: &[Vec<u8>]) -> Reply {
        let text = |at: usize| String::from_utf8(parts[at].clone()).unwrap();
        let bytes = |bytes: &[u8]| Reply::Bytes(bytes.to_vec());
        match &*text(0) {
            "GET" => self.texts.get(&text(1)).map_or(Reply::Nil, |it| bytes(it)),
            "SET" => {
                self.texts.insert(text(1), parts[2].clone());
                ok()
            }
            "TIME" => Reply::List(vec![
                bytes((self.ms / 1000).to_string().as_bytes()),
                bytes((self.ms % 1000 * 1000).to_string().as_bytes()),
            ]),
            "HGETALL" => {
                let hash = self.hashes.get(&text(1)).into_iter().flatten();
                Reply::List(
                    hash.flat_map(|(name, value)| [bytes(name), bytes(value)])
                        .collect(),
                )
            }
            "HSET" => {
                let hash = self.hashes.entry(text(1)).or_default();
                let before = hash.len();
                for pair in parts[2..].chunks(2) {
                    hash.insert(pair[0].clone(), pair[1].clone());
                }
                Reply::Integer(i64::try_from(hash.len() - before).unwrap())
            }
            "EXISTS" => Reply::Integer(i64::from(self.streams.contains_key(&text(1)))),
            "XADD" => {
                let last = self.ids.entry(text(1)).or_default();
                let next = EntryId {
                    ms: self.ms,
                    number: 0,
                };
                *last = next.max(EntryId {
                    number: last.number + 1,
                    ..*last
                });
                let id = *last;
                let fields = parts[3..].iter().map(|part| bytes(part)).collect();
                self.streams.entry(text(1)).or_default().push((id, fields));
                self.touch(&text(1));
                bytes(id.to_string().as_bytes())
            }
            "XRANGE" | "XREVRANGE" => {
                let is_back = text(0) == "XREVRANGE";
                let (from, to) = if is_back {
                    (text(3), text(2))
                } else {
                    (text(2), text(3))
                };
                self.range(&text(1), &from, &to, is_back, text(5).parse().unwrap())
            }
            "XREAD" => {
                let from = format!("({}", text(7));
                match self.range(&text(6), &from, "+", false, text(2).parse().unwrap()) {
                    Reply::List(list) if list.is_empty() => Reply::Nil,
                    list => Reply::List(vec![Reply::List(vec![bytes(&parts[6]), list])]),
                }
            }
            other => panic!("{other}"),
        }
    }

    fn range(&self, key: &str, from: &str, to: &str, is_back: bool, count: usize) -> Reply {
        let is_open = from.starts_with('(');
        let from = EntryId::parse(from.trim_start_matches('(')).unwrap_or_default();
        let to = EntryId::parse(to);
        let list = self.streams.get(key).into_iter().flatten();
        let list = list.filter(|(id, _)| *id >= from && !(is_open && *id == from));
        let list = list.filter(|(id, _)| to.is_none_or(|to| *id <= to));
        let entry = |(id, fields): &(EntryId, Vec<Reply>)| {
            let id = Reply::Bytes(id.to_string().into_bytes());
            Reply::List(vec![id, Reply::List(fields.clone())])
        };
        let mut list: Vec<_> = list.map(entry).collect();
        if is_back {
            list.reverse();
        }
        list.truncate(count);
        Reply::List(list)
    }

    /// Does as River's ingester when a stream was silent for long: ends it, and removes it once it has all.
    pub(super) fn ingest(&mut self, name: &str, removes: bool) {
        let Some(metadata) = self.metadata(name) else {
            return;
        };
        let mut keys = vec![String::from_utf8(metadata.first_key).unwrap()];
        while let Some((_, fields)) = self
            .streams
            .get(keys.last().unwrap())
            .and_then(|it| it.last())
        {
            let Some(Reply::Bytes(next)) = Reply::List(fields.clone())
                .field("next_stream_key")
                .cloned()
            else {
                break;
            };
            keys.push(String::from_utf8(next).unwrap());
        }
        let last = keys.last().unwrap();
        let parts = ["XADD", last, "*", "eof", "1", "sample_index", "0"];
        self.execute(&parts.map(|part| part.as_bytes().to_vec()));
        if removes {
            for key in keys {
                self.streams.remove(&key);
                self.touch(&key);
            }
            self.hashes.remove(&metadata_key(name));
        }
    }

    pub(super) fn metadata(&mut self, name: &str) -> Option<Metadata> {
        let described = self.execute(&[b"HGETALL".to_vec(), metadata_key(name).into_bytes()]);
        Metadata::of_reply(&described).unwrap()
    }
}
