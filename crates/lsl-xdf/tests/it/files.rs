//! Recordings in real files: names, journals, repairs.

use std::fs;
use std::path::{Path, PathBuf};

use lsl_proto::ChannelFormat;
use lsl_xdf::chunk::{BOUNDARY_UUID, MAGIC};
use lsl_xdf::encode::{self, SampleEncoder};
use lsl_xdf::repair::{self, Finding};
use lsl_xdf::{
    ErrorKind, FileHeader, FileSink, JournalState, Recording, is_being_written, journal_path, load,
};

use crate::made;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("xdf-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn record(path: &Path, samples: usize) -> Recording<FileSink> {
    let mut recording = Recording::create(path, &FileHeader::new("now"), 0.0).unwrap();
    let format = ChannelFormat::Int32;
    let id = recording
        .add_stream(&made::header(format, 1, 100.0), 0.0)
        .unwrap();
    recording.clock_offset(id, 1000.0, 0.25, 0.0).unwrap();
    for n in 0..samples {
        let values = made::values(format, n, 1, 1);
        recording
            .samples(id, &made::stamps(n, 1, 100.0), &values, 0.1)
            .unwrap();
    }
    recording
}

#[test]
fn nothing_is_overwritten_and_folders_are_made() {
    let folder = Folder::new("names");
    let path = folder.0.join("a/b/sub.xdf");
    for samples in 1..=3 {
        let mut recording = record(&path, samples);
        let moved = recording
            .moved()
            .map(|moved| moved.file_name().unwrap().to_owned());
        let expected = (samples > 1).then(|| format!("sub_old{}.xdf", samples - 1).into());
        assert_eq!(moved, expected);
        recording.finish(1.0).unwrap();
    }
    for (name, samples) in [("sub.xdf", 3), ("sub_old1.xdf", 1), ("sub_old2.xdf", 2)] {
        let file = fs::File::open(folder.0.join("a/b").join(name)).unwrap();
        assert_eq!(load(file).unwrap().streams[0].stamps.len(), samples);
    }
    for path in ["", "..", "/"] {
        let error = Recording::create(Path::new(path), &FileHeader::new("now"), 0.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument, "{path}");
    }
}

#[test]
fn a_mark_says_that_a_recording_is_unfinished() {
    let folder = Folder::new("mark");
    let path = folder.0.join("sub.xdf.age");
    let sink = FileSink::new(fs::File::create(&path).unwrap());
    let mut recording = Recording::new(sink, &FileHeader::new("now"), 0.0).unwrap();
    recording.mark_unfinished(&path);
    recording.sync().unwrap();
    // It promises nothing: the sink may hold something back.
    let state = JournalState::read(&journal_path(&path)).unwrap();
    assert_eq!(state, Some(JournalState::default()));
    recording.finish(1.0).unwrap();
    assert_eq!(folder.names(), ["sub.xdf.age"]);
}

#[test]
fn the_journal_says_what_was_promised_and_goes_with_the_end() {
    let folder = Folder::new("journal");
    let path = folder.0.join("sub.xdf");
    let mut recording = record(&path, 10);
    assert_eq!(folder.names(), ["sub.xdf", "sub.xdf.lslj"]);
    recording.sync().unwrap();
    let promised = recording.len();
    let state = JournalState::read(&journal_path(&path)).unwrap().unwrap();
    assert_eq!((state.len, state.stream_count), (promised, 1));
    assert_eq!(
        (state.streams[0].samples, state.streams[0].offsets),
        (10, 1)
    );
    assert_eq!(state.streams[0].last, made::stamps(9, 1, 100.0)[0]);
    // More than was synced, and the program is killed.
    let values = made::values(ChannelFormat::Int32, 10, 1, 1);
    recording
        .samples(1, &made::stamps(10, 1, 100.0), &values, 0.1)
        .unwrap();
    #[cfg(unix)]
    {
        assert!(is_being_written(&path).unwrap());
        let error = repair::repair_in_place(&path).unwrap_err();
        assert!(error.to_string().contains("being recorded"), "{error}");
    }
    drop(recording);
    assert!(!is_being_written(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), promised + 23);

    // The file lost its end, but not more than it may.
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(promised + 3).unwrap();
    let survey = repair::check(&path).unwrap();
    assert!(survey.findings.contains(&Finding::Unfinished));
    assert!(
        !survey
            .findings
            .iter()
            .any(|f| matches!(f, Finding::Missing { .. }))
    );
    // It lost more.
    file.set_len(promised - 1).unwrap();
    let survey = repair::check(&path).unwrap();
    let found = survey
        .findings
        .iter()
        .find(|f| matches!(f, Finding::Missing { .. }));
    assert!(matches!(found, Some(Finding::Missing { promised: p, .. }) if *p == promised));

    let survey = repair::repair_in_place(&path).unwrap();
    assert_eq!(survey.streams[&1].tally.samples, 9);
    assert_eq!(folder.names(), ["sub.xdf"]);
    let survey = repair::check(&path).unwrap();
    assert!(survey.is_whole());
    assert_eq!(survey.findings, []);
    assert_eq!(repair::repair_in_place(&path).unwrap().dropped_bytes, 0);
}

#[cfg(unix)]
#[test]
fn room_is_given_back_at_the_end() {
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::new("room");
    let path = folder.0.join("sub.xdf");
    let mut recording = record(&path, 10);
    let before = fs::metadata(&path).unwrap();
    assert_eq!(
        before.len(),
        recording.len(),
        "preallocation must not make it longer"
    );
    recording.finish(1.0).unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!(after.len(), recording.len());
    assert!(
        after.blocks() * 512 <= 64 << 10,
        "{} blocks",
        after.blocks()
    );
    assert_eq!(folder.names(), ["sub.xdf"]);
    let error = recording.sync().unwrap_err();
    assert!(matches!(error, lsl_xdf::Error::Ended(_)), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_loud() {
    let file = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let error = Recording::new(FileSink::new(file), &FileHeader::new("now"), 0.0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
}

#[test]
fn damage_in_the_middle_is_repaired_into_another_file() {
    let folder = Folder::new("middle");
    let path = folder.0.join("sub.xdf");
    let mut recording = record(&path, 3);
    let at = recording.len() as usize;
    recording
        .samples(1, &[5000.0], &vec![77_i32].into(), 0.0)
        .unwrap();
    recording.tick(11.0).unwrap();
    recording
        .samples(1, &[5001.0], &vec![78_i32].into(), 11.0)
        .unwrap();
    recording.finish(12.0).unwrap();
    assert!(!is_being_written(&path).unwrap());
    let mut bytes = fs::read(&path).unwrap();
    bytes[at] = 0;
    fs::write(&path, &bytes).unwrap();
    let error = repair::repair_in_place(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert_eq!(fs::read(&path).unwrap(), bytes);

    // Into itself: the damaged one moves away.
    let survey = repair::repair_into(&path, &path).unwrap();
    assert_eq!(folder.names(), ["sub.xdf", "sub_old1.xdf"]);
    assert_eq!(fs::read(folder.0.join("sub_old1.xdf")).unwrap(), bytes);
    let loaded = load(fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(loaded.problems, []);
    let stream = &loaded.streams[0];
    assert_eq!(stream.stamps.len(), 4);
    assert_eq!(stream.stamps.last(), Some(&5001.0));
    assert_eq!(survey.repaired_len(), fs::metadata(&path).unwrap().len());
}

#[test]
fn a_file_that_is_being_recorded_is_not_repaired_where_it_is() {
    let folder = Folder::new("held");
    let path = folder.0.join("sub.xdf");
    let mut recording = record(&path, 10);
    let error = repair::repair_in_place(&path).unwrap_err().to_string();
    assert!(
        error.contains("it is being recorded; stop the recording first"),
        "{error}"
    );
    // Nor does it make way for another recorder.
    let error = Recording::create(&path, &FileHeader::new("now"), 0.0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    assert!(
        error.to_string().contains("it is being recorded"),
        "{error}"
    );
    assert_eq!(folder.names(), ["sub.xdf", "sub.xdf.lslj"]);
    // Looking at it harms nobody.
    repair::check(&path).unwrap();
    let values = made::values(ChannelFormat::Int32, 10, 1, 1);
    let stamps = made::stamps(10, 1, 100.0);
    recording.samples(1, &stamps, &values, 0.1).unwrap();
    recording.finish(1.0).unwrap();
    // Finished, it is free, whoever keeps it open.
    let survey = repair::repair_in_place(&path).unwrap();
    assert_eq!(survey.streams[&1].tally.samples, 11);
    assert!(survey.is_whole());
    drop(recording);
    // A recorder that was killed holds nothing.
    let path = folder.0.join("killed.xdf");
    drop(record(&path, 10));
    assert_eq!(
        repair::repair_in_place(&path).unwrap().streams[&1]
            .tally
            .samples,
        10
    );
}

/// What can still be read is not dropped where nobody can get it back from.
#[test]
fn a_repair_in_place_drops_nothing_that_is_readable() {
    let folder = Folder::new("drops");
    let path = folder.0.join("sub.xdf");
    let refused = |bytes: &[u8], words: &str| {
        fs::write(&path, bytes).unwrap();
        let error = repair::repair_in_place(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(fs::read(&path).unwrap() == bytes, "it stays as it is");
    };
    let recording = record(&path, 200);
    let whole = recording.len() as usize;
    drop(recording);
    let bytes = fs::read(&path).unwrap();
    assert!(!bytes.windows(16).any(|part| part == BOUNDARY_UUID));
    // The length of a length, of a clock offset, of samples; their tag; their number.
    let samples_at = whole - 200 * 23;
    for (at, value) in [
        (samples_at + 46, 0),
        (samples_at + 46, 4),
        (samples_at + 46 + 1, 200),
        (samples_at + 46 + 2, 4),
        (samples_at + 46 + 2, 6),
        (samples_at + 46 + 9, 255),
        (samples_at - 24, 4),
    ] {
        let mut damaged = bytes.clone();
        damaged[at] = value;
        refused(&damaged, "repair it into another file");
    }
    // The header of the only stream.
    let at = bytes
        .windows(14)
        .position(|part| part == b"int32</channel")
        .unwrap();
    let mut damaged = bytes.clone();
    damaged[at] = b'X';
    refused(&damaged, "would drop");
    // A last chunk that is too long to be written anew, cut, with whole samples in it.
    let mut long = MAGIC.to_vec();
    let header = made::header(ChannelFormat::Double64, 64, 100.0);
    encode::stream_header(&mut long, 1, &header).unwrap();
    let count = 10_000;
    let stamps = made::stamps(0, count, 100.0);
    let values = made::values(ChannelFormat::Double64, 0, count, 64);
    let mut encoder = SampleEncoder::new(1, &header);
    encoder
        .chunk(&mut long, &stamps, &values, 0, usize::MAX)
        .unwrap();
    long.truncate(long.len() - 1000);
    refused(&long, "would drop");

    // Cut anywhere, with zeros behind that or without, it is repaired.
    let mut recording = record(&path, 5);
    recording.tick(11.0).unwrap();
    recording
        .private(lsl_xdf::chunk::PADDING_TAG, &[0; 20], 11.0)
        .unwrap();
    recording.finish(12.0).unwrap();
    let bytes = fs::read(&path).unwrap();
    for cut in (4..bytes.len()).step_by(3) {
        fs::write(&path, &bytes[..cut]).unwrap();
        repair::repair_in_place(&path).unwrap();
        assert!(repair::check(&path).unwrap().is_whole(), "{cut}");
    }
    fs::write(&path, [&bytes[..samples_at + 23], &[0; 5000]].concat()).unwrap();
    assert_eq!(
        repair::repair_in_place(&path).unwrap().streams[&1]
            .tally
            .samples,
        1
    );
}
