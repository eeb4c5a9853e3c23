//! One accepted connection of an outlet, from its first byte to its last: what the tasks of `drive_outlet` in
//! `lsl-core` do.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use lsl_proto::outlet::connection::{Connection, Event as Asked};
use lsl_proto::outlet::fanout::{ConsumerId, Status};
use lsl_proto::outlet::request::{Feed, Offer, Permission, Reply, plaintext_permission};
use lsl_proto::transport::{Control, Rx, Tx};
use lsl_proto::wire::request::Request;
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
    pub(super) stage: Stage,
    pub(super) deadline: Option<f64>,
    pub(super) late: Option<Late>,
    pub(super) is_woken: Rc<Cell<bool>>,
    /// Key of the peer of a session.
    pub(super) peer: Option<PublicKey>,
}

pub(super) enum Stage {
    Request {
        connection: Connection,
        tx: Tx,
        rx: Rx,
    },
    Handshake(Box<Handshake>),
    Feed {
        id: ConsumerId,
        rx: Rx,
    },
    Leaving {
        id: ConsumerId,
        failure: Option<lsl_secure::Error>,
    },
    /// Sends its last words.
    Closing {
        tx: Tx,
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
            accepted.stage = match &accepted.stage {
                Stage::Feed { id, .. } => {
                    let _ = self.fanout.leave(*id);
                    Stage::Over
                }
                _ => Stage::Over,
            };
            return false;
        }
        let progress = match std::mem::replace(&mut accepted.stage, Stage::Over) {
            Stage::Request { connection, tx, rx } => {
                self.await_request(accepted, connection, tx, rx, now)
            }
            Stage::Handshake(handshake) => self.shake_hands(accepted, handshake, now),
            Stage::Feed { id, rx } => Ok(self.feed(accepted, id, rx, now)),
            Stage::Leaving { id, failure } => Ok(self.leave(accepted, id, failure, now)),
            Stage::Closing { tx, has_closed } => Ok(accepted.close(tx, has_closed, now)),
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
            matches!(accepted.stage, Stage::Closing { .. })
        })
    }

    fn await_request(
        &mut self,
        accepted: &mut Accepted,
        mut connection: Connection,
        mut tx: Tx,
        mut rx: Rx,
        now: f64,
    ) -> Result<bool> {
        let socket = Rc::clone(&accepted.socket);
        // The answer to a PING.
        let _ = tx.flush(|| now, |bytes| socket.write(bytes));
        let mut bytes = match socket.read(connection.max_read().min(READ_BYTES)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                accepted.stage = Stage::Request { connection, tx, rx };
                return Ok(false);
            }
            read => read.map_err(|source| Error::io("connection", source))?,
        };
        let mut data = Vec::new();
        let received = rx.handle_input(&mut bytes, now, |part| {
            data.extend_from_slice(part);
            Ok(())
        });
        while let Some(event) = rx.poll_event() {
            if let Event::Ping { t0, t1 } = event {
                tx.control(Control::Pong { t0, t1 });
            }
        }
        if let Err(error) = received {
            tx.fail(&error);
            accepted.stage = Stage::closing(tx);
            return Err(peers::as_error(&error));
        }
        if data.is_empty() && !rx.is_closed() {
            accepted.stage = Stage::Request { connection, tx, rx };
            return Ok(true);
        }
        match connection.handle_input(&data) {
            Ok(None) => accepted.stage = Stage::Request { connection, tx, rx },
            Ok(Some(Asked::Handshake)) if self.identity.policy == Policy::Off => {
                tx.queue(REFUSAL_501);
                accepted.stage = Stage::closing(tx);
            }
            Ok(Some(Asked::Handshake)) => {
                let local = Arc::clone(&self.identity.local);
                let handshake = Handshake::responder(local, Arc::clone(&self.descriptor), now);
                accepted.stage = Stage::Handshake(Box::new(handshake));
            }
            Ok(Some(Asked::TimeKeys)) => {
                accepted.deadline = Some(now + KEYS_SECS);
                accepted.stage = Stage::Request { connection, tx, rx };
            }
            Ok(Some(Asked::Request(request))) => self.reply(accepted, &request, tx, rx, now)?,
            Err(error) => {
                accepted.stage = Stage::closing(tx);
                return Err(error);
            }
        }
        Ok(true)
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
                    let keys = handshake.take_time_keys().unwrap();
                    self.responders.push(keys.into_responder());
                    let (sender, receiver) = handshake.split().unwrap();
                    accepted.deadline = Some(now + super::REQUEST_SECS);
                    accepted.stage = Stage::Request {
                        connection: Connection::in_session(),
                        tx: Tx::secure(sender),
                        rx: Rx::secure(receiver),
                    };
                    return Ok(true);
                }
                Some(event) => unreachable!("{event:?} in a handshake"),
                None if handshake.max_read() == 0 => {
                    // Only its last words are left, or they are said.
                    accepted.stage = if is_flushed {
                        Stage::closing(Tx::plain())
                    } else {
                        Stage::Handshake(handshake)
                    };
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

    fn reply(
        &mut self,
        accepted: &mut Accepted,
        request: &Request,
        mut tx: Tx,
        rx: Rx,
        now: f64,
    ) -> Result<()> {
        let is_sealed = tx.session().is_some();
        if !is_sealed
            && let Permission::Denied(refused) = plaintext_permission(self.identity.policy, request)
        {
            tx.queue(refused.text);
            accepted.stage = Stage::closing(tx);
            return Err(Error::Protocol(format!("{} in plaintext", refused.method)));
        }
        let offer = Offer {
            info: &self.info,
            shortinfo: &self.shortinfo,
            options: &self.options,
            coalesces: false,
        };
        let replied = offer.reply(request, |query| {
            let view = self.announced.view(self.identity.policy);
            let peer = accepted.socket.peer().ip();
            let (document, shortinfo) = if is_sealed {
                (self.info.document(), &self.shortinfo)
            } else {
                (&view.document, &view.shortinfo)
            };
            let is_meant = self.evaluator.selects(query, peer, document, now)?;
            Ok(if is_meant { shortinfo } else { b"" })
        });
        let result = match replied {
            Ok(Reply::Feed(feed)) => {
                self.join(accepted, &feed, tx, rx);
                return Ok(());
            }
            Ok(Reply::Bytes(bytes)) => {
                tx.queue(&bytes);
                Ok(())
            }
            Ok(Reply::Refusal(refusal)) => {
                tx.queue(&refusal.to_bytes(self.info.version()));
                Err(Error::Protocol(format!("refused: {refusal:?}")))
            }
            Err(error) => Err(error),
        };
        accepted.stage = Stage::closing(tx);
        result
    }

    fn join(&mut self, accepted: &mut Accepted, feed: &Feed, mut tx: Tx, rx: Rx) {
        tx.queue(&feed.preamble);
        let sender = Sender {
            socket: Rc::clone(&accepted.socket),
            tx,
            clock: Rc::clone(&self.clock),
            is_woken: Rc::clone(&accepted.is_woken),
        };
        let id = self.fanout.join(sender, (), feed.variant, feed.limits);
        self.consumers_seen += 1;
        accepted.deadline = None;
        accepted.stage = Stage::Feed { id, rx };
    }

    fn feed(&mut self, accepted: &mut Accepted, id: ConsumerId, mut rx: Rx, now: f64) -> bool {
        match self.fanout.status(id) {
            Status::Ended => {
                accepted.stage = Stage::Leaving { id, failure: None };
                return true;
            }
            Status::Blocked if accepted.socket.has_room() => {
                self.fanout.unblock(id);
                self.wake_flusher(now);
            }
            _ => {}
        }
        let mut bytes = match accepted.socket.read(READ_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                accepted.stage = Stage::Feed { id, rx };
                return false;
            }
            Err(_) => Vec::new(),
            Ok(bytes) => bytes,
        };
        let received = rx.handle_input(&mut bytes, now, |_| Ok(()));
        while let Some(event) = rx.poll_event() {
            if let Event::Ping { t0, t1 } = event
                && self.fanout.control(id, Control::Pong { t0, t1 })
            {
                self.wake_flusher(now);
            }
        }
        accepted.stage = if received.is_err() || rx.is_closed() {
            let failure = received.err();
            self.errors.extend(failure.as_ref().map(peers::as_error));
            Stage::Leaving { id, failure }
        } else {
            Stage::Feed { id, rx }
        };
        true
    }

    fn leave(
        &mut self,
        accepted: &mut Accepted,
        id: ConsumerId,
        failure: Option<lsl_secure::Error>,
        now: f64,
    ) -> bool {
        match self.fanout.leave(id) {
            Poll::Pending => {
                accepted.stage = Stage::Leaving { id, failure };
                false
            }
            Poll::Ready(sender) => {
                if let Some(mut sender) = sender {
                    if let Some(error) = &failure {
                        sender.tx.fail(error);
                    }
                    accepted.deadline = Some(now + LAST_WORDS_SECS);
                    accepted.stage = Stage::closing(sender.tx);
                }
                true
            }
        }
    }
}

impl Stage {
    fn closing(tx: Tx) -> Self {
        Self::Closing {
            tx,
            has_closed: false,
        }
    }
}

impl Accepted {
    pub(super) fn times(&self) -> impl Iterator<Item = f64> {
        let handshake = match &self.stage {
            Stage::Handshake(handshake) => handshake.poll_timeout(),
            _ => None,
        };
        let late = self.late.as_ref().map(|it| it.0);
        let own = self.deadline.filter(|_| handshake.is_none());
        [own, handshake, late].into_iter().flatten()
    }

    /// Says CLOSE after everything that is queued, then waits for the peer.
    fn close(&mut self, mut tx: Tx, has_closed: bool, now: f64) -> bool {
        let socket = &self.socket;
        match tx.flush(|| now, |bytes| socket.write(bytes)) {
            Ok(true) if has_closed || tx.session().is_none() => {
                socket.shut_down();
                self.deadline = Some(now + LAST_WORDS_SECS);
                self.stage = Stage::Lingering;
            }
            Ok(true) => {
                tx.control(Control::Close);
                let has_closed = true;
                self.stage = Stage::Closing { tx, has_closed };
            }
            Ok(false) => {
                self.stage = Stage::Closing { tx, has_closed };
                return false;
            }
            Err(_) => {}
        }
        true
    }
}

const READ_BYTES: usize = 2048;
const KEYS_SECS: f64 = 60.0;
const LAST_WORDS_SECS: f64 = 1.0;
