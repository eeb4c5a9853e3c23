//! What a link costs: `cargo bench -p lsl-benches --bench relay`. Small frames on many substreams, at both
//! ends together; the bar for 1,000 is 0.6 µs a frame (relay §15).

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};

use lsl_relay::mux::{Event, Gathered, Limits, Mux, Read, Side};

/// A sample of 8 channels float32 with its time stamp.
const PAYLOAD: [u8; 41] = [7; 41];

const LIMITS: Limits = Limits {
    window: 65_536,
    streams: 4096,
};

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let mut group = criterion.benchmark_group("mux");
    for substreams in [1, 100, 1000, 4000] {
        let mut link = Link::new(substreams);
        group.throughput(Throughput::Elements(u64::from(substreams)));
        group.bench_function(BenchmarkId::new("41 bytes", substreams), |bencher| {
            bencher.iter(|| link.round());
        });
    }
    group.finish();
    criterion.final_summary();
}

/// Both ends of a link, and buffers.
struct Link {
    from: Mux,
    to: Mux,
    ids: Vec<u32>,
    gathered: Gathered,
    piece: Vec<u8>,
    now: f64,
}

impl Link {
    fn new(substreams: u32) -> Self {
        let mut from = Mux::new(Side::Dialler, LIMITS, LIMITS, 0.0);
        let ids = (0..substreams).filter_map(|_| from.open(b"LSL:streamfeed/110 x", false).ok());
        Self {
            ids: ids.collect(),
            from,
            to: Mux::new(Side::Acceptor, LIMITS, LIMITS, 0.0),
            gathered: Gathered::default(),
            piece: vec![0; 65_536],
            now: 0.0,
        }
    }

    /// Sends one frame on every substream, reads it at the other end, and brings credit back.
    fn round(&mut self) -> usize {
        self.now += 1e-3;
        for &id in &self.ids {
            self.from.write(id, &PAYLOAD, self.now);
        }
        let mut read = 0;
        while self.from.poll_transmit(self.now, &mut self.gathered) {
            self.to.handle_input(self.gathered.bytes(), self.now);
            while let Some(event) = self.to.poll_event() {
                if let Event::Readable(id) = event {
                    while let Read::Bytes(count) = self.to.read(id, &mut self.piece) {
                        read += count;
                    }
                }
            }
        }
        assert_eq!(read, PAYLOAD.len() * self.ids.len());
        while self.to.poll_transmit(self.now, &mut self.gathered) {
            self.from.handle_input(self.gathered.bytes(), self.now);
            while self.from.poll_event().is_some() {}
        }
        read
    }
}
