//! A connection to a Redis or Valkey server. Spec: relay §12.1.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lsl_core::local_clock;
use lsl_core::relay::{Either, select2};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex as AsyncMutex, Semaphore, oneshot};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::tls::{self, AnyStream, Tls};
use crate::config::EngineConfig;
use crate::engine::resp::{Commands, Replies, Reply};
use crate::engine::{Address, EngineError, ErrorKind, Result, Scheme};
use crate::shell::clocks::AbortOnDrop;

/// Connection that many tasks use at a time, and that is made anew when it is needed. Their commands are sent in the
/// order in which they come, without waiting for replies. A command that blocks wants one of its own.
#[derive(Debug)]
pub(in crate::shell) struct Redis {
    access: Arc<Access>,
    live: Mutex<Option<Arc<Live>>>,
    /// Held by who connects. When that failed last, and why.
    connecting: AsyncMutex<Option<(f64, EngineError)>>,
    /// Number of the last connection.
    connections: AtomicU64,
    /// KiB that may be under way.
    room: Semaphore,
}

/// What a connection needs.
#[derive(Debug)]
struct Access {
    address: Address,
    user: Option<String>,
    password: Option<Zeroizing<String>>,
    tls: Option<Tls>,
}

/// What runs commands.
pub(super) trait Server: Send + Sync + 'static {
    /// Runs commands, on this connection if one is named. Returns the replies in order, errors among them, and the
    /// connection. Waits at most 5 s for them, and as long for a connection.
    ///
    /// # Errors
    /// [`ErrorKind::Retry`] if they do not come, [`ErrorKind::Denied`] if the server refuses the connection.
    fn run(
        &self,
        on: Option<ConnectionId>,
        commands: Commands,
    ) -> impl Future<Output = Result<(Vec<Reply>, ConnectionId)>> + Send;
}

/// Number of a connection. What was written before its begin may be gone, if the server is another one since.
pub(super) type ConnectionId = u64;

#[derive(Debug)]
struct Live {
    id: ConnectionId,
    requests: UnboundedSender<Request>,
    _task: AbortOnDrop,
}

/// Commands on their way, and who waits for the replies.
#[derive(Debug)]
struct Request {
    bytes: Vec<u8>,
    waiting: Waiting,
}

#[derive(Debug)]
struct Waiting {
    replies: Vec<Reply>,
    missing: usize,
    done: oneshot::Sender<Vec<Reply>>,
}

impl Redis {
    /// Prepares a connection, and reads the files that it needs.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] if a file cannot be used.
    pub(in crate::shell) fn new(config: &EngineConfig) -> Result<Self> {
        if config.address.scheme != Scheme::Redis {
            let text = "streams of River are in Redis or Valkey; give it their address";
            return Err(EngineError::new(ErrorKind::Denied, text));
        }
        let password = secret(config)?.map(|text| {
            let line = text.lines().next().unwrap_or_default();
            Zeroizing::new(line.to_owned())
        });
        Ok(Self::with(Arc::new(Access {
            address: config.address.clone(),
            user: config.user.clone(),
            password,
            tls: Tls::of(config)?,
        })))
    }

    /// Prepares a connection of its own to the same server, without a look at files.
    pub(in crate::shell) fn another(&self) -> Self {
        Self::with(Arc::clone(&self.access))
    }

    fn with(access: Arc<Access>) -> Self {
        Self {
            access,
            live: Mutex::default(),
            connecting: AsyncMutex::default(),
            connections: AtomicU64::new(0),
            room: Semaphore::new(MOST_KIB as usize),
        }
    }

    /// Closes a connection.
    fn give_up(&self, id: ConnectionId) {
        let mut live = lock(&self.live);
        if live.as_ref().is_some_and(|live| live.id == id) {
            *live = None;
        }
    }

    fn lost(&self) -> EngineError {
        let text = format!("the connection to {} was lost", self.access.address);
        EngineError::new(ErrorKind::Retry, text)
    }

    fn open(&self) -> Option<Arc<Live>> {
        let live = lock(&self.live).clone()?;
        (!live.requests.is_closed()).then_some(live)
    }

    /// Returns the connection, which is made now if there is none.
    async fn live(&self) -> Result<Arc<Live>> {
        if let Some(live) = self.open() {
            return Ok(live);
        }
        let began = local_clock();
        let mut failed = self.connecting.lock().await;
        if let Some(live) = self.open() {
            return Ok(live);
        }
        // Who waited for the attempt of another one learns of its end.
        if let Some((_, error)) = failed.as_ref().filter(|(at, _)| *at >= began) {
            return Err(error.clone());
        }
        let connected = timeout(CONNECT_LIMIT, self.connect()).await;
        let connected = connected.unwrap_or_else(|_| {
            let text = format!("{} does not answer", self.access.address);
            Err(EngineError::new(ErrorKind::Retry, text))
        });
        match connected {
            Ok(live) => {
                *failed = None;
                *lock(&self.live) = Some(Arc::clone(&live));
                Ok(live)
            }
            Err(error) => {
                *failed = Some((local_clock(), error.clone()));
                Err(error)
            }
        }
    }

    async fn connect(&self) -> Result<Arc<Live>> {
        let Address { host, port, .. } = &self.access.address;
        let failed = |error: std::io::Error| {
            let text = format!("cannot connect to {}: {error}", self.access.address);
            EngineError::new(ErrorKind::Retry, text)
        };
        let stream = TcpStream::connect((&**host, *port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut stream = tls::open(self.access.tls.as_ref(), host, stream).await?;
        self.greet(&mut stream).await?;
        let (requests, asked) = unbounded_channel();
        let id = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let task = tokio::spawn(exchange(stream, asked)).abort_handle();
        Ok(Arc::new(Live {
            id,
            requests,
            _task: AbortOnDrop(task),
        }))
    }

    /// Says who we are, and asks whether the server keeps what it is given.
    async fn greet(&self, stream: &mut AnyStream) -> Result<()> {
        let mut commands = Commands::default();
        match (&self.access.user, &self.access.password) {
            (Some(user), password) => {
                let password = password.as_deref().map_or("", String::as_str);
                commands.add(&[&"AUTH", user, &password]);
            }
            (None, Some(password)) => commands.add(&[&"AUTH", &password.as_str()]),
            (None, None) => {}
        }
        commands.add(&[&"SELECT", &self.access.address.database.to_string()]);
        commands.add(&[&"INFO", &"memory"]);
        let failed = |error: std::io::Error| {
            let text = format!("cannot talk to {}: {error}", self.access.address);
            EngineError::new(ErrorKind::Retry, text)
        };
        stream.write_all(commands.bytes()).await.map_err(failed)?;
        stream.flush().await.map_err(failed)?;
        let (mut replies, mut buffer) = (Replies::default(), vec![0; READ_BYTES]);
        let mut missing = commands.count();
        let mut last = Reply::Nil;
        while missing > 0 {
            let read = stream.read(&mut buffer).await.map_err(failed)?;
            if read == 0 {
                return Err(self.lost());
            }
            replies.feed(buffer.get(..read).unwrap_or_default());
            while let Some(reply) = replies.next_reply().map_err(|_| self.no_redis())? {
                if let Reply::Error(text) = &reply {
                    return Err(self.refused(text));
                }
                last = reply;
                missing = missing.saturating_sub(1);
            }
        }
        let policy = last.text().and_then(|text| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix("maxmemory_policy:"))
        });
        match policy {
            Some("noeviction") => Ok(()),
            Some(policy) => {
                let text = format!(
                    "it would delete history: maxmemory-policy is {policy}; set noeviction"
                );
                Err(EngineError::new(ErrorKind::Denied, text))
            }
            None => Err(self.no_redis()),
        }
    }

    /// Takes over an error of the server, without the password: servers repeat what they do not understand.
    fn refused(&self, text: &str) -> EngineError {
        let password = self.access.password.as_deref().filter(|it| !it.is_empty());
        let hidden = password.map(|password| text.replace(password.as_str(), "***"));
        EngineError {
            kind: EngineError::of_reply(text).kind,
            ..EngineError::of_reply(hidden.as_deref().unwrap_or(text))
        }
    }

    fn no_redis(&self) -> EngineError {
        let text = format!("{} does not speak as Redis does", self.access.address);
        EngineError::new(ErrorKind::Denied, text)
    }
}

impl Server for Redis {
    async fn run(
        &self,
        on: Option<ConnectionId>,
        commands: Commands,
    ) -> Result<(Vec<Reply>, ConnectionId)> {
        let live = self.live().await?;
        if on.is_some_and(|on| on != live.id) {
            return Err(self.lost());
        }
        let kib = u32::try_from(commands.bytes().len() / 1024).unwrap_or(u32::MAX);
        let Ok(_room) = self.room.acquire_many(kib.min(MOST_KIB)).await else {
            return Err(self.lost());
        };
        let mut asking = Asking {
            redis: self,
            id: live.id,
            since: local_clock(),
            is_answered: false,
        };
        let (done, replies) = oneshot::channel();
        let waiting = Waiting {
            missing: commands.count(),
            replies: Vec::with_capacity(commands.count()),
            done,
        };
        let bytes = commands.into_bytes();
        let sent = live.requests.send(Request { bytes, waiting });
        sent.map_err(|_| self.lost())?;
        let replies = timeout(REPLY_LIMIT, replies).await;
        asking.is_answered = replies.is_ok();
        match replies {
            Ok(Ok(replies)) => Ok((replies, live.id)),
            Ok(Err(_)) => Err(self.lost()),
            Err(_) => {
                let text = format!("{} does not answer", self.access.address);
                Err(EngineError::new(ErrorKind::Retry, text))
            }
        }
    }
}

/// Somebody who waits for replies, and may leave before they come. Then the connection is given up if they took long:
/// it may be dead, and nobody else would wait for it to be.
struct Asking<'a> {
    redis: &'a Redis,
    id: ConnectionId,
    since: f64,
    is_answered: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.is_answered && local_clock() - self.since >= SILENT_SECS {
            self.redis.give_up(self.id);
        }
    }
}

/// Sends and receives until the connection, or who made it, ends. Whoever still waits then is told by the end of its
/// channel.
async fn exchange(stream: AnyStream, requests: UnboundedReceiver<Request>) {
    let (from, to) = tokio::io::split(stream);
    let waiting = Mutex::default();
    let ended = select2(send(to, requests, &waiting), receive(from, &waiting)).await;
    let (Either::First(Err(error)) | Either::Second(Err(error))) = ended;
    tracing::debug!("engine: {error}");
}

async fn send(
    mut to: WriteHalf<AnyStream>,
    mut requests: UnboundedReceiver<Request>,
    waiting: &Mutex<VecDeque<Waiting>>,
) -> std::io::Result<Infallible> {
    let mut bytes = Vec::new();
    loop {
        let request = requests.recv().await;
        let request = request.ok_or(std::io::ErrorKind::BrokenPipe)?;
        let mut next = Some(request);
        bytes.clear();
        while let Some(request) = next {
            // Whoever is not answered is not forgotten, either: it has a place before its commands are sent.
            lock(waiting).push_back(request.waiting);
            if bytes.is_empty() {
                bytes = request.bytes;
            } else {
                bytes.extend_from_slice(&request.bytes);
            }
            let is_enough = bytes.len() >= GATHERED_BYTES;
            next = (!is_enough).then(|| requests.try_recv().ok()).flatten();
        }
        to.write_all(&bytes).await?;
        to.flush().await?;
    }
}

async fn receive(
    mut from: ReadHalf<AnyStream>,
    waiting: &Mutex<VecDeque<Waiting>>,
) -> std::io::Result<Infallible> {
    let (mut replies, mut buffer) = (Replies::default(), vec![0; READ_BYTES]);
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        replies.feed(buffer.get(..read).unwrap_or_default());
        while let Some(reply) = replies.next_reply().map_err(std::io::Error::other)? {
            let mut waiting = lock(waiting);
            let unasked = || std::io::Error::other("a reply to nothing");
            let first = waiting.front_mut().ok_or_else(unasked)?;
            first.replies.push(reply);
            first.missing -= 1;
            if first.missing == 0
                && let Some(answered) = waiting.pop_front()
            {
                // Who waits no more needs none.
                let _ = answered.done.send(answered.replies);
            }
        }
    }
}

/// Reads what proves who logs in.
///
/// # Errors
/// [`ErrorKind::Denied`] if it cannot be read.
pub(super) fn secret(config: &EngineConfig) -> Result<Option<Zeroizing<String>>> {
    let Some(file) = &config.password_file else {
        return Ok(None);
    };
    let failed = |error| format!("cannot read password_file {}: {error}", file.display());
    let text = std::fs::read_to_string(file).map(|text| Some(Zeroizing::new(text)));
    text.map_err(|error| EngineError::new(ErrorKind::Denied, failed(error)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long replies may take.
const REPLY_LIMIT: Duration = Duration::from_secs(5);

/// Time in seconds without replies after which one who leaves takes the connection for dead.
const SILENT_SECS: f64 = 2.0;

/// How long a connection may take, with all that is asked then.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// KiB of commands that may be under way.
const MOST_KIB: u32 = 8 * 1024;

/// Bytes of commands beyond which no more are gathered for one write.
const GATHERED_BYTES: usize = 256 * 1024;

const READ_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "no other thread is waited for")]
    fn who_waited_in_vain_leaves_no_dead_connection_to_others() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        // It greets, and answers nothing on its first connection.
        std::thread::spawn(move || {
            let mut connections = Vec::new();
            while let Ok((mut stream, _)) = listener.accept() {
                let mut buffer = [0; 4096];
                let _ = stream.read(&mut buffer);
                let greeting = b"+OK\r\n$27\r\nmaxmemory_policy:noeviction\r\n";
                let _ = stream.write_all(greeting);
                if !connections.is_empty() {
                    let _ = stream.read(&mut buffer);
                    let _ = stream.write_all(b"+PONG\r\n");
                }
                connections.push(stream);
            }
        });
        let address = format!("redis://127.0.0.1:{port}");
        let redis = Redis::with(Arc::new(Access {
            address: Address::parse(&address).expect("an address"),
            user: None,
            password: None,
            tls: None,
        }));
        let ping = || {
            let mut commands = Commands::default();
            commands.add(&[&"PING"]);
            redis.run(None, commands)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let left = timeout(Duration::from_secs(3), ping()).await;
            assert!(left.is_err());
            let (_, connection) = ping().await.expect("an answer");
            assert_eq!(connection, 2);
        });
    }
}
