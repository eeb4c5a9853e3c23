//! Push, flush task and the task of a connection under every interleaving, all of them the driver's own: `cargo
//! xtask loom`. Two threads that write to a socket at a time would mix the bytes that its reader gets.

use std::sync::Arc;

use lsl_proto::ByteOrder;
use lsl_proto::config::Config;
use lsl_proto::outlet::connection as proto;
use lsl_proto::outlet::encoder::Variant;
use lsl_proto::outlet::fanout::{Caller, Fanout, FeedLimits};
use lsl_proto::outlet::request::{Feed, OutletOptions};
use lsl_proto::outlet::retention::Retain;
use lsl_proto::outlet::{Pushthrough, Stamps};
use lsl_proto::wire::negotiate::{negotiate, negotiate_100};
use lsl_proto::wire::request::FeedParams;
use lsl_proto::wire::sequence::ReplayFrom;

use crate::byte_stream::{ByteStream, NO_ADDRESS, pipe};
use crate::drive_outlet::connection::Connection;
use crate::drive_outlet::link::Sender;
use crate::drive_outlet::push::OutletShared;
use crate::net::sync::{self, block_on};
use crate::{ChannelFormat, Context, StreamInfo};

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The outlet closes after its pushes.
    Close,
    /// The same, after a flush.
    Flush,
    /// The reader goes at any time.
    Leave,
}

/// Pushes two samples to a reader whose socket has so much room before it reads. All bytes arrive in order, unless
/// it goes, and every thread ends.
fn check(pushes: u8, room: usize, coalesces: bool, synchronous: bool, end: End) {
    let (context, info) = model();
    let options = OutletOptions {
        synchronous,
        ..OPTIONS
    };
    let negotiated = negotiate_100(&OPTIONS.side(&info), 100, 0).unwrap();
    let limits = FeedLimits {
        coalesces,
        ..LIMITS
    };
    sync::check(2, move || {
        let outlet = OutletShared::new(context.clone(), info.clone(), options).unwrap();
        let outlet = Arc::new(outlet);
        let (mut peer, mut stream) = pipe::pair();
        stream.register().unwrap();
        let filler = [0; pipe::CAPACITY];
        let filler = &filler[room..];
        stream.writer().try_write(filler, Caller::Task).unwrap();
        let feed = Feed {
            variant: Variant::V100,
            negotiated,
            patterns: Vec::new(),
            limits,
        };
        outlet
            .join(connection(stream), &feed, &outlet.identity.info, None)
            .unwrap();
        let push = move || {
            for value in 1..=pushes {
                let pushed = outlet.push(&[value as i8], 1, Stamps::Now, Pushthrough::Flush);
                pushed.unwrap();
            }
            if end == End::Flush {
                let flushed = |fanout: &mut Fanout<_>| fanout.is_flushed().then_some(());
                outlet.fanout.wait_blocking(f64::INFINITY, flushed);
            }
            outlet.close();
        };
        if end == End::Flush {
            push();
        } else {
            sync::thread(push);
        }
        let mut received = Vec::new();
        let mut buffer = [0; pipe::CAPACITY];
        while end != End::Leave
            && let length @ 1.. = block_on(peer.read(&mut buffer)).unwrap()
        {
            received.extend_from_slice(&buffer[..length]);
        }
        drop(peer);
        if end != End::Leave {
            let samples = received[filler.len()..].chunks(SAMPLE_BYTES);
            let values = samples.filter_map(|sample| sample.last().copied());
            assert!(values.eq(1..=pushes), "{received:?}");
        }
    });
}

/// Returns what outlets of a model are made of.
fn model() -> (Context, StreamInfo) {
    let security = lsl_secure::Security::off(Vec::new()).unwrap();
    let context = Context::with_security(Config::loopback(), Arc::new(security));
    let mut info = StreamInfo::new("model", "", 1, 0.0, ChannelFormat::Int8, "model").unwrap();
    info.reset_uid("a-1");
    (context, info)
}

/// Returns a connection that has asked for something.
fn connection(stream: ByteStream) -> Connection {
    let mut machine = proto::Connection::new(false, sync::local_clock());
    let mut request = b"LSL:fullinfo\r\n".to_vec();
    machine
        .handle_input(&mut request, sync::local_clock())
        .unwrap();
    machine.poll_event().unwrap();
    Connection::new(stream, NO_ADDRESS, machine, None)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Retention {
    /// Samples are retained throughout.
    Lasts,
    /// Retention ends while samples are pushed.
    Ends,
    /// Retention has ended: pushes only count.
    Ended,
}

/// Admits a granted reader while two samples are pushed, in a piece each, and then a third one. The reader gets
/// every sample from the number on that it was told, and no other. Spec: resume §3, §6.
fn admit(from: ReplayFrom, retention: Retention) {
    let (context, info) = model();
    let retain = Retain {
        seconds: 30.0,
        bytes: 1 << 16,
        unread: false,
    };
    let options = OutletOptions { retain, ..OPTIONS };
    let asked = FeedParams {
        native_byte_order: ByteOrder::NATIVE.code(),
        max_buffer_length: 100,
        replay_from: Some(from),
        ..FeedParams::default()
    };
    let negotiated = negotiate(&options.side(&info), 110, b"", &asked).unwrap();
    assert_eq!(negotiated.replay_from, Some(from));
    sync::check(1, move || {
        let outlet = OutletShared::new(context.clone(), info.clone(), options).unwrap();
        let outlet = Arc::new(outlet);
        let (mut peer, mut stream) = pipe::pair();
        stream.register().unwrap();
        let feed = Feed {
            variant: Fanout::<Sender>::RETAINED,
            negotiated,
            patterns: Vec::new(),
            limits: LIMITS,
        };
        let expire = || outlet.look_after_retention(LATE);
        if retention == Retention::Ended {
            expire();
        }
        let pusher = Arc::clone(&outlet);
        sync::thread(move || {
            let stamps = Stamps::Each(&[1.0, 2.0]);
            let pushed = pusher.push(&[0_i8, 1], 2, stamps, Pushthrough::Flush);
            pushed.unwrap();
            let pushed = pusher.push(&[2_i8], 1, Stamps::Each(&[3.0]), Pushthrough::Flush);
            pushed.unwrap();
            pusher.close();
        });
        if retention == Retention::Ends {
            expire();
        }
        outlet
            .join(connection(stream), &feed, &outlet.identity.info, None)
            .unwrap();
        drop(outlet);
        let mut received = Vec::new();
        let mut buffer = [0; pipe::CAPACITY];
        while let length @ 1.. = block_on(peer.read(&mut buffer)).unwrap() {
            received.extend_from_slice(&buffer[..length]);
        }
        drop(peer);
        if received.is_empty() {
            // The outlet was closed before.
            return;
        }
        let end = received
            .windows(4)
            .position(|it| it == b"\r\n\r\n")
            .unwrap();
        let header = std::str::from_utf8(&received[..end]).unwrap();
        let told = header.split("Lslx-Sequence: 1 a-1 ").nth(1).unwrap();
        let mut told = told.split_whitespace().map(|it| it.parse::<u8>().unwrap());
        let (begin, live) = (told.next().unwrap(), told.next().unwrap());
        assert!(begin <= live && live <= 3, "{header}");
        if retention == Retention::Lasts && from == ReplayFrom::Oldest {
            assert_eq!(begin, 0);
        }
        // Every sample has its own timestamp, and no gap is told of.
        let mut expected = Vec::new();
        for number in begin..3 {
            expected.push(2);
            expected.extend((1.0 + f64::from(number)).to_ne_bytes());
            expected.push(number);
        }
        assert_eq!(received[end + 4..], expected, "{header}");
    });
}

const OPTIONS: OutletOptions = OutletOptions {
    capacity_samples: 100,
    chunk_samples: 1,
    synchronous: false,
    retain: Retain::NOTHING,
};

const LIMITS: FeedLimits = FeedLimits {
    capacity: 100,
    chunk: 1,
    coalesces: false,
    is_granted: false,
};

/// Time at which nothing is retained any more.
const LATE: f64 = 1000.0;

/// Bytes of a sample with one value of one byte in protocol 1.00.
const SAMPLE_BYTES: usize = 13;

#[test]
fn the_flush_task_hands_back_what_the_push_then_sends() {
    check(1, pipe::CAPACITY, true, false, End::Flush);
}

#[test]
fn a_full_socket_goes_from_the_push_to_the_flush_task() {
    check(2, 1, false, false, End::Close);
}

#[test]
fn a_full_socket_goes_from_the_flush_task_to_the_connection_and_back() {
    check(2, 1, true, false, End::Close);
}

#[test]
fn a_synchronous_push_waits_for_its_reader() {
    check(2, 1, false, true, End::Close);
}

#[test]
fn a_reader_goes_whoever_has_its_sender() {
    check(2, 1, true, false, End::Leave);
}

#[test]
fn a_reader_is_admitted_at_the_number_that_it_is_told() {
    admit(ReplayFrom::Live, Retention::Lasts);
}

#[test]
fn a_reader_that_asks_for_the_past_gets_all_of_it() {
    admit(ReplayFrom::Oldest, Retention::Lasts);
}

#[test]
fn a_reader_is_admitted_between_pieces_of_a_push_that_are_not_for_it() {
    admit(ReplayFrom::Oldest, Retention::Ends);
}

#[test]
fn a_reader_is_admitted_while_pushes_only_count() {
    admit(ReplayFrom::Live, Retention::Ended);
}
