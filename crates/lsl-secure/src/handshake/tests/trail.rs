//! A trail names the steps of either side in their order, and ends with the one that failed.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::Role;
use crate::handshake::{Step, TimedStep, Trail};

/// A clock that goes on by 10 µs with each look.
fn ticking() -> f64 {
    static TICKS: AtomicU32 = AtomicU32::new(0);
    f64::from(TICKS.fetch_add(1, Ordering::Relaxed)) * 1e-5
}

fn trail(role: Role) -> Arc<Trail> {
    Arc::new(Trail::begin(role, 0.0, Some(ticking)))
}

fn names(trail: &Trail) -> Vec<&'static str> {
    let steps = trail.steps();
    let is_timed = |timed: &TimedStep| timed.took_us >= 9;
    assert!(steps.iter().all(is_timed), "{steps:?}");
    assert!(steps.is_sorted_by_key(|timed| timed.after_us), "{steps:?}");
    steps.iter().map(|timed| timed.step.name()).collect()
}

/// Runs a handshake, in which `change` may change each message: M1, M2, M3 and the record after them. Returns the
/// steps of inlet and outlet, and whether there is a session in the end.
fn steps(change: impl Fn(usize, &mut Vec<u8>)) -> ([Vec<&'static str>; 2], bool) {
    let run = &Run::named("chacha-only");
    let random = |key| Fixed::new(run.secret(key));
    let trails = [trail(Role::Inlet), trail(Role::Outlet)];
    let [inlet, outlet] = trails.each_ref().map(Arc::clone);
    let is_whole = || {
        let started = Initiator::start_on(inlet, run.inlet(), &mut random("e_i"));
        let (initiator, flight) = started.unwrap();
        let mut m1 = flight[PREAMBLE.len()..].to_vec();
        change(1, &mut m1);
        let responder = Responder::on(outlet, run.outlet());
        let (wait, mut m2) = responder.receive_m1(&m1, &mut random("e_r")).ok()?;
        change(2, &mut m2);
        let (unconfirmed, mut m3) = initiator.receive_m2(&m2).ok()?.accept().unwrap();
        change(3, &mut m3);
        let Claim::Verified(verified) = wait.receive_m3(&m3).ok()? else {
            panic!("an honest inlet refused");
        };
        let (_, mut record) = verified.accept(&descriptor()).unwrap();
        change(4, &mut record);
        unconfirmed.receive_descriptor(&mut record).ok().map(drop)
    };
    let is_whole = is_whole().is_some();
    (trails.map(|trail| names(&trail)), is_whole)
}

#[test]
fn a_trail_ends_with_the_last_step_or_the_one_that_failed() {
    const INLET: [&str; 5] = ["generate", "derive", "verify", "sign", "schedule"];
    const OUTLET: [&str; 5] = ["generate", "derive", "sign", "verify", "schedule"];
    let (undisturbed, is_whole) = steps(|_, _| ());
    assert_eq!(
        (undisturbed, is_whole),
        ([INLET.into(), OUTLET.into()], true)
    );

    // How far each side comes if a message is longer, has a key share that nobody can agree on, or another bit.
    let longer: fn(&mut Vec<u8>) = |bytes| bytes.push(0);
    let no_share_1: fn(&mut Vec<u8>) = |bytes| bytes[9..41].fill(0);
    let no_share_2: fn(&mut Vec<u8>) = |bytes| bytes[6..38].fill(0);
    let flipped: fn(&mut Vec<u8>) = |bytes| *bytes.last_mut().unwrap() ^= 1;
    let other_share_1: fn(&mut Vec<u8>) = |bytes| bytes[9] ^= 1;
    for (message, change, inlet, outlet) in [
        (1, longer, 1, 0),
        (1, no_share_1, 1, 2),
        (1, other_share_1, 3, 3),
        (2, longer, 1, 3),
        (2, no_share_2, 2, 3),
        (2, flipped, 3, 3),
        (3, longer, 5, 3),
        (3, flipped, 5, 4),
        (4, flipped, 5, 5),
    ] {
        let (came, is_whole) = steps(|number, bytes| {
            if number == message {
                change(bytes);
            }
        });
        let expected = [&INLET[..inlet], &OUTLET[..outlet]];
        assert_eq!(came, expected, "message {message}");
        assert!(!is_whole, "message {message}");
    }

    let mute = Trail::untimed(Role::Inlet);
    mute.time(Step::Sign, || ());
    assert_eq!(mute.steps(), []);
}
