//! Files that claim more than they hold.

use std::io::{self, Read};

use lsl_xdf::chunk::MAGIC;
use lsl_xdf::{Event, Reader, load};

/// Says how much of a file was asked for at once.
struct Watched<'a> {
    rest: &'a [u8],
    most_asked: usize,
}

impl Read for Watched<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.most_asked = self.most_asked.max(into.len());
        self.rest.read(into)
    }
}

/// The head of a chunk with a length of four or eight bytes.
fn claim(len: u64, tag: u16, content: &[u8]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    if let Ok(len) = u32::try_from(len) {
        file.push(4);
        file.extend(len.to_le_bytes());
    } else {
        file.push(8);
        file.extend(len.to_le_bytes());
    }
    file.extend(tag.to_le_bytes());
    file.extend(content);
    file
}

#[test]
fn a_gigabyte_claimed_by_twenty_bytes_allocates_nothing() {
    for tag in [1, 2, 3, 4, 5, 6, 0x7A01] {
        for len in [1 << 24, 1 << 30, 1 << 40, u64::MAX] {
            let file = claim(len, tag, &[1, 0, 0, 0, 4, 0xFF, 0xFF, 0xFF, 0xFF]);
            let mut watched = Watched {
                rest: &file,
                most_asked: 0,
            };
            let mut reader = Reader::new(&mut watched);
            let mut problems = 0;
            while let Some(found) = reader.next().unwrap() {
                assert!(matches!(found.event, Event::Problem(_)));
                problems += 1;
            }
            assert_eq!(problems, 1, "tag {tag}, {len} bytes");
            assert!(reader.window_capacity() <= 256 << 10);
            assert!(watched.most_asked <= 128 << 10);
        }
    }
}

#[test]
fn billions_of_samples_channels_and_letters_are_not_believed() {
    let header = |format: &str, channels: u64| {
        let xml = format!(
            "<info><name>x</name><channel_count>{channels}</channel_count>\
             <nominal_srate>100</nominal_srate><channel_format>{format}</channel_format></info>"
        );
        let mut content = 1_u32.to_le_bytes().to_vec();
        content.extend(xml.as_bytes());
        claim(content.len() as u64 + 2, 2, &content)
    };
    // Stream, number of samples, one stamp, then one text of 4 GiB.
    let mut samples = vec![1, 0, 0, 0, 8];
    samples.extend(u64::MAX.to_le_bytes());
    samples.push(8);
    samples.extend(1.0_f64.to_le_bytes());
    samples.extend([4, 0xFF, 0xFF, 0xFF, 0xFF, b'a']);
    for format in ["string", "double64", "int8"] {
        for channels in [0, 1, 4_000_000_000] {
            let mut file = header(format, channels);
            file.extend(&claim(1 << 34, 3, &samples)[4..]);
            let mut reader = Reader::new(&file[..]);
            let mut got = 0;
            while let Some(found) = reader.next().unwrap() {
                if let Event::Samples(batch) = found.event {
                    got += batch.stamps.len();
                }
            }
            assert!(got <= samples.len(), "{format} × {channels}: {got}");
            assert!(reader.window_capacity() <= 256 << 10);
        }
    }
}

#[test]
fn the_window_stays_small_however_long_the_file_is() {
    // 50 MB of samples in one chunk, made while they are read.
    struct Long(u64, Vec<u8>);
    impl Read for Long {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if !self.1.is_empty() {
                let len = self.1.len().min(into.len());
                into[..len].copy_from_slice(&self.1[..len]);
                self.1.drain(..len);
                return Ok(len);
            }
            let len = self.0.min(into.len() as u64) as usize;
            into[..len].fill(0);
            self.0 -= len as u64;
            Ok(len)
        }
    }
    let (channels, samples) = (99_u64, 500_000_u64);
    let xml = format!(
        "<info><name>x</name><channel_count>{channels}</channel_count>\
         <nominal_srate>100</nominal_srate><channel_format>int8</channel_format></info>"
    );
    let mut head = claim(xml.len() as u64 + 6, 2, &1_u32.to_le_bytes());
    head.extend(xml.as_bytes());
    let mut content = 1_u32.to_le_bytes().to_vec();
    content.push(4);
    content.extend((samples as u32).to_le_bytes());
    let bytes = samples * (channels + 1);
    head.extend(&claim(2 + 9 + bytes, 3, &content)[4..]);
    let mut reader = Reader::new(Long(bytes, head));
    let (mut got, mut most) = (0, 0);
    while let Some(found) = reader.next().unwrap() {
        if let Event::Samples(batch) = found.event {
            got += batch.stamps.len();
        }
        most = most.max(reader.window_capacity());
    }
    assert_eq!(got as u64, samples);
    assert!(most <= 1 << 20, "{most}");
}

#[test]
fn errors_of_the_input_are_errors() {
    struct Failing(u32);
    impl Read for Failing {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            match self.0 {
                1 => Err(io::ErrorKind::Interrupted.into()),
                2 => {
                    into[..4].copy_from_slice(&MAGIC);
                    Ok(4)
                }
                _ => Err(io::Error::other("the cable")),
            }
        }
    }
    let error = load(Failing(0)).unwrap_err();
    assert!(error.to_string().contains("the cable"), "{error}");
}
