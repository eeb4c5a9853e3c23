//! A link of this program with a relay, on which it reads some substreams and gives others no credit.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lsl_cli::failure::{Failure, Outcome};
use lsl_core::local_clock;
use lsl_relay::RelayId;
use lsl_relay::hello::{Hello, HelloParser};
use lsl_relay::mux::{Code, Event, Gathered, Limits, Mux, Read as MuxRead, Side};

use super::others::{Seen, note};

/// What is read, and what is not.
pub(super) struct Reading<'a> {
    /// Port of the relay, to which this program is one without a key.
    pub(super) port: u16,
    /// Streams whose samples are taken as they come; these have `channels` float32 values.
    pub(super) taken: Vec<String>,
    pub(super) channels: usize,
    /// The stream of substreams that get no credit, and whether there are to be such.
    pub(super) left: String,
    pub(super) has_left: &'a AtomicBool,
    pub(super) is_over: &'a AtomicBool,
    pub(super) seen: &'a Seen,
}

/// Substreams that get no credit.
pub(super) const LEFT: usize = 16;

/// Links with the relay until it is over.
pub(super) fn read(reading: &Reading<'_>) -> Outcome {
    let (mut stream, mut mux) = link(reading.port)?;
    let mut feeds = HashMap::new();
    for uid in &reading.taken {
        feeds.insert(open(&mut mux, uid)?, Vec::new());
    }
    let (mut left, mut gathered) = (Vec::new(), Gathered::default());
    let mut input = vec![0; 64 << 10];
    while !reading.is_over.load(Ordering::Relaxed) {
        let has_left = reading.has_left.load(Ordering::Relaxed);
        while left.len() < LEFT && has_left {
            left.push(open(&mut mux, &reading.left)?);
        }
        for id in left.drain(if has_left { LEFT.. } else { 0.. }) {
            mux.reset(id, Code::DONE, "");
        }
        while mux.poll_transmit(local_clock(), &mut gathered) {
            stream.write_all(gathered.bytes())?;
        }
        match stream.read(&mut input) {
            Ok(0) => return Err(Failure::Lost("a relay closed a link".into())),
            Ok(count) => mux.handle_input(input.get(..count).unwrap_or_default(), local_clock()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
        mux.handle_timeout(local_clock());
        while let Some(event) = mux.poll_event() {
            match event {
                Event::Readable(id) => {
                    if let Some(bytes) = feeds.get_mut(&id) {
                        take(&mut mux, id, bytes, reading)?;
                    }
                }
                // Its watch of our streams, of which there are none.
                Event::Opened { id, .. } => mux.reset(id, Code::REFUSED, ""),
                Event::Closed { text, .. } => return Err(Failure::Lost(text)),
                Event::Reset { id, text, .. } if feeds.contains_key(&id) => {
                    return Err(Failure::Lost(text));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn link(port: u16) -> Outcome<(TcpStream, Mux)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let own = Hello {
        id: RelayId(7),
        name: "bench".into(),
        limits: Limits {
            window: 64 << 10,
            streams: 16,
        },
    };
    stream.write_all(&own.request())?;
    let mut parser = HelloParser::of_reply();
    let mut input = vec![0; 4096];
    loop {
        let count = stream.read(&mut input)?;
        let bytes = input.get(..count).unwrap_or_default();
        let greeted = parser.feed(bytes);
        let greeted = greeted.map_err(|error| Failure::Runtime(error.to_string()))?;
        if let Some((hello, taken)) = greeted {
            let mut mux = Mux::new(Side::Dialler, own.limits, hello.limits, local_clock());
            mux.handle_input(bytes.get(taken..).unwrap_or_default(), local_clock());
            stream.set_read_timeout(Some(Duration::from_millis(5)))?;
            return Ok((stream, mux));
        }
        if count == 0 {
            return Err(Failure::Lost("a relay closed a link".into()));
        }
    }
}

fn open(mux: &mut Mux, uid: &str) -> Outcome<u32> {
    let opened = mux.open(&request(uid), false);
    opened.map_err(|error| Failure::Runtime(error.to_string()))
}

/// Returns the request of a feed, with as long a queue as readers ask for.
pub(super) fn request(uid: &str) -> Vec<u8> {
    let headers = "Native-Byte-Order: 1234\r\nMax-Buffer-Length: 2880000\r\n\r\n";
    format!("LSL:streamfeed/110 {uid}\r\n{headers}").into_bytes()
}

/// Reads what came of a feed. `bytes` has what is not read yet; at the beginning that is the reply.
fn take(mux: &mut Mux, id: u32, bytes: &mut Vec<u8>, reading: &Reading<'_>) -> Outcome {
    let mut piece = [0; 4096];
    while let MuxRead::Bytes(count) = mux.read(id, &mut piece) {
        bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    let mut rest = bytes.as_slice();
    if rest.first() == Some(&b'L') {
        let end = rest.windows(4).position(|it| it == b"\r\n\r\n");
        let Some(end) = end.filter(|_| rest.starts_with(b"LSL/110 200")) else {
            return if rest.len() < 4096
                && b"LSL/110 200".starts_with(rest.get(..11).unwrap_or(rest))
            {
                Ok(())
            } else {
                Err(Failure::Runtime(String::from_utf8_lossy(rest).into_owned()))
            };
        };
        rest = rest.get(end + 4..).unwrap_or_default();
    }
    // A tag, the time if it is 2, and values. The time of test patterns is long ago.
    loop {
        let (stamp, after) = match rest.split_first() {
            Some((1, after)) => (None, after),
            Some((2, after)) => {
                let Some((stamp, after)) = after.split_first_chunk() else {
                    break;
                };
                (Some(f64::from_le_bytes(*stamp)), after)
            }
            Some((tag, _)) => return Err(Failure::Runtime(format!("tag {tag}"))),
            None => break,
        };
        let Some(after) = after.get(4 * reading.channels..) else {
            break;
        };
        rest = after;
        if let Some(stamp) = stamp {
            note(reading.seen, local_clock(), stamp);
        }
    }
    *bytes = rest.to_vec();
    Ok(())
}
