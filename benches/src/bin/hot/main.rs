//! Hot paths without sockets, each alone, for `cargo xtask instructions` to count.
//!
//! ```text
//! hot --list           names, one per line
//! hot CASE TIMES       does the work of CASE that often
//! hot --timing         whether refusing forgeries takes a time that tells of them
//! ```
//!
//! What a path costs is the difference of two runs that differ in `TIMES` alone, so that starting the
//! program and setting the case up cancel out. Every case works on the same data each time, and checks
//! at the end that the work was done.
#![expect(clippy::print_stdout, reason = "a command-line program")]

use std::cell::Cell;
use std::error::Error;
use std::hint::black_box;
use std::io;
use std::process::ExitCode;
use std::rc::Rc;

use lsl_core::secure::Suites;
use lsl_core::{ChannelFormat, ProcessingOptions, Pushthrough, StreamInfo};
use lsl_proto::ByteOrder;
use lsl_proto::clock::{ClockOffset, PostProcessor};
use lsl_proto::inlet::SampleRing;
use lsl_proto::outlet::encoder::{Piece, Variant};
use lsl_proto::outlet::fanout::{Caller, Fanout, FeedLimits, Inline, Position, Transmit};
use lsl_proto::query::{Query, QueryCache};
use lsl_proto::transport::{Control, Tx};
use lsl_proto::value::{append_raw, read_raw};
use lsl_proto::wire::sample110::{Decoder110, Encoder110};

use audit::Log;
use sealing::Ends;

mod audit;
mod sealing;
mod timing;

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

const CHANNELS: usize = 64;
const SHAPE: u32 = 64;
const BATCH: usize = 64;

/// A path by name.
type Case = (&'static str, fn(usize) -> Result);

const CASES: &[Case] = &[
    ("push/sample", |times| push(times, 1)),
    ("push/chunk-of-64", |times| push(times, BATCH)),
    ("pull/sample", |times| pull(times, 1)),
    ("pull/chunk-of-64", |times| pull(times, BATCH)),
    ("value/float32-to-int16", value_in),
    ("value/int16-to-double64", value_out),
    ("secure/chacha20/seal", |times| {
        sealing::records(times, Suites::ChaCha20Only, Ends::Seal)
    }),
    ("secure/chacha20/seal-open", |times| {
        sealing::records(times, Suites::ChaCha20Only, Ends::SealAndOpen)
    }),
    ("secure/aes256gcm/seal", |times| {
        sealing::records(times, Suites::Both, Ends::Seal)
    }),
    ("secure/aes256gcm/seal-open", |times| {
        sealing::records(times, Suites::Both, Ends::SealAndOpen)
    }),
    ("audit/none", |times| audit::handshakes(times, Log::None)),
    ("audit/off", |times| audit::handshakes(times, Log::Off)),
    ("audit/on", |times| audit::handshakes(times, Log::On)),
    ("query/parse", query_parse),
    ("query/cached", query_cached),
    ("query/match-fields", |times| {
        query_match(times, "type='EEG' and name='BioSemi'")
    }),
    ("query/match-channels", |times| {
        query_match(times, "count(//channel)=64")
    }),
    ("shortinfo/parse", shortinfo_parse),
    ("shortinfo/write", shortinfo_write),
    ("fullinfo/parse", fullinfo_parse),
    ("timestamps/all", timestamps),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["--list"] => {
            for (name, _) in CASES {
                println!("{name}");
            }
            Ok(())
        }
        ["--timing"] => timing::run(),
        [case, times] => run(case, times),
        _ => Err("hot --list, hot --timing, or hot CASE TIMES".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("hot: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(case: &str, times: &str) -> Result {
    let (_, work) = CASES
        .iter()
        .find(|(name, _)| *name == case)
        .ok_or_else(|| format!("no such case: {case}"))?;
    work(times.parse()?)
}

/// A connection whose socket always has room.
#[derive(Debug)]
struct Sink {
    tx: Tx,
    bytes: Rc<Cell<usize>>,
}

impl Transmit for Sink {
    type Info = ();

    fn send(&mut self, bytes: &[u8], _: Caller) -> io::Result<usize> {
        let Self { tx, bytes: sent } = self;
        tx.send(
            bytes,
            || 0.0,
            |bytes| {
                sent.set(sent.get() + black_box(bytes).len());
                Ok(bytes.len())
            },
        )
    }

    fn queue(&mut self, bytes: &[u8]) {
        self.tx.queue(bytes);
    }

    fn flush(&mut self, _: Caller) -> io::Result<bool> {
        self.tx.flush(|| 0.0, |bytes| Ok(bytes.len()))
    }

    fn has_unsent(&self) -> bool {
        self.tx.unsent() > 0
    }

    fn queued_bytes(&self) -> usize {
        self.tx.unsent()
    }

    fn control(&mut self, control: Control) {
        self.tx.control(control);
    }

    fn wake(&self) {}
}

/// Encodes samples and hands them to one reader that has caught up, as an outlet does in a push.
fn push(times: usize, batch: usize) -> Result {
    let values = vec![1.5_f32; CHANNELS * batch];
    let encoder = Encoder110::new(ChannelFormat::Float32, SHAPE, ByteOrder::NATIVE);
    let mut fanout = Fanout::default();
    let limits = FeedLimits {
        capacity: 360_000,
        chunk: 1,
        coalesces: false,
        is_granted: false,
    };
    let received = Rc::new(Cell::new(0));
    let sink = Sink {
        tx: Tx::plain(),
        bytes: Rc::clone(&received),
    };
    let mut at = Position {
        variant: Variant::V110(ByteOrder::NATIVE),
        first: 0,
    };
    fanout.join(sink, (), at.variant, limits, 0..0);

    let (mut piece, mut bytes) = (Piece::default(), 0);
    for _ in 0..times {
        piece.bytes.clear();
        piece.ends.clear();
        for sample in black_box(&values).chunks_exact(CHANNELS) {
            encoder.encode_sample(&mut piece.bytes, 1.5, sample)?;
            piece.ends.push(piece.bytes.len());
        }
        let sent = piece.bytes.len();
        fanout.publish(&mut piece, at, Pushthrough::Flush, Inline::Always, 0.0);
        at.first += batch as u64;
        bytes += sent;
    }
    let (_, (), progress) = fanout.consumers().next().ok_or("the reader is gone")?;
    check(received.get() == bytes && fanout.is_flushed())?;
    check(progress.sent == (batch * times) as u64)
}

/// Decodes what one read of an inlet's socket gave into its buffer, and pulls it as doubles.
fn pull(times: usize, batch: usize) -> Result {
    let values = vec![1.5_f32; CHANNELS * batch];
    let encoder = Encoder110::new(ChannelFormat::Float32, SHAPE, ByteOrder::NATIVE);
    let mut wire = Vec::new();
    for sample in values.chunks_exact(CHANNELS) {
        encoder.encode_sample(&mut wire, 1.5, sample)?;
    }
    let mut decoder = Decoder110::new(ChannelFormat::Float32, SHAPE, ByteOrder::NATIVE);
    let mut ring = SampleRing::new(360_000, usize::MAX);
    let mut pulled = vec![0.0_f64; CHANNELS];
    let mut count = 0;
    for _ in 0..times {
        let mut sink = |stamp: Option<f64>, raw: &[u8]| {
            ring.push(stamp.unwrap_or_default(), raw);
        };
        decoder.decode(black_box(&wire), &mut sink)?;
        while let Some((stamp, raw)) = ring.front() {
            read_raw(raw, ChannelFormat::Float32, &mut pulled)?;
            black_box((stamp, &pulled));
            ring.pop_many(1);
            count += 1;
        }
    }
    check(count == batch * times && pulled == [1.5; CHANNELS])
}

fn value_in(times: usize) -> Result {
    let values = vec![1.5_f32; CHANNELS];
    let mut raw = Vec::new();
    for _ in 0..times {
        raw.clear();
        append_raw(black_box(&values), ChannelFormat::Int16, &mut raw);
    }
    check(raw.len() == 2 * CHANNELS)
}

fn value_out(times: usize) -> Result {
    let mut raw = Vec::new();
    append_raw(&[7_i16; CHANNELS], ChannelFormat::Int16, &mut raw);
    let mut values = vec![0.0_f64; CHANNELS];
    for _ in 0..times {
        read_raw(black_box(&raw), ChannelFormat::Int16, &mut values)?;
        black_box(&mut values);
    }
    check(values == [7.0; CHANNELS])
}

fn query_parse(times: usize) -> Result {
    for _ in 0..times {
        black_box(Query::parse(black_box(QUERY))?);
    }
    Ok(())
}

fn query_cached(times: usize) -> Result {
    let mut cache = QueryCache::new(100);
    for _ in 0..times {
        black_box(cache.parse(black_box(QUERY))?);
    }
    check(cache.len() == 1)
}

fn query_match(times: usize, text: &str) -> Result {
    let info = info()?;
    let query = Query::parse(text)?;
    let mut matches = 0;
    for _ in 0..times {
        matches += usize::from(black_box(&info).matches(black_box(&query))?);
    }
    check(matches == times)
}

fn shortinfo_parse(times: usize) -> Result {
    let short = info()?.to_shortinfo_xml();
    for _ in 0..times {
        black_box(StreamInfo::from_xml(black_box(&short))?);
    }
    Ok(())
}

fn shortinfo_write(times: usize) -> Result {
    let info = info()?;
    for _ in 0..times {
        black_box(black_box(&info).to_shortinfo_xml());
    }
    Ok(())
}

fn fullinfo_parse(times: usize) -> Result {
    let full = info()?.to_xml();
    for _ in 0..times {
        black_box(StreamInfo::from_xml(black_box(&full))?);
    }
    Ok(())
}

fn timestamps(times: usize) -> Result {
    let mut processor = PostProcessor::new(512.0, 90.0);
    processor.set_options(ProcessingOptions::ALL);
    let mut now = 1000.0;
    for _ in 0..times {
        now += 1.0 / 512.0;
        let offset = || {
            Some(ClockOffset {
                offset_secs: 12.5,
                was_reset: false,
            })
        };
        let stamp = processor.process(black_box(now - 0.001), now, offset);
        check(stamp.is_ok_and(|stamp| stamp > 900.0))?;
    }
    Ok(())
}

/// The stream that texts are about: 64 described channels.
fn info() -> Result<StreamInfo> {
    let mut info = StreamInfo::new(
        "BioSemi",
        "EEG",
        SHAPE,
        512.0,
        ChannelFormat::Float32,
        "src-42",
    )?;
    let mut channels = info.desc_mut().into_child("channels");
    for channel in 0..CHANNELS {
        channels
            .append_child("channel")
            .set("label", format!("C{channel}"))
            .set("unit", "microvolts");
    }
    // Only an info that is served somewhere can be read.
    info.reset_uid("33333333-3333-4333-8333-333333333333");
    Ok(info)
}

/// A count of work that was not done would look low.
fn check(done: bool) -> Result {
    if done {
        Ok(())
    } else {
        Err("the work was not done".into())
    }
}

const QUERY: &str = "session_id='default' and name='BioSemi' and count(desc/channels/channel)=64";
