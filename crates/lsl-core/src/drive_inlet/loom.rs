//! Pulls, their leader and the inlet's task under every interleaving, all of them the driver's own: `cargo xtask
//! loom`. The outlet is the other end of the stream.

use std::sync::Arc;

use lsl_proto::config::Config;
use lsl_proto::inlet::{Exchange, Feed, FeedDecoder, Pull, Taken};
use lsl_proto::outlet::fanout::Caller;
use lsl_proto::outlet::request::{Offer, OutletOptions, Reply};
use lsl_proto::outlet::retention::Retain;
use lsl_proto::wire::request::RequestParser;

use crate::byte_stream::{NO_ADDRESS, Writer, pipe};
use crate::drive_inlet::attend::Attendance;
use crate::drive_inlet::connection::Connection;
use crate::drive_inlet::shared::InletShared;
use crate::net::select2::select2;
use crate::net::sync::{self, Notify, block_on, local_clock};
use crate::{ChannelFormat, Context, StreamInfo};

/// Handles to an inlet, its task and its outlet.
#[derive(Clone)]
struct World {
    inlet: Arc<InletShared>,
    /// Aborts the task.
    abort: Arc<Notify>,
    outlet: Writer,
}

impl World {
    /// Sends a sample, as the outlet does.
    fn send(&self) {
        let sample = [1, 7];
        assert_eq!(self.outlet.try_write(&sample, Caller::Push).unwrap(), 2);
    }

    /// Takes a sample, `Some(false)` if the stream is lost.
    fn take(feed: &mut Feed) -> Option<bool> {
        match feed.take(&mut Pull::new(&mut [0_i8], None, 1), local_clock) {
            Ok(Taken::Samples) => Some(true),
            Ok(_) => None,
            Err(_) => Some(false),
        }
    }

    /// Waits for a sample; false if the stream is lost.
    fn pull(&self) -> bool {
        let pulled = self.inlet.pull_blocking(f64::INFINITY, Self::take);
        pulled.unwrap()
    }

    fn pull_async(&self) -> bool {
        block_on(self.inlet.pull(f64::INFINITY, Self::take)).unwrap()
    }

    /// Does what `Inlet::shut_down` does.
    fn shut_down(&self) {
        self.abort.notify_one();
        self.inlet.lose("the model ends");
    }
}

/// Runs `act` beside `pulls` and the task of an inlet. Every pull gets a sample, or `gets` is false.
fn check<const N: usize>(
    is_fast: bool,
    pulls: [fn(&World) -> bool; N],
    gets: bool,
    act: fn(&World),
) {
    let security = lsl_secure::Security::off(Vec::new()).unwrap();
    let context = Context::with_security(Config::loopback(), Arc::new(security));
    let info = StreamInfo::new("model", "", 1, 0.0, ChannelFormat::Int8, "model").unwrap();
    sync::check(2, move || {
        let (context, info) = (context.clone(), info.clone());
        let inlet = Arc::new(InletShared::new(
            context,
            info.clone(),
            10,
            0,
            (true, true),
            false,
        ));
        let (near, far) = pipe::pair();
        let exchange = Exchange::Feed(Box::new(FeedDecoder::new(&info, inlet.options)));
        let opening = opening(&info, exchange.request());
        let connecting = Connection::plain(near, NO_ADDRESS, exchange);
        let connection = block_on(connecting).unwrap();
        assert_eq!(
            far.writer().try_write(&opening, Caller::Push).unwrap(),
            opening.len()
        );
        let attendance = Attendance::begin(&inlet, 0, connection).unwrap();
        block_on(attendance.open()).unwrap();
        let abort = Arc::new(Notify::new());
        let world = World {
            inlet: Arc::clone(&inlet),
            abort: Arc::clone(&abort),
            outlet: far.writer().clone(),
        };
        if is_fast {
            // Pulls may lead.
            let mut state = inlet.feed.lock();
            (0..2).for_each(|_| state.reader.on_read(local_clock()));
        }
        sync::thread(move || {
            let pulls = pulls.map(|pull| {
                let world = world.clone();
                sync::thread(move || assert_eq!(pull(&world), gets))
            });
            act(&world);
            pulls.into_iter().for_each(|pull| pull.join().unwrap());
            world.shut_down();
        });
        block_on(select2(attendance.attend(), abort.notified()));
    });
}

/// Returns what an outlet answers before its samples.
fn opening(info: &StreamInfo, request: &[u8]) -> Vec<u8> {
    let options = OutletOptions {
        capacity_samples: 1,
        chunk_samples: 1,
        synchronous: false,
        retain: Retain::NOTHING,
    };
    let offer = Offer {
        info,
        shortinfo: &[],
        options: &options,
        coalesces: false,
    };
    let request = RequestParser::new().feed(request).unwrap().unwrap();
    match offer.reply(&request, |_| Ok(&[][..]), |_| None) {
        Ok(Reply::Feed(feed)) => feed.preamble(&options.side(info), None),
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_pulls_share_two_samples() {
    check(true, [World::pull, World::pull], true, |world| {
        world.send();
        world.send();
    });
}

#[test]
fn an_async_pull_beside_a_blocking_one_gets_its_sample() {
    check(true, [World::pull, World::pull_async], true, |world| {
        world.send();
        world.send();
    });
}

#[test]
fn a_pull_is_told_of_samples_that_somebody_else_read() {
    for pull in [World::pull, World::pull_async] {
        check(true, [pull], true, |world| {
            world.send();
            world.inlet.look(|_| ());
        });
    }
}

#[test]
fn a_pull_of_a_slow_stream_asks_the_reactor() {
    for pull in [World::pull, World::pull_async] {
        check(false, [pull], true, |world| {
            world.send();
            world.inlet.try_pull(World::take);
            world.send();
        });
    }
}

#[test]
fn samples_from_before_the_end_of_a_connection_are_pulled() {
    for pull in [World::pull, World::pull_async] {
        check(true, [pull], true, |world| {
            world.send();
            world.abort.notify_one();
        });
    }
}

#[test]
fn a_loss_reaches_pulls_while_the_connection_lasts() {
    check(true, [World::pull, World::pull], false, |world| {
        world.inlet.lose("the model ends");
    });
}

#[test]
fn an_end_reaches_pulls_whether_they_lead_or_follow() {
    check(true, [World::pull, World::pull], false, World::shut_down);
}
