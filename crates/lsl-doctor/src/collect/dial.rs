//! Connections that only see how far they come: many at once, none for longer than a second or two.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use lsl_core::local_clock;
use lsl_platform::socket::bind_device;
use socket2::{Domain, Protocol, Socket, Type};

use super::budget::Budget;
use crate::observe::peers::PortState;

/// A connection to make.
#[derive(Debug, Clone)]
pub(super) struct Dial {
    pub(super) to: SocketAddr,
    /// Index of the interface by which it has to leave.
    pub(super) bound: Option<u32>,
    /// What is asked once it stands; nothing ends it then.
    pub(super) request: Vec<u8>,
    /// How many bytes are awaited at most.
    pub(super) enough: usize,
}

/// How far it came.
#[derive(Debug, Clone)]
pub(super) struct Dialled {
    pub(super) state: PortState,
    pub(super) received: Vec<u8>,
    /// Whether the other side ended it, or all came: nothing is missing.
    pub(super) is_complete: bool,
}

/// Dials all, and those again that nobody answers while another port of their host does: a lost packet is no filter.
/// `None` where it was not tried, or where this machine forbids it.
pub(super) fn dial(
    dials: &[Dial],
    budget: &Budget,
    patience: f64,
    stop: &dyn Fn() -> bool,
) -> Vec<Option<Dialled>> {
    let mut all: Vec<Option<Dialled>> = vec![None; dials.len()];
    for round in 0..ROUNDS {
        let is_silent = |at: &usize| {
            let state = all.get(*at).and_then(Option::as_ref).map(|it| it.state);
            state == Some(PortState::Silent)
        };
        let answers = |dial: &Dial| {
            dials.iter().zip(&all).any(|(other, came)| {
                let is_same = (other.to.ip(), other.bound) == (dial.to.ip(), dial.bound);
                is_same
                    && came
                        .as_ref()
                        .is_some_and(|it| it.state != PortState::Silent)
            })
        };
        let due: Vec<(usize, Dial)> = (0..dials.len())
            .filter(|at| round == 0 || is_silent(at))
            .filter_map(|at| Some((at, dials.get(at)?.clone())))
            .filter(|(_, dial)| round == 0 || answers(dial))
            .collect();
        if due.is_empty() || stop() {
            break;
        }
        let due = due.get(..budget.connections(due.len())).unwrap_or_default();
        let secs = if round == 0 { FIRST_SECS } else { AGAIN_SECS } * patience;
        for (at, came) in at_once(due, secs, stop) {
            if let Some(place) = all.get_mut(at) {
                *place = Some(came);
            }
        }
    }
    all
}

/// A connection on its way.
struct Running {
    at: usize,
    socket: Socket,
    deadline: f64,
    reading: Option<TcpStream>,
    received: Vec<u8>,
}

fn at_once(due: &[(usize, Dial)], secs: f64, stop: &dyn Fn() -> bool) -> Vec<(usize, Dialled)> {
    let mut waiting = due.iter();
    let mut running: Vec<(Running, &Dial)> = Vec::new();
    let mut ended = Vec::new();
    while !stop() {
        while running.len() < MOST_AT_ONCE
            && let Some((at, dial)) = waiting.next()
        {
            match begin(dial) {
                Ok(socket) => running.push((
                    Running {
                        at: *at,
                        socket,
                        deadline: local_clock() + secs,
                        reading: None,
                        received: Vec::new(),
                    },
                    dial,
                )),
                Err(error) => ended.extend(state_of(&error).map(|state| (*at, came(state)))),
            }
        }
        if running.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(1));
        running.retain_mut(|(it, dial)| match it.step(dial, secs) {
            Step::Waits => true,
            Step::Ends(dialled) => {
                ended.push((it.at, dialled));
                false
            }
            Step::Forbidden => false,
        });
    }
    ended
}

enum Step {
    Waits,
    Ends(Dialled),
    Forbidden,
}

impl Running {
    fn step(&mut self, dial: &Dial, secs: f64) -> Step {
        let is_late = local_clock() > self.deadline;
        let Some(stream) = &mut self.reading else {
            return match self.socket.take_error() {
                Ok(Some(error)) | Err(error) => match state_of(&error) {
                    Some(state) => Step::Ends(came(state)),
                    None => Step::Forbidden,
                },
                Ok(None) if self.socket.peer_addr().is_ok() => self.ask(dial, secs),
                Ok(None) if is_late => Step::Ends(came(PortState::Silent)),
                Ok(None) => Step::Waits,
            };
        };
        let mut buffer = [0; 16_384];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return Step::Ends(self.open(true)),
                Ok(length) => {
                    let read = buffer.get(..length).unwrap_or_default();
                    self.received.extend_from_slice(read);
                    if self.received.len() >= dial.enough.min(MOST_BYTES) {
                        return Step::Ends(self.open(true));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Step::Ends(self.open(true)),
            }
        }
        if is_late {
            Step::Ends(self.open(false))
        } else {
            Step::Waits
        }
    }

    fn ask(&mut self, dial: &Dial, secs: f64) -> Step {
        if dial.request.is_empty() {
            return Step::Ends(self.open(true));
        }
        let Ok(mut stream) = self.socket.try_clone().map(TcpStream::from) else {
            return Step::Forbidden;
        };
        if stream.write_all(&dial.request).is_err() {
            return Step::Ends(self.open(false));
        }
        self.deadline = local_clock() + secs;
        self.reading = Some(stream);
        Step::Waits
    }

    fn open(&mut self, is_complete: bool) -> Dialled {
        Dialled {
            state: PortState::Open,
            received: std::mem::take(&mut self.received),
            is_complete,
        }
    }
}

fn came(state: PortState) -> Dialled {
    Dialled {
        state,
        received: Vec::new(),
        is_complete: false,
    }
}

fn begin(dial: &Dial) -> io::Result<Socket> {
    let is_v4 = dial.to.is_ipv4();
    let domain = if is_v4 { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    if let Some(index) = dial.bound {
        bind_device(&socket, index, is_v4)?;
    }
    match socket.connect(&dial.to.into()) {
        Err(error) if !is_on_its_way(&error) => Err(error),
        _ => Ok(socket),
    }
}

fn is_on_its_way(error: &io::Error) -> bool {
    const EINPROGRESS: [i32; 2] = [115, 36];
    error.kind() == io::ErrorKind::WouldBlock
        || cfg!(unix)
            && error
                .raw_os_error()
                .is_some_and(|it| EINPROGRESS.contains(&it))
}

/// What an error says about the other side; nothing, if it is about this machine.
fn state_of(error: &io::Error) -> Option<PortState> {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
            Some(PortState::Refused)
        }
        io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::AddrNotAvailable => Some(PortState::Unreachable),
        io::ErrorKind::TimedOut => Some(PortState::Silent),
        _ => None,
    }
}

const ROUNDS: u32 = 3;
/// Longer than the system waits until it repeats its first packet.
const FIRST_SECS: f64 = 1.2;
const AGAIN_SECS: f64 = 0.5;
/// Below the descriptors that every process may have.
const MOST_AT_ONCE: usize = 200;
const MOST_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_is_open_or_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let answers = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 3];
            stream.read_exact(&mut asked).unwrap();
            stream.write_all(&asked).unwrap();
        });
        let dial_to = |to: SocketAddr| Dial {
            to,
            bound: None,
            request: b"abc".to_vec(),
            enough: usize::MAX,
        };
        let budget = Budget::new();
        budget.connections(558);
        let dials = [dial_to(open), dial_to(closed), dial_to(closed)];
        let came = dial(&dials, &budget, 1.0, &|| false);
        answers.join().unwrap();
        let first = came[0].as_ref().unwrap();
        assert_eq!(
            (first.state, &first.received[..]),
            (PortState::Open, &b"abc"[..])
        );
        assert!(first.is_complete);
        assert_eq!(came[1].as_ref().unwrap().state, PortState::Refused);
        assert!(came[2].is_none(), "no more than may be sent");
    }
}
