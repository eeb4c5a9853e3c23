//! Samples: encoded, decoded, and converted from one type of value to another.

use std::hint::black_box;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use lsl_core::{ChannelFormat, DEDUCED_TIMESTAMP, PullElement, PushElement, Result};
use lsl_proto::ByteOrder;
use lsl_proto::value::{append_raw, read_raw};
use lsl_proto::wire::archive100::{Decoder100, Encoder100};
use lsl_proto::wire::sample110::{Decoder110, Encoder110};

const CHANNELS: [u32; 4] = [1, 8, 64, 256];

const FOREIGN: ByteOrder = match ByteOrder::NATIVE {
    ByteOrder::Little => ByteOrder::Big,
    ByteOrder::Big => ByteOrder::Little,
};

/// How samples travel.
#[derive(Debug, Clone, Copy)]
enum Codec {
    V110(ByteOrder),
    V100,
}

/// With what a format's name is continued.
const CODECS: [(&str, Codec); 3] = [
    ("", Codec::V110(ByteOrder::NATIVE)),
    ("-swapped", Codec::V110(FOREIGN)),
    ("-100", Codec::V100),
];

/// `codec/encode/float32-swapped/64`: one sample of 64 channels, from the type that the stream carries.
pub(crate) fn codecs(criterion: &mut Criterion) -> Result<()> {
    for channels in CHANNELS {
        let numbers = || (0..=u16::MAX).cycle().take(channels as usize);
        let floats: Vec<f32> = numbers().map(|n| f32::from(n) * 0.37 - 10.0).collect();
        let doubles: Vec<f64> = numbers().map(|n| f64::from(n) * 0.37 - 10.0).collect();
        let longs: Vec<i64> = numbers().map(|n| i64::from(n) - 100).collect();
        let ints: Vec<i32> = numbers().map(|n| i32::from(n) - 100).collect();
        let shorts: Vec<i16> = numbers().map(u16::cast_signed).collect();
        let bytes: Vec<i8> = numbers()
            .map(|n| n.to_le_bytes()[0].cast_signed())
            .collect();
        let texts: Vec<String> = numbers().map(|n| format!("stimulus/{n}")).collect();
        let mut bench = Bench {
            criterion,
            channels,
        };
        bench.both_ways(ChannelFormat::Float32, &floats)?;
        bench.both_ways(ChannelFormat::Double64, &doubles)?;
        bench.both_ways(ChannelFormat::Int64, &longs)?;
        bench.both_ways(ChannelFormat::Int32, &ints)?;
        bench.both_ways(ChannelFormat::Int16, &shorts)?;
        bench.both_ways(ChannelFormat::Int8, &bytes)?;
        bench.both_ways(ChannelFormat::String, &texts)?;
    }
    Ok(())
}

struct Bench<'a> {
    criterion: &'a mut Criterion,
    channels: u32,
}

impl Bench<'_> {
    fn both_ways<T: PushElement>(&mut self, format: ChannelFormat, values: &[T]) -> Result<()> {
        for (suffix, codec) in CODECS {
            let id = || BenchmarkId::new(format!("{format}{suffix}"), self.channels);
            let encode = encoder(codec, format, self.channels);
            let mut wire = Vec::new();
            encode(&mut wire, values)?;
            let throughput = Throughput::Bytes(wire.len() as u64);

            let mut group = self.criterion.benchmark_group("codec/encode");
            group.throughput(throughput.clone());
            let mut out = Vec::with_capacity(wire.len());
            group.bench_function(id(), |bencher| {
                bencher.iter(|| {
                    out.clear();
                    encode(&mut out, black_box(values))
                });
            });
            group.finish();

            let mut group = self.criterion.benchmark_group("codec/decode");
            group.throughput(throughput);
            match codec {
                Codec::V110(order) => {
                    let decoder = Decoder110::new(format, self.channels, order);
                    decode110(&mut group, id(), decoder, &wire);
                }
                Codec::V100 => decode100(&mut group, id(), format, self.channels, &wire)?,
            }
            group.finish();
        }
        Ok(())
    }
}

/// Appends one sample as `codec` writes it.
fn encoder<T: PushElement>(
    codec: Codec,
    format: ChannelFormat,
    channels: u32,
) -> impl Fn(&mut Vec<u8>, &[T]) -> Result<()> {
    let (order, is_archive) = match codec {
        Codec::V110(order) => (order, false),
        Codec::V100 => (ByteOrder::NATIVE, true),
    };
    let sample110 = Encoder110::new(format, channels, order);
    let archive100 = Encoder100::new(format, channels);
    move |out, values| {
        if is_archive {
            archive100.encode_sample(out, STAMP, values)
        } else {
            sample110.encode_sample(out, STAMP, values)
        }
    }
}

fn decode110(
    group: &mut BenchmarkGroup<'_, WallTime>,
    id: BenchmarkId,
    mut decoder: Decoder110,
    wire: &[u8],
) {
    group.bench_function(id, |bencher| {
        bencher.iter(|| {
            decoder.decode(black_box(wire), &mut |stamp: Option<f64>, raw: &[u8]| {
                black_box((stamp, raw));
            })
        });
    });
}

fn decode100(
    group: &mut BenchmarkGroup<'_, WallTime>,
    id: BenchmarkId,
    format: ChannelFormat,
    channels: u32,
    wire: &[u8],
) -> Result<()> {
    let mut preamble = Vec::new();
    Encoder100::new(format, channels).encode_preamble(&mut preamble, b"<info />");
    let mut decoder = Decoder100::new(format, channels);
    let mut sink = |stamp: Option<f64>, raw: &[u8]| {
        black_box((stamp, raw));
    };
    decoder.decode(&preamble, &mut sink)?;
    group.bench_function(id, |bencher| {
        bencher.iter(|| decoder.decode(black_box(wire), &mut sink));
    });
    Ok(())
}

/// `codec/encode-chunk/float32/64`: 64 samples of 64 channels at once.
pub(crate) fn chunks(criterion: &mut Criterion) {
    const SAMPLES: usize = 64;
    let values: Vec<f32> = (0..64 * 64_u16).map(f32::from).collect();
    for (order, suffix) in [(ByteOrder::NATIVE, ""), (FOREIGN, "-swapped")] {
        let id = || BenchmarkId::new(format!("float32{suffix}"), 64);
        let encoder = Encoder110::new(ChannelFormat::Float32, 64, order);
        let stamp = |n: usize| if n == 0 { STAMP } else { DEDUCED_TIMESTAMP };
        let (mut wire, mut ends) = (Vec::new(), Vec::new());
        encoder.encode_run(&values, stamp, usize::MAX, &mut wire, &mut ends);

        let mut group = criterion.benchmark_group("codec/encode-chunk");
        group.throughput(Throughput::Elements(SAMPLES as u64));
        let mut out = Vec::with_capacity(wire.len());
        group.bench_function(id(), |bencher| {
            bencher.iter(|| {
                out.clear();
                encoder.encode_run(black_box(&values), stamp, usize::MAX, &mut out, &mut ends)
            });
        });
        group.finish();

        let mut group = criterion.benchmark_group("codec/decode-chunk");
        group.throughput(Throughput::Elements(SAMPLES as u64));
        let decoder = Decoder110::new(ChannelFormat::Float32, 64, order);
        decode110(&mut group, id(), decoder, &wire);
        group.finish();
    }
}

/// `value/push/float32-to-int16`: 64 values from what is pushed to what the stream carries, and
/// `value/pull/…`: from there to what is pulled.
pub(crate) fn values(criterion: &mut Criterion) {
    let floats: Vec<f32> = (0..64_u8).map(|n| f32::from(n) * 0.37 - 10.0).collect();
    let doubles: Vec<f64> = floats.iter().copied().map(f64::from).collect();
    let longs: Vec<i64> = (0..64).collect();
    let texts: Vec<String> = floats.iter().map(f32::to_string).collect();
    let mut group = criterion.benchmark_group("value/push");
    group.throughput(Throughput::Elements(64));
    push(&mut group, "float32", &floats, ChannelFormat::Float32);
    push(&mut group, "float32", &floats, ChannelFormat::Double64);
    push(&mut group, "float32", &floats, ChannelFormat::Int16);
    push(&mut group, "float32", &floats, ChannelFormat::String);
    push(&mut group, "double64", &doubles, ChannelFormat::Float32);
    push(&mut group, "int64", &longs, ChannelFormat::Float32);
    push(&mut group, "string", &texts, ChannelFormat::Float32);
    group.finish();

    let mut group = criterion.benchmark_group("value/pull");
    group.throughput(Throughput::Elements(64));
    pull::<f32>(&mut group, &floats, ChannelFormat::Float32, "float32");
    pull::<f64>(&mut group, &floats, ChannelFormat::Float32, "double64");
    pull::<f64>(&mut group, &floats, ChannelFormat::Int16, "double64");
    pull::<i16>(&mut group, &floats, ChannelFormat::Double64, "int16");
    pull::<f32>(&mut group, &floats, ChannelFormat::Int64, "float32");
    pull::<f32>(&mut group, &floats, ChannelFormat::String, "float32");
    pull::<String>(&mut group, &floats, ChannelFormat::Float32, "string");
    group.finish();
}

fn push<T: PushElement>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    from: &str,
    values: &[T],
    to: ChannelFormat,
) {
    let mut raw = Vec::new();
    group.bench_function(format!("{from}-to-{to}"), |bencher| {
        bencher.iter(|| {
            raw.clear();
            append_raw(black_box(values), to, &mut raw);
        });
    });
}

fn pull<T: PullElement + Default + Clone>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    pushed: &[f32],
    from: ChannelFormat,
    to: &str,
) {
    let mut raw = Vec::new();
    append_raw(pushed, from, &mut raw);
    let mut values = vec![T::default(); pushed.len()];
    group.bench_function(format!("{from}-to-{to}"), |bencher| {
        bencher.iter(|| read_raw(black_box(&raw), from, &mut values));
    });
}

const STAMP: f64 = 1.5;
