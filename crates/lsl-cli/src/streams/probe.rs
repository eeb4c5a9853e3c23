//! A handshake with one outlet, to learn its key or the reason of trouble. Does on a blocking
//! socket the work of inlets in the runtime, and reports more of each step. Spec: LSS/1 §4.2, §5.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use lsl_core::secure::audit::printable;
use lsl_core::secure::handshake::{Initiator, MAX_M2_M3_LEN, VerifiedResponder};
use lsl_core::secure::{
    Cause, Descriptor, Error, Local, OsRandom, PublicKey, Result, Role, Security, Suite,
};
use lsl_core::{StreamInfo, local_clock};
use lsl_proto::describe::descriptor;

use super::describe::Described;

/// Result of a session with an outlet.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The outlet's key, if it got so far as to prove it.
    pub(crate) peer: Option<PublicKey>,
    pub(crate) finding: Finding,
}

/// Outcome of a handshake, by the side that refuses.
#[derive(Debug)]
pub(crate) enum Finding {
    /// Neither side: the session was opened.
    Accepted { peer_name: String, suite: Suite },
    /// We refuse the outlet's key.
    Here(Cause),
    /// The outlet refuses our key.
    There(Cause),
    /// No agreement, no answer, or an attack.
    Failed(Error),
}

/// Opens a session with the outlet of a resolved stream, as an inlet would, and closes it. Blocks.
pub(crate) fn check(security: &Security, local: &Arc<Local>, info: &StreamInfo) -> Checked {
    let stream = Described::from(info);
    let is_minimal = stream
        .encryption
        .as_ref()
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
    let addresses = stream.addresses();
    let addresses = addresses
        .iter()
        .filter_map(|text| text.to_socket_addrs().ok());
    for address in addresses.flatten() {
        checked = check_at(security, local, address, expected.as_ref());
        // Another address of the same outlet may be reachable.
        if !matches!(checked.finding, Finding::Failed(Error::Io { .. })) {
            break;
        }
    }
    checked
}

fn check_at(
    security: &Security,
    local: &Arc<Local>,
    address: SocketAddr,
    expected: Option<&Descriptor>,
) -> Checked {
    let mut peer = None;
    let shaken = KeyProbe::at(address, Arc::clone(local)).and_then(|knock| {
        let key = knock.peer();
        peer = Some(key);
        let (remote, here) = knock.addresses()?;
        let peer_name = match security.authorise(&key, Role::Outlet, remote.ip(), here.ip()) {
            Ok(name) => name,
            Err(cause) => {
                knock.refuse(cause);
                return Ok(Finding::Here(cause));
            }
        };
        let Greeting { suite, descriptor } = knock.greet()?;
        let admitted = security.admits_stream(&key, remote.ip(), here.ip(), &descriptor);
        if let Err(cause) = admitted {
            return Ok(Finding::Here(cause));
        }
        match expected.and_then(|expected| descriptor.differs_from(expected)) {
            None => Ok(Finding::Accepted { peer_name, suite }),
            Some(field) => Err(Error::session(
                Cause::DescriptorMismatch,
                format!("its {field} is not what discovery said"),
            )),
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
pub(crate) struct KeyProbe {
    stream: TcpStream,
    responder: VerifiedResponder,
}

/// A session that worked; already closed.
#[derive(Debug)]
struct Greeting {
    suite: Suite,
    descriptor: Descriptor,
}

impl KeyProbe {
    /// Connects and starts the handshake. Blocks, at most for 15 s.
    pub(crate) fn at(address: SocketAddr, local: Arc<Local>) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECT)
            .map_err(|error| Error::io(format!("connecting with {address}"), error))?;
        let mut line = ProbedStream::new(&stream)?;
        let (initiator, first) = Initiator::start(local, &mut OsRandom)?;
        line.send(&first)?;
        let mut m2 = vec![0; 2];
        line.fill(&mut m2, Cause::PeerNotSecure)?;
        if m2 == *b"LS" {
            return Err(line.refusal());
        }
        let len = usize::from(u16::from_be_bytes([m2[0], m2[1]]));
        if len > MAX_M2_M3_LEN {
            return Err(Error::session(Cause::Malformed, "the answer is too long"));
        }
        m2.resize(2 + len, 0);
        line.fill(&mut m2[2..], Cause::Truncated)?;
        let responder = initiator.receive_m2(&m2)?;
        Ok(Self { stream, responder })
    }

    /// Returns the key that the outlet proved.
    pub(crate) fn peer(&self) -> PublicKey {
        self.responder.peer()
    }

    /// Returns the two ends of the connection: the outlet's and ours.
    fn addresses(&self) -> Result<(SocketAddr, SocketAddr)> {
        let ends = self.stream.peer_addr().and_then(|remote| {
            let local = self.stream.local_addr()?;
            Ok((remote, local))
        });
        ends.map_err(|error| Error::io("addresses of the connection", error))
    }

    /// Ends the handshake without revealing our identity.
    pub(crate) fn refuse(self, cause: Cause) {
        let Self {
            mut stream,
            responder,
        } = self;
        // The outlet's log will do without it if it is gone.
        let _ = stream.write_all(&responder.refuse(cause));
        close(&mut stream);
    }

    /// Goes on until the outlet has accepted us, then closes the session.
    fn greet(self) -> Result<Greeting> {
        let Self {
            mut stream,
            responder,
        } = self;
        let greeting = greet(&stream, responder);
        close(&mut stream);
        greeting
    }
}

fn greet(stream: &TcpStream, responder: VerifiedResponder) -> Result<Greeting> {
    let mut line = ProbedStream::new(stream)?;
    let (mut unconfirmed, mut out) = responder.accept()?;
    unconfirmed
        .sealer()
        .seal_data(REQUEST, local_clock(), &mut out)?;
    line.send(&out)?;
    let mut record = vec![0; 2];
    line.fill(&mut record, Cause::Truncated)?;
    let len = usize::from(u16::from_be_bytes([record[0], record[1]]));
    if len > MAX_RECORD_LEN {
        return Err(Error::session(Cause::RecordOverflow, "the first record"));
    }
    record.resize(2 + len, 0);
    line.fill(&mut record[2..], Cause::Truncated)?;
    let (mut session, descriptor) = unconfirmed.receive_descriptor(&mut record)?;
    let mut goodbye = Vec::new();
    session.sealer.seal_close(&mut goodbye)?;
    line.send(&goodbye)?;
    Ok(Greeting {
        suite: session.suite,
        descriptor,
    })
}

/// Socket with a deadline for all that is read.
struct ProbedStream<'a> {
    stream: &'a TcpStream,
    deadline: f64,
}

impl<'a> ProbedStream<'a> {
    fn new(stream: &'a TcpStream) -> Result<Self> {
        stream
            .set_write_timeout(Some(CONNECT))
            .map_err(|error| Error::io("socket", error))?;
        Ok(Self {
            stream,
            deadline: local_clock() + ANSWER_SECS,
        })
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream
            .write_all(bytes)
            .map_err(|error| Error::io("sending to the outlet", error))
    }

    /// Fills `buffer`; an end before that is an error with the cause `early`.
    fn fill(&mut self, buffer: &mut [u8], early: Cause) -> Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..])? {
                0 => return Err(Error::session(early, "the outlet closed the connection")),
                count => filled += count,
            }
        }
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let timeout = || Error::session(Cause::Timeout, "the outlet does not answer");
        let left = self.deadline - local_clock();
        if left <= 0.0 {
            return Err(timeout());
        }
        let read = self
            .stream
            .set_read_timeout(Some(Duration::from_secs_f64(left)))
            .and_then(|()| self.stream.read(buffer));
        match read {
            Ok(count) => Ok(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.read(buffer),
            // Which of the two a passed time-out is depends on the system.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                Err(timeout())
            }
            // The outlet closed without reading everything: no less a close.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(0),
            Err(error) => Err(Error::io("reading from the outlet", error)),
        }
    }

    /// Reads the rest of a line of text that came in place of an answer.
    fn refusal(&mut self) -> Error {
        let mut text = b"LS".to_vec();
        let mut byte = [0];
        while text.len() < MAX_REFUSAL && !text.ends_with(b"\n") {
            match self.read(&mut byte) {
                Ok(1..) => text.push(byte[0]),
                _ => break,
            }
        }
        let status = text
            .split(|byte| *byte == b' ')
            .nth(1)
            .and_then(|word| std::str::from_utf8(word).ok())
            .and_then(|word| word.parse().ok())
            .unwrap_or(0);
        Error::Refused {
            status,
            text: printable(text.trim_ascii_end()),
        }
    }
}

/// Closes without a reset over unread input, so that the last bytes sent arrive.
fn close(stream: &mut TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let deadline = local_clock() + CLOSING_SECS;
    let mut discarded = [0; 4096];
    for _ in 0..CLOSING_READS {
        let left = deadline - local_clock();
        if left <= 0.0 {
            return;
        }
        let limit = stream.set_read_timeout(Some(Duration::from_secs_f64(left)));
        match limit.and_then(|()| stream.read(&mut discarded)) {
            Ok(1..) => {}
            _ => return,
        }
    }
}

/// Request of the session, which costs the outlet nothing and makes it no reader.
const REQUEST: &[u8] = b"LSL:shortinfo\r\n\r\n";
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER_SECS: f64 = 10.0;
const CLOSING_SECS: f64 = 1.0;
const CLOSING_READS: usize = 16;
const MAX_REFUSAL: usize = 256;
const MAX_RECORD_LEN: usize = 16401;

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
        check(b"L", Cause::PeerNotSecure);
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
