use std::path::PathBuf;

use lsl_core::ChannelFormat;
use lsl_core::relay::{FrameCodec, Frames};

use super::writer::Samples;
use super::*;

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
        let history = History::open(&HistoryConfig {
            dir: folder.clone(),
            max_age_secs: 600.0,
            max_bytes: 1 << 30,
            min_free_bytes: 0,
            recipients: Vec::new(),
            identity: None,
        });
        let history = history.expect("a history");
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
        let stamps = vec![5.0; usize::try_from(numbers.end - numbers.start).expect("few")];
        let mut frames = Frames {
            first: numbers.start,
            ..Frames::default()
        };
        let values: Vec<u8> = numbers.map(|n| u8::try_from(n).expect("small")).collect();
        let encoded = FrameCodec::new(info).encode(&stamps, &values, &mut frames);
        encoded.expect("frames");
        self.send(Job::Samples(Samples {
            numbering: numbering(info),
            info: Arc::new(info.clone()),
            frames,
            arrival: unix_now(),
        }));
    }

    /// Ends the thread. Returns the segments, loaded.
    fn end(self) -> Vec<lsl_xdf::Loaded> {
        drop(self.jobs);
        self.history.end();
        let files = std::fs::read_dir(&self.folder).expect("a folder");
        let files = files.map(|file| file.expect("a file").path());
        let segments = files.filter(|it| it.extension().is_some_and(|it| it == "xdf"));
        let load = |file| lsl_xdf::load(&std::fs::read(file).expect("a segment")[..]);
        let loaded = segments.map(|it| load(it).expect("a recording")).collect();
        let _ = std::fs::remove_dir_all(&self.folder);
        loaded
    }
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
    kept.history.state().live.insert(Arc::clone(&numbering), 2);
    kept.samples(&info, 0..10);
    kept.send(Job::Over(Arc::clone(&numbering)));
    kept.samples(&info, 10..20);
    while kept.history.position(&uid).is_none_or(|it| it.next < 20) {
        std::thread::yield_now();
    }
    assert!(kept.history.ended(&uid).is_none());
    kept.samples(&info, 20..30);
    kept.send(Job::Over(numbering));
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
