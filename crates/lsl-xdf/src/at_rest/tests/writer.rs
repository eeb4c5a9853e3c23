use std::io::{ErrorKind, Write};

use super::*;
use crate::at_rest::payload::SEALED_LEN;

#[test]
fn every_length_comes_back() {
    let (recipients, identities) = pair();
    for len in lengths() {
        let plain = bytes(len);
        let file = encrypt(&plain, &recipients);
        let chunks = len.div_ceil(CHUNK_LEN).max(1);
        assert_eq!(file.len(), head_len(&file) + len + 16 * chunks, "{len}");
        assert_eq!(
            decrypt(&file, &identities).unwrap(),
            (plain.clone(), End::Whole),
            "{len}"
        );
        let (read, result) = decrypt_strictly(&file, &identities);
        result.unwrap();
        assert_eq!(read, plain, "{len}");
    }
}

#[test]
fn pieces_of_any_size_make_the_same_plaintext() {
    let (recipients, identities) = pair();
    let plain = bytes(3 * CHUNK_LEN + 17);
    for piece in [1, 13, 4096, CHUNK_LEN - 1, CHUNK_LEN, CHUNK_LEN + 1] {
        let mut writer = Encrypting::new(Vec::new(), &recipients).unwrap();
        for piece in plain.chunks(piece) {
            writer.write_all(piece).unwrap();
            writer.flush().unwrap();
        }
        let file = writer.finish().unwrap();
        let mut read = Vec::new();
        let reader = Trickle(&file, false);
        Decrypting::new(reader, &identities, Ending::Strict)
            .unwrap()
            .read_to_end(&mut read)
            .unwrap();
        assert!(read == plain, "pieces of {piece}");
    }
}

#[test]
fn tells_what_is_sealed_and_what_it_takes() {
    let (recipients, _) = pair();
    let mut writer = Encrypting::new(Vec::new(), &recipients).unwrap();
    let head = writer.output_bytes();
    assert_eq!((writer.sealed_bytes(), writer.bytes_to_seal()), (0, 0));
    writer.write_all(&bytes(100)).unwrap();
    assert_eq!(writer.accepted_bytes(), 100);
    assert_eq!(
        (writer.sealed_bytes(), writer.bytes_to_seal()),
        (0, CHUNK_LEN - 99)
    );
    assert_eq!(writer.output_bytes(), head);

    // The padding that a recorder writes brings out exactly the bytes that were waiting.
    writer.write_all(&vec![0; CHUNK_LEN - 99]).unwrap();
    assert_eq!(writer.sealed_bytes(), CHUNK_LEN as u64);
    assert_eq!(
        writer.bytes_to_seal(),
        CHUNK_LEN,
        "one byte began the next chunk"
    );
    assert_eq!(writer.output_bytes(), head + SEALED_LEN as u64);
    assert_eq!(writer.get_ref().len() as u64, writer.output_bytes());

    writer.try_finish().unwrap();
    assert_eq!(writer.sealed_bytes(), CHUNK_LEN as u64 + 1);
    assert_eq!(writer.bytes_to_seal(), 0);
    writer.try_finish().unwrap();
    let len = writer.get_ref().len();
    assert!(writer.write_all(b"more").is_err(), "the end was written");
    assert_eq!(
        writer.finish().unwrap().len(),
        len,
        "finished twice is finished once"
    );
}

#[test]
fn a_drop_leaves_every_whole_chunk() {
    let (recipients, identities) = pair();
    for len in lengths() {
        let plain = bytes(len);
        let mut file = Vec::new();
        let mut writer = Encrypting::new(&mut file, &recipients).unwrap();
        writer.write_all(&plain).unwrap();
        drop(writer);
        let whole = len / CHUNK_LEN * CHUNK_LEN;
        assert_eq!(file.len(), head_len(&file) + whole / CHUNK_LEN * SEALED_LEN);
        let (read, end) = decrypt(&file, &identities).unwrap();
        assert_eq!((read.len(), end), (whole, End::CutOff), "{len}");
        assert!(read == plain[..whole]);
    }
}

#[test]
fn a_full_disk_loses_nothing_that_was_accepted() {
    let (recipients, identities) = pair();
    let plain = bytes(3 * CHUNK_LEN + 5);
    for room in [1000, SEALED_LEN, 2 * SEALED_LEN + 77, 3 * SEALED_LEN] {
        let mut writer = Encrypting::new(
            Fussy {
                room: 100_000_000,
                ..Fussy::default()
            },
            &recipients,
        )
        .unwrap();
        writer.get_mut().room = room;
        let mut rest = &plain[..];
        let mut failures = 0;
        while !rest.is_empty() {
            match writer.write(rest) {
                Ok(len) => rest = &rest[len..],
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::StorageFull);
                    assert_eq!(writer.accepted_bytes(), (plain.len() - rest.len()) as u64);
                    failures += 1;
                    // Fails twice in a row, then there is room.
                    if failures == 2 {
                        writer.get_mut().room = 10_000_000;
                    }
                }
            }
        }
        if failures == 0 {
            assert!(writer.try_finish().is_err());
            writer.get_mut().room = 10_000_000;
        } else {
            assert_eq!(failures, 2);
        }
        let file = writer.finish().unwrap().taken;
        let (read, end) = decrypt(&file, &identities).unwrap();
        assert_eq!(end, End::Whole);
        assert!(read == plain, "room {room}");
    }
}

#[test]
fn nothing_of_the_plaintext_is_in_the_file() {
    let (recipients, _) = pair();
    let plain = b"participant P001 ".repeat(20_000);
    let file = encrypt(&plain, &recipients);
    assert!(!file.windows(11).any(|window| window == b"participant"));
    assert_ne!(encrypt(&plain, &recipients), file, "a new key each time");
}

#[test]
fn everything_can_move_to_another_thread() {
    fn send<T: Send>() {}
    fn share<T: Send + Sync>() {}
    send::<Encrypting<Vec<u8>>>();
    send::<Decrypting<io::Empty>>();
    share::<Recipients>();
    share::<Identities>();
    share::<Error>();
}
