//! Connections that break, and what comes after: nothing is lost that the outlet retains, and nothing comes
//! twice. Spec: resume §9.

mod bystanders;
mod cutting;
mod history;
mod killed;
mod limits;
mod restarting;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lsl_core::secure::Policy;
use lsl_core::{ChannelFormat, Context, Inlet, Outlet, StreamInfo};

use crate::lab::{self, SOON};
use crate::secure::people::Place;
use cutting::Cutter;

/// Settings of outlets that can be reached in one way. They retain their samples, as ever.
const RETAINING: &[(&str, &str)] = &[("ports.IPv6", "disable")];

/// Programs at both ends, each in a context of its own.
struct Ends {
    outlet: Context,
    inlet: Context,
    /// Bytes by which a connection is sure to be complete.
    complete_bytes: usize,
    _place: Option<Place>,
}

impl Ends {
    fn plain() -> Self {
        let context = lab::context_with(RETAINING);
        Self {
            outlet: context.clone(),
            inlet: context,
            complete_bytes: 400,
            _place: None,
        }
    }

    fn encrypted() -> Self {
        let place = Place::with(RETAINING);
        let amp = place.side("amp", Policy::Required, &["rec"]);
        let rec = place.side("rec", Policy::Required, &["amp"]);
        Self {
            outlet: amp.context.clone(),
            inlet: rec.context.clone(),
            complete_bytes: 4000,
            _place: Some(place),
        }
    }

    /// An inlet on the stream of this name, through `cutter`.
    fn inlet_through(&self, name: &str, cutter: &Cutter) -> Inlet {
        let info = cutter.in_place_of(&lab::find(&self.inlet, name));
        let inlet = Inlet::builder(&info).context(&self.inlet).create().unwrap();
        inlet.blocking().open(SOON).unwrap();
        inlet
    }
}

fn info(name: &str, channels: u32, srate: f64, format: ChannelFormat) -> StreamInfo {
    StreamInfo::new(name, "Test", channels, srate, format, format!("src-{name}")).unwrap()
}

/// Number of cuts of each stream; 200 in the campaign.
fn cuts() -> u64 {
    let told = std::env::var("LSL_TEST_CUTS").ok();
    told.map_or(15, |cuts| cuts.parse().unwrap())
}

/// Returns the number of rounds of other tests: `gate`, and 50 in the campaign.
fn rounds(gate: u64) -> u64 {
    if in_campaign() { 50 } else { gate }
}

/// Whether there is time for what takes long.
fn in_campaign() -> bool {
    cuts() >= 200
}

/// Ends a thread also if the test fails.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Least size of the ring of an inlet here.
const RING_SAMPLES: u64 = 36_000;

/// One sample as a pull gives it, whatever its format.
fn pull(inlet: &Inlet) -> (u64, Vec<Vec<u8>>) {
    let channels = inlet.info().channel_count() as usize;
    let mut texts = vec![Vec::<u8>::new(); channels];
    let mut numbers = vec![0.0_f64; channels];
    let stamp = if inlet.info().channel_format() == ChannelFormat::String {
        inlet.blocking().pull(&mut texts, SOON)
    } else {
        let pulled = inlet.blocking().pull(&mut numbers, SOON);
        texts = numbers.iter().map(|it| it.to_ne_bytes().to_vec()).collect();
        pulled
    };
    (stamp.unwrap().expect("a sample").to_bits(), texts)
}

/// Pushes samples with `push`, which gets the number of the first one and returns how many it pushed, while a
/// connection is cut again and again. Two inlets read; one of them is never cut, and both get the same.
fn survives(ends: &Ends, info: StreamInfo, push: impl Fn(&Outlet, u64) -> u64 + Sync) {
    let name = info.name().into_owned();
    let outlet = Outlet::builder(info).context(&ends.outlet).open().unwrap();
    let whole = lab::inlet(&ends.inlet, &name);
    let cutter = Cutter::start(whole.info(), 1, ends.complete_bytes);
    let cut = ends.inlet_through(&name, &cutter);
    let (is_over, read) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let end = OnDrop(&is_over);
        let pusher = scope.spawn(|| {
            let mut pushed = 0;
            while !is_over.load(Ordering::Relaxed) {
                // Both rings have room, however little of the processors this test gets.
                if pushed < read.load(Ordering::Relaxed) + RING_SAMPLES / 2 {
                    pushed += push(&outlet, pushed);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            pushed
        });
        let mut pulled = 0;
        while cut.stats().reconnects < cuts() {
            let (got, expected) = (pull(&cut), pull(&whole));
            let stats = (cut.stats(), whole.stats(), outlet.stats());
            assert_eq!(got, expected, "{name}, sample {pulled}: {stats:?}");
            pulled += 1;
            read.store(pulled, Ordering::Relaxed);
        }
        drop(end);
        for sample in pulled..pusher.join().unwrap() {
            assert_eq!(pull(&cut), pull(&whole), "{name}, sample {sample}");
        }
    });
    let stats = cut.stats();
    let lost = (stats.lost_exact, stats.lost_unknown, stats.dropped);
    assert_eq!(lost, (0, 0, 0), "{name}: {stats:?}");
    assert_eq!((stats.resumed, stats.generations), (stats.reconnects, 1));
    // Those that were cut before they were complete count as none.
    assert!((cuts()..=cutter.cuts()).contains(&stats.reconnects) && stats.replayed > 0);
    assert!(outlet.stats().resumed >= stats.resumed);
    assert_eq!(cut.position().unwrap().next, outlet.stats().samples);
    assert!(cut.take_gaps(usize::MAX).is_empty());
}
