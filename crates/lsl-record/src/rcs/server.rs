//! Remote control over TCP, as LabRecorder's: a line is a command, and the answer to each is the
//! two bytes `OK`, whether or not it succeeded. Our own commands answer with a line of JSON.
//!
//! The caller reads the words of `select`; `lsl record` takes those of its command line: a name,
//! KEY=VALUE or an XPath predicate, which has `contains()` and `starts-with()`. No regular
//! expressions: only the recorder could evaluate them, so every stream of the network would have to
//! answer and be looked at. A predicate is answered by the outlets that fit, now and when they
//! appear. And the command would carry a crate for this alone.
//!
//! Other users of a machine, web pages and programs in containers reach its loopback address. So
//! commands beyond the state need a token first (`token`), unless the user wants LabRecorder's
//! behaviour.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lsl_core::local_clock;

use super::protocol::{Command, Lines, NoCommand, named_token};
use super::token::Gate;
use crate::event::{Complaint, Event, Events};

/// A command, and where its answer goes.
#[derive(Debug)]
pub struct Request {
    /// Command as the client sent it.
    pub command: Command,
    /// A line of JSON; LabRecorder's own commands want none.
    pub answer: Option<Sender<String>>,
    /// Closes once the answer is on its way.
    pub answered: Receiver<()>,
}

/// Reason for which no commands are taken.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be had.
    #[error("{address}: {source}")]
    Bind {
        /// The address, with its port.
        address: String,
        /// Error that the system returned.
        source: io::Error,
    },
    /// Others can reach this address, and there is no token for them.
    #[error("{0}: others can reach this address, and nothing of it is encrypted")]
    OpenToOthers(String),
    /// The system gives no more threads.
    #[error("cannot start a thread: {0}")]
    Threads(#[source] io::Error),
}

/// Starts to listen; commands arrive at the other end of the channel. Each refused client is an
/// [`Event::Client`].
///
/// # Errors
/// For an address that cannot be had, or that others can reach without a token for them.
pub fn listen(
    address: &str,
    gate: Gate,
    events: &Events,
) -> Result<(SocketAddr, Receiver<Request>), ListenError> {
    let address = if address.contains(':') {
        address.to_owned()
    } else {
        format!("{address}:{PORT}")
    };
    let bound = TcpListener::bind(&address).and_then(|it| Ok((it.local_addr()?, it)));
    let (local, listener) = match bound {
        Ok(bound) => bound,
        Err(source) => return Err(ListenError::Bind { address, source }),
    };
    let is_for_others = matches!(
        &gate,
        Gate::Token {
            is_chosen: true,
            ..
        }
    );
    if !local.ip().is_loopback() && !is_for_others {
        return Err(ListenError::OpenToOthers(address));
    }
    let (sender, receiver) = mpsc::sync_channel(MAX_REQUESTS);
    let remote = Arc::new(Remote {
        gate,
        sender,
        clients: Clients::default(),
        complaints: Complaints::new(events),
    });
    thread::Builder::new()
        .name("lsl-remote".into())
        .spawn(move || accept(&listener, &remote))
        .map_err(ListenError::Threads)?;
    Ok((local, receiver))
}

/// State that all connections share.
#[derive(Debug)]
struct Remote {
    gate: Gate,
    sender: SyncSender<Request>,
    clients: Clients,
    complaints: Complaints,
}

fn accept(listener: &TcpListener, remote: &Arc<Remote>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream.map(Arc::new) else {
            // Out of descriptors, say: not to be asked again in a hurry.
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let Some(client) = remote.clients.admit(&stream) else {
            remote.complaints.push(Complaint::TooMany);
            continue;
        };
        let of_client = Arc::clone(remote);
        let number = client.number;
        let served = thread::Builder::new()
            .name("lsl-rcs".into())
            .spawn(move || {
                // A client that goes is none of our business.
                let _ = of_client.serve(&client);
                of_client.clients.leave(client.number);
            });
        if served.is_err() {
            remote.clients.leave(number);
        }
    }
}

impl Remote {
    fn serve(&self, client: &Client) -> io::Result<()> {
        let mut stream = &*client.stream;
        stream.set_nodelay(true)?;
        let mut is_known = matches!(self.gate, Gate::Open);
        if !is_known {
            stream.set_read_timeout(Some(AUTH_LIMIT))?;
        }
        let mut lines = Lines::default();
        let mut buffer = [0; 4096];
        loop {
            // A last line without its end is no command: its rest is unknown.
            let len = stream.read(&mut buffer)?;
            if len == 0 {
                return Ok(());
            }
            let lines = match lines.take(buffer.get(..len).unwrap_or_default()) {
                Ok(lines) => lines,
                Err(NoCommand::Web) => {
                    self.complaints.push(Complaint::WebPage);
                    return Ok(());
                }
                Err(NoCommand::Garbage) => {
                    self.complaints.push(Complaint::Garbage);
                    return Ok(());
                }
            };
            for line in lines {
                // Taken whether or not it is needed, so that no event shows the token as an unknown
                // command.
                if let Some(given) = named_token(&line) {
                    if !self.gate.opens_for(given) {
                        return self.refuse(stream);
                    }
                    is_known = true;
                    stream.set_read_timeout(None)?;
                    client.note_obeyed();
                    stream.write_all(b"OK")?;
                    continue;
                }
                let command = Command::parse(&line);
                if is_known {
                    client.note_obeyed();
                } else {
                    // The state is for clients on this machine.
                    let is_here = stream.peer_addr()?.ip().to_canonical().is_loopback();
                    if command != Command::Status || !is_here {
                        return self.refuse(stream);
                    }
                }
                if !self.obey(stream, command)? {
                    return Ok(());
                }
            }
        }
    }

    /// Tells the client, and the operator, that the token is missing.
    fn refuse(&self, mut stream: &TcpStream) -> io::Result<()> {
        if let Gate::Token { file, .. } = &self.gate {
            self.complaints.push(Complaint::NoToken(file.clone()));
        }
        stream.write_all(b"{\"error\":\"auth TOKEN comes first\"}\n")
    }

    /// Passes a command on and answers it; false if the recorder is gone.
    fn obey(&self, mut stream: &TcpStream, command: Command) -> io::Result<bool> {
        let (answer, words) = if command.is_ours() {
            let (answer, words) = mpsc::channel();
            (Some(answer), Some(words))
        } else {
            (None, None)
        };
        // Closed when this command is done with.
        let (_written, answered) = mpsc::channel();
        let request = Request {
            command,
            answer,
            answered,
        };
        if self.sender.send(request).is_err() {
            return Ok(false);
        }
        match words.map(|words| words.recv()) {
            None => stream.write_all(b"OK")?,
            Some(Ok(answer)) => stream.write_all(format!("{answer}\n").as_bytes())?,
            Some(Err(_)) => return Ok(false),
        }
        Ok(true)
    }
}

/// Tells the operator what strangers do, seldom: they decide how often it happens.
#[derive(Debug)]
struct Complaints {
    events: Events,
    last: Mutex<Option<f64>>,
}

impl Complaints {
    fn new(events: &Events) -> Self {
        Self {
            events: events.clone(),
            last: Mutex::new(None),
        }
    }

    fn push(&self, complaint: Complaint) {
        let now = local_clock();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| now - last >= COMPLAINT_SECS) {
            *last = Some(now);
            self.events.push(Event::Client(complaint));
        }
    }
}

/// One connection of a client.
#[derive(Debug)]
struct Client {
    number: u64,
    stream: Arc<TcpStream>,
    /// When it was last obeyed; `None` if it never was.
    obeyed: Mutex<Option<f64>>,
}

impl Client {
    fn obeyed(&self) -> Option<f64> {
        *self.obeyed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_obeyed(&self) {
        let mut obeyed = self.obeyed.lock().unwrap_or_else(PoisonError::into_inner);
        *obeyed = Some(local_clock());
    }
}

/// Open connections, the oldest first.
#[derive(Debug, Default)]
struct Clients {
    list: Mutex<Vec<Arc<Client>>>,
    count: AtomicU64,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Client>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in. If there is no room, a silent one is closed: idle connections do not
    /// lock the operator out, who may think for long before the first command.
    fn admit(&self, stream: &Arc<TcpStream>) -> Option<Arc<Client>> {
        let mut list = self.lock();
        if list.len() >= MAX_CLIENTS {
            let idle = list.iter().position(|client| client.obeyed().is_none());
            let quiet = |list: &[Arc<Client>]| {
                let all = list.iter().enumerate();
                let obeyed = all.filter_map(|(at, client)| Some((client.obeyed()?, at)));
                let (obeyed, at) = obeyed.min_by(|(one, _), (other, _)| one.total_cmp(other))?;
                (local_clock() - obeyed > QUIET_SECS).then_some(at)
            };
            let at = idle.or_else(|| quiet(&list))?;
            let gone = list.remove(at);
            // Its thread reads the end.
            let _ = gone.stream.shutdown(Shutdown::Both);
        }
        let client = Arc::new(Client {
            number: self.count.fetch_add(1, Ordering::Relaxed),
            stream: Arc::clone(stream),
            obeyed: Mutex::new(None),
        });
        list.push(Arc::clone(&client));
        Some(client)
    }

    fn leave(&self, number: u64) {
        self.lock().retain(|client| client.number != number);
    }
}

/// Port of LabRecorder, which its clients expect.
const PORT: u16 = 22345;
const MAX_CLIENTS: usize = 16;
/// Commands that may wait; clients that send more wait for them.
const MAX_REQUESTS: usize = 64;
/// Longest time until a client names the token.
const AUTH_LIMIT: Duration = Duration::from_secs(10);
/// After so long without a command a connection may make room for another.
const QUIET_SECS: f64 = 60.0;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Between two complaints about strangers.
const COMPLAINT_SECS: f64 = 10.0;
