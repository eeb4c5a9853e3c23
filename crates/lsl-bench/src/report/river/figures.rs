//! Figures that others are held against: those of River's performance page, read off its plots, as
//! docs/spec/benchmarks.md §3 has them (Redis 5.0.6 on a Xeon W-2135, client on a Xeon E3, 1 GbE), and the goals of
//! docs/spec/relay.md §15.

use super::Part::{self, Events, Read, Stream, Write};

/// To the last of them River's page has no figure.
pub(super) const READERS: [u32; 6] = [1, 2, 4, 8, 16, 32];
pub(super) const SIZES: [u32; 5] = [8, 16, 32, 64, 128];

/// River: p95 in ms, by readers and bytes.
pub(super) const EVENTS: [[f64; 5]; 5] = [
    [0.191, 0.191, 0.192, 0.187, 0.184],
    [0.208, 0.178, 0.186, 0.191, 0.201],
    [0.248, 0.235, 0.247, 0.222, 0.202],
    [0.375, 0.382, 0.366, 0.330, 0.308],
    [0.541, 0.541, 0.519, 0.473, 0.439],
];

pub(super) const STREAM_BATCHES: [u32; 6] = [32, 64, 128, 256, 512, 1024];

/// River: p95 in ms, by batch. With the first it falls behind.
pub(super) const STREAM: [f64; 6] = [1.2, 1.7, 2.9, 5.1, 8.1, 14.5];

pub(super) const BATCHES: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// River: MiB/s written and read, by batch.
pub(super) const MAX: [(f64, f64); 8] = [
    (2.4, 2.4),
    (4.7, 4.7),
    (8.8, 9.0),
    (11.4, 6.8),
    (20.4, 13.7),
    (31.9, 24.8),
    (41.6, 40.3),
    (52.5, 33.7),
];

/// Goals of one way along a part of the grid: readers or batch, and the value there.
pub(super) struct Bar {
    pub(super) part: Part,
    pub(super) way: &'static str,
    pub(super) places: &'static [(u32, f64)],
}

const fn bar(part: Part, way: &'static str, places: &'static [(u32, f64)]) -> Bar {
    Bar { part, way, places }
}

/// Those of encryption are of docs/spec/audit.md §7.
pub(super) const BARS: &[Bar] = &[
    bar(Events, "direct", &[(1, 0.15), (4, 0.2), (16, 0.3)]),
    bar(Events, "relay", &[(1, 0.3), (4, 0.35), (16, 0.6)]),
    bar(Events, "packed", &[(1, 0.5), (4, 0.8), (16, 2.0)]),
    bar(Events, "river", &[(1, 0.5), (4, 0.8), (16, 2.0)]),
    bar(Stream, "direct", &[(32, 1.0), (128, 1.0), (1024, 2.0)]),
    bar(Stream, "relay", &[(32, 2.0), (128, 2.0), (1024, 4.0)]),
    bar(Stream, "packed", &[(32, 10.0), (128, 10.0), (1024, 15.0)]),
    bar(Stream, "river", &[(32, 2.0), (128, 3.0), (1024, 15.0)]),
    bar(
        Write,
        "direct",
        &[(1, 40.0), (16, 200.0), (64, 300.0), (128, 300.0)],
    ),
    bar(Write, "direct secure", &[(64, 250.0), (128, 250.0)]),
    bar(Write, "relay", &[(1, 40.0), (16, 200.0), (128, 250.0)]),
    bar(Write, "packed", &[(1, 100.0), (16, 240.0), (128, 350.0)]),
    bar(Write, "river", &[(1, 8.0), (16, 50.0), (128, 75.0)]),
    bar(
        Read,
        "direct",
        &[(1, 40.0), (16, 200.0), (64, 300.0), (128, 300.0)],
    ),
    bar(Read, "direct secure", &[(64, 250.0), (128, 250.0)]),
    bar(Read, "relay", &[(1, 40.0), (16, 200.0), (128, 250.0)]),
    bar(Read, "packed", &[(1, 100.0), (16, 240.0), (128, 350.0)]),
    bar(Read, "river", &[(1, 60.0), (16, 60.0), (128, 60.0)]),
];
