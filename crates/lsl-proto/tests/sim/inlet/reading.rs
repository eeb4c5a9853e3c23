//! Who reads the socket of an inlet, and who waits for it: what pulls and the inlet's task in `lsl-core` do.

use std::io;

use lsl_proto::inlet::recovery::Input;
use lsl_proto::inlet::{Disconnect, Feed, FeedDecoder, Pull, Taken};
use lsl_proto::security::ExpectedIdentity;
use lsl_proto::{Error, StreamInfo};
use lsl_secure::connection::Event;
use lsl_secure::{Role, TimeKeys};

use super::{DataConnection, InletProgram, PullState, READ_BYTES, Stage};
use crate::dice::Dice;
use crate::outlet::{sample, stamp};
use crate::peers::Identity;

impl InletProgram {
    /// Reads for whoever is woken by the socket or by a timer.
    pub(super) fn attend(&mut self, now: f64) {
        let is_due = self.tick_at.take_if(|at| *at <= now).is_some();
        if !matches!(self.stage, Stage::Connected(_)) {
            return;
        }
        if let PullState::Leads(id) = self.pull {
            if !self.read(now) && self.reader.is_leader(id) && self.reader.quiet_at() <= now {
                self.reader.resign(id);
                self.pull = PullState::Waits;
                self.is_registered |= self.reader.request_reactor(now);
            }
            if self.reader.leader().is_some() {
                self.tick_at.get_or_insert(now + LEADER_TICK_SECS);
            } else if let PullState::Leads(_) = self.pull {
                self.pull = PullState::Waits;
            }
            return;
        }
        let is_prompt = !self.is_open() || self.pull == PullState::Waits;
        if !self.is_registered && !self.reader.needs_reactor(now, is_prompt) {
            if !is_due {
                self.tick_at.get_or_insert(now + TICK_SECS);
                return;
            }
            let is_read = self.reader.is_read_by_callers(now);
            if self.read(now) || is_read {
                self.tick_at = Some(now + TICK_SECS);
                return;
            }
        }
        self.is_registered = true;
        let has_samples = self.read(now);
        let is_prompt = !self.is_open() || self.pull == PullState::Waits && !has_samples;
        if has_samples && !self.reader.needs_reactor(now, is_prompt) {
            self.is_registered = false;
            self.tick_at = Some(now + TICK_SECS);
        }
    }

    /// Reads everything the socket holds. Returns whether samples came.
    fn read(&mut self, now: f64) -> bool {
        let before = self.feed.counts().samples;
        let expected = ExpectedIdentity::Stream {
            original: &self.original,
            was_found: self.was_found,
        };
        while let Stage::Connected(data) = &mut self.stage {
            match data.step(
                &mut self.feed,
                &self.identity,
                (self.recovery.info(), expected),
                &mut self.dice,
                now,
            ) {
                Ok(true) => {}
                Ok(false) => break,
                Err(disconnect) => {
                    self.disconnect(Some(disconnect), now);
                    break;
                }
            }
            while let Some(event) = data.machine.session().and_then(|it| match it.receiver() {
                Some(receiver) => receiver.poll_event(),
                None => None,
            }) {
                match event {
                    Event::Established(_) => {
                        let session = data.machine.session().unwrap();
                        data.prober = session.take_time_keys().map(TimeKeys::into_prober);
                        if let Some(clock) = &mut self.clock {
                            clock.resume(now);
                        }
                    }
                    Event::KeyUpdated => self.key_updates += 1,
                    Event::Pong { times, at } => {
                        if let Some(clock) = &mut self.clock {
                            clock.handle_pong(times, at);
                        }
                    }
                    _ => {}
                }
            }
            if data.machine.is_opened() && data.deadline.take().is_some() {
                self.recovery.handle(Input::Connected, now);
                self.refusals = 0;
            }
        }
        let has_samples = self.feed.counts().samples > before;
        if has_samples {
            self.reader.on_read(now);
        }
        has_samples
    }

    /// Pulls, if the program does so now.
    pub(super) fn pull(&mut self, now: f64) {
        let Some(pause) = self.pulls_every else {
            return;
        };
        if let PullState::Away(at) = self.pull
            && at > now
        {
            return;
        }
        let had_samples = self.take(now);
        let is_away = matches!(self.pull, PullState::Away(_));
        // Whoever holds the lock may read.
        let has_samples =
            had_samples || is_away && self.is_open() && self.read(now) && self.take(now);
        if has_samples || self.feed.lost().is_some() {
            if let PullState::Leads(id) = self.pull {
                self.reader.resign(id);
                self.tick_at.get_or_insert(now + TICK_SECS);
            }
            let is_prompt = false;
            if is_away && self.is_open() && self.reader.on_caller_read(now, has_samples, is_prompt)
            {
                self.is_registered = false;
                self.tick_at.get_or_insert(now + TICK_SECS);
            }
            let pause = if has_samples {
                pause * (0.5 + self.dice.share())
            } else {
                f64::INFINITY
            };
            self.pull = PullState::Away(now + pause);
        } else if is_away {
            let lead = self.is_open().then(|| self.reader.lead(now, &())).flatten();
            self.pull = if let Some(id) = lead {
                self.is_registered = false;
                PullState::Leads(id)
            } else {
                let is_connected = matches!(self.stage, Stage::Connected(_));
                self.is_registered |= self.reader.request_reactor(now) && is_connected;
                PullState::Waits
            };
        }
    }

    /// Takes everything that waits, and checks each sample.
    fn take(&mut self, now: f64) -> bool {
        let mut has_samples = false;
        loop {
            let (mut values, mut stamps) = ([0_i64; 128], [0.0; 64]);
            let mut pull = Pull::new(&mut values, Some(&mut stamps), 2);
            if !matches!(self.feed.take(&mut pull, || now), Ok(Taken::Samples)) {
                return has_samples;
            }
            has_samples = true;
            let count = pull.pulled();
            for (values, given) in values.chunks(2).zip(stamps).take(count) {
                let number = u32::try_from(values[0] & 0xffff).unwrap();
                assert_eq!(values, sample(number), "not what was pushed");
                assert!(
                    given.to_bits() == stamp(number).to_bits(),
                    "{given} of {number}"
                );
                let is_next = self.pulled.last().is_none_or(|last| *last < number);
                assert!(is_next, "{number} after {:?}", self.pulled.last());
                self.pulled.push(number);
            }
        }
    }
}

impl DataConnection {
    /// One step of the connection. Returns true if there may be more to do.
    fn step(
        &mut self,
        feed: &mut Feed,
        identity: &Identity,
        expected: (&StreamInfo, ExpectedIdentity<'_>),
        dice: &mut Dice,
        now: f64,
    ) -> Result<bool, Disconnect> {
        let Self {
            socket, machine, ..
        } = self;
        let peer = socket.peer();
        if self.deadline.is_some_and(|at| at <= now) {
            let text = format!("{peer} takes too long");
            return Err(Disconnect::Failed(Error::Protocol(text)));
        }
        if machine.poll_timeout().is_some_and(|at| at <= now) {
            machine.handle_timeout(now)?;
        }
        let sent = machine.transmit(|| now, |bytes| socket.write(bytes));
        sent.map_err(|source| machine.failed(source))
            .or_else(|failed| match failed {
                // Reading will show what is wrong.
                _ if machine.session().is_none() => Ok(true),
                failed => Err(failed),
            })?;
        if let Some(session) = machine.session().filter(|_| self.prober.is_none()) {
            if let Some((at, answer)) = self.late.take() {
                if at > now {
                    self.late = Some((at, answer));
                    return Ok(false);
                }
                session
                    .handle_answer(answer, now)
                    .map_err(Disconnect::Session)?;
                return Ok(true);
            }
            if session.receiver().is_none()
                && let Some(event) = session.poll_event()
            {
                let Event::Question(question) = event else {
                    unreachable!("{event:?} in a handshake");
                };
                let remote = (Role::Outlet, peer.ip());
                self.late = Some(identity.answer(question, remote, Some(expected), now, dice));
                return Ok(true);
            }
        }
        let most = machine.max_read().min(READ_BYTES);
        if most == 0 || feed.is_held_back(machine) {
            return Ok(false);
        }
        if machine.feed().is_some_and(FeedDecoder::has_held) {
            feed.refill(machine, || now).1?;
            return Ok(true);
        }
        let mut bytes = match socket.read(most) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(_) if machine.session().is_some() => Vec::new(),
            Err(source) => return Err(machine.failed(source)),
            Ok(bytes) => bytes,
        };
        feed.handle_input(machine, &mut bytes, || now).1?;
        Ok(true)
    }
}

const TICK_SECS: f64 = 0.02;
const LEADER_TICK_SECS: f64 = 0.1;
