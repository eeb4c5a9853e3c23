//! The past of streams, which a relay keeps on disk. Spec: relay §9. `LSL_TEST_PLACES` says from how many places one of
//! them is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lsl_core::secure::trust::TrustList;
use lsl_core::{
    ChannelFormat, Context, Error, Generation, History, Inlet, InletBuilder, Outlet, Position,
    StreamInfo, local_clock,
};
use lsl_relay::shell::Relay;
use lsl_xdf::{LoadedStream, Values, load};

use super::{SOON, context_with, own, relay, through, told, wait_for};

/// A folder that goes with the test.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("lsl-history-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    /// What has a relay keep the past here.
    pub(super) fn text(&self, more: &str) -> String {
        let dir = self.0.display();
        format!("[history]\ndir = \"{dir}\"\nmax_size = \"16MiB\"\nmin_free = \"1MiB\"\n{more}")
    }

    fn segments(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(&self.0).expect("a folder");
        let files = files.map(|file| file.expect("a file").path());
        let mut segments: Vec<_> = files.filter(|it| is_segment(it)).collect();
        segments.sort();
        segments
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "xdf")
}

/// A network whose relays keep little in memory.
pub(super) fn network() -> Context {
    context_with(&[("tuning.RetainTotalBytes", "1048576")])
}

pub(super) fn keeping(context: &Context, folder: &Folder, more: &str) -> Relay {
    relay(context, &folder.text(more))
}

const CHANNELS: usize = 64;

/// A stream of 1 kHz whose sample `n` has `n` in all channels.
pub(super) fn outlet(context: &Context, kind: &str) -> Outlet {
    outlet_at(context, kind, 1000.0)
}

fn outlet_at(context: &Context, kind: &str, rate: f64) -> Outlet {
    let info = StreamInfo::new(kind, own(kind), 64, rate, ChannelFormat::Int32, kind);
    let outlet = Outlet::builder(info.expect("an info")).context(context);
    outlet.open().expect("an outlet")
}

/// Timestamps of which most are deduced.
fn stamp(n: u64) -> f64 {
    let begin = n - n % 25;
    let begin = f64::from(u32::try_from(begin).expect("small"));
    (0..n % 25).fold(begin / 1000.0 + 5.0, |stamp, _| stamp + 1.0 / 1000.0)
}

pub(super) fn push(outlet: &Outlet, numbers: std::ops::Range<u64>) {
    let mut chunk = Vec::new();
    for n in numbers {
        chunk.push(n);
        if chunk.len() == 25 {
            let value = |n: &u64| [i32::try_from(*n).expect("small"); CHANNELS];
            let values: Vec<i32> = chunk.iter().flat_map(value).collect();
            let stamps: Vec<f64> = chunk.iter().map(|n| stamp(*n)).collect();
            let stamps = lsl_proto::outlet::Stamps::Each(&stamps);
            let flush = lsl_proto::outlet::Pushthrough::Flush;
            outlet
                .push_chunk_with(&values, stamps, flush)
                .expect("pushed");
            chunk.clear();
        }
        // 2 MB a second, of which the relay keeps 1 MiB in memory.
        if n.is_multiple_of(500) {
            std::thread::sleep(Duration::from_millis(60));
        }
    }
    assert!(chunk.is_empty());
}

pub(super) fn reader(context: &Context, relay: &Relay, document: &str) -> InletBuilder {
    let inlet = Inlet::builder(&through(relay, document)).context(context);
    inlet.recover(false).samples_first(true)
}

/// Waits until the relay reads what nobody reads, by a rule.
pub(super) fn wait_for_reader(outlet: &Outlet) {
    let until = local_clock() + SOON.as_secs_f64();
    while !outlet.have_consumers() {
        assert!(local_clock() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Pulls samples and compares them with what was pushed, bit by bit.
pub(super) fn expect(inlet: &Inlet, numbers: std::ops::Range<u64>) {
    let mut sample = [0; CHANNELS];
    for n in numbers {
        let pulled = inlet.blocking().pull(&mut sample, SOON);
        let got = pulled.expect("a sample").expect("in time");
        let value = i32::try_from(n).expect("small");
        assert_eq!(
            (sample, got.to_bits()),
            ([value; CHANNELS], stamp(n).to_bits()),
            "{n}"
        );
    }
}

pub(super) fn position(outlet: &Outlet, next: u64) -> Position {
    let generation = Generation::parse(outlet.info().uid().as_bytes()).expect("a uid");
    Position { generation, next }
}

/// Waits until history has all samples of the only stream up to this number.
pub(super) fn wait_until_kept(relay: &Relay, kind: &str, end: u64) {
    let until = local_clock() + SOON.as_secs_f64();
    loop {
        let status = relay.status();
        let streams = status["streams"].as_array().expect("streams");
        let ours = streams.iter().find(|it| it["type"] == own(kind));
        if ours.is_some_and(|it| it["history"]["to"] == end) {
            return;
        }
        assert!(local_clock() < until, "{status}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Samples of the segments, by number; each must load without a problem.
fn kept(folder: &Folder) -> BTreeMap<i32, f64> {
    let mut all = BTreeMap::new();
    for segment in folder.segments() {
        let file = std::fs::read(&segment).expect("a segment");
        let loaded = load(&file[..]).expect("a recording");
        assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
        for LoadedStream { values, stamps, .. } in loaded.streams {
            let Values::Int32(values) = values else {
                panic!("{values:?}");
            };
            let numbers = values.chunks(CHANNELS).map(|sample| sample[0]);
            for (number, stamp) in numbers.zip(stamps) {
                assert_eq!(all.insert(number, stamp), None, "{number} twice");
            }
        }
    }
    all
}

#[test]
fn who_comes_late_has_the_past_from_any_place_on() {
    let (context, folder) = (network(), Folder::new("late"));
    let outlet = outlet(&context, "late");
    let relay = keeping(&context, &folder, "");
    let document = &wait_for(&relay, "late", 1)[0].1;
    wait_for_reader(&outlet);
    push(&outlet, 0..20_000);
    assert!(folder.segments().len() > 2, "{:?}", folder.segments());
    let late = reader(&context, &relay, document).history(History::Oldest);
    expect(&late.create().expect("an inlet"), 0..20_000);
    let live = reader(&context, &relay, document).history(History::Oldest);
    let live = live.create().expect("an inlet");
    expect(&live, 0..19_000);
    let mut random = 12_345_u64;
    let places = std::env::var("LSL_TEST_PLACES").ok();
    let places = places.map_or(20, |it| it.parse().expect("a number"));
    for place in 0..places {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let from = (random >> 33) % 20_000;
        let inlet = reader(&context, &relay, document);
        let inlet = match place % 2 {
            0 => inlet.resume_at(position(&outlet, from)),
            _ => inlet.history(History::Samples(20_000 - from)),
        };
        let inlet = inlet.create().expect("an inlet");
        // From segment to segment, and on to what is in memory.
        let until = if place % 4 < 2 { from + 3000 } else { 20_000 };
        expect(&inlet, from..until.min(20_000));
        let stats = inlet.stats();
        assert_eq!((stats.lost_exact, stats.lost_unknown), (0, 0));
    }
    let status = relay.status();
    assert_eq!(
        (
            status["history"]["dropped"].as_u64(),
            &status["history"]["stopped"]
        ),
        (Some(0), &serde_json::Value::Null)
    );
    // Who read the past reads on.
    push(&outlet, 20_000..21_000);
    expect(&live, 19_000..21_000);
}

#[test]
fn the_last_seconds_are_those_that_came_in_them() {
    let (context, folder) = (network(), Folder::new("since"));
    let outlet = outlet_at(&context, "since", 0.0);
    let relay = keeping(&context, &folder, "");
    let document = &wait_for(&relay, "since", 1)[0].1;
    push(&outlet, 0..5000);
    let pause = Duration::from_secs(2);
    std::thread::sleep(pause);
    let begun = local_clock();
    push(&outlet, 5000..15_000);
    let secs = local_clock() - begun;
    let inlet = reader(&context, &relay, document).history(History::Seconds(secs + 1.0));
    let inlet = inlet.create().expect("an inlet");
    let mut sample = [0; CHANNELS];
    inlet.blocking().pull(&mut sample, SOON).expect("a sample");
    // All of the time asked for, and not much more.
    let first = u64::try_from(sample[0]).expect("a number");
    assert!((4500..=5000).contains(&first), "{first}");
    expect(&inlet, first + 1..15_000);
}

/// Waits until a stream is listed as past. Returns its document.
pub(super) fn past(relay: &Relay, kind: &str) -> String {
    let until = local_clock() + SOON.as_secs_f64();
    loop {
        if let [(_, document)] = &told(relay, "once past", kind)[..] {
            assert!(document.contains(" ended=\""), "{document}");
            return document.clone();
        }
        assert!(local_clock() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn reads_to_the_end(context: &Context, relay: &Relay, end: u64, document: &str) {
    let inlet = reader(context, relay, document).history(History::Oldest);
    let inlet = inlet.create().expect("an inlet");
    expect(&inlet, 0..end);
    let mut sample = [0; CHANNELS];
    let lost = inlet.blocking().pull(&mut sample, SOON);
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
}

#[test]
fn a_stream_that_is_over_is_listed_as_past_and_read_to_its_end() {
    let (context, folder) = (network(), Folder::new("over"));
    let relay = keeping(&context, &folder, "");
    let outlet = outlet(&context, "over");
    wait_for(&relay, "over", 1);
    push(&outlet, 0..6000);
    wait_until_kept(&relay, "over", 6000);
    drop(outlet);
    wait_for(&relay, "over", 0);
    reads_to_the_end(&context, &relay, 6000, &past(&relay, "over"));
    // It outlives the relay, and each segment is a recording of its own.
    drop(relay);
    let samples = kept(&folder);
    let expected = |n: u64| (i32::try_from(n).expect("small"), stamp(n));
    assert_eq!(samples, (0..6000).map(expected).collect());
    let relay = keeping(&context, &folder, "");
    reads_to_the_end(&context, &relay, 6000, &past(&relay, "over"));
    // Who may not read live may not read the past.
    drop(relay);
    let rule = "[[rule]]\nreaders = []\n";
    let relay = keeping(&context, &folder, rule);
    assert_eq!(told(&relay, "once past", "over"), []);
}

#[test]
fn without_room_history_stops_and_live_goes_on() {
    let (context, folder) = (network(), Folder::new("full"));
    let outlet = outlet(&context, "full");
    let mut relay = keeping(&context, &folder, "");
    let document = &wait_for(&relay, "full", 1)[0].1;
    let live = reader(&context, &relay, document)
        .create()
        .expect("an inlet");
    live.blocking().open(SOON).expect("open");
    push(&outlet, 0..2000);
    expect(&live, 0..2000);
    wait_until_kept(&relay, "full", 2000);
    let mut with_free = |min_free: &str| {
        let dir = folder.0.display();
        let text = format!(
            "[history]\ndir = \"{dir}\"\nmax_size = \"16MiB\"\nmin_free = \"{min_free}\"\n"
        );
        let config = lsl_relay::config::Config::parse(&text, &TrustList::default());
        relay.reload(&config.expect("a configuration"));
        let until = local_clock() + SOON.as_secs_f64();
        while relay.status()["history"]["stopped"].is_null() == (min_free != "1MiB") {
            assert!(local_clock() < until, "{}", relay.status());
            std::thread::sleep(Duration::from_millis(20));
        }
        relay.status()
    };
    let status = with_free("100000GiB");
    let stopped = status["history"]["stopped"].as_str().expect("a reason");
    assert!(
        stopped.starts_with("no room on ") && stopped.ends_with(" GiB free)"),
        "{stopped}"
    );
    // What was there goes with the next look, a second later, if there is no room then either.
    let until = local_clock() + SOON.as_secs_f64();
    while !folder.segments().is_empty() {
        assert!(local_clock() < until, "{:?}", folder.segments());
        std::thread::sleep(Duration::from_millis(20));
    }
    // More than is kept in memory meanwhile.
    push(&outlet, 2000..10_000);
    expect(&live, 2000..10_000);
    with_free("1MiB");
    push(&outlet, 10_000..12_000);
    expect(&live, 10_000..12_000);
    wait_until_kept(&relay, "full", 12_000);
    let status = relay.status();
    let dropped = status["history"]["dropped"].as_u64().expect("a number");
    drop(relay);
    // What is missing is what went, and what was counted.
    let samples = kept(&folder);
    let first = u64::try_from(*samples.first_key_value().expect("some").0).expect("a number");
    assert!(
        samples.len() as u64 == 12_000 - first && first > 4000,
        "{first}"
    );
    assert_eq!(dropped, first - 2000, "{status}");
}

#[test]
fn encrypted_segments_are_served_to_who_has_the_key_and_written_without() {
    let (context, folder) = (network(), Folder::new("locked"));
    let outlet = outlet(&context, "locked");
    let pair = lsl_xdf::at_rest::KeyPair::generate();
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let key = folder.0.join("key.txt");
    std::fs::write(&key, pair.identity.as_bytes()).expect("a file");
    let recipients = format!("recipients = [\"{}\"]\n", pair.recipient);
    let identity = format!("{recipients}identity = \"{}\"\n", key.display());
    let relay = keeping(&context, &folder, &identity);
    let document = &wait_for(&relay, "locked", 1)[0].1;
    push(&outlet, 0..8000);
    // The last that memory let go waits to be encrypted.
    let inlet = reader(&context, &relay, document).history(History::Oldest);
    expect(&inlet.create().expect("an inlet"), 0..8000);
    drop(relay);
    assert_eq!(folder.segments(), [] as [PathBuf; 0]);
    let files = std::fs::read_dir(&folder.0).expect("a folder");
    let names = files.map(|file| file.expect("a file").path());
    let locked: Vec<_> = names
        .filter(|it| it.extension().is_some_and(|it| it == "age"))
        .collect();
    assert!(locked.len() > 1, "{locked:?}");
    for file in locked {
        assert!(lsl_xdf::at_rest::is_locked(&file).expect("a file"));
    }
    // What was kept before comes back with the key alone.
    let relay = keeping(&context, &folder, &recipients);
    wait_for(&relay, "locked", 1);
    let status = relay.status();
    assert_eq!(status["history"]["write_only"], true);
    assert!(
        status["history"]["bytes"].as_u64() > Some(2_000_000),
        "{status}"
    );
    assert!(status["streams"][0]["history"].is_null(), "{status}");
    drop(relay);
    let relay = keeping(&context, &folder, &identity);
    let document = &wait_for(&relay, "locked", 1)[0].1;
    let inlet = reader(&context, &relay, document).history(History::Oldest);
    expect(&inlet.create().expect("an inlet"), 0..8000);
}

#[test]
fn an_index_that_does_not_fit_is_made_again() {
    let (context, folder) = (network(), Folder::new("index"));
    let relay = keeping(&context, &folder, "");
    let outlet = outlet(&context, "index");
    wait_for(&relay, "index", 1);
    push(&outlet, 0..6000);
    wait_until_kept(&relay, "index", 6000);
    drop((outlet, relay));
    let segments = folder.segments();
    assert!(segments.len() >= 2, "{segments:?}");
    let index = |segment: &Path| PathBuf::from(format!("{}.idx", segment.display()));
    let before: Vec<_> = segments
        .iter()
        .map(|it| std::fs::read(index(it)).expect("an index"))
        .collect();
    // One is missing, and one was cut within an entry and is of another segment.
    std::fs::remove_file(index(&segments[0])).expect("removed");
    let mut other = before[0].clone();
    other.truncate(other.len() / 2 + 7);
    std::fs::write(index(&segments[1]), other).expect("written");
    // Killed before its first byte.
    let unborn = folder.0.join("20261122T083156Z-000900.xdf");
    for file in [unborn.clone(), lsl_xdf::journal_path(&unborn)] {
        std::fs::write(file, []).expect("written");
    }
    let relay = keeping(&context, &folder, "");
    assert!(!unborn.exists());
    let after = segments
        .iter()
        .map(|it| std::fs::read(index(it)).expect("an index"));
    assert!(after.eq(before));
    let documents = told(&relay, "once past", "index");
    let inlet = reader(&context, &relay, &documents[0].1).history(History::Oldest);
    expect(&inlet.create().expect("an inlet"), 0..6000);
}
