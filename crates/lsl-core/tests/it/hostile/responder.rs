//! An outlet made of raw sockets that does what a script says.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lsl_core::{ChannelFormat, StreamInfo};
use lsl_proto::ByteOrder;
use lsl_proto::wire::response::{DataProtocol, FeedResponse};
use lsl_proto::wire::sample110::Encoder110;

pub(super) const UID: &str = "22222222-2222-4222-8222-222222222222";

/// The short info of a stream whose outlet lives at this port.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) channels: String,
    pub(super) format: ChannelFormat,
    pub(super) srate: String,
    pub(super) version: String,
    pub(super) port: u16,
    pub(super) desc: String,
}

impl Claim {
    /// Says what `hostile::info` says, so that it can pass for that stream.
    pub(super) fn of(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            uid: UID.to_owned(),
            channels: "3".to_owned(),
            format: ChannelFormat::Float32,
            srate: "100.0000000000000".to_owned(),
            version: "1.100000000000000".to_owned(),
            port: 1,
            desc: String::new(),
        }
    }

    pub(super) fn xml(&self) -> String {
        let Self {
            name,
            uid,
            channels,
            format,
            srate,
            version,
            port,
            desc,
        } = self;
        format!(
            "<?xml version=\"1.0\"?>\n<info><name>{name}</name><type>Test</type>\
             <channel_count>{channels}</channel_count><channel_format>{format}</channel_format>\
             <source_id>src-{name}</source_id><nominal_srate>{srate}</nominal_srate>\
             <version>{version}</version><created_at>12.5</created_at><uid>{uid}</uid>\
             <session_id>default</session_id><hostname>evil</hostname>\
             <v4address>127.0.0.1</v4address><v4data_port>{port}</v4data_port>\
             <v4service_port>{port}</v4service_port><v6address></v6address>\
             <v6data_port>0</v6data_port><v6service_port>0</v6service_port>\
             <desc>{desc}</desc></info>\n"
        )
    }

    pub(super) fn info(&self) -> StreamInfo {
        StreamInfo::from_xml(self.xml().as_bytes()).expect("a claim that can be read")
    }

    /// A correct response and correct test patterns: what follows are samples.
    pub(super) fn preamble(&self) -> Vec<u8> {
        let mut bytes = self.response(DataProtocol::V110);
        let channels = self.channels.parse().expect("a number of channels");
        Encoder110::new(self.format, channels, ByteOrder::NATIVE).encode_test_patterns(&mut bytes);
        bytes
    }

    /// A correct response alone.
    pub(super) fn response(&self, data_protocol: DataProtocol) -> Vec<u8> {
        FeedResponse {
            byte_order: ByteOrder::NATIVE,
            suppress_subnormals: false,
            data_protocol,
            granted: None,
        }
        .to_bytes(110, self.uid.as_bytes())
    }
}

/// Serves connections one after the other, each with the script, until dropped.
pub(super) struct EvilOutlet {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl EvilOutlet {
    /// The script gets each connection after its request was read. Errors end the connection, and
    /// so does its return.
    pub(super) fn open(script: impl Fn(&mut Victim) -> io::Result<()> + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("binds");
        let address = listener.local_addr().expect("bound");
        let stopped = Arc::new(AtomicBool::new(false));
        let served = Arc::new(AtomicUsize::new(0));
        let (stop, count) = (Arc::clone(&stopped), Arc::clone(&served));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::Acquire) {
                    break;
                }
                let mut victim = Victim {
                    stream,
                    stopped: Arc::clone(&stop),
                };
                // That the victim left is no failure.
                let _ = victim.read_request().and_then(|()| script(&mut victim));
                count.fetch_add(1, Ordering::AcqRel);
            }
        });
        Self {
            address,
            stopped,
            served,
            thread: Some(thread),
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Connections whose script has ended.
    pub(super) fn served(&self) -> usize {
        self.served.load(Ordering::Acquire)
    }
}

impl Drop for EvilOutlet {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // Wakes the thread if it waits for a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A connection from the inlet under test.
pub(super) struct Victim {
    stream: TcpStream,
    stopped: Arc<AtomicBool>,
}

impl Victim {
    fn read_request(&mut self) -> io::Result<()> {
        self.stream.set_read_timeout(Some(TICK))?;
        self.stream.set_write_timeout(Some(TICK))?;
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        while !request.ends_with(b"\r\n\r\n") && !request.ends_with(b"0 0\r\n") {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => request.extend_from_slice(&buffer[..count]),
                Err(error) => self.unless_waiting(error)?,
            }
            if request.starts_with(b"LSL:fullinfo") || request.starts_with(b"LSL:streamfeed\r\n") {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) => self.unless_waiting(error)?,
            }
        }
        Ok(())
    }

    /// Repeats the bytes until the victim leaves or the test ends.
    pub(super) fn send_for_ever(&mut self, bytes: &[u8]) -> io::Result<()> {
        loop {
            self.send(bytes)?;
            if self.stopped.load(Ordering::Acquire) {
                return Ok(());
            }
        }
    }

    /// Says nothing until the victim leaves or the test ends.
    pub(super) fn wait_for_its_end(&mut self) -> io::Result<()> {
        let mut buffer = [0; 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => self.unless_waiting(error)?,
            }
        }
    }

    fn unless_waiting(&self, error: io::Error) -> io::Result<()> {
        let waiting = matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        );
        if waiting && !self.stopped.load(Ordering::Acquire) {
            Ok(())
        } else {
            Err(error)
        }
    }
}

/// Answers every discovery query with the same short infos, whatever is asked.
pub(super) struct EvilResponder {
    stopped: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl EvilResponder {
    /// On a port that resolvers of this context ask.
    pub(super) fn open(context: &lsl_core::Context, replies: Vec<Vec<u8>>) -> Self {
        let ports = context.config().ports();
        let socket = (0..ports.port_range)
            .find_map(|n| UdpSocket::bind((Ipv4Addr::LOCALHOST, ports.base_port + n)).ok())
            .expect("a free port");
        socket.set_read_timeout(Some(TICK)).expect("socket option");
        let stopped = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicUsize::new(0));
        let (stop, count) = (Arc::clone(&stopped), Arc::clone(&answered));
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !stop.load(Ordering::Acquire) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else {
                    continue;
                };
                let Ok(query) = lsl_proto::wire::discovery::QueryDatagram::parse(&buffer[..length])
                else {
                    continue;
                };
                for reply in &replies {
                    let datagram = [query.id, b"\r\n", reply].concat();
                    let _ = socket.send_to(&datagram, (from.ip(), query.return_port));
                }
                count.fetch_add(1, Ordering::AcqRel);
            }
        });
        Self {
            stopped,
            answered,
            thread: Some(thread),
        }
    }

    /// Queries that were answered.
    pub(super) fn answered(&self) -> usize {
        self.answered.load(Ordering::Acquire)
    }
}

impl Drop for EvilResponder {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How often a blocked script looks whether the test is over.
const TICK: Duration = Duration::from_millis(20);
