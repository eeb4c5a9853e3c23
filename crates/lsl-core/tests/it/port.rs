//! What a relay gives to its readers: samples as they came, and many streams behind one port. Spec: relay §3, §6.

mod dialling;
mod offers;
mod passing;
mod serving;
mod strangers;

use std::collections::HashMap;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use lsl_core::relay::{
    Duplex, Handler, Origin, Peer, Port, PortOptions, PortRequest, Refused, ReplayFrom, Served,
    StreamClock,
};
use lsl_core::secure::Cause;
use lsl_core::{ChannelFormat, Context, Generation, Outlet, Position, Retain, StreamInfo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lab::SOON;

fn info(name: &str, channels: u32, srate: f64, format: ChannelFormat) -> StreamInfo {
    StreamInfo::new(name, "Test", channels, srate, format, name).unwrap()
}

/// The streams of a relay, and what it was asked.
#[derive(Debug, Clone, Default)]
struct Streams(Arc<Mutex<HashMap<String, Stream>>>);

type Stream = (Arc<Outlet>, Arc<StreamClock>);

impl Streams {
    /// Adds a stream of three floats that came from elsewhere, from this number on.
    fn add(&self, context: &Context, name: &str, first: u64) -> Arc<Outlet> {
        let mut origin = info(name, 3, 0.0, ChannelFormat::Float32);
        origin.reset_uid(&format!("uid-of-{name}"));
        let retain = Retain {
            seconds: 30.0,
            bytes: 1 << 20,
            unread: true,
        };
        let generation = Generation::parse(b"0-a").unwrap();
        let first = Position {
            generation,
            next: first,
        };
        let outlet = Outlet::builder(origin).context(context).retain(retain);
        let clock = Arc::new(StreamClock::default());
        let origin = Origin {
            first,
            clock: Arc::clone(&clock),
        };
        let outlet = Arc::new(outlet.relayed(origin).unwrap());
        let uid = outlet.info().uid().into_owned();
        self.0
            .lock()
            .unwrap()
            .insert(uid, (Arc::clone(&outlet), clock));
        outlet
    }

    fn find(&self, uid: &[u8]) -> Option<Stream> {
        let uid = std::str::from_utf8(uid).ok()?;
        self.0.lock().unwrap().get(uid).cloned()
    }
}

/// Peers that were made to wait for a stream that never comes.
static WAITING: AtomicU32 = AtomicU32::new(0);

impl Handler for Streams {
    async fn stream(
        &self,
        uid: &[u8],
        _: Option<ReplayFrom>,
        peer: &Peer,
    ) -> Result<Served, Refused> {
        match uid {
            b"busy" => Err(Refused::Busy),
            b"never" => {
                WAITING.fetch_add(1, Ordering::Relaxed);
                std::future::pending().await
            }
            b"secret" if peer.is_local() => Err(Refused::NotFound),
            _ => Ok(self.find(uid).ok_or(Refused::NotFound)?.0.into()),
        }
    }

    fn shortinfo(&self, query: &[u8], _: &Peer) -> Vec<u8> {
        [b"<info>", query].concat()
    }

    fn fullinfo(&self, uid: &[u8], _: &Peer) -> Option<Vec<u8>> {
        Some(self.find(uid)?.0.info().to_xml())
    }

    fn clock(&self, uid: &[u8], _: &Peer) -> Option<Arc<StreamClock>> {
        Some(self.find(uid)?.1)
    }

    /// Says who asks what, then everything back, until `!`; on `?` whether that is a relay.
    async fn serve(&self, request: PortRequest, peer: Peer, mut duplex: Duplex) {
        let name = (peer.trusted.as_ref()).map_or("", |(_, name)| name);
        let greeting = format!("{name} {request:?}\n");
        if duplex.write_all(greeting.as_bytes()).await.is_err() {
            return;
        }
        let mut buffer = [0; 5000];
        while let Ok(length @ 1..) = duplex.read(&mut buffer).await {
            if buffer[..length].contains(&b'!') {
                return duplex.close(Some(Cause::RoleNotAllowed)).await;
            }
            if buffer[..length].contains(&b'?') {
                let _ = duplex.write_all(peer.is_relay.to_string().as_bytes()).await;
                return duplex.close(None).await;
            }
            let echo = async {
                duplex.write_all(&buffer[..length]).await?;
                duplex.flush().await
            };
            if echo.await.is_err() {
                return;
            }
        }
    }
}

/// A port on loopback that serves so many connections at a time.
fn port(context: &Context, streams: &Streams, most_connections: usize) -> Port {
    port_of("0123456789abcdef", context, streams, most_connections)
}

/// The same of the relay with this id.
fn port_of(id: &str, context: &Context, streams: &Streams, most_connections: usize) -> Port {
    let options = PortOptions {
        listen: vec![(Ipv4Addr::LOCALHOST, 0).into()],
        insecure: Vec::new(),
        id: id.into(),
        name: "hub".into(),
        most_connections,
    };
    Port::open(context, &options, streams.clone()).unwrap()
}

fn dial(port: &Port) -> TcpStream {
    let stream = TcpStream::connect_timeout(&port.addresses()[0], SOON).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_write_timeout(Some(SOON)).unwrap();
    stream
}

/// Everything up to the first of these bytes, and them.
fn read_to(stream: &mut impl Read, end: &[u8]) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.extend(byte);
    }
    String::from_utf8(bytes).unwrap()
}

/// Asks for a feed of a stream, with more header lines.
fn feed_request(uid: &str, more: &str) -> Vec<u8> {
    let order = lsl_proto::ByteOrder::NATIVE.code();
    format!(
        "LSL:streamfeed/110 {uid}\r\nNative-Byte-Order: {order}\r\nHas-IEEE754-Floats: 1\r\n\
         Supports-Subnormals: 1\r\nValue-Size: 4\r\nData-Protocol-Version: 110\r\n\
         Max-Buffer-Length: 1000\r\nMax-Chunk-Length: 0\r\n{more}\r\n"
    )
    .into_bytes()
}

/// Passes a sample on that has this value thrice, at this time.
fn pass(outlet: &Outlet, value: f32, stamp: f64) {
    let raw: Vec<u8> = [value; 3].iter().flat_map(|it| it.to_ne_bytes()).collect();
    outlet.push_run(&raw, &[stamp]).unwrap();
}

/// The stream of a relay as an inlet finds it.
fn found(port: &Port, outlet: &Outlet) -> StreamInfo {
    let SocketAddr::V4(address) = port.addresses()[0] else {
        panic!("listens at IPv4");
    };
    let mut info = outlet.info().clone();
    info.fill_v4_address(address.ip().to_string());
    // Nobody answers there.
    info.set_v4_ports(address.port(), 9);
    info
}
