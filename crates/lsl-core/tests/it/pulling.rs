//! Pulls that read the socket themselves, beside others that do, and what ends under them. Each case
//! runs in plaintext here and encrypted from `secure::pulling`.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context as Polled, Poll, Wake};
use std::thread;
use std::time::Duration;

use lsl_core::{
    ChannelFormat, Context, Error, ErrorKind, Inlet, InletState, Outlet, Result, StreamInfo,
    local_clock,
};

use crate::lab::{self, SOON};

fn info(name: &str) -> StreamInfo {
    StreamInfo::new(
        name,
        "Test",
        1,
        1000.0,
        ChannelFormat::Int64,
        format!("src-{name}"),
    )
    .unwrap()
}

fn pair(outlets: &Context, inlets: &Context, name: &str) -> (Outlet, Inlet) {
    let outlet = lab::outlet(outlets, info(name));
    let inlet = lab::inlet(inlets, name);
    (outlet, inlet)
}

/// Pushes numbers, about 2000 a second, until told to stop; how many.
fn push_until(outlet: &Outlet, stop: &AtomicBool) -> i64 {
    let mut pushed = 0;
    while !stop.load(Ordering::Relaxed) {
        outlet.push(&[pushed]).unwrap();
        pushed += 1;
        thread::sleep(Duration::from_micros(500));
    }
    pushed
}

/// Stops a pusher also when its test fails.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An executor that is not the library's.
pub fn block_on<R>(future: impl Future<Output = R>) -> R {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Polled::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

/// Two threads block in pulls, one polls, one awaits, one counts what waits: every sample comes once,
/// and in order to each.
pub fn all_kinds_of_pulls_share_one_inlet(outlets: &Context, inlets: &Context) {
    const SAMPLES: i64 = 3000;
    let (outlet, inlet) = pair(outlets, inlets, "shared");
    let taken = AtomicUsize::new(0);
    let is_done = || taken.load(Ordering::SeqCst) >= SAMPLES as usize;
    let take = |pull: &dyn Fn(&mut [i64]) -> Option<f64>| {
        let mut seen = Vec::new();
        let mut value = [0];
        while !is_done() {
            if pull(&mut value).is_some() {
                taken.fetch_add(1, Ordering::SeqCst);
                seen.push(value[0]);
            }
        }
        seen
    };
    let brief = Duration::from_millis(20);
    let blocking = |value: &mut [i64]| inlet.blocking().pull(value, brief).unwrap();
    let polling = |value: &mut [i64]| {
        thread::sleep(Duration::from_millis(1));
        inlet.try_pull(value).unwrap()
    };
    let awaiting = |value: &mut [i64]| block_on(inlet.pull(value, brief)).unwrap();
    let seen: Vec<Vec<i64>> = thread::scope(|scope| {
        let pullers = [
            scope.spawn(|| take(&blocking)),
            scope.spawn(|| take(&blocking)),
            scope.spawn(|| take(&polling)),
            scope.spawn(|| take(&awaiting)),
        ];
        scope.spawn(|| {
            while !is_done() {
                assert!(inlet.samples_available() <= SAMPLES as usize);
                thread::sleep(Duration::from_millis(3));
            }
        });
        for number in 0..SAMPLES {
            outlet.push(&[number]).unwrap();
            thread::sleep(Duration::from_micros(200));
        }
        pullers.map(|puller| puller.join().unwrap()).into()
    });
    for one in &seen {
        assert!(one.is_sorted());
    }
    let mut all = seen.concat();
    all.sort_unstable();
    assert_eq!(all, (0..SAMPLES).collect::<Vec<_>>());
    assert_eq!(inlet.stats().dropped, 0);
}

/// What an outlet has sent can be counted and pulled, nobody pulling, whoever read the socket last.
pub fn what_is_there_is_counted_exactly(outlets: &Context, inlets: &Context) {
    let (outlet, inlet) = pair(outlets, inlets, "counted");
    let mut expected = 0;
    let mut value = [0];
    for round in 0..200 {
        for _ in 0..=round % 7 {
            outlet.push(&[round]).unwrap();
            expected += 1;
        }
        assert!(outlet.blocking().flush(SOON));
        // At once as a rule; a busy system may deliver what was sent a moment later.
        lab::until("all are counted", || inlet.samples_available() >= expected);
        assert_eq!(inlet.samples_available(), expected, "{round}");
        // By turns nobody pulls, one sample is taken without waiting, and all are, to wait in vain.
        if round % 3 == 1 {
            assert!(inlet.try_pull(&mut value).unwrap().is_some());
            expected -= 1;
        } else if round % 30 == 2 {
            let brief = Duration::from_millis(2);
            while inlet.blocking().pull(&mut value, brief).unwrap().is_some() {
                expected -= 1;
            }
            assert_eq!(expected, 0, "{round}");
        }
    }
    assert_eq!(inlet.flush(), expected);
    assert_eq!(inlet.samples_available(), 0);
}

/// Whoever is blocked in a pull of a stream that flows returns when the inlet ends.
pub fn an_end_reaches_pulls_that_wait_for_the_socket(outlets: &Context, inlets: &Context) {
    let outlet = lab::outlet(outlets, info("ended"));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let outlet = &outlet;
        let stop = &stop;
        let _stopper = Stopper(stop);
        scope.spawn(move || push_until(outlet, stop));
        for round in 0..10 {
            let inlet = lab::inlet(inlets, "ended");
            let pull = || {
                let mut value = [0_i64];
                let mut pulled = 0;
                loop {
                    match inlet.blocking().pull(&mut value, SOON) {
                        Ok(Some(_)) => pulled += 1,
                        Ok(None) => panic!("nothing came, though much was pushed"),
                        Err(error) => return (pulled, error),
                    }
                }
            };
            thread::scope(|scope| {
                let pullers = [scope.spawn(pull), scope.spawn(pull)];
                lab::until("samples come", || inlet.stats().samples > 30);
                // In one round of two nothing more comes and the pulls are asleep.
                thread::sleep(Duration::from_millis(round % 3));
                let began = local_clock();
                inlet.shut_down();
                for puller in pullers {
                    let (_, error) = puller.join().unwrap();
                    assert_eq!(error.kind(), ErrorKind::Lost);
                }
                assert!(local_clock() - began < SOON.as_secs_f64() / 2.0);
            });
        }
    });
    lab::until("the outlet sees no reader", || !outlet.have_consumers());
}

/// Closing under a blocked pull makes it wait for the next connection, which the next pull makes.
pub fn a_pull_outlives_a_close(outlets: &Context, inlets: &Context) {
    let (outlet, inlet) = pair(outlets, inlets, "closed");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stopper = Stopper(&stop);
        scope.spawn(|| push_until(&outlet, &stop));
        let puller = scope.spawn(|| {
            let mut pulled = 0_u64;
            let mut last = -1;
            let mut value = [0_i64];
            while !stop.load(Ordering::Relaxed) {
                let brief = Duration::from_millis(50);
                if inlet.blocking().pull(&mut value, brief).unwrap().is_some() {
                    assert!(value[0] > last, "{} after {last}", value[0]);
                    last = value[0];
                    pulled += 1;
                }
            }
            pulled
        });
        for _ in 0..30 {
            let before = inlet.stats().samples;
            lab::until("samples come", || inlet.stats().samples > before + 5);
            inlet.close();
            inlet.blocking().open(SOON).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        assert!(puller.join().unwrap() > 100);
    });
}

/// What one thread closes stays closed: an `open` of another one ends, whoever connects next, and a pull of
/// another one waits until somebody does.
pub fn a_close_ends_an_open_and_no_pull(outlets: &Context, inlets: &Context) {
    let inlet = Inlet::builder(&info("interrupted")).context(inlets);
    let inlet = inlet.create().unwrap();
    let opens: [&(dyn Fn() -> Result<()> + Sync); 2] = [&|| inlet.blocking().open(SOON), &|| {
        block_on(inlet.open(SOON))
    }];
    for open in opens {
        thread::scope(|scope| {
            let opening = scope.spawn(open);
            lab::until("it is looked for", || {
                inlet.health().state == InletState::Searching
            });
            inlet.close();
            assert_eq!(inlet.try_pull(&mut [0_i64]).unwrap(), None);
            let opened = opening.join().unwrap();
            assert!(matches!(opened, Err(Error::Closed { .. })), "{opened:?}");
            inlet.close();
        });
    }
    let outlet = lab::outlet(outlets, info("interrupted"));
    inlet.blocking().open(SOON).unwrap();
    outlet.push(&[1_i64]).unwrap();
    lab::until("it comes", || inlet.samples_available() == 1);
    thread::scope(|scope| {
        let puller = scope.spawn(|| {
            let mut values = [0_i64; 2];
            let pulled = inlet.blocking().pull_chunk(&mut values, None, SOON);
            (pulled.unwrap(), values)
        });
        lab::until("it is taken", || inlet.samples_available() == 0);
        inlet.close();
        lab::until("the outlet sees no reader", || !outlet.have_consumers());
        assert!(!puller.is_finished());
        inlet.blocking().open(SOON).unwrap();
        outlet.push(&[2_i64]).unwrap();
        assert_eq!(puller.join().unwrap(), (2, [1, 2]));
    });
}

/// Closing is not losing, also where a lost connection would be final and the data task finds the
/// connection gone at the very moment.
pub fn a_close_of_a_stream_that_cannot_be_recovered_is_no_loss(
    outlets: &Context,
    inlets: &Context,
) {
    let outlet = lab::outlet(outlets, info("reopened"));
    let inlet = Inlet::builder(&lab::find(inlets, "reopened"))
        .context(inlets)
        .recover(false)
        .create()
        .unwrap();
    // The data task reads each sample at once.
    assert!(inlet.set_notifier(|| ()));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stopper = Stopper(&stop);
        scope.spawn(|| {
            let mut number = 0_i64;
            while !stop.load(Ordering::Relaxed) {
                outlet.push(&[number]).unwrap();
                number += 1;
                thread::yield_now();
            }
        });
        for _ in 0..300 {
            inlet.blocking().open(SOON).unwrap();
            let before = inlet.stats().samples;
            lab::until("samples come", || inlet.stats().samples > before);
            inlet.close();
        }
    });
}

/// What was read before and what is still in the socket make one chunk.
pub fn a_chunk_without_waiting_takes_all_there_is(outlets: &Context, inlets: &Context) {
    const ROUNDS: usize = 50;
    let (outlet, inlet) = pair(outlets, inlets, "chunked");
    let mut values = [0_i64; 8];
    let mut whole = 0;
    for _ in 0..ROUNDS {
        outlet.push(&[1_i64]).unwrap();
        // Reads the socket, takes nothing.
        lab::until("the first comes", || inlet.samples_available() == 1);
        outlet.push(&[2_i64]).unwrap();
        assert!(outlet.blocking().flush(SOON));
        // A busy system may deliver what was sent a moment later.
        let pulled = inlet.try_pull_chunk(&mut values, None).unwrap();
        whole += usize::from(pulled == 2);
        if pulled < 2 {
            lab::until("the second comes", || inlet.samples_available() == 1);
            assert_eq!(inlet.flush(), 1);
        }
    }
    assert!(whole > ROUNDS / 2, "{whole} of {ROUNDS}");
}

/// A pull that waits for the socket gets the samples of the outlet's successor.
pub fn a_blocked_pull_follows_its_stream(outlets: &Context, inlets: &Context) {
    let (first, inlet) = pair(outlets, inlets, "followed");
    thread::scope(|scope| {
        let puller = scope.spawn(|| {
            let mut value = [0_i64];
            while value[0] < 1000 {
                let stamp = inlet.blocking().pull(&mut value, SOON).unwrap();
                assert!(stamp.is_some(), "nothing came");
            }
        });
        for number in 0..200 {
            first.push(&[number]).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        drop(first);
        let second = lab::outlet(outlets, info("followed"));
        while !puller.is_finished() {
            second.push(&[1000_i64]).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
        puller.join().unwrap();
    });
    assert!(inlet.stats().reconnects >= 1);
}

/// Who asks to be told of samples is, also when pulls have read the socket so far.
pub fn a_notifier_is_told_after_pulls_have_led(outlets: &Context, inlets: &Context) {
    let (outlet, inlet) = pair(outlets, inlets, "told");
    let stop = AtomicBool::new(false);
    let told = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        let _stopper = Stopper(&stop);
        scope.spawn(|| push_until(&outlet, &stop));
        let mut value = [0_i64];
        for _ in 0..100 {
            inlet.blocking().pull(&mut value, SOON).unwrap().unwrap();
        }
        let counter = Arc::clone(&told);
        assert!(inlet.set_notifier(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        }));
        for _ in 0..100 {
            let before = told.load(Ordering::SeqCst);
            lab::until("the notifier is called", || {
                told.load(Ordering::SeqCst) > before
            });
            // It may be told of samples that the last round took already.
            while inlet.try_pull(&mut value).unwrap().is_some() {}
        }
    });
}

#[test]
fn plain_all_kinds_of_pulls_share_one_inlet() {
    let context = lab::context();
    all_kinds_of_pulls_share_one_inlet(&context, &context);
}

#[test]
fn plain_what_is_there_is_counted_exactly() {
    let context = lab::context();
    what_is_there_is_counted_exactly(&context, &context);
}

#[test]
fn plain_an_end_reaches_pulls_that_wait_for_the_socket() {
    let context = lab::context();
    an_end_reaches_pulls_that_wait_for_the_socket(&context, &context);
}

#[test]
fn plain_a_pull_outlives_a_close() {
    let context = lab::context();
    a_pull_outlives_a_close(&context, &context);
}

#[test]
fn plain_a_close_ends_an_open_and_no_pull() {
    let context = lab::context();
    a_close_ends_an_open_and_no_pull(&context, &context);
}

#[test]
fn plain_a_close_of_a_stream_that_cannot_be_recovered_is_no_loss() {
    let context = lab::context();
    a_close_of_a_stream_that_cannot_be_recovered_is_no_loss(&context, &context);
}

#[test]
fn plain_a_chunk_without_waiting_takes_all_there_is() {
    let context = lab::context();
    a_chunk_without_waiting_takes_all_there_is(&context, &context);
}

#[test]
fn plain_a_blocked_pull_follows_its_stream() {
    let context = lab::context();
    a_blocked_pull_follows_its_stream(&context, &context);
}

#[test]
fn plain_a_notifier_is_told_after_pulls_have_led() {
    let context = lab::context();
    a_notifier_is_told_after_pulls_have_led(&context, &context);
}
