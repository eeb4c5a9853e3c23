//! The vectors of C2SP/CCTV: files that every implementation of the format must accept or refuse.

use std::fmt::Write as _;
use std::fs;

use sha2::{Digest, Sha256};

use super::*;
use crate::at_rest::{ErrorKind, Work, unlock_stream};

/// Files that go on behind a last chunk of full length, and the number of bytes given out. Stock age gives
/// out that chunk as well before it fails. Here it is withheld: ring destroys a chunk that fails to open as
/// an inner one, and a copy of every chunk would cost too much.
const WITHHELD: [(&str, usize); 5] = [
    ("stream_trailing_garbage_long", 0),
    ("stream_trailing_garbage_short", 0),
    ("stream_two_final_chunks", 0),
    ("stream_two_final_chunks_full", 0),
    ("stream_two_final_chunks_second", CHUNK_LEN),
];

struct Vector {
    name: String,
    expect: String,
    payload: Option<String>,
    identities: Identities,
    file: Vec<u8>,
}

fn vector(path: &std::path::Path) -> Vector {
    let content = fs::read(path).unwrap();
    let end = content.windows(2).position(|pair| pair == b"\n\n").unwrap();
    let mut vector = Vector {
        name: path.file_name().unwrap().to_str().unwrap().to_owned(),
        expect: String::new(),
        payload: None,
        identities: Identities::new(),
        file: content[end + 2..].to_vec(),
    };
    for line in std::str::from_utf8(&content[..end]).unwrap().lines() {
        let (key, value) = line.split_once(": ").unwrap();
        match key {
            "expect" => vector.expect = value.to_owned(),
            "payload" => vector.payload = Some(value.to_owned()),
            "identity" => vector.identities.add("vector", value).unwrap(),
            "passphrase" => vector.identities.add_passphrase(&phrase(value)),
            "compressed" => {
                assert_eq!(value, "zlib");
                vector.file = miniz_oxide::inflate::decompress_to_vec_zlib(&vector.file).unwrap();
            }
            "file key" | "comment" => {}
            other => panic!("{}: what is {other}?", vector.name),
        }
    }
    vector
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn judge(vector: &Vector, read: &[u8], result: &Result<(), Error>) -> Result<(), String> {
    let told = match result {
        Ok(()) => "success",
        Err(Error::BadHeader("its checksum does not fit")) => "HMAC failure",
        Err(Error::NoMatchingIdentity { .. } | Error::WrongPassphrase) => "no match",
        Err(Error::ExcessiveWork { .. }) => "header failure",
        Err(error @ (Error::CutOff { .. } | Error::Damaged { .. })) => {
            // Before the first chunk or behind it: the kit counts the nonce to the payload or not,
            // depending on its length.
            assert_eq!(error.kind(), ErrorKind::File);
            if vector.expect == "header failure" && read.is_empty() {
                "header failure"
            } else {
                "payload failure"
            }
        }
        Err(error) if error.kind() == ErrorKind::File => "header failure",
        Err(other) => return Err(format!("{}: {other}", vector.name)),
    };
    if told != vector.expect {
        return Err(format!(
            "{}: {told} for {}: {result:?}",
            vector.name, vector.expect
        ));
    }
    if let Some((_, len)) = WITHHELD.iter().find(|(name, _)| *name == vector.name) {
        assert_eq!(read.len(), *len, "{}", vector.name);
    } else if let Some(payload) = &vector.payload
        && hex(&Sha256::digest(read)) != *payload
    {
        return Err(format!(
            "{}: another payload, {} bytes",
            vector.name,
            read.len()
        ));
    }
    Ok(())
}

#[test]
fn the_published_vectors() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/age");
    let mut failures = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "README.md" || name == "SHA256SUMS" {
            continue;
        }
        count += 1;
        let vector = vector(&path);
        let (read, result) = decrypt_strictly(&vector.file, &vector.identities);
        failures.extend(judge(&vector, &read, &result).err());
        // The same through the threads.
        let mut read = Vec::new();
        let work = Work {
            threads: 2,
            ..Work::quiet()
        };
        let file = &vector.file[..];
        let result = unlock_stream(file, &mut read, &vector.identities, Ending::Strict, &work);
        failures.extend(judge(&vector, &read, &result.map(|_| ())).err());
    }
    assert!(failures.is_empty(), "{failures:#?}");
    assert_eq!(count, 92);
}
