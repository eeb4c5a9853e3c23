//! Recordings that are signed while they are made, and what `lsl verify` says of them.

use std::fs;

use lsl_xdf::at_rest::{Decrypting, Ending, Identities, KeyPair};
use lsl_xdf::chunk::{INTEGRITY_TAG, MAGIC, PADDING_TAG, Parsed, Tag, read_head};

use crate::lab::Lab;
use crate::machine::Machine;
use crate::record::{Verdict, generate, nothing_is_missing, read, stream, until_recording};

/// The tags of the chunks of a whole file.
fn tags(bytes: &[u8]) -> Vec<Tag> {
    let mut rest = bytes.strip_prefix(&MAGIC).unwrap();
    let mut tags = Vec::new();
    while !rest.is_empty() {
        let Parsed::Done(head, len) = read_head(rest) else {
            panic!("no chunk behind {} others", tags.len());
        };
        tags.push(head.tag);
        rest = &rest[len + usize::try_from(head.content_len).unwrap()..];
    }
    tags
}

fn decrypted(path: &str, pair: &KeyPair) -> Vec<u8> {
    let mut identities = Identities::new();
    identities.add("the key", &pair.identity).unwrap();
    let file = fs::File::open(path).unwrap();
    let mut plain = Decrypting::new(file, &identities, Ending::Strict).unwrap();
    let mut bytes = Vec::new();
    std::io::copy(&mut plain, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_signed_recording_proves_who_made_it_and_that_it_is_whole() {
    let lab = Lab::new();
    let rec = Machine::with_key(&lab, "rec1");
    let _generator = rec.start(&generate("Amp", &[]));
    let path = lab.path("signed.xdf");
    let words = ["record", "--sign", "Amp", "-o", &path, "--duration", "1"];
    let fingerprint = rec.fingerprint();
    rec.run(&words).with(0, &["Signed with", &fingerprint]);
    nothing_is_missing(stream(&read(&path), "Amp"));
    let verified = rec.run(&["verify", "--signed", &path]).ok().stdout;
    assert!(verified.contains("signed by this device"), "{verified}");
    assert!(verified.contains(&fingerprint), "{verified}");
    // Elsewhere it is known by the key, by its name once it is trusted, and by nothing before.
    let desk = Machine::with_key(&lab, "desk");
    let unknown = desk.run(&["verify", &path]);
    assert_eq!(unknown.status, Some(1));
    assert!(
        unknown.stdout.contains("nobody that we know"),
        "{unknown:?}"
    );
    desk.run(&["verify", "--signer", &rec.key(), &path]).ok();
    desk.run(&["trust", "add", "amp1", &rec.key()]).ok();
    let verified = desk.run(&["verify", &path]).ok().stdout;
    assert!(verified.contains("signed by amp1"), "{verified}");
    for part in ["  recorded 20", ", session lab-"] {
        assert!(verified.contains(part), "{part} in {verified}");
    }
    // The entry of its signer has to let it record, today, and these streams.
    for (narrowed, reason) in [
        (&["--role", "outlet"][..], "trusted as outlet only"),
        (&["--not-after", "2020-01-01"], "ended on 2020-01-01"),
        (&["--streams", "name='Other'"], "other streams than 'Amp'"),
    ] {
        desk.run(&["trust", "remove", "amp1"]).ok();
        let words = ["trust", "add", "amp1", &rec.key()];
        desk.run(&[&words[..], narrowed].concat()).ok();
        let refused = desk.run(&["verify", "--signed", &path]);
        assert_eq!(refused.status, Some(1), "{refused:?}");
        assert!(refused.stdout.contains(reason), "{refused:?}");
        assert!(refused.stdout.contains("signed by amp1"), "{refused:?}");
    }
    desk.run(&["verify", "--signer", &rec.key(), &path]).ok();
    desk.run(&["trust", "remove", "amp1"]).ok();
    let revoked = desk.run(&["verify", "--signed", &path]);
    assert!(
        revoked.stdout.contains("nobody that we know"),
        "{revoked:?}"
    );

    let whole = fs::read(&path).unwrap();
    let proof = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let ended = rec.run(&["verify", "--json", &path]);
        (ended.status, ended.json())
    };
    let (status, good) = proof(&whole);
    assert_eq!((status, &good["closed"]), (Some(0), &true.into()));
    assert_eq!(good["proven_bytes"], whole.len());
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let (status, bad) = proof(&flipped);
    assert_eq!(
        (status, &bad["proven_bytes"]),
        (Some(1), &0.into()),
        "{bad}"
    );
    assert!(bad["error"].to_string().contains("changed"), "{bad}");
    for len in [whole.len() - 1, whole.len() - 200, whole.len() / 2] {
        let (status, cut) = proof(&whole[..len]);
        assert_eq!(status, Some(1), "{cut}");
        assert_eq!(cut["closed"], false, "{cut}");
    }
}

#[test]
fn signatures_are_sealed_in_encrypted_recordings() {
    let lab = Lab::new();
    let rec = Machine::with_key(&lab, "rec1");
    let pair = KeyPair::generate();
    let identity = lab.write("key.txt", &pair.identity);
    let recipients = lab.write("lab.txt", &pair.recipient);
    let _generator = rec.start(&generate("Amp", &[]));
    let path = lab.path("signed.xdf.age");
    // The options by which `lsl lock` knows recipients.
    let words = ["record", "--sign", "-R", &recipients, "-o", &path];
    rec.run(&[&words[..], &["--duration", "1"]].concat()).ok();
    let words = ["verify", "--signed", "-i", &identity, &path];
    let verified = rec.run(&words).ok().stdout;
    assert!(verified.contains("signed by this device"), "{verified}");
    let bytes = decrypted(&path, &pair);
    assert_eq!(tags(&bytes).last(), Some(&Tag::Other(INTEGRITY_TAG)));
    // Whoever can open it can make another one, but not sign it.
    let mut flipped = bytes;
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let forged = lab.path("forged.xdf");
    fs::write(&forged, &flipped).unwrap();
    rec.run(&["lock", "-r", &pair.recipient, &forged]).ok();
    let words = ["verify", "--signed", "-i", &identity, "forged.xdf.age"];
    let mut words = words.map(str::to_owned);
    words[4] = format!("{forged}.age");
    let ended = rec.run(&words.each_ref().map(String::as_str));
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("NOT PROVEN"), "{ended:?}");
}

#[test]
fn what_a_killed_recorder_leaves_is_proven_up_to_its_last_link() {
    let lab = Lab::new();
    let rec = Machine::with_key(&lab, "rec1");
    // A link is due every MiB, so every second.
    let _generator = rec.start(&[
        "gen",
        "--name",
        "Wide",
        "--pattern",
        "counter",
        "--rate",
        "4000",
        "--format",
        "int32",
        "--channels",
        "64",
        "--chunk",
        "40",
    ]);
    let path = lab.path("killed.xdf");
    let recorder = rec.start(&["record", "--sign", "Wide", "-o", &path]);
    until_recording(&path, 2_500_000);
    recorder.kill();
    rec.run(&["xdf", "repair", &path]).ok();
    nothing_is_missing(stream(&read(&path), "Wide"));
    let ended = rec.run(&["verify", "--json", &path]);
    let proof = ended.json();
    assert_eq!(ended.status, Some(1), "{proof}");
    assert!(proof["error"].to_string().contains("not closed"), "{proof}");
    assert_eq!(proof["signer"], "this device");
    let len = fs::metadata(&path).unwrap().len();
    let proven = proof["proven_bytes"].as_u64().unwrap();
    // What is not proven is less than a link's distance, the footers and a chunk.
    assert!(proven < len && proven > len - (2 << 20), "{proof}");
}

#[test]
fn signing_needs_a_key() {
    let lab = Lab::new();
    let path = lab.path("none.xdf");
    let guest = Machine::new(&lab, "guest");
    guest
        .run(&["record", "--sign", "-o", &path])
        .refused(1, &["--sign needs", "lsl key init"]);
    guest
        .run(&["record", "--sign", "--no-private-chunks", "-o", &path])
        .refused(2, &["cannot be used with"]);
    assert!(!fs::exists(&path).unwrap());
}

#[test]
fn private_chunks_can_be_left_out() {
    let lab = Lab::new();
    let pair = KeyPair::generate();
    // Slow streams are padded every ten seconds; this one fills no block in that time.
    let _generator = lab.start(&["gen", "--name", "Amp", "--rate", "50", "--channels", "2"]);
    let record = |name: &str, more: &[&str]| {
        let path = lab.path(name);
        let words = ["record", "Amp", "-r", &pair.recipient, "-o", &path];
        (lab.start(&[&words[..], more].concat()), path)
    };
    let (padded, padded_path) = record("padded.xdf.age", &[]);
    let (bare, bare_path) = record("bare.xdf.age", &["--no-private-chunks"]);
    until_recording(&bare_path, 0);
    until_recording(&padded_path, 64 << 10);
    for recorder in [padded, bare] {
        recorder.interrupt();
        recorder.wait().ok();
    }
    let padding = |path: &str| {
        let tags = tags(&decrypted(path, &pair));
        tags.iter()
            .filter(|tag| matches!(tag, Tag::Other(code) if *code >= PADDING_TAG))
            .count()
    };
    assert!(padding(&padded_path) > 0);
    assert_eq!(padding(&bare_path), 0);
}
