//! A model of Redis that loses connections, replies, memory and itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use super::Model;
use super::faults::{self, Chaos, lost};
use crate::config::EngineConfig;
use crate::engine::Result;
use crate::engine::resp::{Commands, Replies, Reply};
use crate::id::RelayId;
use crate::shell::engine::packed::PackedEngine;
use crate::shell::engine::redis::{ConnectionId, Server};

type Command = Vec<Vec<u8>>;

#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String, f64),
    Hash(Vec<Vec<u8>>),
    /// Entries by the first part of their ids, and the last id.
    Stream(BTreeMap<u64, Arc<[Vec<u8>]>>, u64),
}

type Store = BTreeMap<String, Value>;

pub(super) type World = faults::World<Store, Vec<Command>>;

#[derive(Debug, Clone)]
pub(super) struct Simulated(Arc<Mutex<World>>);

impl Simulated {
    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }
}

impl Model for Simulated {
    type Engine = PackedEngine<Self>;

    fn new(seed: u64, chaos: Chaos) -> Self {
        Self(Arc::new(Mutex::new(World::new(seed, chaos))))
    }

    fn engine(&self, config: &EngineConfig, relay: RelayId) -> Self::Engine {
        PackedEngine::new(config, relay, self.clone(), self.clone())
    }

    fn go_on(&self, now: f64) -> usize {
        let mut world = self.world();
        world.now = now;
        world.appends
    }

    fn calm(&self) {
        self.world().chaos = Chaos::default();
    }
}

impl World {
    /// Runs what a connection that is gone had in its buffer.
    pub(super) fn arrive(&mut self, late: &Commands) {
        self.execute(&parse(late.bytes()));
    }
}

impl Server for Simulated {
    async fn run(
        &self,
        on: Option<ConnectionId>,
        commands: Commands,
    ) -> Result<(Vec<Reply>, ConnectionId)> {
        let mut world = self.world();
        for late in world.happen() {
            world.execute(&late);
        }
        if on.is_some_and(|on| on != world.connection) {
            return Err(lost());
        }
        let commands = parse(commands.bytes());
        let count = commands.len();
        let chaos = world.chaos;
        let dice = world.random.below(1000);
        if dice < chaos.cuts {
            // Some of them arrive, or all, but no reply.
            let arrived = world.random.index(count + 1);
            world.execute(&commands[..arrived]);
            world.connection += 1;
            return Err(lost());
        } else if dice < chaos.cuts + chaos.late {
            let arrived = world.random.index(count) + 1;
            world.delay(commands[..arrived].to_vec());
            return Err(lost());
        }
        let connection = world.connection;
        Ok((world.execute(&commands), connection))
    }
}

impl World {
    /// Runs what came by one connection.
    fn execute(&mut self, commands: &[Command]) -> Vec<Reply> {
        let mut queued: Option<Vec<&Command>> = None;
        let mut is_broken = false;
        let mut replies = Vec::new();
        for command in commands {
            let name = String::from_utf8_lossy(&command[0]).into_owned();
            // Memory comes and goes in the middle of a pipeline.
            if self.chaos.full > 0 && self.random.below(50) == 0 {
                self.full_for = self.random.below(3);
            }
            let needs_memory = ["XADD", "HSET", "SET", "ZADD"].contains(&&*name)
                || name == "EXEC" && queued.is_some();
            let is_full = needs_memory && self.full_for > 0;
            let refusal = match (self.loading_for > 0, is_full) {
                (true, _) => Some("LOADING Redis is loading the dataset in memory"),
                (_, true) => Some("OOM command not allowed when used memory > 'maxmemory'."),
                _ => None,
            };
            let reply = match (&*name, refusal) {
                ("EXEC", refusal) if is_broken || refusal.is_some() => {
                    queued = None;
                    Reply::Error(format!(
                        "EXECABORT Transaction discarded because of: {}",
                        refusal.unwrap_or("previous errors.")
                    ))
                }
                (_, Some(refusal)) => {
                    is_broken = queued.is_some();
                    Reply::Error(refusal.to_owned())
                }
                ("MULTI", _) => {
                    queued = Some(Vec::new());
                    Reply::Word("OK".into())
                }
                ("EXEC", _) => {
                    let queued = queued.take().expect("MULTI");
                    Reply::List(queued.into_iter().map(|it| self.one(it)).collect())
                }
                _ => match &mut queued {
                    Some(queued) => {
                        queued.push(command);
                        Reply::Word("QUEUED".into())
                    }
                    None => self.one(command),
                },
            };
            replies.push(reply);
        }
        replies
    }

    fn one(&mut self, command: &Command) -> Reply {
        let texts: Vec<_> = command
            .iter()
            .map(|it| String::from_utf8_lossy(it))
            .collect();
        let texts: Vec<&str> = texts.iter().map(|it| &**it).collect();
        let now = self.now;
        self.store
            .retain(|_, value| !matches!(value, Value::Text(_, until) if *until <= now));
        let ok = || Reply::Word("OK".into());
        match texts[..] {
            ["SET", key, value, "NX", "PX", ms] => {
                if self.store.contains_key(key) {
                    return Reply::Nil;
                }
                let until = now + ms.parse::<f64>().unwrap() / 1e3;
                self.store
                    .insert(key.into(), Value::Text(value.into(), until));
                ok()
            }
            ["GET", key] => match self.store.get(key) {
                Some(Value::Text(text, _)) => Reply::Bytes(text.clone().into_bytes()),
                _ => Reply::Nil,
            },
            ["PEXPIRE", key, ms] => match self.store.get_mut(key) {
                Some(Value::Text(_, until)) => {
                    *until = now + ms.parse::<f64>().unwrap() / 1e3;
                    Reply::Integer(1)
                }
                _ => Reply::Integer(0),
            },
            ["EXPIRE" | "ZADD" | "XTRIM" | "ZREMRANGEBYSCORE", ..] => Reply::Integer(1),
            ["HSET", key, ..] => {
                let value = self
                    .store
                    .entry(key.into())
                    .or_insert_with(|| Value::Hash(vec![]));
                if let Value::Hash(fields) = value {
                    for pair in command[2..].chunks(2) {
                        let known = fields.chunks(2).position(|it| it[0] == pair[0]);
                        match known {
                            Some(at) => fields[at * 2 + 1].clone_from(&pair[1]),
                            None => fields.extend_from_slice(pair),
                        }
                    }
                }
                Reply::Integer(1)
            }
            ["HGETALL", key] => match self.store.get(key) {
                Some(Value::Hash(fields)) => Reply::List(bytes(fields)),
                _ => Reply::List(vec![]),
            },
            ["XADD", key, id, ..] => {
                let id: u64 = id.strip_suffix("-0").unwrap().parse().unwrap();
                let value = self.store.entry(key.into());
                let value = value.or_insert_with(|| Value::Stream(BTreeMap::new(), 0));
                let Value::Stream(entries, last) = value else {
                    return Reply::Error("WRONGTYPE".into());
                };
                if id <= *last {
                    return Reply::Error(
                        "ERR The ID specified in XADD is equal or smaller than the target stream top item"
                            .into(),
                    );
                }
                *last = id;
                entries.insert(id, command[3..].into());
                self.appends += 1;
                Reply::Bytes(command[2].clone())
            }
            ["XREVRANGE", key, from, "-", "COUNT", "1"] => {
                let most = from
                    .strip_suffix("-0")
                    .map_or(u64::MAX, |it| it.parse().unwrap());
                let entries = self.entries(key);
                Reply::List(
                    entries
                        .range(..=most)
                        .next_back()
                        .map(entry)
                        .into_iter()
                        .collect(),
                )
            }
            ["XRANGE", key, from, "+", "COUNT", count] => {
                let after: u64 = from.strip_suffix("-1").unwrap().parse().unwrap();
                let entries = self.entries(key);
                let found = entries.range(after + 1..).take(count.parse().unwrap());
                Reply::List(found.map(entry).collect())
            }
            ["XREAD", ..] => Reply::Nil,
            ["XINFO", "STREAM", key] => match self.store.get(key) {
                Some(Value::Stream(_, last)) => Reply::List(vec![
                    Reply::Bytes(b"last-generated-id".to_vec()),
                    Reply::Bytes(format!("{last}-0").into_bytes()),
                ]),
                _ => Reply::Error("ERR no such key".into()),
            },
            _ => panic!("{texts:?}"),
        }
    }

    fn entries(&self, key: &str) -> BTreeMap<u64, Arc<[Vec<u8>]>> {
        match self.store.get(key) {
            Some(Value::Stream(entries, _)) => entries.clone(),
            _ => BTreeMap::new(),
        }
    }
}

fn bytes(fields: &[Vec<u8>]) -> Vec<Reply> {
    fields.iter().cloned().map(Reply::Bytes).collect()
}

fn entry((id, fields): (&u64, &Arc<[Vec<u8>]>)) -> Reply {
    let id = Reply::Bytes(format!("{id}-0").into_bytes());
    Reply::List(vec![id, Reply::List(bytes(fields))])
}

/// Reads commands as a server does.
fn parse(bytes: &[u8]) -> Vec<Command> {
    let mut replies = Replies::default();
    replies.feed(bytes);
    let lists = std::iter::from_fn(|| replies.next_reply().unwrap());
    let command = |list: Reply| {
        let parts = list.list().unwrap().iter();
        parts.map(|part| part.bytes().unwrap().to_vec()).collect()
    };
    lists.map(command).collect()
}
