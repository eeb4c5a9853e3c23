use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use lsl_proto::ChannelFormat;

use super::*;
use crate::{FileHeader, PipeSink, Recording, StreamHeader};

struct Key(SigningKey);

impl Key {
    fn new(seed: u8) -> Self {
        Self(SigningKey::from_bytes(&[seed; 32]))
    }
}

impl Signer for Key {
    fn public_key(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        assert!(message.starts_with(CONTEXT));
        self.0.sign(message).to_bytes()
    }
}

fn is_signed(key: &[u8; 32], message: &[u8], signature: &[u8; 64]) -> bool {
    let signature = Signature::from_bytes(signature);
    VerifyingKey::from_bytes(key).is_ok_and(|key| key.verify_strict(message, &signature).is_ok())
}

fn proof(bytes: &[u8]) -> Proof {
    verify(bytes, is_signed).unwrap()
}

/// Records a minute of one stream, a chunk of some 400 bytes each second.
fn recorded(seed: Option<u8>, finish: bool) -> Vec<u8> {
    let header = FileHeader::new("2026-11-22T08:31:56+0000");
    let mut recording = Recording::new(PipeSink(Vec::new()), &header, 0.0).unwrap();
    if let Some(seed) = seed {
        recording.sign_with(Box::new(Key::new(seed)), 0.0).unwrap();
    }
    let eeg = StreamHeader::new("EEG", "EEG", 1, 50.0, ChannelFormat::Float32).unwrap();
    let eeg = recording.add_stream(&eeg, 0.0).unwrap();
    for second in 0..60 {
        let now = f64::from(second);
        let stamps: Vec<f64> = (0..50).map(|n| now + f64::from(n) / 50.0).collect();
        let values = vec![1.0_f32; 50];
        recording
            .samples(eeg, &stamps, &values.into(), now)
            .unwrap();
    }
    if finish {
        recording.finish(60.0).unwrap();
    }
    recording.into_sink().0
}

#[test]
fn a_whole_file_is_proven_whole() {
    let bytes = recorded(Some(1), true);
    let proof = proof(&bytes);
    assert!(proof.is_complete(), "{proof:?}");
    assert_eq!(proof.key, Some(Key::new(1).public_key()));
    // One every ten seconds, and the one that closes it.
    assert_eq!((proof.links, proof.len), (7, bytes.len() as u64));
    // Other readers see nothing of it.
    let plain = crate::load(&recorded(None, true)[..]).unwrap();
    let signed = crate::load(&bytes[..]).unwrap();
    assert!(signed.problems.is_empty());
    assert_eq!(signed.streams[0].stamps, plain.streams[0].stamps);
    assert!(crate::repair::survey(&bytes[..]).unwrap().is_whole());
}

#[test]
fn no_chain_proves_nothing() {
    let bytes = recorded(None, true);
    let proof = proof(&bytes);
    assert_eq!(
        (proof.key, proof.proven_bytes, proof.broken),
        (None, 0, None)
    );
    assert_eq!(proof.len, bytes.len() as u64);
    assert!(!proof.is_complete());
}

#[test]
fn a_file_that_was_cut_is_proven_up_to_the_last_link() {
    let whole = recorded(Some(1), true);
    let mut most = 0;
    for cut in (4..whole.len()).step_by(37) {
        let proof = proof(&whole[..cut]);
        assert!(
            !proof.is_closed && proof.broken.is_none(),
            "{cut} {proof:?}"
        );
        assert_eq!(proof.len, cut as u64);
        assert!(proof.proven_bytes <= cut as u64 && proof.proven_bytes >= most);
        most = proof.proven_bytes;
    }
    assert!(most > 0);
    let unfinished = proof(&recorded(Some(1), false));
    assert_eq!((unfinished.links, unfinished.is_closed), (5, false));
}

#[test]
fn no_byte_can_be_changed() {
    let whole = recorded(Some(1), true);
    for at in (4..whole.len()).step_by(11) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        let proof = proof(&bytes);
        assert!(!proof.is_complete(), "{at}: {proof:?}");
        assert!(proof.proven_bytes <= at as u64, "{at}: {proof:?}");
    }
}

#[test]
fn nothing_can_be_left_out_added_or_moved() {
    let whole = recorded(Some(1), true);
    let is_samples = |head: &[u8]| head[0] == 4 && head[3..] == [0, 0, 3, 0];
    let chunk = whole.windows(7).position(is_samples).unwrap();
    let len = |chunk: &[u8]| 5 + u32::from_le_bytes(chunk[1..5].try_into().unwrap()) as usize;
    let (before, rest) = whole.split_at(chunk);
    let (moved, after) = rest.split_at(len(rest));
    let (next, later) = after.split_at(len(after));
    assert!(is_samples(&next[..7]));
    for forged in [
        [before, after].concat(),
        [before, moved, moved, after].concat(),
        [before, next, moved, later].concat(),
    ] {
        let proof = proof(&forged);
        let reason = proof.broken.map(|broken| broken.reason);
        assert_eq!(reason, Some(BrokenReason::Content), "{proof:?}");
        assert_eq!(proof.proven_bytes, 0);
    }
    let longer = proof(&[&whole[..], moved].concat());
    assert!(longer.is_closed && !longer.is_complete(), "{longer:?}");
}

#[test]
fn nobody_else_can_go_on() {
    let whole = recorded(Some(1), true);
    let first = proof(&recorded(Some(1), false)).proven_bytes;
    let start = &whole[..usize::try_from(first).unwrap()];
    let mut chain = Chain::new(Box::new(Key::new(2)), start, 0.0);
    chain.wrote(&[]);
    let forged = [start, &chain.last_link()].concat();
    let proof_of_it = proof(&forged);
    let reason = proof_of_it.broken.map(|broken| broken.reason);
    assert_eq!(reason, Some(BrokenReason::Key));
    assert_eq!(proof_of_it.proven_bytes, first);
    // An inner link that claims to be the last one.
    let mut forged = start.to_vec();
    let link = start.len() - usize::try_from(CHUNK_LEN).unwrap();
    assert_eq!(forged[link + HEAD_LEN..][..2], [VERSION, 0]);
    forged[link + HEAD_LEN + 1] = 1;
    let reason = proof(&forged).broken.map(|broken| broken.reason);
    assert_eq!(reason, Some(BrokenReason::Signature));
}

#[test]
fn a_claimed_length_allocates_nothing() {
    let mut bytes = MAGIC.to_vec();
    bytes.extend([8, 255, 255, 255, 255, 255, 255, 255, 127, 1, 0x7A, 1, 2]);
    let proof = proof(&bytes);
    assert_eq!(proof.len, bytes.len() as u64);
    assert!(proof.broken.is_some());
    assert!(verify(&b"XDF"[..], is_signed).is_err());
}

#[test]
fn a_chain_begins_at_the_begin() {
    let header = FileHeader::new("");
    let mut recording = Recording::new(PipeSink(Vec::new()), &header, 0.0).unwrap();
    let eeg = StreamHeader::new("EEG", "EEG", 1, 0.0, ChannelFormat::Int8).unwrap();
    recording.add_stream(&eeg, 0.0).unwrap();
    assert!(recording.sign_with(Box::new(Key::new(1)), 0.0).is_err());
}
