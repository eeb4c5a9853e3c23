//! A recorder as programs use it: start, events, status, marks, and what is in the file afterwards.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot run is a failed test"
)]

use std::fs::File;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lsl_core::config::Config;
use lsl_core::{ChannelFormat, Context, Outlet, Selector, StreamInfo, Timeout, local_clock};
use lsl_record::{Cancel, Event, Output, Recorder, RecorderBuilder, StartError, Stop};
use lsl_xdf::{Loaded, load};

fn context(name: &str) -> Context {
    let mut config = Config::loopback();
    let free = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    config.set_ports(port.min(u16::MAX - 24), 24);
    let session = format!("recorder-{name}-{}", std::process::id());
    config.set_session_id(&session).unwrap();
    Context::new(config)
}

/// A file in a folder of its own, which is removed in the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let folder = format!("lsl-recorder-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("x.xdf")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn outlet(context: &Context) -> Outlet {
    let info = StreamInfo::new("Amp", "EEG", 1, 100.0, ChannelFormat::Int32, "amp").unwrap();
    Outlet::builder(info).context(context).open().unwrap()
}

fn amp(context: &Context, file: PathBuf) -> RecorderBuilder {
    let output = Output::new(file);
    let selector = Selector::property("name", "Amp").unwrap();
    Recorder::builder(context, output).require("the amplifier", selector)
}

/// Waits until the file holds samples.
#[track_caller]
fn until_recorded(recorder: &Recorder, outlet: &Outlet) {
    let deadline = local_clock() + 60.0;
    while recorder.status().streams[0].samples < 10 {
        assert!(local_clock() < deadline, "{:?}", recorder.status());
        outlet.push(&[7]).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
}

fn read(file: &Path) -> Loaded {
    let loaded = load(File::open(file).unwrap()).unwrap();
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    assert!(loaded.streams.iter().all(|stream| stream.footer.is_some()));
    loaded
}

#[test]
fn what_is_required_and_not_there_leaves_no_file() {
    let (context, place) = (context("missing"), Place::new("missing"));
    let started = amp(&context, place.file()).start(0.1, &Cancel::default());
    let missing = started.unwrap_err();
    assert!(matches!(&missing, StartError::Missing(labels) if *labels == ["the amplifier"]));
    assert!(!place.file().exists());
    let cancelled = Cancel::default();
    cancelled.cancel();
    let started = amp(&context, place.file()).start(60.0, &cancelled);
    assert!(matches!(started, Err(StartError::Cancelled)));
}

#[test]
fn a_recording_is_reported_from_its_beginning_to_its_end() {
    let (context, place) = (context("whole"), Place::new("whole"));
    let (outlet, never) = (outlet(&context), Cancel::default());
    let recorder = amp(&context, place.file()).start(10.0, &never).unwrap();
    let begun = recorder.next_event(Timeout::NOW);
    assert!(
        matches!(&begun, Some(Event::Recording { path, streams, in_plaintext: 1, .. })
        if *path == place.file() && streams[0].name() == "Amp")
    );
    until_recorded(&recorder, &outlet);
    assert!(!recorder.is_over());
    recorder.mark("eyes closed").unwrap();
    drop(outlet);
    let lost = recorder.next_event(Duration::from_mins(1));
    assert!(
        matches!(&lost, Some(Event::Lost { name, .. }) if name == "Amp"),
        "{lost:?}"
    );
    let mode = Stop::Drain {
        until: local_clock(),
        grace_secs: 2.0,
    };
    let report = recorder.stop(mode, &never);
    assert!(
        report.is_finished && report.trouble.is_empty(),
        "{report:?}"
    );
    assert_eq!(report.lost, ["Amp"]);
    assert_eq!(report.recorded_streams, 2);
    let loaded = read(&place.file());
    let samples: usize = loaded
        .streams
        .iter()
        .map(|stream| stream.stamps.len())
        .sum();
    assert_eq!(report.samples, samples as u64);
    assert_eq!(report.status.missing(), 0);
}

#[test]
fn a_recorder_that_is_dropped_finishes_its_file() {
    let (context, place) = (context("dropped"), Place::new("dropped"));
    let outlet = outlet(&context);
    let recorder = amp(&context, place.file()).start(10.0, &Cancel::default());
    let recorder = recorder.unwrap();
    until_recorded(&recorder, &outlet);
    drop(recorder);
    let deadline = local_clock() + 60.0;
    while lsl_xdf::journal_path(&place.file()).exists() {
        assert!(local_clock() < deadline, "no end within 60 s");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(read(&place.file()).streams.len(), 1);
}
