//! An outlet with a key that does what a script says, for what ours never does.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lsl_core::secure::handshake::{self, PREAMBLE, Responder};
use lsl_core::secure::{
    Cause, Descriptor, Error, Local, Opener, OsRandom, Record, Result, Sealer, Session, Suites,
    TimeKeys,
};
use lsl_core::{ChannelFormat, StreamInfo, local_clock};
use lsl_proto::ByteOrder;
use lsl_proto::wire::response::{DataProtocol, FeedResponse};
use lsl_proto::wire::sample110::Encoder110;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What discovery says, or is made to say, of a stream.
#[derive(Debug, Clone)]
pub struct Claim {
    pub name: String,
    pub stream_type: String,
    pub channels: u32,
    pub format: ChannelFormat,
    pub source_id: String,
    pub srate: String,
    pub created_at: String,
    pub uid: String,
    pub session_id: String,
    pub hostname: String,
    pub advert: String,
    pub desc: String,
    pub port: u16,
    pub service_port: u16,
}

impl Claim {
    pub fn of(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            stream_type: "Test".to_owned(),
            channels: 3,
            format: ChannelFormat::Float32,
            source_id: format!("src-{name}"),
            srate: "100.0000000000000".to_owned(),
            created_at: "12.5".to_owned(),
            uid: "22222222-2222-4222-8222-222222222222".to_owned(),
            session_id: "default".to_owned(),
            hostname: "amp-host".to_owned(),
            advert: "<lsl_secure v=\"1\" policy=\"required\"/>".to_owned(),
            desc: String::new(),
            port: 1,
            service_port: 1,
        }
    }

    pub fn xml(&self) -> String {
        let Self {
            name,
            stream_type,
            channels,
            format,
            source_id,
            srate,
            created_at,
            uid,
            session_id,
            hostname,
            advert,
            desc,
            port,
            service_port,
        } = self;
        format!(
            "<?xml version=\"1.0\"?>\n<info><name>{name}</name><type>{stream_type}</type>\
             <channel_count>{channels}</channel_count><channel_format>{format}</channel_format>\
             <source_id>{source_id}</source_id><nominal_srate>{srate}</nominal_srate>\
             <version>1.100000000000000</version><created_at>{created_at}</created_at>\
             <uid>{uid}</uid><session_id>{session_id}</session_id><hostname>{hostname}</hostname>\
             <v4address>127.0.0.1</v4address><v4data_port>{port}</v4data_port>\
             <v4service_port>{service_port}</v4service_port><v6address></v6address>\
             <v6data_port>0</v6data_port><v6service_port>0</v6service_port>\
             <desc>{desc}</desc>{advert}</info>\n"
        )
    }

    pub fn info(&self) -> StreamInfo {
        StreamInfo::from_xml(self.xml().as_bytes()).unwrap()
    }

    /// What an honest outlet of this stream says of itself.
    pub fn descriptor(&self) -> Descriptor {
        let info = self.info();
        Descriptor {
            uid: info.uid_bytes().to_vec(),
            name: info.name_bytes().to_vec(),
            stream_type: info.stream_type_bytes().to_vec(),
            source_id: info.source_id_bytes().to_vec(),
            hostname: info.hostname_bytes().to_vec(),
            session_id: info.session_id_bytes().to_vec(),
            channel_count: info.channel_count(),
            nominal_srate: info.nominal_srate(),
            channel_format: info.channel_format() as u8,
            created_at: info.created_at(),
        }
        .canonical()
    }

    /// The answer to a feed request, up to the first sample.
    pub fn preamble(&self) -> Vec<u8> {
        let mut bytes = FeedResponse {
            byte_order: ByteOrder::NATIVE,
            suppress_subnormals: false,
            data_protocol: DataProtocol::V110,
            granted: None,
        }
        .to_bytes(110, self.uid.as_bytes());
        Encoder110::new(self.format, self.channels, ByteOrder::NATIVE)
            .encode_test_patterns(&mut bytes);
        bytes
    }
}

/// A sample of three floats with a timestamp, as protocol 1.10 has it.
pub fn sample(timestamp: f64, value: f32) -> Vec<u8> {
    let mut bytes = vec![2];
    bytes.extend_from_slice(&timestamp.to_ne_bytes());
    for _ in 0..3 {
        bytes.extend_from_slice(&value.to_ne_bytes());
    }
    bytes
}

type Script = dyn Fn(Connection) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// What a fake outlet is made of.
#[derive(Clone)]
pub struct Fake {
    pub key: String,
    pub says: Descriptor,
    /// Refuses every inlet for this reason.
    pub refuses: Option<Cause>,
    script: Arc<Script>,
}

/// A connection whose handshake is done.
pub struct Connection {
    pub stream: TcpStream,
    pub sealer: Sealer,
    opener: Opener,
    /// For the clock; taken by who answers probes.
    pub time: Option<TimeKeys>,
    /// What the inlet asked for.
    pub request: Vec<u8>,
    /// Of other records.
    pub alert: Option<Cause>,
    pub closed: bool,
    pub pings: usize,
    /// Clock with which PINGs are answered: minus ours, and its uncertainty, in seconds.
    pub clock: Option<(f64, f64)>,
}

/// A fake outlet that listens until dropped.
pub struct Running {
    pub port: u16,
    handshakes: Arc<AtomicUsize>,
    failures: Arc<Mutex<Vec<Cause>>>,
    connections: Arc<AtomicUsize>,
    finished: Arc<AtomicUsize>,
    panicked: Arc<AtomicUsize>,
    stop: Arc<Notify>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Fake {
    pub fn new<F>(
        key: &str,
        says: Descriptor,
        script: impl Fn(Connection) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self {
            key: key.to_owned(),
            says,
            refuses: None,
            script: Arc::new(move |connection| Box::pin(script(connection))),
        }
    }

    /// Streams these samples to whoever asks for the feed, and answers fullinfo, until the inlet ends.
    pub fn honest(key: &str, claim: &Claim, says: Descriptor, samples: Vec<u8>) -> Self {
        let claim = claim.clone();
        Self::new(key, says, move |mut connection| {
            let (claim, samples) = (claim.clone(), samples.clone());
            async move {
                if connection.request.starts_with(b"LSL:fullinfo") {
                    connection.data(claim.xml().as_bytes()).await;
                    connection.close().await;
                } else if connection.request.starts_with(b"LSL:streamfeed") {
                    connection.data(&claim.preamble()).await;
                    connection.data(&samples).await;
                }
                connection.until_end().await;
            }
        })
    }

    pub fn run(self) -> Running {
        let handshakes = Arc::new(AtomicUsize::new(0));
        let connections = Arc::new(AtomicUsize::new(0));
        let failures = Arc::new(Mutex::new(Vec::new()));
        let finished = Arc::new(AtomicUsize::new(0));
        let panicked = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(Notify::new());
        let (sender, receiver) = std::sync::mpsc::channel();
        let counts = (
            Arc::clone(&handshakes),
            Arc::clone(&connections),
            Arc::clone(&failures),
            Arc::clone(&finished),
            Arc::clone(&panicked),
        );
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            on_a_runtime(async move {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                sender.send(listener.local_addr().unwrap().port()).unwrap();
                let fake = Arc::new(self);
                let accepting = async {
                    loop {
                        let Ok((stream, _)) = listener.accept().await else {
                            continue;
                        };
                        counts.1.fetch_add(1, Ordering::AcqRel);
                        let (handshakes, failures) = (Arc::clone(&counts.0), Arc::clone(&counts.2));
                        let fake = Arc::clone(&fake);
                        let serving = tokio::spawn(async move {
                            match fake.serve(stream).await {
                                Ok(connection) => {
                                    handshakes.fetch_add(1, Ordering::AcqRel);
                                    (fake.script)(connection).await;
                                }
                                Err(cause) => failures.lock().unwrap().push(cause),
                            }
                        });
                        let (finished, panicked) = (Arc::clone(&counts.3), Arc::clone(&counts.4));
                        tokio::spawn(async move {
                            let count = match serving.await {
                                Ok(()) => finished,
                                Err(_) => panicked,
                            };
                            count.fetch_add(1, Ordering::AcqRel);
                        });
                    }
                };
                either(accepting, stopped.notified()).await;
            });
        });
        Running {
            port: receiver.recv().unwrap(),
            handshakes,
            failures,
            connections,
            finished,
            panicked,
            stop,
            thread: Some(thread),
        }
    }

    async fn handshake(&self, stream: &mut TcpStream) -> Result<Session> {
        let io = |source| Error::io("handshake", source);
        let mut preamble = [0; PREAMBLE.len()];
        stream.read_exact(&mut preamble).await.map_err(io)?;
        if &preamble != PREAMBLE {
            return Err(Error::session(Cause::PlaintextRefused, "plaintext"));
        }
        let local = Arc::new(Local {
            key: super::people::key_of(&self.key),
            psk: None,
            suites: Suites::of_this_cpu(),
            pad_to: 0,
        });
        let m1 = message(stream).await.map_err(io)?;
        let (wait, m2) = Responder::new(local).receive_m1(&m1, &mut OsRandom)?;
        stream.write_all(&m2).await.map_err(io)?;
        let m3 = message(stream).await.map_err(io)?;
        let verified = match wait.receive_m3(&m3)? {
            handshake::Claim::Verified(verified) => verified,
            handshake::Claim::Refused(cause) => return Err(Error::session(cause, "refused")),
        };
        if let Some(cause) = self.refuses {
            let alert = verified.refuse(cause, "");
            stream.write_all(&alert).await.map_err(io)?;
            return Err(Error::session(cause, "refuses"));
        }
        let (session, record) = verified.accept(&self.says)?;
        stream.write_all(&record).await.map_err(io)?;
        Ok(session)
    }

    async fn serve(&self, mut stream: TcpStream) -> Result<Connection, Cause> {
        let session = match self.handshake(&mut stream).await {
            Ok(session) => session,
            Err(error) => {
                // So that what was said last arrives.
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
                return Err(error.cause());
            }
        };
        let mut connection = Connection {
            stream,
            sealer: session.sealer,
            opener: session.opener,
            time: Some(session.time),
            request: Vec::new(),
            alert: None,
            closed: false,
            pings: 0,
            clock: None,
        };
        while !connection.request.ends_with(b"\r\n") {
            let Some(bytes) = connection.receive().await else {
                return Err(connection.alert.unwrap_or(Cause::Truncated));
            };
            connection.request.extend_from_slice(&bytes);
        }
        Ok(connection)
    }
}

impl Connection {
    /// Sends DATA.
    pub async fn data(&mut self, bytes: &[u8]) {
        let mut out = Vec::new();
        let sealed = self.sealer.seal_data(bytes, local_clock(), &mut out);
        sealed.unwrap();
        self.raw(&out).await;
    }

    pub async fn close(&mut self) {
        let mut out = Vec::new();
        self.sealer.seal_close(&mut out).unwrap();
        self.raw(&out).await;
    }

    /// Changes the key.
    pub async fn rekey(&mut self) {
        let mut out = Vec::new();
        self.sealer.seal_key_update(&mut out).unwrap();
        self.raw(&out).await;
    }

    pub async fn alert(&mut self, cause: Cause, text: &str) {
        let mut out = Vec::new();
        let sealed = self.sealer.seal_alert(cause, text, &mut out);
        sealed.unwrap();
        self.raw(&out).await;
    }

    /// Sends bytes as they are; that the inlet left is its right.
    pub async fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// The next DATA; `None` at the end of any kind.
    pub async fn receive(&mut self) -> Option<Vec<u8>> {
        loop {
            let data = self.receive_once().await?;
            if !data.is_empty() {
                return Some(data);
            }
        }
    }

    /// Answers what comes for so long; `None` at the end of any kind.
    pub async fn answer_pings(&mut self, limit: std::time::Duration) -> Option<()> {
        // On Windows a socket stays `readable` until a read finds nothing.
        let waiting = tokio::time::timeout(limit, self.stream.peek(&mut [0])).await;
        match waiting {
            Ok(Ok(_)) => self.receive_once().await.map(drop),
            Ok(Err(_)) => None,
            Err(_) => Some(()),
        }
    }

    async fn receive_once(&mut self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 4096];
        let length = self.stream.read(&mut buffer).await.ok()?;
        if length == 0 {
            return None;
        }
        let mut data = Vec::new();
        let mut asked = Vec::new();
        let Self {
            opener,
            alert,
            closed,
            pings,
            ..
        } = self;
        let bytes = &mut buffer[..length];
        let opened = opener.receive(bytes, local_clock(), |record| {
            match record {
                Record::Data(bytes) => data.extend_from_slice(bytes),
                Record::Close => *closed = true,
                Record::Alert(cause, _) => *alert = Some(cause),
                Record::Ping(t0) => {
                    *pings += 1;
                    asked.push(t0);
                }
                _ => {}
            }
            Ok(())
        });
        opened.ok()?;
        if let (Some(t0), Some((offset, uncertainty))) = (asked.pop(), self.clock) {
            let now = local_clock() + offset;
            let times = [t0, now + uncertainty / 2.0, now - uncertainty / 2.0];
            let mut out = Vec::new();
            self.sealer.seal_pong(times, &mut out).unwrap();
            self.raw(&out).await;
        }
        Some(data)
    }

    /// Reads until the inlet ends the connection.
    pub async fn until_end(&mut self) {
        while self.receive().await.is_some() {}
    }
}

impl Running {
    /// Handshakes that were completed, with a request.
    pub fn handshakes(&self) -> usize {
        self.handshakes.load(Ordering::Acquire)
    }

    /// Connections of any kind.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// How handshakes failed.
    pub fn failures(&self) -> Vec<Cause> {
        self.failures.lock().unwrap().clone()
    }

    /// Waits until the scripts of so many connections have ended well.
    pub fn await_finished(&self, connections: usize) {
        crate::lab::until("the outlet's script ends", || {
            self.assert_scripts_hold();
            self.finished.load(Ordering::Acquire) >= connections
        });
    }

    fn assert_scripts_hold(&self) {
        let panicked = self.panicked.load(Ordering::Acquire);
        assert_eq!(panicked, 0, "an assertion of the script, above");
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if !std::thread::panicking() {
            self.assert_scripts_hold();
        }
    }
}

/// One message, whole.
async fn message(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut message = vec![0; 2];
    stream.read_exact(&mut message).await?;
    let length = usize::from(u16::from_be_bytes([message[0], message[1]]));
    message.resize(2 + length, 0);
    stream.read_exact(&mut message[2..]).await?;
    Ok(message)
}

/// Runs what a peer of ours does, apart from our runtime.
#[expect(
    clippy::disallowed_methods,
    reason = "this thread plays another program"
)]
pub fn on_a_runtime<R>(task: impl Future<Output = R>) -> R {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(task)
}

/// Until one of the two ends.
pub async fn either(first: impl Future, second: impl Future) {
    let mut first = std::pin::pin!(first);
    let mut second = std::pin::pin!(second);
    std::future::poll_fn(|context| {
        if first.as_mut().poll(context).is_ready() || second.as_mut().poll(context).is_ready() {
            return std::task::Poll::Ready(());
        }
        std::task::Poll::Pending
    })
    .await;
}
