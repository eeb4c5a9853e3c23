//! Texts: stream infos, queries, requests.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use lsl_core::{ChannelFormat, Error, Result, StreamInfo};
use lsl_proto::ByteOrder;
use lsl_proto::query::{Query, QueryCache};
use lsl_proto::wire::request::{FeedRequest, RequestParser};

const QUERY: &str = "session_id='default' and name='BioSemi' and count(desc/channels/channel)=64";

/// 64 described channels.
fn info() -> Result<StreamInfo> {
    let format = ChannelFormat::Float32;
    let mut info = StreamInfo::new("BioSemi", "EEG", 64, 512.0, format, "src-42")?;
    let mut channels = info.desc_mut().into_child("channels");
    for channel in 0..64 {
        channels
            .append_child("channel")
            .set("label", format!("C{channel}"))
            .set("unit", "microvolts");
    }
    // Only an info that is served somewhere can be read.
    info.reset_uid("33333333-3333-4333-8333-333333333333");
    Ok(info)
}

/// `xml/shortinfo/write`, `xml/fullinfo/parse`: stream infos as they travel.
pub(crate) fn infos(criterion: &mut Criterion) -> Result<()> {
    let info = info()?;
    let (short, full) = (info.to_shortinfo_xml(), info.to_xml());
    // A bench of failing calls would look fast.
    StreamInfo::from_xml(&short)?;
    StreamInfo::from_xml(&full)?;

    let mut group = criterion.benchmark_group("xml/shortinfo");
    group.throughput(Throughput::Bytes(short.len() as u64));
    group.bench_function("parse", |bencher| {
        bencher.iter(|| StreamInfo::from_xml(black_box(&short)));
    });
    group.bench_function("write", |bencher| {
        bencher.iter(|| black_box(&info).to_shortinfo_xml());
    });
    group.finish();

    let mut group = criterion.benchmark_group("xml/fullinfo");
    group.throughput(Throughput::Bytes(full.len() as u64));
    group.bench_function("parse", |bencher| {
        bencher.iter(|| StreamInfo::from_xml(black_box(&full)));
    });
    group.bench_function("write", |bencher| {
        bencher.iter(|| black_box(&info).to_xml());
    });
    group.finish();
    Ok(())
}

/// `query/parse`, `query/cached` (the same text again), `query/match/…`.
pub(crate) fn queries(criterion: &mut Criterion) -> Result<()> {
    let mut group = criterion.benchmark_group("query");
    group.bench_function("parse", |bencher| {
        bencher.iter(|| Query::parse(black_box(QUERY)));
    });
    let mut cache = QueryCache::new(100);
    cache.parse(QUERY)?;
    group.bench_function("cached", |bencher| {
        bencher.iter(|| cache.parse(black_box(QUERY)));
    });
    let info = info()?;
    for (name, text) in [
        ("fields", "type='EEG' and name='BioSemi'"),
        ("prefix", "starts-with(name,'Bio') and channel_count>8"),
        ("channels", "count(//channel)=64"),
    ] {
        let query = Query::parse(text)?;
        if !info.matches(&query)? {
            return Err(Error::Argument(format!("{text} should match")));
        }
        group.bench_function(format!("match/{name}"), |bencher| {
            bencher.iter(|| black_box(&info).matches(black_box(&query)));
        });
    }
    group.finish();
    Ok(())
}

/// `request/parse`: what an inlet asks for when it connects.
pub(crate) fn requests(criterion: &mut Criterion) {
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
        replay_from: None,
    }
    .to_bytes();
    criterion.bench_function("request/parse", |bencher| {
        bencher.iter(|| RequestParser::new().feed(black_box(&request)));
    });
}
