//! One accepted connection of an outlet, from its first byte to its last: what the tasks of `drive_outlet` in
//! `lsl-core` do.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use lsl_proto::limits::Host;
use lsl_proto::outlet::connection::{Connection, Event as Asked, Stage as Decided};
use lsl_proto::outlet::fanout::{ConsumerId, FeedLimits, Live, Status};
use lsl_proto::outlet::request::{Offer, Permission, Reply, plaintext_permission};
use lsl_proto::wire::request::Request;
use lsl_proto::wire::sequence::Granted;
use lsl_proto::{Error, Result};
use lsl_secure::connection::{Connection as Handshake, Event, Question};
use lsl_secure::policy::REFUSAL_501;
use lsl_secure::{Policy, PublicKey, Role};

use super::{OutletProgram, Sender};
use crate::peers::{self, Late};
use crate::tcp::Socket;

/// A connection that was accepted.
pub(crate) struct Accepted {
    pub(super) socket: Rc<Socket>,
    pub(super) machine: Connection,
    pub(super) stage: Stage,
    /// End of a feed of a closed outlet, and of last words.
    pub(super) deadline: Option<f64>,
    pub(super) late: Option<Late>,
    pub(super) is_woken: Rc<Cell<bool>>,
    /// Key of the peer of a session.
    pub(super) peer: Option<PublicKey>,
}

pub(super) enum Stage {
    /// Awaits what the machine awaits.
    Open,
    Handshake(Box<Handshake>),
    Feed(ConsumerId),
    Leaving(ConsumerId),
    /// Sends its last words.
    Closing {
        has_closed: bool,
    },
    /// Waits for the end of the peer, so that the last words arrive.
    Lingering,
    Over,
}

impl OutletProgram {
    /// Goes on with one connection. Returns true if there may be more to do.
    pub(super) fn attend(&mut self, accepted: &mut Accepted, now: f64) -> bool {
        if accepted.deadline.is_some_and(|at| at <= now) {
            if let Stage::Feed(id) = accepted.stage {
                let _ = self.fanout.leave(id);
            }
            accepted.stage = Stage::Over;
            return false;
        }
        let progress = match std::mem::replace(&mut accepted.stage, Stage::Over) {
            Stage::Open => self.await_request(accepted, now),
            Stage::Handshake(handshake) => self.shake_hands(accepted, handshake, now),
            Stage::Feed(id) => self.feed(accepted, id, now),
            Stage::Leaving(id) => Ok(self.leave(accepted, id, now)),
            Stage::Closing { has_closed } => Ok(accepted.close(has_closed, now)),
            Stage::Lingering => match accepted.socket.read(READ_BYTES) {
                Ok(bytes) if !bytes.is_empty() => {
                    accepted.stage = Stage::Lingering;
                    Ok(true)
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    accepted.stage = Stage::Lingering;
                    Ok(false)
                }
                _ => Ok(false),
            },
            Stage::Over => Ok(false),
        };
        progress.unwrap_or_else(|error| {
            self.errors.push(error);
            // An error that its stage had nothing to say about.
            !matches!(accepted.stage, Stage::Over)
        })
    }

    fn await_request(&mut self, accepted: &mut Accepted, now: f64) -> Result<bool> {
        let stepped = accepted.step(now);
        let machine = &mut accepted.machine;
        let event = machine.poll_event();
        if stepped.is_err() || (event.is_none() && machine.is_closed()) {
            if accepted.peer.is_some() {
                machine.close(None);
                accepted.end(now + LAST_WORDS_SECS);
            }
            return stepped;
        }
        accepted.stage = Stage::Open;
        if let Some(Asked::Request(request)) = event {
            let replied = self.reply(accepted, &request, now);
            if !matches!(accepted.stage, Stage::Feed(_)) {
                accepted.end(now + super::REQUEST_SECS);
            }
            replied?;
        } else if machine.stage() == Decided::Hello {
            if self.identity.policy == Policy::Off {
                machine.reply(REFUSAL_501);
                accepted.end(now + LAST_WORDS_SECS);
            } else {
                let local = Arc::clone(&self.identity.local);
                let handshake = Handshake::responder(local, Arc::clone(&self.descriptor), now);
                accepted.stage = Stage::Handshake(Box::new(handshake));
            }
        }
        stepped
    }

    fn shake_hands(
        &mut self,
        accepted: &mut Accepted,
        mut handshake: Box<Handshake>,
        now: f64,
    ) -> Result<bool> {
        let socket = Rc::clone(&accepted.socket);
        let flushed = handshake.flush(|| now, |bytes| socket.write(bytes));
        let is_flushed = flushed.map_err(|source| Error::io("connection", source))?;
        let mut is_done = false;
        let outcome = if handshake.poll_timeout().is_some_and(|at| at <= now) {
            handshake.handle_timeout(now)
        } else if let Some((at, answer)) = accepted.late.take() {
            if at > now {
                accepted.late = Some((at, answer));
                is_done = true;
                Ok(())
            } else {
                handshake.handle_answer(answer, now)
            }
        } else {
            match handshake.poll_event() {
                Some(Event::Question(question)) => {
                    if let Question::PeerKey(key) = &question {
                        accepted.peer = Some(*key);
                    }
                    let remote = (Role::Inlet, socket.peer().ip());
                    let (identity, dice) = (&self.identity, &mut self.dice);
                    accepted.late = Some(identity.answer(question, remote, None, now, dice));
                    Ok(())
                }
                Some(Event::Established(_)) => {
                    let (machine, _, keys) = Connection::in_session(*handshake, now).unwrap();
                    accepted.machine = machine;
                    self.responders.push(keys.into_responder());
                    accepted.stage = Stage::Open;
                    return Ok(true);
                }
                Some(event) => unreachable!("{event:?} in a handshake"),
                None if handshake.max_read() == 0 => {
                    // Only its last words are left, or they are said.
                    if is_flushed {
                        accepted.end(now + LAST_WORDS_SECS);
                    } else {
                        accepted.stage = Stage::Handshake(handshake);
                    }
                    return Ok(is_flushed);
                }
                None => match socket.read(handshake.max_read()) {
                    Ok(mut bytes) => handshake.handle_input(&mut bytes, now, |_| Ok(())),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        is_done = true;
                        Ok(())
                    }
                    Err(source) => return Err(Error::io("connection", source)),
                },
            }
        };
        accepted.stage = Stage::Handshake(handshake);
        if let Err(error) = outcome {
            self.errors.push(peers::as_error(&error));
        }
        Ok(!is_done)
    }

    fn reply(&mut self, accepted: &mut Accepted, request: &Request, now: f64) -> Result<()> {
        let is_sealed = accepted.peer.is_some();
        let machine = &mut accepted.machine;
        if !is_sealed
            && let Permission::Denied(refused) = plaintext_permission(self.identity.policy, request)
        {
            machine.reply(refused.text);
            return Err(Error::Protocol(format!("{} in plaintext", refused.method)));
        }
        let offer = Offer {
            info: &self.info,
            shortinfo: &self.shortinfo,
            options: &self.options,
            coalesces: false,
        };
        let shortinfo = |query: &[u8]| {
            let view = self.announced.view(self.identity.policy);
            let peer = accepted.socket.peer().ip();
            let (document, shortinfo) = if is_sealed {
                (self.info.document(), &self.shortinfo)
            } else {
                (&view.document, &view.shortinfo)
            };
            let is_meant = self.evaluator.selects(query, peer, document, now)?;
            Ok(if is_meant { shortinfo.as_slice() } else { &[] })
        };
        let reply = offer.reply(request, shortinfo, |_| None)?;
        match reply {
            Reply::Feed(feed) => {
                let mut tx = machine.take_sender().unwrap();
                let edge = self.next();
                if !self.fanout.is_read(feed.variant) {
                    self.fanout.begin(feed.variant, edge);
                }
                let mut replay = edge..edge;
                let granted = feed.negotiated.replay_from.zip(self.generation);
                let granted = granted.map(|(from, generation)| {
                    let live = Live {
                        edge,
                        generation: &generation,
                        nominal_srate: 0.0,
                    };
                    let host = Host::from(accepted.socket.peer().ip());
                    replay = self.fanout.replay(&from, live, host, now);
                    Granted {
                        generation,
                        begin: replay.start,
                        live: edge,
                        end: None,
                    }
                });
                tx.queue(&feed.preamble(&self.options.side(&self.info), granted));
                let limits = FeedLimits {
                    is_granted: granted.is_some(),
                    ..feed.limits
                };
                let sender = Sender {
                    socket: Rc::clone(&accepted.socket),
                    tx,
                    clock: Rc::clone(&self.clock),
                    is_woken: Rc::clone(&accepted.is_woken),
                };
                let id = (self.fanout).join(sender, (), feed.variant, limits, replay);
                // There may be something to send again.
                self.wake_flusher(now);
                self.consumers_seen += 1;
                accepted.stage = Stage::Feed(id);
            }
            Reply::Bytes(bytes) => machine.reply(&bytes),
            Reply::Refusal(refusal) => {
                machine.reply(&refusal.to_bytes(self.info.version()));
                return Err(Error::Protocol(format!("refused: {refusal:?}")));
            }
        }
        Ok(())
    }

    fn feed(&mut self, accepted: &mut Accepted, id: ConsumerId, now: f64) -> Result<bool> {
        match self.fanout.status(id) {
            Status::Ended => {
                accepted.stage = Stage::Leaving(id);
                return Ok(true);
            }
            Status::Blocked if accepted.socket.has_room() => {
                self.fanout.unblock(id);
                self.wake_flusher(now);
            }
            _ => {}
        }
        let stepped = accepted.step(now);
        let is_over = stepped.is_err() || accepted.machine.is_closed();
        if let Some(Asked::Control(pong)) = accepted.machine.poll_event()
            && self.fanout.control(id, pong)
        {
            self.wake_flusher(now);
        }
        accepted.stage = if is_over {
            Stage::Leaving(id)
        } else {
            Stage::Feed(id)
        };
        stepped
    }

    fn leave(&mut self, accepted: &mut Accepted, id: ConsumerId, now: f64) -> bool {
        match self.fanout.leave(id) {
            Poll::Pending => {
                accepted.stage = Stage::Leaving(id);
                false
            }
            Poll::Ready(sender) => {
                if let Some(sender) = sender {
                    accepted.machine.return_sender(sender.tx);
                    accepted.machine.close(None);
                    accepted.end(now + LAST_WORDS_SECS);
                }
                true
            }
        }
    }
}

impl Accepted {
    /// Returns when to go on if nothing comes before.
    pub(super) fn times(&self) -> impl Iterator<Item = f64> {
        let due = match &self.stage {
            Stage::Handshake(handshake) => handshake.poll_timeout(),
            Stage::Open => self.machine.poll_timeout(),
            _ => self.deadline,
        };
        let late = self.late.as_ref().map(|it| it.0);
        [due, late].into_iter().flatten()
    }

    /// Sends what waits and reads once. Returns false if nothing came.
    fn step(&mut self, now: f64) -> Result<bool> {
        let Self {
            socket, machine, ..
        } = self;
        let failed = |source| Error::io("connection", source);
        machine.handle_timeout(now)?;
        let sent = machine.transmit(|| now, |bytes| socket.write(bytes));
        sent.map_err(failed)?;
        let most = machine.max_read().min(READ_BYTES);
        if most == 0 {
            return Ok(false);
        }
        match socket.read(most) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(source) => Err(failed(source)),
            Ok(mut bytes) => machine.handle_input(&mut bytes, now).map(|()| true),
        }
    }

    fn end(&mut self, deadline: f64) {
        self.deadline = Some(deadline);
        self.stage = Stage::Closing { has_closed: false };
    }

    /// Says CLOSE after everything that is queued, then waits for the peer.
    fn close(&mut self, has_closed: bool, now: f64) -> bool {
        let Self {
            socket, machine, ..
        } = self;
        match machine.transmit(|| now, |bytes| socket.write(bytes)) {
            Ok(true) if has_closed || self.peer.is_none() => {
                socket.shut_down();
                self.deadline = Some(now + LAST_WORDS_SECS);
                self.stage = Stage::Lingering;
            }
            Ok(true) => {
                machine.close(None);
                self.stage = Stage::Closing { has_closed: true };
            }
            Ok(false) => {
                self.stage = Stage::Closing { has_closed };
                return false;
            }
            Err(_) => {}
        }
        true
    }
}

const READ_BYTES: usize = 2048;
const LAST_WORDS_SECS: f64 = 1.0;
