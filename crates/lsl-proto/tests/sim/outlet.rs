//! An outlet as `lsl-core` drives it: connections that are accepted, pushes, and the flush task.

mod accepting;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use lsl_proto::describe;
use lsl_proto::discovery::advert;
use lsl_proto::discovery::evaluation::Evaluator;
use lsl_proto::discovery::registry::AnnouncedStream;
use lsl_proto::outlet::connection::Connection;
use lsl_proto::outlet::encoder::{Encoder, Variant};
use lsl_proto::outlet::fanout::{
    Batch, Caller, Fanout, Inline, Position, Pushthrough, Status, Transmit,
};
use lsl_proto::outlet::request::OutletOptions;
use lsl_proto::outlet::retention::{Retain, Retention, Share};
use lsl_proto::outlet::{Stamps, Timestamps};
use lsl_proto::transport::{Control, Tx};
use lsl_proto::wire::sequence::Generation;
use lsl_proto::{Error, StreamInfo};
use lsl_secure::trust::TrustList;
use lsl_secure::{Cause, Descriptor, Policy, TimeResponder};

use accepting::{Accepted, Stage};

use crate::dice::Dice;
use crate::peers::{self, Identity};
use crate::tcp::{SECRET, Socket};

/// An outlet and everything that reads it.
pub(crate) struct OutletProgram {
    pub(crate) info: StreamInfo,
    pub(crate) identity: Identity,
    pub(crate) announced: Arc<AnnouncedStream>,
    pub(crate) options: OutletOptions,
    shortinfo: Vec<u8>,
    descriptor: Arc<Descriptor>,
    evaluator: Evaluator,
    encoder: Encoder,
    pub(crate) fanout: Fanout<Sender>,
    batch: Batch<Sender>,
    pub(crate) connections: BTreeMap<usize, Accepted>,
    pub(crate) responders: Vec<TimeResponder>,
    /// When the flush task runs next; `None` while it sleeps.
    flush_at: Option<f64>,
    clock: Rc<Cell<f64>>,
    dice: Dice,
    /// Samples pushed so far: the next one's number.
    pub(crate) pushed: u32,
    /// Number of the first sample of this outlet, which goes on with the stream of another one.
    pub(crate) origin: u32,
    generation: Option<Generation>,
    pub(crate) consumers_seen: u32,
    /// Why connections ended that did not end well.
    pub(crate) errors: Vec<Error>,
}

/// The sending direction of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    socket: Rc<Socket>,
    tx: Tx,
    clock: Rc<Cell<f64>>,
    is_woken: Rc<Cell<bool>>,
}

impl Transmit for Sender {
    type Info = ();

    fn send(&mut self, bytes: &[u8], _: Caller) -> io::Result<usize> {
        let Self {
            socket, tx, clock, ..
        } = self;
        tx.send(bytes, || clock.get(), |bytes| socket.write(bytes))
    }

    fn queue(&mut self, bytes: &[u8]) {
        self.tx.queue(bytes);
    }

    fn flush(&mut self, _: Caller) -> io::Result<bool> {
        let Self {
            socket, tx, clock, ..
        } = self;
        tx.flush(|| clock.get(), |bytes| socket.write(bytes))
    }

    fn has_unsent(&self) -> bool {
        self.tx.unsent() > 0
    }

    fn queued_bytes(&self) -> usize {
        self.tx.queued()
    }

    fn control(&mut self, control: Control) {
        self.tx.control(control);
    }

    fn wake(&self) {
        self.is_woken.set(true);
    }
}

impl OutletProgram {
    pub(crate) fn new(info: StreamInfo, identity: Identity, capacity: usize, dice: Dice) -> Self {
        let security = peers::own_security(&identity);
        let mut info = info;
        advert::write_advert(&mut info, &security);
        Self {
            announced: Arc::new(advert::announced(&info, &security)),
            shortinfo: advert::shortinfo(&info, &security),
            descriptor: Arc::new(describe::descriptor(&describe::as_received(&info))),
            encoder: Encoder::new(&info),
            evaluator: Evaluator::new(10),
            options: OutletOptions {
                capacity_samples: capacity,
                chunk_samples: capacity,
                synchronous: false,
                retain: Retain::NOTHING,
            },
            info,
            identity,
            fanout: Fanout::default(),
            batch: Batch::default(),
            connections: BTreeMap::new(),
            responders: Vec::new(),
            flush_at: None,
            clock: Rc::default(),
            dice,
            pushed: 0,
            origin: 0,
            generation: None,
            consumers_seen: 0,
            errors: Vec::new(),
        }
    }

    /// Retains samples from now on, and grants feeds.
    pub(crate) fn retain(&mut self, retain: Retain, now: f64) {
        self.options.retain = retain;
        self.generation = Generation::parse(self.info.uid().replace("uid", "a").as_bytes());
        let retention = Retention::new(retain, Arc::new(Share::new(1 << 30)), now);
        self.fanout.retain(retention, 0.0);
    }

    /// Returns the sequence number of the next sample.
    fn next(&self) -> u64 {
        u64::from(self.pushed - self.origin)
    }

    /// Accepts a connection.
    pub(crate) fn accept(&mut self, number: usize, socket: Socket, now: f64) {
        if self.identity.policy == Policy::Required {
            socket.link().forbid_plaintext();
        }
        let accepted = Accepted {
            socket: Rc::new(socket),
            machine: Connection::new(self.identity.policy != Policy::Off, now),
            stage: Stage::Open,
            deadline: None,
            late: None,
            is_woken: Rc::default(),
            peer: None,
        };
        self.connections.insert(number, accepted);
    }

    /// Pushes a chunk of samples whose values are their numbers.
    pub(crate) fn push(&mut self, samples: u32, pushthrough: Pushthrough, now: f64) {
        self.clock.set(now);
        let first = self.next();
        let numbers = self.pushed..self.pushed + samples;
        self.pushed = numbers.end;
        let values: Vec<i64> = numbers.clone().flat_map(sample).collect();
        let stamps: Vec<f64> = numbers.map(stamp).collect();
        let mut room = Vec::new();
        let count = stamps.len();
        let stamps = Stamps::Each(&stamps);
        let stamps = Timestamps::new(stamps, count, 0.0, false, now, &mut room, || now);
        for variant in Variant::ALL {
            let mut at = 0;
            while at < count && self.fanout.is_read(variant) {
                let place = Position {
                    variant,
                    first: first + at as u64,
                };
                let encoded = self.encoder.encode(variant, &values, stamps, at..count);
                at = encoded.unwrap();
                let piece = &mut self.encoder.piece;
                let published =
                    (self.fanout).publish(piece, place, pushthrough, Inline::Budget, now);
                if published.wake_flusher {
                    self.wake_flusher(now);
                }
            }
        }
    }

    /// Makes everything ready to be sent that was held.
    pub(crate) fn flush(&mut self, now: f64) {
        self.clock.set(now);
        if self.fanout.flush() {
            self.wake_flusher(now);
        }
    }

    /// Ends the stream.
    pub(crate) fn close(&mut self, now: f64) {
        self.clock.set(now);
        self.fanout.close();
        self.wake_flusher(now);
        for accepted in self.connections.values_mut() {
            match accepted.stage {
                Stage::Feed(_) => accepted.deadline = Some(now + LINGER_SECS),
                Stage::Closing { .. } | Stage::Lingering => {}
                _ => accepted.stage = Stage::Over,
            }
        }
    }

    /// Ends the sessions of a peer that is trusted no more, with an ALERT.
    pub(crate) fn revoke(&mut self, name: &str, now: f64) {
        self.clock.set(now);
        let key = peers::key_of(name).public();
        let left = self.identity.trust.peers().iter();
        let left: Vec<_> = left.filter(|peer| peer.key != key).cloned().collect();
        self.identity.trust = Arc::new(TrustList::from_peers(left).unwrap());
        self.responders.clear();
        for accepted in self.connections.values_mut() {
            if accepted.peer == Some(key)
                && let Stage::Feed(id) = accepted.stage
            {
                let _ = self.fanout.control(id, Control::Alert(Cause::Revoked));
                accepted.is_woken.set(true);
            }
        }
    }

    /// Returns whether a task of a connection was woken since the last call.
    pub(crate) fn take_is_woken(&self) -> bool {
        let mut is_woken = false;
        for accepted in self.connections.values() {
            is_woken |= accepted.is_woken.replace(false);
        }
        is_woken
    }

    fn wake_flusher(&mut self, now: f64) {
        self.flush_at.get_or_insert(now + TURN_SECS);
    }

    /// Does everything that can be done at `now`. Returns when to call this again if nothing comes before.
    pub(crate) fn drive(&mut self, now: f64) -> Option<f64> {
        self.clock.set(now);
        if self.flush_at.take_if(|at| *at <= now).is_some() {
            self.flush_step(now);
        }
        let numbers: Vec<_> = self.connections.keys().copied().collect();
        for number in numbers {
            let Some(mut accepted) = self.connections.remove(&number) else {
                continue;
            };
            while self.attend(&mut accepted, now) {}
            if !matches!(accepted.stage, Stage::Over) {
                self.connections.insert(number, accepted);
            }
        }
        self.check(now);
        let times = self.connections.values().flat_map(Accepted::times);
        times.chain(self.flush_at).reduce(f64::min)
    }

    /// One step of the flush task: others run between the sends of a batch.
    fn flush_step(&mut self, now: f64) {
        if self.batch.send_next().is_none() {
            self.fanout.finish(&mut self.batch);
            self.fanout.fill(BATCH_BYTES, &mut self.batch);
        }
        if !self.batch.is_empty() {
            self.flush_at = Some(now + TURN_SECS);
        }
    }

    /// Checks that nothing waits that nobody looks after.
    fn check(&self, now: f64) {
        if self.flush_at.is_none() {
            assert!(self.batch.is_empty(), "a batch without a flush task");
            assert!(
                !self.fanout.is_urgent(),
                "the flush task sleeps over its work"
            );
        }
        for accepted in self.connections.values() {
            let deadline = accepted.times().reduce(f64::min);
            match &accepted.stage {
                Stage::Feed(id) => {
                    let has_room = accepted.socket.has_room();
                    let is_stuck = self.fanout.status(*id) == Status::Blocked && has_room;
                    assert!(!is_stuck, "a consumer waits for room that there is");
                }
                Stage::Leaving { .. } => assert!(!self.batch.is_empty(), "leaves in vain"),
                _ => assert!(
                    deadline.is_some_and(|at| at >= now),
                    "waits without a timer"
                ),
            }
        }
    }
}

/// Returns the values of a sample.
pub(crate) fn sample(number: u32) -> [i64; 2] {
    let value = SECRET + i64::from(number);
    [value, !value]
}

/// Returns the timestamp of a sample.
pub(crate) fn stamp(number: u32) -> f64 {
    100.0 + f64::from(number) / 100.0
}

const BATCH_BYTES: usize = 64 * 1024;
/// From one turn of the flush task to the next: what others do with the thread.
const TURN_SECS: f64 = 20e-6;
const REQUEST_SECS: f64 = 15.0;
const LINGER_SECS: f64 = 1.0;
