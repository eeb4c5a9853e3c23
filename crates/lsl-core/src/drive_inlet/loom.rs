//! Pulls, their leader and the inlet's task under every interleaving, all of them the driver's own: `cargo xtask
//! loom`. The outlet is the other end of the stream.

use std::sync::Arc;

use lsl_proto::config::Config;
use lsl_proto::inlet::{Exchange, Feed, FeedDecoder, Pull, Taken};
use lsl_proto::outlet::fanout::Caller;
use lsl_proto::outlet::request::{Offer, OutletOptions, Reply};
use lsl_proto::wire::request::RequestParser;

use crate::byte_stream::{Writer, pipe};
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

    /// Does what `Inlet::shut_down` does.
    fn shut_down(&self) {
        self.abort.notify_one();
        self.inlet.lose("the model ends");
    }
}

/// Runs `users` beside the task of an inlet whose stream flows.
fn check(users: impl Fn(World) + Send + Sync + 'static) {
    let security = lsl_secure::Security::off(Vec::new()).unwrap();
    let context = Context::with_security(Config::loopback(), Arc::new(security));
    let info = StreamInfo::new("model", "", 1, 0.0, ChannelFormat::Int8, "model").unwrap();
    let users = Arc::new(users);
    sync::check(2, move || {
        let (context, info) = (context.clone(), info.clone());
        let inlet = Arc::new(InletShared::new(context, info.clone(), 10, 0, true, false));
        let (near, far) = pipe::pair();
        let exchange = Exchange::Feed(Box::new(FeedDecoder::new(&info, inlet.options)));
        let opening = opening(&info, exchange.request());
        let connecting = Connection::plain(near, pipe::ADDRESS, exchange);
        let connection = block_on(connecting).unwrap();
        assert_eq!(
            far.writer().try_write(&opening, Caller::Push).unwrap(),
            opening.len()
        );
        let attendance = Attendance::begin(&inlet, 0, connection).unwrap();
        block_on(attendance.open()).unwrap();
        inlet
            .feed
            .update(|state| (0..2).for_each(|_| state.reader.on_read(local_clock())));
        let abort = Arc::new(Notify::new());
        let world = World {
            inlet: Arc::clone(&inlet),
            abort: Arc::clone(&abort),
            outlet: far.writer().clone(),
        };
        let users = Arc::clone(&users);
        let using = sync::thread(move || users(world));
        block_on(select2(attendance.attend(), abort.notified()));
        using.join().unwrap();
    });
}

/// Returns what an outlet answers before its samples.
fn opening(info: &StreamInfo, request: &[u8]) -> Vec<u8> {
    let options = OutletOptions {
        capacity_samples: 1,
        chunk_samples: 1,
        synchronous: false,
    };
    let offer = Offer {
        info,
        shortinfo: &[],
        options: &options,
        coalesces: false,
    };
    let request = RequestParser::new().feed(request).unwrap().unwrap();
    match offer.reply(&request, |_| Ok(&[][..])) {
        Ok(Reply::Feed(feed)) => feed.preamble,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_leader_is_told_of_samples_that_somebody_else_read() {
    check(|world| {
        let puller = world.clone();
        let puller = sync::thread(move || assert!(puller.pull()));
        world.send();
        world.inlet.look(|_| ());
        puller.join().unwrap();
        assert_eq!(world.inlet.look(|feed| feed.ring.len()), 0);
        world.shut_down();
    });
}

#[test]
fn two_pulls_share_two_samples() {
    check(|world| {
        let puller = world.clone();
        let puller = sync::thread(move || assert!(puller.pull()));
        world.send();
        world.send();
        assert!(world.pull());
        puller.join().unwrap();
        world.shut_down();
    });
}

#[test]
fn an_async_pull_beside_a_blocking_one_gets_its_sample() {
    check(|world| {
        let puller = world.clone();
        let puller = sync::thread(move || assert!(puller.pull()));
        world.send();
        world.send();
        let pulled = block_on(world.inlet.pull(f64::INFINITY, World::take));
        assert_eq!(pulled, Some(true));
        puller.join().unwrap();
        world.shut_down();
    });
}

#[test]
fn an_end_reaches_every_puller_whether_it_leads_or_follows() {
    check(|world| {
        let pullers = [world.clone(), world.clone()];
        let pullers = pullers.map(|puller| sync::thread(move || assert!(!puller.pull())));
        world.shut_down();
        for puller in pullers {
            puller.join().unwrap();
        }
    });
}
