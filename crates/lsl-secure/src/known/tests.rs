//! The memory of encrypted streams: several writers, limits, matching.

use std::fs;

use super::*;
use crate::SecretKey;
use crate::files::scratch::Scratch;

#[test]
fn keys_have_one_length() {
    assert_eq!(key(1).to_string().len(), KEY_LEN);
}

fn key(seed: u8) -> PublicKey {
    SecretKey::from_seed(&[seed; 32]).public()
}

fn descriptor(name: &[u8], stream_type: &[u8], source_id: &[u8]) -> Descriptor {
    Descriptor {
        uid: Vec::new(),
        name: name.to_vec(),
        stream_type: stream_type.to_vec(),
        source_id: source_id.to_vec(),
        hostname: Vec::new(),
        session_id: Vec::new(),
        channel_count: 1,
        nominal_srate: 0.0,
        channel_format: 1,
        created_at: 0.0,
    }
}

#[test]
fn streams_match_by_source_id_or_by_name_and_type() {
    let known = Known::in_memory();
    let check = |name: &[u8], stream_type: &[u8], source_id: &[u8], expected: Option<u8>| {
        let found = known.find(name, stream_type, source_id).unwrap();
        assert_eq!(
            found,
            expected.map(key),
            "{name:?} {stream_type:?} {source_id:?}"
        );
    };
    known
        .note(&descriptor(b"eeg", b"EEG", b"amp-7"), &key(1))
        .unwrap();
    known
        .note(&descriptor(b"no id", b"", b""), &key(2))
        .unwrap();
    known
        .note(&descriptor(b"\xff\x00\n\"\\", b"\xe4", b"\xfe"), &key(3))
        .unwrap();
    known
        .note(&descriptor(&[b'x'; 1000], b"", &[b'y'; 70]), &key(4))
        .unwrap();
    check(b"eeg", b"EEG", b"", Some(1));
    check(b"", b"", b"amp-7", Some(1));
    check(b"eeg", b"", b"amp", None);
    check(b"", b"", b"", None);
    check(b"no id", b"", b"other", Some(2));
    check(b"no id", b"x", b"", None);
    check(b"\xff\x00\n\"\\", b"\xe4", b"", Some(3));
    check(b"", b"", b"\xfe", Some(3));
    check(b"\\xff", b"\\xe4", b"\\xfe", None);
    check(&[b'x'; 1000], b"", b"", Some(4));
    check(&[b'x'; 999], b"", b"", None);
    check(b"", b"", &[b'y'; 70], Some(4));
    // The newest key of a stream is the one to name.
    known
        .note(&descriptor(b"eeg", b"EEG", b"amp-7"), &key(5))
        .unwrap();
    check(b"eeg", b"EEG", b"", Some(5));
}

#[test]
fn long_texts_match_as_descriptors_cut_them() {
    let long = [b'a'; 1500];
    let cut = [&long[..992], &Sha256::digest(long)].concat();
    let known = Known::in_memory();
    known.note(&descriptor(&cut, b"t", b""), &key(1)).unwrap();
    assert_eq!(known.find(&long, b"t", b"").unwrap(), Some(key(1)));
    assert_eq!(known.find(&cut, b"t", b"").unwrap(), Some(key(1)));
    assert_eq!(known.find(&long[..1400], b"t", b"").unwrap(), None);
}

#[test]
fn several_processes_share_one_file() {
    let scratch = Scratch::new();
    let path = scratch.path("known_secure");
    // Each thread has an instance of its own, as a process has.
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let path = path.clone();
            scope.spawn(move || {
                let known = Known::open(path).unwrap();
                for index in 0..50_u8 {
                    let name = [writer, index];
                    known.note(&descriptor(&name, b"t", b""), &key(1)).unwrap();
                    // What all of them see is written once or a few times, and read by all.
                    known
                        .note(&descriptor(b"same", b"t", &[index]), &key(1))
                        .unwrap();
                }
            });
        }
    });
    let known = Known::open(path.clone()).unwrap();
    for writer in 0..4_u8 {
        for index in 0..50_u8 {
            let found = known.find(&[writer, index], b"t", b"").unwrap();
            assert_eq!(found, Some(key(1)), "{writer} {index}");
        }
    }
    assert_eq!(
        fs::read_to_string(&path).unwrap().lines().count(),
        4 * 50 + 50
    );
    assert_eq!(scratch.mode("known_secure"), 0o600);
}

/// Small ones, so that tests reach them.
const FEW: Limits = Limits {
    entries: 100,
    slack: 10,
};

#[test]
fn the_oldest_go_when_it_is_full() {
    let scratch = Scratch::new();
    let path = scratch.path("known_secure");
    let known = Known::open_limited(path.clone(), FEW).unwrap();
    let lines = || fs::read_to_string(&path).unwrap().lines().count();
    let name = |index: usize| format!("n{index}").into_bytes();
    for index in 0..250 {
        known
            .note(&descriptor(&name(index), b"t", b""), &key(1))
            .unwrap();
        assert!(lines() <= 110, "{index}");
        // Another process sees the same.
        let other = Known::open_limited(path.clone(), FEW).unwrap();
        for seen in [
            0,
            index.saturating_sub(100),
            index.saturating_sub(99),
            index,
        ] {
            let expected = seen + 100 > index;
            for known in [&known, &other] {
                let found = known.find(&name(seen), b"t", b"").unwrap().is_some();
                assert_eq!(found, expected, "{seen} at {index}");
            }
        }
    }
    assert_eq!(scratch.mode("known_secure"), 0o600);
    assert_eq!(scratch.names(), ["known_secure"]);
}

#[test]
fn shortening_the_file_loses_nothing_of_others() {
    let scratch = Scratch::new();
    let path = scratch.path("known_secure");
    let fill = Known::open_limited(path.clone(), FEW).unwrap();
    for index in 0..90_u8 {
        fill.note(&descriptor(&[index], b"old", b""), &key(1))
            .unwrap();
    }
    // 4 x 24 new ones: all of them are among the newest 100, whoever shortens the file.
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let known = Known::open_limited(path.clone(), FEW).unwrap();
            scope.spawn(move || {
                for index in 0..24_u8 {
                    known
                        .note(&descriptor(&[writer, index], b"t", b""), &key(1))
                        .unwrap();
                }
            });
        }
    });
    let known = Known::open_limited(path, FEW).unwrap();
    for writer in 0..4_u8 {
        for index in 0..24_u8 {
            let found = known.find(&[writer, index], b"t", b"").unwrap();
            assert_eq!(found, Some(key(1)), "{writer} {index}");
        }
    }
}

#[test]
fn a_full_file_can_be_read_again() {
    // The longest texts that are kept as they are.
    let longest = "\\xff".repeat(MAX_TEXT);
    let entry = KnownStream {
        source_id: longest.clone(),
        name: longest.clone(),
        stream_type: longest,
        key: key(1).to_string(),
    };
    let most = line_of(&entry).unwrap().len() * (LIMITS.entries + LIMITS.slack);
    assert!((most as u64) < MAX_BYTES, "{most}");
}
