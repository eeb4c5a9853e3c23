//! What a sample, a stream info or a query costs: `cargo bench -p lsl-benches --bench codecs`.
//! The whole run takes about a minute.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};

use lsl_core::query::Query;
use lsl_core::time::{ClockOffset, PostProcessor};
use lsl_core::value::{append_raw, read_raw};
use lsl_core::wire::archive100::{Decoder100, Encoder100};
use lsl_core::wire::request::{FeedRequest, RequestParser};
use lsl_core::wire::sample110::{Decoder110, Encoder110};
use lsl_core::{ByteOrder, ChannelFormat, ProcessingOptions, Result, StreamInfo};

const CHANNELS: u32 = 64;
const SAMPLES_PER_CHUNK: usize = 64;
const FOREIGN: ByteOrder = match ByteOrder::NATIVE {
    ByteOrder::Little => ByteOrder::Big,
    ByteOrder::Big => ByteOrder::Little,
};

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    sample110(&mut criterion)?;
    archive100(&mut criterion)?;
    conversion(&mut criterion);
    texts(&mut criterion)?;
    timestamps(&mut criterion);
    criterion.final_summary();
    Ok(())
}

fn values(samples: usize) -> Vec<f32> {
    (0..=u16::MAX)
        .map(|n| f32::from(n) * 0.37 - 100.0)
        .take(samples * CHANNELS as usize)
        .collect()
}

fn sample110(criterion: &mut Criterion) -> Result<()> {
    let mut group = criterion.benchmark_group("sample110");
    for (order, endianness) in [(ByteOrder::NATIVE, "native"), (FOREIGN, "swapped")] {
        for samples in [1, SAMPLES_PER_CHUNK] {
            let encoder = Encoder110::new(ChannelFormat::Float32, CHANNELS, order);
            let values = values(samples);
            let mut wire = Vec::new();
            encoder.encode_chunk(&mut wire, 1.5, &values)?;
            group.throughput(Throughput::Bytes(wire.len() as u64));
            let name = format!("float32x{CHANNELS}x{samples}/{endianness}");
            let mut out = Vec::with_capacity(wire.len());
            group.bench_function(format!("encode/{name}"), |bencher| {
                bencher.iter(|| {
                    out.clear();
                    encoder.encode_chunk(&mut out, 1.5, black_box(&values))
                });
            });
            let decoder = Decoder110::new(ChannelFormat::Float32, CHANNELS, order);
            decode110(&mut group, &format!("decode/{name}"), decoder, &wire);
        }
    }

    let encoder = Encoder110::new(ChannelFormat::String, 1, ByteOrder::NATIVE);
    let marker = ["stimulus/left/17"];
    let mut wire = Vec::new();
    encoder.encode_sample(&mut wire, 1.5, &marker)?;
    group.throughput(Throughput::Bytes(wire.len() as u64));
    let mut out = Vec::with_capacity(wire.len());
    group.bench_function("encode/string", |bencher| {
        bencher.iter(|| {
            out.clear();
            encoder.encode_sample(&mut out, 1.5, black_box(&marker))
        });
    });
    let decoder = Decoder110::new(ChannelFormat::String, 1, ByteOrder::NATIVE);
    decode110(&mut group, "decode/string", decoder, &wire);
    Ok(())
}

fn decode110(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    mut decoder: Decoder110,
    wire: &[u8],
) {
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            decoder.decode(black_box(wire), &mut |stamp: Option<f64>, raw: &[u8]| {
                black_box((stamp, raw));
            })
        });
    });
}

fn archive100(criterion: &mut Criterion) -> Result<()> {
    let mut group = criterion.benchmark_group("archive100");
    let encoder = Encoder100::new(ChannelFormat::Float32, CHANNELS);
    let values = values(1);
    let mut wire = Vec::new();
    encoder.encode_sample(&mut wire, 1.5, &values)?;
    group.throughput(Throughput::Bytes(wire.len() as u64));
    let mut out = Vec::with_capacity(wire.len());
    group.bench_function("encode/float32x64", |bencher| {
        bencher.iter(|| {
            out.clear();
            encoder.encode_sample(&mut out, 1.5, black_box(&values))
        });
    });
    let mut preamble = Vec::new();
    encoder.encode_preamble(&mut preamble, b"<info />");
    let mut decoder = Decoder100::new(ChannelFormat::Float32, CHANNELS);
    let mut sink = |stamp: Option<f64>, raw: &[u8]| {
        black_box((stamp, raw));
    };
    decoder.decode(&preamble, &mut sink)?;
    group.bench_function("decode/float32x64", |bencher| {
        bencher.iter(|| decoder.decode(black_box(&wire), &mut sink));
    });
    Ok(())
}

fn conversion(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("value");
    let values = values(SAMPLES_PER_CHUNK);
    group.throughput(Throughput::Elements(values.len() as u64));
    let mut raw = Vec::new();
    group.bench_function("push/float32-to-int16", |bencher| {
        bencher.iter(|| {
            raw.clear();
            append_raw(black_box(&values), ChannelFormat::Int16, &mut raw);
        });
    });
    let mut doubles = vec![0.0_f64; values.len()];
    group.bench_function("pull/int16-to-double64", |bencher| {
        bencher.iter(|| read_raw(black_box(&raw), ChannelFormat::Int16, &mut doubles));
    });
}

fn texts(criterion: &mut Criterion) -> Result<()> {
    let mut group = criterion.benchmark_group("text");
    let mut info = StreamInfo::new(
        "BioSemi",
        "EEG",
        CHANNELS,
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

    let short = info.to_shortinfo_xml();
    let full = info.to_xml();
    group.throughput(Throughput::Bytes(short.len() as u64));
    group.bench_function("shortinfo/write", |bencher| {
        bencher.iter(|| black_box(&info).to_shortinfo_xml());
    });
    group.bench_function("shortinfo/parse", |bencher| {
        bencher.iter(|| StreamInfo::from_xml(black_box(&short)));
    });
    group.throughput(Throughput::Bytes(full.len() as u64));
    group.bench_function("fullinfo/parse", |bencher| {
        bencher.iter(|| StreamInfo::from_xml(black_box(&full)));
    });

    group.throughput(Throughput::Elements(1));
    let text = "session_id='default' and name='BioSemi' and count(desc/channels/channel)=64";
    group.bench_function("query/parse", |bencher| {
        bencher.iter(|| Query::parse(black_box(text)));
    });
    for (name, text) in [
        ("match-fields", "session_id='default' and name='BioSemi'"),
        ("match-channels", "count(//channel)=64"),
    ] {
        let query = Query::parse(text)?;
        group.bench_function(format!("query/{name}"), |bencher| {
            bencher.iter(|| black_box(&info).matches(black_box(&query)));
        });
    }

    let request = FeedRequest {
        version: 110,
        uid: b"33333333-3333-4333-8333-333333333333",
        byte_order: ByteOrder::NATIVE,
        format: ChannelFormat::Float32,
        max_buffer_samples: 36_000,
        max_chunk_samples: 0,
        hostname: b"lab-pc",
        source_id: b"src-42",
        session_id: b"default",
    }
    .to_bytes();
    group.bench_function("request/parse", |bencher| {
        bencher.iter(|| RequestParser::new().feed(black_box(&request)));
    });
    Ok(())
}

fn timestamps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("timestamps");
    group.throughput(Throughput::Elements(1));
    for (name, options) in [
        ("dejitter", ProcessingOptions::DEJITTER),
        ("all", ProcessingOptions::ALL),
    ] {
        let mut processor = PostProcessor::new(512.0, 90.0);
        processor.set_options(options);
        let mut now = 1000.0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                now += 1.0 / 512.0;
                let offset = || {
                    Some(ClockOffset {
                        offset_secs: 12.5,
                        was_reset: false,
                    })
                };
                processor.process(black_box(now - 0.001), now, offset)
            });
        });
    }
}
