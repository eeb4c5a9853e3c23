use std::path::{Path, PathBuf};

use lsl_core::ChannelFormat;
use lsl_core::relay::{FrameCodec, Frames, Handler, Peer, Refused};
use lsl_core::secure::trust::TrustList;

use super::writer::Samples;
use super::*;
use crate::book::Asker;
use crate::rules::Reader;
use crate::shell::Relay;
use crate::shell::desk::Desk;
use crate::shell::watch::take_past;

/// A history in a folder that goes with the test, and the way to its thread.
struct Kept {
    folder: PathBuf,
    history: Arc<History>,
    jobs: Sender<Job>,
}

fn folder(name: &str) -> PathBuf {
    let folder = format!("lsl-history-unit-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

impl Kept {
    fn new(name: &str) -> Self {
        Self::open(folder(name))
    }

    fn open(folder: PathBuf) -> Self {
        Self::with(config(folder))
    }

    /// Opens one that is encrypted for a key which it has.
    fn encrypted(name: &str) -> Self {
        let folder = folder(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let pair = lsl_xdf::at_rest::KeyPair::generate();
        let key = folder.join("key.txt");
        std::fs::write(&key, pair.identity.as_bytes()).expect("a file");
        Self::with(HistoryConfig {
            recipients: vec![pair.recipient],
            identity: Some(key),
            ..config(folder)
        })
    }

    fn with(config: HistoryConfig) -> Self {
        let history = History::open(&config).expect("a history");
        let folder = config.dir;
        let jobs = lock_of(&history.jobs).take().expect("once");
        Self {
            folder,
            history,
            jobs,
        }
    }

    fn send(&self, job: Job) {
        self.jobs.blocking_send(job).expect("a thread");
    }

    fn samples(&self, info: &StreamInfo, numbers: std::ops::Range<u64>) {
        self.history.expect(&numbering(info));
        self.send(Self::job(info, numbers));
    }

    /// Sends what is expected already.
    async fn samples_expected(&self, info: &StreamInfo, numbers: std::ops::Range<u64>) {
        let sent = self.jobs.send(Self::job(info, numbers)).await;
        sent.expect("a thread");
    }

    fn job(info: &StreamInfo, numbers: std::ops::Range<u64>) -> Job {
        let stamps = vec![5.0; usize::try_from(numbers.end - numbers.start).expect("few")];
        let mut frames = Frames {
            first: numbers.start,
            ..Frames::default()
        };
        let values: Vec<u8> = numbers.map(|n| u8::try_from(n).expect("small")).collect();
        let encoded = FrameCodec::new(info).encode(&stamps, &values, &mut frames);
        encoded.expect("frames");
        Job::Samples(Samples {
            numbering: numbering(info),
            info: Arc::new(info.clone()),
            frames,
            arrival: unix_now(),
        })
    }

    /// Ends the thread. Returns the folder.
    fn close(self) -> PathBuf {
        drop(self.jobs);
        self.history.end();
        self.folder
    }

    /// Ends the thread. Returns the segments, loaded.
    fn end(self) -> Vec<lsl_xdf::Loaded> {
        let folder = self.close();
        let load = |file| lsl_xdf::load(&std::fs::read(file).expect("a segment")[..]);
        let segments = segments(&folder).into_iter();
        let loaded = segments.map(|it| load(it).expect("a recording")).collect();
        let _ = std::fs::remove_dir_all(folder);
        loaded
    }
}

fn config(folder: PathBuf) -> HistoryConfig {
    HistoryConfig {
        dir: folder,
        max_age_secs: 600.0,
        max_bytes: 1 << 30,
        min_free_bytes: 0,
        recipients: Vec::new(),
        identity: None,
    }
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).expect("a folder");
    let files = files.map(|file| file.expect("a file").path());
    let is_segment = |it: &PathBuf| it.extension().is_some_and(|it| it == "xdf" || it == "age");
    files.filter(is_segment).collect()
}

fn index(segment: &Path) -> PathBuf {
    format!("{}.idx", segment.display()).into()
}

fn info(uid: &str) -> StreamInfo {
    let info = StreamInfo::new(uid, "", 1, 0.0, ChannelFormat::Int8, uid);
    let mut info = info.expect("an info");
    info.reset_uid(uid);
    info
}

fn numbering(info: &StreamInfo) -> Arc<Numbering> {
    let uid = info.uid().into_owned().into();
    let generation = "0-a".into();
    Arc::new(Numbering { uid, generation })
}

#[test]
fn samples_that_come_again_are_kept_once() {
    let kept = Kept::new("again");
    let info = info("a");
    kept.samples(&info, 0..100);
    // As a tap of a stream that a rule let go of for a while has them.
    kept.samples(&info, 50..90);
    kept.samples(&info, 90..150);
    let loaded = kept.end();
    assert_eq!(loaded.len(), 1);
    let expected: Vec<i8> = (0..150_u8).map(u8::cast_signed).collect();
    assert_eq!(loaded[0].streams[0].values, expected.into());
}

#[test]
fn a_stream_that_no_file_can_have_stops_no_other() {
    let kept = Kept::new("strange");
    let xml = String::from_utf8(info("b").to_xml()).expect("text");
    // As liblsl reads it, whose numbers end at the first character that is none of theirs.
    let count = "<channel_count>1</channel_count>";
    assert!(xml.contains(count));
    let xml = xml.replace(count, "<channel_count>1 of 2</channel_count>");
    let strange = StreamInfo::from_xml(xml.as_bytes()).expect("an info");
    assert_eq!(strange.channel_count(), 1);
    kept.samples(&info("a"), 0..10);
    kept.samples(&strange, 0..7);
    kept.samples(&info("a"), 10..20);
    let history = Arc::clone(&kept.history);
    let loaded = kept.end();
    assert_eq!(history.dropped.load(Ordering::Relaxed), 7);
    assert_eq!(history.state().stopped, None);
    assert_eq!(loaded.len(), 1);
    assert_eq!(loaded[0].streams[0].values.len(), 20);
}

#[test]
fn a_stream_is_over_once_all_of_it_is_written() {
    let kept = Kept::new("over");
    let info = info("a");
    let uid: Uid = info.uid().into_owned().into();
    let numbering = numbering(&info);
    // From two outlets, one after the other.
    (kept.history.state()).change_live(&numbering, |live| live.outlets = 2);
    kept.samples(&info, 0..10);
    let over = || Job::Over {
        numbering: Arc::clone(&numbering),
        end: Some(10),
    };
    kept.send(over());
    kept.samples(&info, 10..20);
    while kept.history.position(&uid).is_none_or(|it| it.next < 20) {
        std::thread::yield_now();
    }
    assert!(kept.history.ended(&uid).is_none());
    kept.samples(&info, 20..30);
    kept.send(over());
    let ended = loop {
        match kept.history.ended(&uid) {
            Some(ended) => break ended,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(ended.end.next, 30);
    kept.end();
}

#[test]
fn a_segment_that_cannot_be_begun_leaves_no_file() {
    let kept = Kept::new("begun");
    let now = lsl_platform::clock::utc_now().as_secs();
    for secs in now..now + 60 {
        let begun = lsl_platform::calendar::rfc3339(Duration::from_secs(secs));
        let index = crate::history::SegmentName::new(&begun, 1, false).index();
        std::fs::create_dir(kept.folder.join(index)).expect("a folder in the way");
    }
    kept.samples(&info("a"), 0..10);
    let history = Arc::clone(&kept.history);
    assert!(kept.end().is_empty());
    assert!(history.state().stopped.is_some());
}

#[test]
fn what_cannot_be_read_goes_in_its_turn_and_links_and_pipes_are_none_of_ours() {
    let folder = folder("strangers");
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = |number| folder.join(format!("20261122T083156Z-00000{number}.xdf"));
    std::fs::write(path(1), "XDF:damaged at its beginning").expect("written");
    #[cfg(unix)]
    {
        let made = std::process::Command::new("mkfifo").arg(path(2)).status();
        assert!(made.expect("mkfifo").success());
        std::os::unix::fs::symlink(path(1), path(3)).expect("a link");
    }
    let (told, opened) = std::sync::mpsc::channel();
    let of_thread = folder.clone();
    std::thread::spawn(move || told.send(Kept::open(of_thread)));
    let kept = opened.recv_timeout(Duration::from_mins(1));
    let kept = kept.expect("nobody writes into the pipe");
    assert_eq!(kept.history.state().catalog.len(), 1);
    kept.samples(&info("a"), 0..10);
    drop(kept.jobs);
    kept.history.end();
    assert!(path(1).exists());
    let _ = std::fs::remove_dir_all(&kept.folder);
}

#[test]
fn a_description_that_is_too_long_for_a_segment_is_known_to_be_left_out() {
    // Each takes four bytes there.
    let long = |count| {
        let text = String::from_utf8(info("a").to_xml()).expect("text");
        let desc = format!("<desc><x>{}</x></desc>", ">".repeat(count));
        StreamInfo::from_xml(text.replace("<desc />", &desc).as_bytes()).expect("an info")
    };
    let kept = |info: &StreamInfo| {
        let header = lsl_xdf::FileHeader::new("2026-11-22T08:31:56+0000");
        let sink = lsl_xdf::PipeSink(Vec::new());
        let mut recording = lsl_xdf::Recording::new(sink, &header, 0.0).expect("a file");
        let header = lsl_xdf::StreamHeader::from_info(info).expect("a header");
        recording.add_stream(&header, 0.0).expect("a stream");
        let mut file = &recording.into_sink().0[4..];
        loop {
            let chunk = crate::history::read_chunk(&mut file, 1 << 20).expect("chunks");
            let (tag, content) = chunk.expect("a header");
            if tag == lsl_xdf::chunk::Tag::StreamHeader {
                break StreamInfo::from_xml(&content[4..]).expect("an info");
            }
        }
    };
    let whole = long(5 << 20);
    assert!(!crate::document::is_cut(&whole) && !crate::document::is_cut(&kept(&long(20))));
    assert!(crate::document::is_cut(&kept(&whole)));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a runtime of this test")]
fn samples_on_their_way_to_the_disk_are_waited_for() {
    let kept = Kept::new("waited");
    let info = info("a");
    let numbering = numbering(&info);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let generation = numbering.generation().expect("a name");
        let past = (kept.history).past(&numbering.uid, &generation, &ReplayFrom::Oldest);
        assert!(past.await.is_none());
        // As one who takes them from their outlet.
        kept.history.expect(&numbering);
        let mut past =
            Box::pin((kept.history).past(&numbering.uid, &generation, &ReplayFrom::Oldest));
        let early = tokio::time::timeout(Duration::from_millis(50), &mut past);
        assert!(early.await.is_err());
        kept.samples_expected(&info, 5..15).await;
        let mut past = past.await.expect("a past");
        assert_eq!(past.oldest, 5);
        let mut read = async |from| {
            let frames = past.reader.read(from, 100).await.expect("no error");
            frames.map(|it| it.first..it.end())
        };
        assert_eq!(read(5).await, Some(5..15));
        assert_eq!(read(15).await, None);
        kept.history.expect(&numbering);
        assert_eq!(read(9).await, Some(9..15));
        let mut late = Box::pin(read(15));
        let early = tokio::time::timeout(Duration::from_millis(50), &mut late);
        assert!(early.await.is_err());
        kept.samples_expected(&info, 20..30).await;
        assert_eq!(late.await, Some(20..30));
        // Before those that are there nothing comes any more.
        kept.history.expect(&numbering);
        let missing = past.reader.read(15, 20).await.expect("no error");
        assert!(missing.is_none());
    });
    kept.end();
}

#[test]
fn samples_that_were_lost_at_the_end_of_a_stream_are_told_ever_after() {
    let kept = Kept::new("tail");
    let info = info("a");
    let uid: Uid = info.uid().into_owned().into();
    let ends = |history: &History| {
        let ended = history.ended(&uid).expect("it is over");
        let position = history.position(&uid).expect("something is kept");
        (ended.end.next, position.next)
    };
    kept.samples(&info, 0..10);
    kept.send(Job::Over {
        numbering: numbering(&info),
        end: Some(25),
    });
    while kept.history.ended(&uid).is_none_or(|it| it.end.next != 25) {
        std::thread::yield_now();
    }
    let folder = kept.close();
    for _ in 0..2 {
        let kept = Kept::open(folder.clone());
        assert_eq!(ends(&kept.history), (25, 10));
        kept.close();
    }
    // It came again after all.
    let kept = Kept::open(folder);
    kept.samples(&info, 10..40);
    while kept.history.position(&uid).is_none_or(|it| it.next < 40) {
        std::thread::yield_now();
    }
    assert_eq!(ends(&kept.history), (40, 40));
    kept.end();
}

#[test]
fn samples_that_a_crash_cut_off_are_known_to_be_lost() {
    let kept = Kept::new("cut");
    let info = info("a");
    let uid: Uid = info.uid().into_owned().into();
    kept.samples(&info, 0..10);
    kept.samples(&info, 10..30);
    let folder = kept.close();
    let segment = &segments(&folder)[0];
    let entries = crate::history::parse_index(&std::fs::read(index(segment)).expect("an index"));
    let last = entries.last().expect("an entry");
    assert_eq!((last.first, last.count), (10, 20));
    let file = std::fs::OpenOptions::new().write(true).open(segment);
    let cut = last.offset + 4 + crate::history::NUMBERS_BYTES as u64 + 9;
    file.expect("a segment").set_len(cut).expect("cut");
    std::fs::write(lsl_xdf::journal_path(segment), []).expect("written");
    for _ in 0..2 {
        let kept = Kept::open(folder.clone());
        let ended = kept.history.ended(&uid).expect("it is over");
        let position = kept.history.position(&uid).expect("something is kept");
        assert_eq!((ended.end.next, position.next), (30, 10));
        kept.close();
    }
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn segments_grow_old_by_no_clock_that_is_set() {
    let kept = Kept::new("age");
    kept.samples(&info("a"), 0..10);
    let folder = kept.close();
    let segment = &segments(&folder)[0];
    let entries = std::fs::read(index(segment)).expect("an index");
    let mut file = std::fs::read(segment).expect("a segment");
    let entry = crate::history::parse_index(&entries)[1];
    for (arrival, age) in [(unix_now() + 1e6, 0.0), (unix_now() - 300.0, 300.0)] {
        let mut other = entry;
        other.arrival = arrival;
        let index_of = [&entries[..40], &other.to_bytes()].concat();
        std::fs::write(index(segment), index_of).expect("written");
        let at = usize::try_from(entry.offset).expect("small") + 4 + 33;
        file[at..at + 8].copy_from_slice(&arrival.to_le_bytes());
        std::fs::write(segment, &file).expect("written");
        let kept = Kept::open(folder.clone());
        let (stored, _) = kept.history.state().catalog.stored();
        let written = stored[0].written - local_clock();
        assert!((written + age).abs() < 60.0, "{written} {age}");
        kept.close();
    }
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn an_index_is_read_no_further_than_it_can_be_one() {
    let kept = Kept::new("long");
    let info = info("a");
    kept.samples(&info, 0..10);
    let folder = kept.close();
    let segment = &segments(&folder)[0];
    let index = std::fs::OpenOptions::new().write(true).open(index(segment));
    // Takes no room.
    let index = index.expect("an index");
    index.set_len(1 << 40).expect("a long file");
    let kept = Kept::open(folder);
    let range = kept.history.range(&numbering(&info)).expect("it is served");
    assert_eq!(range.end, 10);
    assert!(index.metadata().expect("a file").len() < 1000);
    kept.end();
}

#[test]
fn an_encrypted_segment_is_decrypted_once_at_a_start() {
    let kept = Kept::encrypted("once");
    for name in ["a", "b"] {
        kept.samples(&info(name), 0..10);
    }
    let identities = kept.history.identities.clone();
    let folder = kept.close();
    let segment = &segments(&folder)[0];
    let indices = [true, false].map(|has_index| {
        let bytes = std::fs::read(segment).expect("a segment");
        let input = folder::Input::open(segment, true, identities.as_ref()).expect("a segment");
        // Who opens it again finds nothing that can be decrypted.
        std::fs::remove_file(segment).expect("removed");
        std::fs::write(segment, vec![0; bytes.len()]).expect("written");
        if !has_index {
            std::fs::remove_file(index(segment)).expect("removed");
        }
        let content = folder::content(input, (segment, &index(segment)));
        std::fs::write(segment, bytes).expect("written");
        content.expect("what is in it").entries
    });
    assert_eq!(indices[0].len(), 4);
    assert_eq!(indices[0], indices[1]);
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn the_last_samples_of_an_encrypted_stream_can_be_read_though_nothing_follows() {
    let kept = Kept::encrypted("seal");
    let look_until = |is_so: &dyn Fn() -> bool| {
        let until = local_clock() + 60.0;
        while !is_so() {
            assert!(local_clock() < until);
            kept.send(Job::Look);
            std::thread::sleep(LOOK);
        }
    };
    let info = info("a");
    kept.samples(&info, 0..1);
    look_until(&|| kept.history.state().catalog.stored().1 > 0);
    // A look goes on with what was stopped, behind its sync: then the sample is synced, and waits to be sealed.
    kept.history.state().stopped = Some(String::new());
    look_until(&|| kept.history.state().stopped.is_none());
    assert!(kept.history.range(&numbering(&info)).is_none());
    kept.send(Job::Over {
        numbering: numbering(&info),
        end: Some(1),
    });
    look_until(&|| kept.history.ended(&"a".into()).is_some());
    let _ = std::fs::remove_dir_all(kept.close());
}

/// A relay with what is in a folder.
fn relay(folder: &Path) -> Relay {
    let text = format!("[history]\ndir = '{}'\n", folder.display());
    let config = crate::config::Config::parse(&text, &TrustList::default());
    let mut config = config.expect("a configuration");
    config.listen = vec![([127, 0, 0, 1], 0).into()];
    let mut of_lsl = lsl_core::config::Config::loopback();
    let base = 12_000 + u16::try_from(std::process::id() % 70).expect("small") * 80 + 60;
    of_lsl.set_ports(base, 19);
    of_lsl.set_multicast_port(base + 19);
    of_lsl.set("ports.IPv6", "disable").expect("a setting");
    let context = lsl_core::Context::new(of_lsl);
    Relay::start(&context, &config, "relay", Vec::new()).expect("a relay")
}

#[test]
fn who_asks_again_and_again_for_a_stream_that_is_over_is_told_to_wait() {
    let kept = Kept::new("asks");
    kept.samples(&info("a"), 0..10);
    let folder = kept.close();
    let relay = relay(&folder);
    let shared = Arc::clone(&relay.shared);
    let (told, counted) = std::sync::mpsc::channel();
    relay.shared.tasks.spawn(async move {
        let desk = Desk(Arc::clone(&shared));
        let [one, other] = [9, 8].map(|host| Peer::unknown(([127, 0, 0, host], 9).into()));
        let (mut served, mut busy) = (0, 0);
        for _ in 0..300 {
            match desk.stream(b"a", Some(ReplayFrom::Oldest), &one).await {
                Ok(it) => served += usize::from(it.past.is_some_and(|it| it.oldest == 0)),
                Err(refused) => busy += usize::from(matches!(refused, Refused::Busy)),
            }
        }
        let other = desk.stream(b"a", None, &other).await.is_ok();
        let _ = told.send((served, busy, other, shared.over().len()));
    });
    let counted = counted.recv_timeout(Duration::from_mins(1));
    assert_eq!(counted, Ok((256, 44, true, 257)));
    drop(relay);
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn streams_that_are_over_are_told_of_some_at_a_time() {
    let kept = Kept::new("told");
    for uid in ["a", "b", "c", "d"] {
        let text = String::from_utf8(info(uid).to_xml()).expect("text");
        let desc = format!("<desc><x>{}</x></desc>", "y".repeat(100_000));
        let info = StreamInfo::from_xml(text.replace("<desc />", &desc).as_bytes());
        kept.samples(&info.expect("an info"), 0..10);
    }
    let folder = kept.close();
    let relay = relay(&folder);
    let history = relay.shared.history.as_ref().expect("a history");
    let (reader, link) = (Reader::Local, None);
    let asking = (&relay.shared, None, Asker { reader, link });
    let mut uids = history.uids();
    for left in [3, 2, 1, 0] {
        let mut out = Vec::new();
        take_past(asking, &mut uids, 64 << 10, &mut out);
        assert_eq!(uids.len(), left);
        assert!((100_000..110_000).contains(&out.len()), "{}", out.len());
    }
    drop(relay);
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn who_cannot_read_what_it_wrote_knows_how_far_it_came() {
    let pair = lsl_xdf::at_rest::KeyPair::generate();
    let write_only = |folder| HistoryConfig {
        recipients: vec![pair.recipient.clone()],
        ..config(folder)
    };
    let kept = Kept::with(write_only(folder("unread")));
    // As our outlets number, and as others do.
    for uid in ["0-a", "b"] {
        kept.samples(&info(uid), 0..10);
        kept.samples(&info(uid), 10..30);
    }
    let kept = Kept::with(write_only(kept.close()));
    assert!(kept.history.uids().is_empty());
    let next = |uid: &str| kept.history.position(&uid.into()).map(|it| it.next);
    assert_eq!(
        [next("0-a"), next("b"), next("0-c")],
        [Some(30), None, None]
    );
    let folder = kept.close();
    let _ = std::fs::remove_dir_all(folder);
}
