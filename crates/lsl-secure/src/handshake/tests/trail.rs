//! A trail names the steps of either side in their order, and ends with the one that failed.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::handshake::{Step, TimedStep, Trail};

/// A clock that goes on by 10 µs with each look.
fn ticking() -> f64 {
    static TICKS: AtomicU32 = AtomicU32::new(0);
    f64::from(TICKS.fetch_add(1, Ordering::Relaxed)) * 1e-5
}

fn trail() -> Arc<Trail> {
    Arc::new(Trail::begin(0.0, Some(ticking)))
}

fn names(trail: &Trail) -> Vec<&'static str> {
    let steps = trail.steps();
    let is_timed = |timed: &TimedStep| timed.took_us >= 9;
    assert!(steps.iter().all(is_timed), "{steps:?}");
    assert!(steps.is_sorted_by_key(|timed| timed.after_us), "{steps:?}");
    steps.iter().map(|timed| timed.step.name()).collect()
}

#[test]
fn a_trail_ends_with_the_last_step_or_the_one_that_failed() {
    let run = &Run::named("chacha-only");
    let random = |key| Fixed::new(run.secret(key));
    let both = || {
        let (inlet, outlet) = (trail(), trail());
        let started = Initiator::start_on(Arc::clone(&inlet), run.inlet(), &mut random("e_i"));
        let (initiator, flight) = started.unwrap();
        let m1 = &flight[PREAMBLE.len()..];
        let responder = Responder::on(Arc::clone(&outlet), run.outlet());
        let (wait, m2) = responder.receive_m1(m1, &mut random("e_r")).unwrap();
        (inlet, outlet, initiator, wait, m2)
    };
    let (inlet, outlet, initiator, wait, m2) = both();
    let (_, m3) = initiator.receive_m2(&m2).unwrap().accept().unwrap();
    assert_eq!(
        names(&inlet),
        ["generate", "derive", "verify", "sign", "schedule"]
    );
    let Claim::Verified(verified) = wait.receive_m3(&m3).unwrap() else {
        panic!("an honest inlet refused");
    };
    verified.accept(&descriptor()).unwrap();
    assert_eq!(
        names(&outlet),
        ["generate", "derive", "sign", "verify", "schedule"]
    );

    let (inlet, outlet, initiator, wait, mut m2) = both();
    *m2.last_mut().unwrap() ^= 1;
    initiator.receive_m2(&m2).unwrap_err();
    assert_eq!(names(&inlet), ["generate", "derive", "verify"]);
    let mut changed = m3;
    *changed.last_mut().unwrap() ^= 1;
    assert!(wait.receive_m3(&changed).is_err());
    assert_eq!(names(&outlet), ["generate", "derive", "sign", "verify"]);

    let mute = Trail::default();
    mute.time(Step::Sign, || ());
    assert_eq!(mute.steps(), []);
}
