//! Nothing is allocated per sample once a stream runs, on either side, plain or encrypted.
//!
//! Counts every allocation of this process, in which the outlet, the inlet and the library's own thread
//! live, while N samples are streamed over loopback and while twice as many are: the difference is what
//! samples cost. A test binary of its own, because nothing else may allocate meanwhile. When it fails,
//! `dhat-heap.json` in cargo's folder for test files says where the allocations were.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "test code: a wrong value fails the test"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lsl_core::config::Config;
use lsl_core::secure::config::Settings;
use lsl_core::secure::trust::TrustList;
use lsl_core::secure::{Policy, SecretKey, Security};
use lsl_core::{ChannelFormat, Context, Inlet, Outlet, Selector, StreamInfo};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const CHANNELS: usize = 64;

/// Samples of the shorter run; many, so that what happens once a second does not look like theirs.
const SAMPLES: usize = 6400;

/// Far more than anything here takes; only a hang reaches it.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn samples_cost_no_allocation() {
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dhat-heap.json");
    let profiler = dhat::Profiler::builder().testing().file_name(report);
    let _profiler = profiler.build();
    let mut costly = Vec::new();
    let off = || Security::off(Vec::new()).expect("no policy of the system");
    let cases = [
        ("plain", "30", off()),
        ("unarmed", "0", off()),
        ("encrypted", "30", keyed()),
    ];
    for (place, (name, retain_secs, security)) in (0..).zip(cases) {
        let stream = Stream::open(place, name, retain_secs, security);
        for batch in [1, 64] {
            // Buffers grow to what the stream needs.
            stream.carry(SAMPLES, batch);
            let once = allocations(|| stream.carry(SAMPLES, batch));
            let twice = allocations(|| stream.carry(2 * SAMPLES, batch));
            println!("{name}, batch {batch}: {once} for {SAMPLES} samples, {twice} for twice");
            // Fewer than one in a hundred samples: a hiccup of the machine makes a first backlog, and the
            // buffers that take it grow by doubling, once each; and now and then the clock is asked.
            if twice.saturating_sub(once) * 100 >= SAMPLES as u64 {
                costly.push(format!("{name}, batch {batch}: {once}, then {twice}"));
            }
        }
    }
    dhat::assert!(
        costly.is_empty(),
        "allocations for {SAMPLES} samples and for twice as many: {costly:#?}"
    );
}

/// How many times anything in this process allocates during `work`.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = dhat::HeapStats::get().total_blocks;
    work();
    dhat::HeapStats::get().total_blocks - before
}

/// An outlet and the inlet that reads it.
struct Stream {
    outlet: Outlet,
    inlet: Inlet,
}

impl Stream {
    fn open(place: u16, name: &str, retain_secs: &str, security: Security) -> Self {
        let is_encrypted = name == "encrypted";
        let mut config = Config::loopback();
        let process = u16::try_from(std::process::id() % 97).unwrap();
        config.set_ports(50_000 + process * 60 + place * 20, 20);
        config.set("tuning.RetainSeconds", retain_secs).unwrap();
        // So little that it is full before anything is counted, and that no age lets samples go.
        config.set("tuning.RetainBytes", "131072").unwrap();
        let session = format!("allocations-{}-{name}", std::process::id());
        config.set_session_id(&session).unwrap();
        let context = Context::with_security(config, Arc::new(security));

        let info = StreamInfo::new(
            name,
            "Test",
            CHANNELS.try_into().unwrap(),
            1000.0,
            ChannelFormat::Float32,
            name,
        );
        let outlet = Outlet::builder(info.unwrap()).context(&context);
        let outlet = outlet.open().unwrap();
        let selector = Selector::property("name", name).unwrap();
        let found = context.resolve_blocking(&selector, 1, SOON).unwrap();
        let inlet = Inlet::builder(&found[0]).context(&context).create();
        let inlet = inlet.unwrap();
        inlet.blocking().open(SOON).unwrap();
        assert_eq!(inlet.encryption().is_some(), is_encrypted);
        Self { outlet, inlet }
    }

    /// Pushes samples and pulls them, `batch` at a time.
    fn carry(&self, samples: usize, batch: usize) {
        let sent = vec![1.5_f32; batch * CHANNELS];
        let mut received = vec![0.0_f32; batch * CHANNELS];
        for _ in 0..samples / batch {
            if batch == 1 {
                self.outlet.push(&sent).unwrap();
                let stamp = self.inlet.blocking().pull(&mut received, SOON);
                assert!(stamp.unwrap().is_some());
            } else {
                self.outlet.push_chunk(&sent).unwrap();
                let pulled = (self.inlet.blocking()).pull_chunk(&mut received, None, SOON);
                assert_eq!(pulled.unwrap(), batch);
            }
            assert_eq!(received, sent);
            received.fill(0.0);
        }
    }
}

/// A device that trusts nobody but itself.
fn keyed() -> Security {
    let mut settings = Settings::new(Policy::Required);
    "allocations".clone_into(&mut settings.name);
    let trust = TrustList::from_peers(Vec::new()).unwrap();
    Security::from_parts(settings, SecretKey::from_seed(&[7; 32]), trust).unwrap()
}
