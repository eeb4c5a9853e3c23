//! An accepted connection without its socket: what its first bytes begin, what it asks for, and what its peer
//! says while it is answered or fed. The first decision is made once, and not one byte more is read than
//! it takes. A connection to the port of a relay knows more requests, and may stay open for both directions. The
//! handshake between is [`lsl_secure::Connection`]'s. Spec: LSS/1 §4.2-4.4, §9.2;
//! lsl-protocol §6, §7, §15.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::sync::Arc;

use lsl_secure::connection::{Event as SessionEvent, SendHalf};
use lsl_secure::handshake::PREAMBLE;
use lsl_secure::{Cause, Connection as Handshake, SessionInfo, TimeKeys};

use crate::transport::{Control, Rx, Tx};
use crate::wire::request::{Request, RequestParser};
use crate::{Error, Result};

/// An accepted connection, and its receiving direction after its sender was taken.
#[derive(Debug)]
pub struct Connection {
    stage: Stage,
    /// Away while the connection is a consumer.
    tx: Option<Tx>,
    rx: Rx,
    parser: RequestParser,
    /// Leads to many streams.
    is_port: bool,
    /// The clock of the stream, or of each, is another one.
    is_for_another: bool,
    /// What the peer of an open connection sent.
    received: VecDeque<u8>,
    /// The first bytes: of the connection, then of the request inside a session.
    head: Vec<u8>,
    deadline: Option<f64>,
    event: Option<Event>,
    /// Bytes that the peer sent after its request.
    chatter: usize,
    key_updates: u64,
    failure: Option<lsl_secure::Error>,
}

/// Stage of a connection, as far as its peer decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It may still be the beginning of a session.
    Undecided,
    /// The preamble of a session has come, and nothing beyond it was read.
    Hello,
    /// Its request in plaintext is awaited.
    Plaintext,
    /// Its request inside a session is awaited.
    Session,
    /// Nothing but a session was asked for. It ends after a long silence.
    TimeKeys,
    /// Its request has come. What its peer sends now is counted.
    Answered,
    /// Its request has come, and both sides go on talking.
    Open,
}

/// Event of a connection, for its caller to handle.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// An answer to this request, in plaintext or inside a session.
    Request(Request),
    /// Nothing but a session, whose keys authenticate clock probes.
    TimeKeys,
    /// The peer of a consumer, or one that only lends the keys of a stream of a port, must be told this.
    Control(Control),
}

impl Connection {
    /// Awaits the first bytes of a connection. If `has_sessions`, they must soon tell what it is.
    pub fn new(has_sessions: bool, now: f64) -> Self {
        let secs = if has_sessions {
            PREAMBLE_SECS
        } else {
            REQUEST_SECS
        };
        Self {
            stage: Stage::Undecided,
            tx: Some(Tx::plain()),
            rx: Rx::plain(),
            parser: RequestParser::new(),
            is_port: false,
            is_for_another: false,
            received: VecDeque::new(),
            head: Vec::new(),
            deadline: Some(now + secs),
            event: None,
            chatter: 0,
            key_updates: 0,
            failure: None,
        }
    }

    /// Awaits a request inside the session of an established `handshake`. Returns also the session and its
    /// keys for clock probes, or nothing if there is none.
    pub fn in_session(
        mut handshake: Handshake,
        now: f64,
    ) -> Option<(Self, Arc<SessionInfo>, TimeKeys)> {
        let time = handshake.take_time_keys()?;
        let (sender, receiver) = handshake.split()?;
        let info = Arc::clone(sender.info());
        let mut connection = Self::new(true, now);
        (connection.tx, connection.rx) = (Some(Tx::secure(sender)), Rx::secure(receiver));
        connection.expect_request(Stage::Session, now);
        Some((connection, info, time))
    }

    /// Goes on with a connection that this side made and whose request was sent, open for both directions.
    pub fn dialled(tx: Tx, rx: Rx) -> Self {
        let mut connection = Self::new(false, 0.0);
        (connection.tx, connection.rx) = (Some(tx), rx);
        connection.open();
        connection
    }

    /// Leads to the port of a relay instead of an outlet.
    #[must_use]
    pub fn for_port(mut self) -> Self {
        (self.is_port, self.parser) = (true, RequestParser::for_port());
        self.for_another_clock()
    }

    /// Leads to what comes from elsewhere: PINGs are for the caller to answer, in the clock of the source.
    #[must_use]
    pub fn for_another_clock(mut self) -> Self {
        self.is_for_another = true;
        self
    }

    fn expect_request(&mut self, stage: Stage, now: f64) {
        self.stage = stage;
        self.deadline = Some(now + REQUEST_SECS);
    }

    /// Returns what the peer has decided so far.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns how many bytes may be given to [`handle_input`](Self::handle_input).
    pub fn max_read(&self) -> usize {
        match self.stage {
            Stage::Undecided => PREAMBLE.len().saturating_sub(self.head.len()),
            Stage::Hello => 0,
            // Nothing more is read before the PONG is gone.
            Stage::TimeKeys if self.tx.as_ref().is_some_and(|tx| tx.unsent() > 0) => 0,
            // What waits is taken first.
            Stage::Open => MAX_RECEIVED_BYTES.saturating_sub(self.received.len()),
            _ => usize::MAX,
        }
    }

    /// Takes bytes from the socket, none at the end of the stream. Afterwards `bytes` holds nothing of
    /// use.
    ///
    /// # Errors
    /// Why the connection ends: [`Error::Security`] for what ends a session, [`Error::Protocol`] for an
    /// end before the request was complete, and for what no peer may send.
    pub fn handle_input(&mut self, bytes: &mut [u8], now: f64) -> Result<()> {
        let records = self.rx.totals().records;
        let mut data = Vec::new();
        let received = self.rx.handle_input(bytes, now, |part| {
            data.extend_from_slice(part);
            Ok(())
        });
        while let Some(event) = self.rx.poll_event() {
            match event {
                SessionEvent::Ping { t0, t1 } => {
                    let pong = Control::Pong {
                        t0,
                        t1,
                        t2_shift_secs: 0.0,
                    };
                    match &mut self.tx {
                        Some(_) if self.is_for_another && self.stage == Stage::TimeKeys => {
                            self.event = Some(Event::Control(pong));
                        }
                        // No stream yet, no clock.
                        Some(_) if self.is_for_another && self.stage != Stage::Open => {}
                        Some(tx) => tx.control(pong),
                        None => self.event = Some(Event::Control(pong)),
                    }
                }
                SessionEvent::KeyUpdated => self.key_updates += 1,
                _ => {}
            }
        }
        if let Err(error) = received {
            let text = error.to_string();
            self.failure = Some(error);
            return Err(Error::Security(text));
        }
        if self.stage == Stage::TimeKeys && self.rx.totals().records > records {
            self.deadline = Some(now + KEYS_SECS);
        }
        match self.stage {
            Stage::TimeKeys | Stage::Answered => {
                // PINGs and key updates are none of it.
                self.chatter += data.len();
                if self.chatter < MAX_CHATTER_BYTES {
                    return Ok(());
                }
                Err(Error::Protocol("the peer keeps sending".into()))
            }
            Stage::Open => {
                self.received.extend(data);
                Ok(())
            }
            _ if !data.is_empty() => self.take_request(&data, now),
            _ if self.rx.is_closed() => {
                let text = "closed before the request was complete";
                Err(Error::Protocol(text.into()))
            }
            _ => Ok(()),
        }
    }

    fn take_request(&mut self, bytes: &[u8], now: f64) -> Result<()> {
        let mut asks_for_keys = false;
        let request = match self.stage {
            Stage::Hello => return Err(Error::Protocol("the handshake reads now".into())),
            Stage::Undecided => {
                self.head.extend_from_slice(bytes);
                if self.head == *PREAMBLE {
                    (self.stage, self.deadline) = (Stage::Hello, None);
                    return Ok(());
                }
                if PREAMBLE.starts_with(&self.head) {
                    return Ok(());
                }
                self.expect_request(Stage::Plaintext, now);
                self.parser.feed(&self.head)?
            }
            Stage::Session => {
                let room = TIME_KEYS_REQUEST.len() - self.head.len();
                let taken = bytes.get(..room).unwrap_or(bytes);
                self.head.extend_from_slice(taken);
                // The parser of LSL's own methods does not know it.
                asks_for_keys = !self.is_port && self.head == *TIME_KEYS_REQUEST;
                self.parser.feed(bytes)?
            }
            _ => self.parser.feed(bytes)?,
        };
        if request.is_some() {
            self.received = self.parser.take_rest().into();
            // A connection asks once, and may be fed for days.
            (self.parser, self.head) = (RequestParser::new(), Vec::new());
        }
        match request {
            None => {}
            Some(Request::Unknown) if asks_for_keys => {
                (self.stage, self.deadline) = (Stage::TimeKeys, Some(now + KEYS_SECS));
                self.event = Some(Event::TimeKeys);
            }
            Some(request) => {
                self.stage = Stage::Answered;
                self.event = Some(Event::Request(request));
            }
        }
        Ok(())
    }

    /// Returns what happened next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.event.take()
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout), in seconds of `local_clock`.
    pub fn poll_timeout(&self) -> Option<f64> {
        self.deadline
    }

    /// Does what is due at [`poll_timeout`](Self::poll_timeout).
    ///
    /// # Errors
    /// [`Error::Protocol`] for a peer that was too slow.
    pub fn handle_timeout(&mut self, now: f64) -> Result<()> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        if self.stage == Stage::Answered && self.tx.is_none() {
            return Err(Error::Timeout { operation: "close" });
        }
        let text = match self.stage {
            Stage::TimeKeys => "silent for too long",
            _ => "no complete request in time",
        };
        Err(Error::Protocol(text.into()))
    }

    /// Queues the answer to the request.
    pub fn reply(&mut self, bytes: &[u8]) {
        if let Some(tx) = &mut self.tx {
            tx.queue(bytes);
        }
    }

    /// Keeps the connection open for both directions, as long as its caller likes.
    pub fn open(&mut self) {
        (self.stage, self.deadline) = (Stage::Open, None);
    }

    /// Keeps the session of an answered request for its keys alone.
    pub fn lend_keys(&mut self, now: f64) {
        (self.stage, self.deadline) = (Stage::TimeKeys, Some(now + KEYS_SECS));
    }

    /// Takes what the peer of an open connection sent, as far as it fits. Returns the number of bytes.
    pub fn take_received(&mut self, to: &mut [u8]) -> usize {
        // Reading memory does not fail.
        self.received.read(to).unwrap_or(0)
    }

    /// Prepares what the peer must be told for the next [`transmit`](Self::transmit).
    pub fn control(&mut self, control: Control) {
        if let Some(tx) = &mut self.tx {
            tx.control(control);
        }
    }

    /// Writes bytes of an open connection, after everything that waits. Returns how many are committed.
    ///
    /// # Errors
    /// As [`Tx::send`].
    pub fn send(
        &mut self,
        bytes: &[u8],
        now: impl Fn() -> f64,
        write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        match &mut self.tx {
            Some(tx) => tx.send(bytes, now, write),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Writes what waits. Returns true once nothing is left.
    ///
    /// # Errors
    /// As [`Tx::flush`].
    pub fn transmit(
        &mut self,
        now: impl Fn() -> f64,
        write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        match &mut self.tx {
            Some(tx) => tx.flush(now, write),
            None => Ok(true),
        }
    }

    /// Takes the sending direction, for the fan-out. The request was answered in time then.
    pub fn take_sender(&mut self) -> Option<Tx> {
        self.deadline = None;
        self.tx.take()
    }

    /// Gives the feed of a closed outlet a last moment, once.
    pub fn linger(&mut self, now: f64) {
        self.deadline.get_or_insert(now + LINGER_SECS);
    }

    /// Brings the sending direction back.
    pub fn return_sender(&mut self, tx: Tx) {
        self.tx = Some(tx);
    }

    /// Prepares the end: with why the session failed, else with why this side ends it, else properly.
    /// Returns the failure, if an auditor may want to know it. Does nothing while the sender is away.
    pub fn close(&mut self, ended: Option<Cause>) -> Option<lsl_secure::Error> {
        let tx = self.tx.as_mut()?;
        let has_ended = tx.session().is_some_and(SendHalf::has_ended);
        let failure = self.failure.take();
        let failure = failure.filter(|it| !(has_ended && it.cause() == Cause::Truncated));
        if let Some(error) = &failure {
            tx.fail(error);
        }
        tx.control(ended.map_or(Control::Close, Control::Alert));
        failure
    }

    /// Returns whether the sending direction is here.
    pub fn has_sender(&self) -> bool {
        self.tx.is_some()
    }

    /// Returns whether the peer has ended its direction; in a session that is authentic.
    pub fn is_closed(&self) -> bool {
        self.rx.is_closed()
    }

    /// Returns the sending direction, unless it was taken, and the receiving one.
    pub fn directions(&self) -> (Option<&Tx>, &Rx) {
        (self.tx.as_ref(), &self.rx)
    }

    /// Returns the number of key changes of both sides since the last call.
    pub fn take_key_updates(&mut self) -> u64 {
        let sent = self.tx.as_mut().map_or(0, Tx::take_key_updates);
        sent + std::mem::take(&mut self.key_updates)
    }
}

/// Time for the first bytes to show what a connection is. Spec: LSS/1 §4.2.
const PREAMBLE_SECS: f64 = 3.0;

/// Time for a complete request, once it is clear that it is one, and for its answer. Spec: lsl-protocol §15.
const REQUEST_SECS: f64 = 15.0;

/// How long a session without feed is kept without a record. Spec: LSS/1 §9.2.
const KEYS_SECS: f64 = 100.0;

/// How long readers of a closed outlet may take to fetch what was pushed.
const LINGER_SECS: f64 = 1.0;

/// Bytes that a peer may send after its request.
const MAX_CHATTER_BYTES: usize = 64 * 1024;

/// Bytes of an open connection that may wait to be taken before no more are read; those of a record may come on top.
const MAX_RECEIVED_BYTES: usize = 64 * 1024;

/// Asks for nothing but a session. Spec: LSS/1 §9.2.
const TIME_KEYS_REQUEST: &[u8; 16] = b"LSL:timekeys/1\r\n";

#[cfg(test)]
mod tests {
    use lsl_secure::connection::{Answer, Question};
    use lsl_secure::{Descriptor, Local, OsRandom, SecretKey, Suites};

    use super::*;
    use crate::wire::request::PortRequest;

    fn written(flush: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<usize>) -> bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut write = |part: &[u8]| {
            bytes.extend_from_slice(part);
            Ok(part.len())
        };
        assert!(flush(&mut write));
        bytes
    }

    /// Returns a connection inside a session since 0.0, and the directions of its peer.
    fn established() -> (Connection, Tx, Rx) {
        let local = Arc::new(Local {
            key: SecretKey::from_seed(&[7; 32]),
            psk: None,
            suites: Suites::ChaCha20Only,
            pad_to: 0,
        });
        let inlet = Handshake::initiator(Arc::clone(&local), b"", 0.0, &mut OsRandom).unwrap();
        let descriptor = Descriptor {
            uid: b"u".to_vec(),
            channel_count: 1,
            channel_format: 1,
            created_at: 1.0,
            ..Descriptor::default()
        };
        let mut ends = [inlet, Handshake::responder(local, descriptor.into(), 0.0)];
        let mut first = true;
        for turn in (0..16).map(|turn| turn % 2) {
            let mut sent = written(|write| ends[turn].flush(|| 0.0, write).unwrap());
            if std::mem::take(&mut first) {
                sent.drain(..PREAMBLE.len());
            }
            let to = &mut ends[1 - turn];
            loop {
                while let Some(SessionEvent::Question(question)) = to.poll_event() {
                    let answer = match question {
                        Question::Turn => Answer::Turn(Ok(())),
                        Question::Work(work) => Answer::Work(work.run(&mut OsRandom)),
                        Question::PeerKey(_) => Answer::PeerKey(Ok("peer".to_owned())),
                        Question::Descriptor(_) => Answer::Descriptor(Ok(())),
                    };
                    to.handle_answer(answer, 0.0).unwrap();
                }
                let most = to.max_read().min(sent.len());
                if most == 0 {
                    break;
                }
                let mut part: Vec<u8> = sent.drain(..most).collect();
                to.handle_input(&mut part, 0.0, |_| Ok(())).unwrap();
            }
        }
        let [inlet, outlet] = ends;
        let (sender, receiver) = inlet.split().unwrap();
        let (connection, ..) = Connection::in_session(outlet, 0.0).unwrap();
        (connection, Tx::secure(sender), Rx::secure(receiver))
    }

    /// Lets the peer send `bytes`, or what it has prepared.
    fn hear(connection: &mut Connection, peer: &mut Tx, bytes: &[u8], now: f64) -> Result<()> {
        peer.queue(bytes);
        let mut sent = written(|write| peer.flush(|| now, write).unwrap());
        connection.handle_input(&mut sent, now)
    }

    /// Gives `bytes` to a connection, `step` at a time. Returns its event and how many bytes it took.
    fn ask(mut connection: Connection, bytes: &[u8], step: usize) -> (Option<Event>, usize) {
        let mut taken = 0;
        while taken < bytes.len() && connection.stage() != Stage::Hello {
            let length = step.min(connection.max_read()).min(bytes.len() - taken);
            let mut part = bytes[taken..taken + length].to_vec();
            connection.handle_input(&mut part, 0.0).unwrap();
            taken += length;
            if let Some(event) = connection.poll_event() {
                return (Some(event), taken);
            }
        }
        let is_hello = connection.stage() == Stage::Hello;
        assert_eq!(is_hello, bytes.starts_with(PREAMBLE));
        (None, taken)
    }

    fn accepted() -> Connection {
        Connection::new(true, 0.0)
    }

    fn in_session() -> Connection {
        let mut connection = accepted();
        connection.expect_request(Stage::Session, 0.0);
        connection
    }

    #[test]
    fn the_first_bytes_decide_however_they_arrive() {
        let beyond = [&PREAMBLE[..], b"M1"].concat();
        for step in 1..=16 {
            assert_eq!(ask(accepted(), &beyond, step), (None, PREAMBLE.len()));
            for length in 0..PREAMBLE.len() {
                let (event, _) = ask(accepted(), &PREAMBLE[..length], step);
                assert_eq!(event, None, "{length}");
            }
            // As long as the preamble, and nearly the same.
            for request in [&b"LSL:fullinfo\r\n"[..], b"LSL:secure/0\r\n"] {
                let (event, taken) = ask(accepted(), request, step);
                let expected = match request[4] {
                    b'f' => Request::FullInfo,
                    _ => Request::Unknown,
                };
                assert_eq!((event, taken), (Some(Event::Request(expected)), 14));
            }
        }
    }

    #[test]
    fn keys_are_lent_inside_a_session_alone() {
        for step in 1..=20 {
            let (event, _) = ask(in_session(), TIME_KEYS_REQUEST, step);
            assert_eq!(event, Some(Event::TimeKeys));
            let (event, _) = ask(accepted(), TIME_KEYS_REQUEST, step);
            assert_eq!(event, Some(Event::Request(Request::Unknown)));
            let (event, _) = ask(in_session(), b"LSL:fullinfo\r\n", step);
            assert_eq!(event, Some(Event::Request(Request::FullInfo)));
            let (event, _) = ask(in_session(), b"LSL:timekeys/2\r\n", step);
            assert_eq!(event, Some(Event::Request(Request::Unknown)));
        }
    }

    #[test]
    fn an_end_before_the_request_is_an_error() {
        for bytes in [&b""[..], b"LSL:sec", b"LSL:shortinfo\r\n"] {
            let mut connection = accepted();
            if !bytes.is_empty() {
                connection.handle_input(&mut bytes.to_vec(), 0.0).unwrap();
            }
            let error = connection.handle_input(&mut [], 0.0).unwrap_err();
            assert!(matches!(error, Error::Protocol(_)), "{error}");
        }
    }

    #[test]
    fn a_peer_has_so_long_for_its_first_bytes_and_for_its_request() {
        for (has_sessions, first) in [(true, 3.0), (false, 15.0)] {
            let mut connection = Connection::new(has_sessions, 1.0);
            connection.handle_input(&mut b"LSL:".to_vec(), 2.0).unwrap();
            assert_eq!(connection.poll_timeout(), Some(1.0 + first));
            connection.handle_timeout(first).unwrap();
            assert!(connection.handle_timeout(1.0 + first).is_err());
            let mut more = b"shortinfo\r\n".to_vec();
            connection.handle_input(&mut more, 3.0).unwrap();
            assert_eq!(connection.poll_timeout(), Some(18.0));
            // An answer is given in the same time.
            connection.handle_input(&mut b"\r\n".to_vec(), 4.0).unwrap();
            assert!(connection.poll_event().is_some());
            assert_eq!(connection.poll_timeout(), Some(18.0));
        }
    }

    #[test]
    fn keys_are_lent_until_a_long_silence_and_nothing_is_read_before_a_pong_is_gone() {
        let (mut connection, mut peer, mut from) = established();
        assert_eq!(connection.poll_timeout(), Some(15.0));
        hear(&mut connection, &mut peer, TIME_KEYS_REQUEST, 1.0).unwrap();
        assert_eq!(connection.poll_event(), Some(Event::TimeKeys));
        assert_eq!(connection.poll_timeout(), Some(101.0));
        // Half a record is no word.
        peer.queue(b"?");
        let mut record = written(|write| peer.flush(|| 2.0, write).unwrap());
        let mut rest = record.split_off(5);
        connection.handle_input(&mut record, 2.0).unwrap();
        assert_eq!(connection.poll_timeout(), Some(101.0));
        connection.handle_input(&mut rest, 3.0).unwrap();
        assert_eq!(connection.poll_timeout(), Some(103.0));

        let Tx::Secure(_, half) = &mut peer else {
            panic!("a session");
        };
        half.ping(4.0).unwrap();
        hear(&mut connection, &mut peer, b"", 4.0).unwrap();
        assert_eq!(connection.poll_event(), None);
        let is_done = connection.transmit(|| 4.0, |_| Err(io::ErrorKind::WouldBlock.into()));
        assert_eq!((is_done.unwrap(), connection.max_read()), (false, 0));
        let mut pong = written(|write| connection.transmit(|| 4.0, write).unwrap());
        from.handle_input(&mut pong, 4.0, |_| Ok(())).unwrap();
        assert!(matches!(from.poll_event(), Some(SessionEvent::Pong { .. })));
        assert_eq!(connection.max_read(), usize::MAX);

        connection.handle_timeout(103.9).unwrap();
        let error = connection.handle_timeout(104.0).unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{error}");
    }

    #[test]
    fn a_consumer_is_answered_by_its_caller_and_leaves_in_time() {
        let (mut connection, mut peer, mut from) = established();
        hear(&mut connection, &mut peer, b"LSL:fullinfo\r\n", 1.0).unwrap();
        assert_eq!(
            connection.poll_event(),
            Some(Event::Request(Request::FullInfo))
        );
        let sender = connection.take_sender().unwrap();
        assert_eq!(
            (connection.poll_timeout(), connection.has_sender()),
            (None, false)
        );
        let Tx::Secure(_, half) = &mut peer else {
            panic!("a session");
        };
        half.ping(2.0).unwrap();
        hear(&mut connection, &mut peer, b"", 2.0).unwrap();
        let event = connection.poll_event();
        assert!(
            matches!(event, Some(Event::Control(Control::Pong { .. }))),
            "{event:?}"
        );
        assert!(connection.close(None).is_none());

        connection.linger(5.0);
        connection.linger(5.5);
        connection.handle_timeout(5.9).unwrap();
        let error = connection.handle_timeout(6.0).unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        connection.return_sender(sender);
        // Its end, where it says nothing, is told of as this side's.
        let error = connection.handle_input(&mut [], 6.0).unwrap_err();
        assert!(matches!(error, Error::Security(_)), "{error}");
        assert_eq!(connection.close(None).unwrap().cause(), Cause::Truncated);
        let mut close = written(|write| connection.transmit(|| 6.0, write).unwrap());
        from.handle_input(&mut close, 6.0, |_| Ok(())).unwrap_err();
    }

    #[test]
    fn who_keeps_sending_after_its_request_is_left() {
        let mut connection = accepted();
        let mut request = b"LSL:fullinfo\r\n".to_vec();
        connection.handle_input(&mut request, 0.0).unwrap();
        for _ in 1..64 {
            connection.handle_input(&mut [0; 1024], 0.0).unwrap();
        }
        assert!(connection.handle_input(&mut [0; 1024], 0.0).is_err());
    }

    #[test]
    fn an_open_connection_keeps_what_comes_and_reads_no_more_than_it_may_hold() {
        let mut connection = accepted().for_port();
        connection
            .handle_input(&mut b"LSL:relay-status/1\r\nabc".to_vec(), 1.0)
            .unwrap();
        let status = Event::Request(Request::Port(PortRequest::Status));
        assert_eq!(connection.poll_event(), Some(status));
        connection.open();
        assert_eq!(connection.poll_timeout(), None);
        connection.handle_timeout(1e9).unwrap();
        while connection.max_read() > 0 {
            let most = connection.max_read().min(1000);
            connection.handle_input(&mut vec![7; most], 2.0).unwrap();
        }
        let (mut taken, mut part) = (Vec::new(), [0; 1000]);
        while let count @ 1.. = connection.take_received(&mut part) {
            taken.extend_from_slice(&part[..count]);
        }
        assert_eq!(
            (taken.len(), &taken[..4]),
            (MAX_RECEIVED_BYTES, &b"abc\x07"[..])
        );
        connection.handle_input(&mut [], 3.0).unwrap();
        assert!(connection.is_closed());
    }
}
