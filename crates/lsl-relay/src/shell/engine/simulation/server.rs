//! A model of Redis that loses connections, replies, memory and itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use super::Model;
use crate::config::EngineConfig;
use crate::engine::resp::{Commands, Replies, Reply};
use crate::engine::{EngineError, ErrorKind, Result};
use crate::id::RelayId;
use crate::shell::engine::packed::PackedEngine;
use crate::shell::engine::redis::{ConnectionId, Server};

/// How likely what goes wrong is, out of 1000 requests.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chaos {
    pub(super) cuts: u64,
    pub(super) late: u64,
    pub(super) full: u64,
    pub(super) failovers: u64,
    pub(super) restarts: u64,
}

/// Random numbers that a seed decides (splitmix64).
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    /// Returns a number below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % limit
    }
}

impl Random {
    pub(super) fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap()
    }
}

type Command = Vec<Vec<u8>>;

#[derive(Debug, Clone)]
enum Value {
    Text(String, f64),
    Hash(Vec<Vec<u8>>),
    /// Entries by the first part of their ids, and the last id.
    Stream(BTreeMap<u64, Arc<[Vec<u8>]>>, u64),
}

type Store = BTreeMap<String, Value>;

#[derive(Debug)]
pub(super) struct World {
    chaos: Chaos,
    random: Random,
    now: f64,
    appends: usize,
    store: Store,
    /// What replicas that lag have.
    before: VecDeque<Store>,
    connection: ConnectionId,
    /// Commands that wait in the buffers of connections that are gone, and for how many requests.
    late: Vec<(u64, Vec<Command>)>,
    /// Requests for which there is no memory, or data are being loaded.
    full_for: u64,
    loading_for: u64,
}

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
        Self(Arc::new(Mutex::new(World {
            chaos,
            random: Random(seed),
            now: 0.0,
            appends: 0,
            store: Store::new(),
            before: VecDeque::new(),
            connection: 1,
            late: Vec::new(),
            full_for: 0,
            loading_for: 0,
        })))
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
        world.happen();
        let lost = || EngineError::new(ErrorKind::Retry, "lost");
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
            let (after, arrived) = (world.random.below(12), world.random.index(count) + 1);
            let arrived = commands[..arrived].to_vec();
            world.late.push((after, arrived));
            world.connection += 1;
            return Err(lost());
        }
        let connection = world.connection;
        Ok((world.execute(&commands), connection))
    }
}

impl World {
    /// What happens between requests.
    fn happen(&mut self) {
        let chaos = self.chaos;
        let mut rolls = |likely: u64| self.random.below(1000) < likely;
        let (full, failover, restart) = (
            rolls(chaos.full),
            rolls(chaos.failovers),
            rolls(chaos.restarts),
        );
        if full {
            self.full_for = self.random.below(30);
        }
        if failover && !self.before.is_empty() {
            let at = self.random.index(self.before.len());
            self.store = self.before[at].clone();
            self.before.clear();
        }
        if restart {
            self.store.clear();
            self.before.clear();
            self.loading_for = self.random.below(4);
        }
        if failover || restart {
            self.connection += 1;
            self.late.clear();
        }
        if chaos.failovers > 0 && self.random.below(5) == 0 {
            self.before.push_back(self.store.clone());
            if self.before.len() > 6 {
                self.before.pop_front();
            }
        }
        self.full_for = self.full_for.saturating_sub(1);
        self.loading_for = self.loading_for.saturating_sub(1);
        for (after, _) in &mut self.late {
            *after = after.saturating_sub(1);
        }
        while let Some(at) = self.late.iter().position(|(after, _)| *after == 0) {
            let (_, commands) = self.late.remove(at);
            self.execute(&commands);
        }
    }

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
