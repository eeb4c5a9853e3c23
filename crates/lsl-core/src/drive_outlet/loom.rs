//! Push, flush task and the task of a connection under every interleaving, all of them the driver's own: `cargo
//! xtask loom`. Two threads that write to a socket at a time would mix the bytes that its reader gets.

use std::sync::Arc;

use lsl_proto::config::Config;
use lsl_proto::outlet::connection as proto;
use lsl_proto::outlet::encoder::Variant;
use lsl_proto::outlet::fanout::{Caller, Fanout, FeedLimits};
use lsl_proto::outlet::request::{Feed, OutletOptions};
use lsl_proto::outlet::retention::Retain;
use lsl_proto::outlet::{Pushthrough, Stamps};
use lsl_proto::wire::negotiate::negotiate_100;

use crate::byte_stream::pipe;
use crate::drive_outlet::connection::Connection;
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
    let security = lsl_secure::Security::off(Vec::new()).unwrap();
    let context = Context::with_security(Config::loopback(), Arc::new(security));
    let info = StreamInfo::new("model", "", 1, 0.0, ChannelFormat::Int8, "model").unwrap();
    let options = OutletOptions {
        capacity_samples: 100,
        chunk_samples: 1,
        synchronous,
        retain: Retain::NOTHING,
    };
    let asynchronous = OutletOptions {
        synchronous: false,
        ..options
    };
    let negotiated = negotiate_100(&asynchronous.side(&info), 100, 0).unwrap();
    let limits = FeedLimits {
        capacity: 100,
        chunk: 1,
        coalesces,
        is_granted: false,
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
        let mut machine = proto::Connection::new(false, sync::local_clock());
        let mut request = b"LSL:fullinfo\r\n".to_vec();
        machine
            .handle_input(&mut request, sync::local_clock())
            .unwrap();
        machine.poll_event().unwrap();
        let connection = Connection::new(stream, pipe::ADDRESS, machine, None);
        outlet.join(connection, &feed).unwrap();
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
