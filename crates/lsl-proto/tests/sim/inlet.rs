//! An inlet as `lsl-core` drives it: one connection at a time, pulls that wait for the socket or for the
//! inlet's task, a clock, and the way back to a stream that was lost.

mod reading;
mod recovering;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use lsl_proto::clock::{
    Clock, ClockEvent, ClockLimits, PostProcessor, Probe, TimeAlarm, TimeCorrection,
};
use lsl_proto::config::Config;
use lsl_proto::describe::descriptor;
use lsl_proto::inlet::recovery::{Attempt, Input, Purpose, Recovery};
use lsl_proto::inlet::{Connection, Feed, FeedOptions, LeaderId, Reader, SampleRing};
use lsl_proto::{Error, StreamInfo};
use lsl_secure::connection::Connection as Handshake;
use lsl_secure::{Descriptor, TimeProber};

use crate::dice::Dice;
use crate::peers::{Identity, Late};
use crate::tcp::Socket;

/// An inlet and what came of it.
pub(crate) struct InletProgram {
    pub(crate) identity: Identity,
    pub(crate) options: FeedOptions,
    /// The stream as it was chosen, and whether discovery said so.
    original: Descriptor,
    was_found: bool,
    pub(crate) recovery: Recovery,
    pub(crate) feed: Feed,
    reader: Reader<()>,
    stage: Stage,
    /// The attempt that is under way.
    attempt: Option<Attempt>,
    /// Whether the world looks for something on behalf of `recovery`.
    is_asking: bool,
    /// Refusals in a row.
    refusals: u32,
    lingering: Vec<(Socket, f64)>,
    /// Seconds between pulls; `None` without pulls.
    pulls_every: Option<f64>,
    pull: PullState,
    is_registered: bool,
    tick_at: Option<f64>,
    pub(crate) clock: Option<Clock>,
    pub(crate) config: Config,
    pub(crate) limits: ClockLimits,
    /// Times that nobody answered the clock for long.
    pub(crate) silences: u32,
    pub(crate) correction: Option<TimeCorrection>,
    pub(crate) alarms: Vec<TimeAlarm>,
    pub(crate) pings: u32,
    /// Changes of the key by which the outlet encrypts.
    pub(crate) key_updates: u32,
    dice: Dice,
    /// Numbers of the samples pulled.
    pub(crate) pulled: Vec<u32>,
    /// Why connections ended, and were not made.
    pub(crate) errors: Vec<Error>,
}

enum Stage {
    /// Waits for its next attempt.
    Idle,
    /// Connects, at most until then.
    Connecting(f64),
    Connected(Box<DataConnection>),
    Lost,
}

struct DataConnection {
    socket: Socket,
    machine: Connection,
    deadline: Option<f64>,
    late: Option<Late>,
    prober: Option<TimeProber>,
}

/// State of the thread that pulls.
#[derive(Debug, Clone, Copy, PartialEq)]
enum PullState {
    /// Does something else until then.
    Away(f64),
    /// Waits for the socket itself.
    Leads(LeaderId),
    /// Waits for the inlet's task.
    Waits,
}

/// Something that the world does for an inlet.
pub(crate) enum Wish {
    Connect(SocketAddr),
    Search {
        query: Vec<u8>,
        minimum_secs: f64,
    },
    /// Say whether this outlet answers at this address.
    AskInPlace(SocketAddr, Arc<StreamInfo>),
    Probe(SocketAddr, Vec<u8>),
}

impl InletProgram {
    pub(crate) fn new(
        info: &StreamInfo,
        identity: Identity,
        is_recoverable: bool,
        now: f64,
        dice: Dice,
    ) -> Self {
        let ring = SampleRing::new(1 << 20, usize::MAX);
        let shape = (info.channel_count() as usize, info.channel_format());
        let config = Config::loopback();
        let mut recovery = Recovery::new(info.clone(), &config, is_recoverable, |_| 0);
        recovery.handle(Input::Wanted(Purpose::Feed), now);
        Self {
            original: descriptor(info),
            was_found: !info.v4_address().is_empty(),
            recovery,
            feed: Feed::new(ring, PostProcessor::new(0.0, 90.0), shape, true),
            identity,
            options: FeedOptions {
                version: 110,
                max_buffer_samples: 1 << 20,
                max_chunk_samples: 0,
            },
            reader: Reader::default(),
            stage: Stage::Idle,
            attempt: None,
            is_asking: false,
            refusals: 0,
            lingering: Vec::new(),
            pulls_every: Some(0.005),
            pull: PullState::Away(now),
            is_registered: false,
            tick_at: None,
            clock: None,
            config,
            silences: 0,
            limits: ClockLimits {
                max_rtt_secs: 0.128,
                warn_secs: 0.005,
            },
            correction: None,
            alarms: Vec::new(),
            pings: 0,
            key_updates: 0,
            dice,
            pulled: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Begins to measure the outlet's clock.
    pub(crate) fn measure(&mut self, is_sealed: bool, now: f64) {
        let seed = u32::try_from(self.dice.below(1 << 31)).unwrap();
        let mut clock = Clock::new(self.config.tuning(), self.limits, seed);
        clock.begin(is_sealed, now);
        self.clock = Some(clock);
    }

    /// Has the program pull so often, or not at all.
    pub(crate) fn set_pulls(&mut self, every_secs: Option<f64>) {
        self.pulls_every = every_secs;
        if let PullState::Leads(id) = self.pull {
            self.reader.resign(id);
        }
        self.pull = PullState::Away(0.0);
        self.is_registered = matches!(self.stage, Stage::Connected(_));
    }

    /// Whether the stream flows.
    pub(crate) fn is_open(&self) -> bool {
        matches!(&self.stage, Stage::Connected(data) if data.machine.is_opened())
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.stage, Stage::Lost)
    }

    /// Ends the connection as a program does that has enough.
    pub(crate) fn close(&mut self, now: f64) {
        self.disconnect(None, now);
        self.recovery.handle(Input::Done(Purpose::Feed), now);
        self.stage = Stage::Lost;
        self.clock = None;
    }

    /// Does everything that can be done at `now`. Returns when to call this again if nothing comes before.
    pub(crate) fn drive(&mut self, wishes: &mut Vec<Wish>, now: f64) -> Option<f64> {
        self.lingering.retain(|(socket, until)| {
            let is_over = loop {
                match socket.read(READ_BYTES) {
                    Ok(bytes) if !bytes.is_empty() => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break *until <= now,
                    _ => break true,
                }
            };
            !is_over
        });
        self.connect(wishes, now);
        self.attend(now);
        self.drive_clock(wishes, now);
        self.pull(now);
        self.connect(wishes, now);
        self.check();
        self.next_time()
    }

    fn next_time(&self) -> Option<f64> {
        let own = match &self.stage {
            Stage::Connecting(at) => Some(*at),
            Stage::Connected(data) => {
                let late = data.late.as_ref().map(|it| it.0);
                let times = [data.deadline, data.machine.poll_timeout(), late];
                times.into_iter().flatten().reduce(f64::min)
            }
            Stage::Idle | Stage::Lost => None,
        };
        let pull = match self.pull {
            PullState::Away(at) if self.pulls_every.is_some() => Some(at),
            PullState::Leads(_) => Some(self.reader.quiet_at()),
            _ => None,
        };
        let clock = self.clock.as_ref().map(Clock::poll_timeout);
        let lingering = self.lingering.iter().map(|it| it.1).reduce(f64::min);
        let recovery = self.recovery.poll_timeout().filter(|_| !self.is_lost());
        let times = [own, pull, clock, self.tick_at, lingering, recovery];
        times.into_iter().flatten().reduce(f64::min)
    }

    /// Checks that there is one reader, and that nobody waits for what is there.
    fn check(&self) {
        let leads = matches!(self.pull, PullState::Leads(_));
        assert!(!(leads && self.is_registered), "two readers of one socket");
        if let Stage::Connected(data) = &self.stage {
            let looks = leads || self.is_registered || self.tick_at.is_some();
            assert!(looks, "nobody looks after the socket");
            let is_opening = !data.machine.is_opened();
            assert!(
                !is_opening || data.deadline.is_some(),
                "opens without a timer"
            );
        }
        if let Stage::Idle = &self.stage {
            let waits = self.is_asking || self.recovery.poll_timeout().is_some();
            assert!(waits, "nothing leads to the next attempt");
        }
        let waits = leads || self.pull == PullState::Waits;
        assert!(
            !(waits && self.feed.is_ready()),
            "a pull waits for what is there"
        );
    }

    fn drive_clock(&mut self, wishes: &mut Vec<Wish>, now: f64) {
        let Some(clock) = &mut self.clock else {
            return;
        };
        loop {
            let mut none = None;
            let data = match &mut self.stage {
                Stage::Connected(data) => Some(data),
                _ => None,
            };
            let prober = data.map_or(&mut none, |data| &mut data.prober);
            match clock.poll_transmit(now, prober.as_mut()) {
                None => break,
                Some(Probe::Udp(bytes)) => {
                    if let Some(endpoint) = self.recovery.endpoint() {
                        wishes.push(Wish::Probe(endpoint.service, bytes));
                    }
                }
                Some(Probe::Ping(t0)) => {
                    self.pings += 1;
                    if let Stage::Connected(data) = &mut self.stage {
                        let DataConnection {
                            socket, machine, ..
                        } = &mut **data;
                        if let Some(sender) = machine.session().and_then(Handshake::sender) {
                            sender.ping(t0).unwrap();
                        }
                        let _ = machine.transmit(|| now, |bytes| socket.write(bytes));
                    }
                    // An answer would be of no use if it were read late.
                    self.is_registered |= self.reader.request_reactor(now);
                }
            }
        }
        while let Some(event) = clock.poll_event() {
            match event {
                ClockEvent::Estimate(correction) => self.correction = correction,
                ClockEvent::Alarm(alarm, _) => self.alarms.push(alarm),
                ClockEvent::Silent => self.silences += 1,
                ClockEvent::Exhausted(text) => panic!("{text}"),
            }
        }
    }

    /// Takes a datagram that came to the port of the clock.
    pub(crate) fn handle_datagram(&mut self, bytes: &[u8], now: f64) {
        let prober = match &mut self.stage {
            Stage::Connected(data) => data.prober.as_mut(),
            _ => None,
        };
        if let Some(clock) = &mut self.clock {
            clock.handle_datagram(bytes, now, prober);
        }
    }
}

const READ_BYTES: usize = 16 * 1024;
const CONNECT_SECS: f64 = 5.0;
