use std::fs;

use serde_json::Value;

use super::*;

const TERMS: FeedOptions = FeedOptions {
    version: 110,
    max_buffer_samples: 36_000,
    max_chunk_samples: 0,
};

fn unhex(text: &Value) -> Vec<u8> {
    let pairs = text.as_str().unwrap().as_bytes().chunks(2);
    pairs
        .map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap())
        .collect()
}

/// Every session of a real inlet with a scripted outlet.
fn sessions() -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors");
    let mut sessions: Vec<Value> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("inlet1")
        })
        .map(|path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap())
        .collect();
    sessions.sort_by_key(|session: &Value| session["id"].as_str().unwrap().to_owned());
    assert!(sessions.len() >= 20, "vectors are missing");
    sessions
}

fn info_of(session: &Value) -> StreamInfo {
    StreamInfo::from_xml(&unhex(&session["inputs"]["stream_xml_hex"])).unwrap()
}

fn version_of(session: &Value) -> u32 {
    let request = unhex(&session["exchange"][0]["hex"]);
    if request.starts_with(b"LSL:streamfeed/") {
        110
    } else {
        100
    }
}

/// The session's bytes, handed over in pieces: timestamps and raw values that come out.
fn run(session: &Value, piece_bytes: usize) -> Vec<(f64, Vec<u8>)> {
    let terms = FeedOptions {
        version: version_of(session),
        ..TERMS
    };
    let mut feed = FeedDecoder::new(&info_of(session), terms);
    let mut ring = SampleRing::new(1000, usize::MAX);
    let mut bytes = unhex(&session["exchange"][1]["hex"]);
    bytes.extend(unhex(&session["exchange"][2]["hex"]));
    let mut state = FeedState::Opening;
    for piece in bytes.chunks(piece_bytes) {
        state = feed.receive(piece, &mut ring).unwrap();
    }
    assert_eq!(state, FeedState::Established);
    let mut samples = Vec::new();
    while let Some((timestamp, raw)) = ring.front() {
        samples.push((timestamp, raw.to_vec()));
        ring.pop_many(1);
    }
    assert_eq!(samples.len() as u64, feed.samples());
    samples
}

#[test]
fn captured_sessions_give_the_samples_that_liblsl_decoded() {
    for session in sessions() {
        let id = &session["id"];
        let whole = run(&session, usize::MAX);
        let expected = session["decoded_by_liblsl"].as_array().unwrap();
        assert_eq!(whole.len(), expected.len(), "{id}");
        for ((timestamp, _), sample) in whole.iter().zip(expected) {
            let wanted = sample["timestamp"].as_f64().unwrap();
            assert_eq!(timestamp.to_bits(), wanted.to_bits(), "{id}");
        }
        for piece_bytes in [1, 3, 100] {
            // Debug text, because NaN is in there.
            assert_eq!(
                format!("{:?}", run(&session, piece_bytes)),
                format!("{whole:?}"),
                "{id}"
            );
        }
    }
}

#[test]
fn a_feed_of_another_outlet_is_refused() {
    for session in sessions() {
        let mut info = info_of(&session);
        info.reset_uid("11111111-2222-4333-8444-555555555555");
        let terms = FeedOptions {
            version: version_of(&session),
            ..TERMS
        };
        let mut feed = FeedDecoder::new(&info, terms);
        let mut ring = SampleRing::new(10, usize::MAX);
        let refused = feed.receive(&unhex(&session["exchange"][1]["hex"]), &mut ring);
        assert!(refused.is_err(), "{}", session["id"]);
        assert!(ring.is_empty());
    }
}

#[test]
fn wrong_test_patterns_end_the_connection() {
    for session in sessions() {
        let mut feed = FeedDecoder::new(
            &info_of(&session),
            FeedOptions {
                version: version_of(&session),
                ..TERMS
            },
        );
        let mut ring = SampleRing::new(10, usize::MAX);
        let mut bytes = unhex(&session["exchange"][1]["hex"]);
        // The last byte belongs to the last value of the second pattern.
        *bytes.last_mut().unwrap() ^= 0x01;
        assert!(
            feed.receive(&bytes, &mut ring).is_err(),
            "{}",
            session["id"]
        );
        assert!(!feed.is_established(), "{}", session["id"]);
    }
}

#[test]
fn the_end_says_what_it_means() {
    let session = sessions()
        .into_iter()
        .find(|each| version_of(each) == 110)
        .unwrap();
    let check = |text: &[u8], expected: &str| {
        let mut feed = FeedDecoder::new(&info_of(&session), TERMS);
        let mut ring = SampleRing::new(10, usize::MAX);
        feed.receive(text, &mut ring).unwrap();
        assert!(feed.end().to_string().contains(expected), "{expected}");
    };
    check(b"LSL/110 404 Not found", "another one");
    check(b"LSL/110 505 Version not supported", "versions");
    check(b"", "closed");
}
