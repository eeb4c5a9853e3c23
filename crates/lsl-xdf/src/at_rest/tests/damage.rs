use super::*;
use crate::at_rest::payload::SEALED_LEN;
use crate::at_rest::{ErrorKind, Work, unlock_stream};

/// Returns the plaintext of a stump of `payload_len` bytes: every whole chunk.
fn whole_chunks(payload_len: usize) -> usize {
    payload_len / SEALED_LEN * CHUNK_LEN
}

#[test]
fn a_file_cut_anywhere_gives_its_whole_chunks() {
    let (recipients, identities) = pair();
    let plain = bytes(3 * CHUNK_LEN + 100);
    let file = encrypt(&plain, &recipients);
    let head = head_len(&file);

    // Every byte of the header, and around every boundary of the payload.
    let mut cuts: Vec<usize> = (0..head + 40).collect();
    for chunk in 1..=3 {
        let boundary = head + chunk * SEALED_LEN;
        cuts.extend(boundary - 20..boundary + 20);
    }
    cuts.extend(file.len() - 130..file.len());
    for cut in cuts {
        let stump = &file[..cut];
        if cut < head {
            for ending in [Ending::Strict, Ending::Tolerant] {
                let error = Decrypting::new(stump, &identities, ending).unwrap_err();
                assert!(
                    matches!(error, Error::CutOff { plain_bytes: 0 }),
                    "{cut}: {error}"
                );
            }
            continue;
        }
        let whole = whole_chunks(cut - head);
        let (read, end) = decrypt(stump, &identities).unwrap();
        assert_eq!((read.len(), end), (whole, End::CutOff), "{cut}");
        assert!(read == plain[..whole], "{cut}");

        let (read, result) = decrypt_strictly(stump, &identities);
        assert_eq!(read.len(), whole, "{cut}");
        match result.unwrap_err() {
            Error::CutOff { plain_bytes } => assert_eq!(plain_bytes, whole as u64),
            other => panic!("{cut}: {other}"),
        }
    }
}

#[test]
fn streams_see_the_same_cuts() {
    let (recipients, identities) = pair();
    let plain = bytes(9 * CHUNK_LEN + 100);
    let file = encrypt(&plain, &recipients);
    let head = head_len(&file);
    let mut cuts = vec![head, head + 1, file.len() - 1, file.len() - 100];
    for chunk in 1..=9 {
        let boundary = head + chunk * SEALED_LEN;
        cuts.extend([boundary - 1, boundary, boundary + 1]);
    }
    for cut in cuts {
        for threads in [0, 3] {
            let work = Work {
                threads,
                ..Work::quiet()
            };
            let mut read = Vec::new();
            let ending = Ending::Tolerant;
            let passed =
                unlock_stream(&file[..cut], &mut read, &identities, ending, &work).unwrap();
            let whole = whole_chunks(cut - head);
            assert_eq!(
                (passed.plain_bytes, passed.end),
                (whole as u64, End::CutOff),
                "{cut}"
            );
            assert!(read == plain[..whole], "{cut}");
            let strict =
                unlock_stream(&file[..cut], io::sink(), &identities, Ending::Strict, &work);
            assert!(
                matches!(strict, Err(Error::CutOff { plain_bytes }) if plain_bytes == whole as u64)
            );
        }
    }
}

#[test]
fn every_flipped_bit_of_a_small_file_is_refused() {
    let (recipients, identities) = pair();
    let file = encrypt(b"eight samples of one channel", &recipients);
    for index in 0..file.len() {
        for bit in 0..8 {
            let mut changed = file.clone();
            changed[index] ^= 1 << bit;
            let (read, result) = decrypt_strictly(&changed, &identities);
            let error = result.expect_err("changed and accepted");
            assert!(read.is_empty(), "byte {index} bit {bit} gave {read:?}");
            assert!(
                matches!(error.kind(), ErrorKind::File | ErrorKind::Key),
                "byte {index} bit {bit}: {error}"
            );
            let tolerant = decrypt(&changed, &identities);
            assert!(
                !matches!(&tolerant, Ok((read, end)) if *end == End::Whole || !read.is_empty())
            );
        }
    }
}

#[test]
fn files_mixed_up_at_random_are_refused() {
    let (mut recipients, identities) = pair();
    recipients.add_file(&key_file("ssh_ed25519.pub")).unwrap();
    let file = encrypt(b"eight samples of one channel", &recipients);
    for dice in bytes(4 * 3000).chunks_exact(4) {
        // A piece of up to 64 bytes is left out, doubled or moved.
        let from = usize::from(dice[0]) * file.len() / 256;
        let to = (from + usize::from(dice[1] % 64) + 1).min(file.len());
        let at = usize::from(dice[2]) * file.len() / 256;
        let mut changed = file.clone();
        let piece: Vec<u8> = if dice[3] % 3 == 0 {
            file[from..to].to_vec()
        } else {
            changed.drain(from..to).collect()
        };
        if dice[3] % 3 != 1 {
            let at = at.min(changed.len());
            changed.splice(at..at, piece);
        }
        if changed == file {
            continue;
        }
        let (read, result) = decrypt_strictly(&changed, &identities);
        assert!(result.is_err() && read.is_empty(), "{dice:?}");
    }
}

#[test]
fn a_changed_chunk_ends_what_is_given_out() {
    let (recipients, identities) = pair();
    let plain = bytes(4 * CHUNK_LEN);
    let file = encrypt(&plain, &recipients);
    let head = head_len(&file);
    for chunk in 0..4 {
        let mut changed = file.clone();
        changed[head + chunk * SEALED_LEN + 7] ^= 1;
        let (read, end) = decrypt(&changed, &identities).unwrap();
        assert_eq!((read.len(), end), (chunk * CHUNK_LEN, End::Damaged));
        let (_, result) = decrypt_strictly(&changed, &identities);
        assert!(
            matches!(result, Err(Error::Damaged { plain_bytes }) if plain_bytes == (chunk * CHUNK_LEN) as u64)
        );
    }
    // Exchanged, doubled, left out: a chunk belongs in its place.
    let mut exchanged = file.clone();
    exchanged[head..].rotate_left(SEALED_LEN);
    assert_eq!(
        decrypt(&exchanged, &identities).unwrap(),
        (vec![], End::Damaged)
    );
    let mut left_out = file.clone();
    left_out.drain(head..head + SEALED_LEN);
    assert_eq!(
        decrypt(&left_out, &identities).unwrap(),
        (vec![], End::Damaged)
    );
}

#[test]
fn what_was_appended_is_not_read() {
    let (recipients, identities) = pair();
    for len in [100, CHUNK_LEN, CHUNK_LEN + 100] {
        for tail in [1, 16, SEALED_LEN, 2 * SEALED_LEN] {
            let mut file = encrypt(&bytes(len), &recipients);
            file.extend(bytes(tail));
            let (read, result) = decrypt_strictly(&file, &identities);
            assert!(result.is_err(), "{len} + {tail}");
            assert!(read.len() <= len / CHUNK_LEN * CHUNK_LEN);
        }
    }
}

#[test]
fn zeros_behind_a_stump_are_damage_behind_whole_chunks() {
    // A power cut can leave this if the size of a file reached the disk before its content.
    let (recipients, identities) = pair();
    let plain = bytes(2 * CHUNK_LEN + 100);
    let mut file = encrypt(&plain, &recipients);
    file.truncate(head_len(&file) + 2 * SEALED_LEN + 50);
    file.resize(file.len() + 300_000, 0);
    let (read, end) = decrypt(&file, &identities).unwrap();
    assert_eq!(end, End::Damaged);
    assert!(read == plain[..2 * CHUNK_LEN]);
}

#[test]
fn hostile_headers_are_bounded() {
    let (_, identities) = pair();
    let version = b"age-encryption.org/v1\n".to_vec();
    let endless: [&[u8]; 4] = [b"A", b"-> x\nAA\n", b"-> x ", b"\n"];
    for filler in endless {
        let reader = (&version[..]).chain(Endless(filler, 0));
        let error = Decrypting::new(reader, &identities, Ending::Strict).unwrap_err();
        assert!(matches!(error, Error::BadHeader(_)), "{error}");
    }
    // The body of one stanza without end.
    let start = [&version[..], b"-> x\n"].concat();
    let line = [&[b'A'; 64][..], b"\n"].concat();
    let reader = (&start[..]).chain(Endless(&line, 0));
    let error = Decrypting::new(reader, &identities, Ending::Strict).unwrap_err();
    assert!(matches!(error, Error::BadHeader(_)), "{error}");
    // Whatever is no age file is known after its first bytes.
    let mut read = Counting(Endless(b"XDF:", 0), 0);
    let error = Decrypting::new(&mut read, &identities, Ending::Strict).unwrap_err();
    assert!(matches!(error, Error::NotAge), "{error}");
    assert!(read.1 <= 8192, "{} bytes read", read.1);
}

#[test]
fn work_that_a_file_asks_for_is_capped() {
    let recipients = Recipients::with_passphrase_and_work(&phrase("sesame"), 4);
    let file = encrypt(b"data", &recipients);
    let mut identities = Identities::new();
    identities.set_work_limit(3);
    identities.add_passphrase(&phrase("sesame"));
    let error = decrypt(&file, &identities).unwrap_err();
    assert!(
        matches!(
            error,
            Error::ExcessiveWork {
                required: 4,
                limit: 3
            }
        ),
        "{error}"
    );
    identities.set_work_limit(4);
    assert_eq!(decrypt(&file, &identities).unwrap().0, b"data");

    // Without a limit given: 2^21 KiB would be 2 GiB.
    let text = "-> scrypt AAAAAAAAAAAAAAAAAAAAAA 21\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n";
    let mac = "A".repeat(43);
    let file = format!("age-encryption.org/v1\n{text}--- {mac}\n");
    let mut identities = Identities::new();
    identities.add_passphrase(&phrase("sesame"));
    let error = decrypt(file.as_bytes(), &identities).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Key);
    assert!(error.to_string().contains("2 GiB"), "{error}");
}

#[test]
fn other_files_are_told_apart() {
    let (_, identities) = pair();
    let open = |file: &[u8]| decrypt(file, &identities).unwrap_err();
    assert!(matches!(open(b"XDF:\x01"), Error::NotAge));
    assert!(matches!(
        open(b"age-encryption.org/v2\n-> x\n"),
        Error::UnknownVersion
    ));
    assert!(matches!(
        open(b"-----BEGIN AGE ENCRYPTED FILE-----\nYWdl\n"),
        Error::Armored
    ));
    assert!(matches!(open(b""), Error::CutOff { plain_bytes: 0 }));
    assert!(matches!(
        open(b"age-encryption.org/v1\r\n-> x\n"),
        Error::NotAge | Error::UnknownVersion
    ));
}

struct Endless<'a>(&'a [u8], usize);

impl Read for Endless<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        for byte in &mut *out {
            *byte = self.0[self.1 % self.0.len()];
            self.1 += 1;
        }
        Ok(out.len())
    }
}

struct Counting<R>(R, usize);

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.0.read(out)?;
        self.1 += len;
        Ok(len)
    }
}
