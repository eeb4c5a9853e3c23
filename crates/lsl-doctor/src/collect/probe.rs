//! A handshake with one outlet over a blocking socket, to learn its key or the reason of trouble.
//! Spec: LSS/1 §4.2, §5.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use lsl_core::secure::connection::{Answer, Connection, Event, Question, is_gone};
use lsl_core::secure::{
    Cause, Descriptor, Error, Local, OsRandom, PublicKey, Result, Role, Security, Suite,
};
use lsl_core::{StreamInfo, local_clock};
use lsl_proto::describe::descriptor;

/// Result of a session with an outlet.
#[derive(Debug)]
pub struct Checked {
    /// The outlet's key, if it got so far as to prove it.
    pub peer: Option<PublicKey>,
    /// How it ended.
    pub finding: Finding,
}

/// Outcome of a handshake, by the side that refuses.
#[derive(Debug)]
pub enum Finding {
    /// Neither side: the session was opened.
    Accepted {
        /// Our name for the outlet's device.
        peer_name: String,
        /// The cipher.
        suite: Suite,
    },
    /// We refuse the outlet's key.
    Here(Cause),
    /// The outlet refuses our key.
    There(Cause),
    /// The handshake failed: no agreement, no answer, or an attack.
    Failed(Error),
}

/// Opens a session with the outlet of a resolved stream, as an inlet would, and closes it. Blocks.
pub fn check(security: &Security, local: &Arc<Local>, info: &StreamInfo) -> Checked {
    let is_minimal = info
        .security_advert()
        .is_some_and(|claimed| claimed.minimal);
    // Discovery does not show the true fields of a minimal outlet.
    let expected = (!is_minimal).then(|| descriptor(info));
    let mut checked = Checked {
        peer: None,
        finding: Finding::Failed(Error::session(
            Cause::Internal,
            "the stream has no usable address",
        )),
    };
    for address in addresses(info) {
        checked = check_at(security, local, address, expected.as_ref());
        // Another address of the same outlet may be reachable.
        if !matches!(checked.finding, Finding::Failed(Error::Io { .. })) {
            break;
        }
    }
    checked
}

/// Returns where samples come from, IPv4 first.
pub fn addresses(info: &StreamInfo) -> Vec<SocketAddr> {
    let places = [
        (info.v4_address(), info.v4_data_port()),
        (info.v6_address(), info.v6_data_port()),
    ];
    let mut addresses = Vec::new();
    for (address, port) in places {
        // A link-local address has its interface behind it.
        if port != 0
            && let Ok(found) = (address.as_ref(), port).to_socket_addrs()
        {
            addresses.extend(found);
        }
    }
    addresses
}

fn check_at(
    security: &Security,
    local: &Arc<Local>,
    address: SocketAddr,
    expected: Option<&Descriptor>,
) -> Checked {
    let mut peer = None;
    let shaken = KeyProbe::at(address, Arc::clone(local)).and_then(|probe| {
        let key = probe.peer();
        peer = Some(key);
        let (remote, here) = probe.addresses()?;
        let (remote, here) = (remote.ip(), here.ip());
        let peer_name = match security.authorise(&key, Role::Outlet, remote, here) {
            Ok(name) => name,
            Err(cause) => {
                probe.refuse(cause);
                return Ok(Finding::Here(cause));
            }
        };
        let mut finding = None;
        let suite = probe.greet(|descriptor| {
            let admitted = security.admits_stream(&key, remote, here, &descriptor);
            if let Err(cause) = admitted {
                finding = Some(Finding::Here(cause));
                return Err(cause);
            }
            let Some(field) = expected.and_then(|expected| descriptor.differs_from(expected))
            else {
                return Ok(());
            };
            let cause = Cause::DescriptorMismatch;
            let text = format!("its {field} is not what discovery said");
            finding = Some(Finding::Failed(Error::session(cause, text)));
            Err(cause)
        });
        match finding {
            Some(finding) => Ok(finding),
            None => suite.map(|suite| Finding::Accepted { peer_name, suite }),
        }
    });
    let finding = match shaken {
        Ok(finding) => finding,
        Err(Error::Alert { cause, .. }) => Finding::There(cause),
        Err(error) => Finding::Failed(error),
    };
    Checked { peer, finding }
}

/// A connection with an outlet that has proved that it owns its key, and waits for our decision.
#[derive(Debug)]
pub struct KeyProbe {
    line: Line,
    peer: PublicKey,
}

impl KeyProbe {
    /// Connects and starts the handshake. Blocks, at most for 15 s.
    ///
    /// # Errors
    /// Why the outlet proved no key.
    pub fn at(address: SocketAddr, local: Arc<Local>) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECT)
            .map_err(|error| Error::io(format!("connecting with {address}"), error))?;
        stream
            .set_write_timeout(Some(CONNECT))
            .map_err(|error| Error::io("socket", error))?;
        let connection = Connection::initiator(local, REQUEST, local_clock(), &mut OsRandom)?;
        let mut line = Line { stream, connection };
        match line.proceed(None)? {
            Event::Question(Question::PeerKey(peer)) => Ok(Self { line, peer }),
            _ => Err(unexpected()),
        }
    }

    /// Returns the key that the outlet proved.
    pub fn peer(&self) -> PublicKey {
        self.peer
    }

    /// Returns the two ends of the connection: the outlet's and ours.
    fn addresses(&self) -> Result<(SocketAddr, SocketAddr)> {
        let stream = &self.line.stream;
        let ends = stream.peer_addr().and_then(|remote| {
            let local = stream.local_addr()?;
            Ok((remote, local))
        });
        ends.map_err(|error| Error::io("addresses of the connection", error))
    }

    /// Ends the handshake without revealing our identity.
    pub fn refuse(mut self, cause: Cause) {
        // The error says what was asked for.
        let _ = self.line.proceed(Some(Answer::PeerKey(Err(cause))));
    }

    /// Goes on until the outlet has accepted us and `judge` its stream, then closes the session.
    fn greet(mut self, judge: impl FnOnce(Descriptor) -> Result<(), Cause>) -> Result<Suite> {
        // Nobody reads the name there.
        let accepted = Answer::PeerKey(Ok(String::new()));
        let Event::Question(Question::Descriptor(said)) = self.line.proceed(Some(accepted))? else {
            return Err(unexpected());
        };
        let Event::Established(info) = self.line.proceed(Some(Answer::Descriptor(judge(said))))?
        else {
            return Err(unexpected());
        };
        if let Some(sender) = self.line.connection.sender() {
            sender.close();
        }
        self.line.close();
        Ok(info.suite)
    }
}

fn unexpected() -> Error {
    Error::session(Cause::Internal, "another event was expected")
}

/// A connection over a blocking socket.
#[derive(Debug)]
struct Line {
    stream: TcpStream,
    connection: Connection,
}

impl Line {
    /// Gives the answer to the last question, if there was one, and goes on to the next or to the
    /// session. After an error the connection is closed.
    fn proceed(&mut self, answer: Option<Answer>) -> Result<Event> {
        let event = self.advance(answer);
        if let Err(error) = &event {
            self.connection.fail(error);
            if self.connection.poll_timeout().is_some() {
                self.close();
            }
        }
        event
    }

    fn advance(&mut self, mut answer: Option<Answer>) -> Result<Event> {
        loop {
            if let Some(answer) = answer.take() {
                self.connection.handle_answer(answer, local_clock())?;
            }
            let late = || io::ErrorKind::TimedOut.into();
            self.flush()
                .and_then(|done| if done { Ok(()) } else { Err(late()) })
                .map_err(|error| Error::io("sending to the outlet", error))?;
            match self.connection.poll_event() {
                Some(Event::Question(Question::Work(work))) => {
                    answer = Some(Answer::Work(work.run(&mut OsRandom)));
                }
                Some(event) => return Ok(event),
                None => self.receive()?,
            }
        }
    }

    /// Sends what is waiting; true once nothing is left, false after the socket's time-out.
    fn flush(&mut self) -> io::Result<bool> {
        let stream = &mut self.stream;
        self.connection
            .flush(local_clock, |bytes| stream.write(bytes))
    }

    /// Reads once, until the connection's time-out.
    fn receive(&mut self) -> Result<()> {
        let failed = |error| Error::io("reading from the outlet", error);
        let due = self.connection.poll_timeout().ok_or_else(unexpected)?;
        let mut buffer = [0; 2048];
        let most = self.connection.max_read().min(buffer.len());
        let left = Duration::from_secs_f64((due - local_clock()).max(SHORTEST_SECS));
        self.stream.set_read_timeout(Some(left)).map_err(failed)?;
        let received = match self.stream.read(buffer.get_mut(..most).unwrap_or_default()) {
            Ok(received) => received,
            // The outlet closed without reading everything: no less a close.
            Err(error) if is_gone(&error) => 0,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::Interrupted => Ok(()),
                    // Which of the two a passed time-out is depends on the system.
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        self.connection.handle_timeout(local_clock())
                    }
                    _ => Err(failed(error)),
                };
            }
        };
        let bytes = buffer.get_mut(..received).unwrap_or_default();
        (self.connection).handle_input(bytes, local_clock(), |_| Ok(()))
    }

    /// Sends the last words and closes without a reset over unread input, so that they arrive.
    fn close(&mut self) {
        // The outlet's log will do without them if it is gone.
        let _ = self.flush();
        let _ = self.stream.shutdown(Shutdown::Write);
        let deadline = local_clock() + CLOSING_SECS;
        let mut discarded = [0; 4096];
        for _ in 0..CLOSING_READS {
            let left = deadline - local_clock();
            if left <= 0.0 {
                return;
            }
            let left = Duration::from_secs_f64(left);
            let limit = self.stream.set_read_timeout(Some(left));
            match limit.and_then(|()| self.stream.read(&mut discarded)) {
                Ok(1..) => {}
                _ => return,
            }
        }
    }
}

/// Request of the session, which costs the outlet nothing and makes it no reader.
const REQUEST: &[u8] = b"LSL:shortinfo\r\n\r\n";
const CONNECT: Duration = Duration::from_secs(5);
const CLOSING_SECS: f64 = 1.0;
const CLOSING_READS: usize = 16;
/// A socket's time-out of 0 is an error.
const SHORTEST_SECS: f64 = 0.001;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use lsl_core::secure::{SecretKey, Suites};

    use super::*;

    /// Handshakes with a peer that sends this answer and hangs up.
    fn knock_at(answer: &[u8]) -> Error {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let local = Arc::new(Local {
            key: SecretKey::generate(&mut OsRandom).unwrap(),
            psk: None,
            suites: Suites::of_this_cpu(),
            pad_to: 0,
        });
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                // All of the first flight, so that closing sends no reset.
                let mut head = [0; 16];
                stream.read_exact(&mut head).unwrap();
                assert_eq!(&head[..14], b"LSL:secure/1\r\n");
                let rest = u16::from_be_bytes([head[14], head[15]]);
                stream.read_exact(&mut vec![0; rest.into()]).unwrap();
                // The other side may have heard enough.
                let _ = stream.write_all(answer);
            });
            KeyProbe::at(address, local).unwrap_err()
        })
    }

    #[test]
    fn answers_of_what_is_no_encrypted_outlet() {
        let check = |answer: &[u8], cause: Cause| {
            let error = knock_at(answer);
            assert_eq!(error.cause(), cause, "{answer:?}: {error}");
        };
        check(b"", Cause::PeerNotSecure);
        check(b"L", Cause::Truncated);
        check(&[0xff, 0xff, 1, 2, 3], Cause::Malformed);
        check(&[0, 100, 2, 1], Cause::Truncated);
        check(&[0, 1, 2], Cause::Malformed);
        check(b"LSL/110 503 later\r\n\r\n", Cause::Busy);
        check(b"LSL/110 501 no\r\n\r\n", Cause::PeerNotSecure);
        check(b"LSD", Cause::PeerNotSecure);
    }

    #[test]
    fn refusals_are_safe_to_print_and_short() {
        let text = |answer: &[u8]| match knock_at(answer) {
            Error::Refused { status, text } => (status, text),
            other => panic!("{other}"),
        };
        assert_eq!(
            text(b"LSL/110 501 not enabled\r\n\r\n"),
            (501, "LSL/110 501 not enabled".into())
        );
        let (status, shown) = text(b"LSL/110 x \x1b[2J\xff\r\n");
        assert_eq!(status, 0);
        assert!(!shown.contains('\x1b'), "{shown}");
        let (_, long) = text(&[b"LS".as_slice(), &[b'x'; 10_000]].concat());
        assert!(long.len() <= 256, "{}", long.len());
    }
}
