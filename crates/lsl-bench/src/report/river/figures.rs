//! Figures that others are held against: those of River's performance page, read off its plots, as
//! docs/spec/benchmarks.md §3 has them (Redis 5.0.6 on a Xeon W-2135, client on a Xeon E3, 1 GbE), and the goals of
//! docs/spec/relay.md §15.

use super::Part;

pub(super) const READERS: [u32; 5] = [1, 2, 4, 8, 16];
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
    pub(super) places: [(u32, f64); 3],
}

const fn events(way: &'static str, [one, four, sixteen]: [f64; 3]) -> Bar {
    Bar {
        part: Part::Events,
        way,
        places: [(1, one), (4, four), (16, sixteen)],
    }
}

const fn stream(way: &'static str, [small, middle, large]: [f64; 3]) -> Bar {
    Bar {
        part: Part::Stream,
        way,
        places: [(32, small), (128, middle), (1024, large)],
    }
}

const fn max(part: Part, way: &'static str, [small, middle, large]: [f64; 3]) -> Bar {
    Bar {
        part,
        way,
        places: [(1, small), (16, middle), (128, large)],
    }
}

pub(super) const BARS: &[Bar] = &[
    events("direct", [0.15, 0.2, 0.3]),
    events("relay", [0.3, 0.35, 0.6]),
    events("packed", [0.5, 0.8, 2.0]),
    events("river", [0.5, 0.8, 2.0]),
    stream("direct", [1.0, 1.0, 2.0]),
    stream("relay", [2.0, 2.0, 4.0]),
    stream("packed", [10.0, 10.0, 15.0]),
    stream("river", [2.0, 3.0, 15.0]),
    max(Part::Write, "direct", [40.0, 200.0, 300.0]),
    max(Part::Write, "relay", [40.0, 200.0, 250.0]),
    max(Part::Write, "packed", [100.0, 240.0, 350.0]),
    max(Part::Write, "river", [8.0, 50.0, 75.0]),
    max(Part::Read, "direct", [40.0, 200.0, 300.0]),
    max(Part::Read, "relay", [40.0, 200.0, 250.0]),
    max(Part::Read, "packed", [100.0, 240.0, 350.0]),
    max(Part::Read, "river", [60.0, 60.0, 60.0]),
];
