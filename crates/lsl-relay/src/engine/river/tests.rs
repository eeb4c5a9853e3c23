//! Writers and readers at a server in memory, whose connections break, and which others write to.

mod server;

use lsl_proto::wire::sequence::Generation;
use lsl_proto::{ChannelFormat, StreamInfo};

use super::*;
use crate::engine::resp::{Commands, Reply};
use server::{Link, Server};

fn info() -> StreamInfo {
    let mut info = StreamInfo::new("s", "EEG", 1, 250.0, ChannelFormat::Int64, "id").unwrap();
    info.reset_uid("u-1");
    info.set_session_id("default");
    info
}

fn generation() -> Generation {
    Generation::parse(b"0000-11").unwrap()
}

fn open(server: &mut Server, link: &mut Link) -> Writer {
    let mut opening = Opening::new(&info(), generation()).unwrap();
    loop {
        let replies = server.run(link, &opening.question());
        if let Step::Done(writer) = opening.take(&replies).unwrap() {
            return *writer;
        }
    }
}

fn stamp_of(index: u64) -> f64 {
    f64::from(u32::try_from(index).unwrap())
}

fn write(writer: &mut Writer, indices: &[u64]) -> Commands {
    let packing = writer.packing().clone();
    let val = |index: u64| packing.pack(stamp_of(index), &index.to_ne_bytes()).unwrap();
    let vals: Vec<_> = indices.iter().map(|index| (*index, val(*index))).collect();
    writer.write(vals.iter().map(|(index, val)| (*index, &val[..])), None)
}

/// Returns the indices of a stream, and whether it ended.
fn read(server: &mut Server, name: &str, most: usize) -> (Vec<u64>, Turn) {
    let metadata = server.metadata(name).unwrap();
    let mut reader = Reader::new(name, &metadata);
    let (packing, _) = Packing::of_metadata(name, &metadata, 0.0).unwrap();
    let mut found = Vec::new();
    let mut waits = false;
    loop {
        let commands = if waits {
            reader.wait(most, 1000)
        } else {
            reader.read(most)
        };
        let reply = server.run(&mut Link::default(), &commands).remove(0);
        let turn = reader.take(&reply, |_, index, val| {
            let mut values = Vec::new();
            assert_eq!(packing.unpack(val, &mut values), Ok(Some(stamp_of(index))));
            assert_eq!(values, index.to_ne_bytes());
            found.push(index);
            Ok(())
        });
        let turn = turn.unwrap();
        if turn == Turn::Over || waits && turn == Turn::Wait {
            return (found, turn);
        }
        waits = !waits;
    }
}

const NAME: &str = "lsl.default.s.0000-11";

#[test]
fn a_stream_goes_from_key_to_key_and_ends() {
    let mut server = Server {
        ms: 1_700_000_000_000,
        ..Server::default()
    };
    let mut link = Link::default();
    let mut writer = open(&mut server, &mut link);
    assert_eq!((writer.name(), writer.next()), (NAME, None));
    let mut expected = Vec::new();
    for turn in 0..30u64 {
        // Numbers that nobody has are missing.
        let indices = [10 * turn + 5, 10 * turn + 6, 10 * turn + 8];
        let commands = write(&mut writer, &indices);
        assert_eq!(writer.written(&server.run(&mut link, &commands)), Ok(()));
        expected.extend(indices);
        server.ms += 60_000;
        if turn == 20 {
            writer = open(&mut server, &mut link);
            assert_eq!(writer.next(), Some(209));
        }
    }
    let key = |number| server.streams[&samples_key(NAME, number)].clone();
    let texts = |fields: &[Reply]| {
        fields
            .iter()
            .map(|it| it.text().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let end = key(0).pop().unwrap();
    let next = samples_key(NAME, 1);
    let expected_end = [
        "tombstone",
        "1",
        "next_stream_key",
        &next,
        "sample_index",
        "108",
    ];
    assert_eq!(texts(&end.1), expected_end.map(|it| Some(it.to_owned())));
    let sample = &key(0)[0].1;
    assert_eq!(
        (sample[0].text(), sample[2].text(), sample[3].text()),
        (Some("val"), Some("i"), Some("5"))
    );
    assert_eq!(key(2).len(), 3 * 8);
    for most in [1, 7, 1000] {
        assert_eq!(
            read(&mut server, NAME, most),
            (expected.clone(), Turn::Wait)
        );
    }
    let commands = writer.finish();
    assert_eq!(writer.written(&server.run(&mut link, &commands)), Ok(()));
    let end = server.streams[&samples_key(NAME, 2)].last().unwrap();
    assert_eq!(
        texts(&end.1),
        ["eof", "1", "sample_index", "298"].map(|it| Some(it.to_owned()))
    );
    assert_eq!(read(&mut server, NAME, 7), (expected, Turn::Over));
    // What has ended is not written again.
    let again = open(&mut server, &mut link);
    assert_eq!(
        (again.name(), again.next()),
        (&*format!("{NAME}.2"), Some(299))
    );
}

#[test]
fn a_writer_without_room_stores_all_of_a_transaction_or_nothing() {
    let mut server = Server {
        ms: 5_000,
        ..Server::default()
    };
    let mut link = Link::default();
    let mut writer = open(&mut server, &mut link);
    server.is_full = true;
    let commands = write(&mut writer, &[0, 1]);
    let fault = writer.written(&server.run(&mut link, &commands));
    assert!(matches!(fault, Err(Fault::Refused(text)) if text.starts_with("OOM")));
    server.is_full = false;
    let mut writer = open(&mut server, &mut link);
    let commands = write(&mut writer, &[0, 1]);
    assert_eq!(writer.written(&server.run(&mut link, &commands)), Ok(()));
    assert_eq!(read(&mut server, NAME, 9).0, [0, 1]);
}

/// Goes to a place, from key to key.
fn seek(server: &mut Server, reader: &mut Reader, to: Seek) -> Turn {
    loop {
        let replies = server.run(&mut Link::default(), &reader.seek(to));
        let turn = reader.take_seek(to, &replies).unwrap();
        if turn != Turn::More {
            return turn;
        }
    }
}

/// A replica that lagged takes over: its writer sends again what it lost, as other entries, and in other keys, at times
/// that may be before those of the first server. Who read all goes on behind that, and who reads anew finds each once.
#[test]
fn a_reader_goes_on_behind_what_it_has_when_a_server_lost_some() {
    for (lag_ms, key_ms, ends) in [
        (0, 0, false),
        (-400_000, 0, false),
        (-400_000, 300_000, false),
        (300_000, 300_000, true),
    ] {
        let mut server = Server {
            ms: 1_700_000_000_000,
            ..Server::default()
        };
        let mut link = Link::default();
        let mut writer = open(&mut server, &mut link);
        let push = |server: &mut Server, link: &mut Link, writer: &mut Writer, index| {
            let commands = write(writer, &[index]);
            assert_eq!(writer.written(&server.run(link, &commands)), Ok(()));
            server.ms += 1000 + key_ms;
        };
        let mut replica = None;
        for index in 0..20 {
            push(&mut server, &mut link, &mut writer, index);
            if index == 11 {
                replica = Some(server.clone());
            }
        }
        let mut reader = Reader::new(NAME, &server.metadata(NAME).unwrap());
        let mut has = Vec::new();
        let next = |server: &mut Server, reader: &mut Reader, has: &mut Vec<u64>| loop {
            let reply = server.run(&mut Link::default(), &reader.read(3)).remove(0);
            let sink = |id, index, _: &[u8]| {
                has.push(index);
                assert!(id != EntryId::default());
                Ok(())
            };
            match reader.take(&reply, sink).unwrap() {
                Turn::More => {}
                turn => break turn,
            }
        };
        assert_eq!(next(&mut server, &mut reader, &mut has), Turn::Wait);
        let key = String::from_utf8(reader.key().to_vec()).unwrap();
        let last = server.streams[&key].last().unwrap().0;
        let mut replica = replica.unwrap();
        replica.ms = server.ms.checked_add_signed(lag_ms).unwrap();
        let mut link = Link::default();
        let mut writer = open(&mut replica, &mut link);
        assert_eq!(writer.next(), Some(12));
        // It lost what nobody retains any more, too.
        for index in [12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 25] {
            push(&mut replica, &mut link, &mut writer, index);
        }
        if ends {
            let commands = writer.finish();
            assert_eq!(writer.written(&replica.run(&mut link, &commands)), Ok(()));
        }
        let mut reader = Reader::new(NAME, &replica.metadata(NAME).unwrap());
        assert_eq!(
            seek(&mut replica, &mut reader, Seek::Behind(last, 19)),
            Turn::Wait
        );
        let turn = next(&mut replica, &mut reader, &mut has);
        assert_eq!(turn, if ends { Turn::Over } else { Turn::Wait });
        let expected: Vec<u64> = (0..22).chain([25]).collect();
        assert_eq!(has, expected, "{lag_ms} {key_ms}");
    }
    // What comes again on one connection is told, not passed on.
    let mut server = Server::default();
    let mut link = Link::default();
    let mut writer = open(&mut server, &mut link);
    let commands = write(&mut writer, &[7]);
    assert_eq!(writer.written(&server.run(&mut link, &commands)), Ok(()));
    let mut reader = Reader::new(NAME, &server.metadata(NAME).unwrap());
    let reply = server.run(&mut link, &reader.read(9)).remove(0);
    assert_eq!(reader.take(&reply, |_, _, _| Ok(())), Ok(Turn::More));
    assert_eq!(reader.take(&reply, |_, _, _| Ok(())), Ok(Turn::Again));
}

/// However connections break, and however late what was sent arrives, no sample is missing or stored twice.
#[test]
fn every_sample_is_stored_once() {
    for seed in 1..400u64 {
        let mut random = seed;
        let mut dice = move |sides: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % sides
        };
        let mut server = Server {
            ms: 1_000_000,
            ..Server::default()
        };
        let mut link = Link::default();
        let mut writer = open(&mut server, &mut link);
        // Sent on connections that broke, and still on their way.
        let mut late: Vec<(Link, Commands)> = Vec::new();
        let mut removed = Vec::new();
        while writer.next() < Some(60) {
            let first = writer.next().unwrap_or_default();
            let indices: Vec<u64> = (first.saturating_sub(dice(3))..first + 1 + dice(4)).collect();
            let commands = write(&mut writer, &indices);
            server.ms += dice(300_000);
            let fate = dice(12);
            if fate == 7 && dice(4) == 0 {
                let name = writer.name().to_owned();
                let removes = dice(2) == 0;
                if removes {
                    removed.extend(read(&mut server, &name, 1000).0);
                }
                server.ingest(&name, removes);
            }
            let is_known = match fate {
                // Cut before it was sent, after it was done, or on its way.
                0 => false,
                1 => {
                    server.run(&mut link, &commands);
                    false
                }
                2 | 3 => {
                    late.push((std::mem::take(&mut link), commands));
                    false
                }
                _ => writer.written(&server.run(&mut link, &commands)).is_ok(),
            };
            if !late.is_empty() && dice(3) == 0 {
                let (mut link, commands) = late.remove(0);
                server.run(&mut link, &commands);
            }
            if !is_known {
                link = Link::default();
                writer = open(&mut server, &mut link);
                // It may come right after the question, too.
                if !late.is_empty() && dice(3) == 0 {
                    let (mut link, commands) = late.remove(0);
                    server.run(&mut link, &commands);
                }
            }
        }
        for (mut link, commands) in late {
            server.run(&mut link, &commands);
        }
        let names: Vec<String> = server
            .hashes
            .keys()
            .map(|key| described_by(key).unwrap().to_owned())
            .collect();
        let stored = names.iter().flat_map(|name| read(&mut server, name, 5).0);
        let mut stored: Vec<u64> = removed.into_iter().chain(stored).collect();
        stored.sort_unstable();
        let expected: Vec<u64> = (0..writer.next().unwrap()).collect();
        assert_eq!(stored, expected, "seed {seed}");
    }
}

#[test]
fn a_reader_refuses_what_makes_no_sense_and_follows_what_is_removed() {
    let mut server = Server {
        ms: 1_000,
        ..Server::default()
    };
    let mut link = Link::default();
    let mut writer = open(&mut server, &mut link);
    for index in 0..5 {
        let commands = write(&mut writer, &[index]);
        assert_eq!(writer.written(&server.run(&mut link, &commands)), Ok(()));
        server.ms += 600_000;
    }
    let metadata = server.metadata(NAME).unwrap();
    let mut reader = Reader::new(NAME, &metadata);
    let ask = |server: &mut Server, commands: Commands| server.run(&mut Link::default(), &commands);
    let mut last = reader.clone();
    assert_eq!(seek(&mut server, &mut last, Seek::End), Turn::Wait);
    assert_eq!(last.last(), Some(4));
    // To an entry of an older key.
    let id = server.streams[&samples_key(NAME, 1)][0].0;
    let mut middle = reader.clone();
    assert_eq!(seek(&mut server, &mut middle, Seek::Since(id)), Turn::Wait);
    assert_eq!(middle.last(), Some(2));
    // Its key is removed while it waits.
    assert_eq!(
        reader.take_check(&ask(&mut server, reader.check())),
        Ok(Turn::Wait)
    );
    for number in 0..2 {
        server.streams.remove(&samples_key(NAME, number));
    }
    let hash = server.hashes.get_mut(&metadata_key(NAME)).unwrap();
    hash.insert(
        b"first_stream_key".to_vec(),
        samples_key(NAME, 2).into_bytes(),
    );
    assert_eq!(
        reader.take_check(&ask(&mut server, reader.check())),
        Ok(Turn::More)
    );
    let reply = ask(&mut server, reader.read(9)).remove(0);
    assert_eq!(reader.take(&reply, |_, _, _| Ok(())), Ok(Turn::More));
    assert_eq!(reader.last(), Some(4));
    server.hashes.clear();
    server.streams.clear();
    assert_eq!(
        reader.take_check(&ask(&mut server, reader.check())),
        Ok(Turn::Gone)
    );
    let entry = |id: &str, fields: &[&str]| {
        let bytes = |text: &&str| Reply::Bytes(text.as_bytes().to_vec());
        Reply::List(vec![
            bytes(&id),
            Reply::List(fields.iter().map(bytes).collect()),
        ])
    };
    for (fields, expected) in [
        (
            &["reference", "1-1", "i", "7"][..],
            "a reference: the stream is compressed",
        ),
        (
            &[
                "tombstone",
                "1",
                "next_stream_key",
                &format!("{NAME}-1"),
                "sample_index",
                "4",
            ],
            "leads back",
        ),
        (&["val", "x", "i", "-7"], "no i that is a number"),
        (
            &["val", "x", "i", "9223372036854775808"],
            "no i that is a number",
        ),
    ] {
        let reply = Reply::List(vec![entry("9-0", fields)]);
        let why = reader
            .take(&reply, |_, _, _| Ok(()))
            .unwrap_err()
            .to_string();
        assert!(why.contains(expected), "{why}");
    }
}
