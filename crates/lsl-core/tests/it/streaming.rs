//! Our outlet and our inlet, over real sockets.

use std::fmt::Debug;
use std::io::Read;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lsl_core::{
    ChannelFormat, DEDUCED_TIMESTAMP, Echo, ErrorKind, Inlet, Outlet, ProcessingOptions,
    PullElement, PushElement, Pushthrough, Stamps, StreamInfo, Timeout, local_clock,
};

use crate::lab::{self, SOON};

fn info(name: &str, channels: u32, rate: f64, format: ChannelFormat) -> StreamInfo {
    StreamInfo::new(name, "Test", channels, rate, format, format!("src-{name}")).unwrap()
}

/// What pushed values look like when they come back as another type.
fn round_trip<T, U>(
    context: &lsl_core::Context,
    format: ChannelFormat,
    values: &[T],
    expected: &[U],
) where
    T: PushElement + Copy + Debug,
    U: PullElement + Default + Clone + PartialEq + Debug,
{
    let name = format!("round-{format}");
    let outlet = lab::outlet(context, info(&name, values.len() as u32, 100.0, format));
    let inlet = lab::inlet(context, &name);
    outlet.push_at(values, 12.5).unwrap();
    outlet
        .push_chunk_at(&[values, values].concat(), 13.0)
        .unwrap();
    let mut pulled = vec![U::default(); expected.len()];
    assert_eq!(
        inlet.blocking().pull(&mut pulled, SOON).unwrap(),
        Some(12.5),
        "{format}"
    );
    assert_eq!(pulled, expected, "{format}");
    let mut chunk = vec![U::default(); 2 * expected.len()];
    let mut stamps = [0.0; 2];
    assert_eq!(
        inlet
            .blocking()
            .pull_chunk(&mut chunk, Some(&mut stamps), SOON)
            .unwrap(),
        2
    );
    assert_eq!(chunk, [expected, expected].concat(), "{format}");
    assert_eq!(stamps, [12.99, 12.99 + 1.0 / 100.0], "{format}");
}

#[test]
fn every_format_arrives_exactly() {
    let context = lab::context();
    round_trip(
        &context,
        ChannelFormat::Float32,
        &[1.5_f32, -2.25, 1e-40],
        &[1.5_f32, -2.25, 1e-40],
    );
    round_trip(
        &context,
        ChannelFormat::Double64,
        &[0.1_f64, f64::MIN],
        &[0.1_f64, f64::MIN],
    );
    round_trip(
        &context,
        ChannelFormat::Int64,
        &[i64::MIN, -1, 7],
        &[i64::MIN, -1, 7],
    );
    round_trip(
        &context,
        ChannelFormat::Int32,
        &[i32::MIN, 7],
        &[i32::MIN, 7],
    );
    round_trip(
        &context,
        ChannelFormat::Int16,
        &[i16::MIN, 7],
        &[i16::MIN, 7],
    );
    round_trip(&context, ChannelFormat::Int8, &[i8::MIN, 7], &[i8::MIN, 7]);
    let texts = ["", "häß\0lich", "x"];
    round_trip(
        &context,
        ChannelFormat::String,
        &texts,
        &texts.map(str::to_owned),
    );
    round_trip(&context, ChannelFormat::Int16, &[70_000.9_f64], &[4464_i32]);
}

#[test]
fn protocol_1_00_and_its_downgrades_carry_the_same_samples() {
    for version in ["100", "110"] {
        let context = lab::context_with(&[("tuning.UseProtocolVersion", version)]);
        for format in ChannelFormat::STREAMABLE {
            let name = format!("v{version}-{format}");
            let outlet = lab::outlet(&context, info(&name, 2, 10.0, format));
            let inlet = lab::inlet(&context, &name);
            outlet.push_at(&[65_i8, -3], 99.0).unwrap();
            outlet.push_at(&[65_i8, -3], DEDUCED_TIMESTAMP).unwrap();
            let mut sample = [String::new(), String::new()];
            assert_eq!(
                inlet.blocking().pull(&mut sample, SOON).unwrap(),
                Some(99.0),
                "{name}"
            );
            let second: f64 = sample[1].parse().unwrap();
            assert_eq!(second.to_bits(), (-3.0_f64).to_bits(), "{name}: {sample:?}");
            assert_eq!(
                inlet.blocking().pull(&mut sample, SOON).unwrap(),
                Some(99.1),
                "{name}"
            );
        }
    }
}

#[test]
fn nothing_pushed_after_open_is_lost() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("first", 1, 1000.0, ChannelFormat::Int32));
    for round in 0..20 {
        let inlet = lab::inlet(&context, "first");
        outlet.push(&[round]).unwrap();
        let mut value = [-1];
        assert!(inlet.blocking().pull(&mut value, SOON).unwrap().is_some());
        assert_eq!(value, [round]);
    }
}

#[test]
fn flushing_hands_everything_to_the_readers() {
    let context = lab::context();
    let outlet = lab::outlet(
        &context,
        info("flush", 1000, 100.0, ChannelFormat::Double64),
    );
    assert!(outlet.blocking().flush(Timeout::NOW));
    let inlet = lab::inlet(&context, "flush");
    let values = vec![1.5; 1000];
    for _ in 0..500 {
        outlet.push_with(&values, 0.0, Pushthrough::Hold).unwrap();
    }
    assert!(outlet.blocking().flush(SOON));
    assert_eq!(outlet.consumers()[0].behind, 0);
    drop(outlet);
    lab::until("everything arrived", || inlet.samples_available() == 500);
    // A reader that does not read cannot be flushed to.
    let outlet = lab::outlet(
        &context,
        info("stuck", 1000, 100.0, ChannelFormat::Double64),
    );
    let stuck = raw_feed(outlet.info().v4_data_port());
    lab::until("the reader is there", || outlet.have_consumers());
    for _ in 0..2000 {
        outlet.push(&values).unwrap();
    }
    assert!(!outlet.blocking().flush(Duration::from_millis(20)));
    drop(stuck);
    assert!(outlet.blocking().flush(SOON));
}

#[test]
fn consumers_come_and_go() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("seen", 1, 100.0, ChannelFormat::Int8));
    assert!(!outlet.have_consumers());
    assert!(
        !outlet
            .blocking()
            .wait_for_consumers(Duration::from_millis(1))
    );
    let first = lab::inlet(&context, "seen");
    assert!(outlet.blocking().wait_for_consumers(SOON));
    let second = lab::inlet(&context, "seen");
    lab::until("two consumers", || outlet.consumers().len() == 2);
    drop(first);
    second.close();
    lab::until("no consumers", || !outlet.have_consumers());
    assert_eq!(outlet.stats().consumers_seen, 2);
}

#[test]
fn closing_an_inlet_forgets_samples_and_pulling_opens_it_again() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("again", 1, 100.0, ChannelFormat::Int32));
    let inlet = lab::inlet(&context, "again");
    outlet.push(&[1]).unwrap();
    lab::until("a sample waits", || inlet.samples_available() == 1);
    inlet.close();
    assert_eq!(inlet.samples_available(), 0);
    inlet.blocking().open(SOON).unwrap();
    outlet.push(&[2]).unwrap();
    let mut value = [0];
    assert!(inlet.blocking().pull(&mut value, SOON).unwrap().is_some());
    assert_eq!(value, [2]);
}

#[test]
fn an_inlet_is_ready_when_a_pull_would_not_wait() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("ready", 1, 100.0, ChannelFormat::Int32));
    let inlet = lab::inlet(&context, "ready");
    assert!(!inlet.is_ready());
    outlet.push(&[1]).unwrap();
    outlet.push(&[2]).unwrap();
    lab::until("two samples wait", || inlet.samples_available() == 2);
    assert!(inlet.is_ready());
    // Forgetting the rest after some were pulled.
    inlet.try_pull(&mut [0]).unwrap();
    assert_eq!(inlet.flush(), 1);
    assert!(!inlet.is_ready());
    inlet.shut_down();
    assert!(inlet.is_ready());
}

#[test]
fn an_inlet_follows_its_stream_to_a_new_outlet() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("moved", 1, 100.0, ChannelFormat::Int32));
    let inlet = lab::inlet(&context, "moved");
    let old_uid = inlet.full_uid();
    outlet.push(&[1]).unwrap();
    let mut value = [0];
    assert!(inlet.blocking().pull(&mut value, SOON).unwrap().is_some());
    drop(outlet);
    let outlet = lab::outlet(&context, info("moved", 1, 100.0, ChannelFormat::Int32));
    assert!(outlet.blocking().wait_for_consumers(SOON));
    outlet.push(&[2]).unwrap();
    assert!(inlet.blocking().pull(&mut value, SOON).unwrap().is_some());
    assert_eq!((value, inlet.stats().reconnects), ([2], 1));
    assert_ne!(inlet.full_uid(), old_uid);
}

trait FullUid {
    fn full_uid(&self) -> String;
}

impl FullUid for Inlet {
    fn full_uid(&self) -> String {
        self.blocking().full_info(SOON).unwrap().uid().into_owned()
    }
}

#[test]
fn without_recovery_the_end_is_reported_to_every_call() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("gone", 1, 100.0, ChannelFormat::Int32));
    let inlet = Inlet::builder(&lab::find(&context, "gone"))
        .context(&context)
        .recover(false)
        .create()
        .unwrap();
    inlet.blocking().open(SOON).unwrap();
    let waiting = std::thread::spawn(move || {
        let result = inlet.blocking().pull(&mut [0_i32], Timeout::Forever);
        (inlet, result)
    });
    drop(outlet);
    let (inlet, result) = waiting.join().unwrap();
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Lost);
    let lost = |kind: ErrorKind| assert_eq!(kind, ErrorKind::Lost);
    lost(inlet.try_pull(&mut [0_i32]).unwrap_err().kind());
    lost(inlet.blocking().open(SOON).unwrap_err().kind());
    lost(inlet.blocking().time_correction(SOON).unwrap_err().kind());
    lost(inlet.blocking().full_info(SOON).unwrap_err().kind());
}

#[test]
fn what_came_before_the_end_can_be_pulled_first() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("last", 1, 100.0, ChannelFormat::Int32));
    let inlet = Inlet::builder(&lab::find(&context, "last"))
        .context(&context)
        .recover(false)
        .samples_first(true)
        .create()
        .unwrap();
    inlet.blocking().open(SOON).unwrap();
    for value in 0..5 {
        outlet.push(&[value]).unwrap();
    }
    drop(outlet);
    let lost = |error: &lsl_core::Error| error.kind() == ErrorKind::Lost;
    lab::until("the loss", || {
        inlet.blocking().open(SOON).is_err_and(|it| lost(&it))
    });
    let mut values = [0; 8];
    assert_eq!(inlet.try_pull_chunk(&mut values, None).unwrap(), 5);
    assert_eq!(values[..5], [0, 1, 2, 3, 4]);
    assert!(lost(&inlet.try_pull_chunk(&mut values, None).unwrap_err()));
}

#[test]
fn known_peers_are_asked_at_one_port_or_at_all() {
    let session = ("lab.SessionID", "it-known-peers");
    let outlet_context = lab::context_with(&[session]);
    let outlet = lab::outlet(&outlet_context, info("peer", 1, 100.0, ChannelFormat::Int8));
    let service = outlet.info().v4_service_port();
    let find = |peers: &str, patience: Timeout| {
        // Its own ports are none of a lab's, so that its usual sweep misses the outlet.
        let context = lab::context_with(&[
            session,
            ("lab.KnownPeers", peers),
            ("ports.BasePort", "12000"),
        ]);
        let all = lsl_core::Selector::all();
        context.resolve_blocking(&all, 1, patience).unwrap().len()
    };
    assert_eq!(find(&format!("{{127.0.0.1:{service}}}"), SOON.into()), 1);
    // A port next to the outlet's may be its context's, where the same is answered.
    let deaf = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = format!("{{{}}}", deaf.local_addr().unwrap());
    assert_eq!(find(&nobody, Timeout::from_secs(0.2)), 0);
    // Whoever is not on this host is not asked in this mode.
    assert_eq!(find("{192.0.2.1}", Timeout::from_secs(0.2)), 0);
}

#[test]
fn an_inlet_finds_a_stream_it_only_knows_by_description() {
    let context = lab::context();
    let described = info("described", 2, 100.0, ChannelFormat::Double64);
    let inlet = Inlet::builder(&described)
        .context(&context)
        .create()
        .unwrap();
    assert_eq!(inlet.try_pull(&mut [0.0, 0.0]).unwrap(), None);
    let outlet = lab::outlet(&context, described);
    assert!(outlet.blocking().wait_for_consumers(SOON));
    outlet.push_at(&[1.0, 2.0], 5.0).unwrap();
    assert_eq!(
        inlet.blocking().pull(&mut [0.0, 0.0], SOON).unwrap(),
        Some(5.0)
    );
}

#[test]
fn metadata_arrives_whole() {
    let context = lab::context();
    let mut described = info("meta", 1, 0.0, ChannelFormat::String);
    described.desc_mut().set("größe", "<5 & \"7\"> µV\n");
    let expected = described
        .desc_ref()
        .unwrap()
        .get("größe")
        .unwrap()
        .into_owned();
    let _outlet = lab::outlet(&context, described);
    let found = lab::find(&context, "meta");
    assert!(found.desc_ref().unwrap().children().next().is_none());
    let inlet = Inlet::builder(&found).context(&context).create().unwrap();
    let full = inlet.blocking().full_info(SOON).unwrap();
    assert_eq!(full.desc_ref().unwrap().get("größe").unwrap(), expected);
    assert_eq!(full.uid(), found.uid());
    assert!(!full.is_unresolved());
}

#[test]
fn clocks_on_one_host_agree() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("clock", 1, 100.0, ChannelFormat::Int32));
    let inlet = lab::inlet(&context, "clock");
    let correction = inlet.blocking().time_correction(SOON).unwrap();
    assert!(correction.offset_secs.abs() < 0.005, "{correction:?}");
    assert!(correction.uncertainty_secs < 0.01, "{correction:?}");
    assert!((correction.remote_time - local_clock()).abs() < 5.0);
    assert!(!inlet.was_clock_reset());
    inlet.set_processing(ProcessingOptions::ALL);
    outlet.push_at(&[1], 100.0).unwrap();
    let stamp = inlet.blocking().pull(&mut [0], SOON).unwrap().unwrap();
    assert!((stamp - 100.0).abs() < 0.01, "{stamp}");
}

#[test]
fn a_description_of_another_outlet_at_the_same_port_is_not_taken() {
    let context = lab::context();
    let other = lab::outlet(&context, info("newcomer", 1, 100.0, ChannelFormat::Int8));
    let text = String::from_utf8(other.info().to_xml()).unwrap();
    let gone = text
        .replace(&*other.info().uid(), "00000000-0000-4000-8000-000000000000")
        .replace(
            "<v4address></v4address>",
            "<v4address>127.0.0.1</v4address>",
        )
        .replace("newcomer", "gone");
    let inlet = Inlet::builder(&StreamInfo::from_xml(gone.as_bytes()).unwrap())
        .context(&context)
        .recover(false)
        .create()
        .unwrap();
    let refused = inlet.blocking().full_info(SOON).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Lost);
}

#[test]
fn synchronous_outlets_write_before_they_return() {
    let context = lab::context();
    let outlet = Outlet::builder(info("sync", 2, 100.0, ChannelFormat::Int16))
        .context(&context)
        .synchronous(true)
        .open()
        .unwrap();
    let inlet = lab::inlet(&context, "sync");
    for n in 0..100_i16 {
        outlet.push_with(&[n, -n], 0.0, Pushthrough::Hold).unwrap();
    }
    outlet
        .push_chunk_with(
            &[1_i16, 2, 3, 4],
            Stamps::Each(&[7.0, 8.0]),
            Pushthrough::Flush,
        )
        .unwrap();
    let mut values = [0_i16; 204];
    let mut stamps = [0.0; 102];
    let pulled = inlet
        .blocking()
        .pull_chunk(&mut values, Some(&mut stamps), SOON)
        .unwrap();
    assert_eq!(
        (pulled, values[198], values[203], stamps[101]),
        (102, 99, 4, 8.0)
    );
    let refused = Outlet::builder(info("text", 1, 1.0, ChannelFormat::String))
        .context(&context)
        .synchronous(true)
        .open();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Argument);
}

/// A synchronous outlet waits for its readers, but not for ever. Spec: lsl-protocol §13, §15.
#[test]
fn a_stalled_reader_of_a_synchronous_outlet_is_dropped() {
    let context = lab::context_with(&[("tuning.SyncSendTimeout", "0.2")]);
    let outlet = Outlet::builder(info("stall", 4096, 100.0, ChannelFormat::Double64))
        .context(&context)
        .synchronous(true)
        .open()
        .unwrap();
    let stalled = raw_feed(outlet.info().v4_data_port());
    lab::until("the reader is there", || outlet.have_consumers());
    let mut values = vec![0.5; 4096];
    let mut longest = 0.0_f64;
    lab::until("the reader is dropped", || {
        let begin = local_clock();
        outlet.push(&values).unwrap();
        longest = longest.max(local_clock() - begin);
        !outlet.have_consumers()
    });
    assert!(longest < 5.0, "a push took {longest} s");
    assert_eq!(outlet.stats().refused, 1);
    let inlet = lab::inlet(&context, "stall");
    outlet.push_at(&values, 7.0).unwrap();
    let stamp = inlet.blocking().pull(&mut values, SOON).unwrap();
    assert_eq!(stamp, Some(7.0));
    drop(stalled);
}

/// A log in the hands of the program, which pushes whenever it is told something.
struct PushingLog(Arc<Outlet>);

impl tracing::Subscriber for PushingLog {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.push(&vec![0.5; 4096]).unwrap();
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn whoever_is_told_that_a_reader_was_dropped_may_push() {
    let context = lab::context_with(&[("tuning.SyncSendTimeout", "0.2")]);
    let outlet = Outlet::builder(info("told", 4096, 100.0, ChannelFormat::Double64))
        .context(&context)
        .synchronous(true)
        .open()
        .map(Arc::new)
        .unwrap();
    let stalled = raw_feed(outlet.info().v4_data_port());
    lab::until("the reader is there", || outlet.have_consumers());
    let (done, is_done) = mpsc::channel();
    let pushing = Arc::clone(&outlet);
    std::thread::spawn(move || {
        tracing::subscriber::with_default(PushingLog(Arc::clone(&pushing)), || {
            lab::until("the reader is dropped", || {
                pushing.push(&vec![0.5; 4096]).unwrap();
                pushing.stats().refused == 1
            });
        });
        done.send(()).unwrap();
    });
    is_done
        .recv_timeout(2 * SOON)
        .expect("the push waits for itself");
    drop(stalled);
}

#[test]
fn a_stalled_reader_of_a_synchronous_outlet_costs_the_others_nothing() {
    // Together far more than socket buffers take.
    const SAMPLES: usize = 4096;
    const CHANNELS: usize = 1024;
    let context = lab::context_with(&[("tuning.SyncSendTimeout", "0.5")]);
    let outlet = Outlet::builder(info("bystander", 1024, 0.0, ChannelFormat::Double64))
        .context(&context)
        .synchronous(true)
        .open()
        .unwrap();
    // Readers are served in the order in which they came.
    let stalled = raw_feed(outlet.info().v4_data_port());
    lab::until("one reader is there", || outlet.consumers().len() == 1);
    let mut slow = raw_feed(outlet.info().v4_data_port());
    lab::until("both are there", || outlet.consumers().len() == 2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            lab::until("the first was dropped", || outlet.stats().refused == 1);
            let mut received = vec![0; SAMPLES * CHANNELS * 8];
            slow.set_read_timeout(Some(SOON)).unwrap();
            slow.read_exact(&mut received).unwrap();
        });
        outlet.push_chunk(&vec![0.5; SAMPLES * CHANNELS]).unwrap();
    });
    assert_eq!((outlet.stats().refused, outlet.consumers().len()), (1, 1));
    drop(stalled);
}

/// Loom finds a lost wake-up here (`drive_outlet/loom.rs`); this one finds what waits for real time.
#[test]
fn a_flush_returns_when_the_last_reader_has_caught_up() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("flushed", 1, 0.0, ChannelFormat::Int64));
    let inlet = lab::inlet(&context, "flushed");
    for n in 0..10_000_i64 {
        outlet.push_with(&[n], 0.0, Pushthrough::Hold).unwrap();
        let start = local_clock();
        assert!(outlet.blocking().flush(SOON));
        let took = local_clock() - start;
        assert!(took < SOON.as_secs_f64() / 2.0, "flush {n} took {took} s");
    }
    drop(inlet);
}

#[test]
fn an_inlet_that_is_closed_while_another_thread_pulls_can_be_used_again() {
    const ROUNDS: usize = 5000;
    let context = lab::context();
    let outlet = lab::outlet(&context, info("reopened", 1, 0.0, ChannelFormat::Int64));
    let inlet = lab::inlet(&context, "reopened");
    let round = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..ROUNDS {
                round.wait();
                (0..n % 200).for_each(|_| std::hint::spin_loop());
                inlet.try_pull(&mut [0_i64]).unwrap();
                round.wait();
            }
        });
        let mut stuck = 0;
        for n in 0..ROUNDS {
            round.wait();
            (0..n % 300).for_each(|_| std::hint::spin_loop());
            inlet.close();
            round.wait();
            stuck += usize::from(inlet.blocking().open(Duration::from_secs(3)).is_err());
            inlet.close();
        }
        assert_eq!(stuck, 0);
    });
    drop(outlet);
}

/// Lets two threads go on at the same moment, as a sleeping barrier does not.
struct Barrier {
    arrived: std::sync::atomic::AtomicUsize,
    threads: usize,
}

impl Barrier {
    fn new(threads: usize) -> Self {
        Self {
            arrived: 0.into(),
            threads,
        }
    }

    fn wait(&self) {
        let place = self
            .arrived
            .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let end = (place / self.threads + 1) * self.threads;
        let mut spins = 0_u32;
        while self.arrived.load(std::sync::atomic::Ordering::SeqCst) < end {
            spins += 1;
            if spins.is_multiple_of(1000) {
                // The other thread may have no processor.
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }
}

/// A reader that asks for the feed and never reads it.
fn raw_feed(port: u16) -> std::net::TcpStream {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .write_all(b"LSL:streamfeed/110 \r\nMax-Buffer-Length: 1000\r\n\r\n")
        .unwrap();
    stream
}

#[test]
fn several_threads_push_and_pull_without_losing_or_doubling_a_sample() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("busy", 1, 1000.0, ChannelFormat::Int64));
    let inlet = lab::inlet(&context, "busy");
    let mut seen = std::thread::scope(|scope| {
        for pusher in 0..3_i64 {
            let outlet = &outlet;
            scope.spawn(move || {
                for n in 0..2000 {
                    outlet.push(&[pusher * 2000 + n]).unwrap();
                }
            });
        }
        let pullers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = Vec::new();
                    let mut value = [0_i64];
                    while inlet
                        .blocking()
                        .pull(&mut value, Duration::from_secs(2))
                        .unwrap()
                        .is_some()
                    {
                        seen.push(value[0]);
                    }
                    seen
                })
            })
            .collect();
        pullers
            .into_iter()
            .flat_map(|puller| puller.join().unwrap())
            .collect::<Vec<_>>()
    });
    seen.sort_unstable();
    assert_eq!(seen, (0..6000).collect::<Vec<_>>());
    assert_eq!(outlet.stats().dropped, 0);
}

#[test]
fn wrong_shapes_are_refused_and_nothing_is_sent() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("shape", 3, 100.0, ChannelFormat::Int32));
    let argument = |result: lsl_core::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Argument);
    };
    argument(outlet.push(&[1, 2]));
    argument(outlet.push_chunk(&[1, 2, 3, 4]));
    argument(outlet.push_chunk_with(&[1, 2, 3], Stamps::Each(&[]), Pushthrough::Flush));
    assert_eq!(outlet.stats().samples, 0);
    let inlet = lab::inlet(&context, "shape");
    assert_eq!(
        inlet.try_pull(&mut [0; 2]).unwrap_err().kind(),
        ErrorKind::Argument
    );
    let odd = inlet.try_pull_chunk(&mut [0; 4], None).unwrap_err();
    assert_eq!(odd.kind(), ErrorKind::Argument);
}

#[test]
fn an_outlet_answers_when_it_is_asked_and_not_when_it_has_gone() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("asked", 1, 0.0, ChannelFormat::Int32));
    let inlet = lab::inlet(&context, "asked");
    let local = Echo::Beside { is_local: true };
    assert_eq!(inlet.blocking().echo(SOON).unwrap(), local);
    drop(outlet);
    let error = inlet.blocking().echo(Duration::from_millis(300));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Timeout);
}
