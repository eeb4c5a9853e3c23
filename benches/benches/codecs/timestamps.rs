//! Timestamps after they arrived.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use lsl_core::ProcessingOptions;
use lsl_proto::clock::{ClockOffset, PostProcessor};

/// `postprocessing/dejitter`: one timestamp of a regular stream.
pub(crate) fn postprocessing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("postprocessing");
    group.throughput(Throughput::Elements(1));
    for (name, options) in [
        ("none", ProcessingOptions::NONE),
        ("clocksync", ProcessingOptions::CLOCKSYNC),
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
    group.finish();
}
