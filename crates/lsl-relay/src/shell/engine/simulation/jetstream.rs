//! A model of JetStream that loses connections, replies, room and itself.

use std::sync::{Arc, Mutex, MutexGuard};

use base64ct::{Base64, Encoding};
use serde_json::{Value, json};

use super::Model;
use super::faults::{self, Chaos, lost};
use crate::config::EngineConfig;
use crate::engine::Result;
use crate::engine::jetstream::Request;
use crate::id::RelayId;
use crate::shell::engine::jetstream::{JetStream, Server};
use crate::shell::engine::redis::ConnectionId;

/// Messages by their places, and the last place; `None` without the JetStream stream.
type Store = Option<(Vec<(u64, Arc<Request>)>, u64)>;

type World = faults::World<Store, Request>;

#[derive(Debug, Clone)]
pub(super) struct SimulatedNats(Arc<Mutex<World>>);

impl SimulatedNats {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }
}

impl Model for SimulatedNats {
    type Engine = JetStream<Self>;

    fn new(seed: u64, chaos: Chaos) -> Self {
        Self(Arc::new(Mutex::new(World::new(seed, chaos))))
    }

    fn engine(&self, config: &EngineConfig, relay: RelayId) -> Self::Engine {
        JetStream::new(config, relay, self.clone())
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

impl Server for SimulatedNats {
    async fn request(&self, request: Request) -> Result<Vec<u8>> {
        let mut world = self.world();
        for late in world.happen() {
            world.answer(late);
        }
        let chaos = world.chaos;
        let dice = world.random.below(1000);
        if dice < chaos.cuts {
            if world.random.below(2) == 0 {
                world.answer(request);
            }
            world.connection += 1;
            return Err(lost());
        } else if dice < chaos.cuts + chaos.late {
            world.delay(request);
            return Err(lost());
        }
        Ok(world.answer(request).to_string().into_bytes())
    }

    fn connection(&self) -> Option<ConnectionId> {
        Some(self.world().connection)
    }

    fn now(&self) -> f64 {
        self.world().now
    }
}

impl World {
    fn answer(&mut self, request: Request) -> Value {
        let asked: Value = serde_json::from_slice(&request.payload).unwrap_or_default();
        let error = |code: u64, number: u64| json!({"error": {"code": code, "err_code": number}});
        if request.subject == "$JS.API.STREAM.CREATE.LSL" {
            self.store.get_or_insert_default();
            return json!({});
        }
        let Some((messages, last)) = &mut self.store else {
            return error(404, 10059);
        };
        match &*request.subject {
            "$JS.API.STREAM.INFO.LSL" => {
                json!({"config": {"retention": "limits", "max_age": 3_600_000_000_000_u64, "allow_rollup_hdrs": true}})
            }
            "$JS.API.STREAM.MSG.GET.LSL" => {
                let found = match (&asked["last_by_subj"], &asked["next_by_subj"]) {
                    (Value::String(subject), _) => {
                        messages.iter().rfind(|(_, it)| it.subject == *subject)
                    }
                    (_, Value::String(subject)) => {
                        let from = asked["seq"].as_u64().unwrap();
                        let mut found = messages.iter();
                        found.find(|(place, it)| *place >= from && it.subject == *subject)
                    }
                    _ => panic!("{asked}"),
                };
                let Some((place, found)) = found else {
                    return error(404, 10037);
                };
                let headers = found
                    .headers
                    .iter()
                    .fold("NATS/1.0\r\n".to_owned(), |all, it| {
                        all + it.0 + ": " + &it.1 + "\r\n"
                    });
                let (headers, data) = (headers.as_bytes(), &found.payload);
                json!({"message": {
                    "seq": place, "hdrs": Base64::encode_string(headers), "data": Base64::encode_string(data),
                }})
            }
            subject => {
                if self.full_for > 0 {
                    return error(503, 10077);
                }
                let newest = messages.iter().rfind(|(_, it)| it.subject == *subject);
                let newest = newest.map_or(0, |(place, _)| *place);
                for (name, value) in &request.headers {
                    match *name {
                        "Nats-Expected-Last-Subject-Sequence" if *value != newest.to_string() => {
                            return error(400, 10071);
                        }
                        "Nats-Rollup" => messages.retain(|(_, it)| it.subject != *subject),
                        _ => {}
                    }
                }
                self.appends += usize::from(subject.starts_with("lsl.d."));
                *last += 1;
                messages.push((*last, Arc::new(request)));
                json!({"stream": "LSL", "seq": *last})
            }
        }
    }
}
