//! A handshake with one outlet over a blocking socket, to learn its key or the reason of trouble.
//! Spec: LSS/1 §4.2, §5.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use lsl_core::secure::connection::{Answer, Connection, Event, Question};
use lsl_core::secure::{
    Cause, Descriptor, Error, Local, OsRandom, PublicKey, Result, Role, Security, Suite,
};
use lsl_core::{StreamInfo, local_clock};
use lsl_proto::describe::descriptor;

use super::line::{Line, never, unexpected};

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

/// Opens a session with the outlet of a resolved stream, as an inlet would, and closes it. Blocks until it is over, or
/// `stop`ped.
pub fn check(
    security: &Security,
    local: &Arc<Local>,
    info: &StreamInfo,
    stop: &dyn Fn() -> bool,
) -> Checked {
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
        checked = check_at(security, local, address, expected.as_ref(), stop);
        // Another address of the same outlet may be reachable.
        if stop() || !matches!(checked.finding, Finding::Failed(Error::Io { .. })) {
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
    stop: &dyn Fn() -> bool,
) -> Checked {
    let mut peer = None;
    let shaken = KeyProbe::at(address, Arc::clone(local), stop).and_then(|probe| {
        let key = probe.peer();
        peer = Some(key);
        let (remote, here) = probe.line.ends()?;
        let peer_name = match security.authorise(&key, Role::Outlet, remote, here) {
            Ok(name) => name,
            Err(cause) => {
                probe.refuse(cause);
                return Ok(Finding::Here(cause));
            }
        };
        let mut finding = None;
        let suite = probe.greet(stop, |descriptor| {
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
    /// Connects and starts the handshake. Blocks, at most for 15 s; once connected, for one after `stop`.
    ///
    /// # Errors
    /// Why the outlet proved no key.
    pub fn at(address: SocketAddr, local: Arc<Local>, stop: &dyn Fn() -> bool) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECT)
            .map_err(|error| Error::io(format!("connecting with {address}"), error))?;
        stream
            .set_write_timeout(Some(CONNECT))
            .map_err(|error| Error::io("socket", error))?;
        let connection = Connection::initiator(local, REQUEST, local_clock(), &mut OsRandom)?;
        let mut line = Line { stream, connection };
        match line.proceed(None, stop)? {
            Event::Question(Question::PeerKey(peer)) => Ok(Self { line, peer }),
            _ => Err(unexpected()),
        }
    }

    /// Returns the key that the outlet proved.
    pub fn peer(&self) -> PublicKey {
        self.peer
    }

    /// Ends the handshake without revealing our identity.
    pub fn refuse(mut self, cause: Cause) {
        // The error says what was asked for.
        let _ = self.line.proceed(Some(Answer::PeerKey(Err(cause))), &never);
    }

    /// Goes on until the outlet has accepted us and `judge` its stream, then closes the session.
    fn greet(
        mut self,
        stop: &dyn Fn() -> bool,
        judge: impl FnOnce(Descriptor) -> Result<(), Cause>,
    ) -> Result<Suite> {
        // Nobody reads the name there.
        let accepted = Answer::PeerKey(Ok(String::new()));
        let Event::Question(Question::Descriptor(said)) =
            self.line.proceed(Some(accepted), stop)?
        else {
            return Err(unexpected());
        };
        let Event::Established(info) = self
            .line
            .proceed(Some(Answer::Descriptor(judge(said))), stop)?
        else {
            return Err(unexpected());
        };
        self.line.end();
        self.line.close();
        Ok(info.suite)
    }
}

/// Request of the session, which costs the outlet nothing and makes it no reader.
const REQUEST: &[u8] = b"LSL:shortinfo\r\n\r\n";
const CONNECT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use lsl_core::secure::{SecretKey, Suites};

    use super::*;

    /// Handshakes with a peer that sends this answer and hangs up.
    fn knock_at(answer: &[u8]) -> Error {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
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
            KeyProbe::at(address, local(), &never).unwrap_err()
        })
    }

    #[test]
    fn who_accepts_and_says_nothing_is_left_when_the_user_wants() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let begun = local_clock();
        let error = KeyProbe::at(address, local(), &|| true).unwrap_err();
        assert_eq!(error.cause(), Cause::Timeout, "{error}");
        assert!(local_clock() - begun < 5.0, "a handshake has 10 s");
    }

    fn local() -> Arc<Local> {
        Arc::new(Local {
            key: SecretKey::generate(&mut OsRandom).unwrap(),
            psk: None,
            suites: Suites::of_this_cpu(),
            pad_to: 0,
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
