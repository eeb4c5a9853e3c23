//! How an inlet connects, and how it finds its way back: what the inlet's task in `lsl-core` does.

use std::io;
use std::sync::Arc;

use lsl_proto::inlet::recovery::{Action, Failure, Input, Notice, Purpose};
use lsl_proto::inlet::successor::recovery_query;
use lsl_proto::inlet::{Connection, Disconnect, Exchange, FeedDecoder};
use lsl_proto::limits::retry_delay_secs;
use lsl_proto::{Error, StreamInfo};
use lsl_secure::connection::Connection as Handshake;
use lsl_secure::policy::Way;

use super::{CONNECT_SECS, DataConnection, InletProgram, PullState, Stage, Wish};
use crate::peers;
use crate::tcp::Socket;

impl InletProgram {
    /// Takes the result of [`Wish::Connect`].
    pub(crate) fn connected(&mut self, socket: io::Result<Socket>, now: f64) {
        if !matches!(self.stage, Stage::Connecting(_)) {
            return;
        }
        let peer = match &socket {
            Ok(socket) => socket.peer(),
            Err(_) => return self.fail(Error::Protocol("nobody is there".into()), now),
        };
        let socket = socket.unwrap();
        let info = self.recovery.info();
        let exchange = Exchange::Feed(Box::new(FeedDecoder::asking(
            info,
            self.options,
            self.feed.asked(now),
        )));
        let machine = match self.identity.way(info, &peer.to_string()) {
            Way::Plaintext => Connection::plain(peer, exchange),
            Way::Secure => {
                socket.link().forbid_plaintext();
                let (local, request) = (Arc::clone(&self.identity.local), exchange.request());
                let session = Handshake::initiator(local, request, now, &mut self.dice).unwrap();
                Connection::secure(peer, exchange, session)
            }
            Way::Refuse { text, .. } => return self.fail(Error::Security(text), now),
        };
        self.reader.begin();
        self.is_registered = true;
        self.stage = Stage::Connected(Box::new(DataConnection {
            socket,
            machine,
            deadline: Some(now + HANDSHAKE_SECS),
            late: None,
            prober: None,
        }));
    }

    /// Takes the result of [`Wish::Search`].
    pub(crate) fn found(&mut self, answers: Vec<StreamInfo>, now: f64) {
        self.is_asking = false;
        self.recovery.handle(Input::Found(answers), now);
    }

    /// Takes the result of [`Wish::AskInPlace`].
    pub(crate) fn asked_in_place(&mut self, is_there: bool, now: f64) {
        self.is_asking = false;
        self.recovery.handle(Input::InPlace(is_there), now);
    }

    /// Begins the attempts and the work that `recovery` has for us, and ends what is not wanted any more.
    pub(super) fn connect(&mut self, wishes: &mut Vec<Wish>, now: f64) {
        let machine = match &self.stage {
            Stage::Connected(data) => Some(&data.machine),
            _ => None,
        };
        let flow = self.feed.flow(machine);
        self.recovery.handle_timeout(&flow, now);
        if let Stage::Connecting(until) = self.stage
            && until <= now
        {
            self.fail(Error::Protocol("nobody answers".into()), now);
        }
        let attempt = self.attempt.as_ref().map(|it| it.id);
        if attempt.is_some_and(|id| !self.recovery.is_current(id)) && !self.is_lost() {
            self.disconnect(None, now);
            self.stage = Stage::Idle;
        }
        if let Stage::Idle = self.stage
            && let Some(attempt) = self.recovery.poll_connect(Purpose::Feed, now)
        {
            let before = self.attempt.as_ref().map_or(0, |it| it.moves);
            if attempt.moves != before
                && let Some(clock) = &mut self.clock
            {
                clock.invalidate();
            }
            let address = attempt.address();
            self.attempt = Some(attempt);
            match address {
                Ok(endpoint) => {
                    self.stage = Stage::Connecting(now + CONNECT_SECS);
                    wishes.push(Wish::Connect(endpoint.data));
                }
                Err(error) => self.fail(error, now),
            }
        }
        while let Some(action) = self.recovery.poll_action().filter(|_| !self.is_lost()) {
            self.is_asking = true;
            match action {
                Action::Search(minimum_secs) => wishes.push(Wish::Search {
                    query: recovery_query(&self.recovery.sought()),
                    minimum_secs,
                }),
                // Hosts keep their addresses, and their systems end no connection.
                Action::Probe => {
                    self.is_asking = false;
                    self.recovery.handle(Input::Probed(true), now);
                }
                Action::AskByTcp | Action::AskByUdp | Action::AskBoth => {
                    let info = Arc::clone(self.recovery.info());
                    match self.recovery.endpoint() {
                        Some(endpoint) => wishes.push(Wish::AskInPlace(endpoint.data, info)),
                        None => self.asked_in_place(false, now),
                    }
                }
                Action::LookAtTrust => {
                    self.is_asking = false;
                    let trust = Arc::clone(&self.identity.trust);
                    self.recovery.handle(Input::Trust(Some(trust)), now);
                }
            }
        }
    }

    /// Ends the connection: says what the peer must know, and keeps the socket until that has arrived.
    pub(super) fn disconnect(&mut self, reason: Option<Disconnect>, now: f64) {
        let stage = std::mem::replace(&mut self.stage, Stage::Lost);
        let Stage::Connected(mut data) = stage else {
            self.stage = stage;
            return;
        };
        self.reader.end();
        self.is_registered = false;
        if let PullState::Leads(_) = self.pull {
            self.pull = PullState::Waits;
        }
        let mut is_silent = false;
        if let Some(reason) = reason {
            let error = match reason {
                Disconnect::Closed => data.machine.closed(),
                Disconnect::Failed(error) => {
                    is_silent = data.prober.is_some();
                    error
                }
                Disconnect::Session(error) => {
                    if let Some(session) = data.machine.session() {
                        session.fail(&error);
                    }
                    peers::as_error(&error)
                }
            };
            self.fail(error, now);
        }
        if let Some(sender) = data.machine.session().and_then(Handshake::sender)
            && !is_silent
        {
            sender.close();
        }
        let DataConnection {
            socket, machine, ..
        } = &mut *data;
        let _ = machine.transmit(|| now, |bytes| socket.write(bytes));
        data.socket.shut_down();
        self.lingering.push((data.socket, now + LINGER_SECS));
    }

    pub(super) fn fail(&mut self, error: Error, now: f64) {
        let text = error.to_string();
        let failure = if let Error::Security(_) = &error {
            let is_busy = text.contains("busy");
            self.refusals += 1;
            let random = u32::try_from(self.dice.below(1 << 32)).unwrap();
            Failure::Security {
                delay_secs: retry_delay_secs(is_busy, self.refusals, random),
                is_busy,
            }
        } else if self.feed.position().is_some() {
            Failure::Resumable
        } else {
            Failure::Connection
        };
        self.errors.push(error);
        self.stage = Stage::Idle;
        let Some(id) = self.attempt.as_ref().map(|it| it.id) else {
            return;
        };
        if matches!(failure, Failure::Security { is_busy: false, .. }) {
            let trust = Arc::clone(&self.identity.trust);
            self.recovery.handle(Input::Trust(Some(trust)), now);
            self.recovery.handle(Input::Refused(id), now);
        }
        if self.recovery.handle(Input::Failed(id, failure), now) == Some(Notice::Lost) {
            self.feed.lose(&text);
            self.stage = Stage::Lost;
        }
    }
}

const HANDSHAKE_SECS: f64 = 15.0;
const LINGER_SECS: f64 = 1.0;
