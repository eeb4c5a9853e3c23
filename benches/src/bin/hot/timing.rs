//! Whether the time of refusing what is not authentic tells how much of it was right, as dudect asks
//! (Reparaz, Balasch, Verbauwhede 2017): two classes of input in random order, Welch's t-test between their
//! times. A tag wrong in its first byte against one wrong in its last, on each path that an attacker reaches.
//!
//! Why no crate for it: `dudect-bencher` would bring a command line and random numbers of its own for what
//! are 40 lines here, and has no place for the control.

use std::hint::black_box;
use std::time::Instant;

use lsl_core::secure::Suites;

use crate::Result;
use crate::sealing::{FRAME_BYTES, NOW, claimed, established};

/// Beyond this, times of the two classes differ; chance alone rarely reaches half of it.
const LIMIT: f64 = 5.0;

/// A leak shows in every round; what else the machine does, hardly in all.
const ROUNDS: usize = 3;

/// Times one refusal of a tag that is wrong in this byte, from its first to its last.
type Refusal<'a> = &'a mut dyn FnMut(usize) -> Result<u64>;

/// Measures every path, and first something that does leak; fails if a path does, or that does not.
pub(crate) fn run() -> Result {
    let mac = [7_u8; TAG];
    let control = smallest_t(200_000, &mut |wrong| {
        let forged = forged(mac, wrong);
        timed(|| {
            // Ends at the first difference, as memcmp may.
            let same = mac.iter().zip(&forged).all(|(a, b)| black_box(a) == b);
            Ok(black_box(same))
        })
    })?;
    println!("control, a comparison that ends early: |t| = {control:.1}");
    if control < LIMIT {
        return Err(
            format!("nothing can be measured here: the control has |t| = {control:.1}").into(),
        );
    }

    let (inlet, outlet) = established(Suites::Both)?;
    let (mut prober, mut responder) = (inlet.time.into_prober(), outlet.time.into_responder());
    let mut paths = vec![(
        "clock probe",
        smallest_t(100_000, &mut |wrong| {
            let packet = forged(prober.probe(NOW)?, wrong);
            timed(|| Ok(responder.answer(&packet, NOW, || NOW).is_some()))
        })?,
    )];
    for (name, suites) in [
        ("record, ChaCha20-Poly1305", Suites::ChaCha20Only),
        ("record, AES-256-GCM", Suites::Both),
    ] {
        let t = smallest_t(SESSIONS, &mut |wrong| {
            // A record that does not open ends its session.
            let (mut inlet, mut outlet) = established(suites)?;
            let mut record = Vec::new();
            outlet
                .sealer
                .seal_data(&[7; FRAME_BYTES], NOW, &mut record)?;
            break_tag(&mut record, wrong);
            timed(|| Ok(inlet.opener.receive(&mut record, NOW, |_| Ok(())).is_ok()))
        })?;
        paths.push((name, t));
    }
    let t = smallest_t(SESSIONS, &mut |wrong| {
        let (wait, _, mut third) = claimed(Suites::Both)?;
        break_tag(&mut third, wrong);
        timed(|| Ok(wait.receive_m3(&third).is_ok()))
    })?;
    paths.push(("third message of the handshake", t));

    for (name, t) in &paths {
        println!("{name}: |t| = {t:.1}");
    }
    let leaks: Vec<&str> = paths
        .iter()
        .filter(|(_, t)| *t > LIMIT)
        .map(|(name, _)| *name)
        .collect();
    if !leaks.is_empty() {
        return Err(format!("the time tells of the tag: {}", leaks.join(", ")).into());
    }
    let most = paths.iter().map(|(_, t)| *t).fold(0.0, f64::max);
    println!(
        "nothing: |t| at most {most:.1} on {} paths (limit {LIMIT}), {control:.0} where something leaks",
        paths.len()
    );
    Ok(())
}

/// Sessions made for a round of a path that needs a new one each time.
const SESSIONS: usize = 4_000;

/// Bytes of a tag, at the end of all that is sealed.
const TAG: usize = 16;

fn break_tag(sealed: &mut [u8], wrong: usize) {
    let at = sealed.len() - TAG + wrong;
    sealed[at] ^= 1;
}

fn forged<const N: usize>(mut sealed: [u8; N], wrong: usize) -> [u8; N] {
    break_tag(&mut sealed, wrong);
    sealed
}

/// Nanoseconds of a refusal; it must be one.
#[expect(clippy::disallowed_methods, reason = "what is measured is no LSL time")]
fn timed(accept: impl FnOnce() -> Result<bool>) -> Result<u64> {
    let begin = Instant::now();
    let accepted = accept();
    let took = begin.elapsed().as_nanos();
    if accepted? {
        return Err("a forgery was accepted".into());
    }
    Ok(u64::try_from(took)?)
}

/// The smallest |t| of the rounds, each of `count` refusals of both classes together.
fn smallest_t(count: usize, refusal: Refusal<'_>) -> Result<f64> {
    let mut smallest = f64::INFINITY;
    // Any order that the processor cannot guess (xorshift64).
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..ROUNDS {
        let mut classes = [Vec::new(), Vec::new()];
        for _ in 0..count {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let last = state & 1 == 1;
            let took = refusal(if last { TAG - 1 } else { 0 })?;
            classes[usize::from(last)].push(took);
        }
        smallest = smallest.min(welch_t(&classes).abs());
    }
    Ok(smallest)
}

/// Welch's t without the slowest tenth of both together, which is the machine's and not the code's.
fn welch_t(classes: &[Vec<u64>; 2]) -> f64 {
    let mut all = classes.concat();
    all.sort_unstable();
    let most = all.get(all.len() * 9 / 10).copied().unwrap_or_default();
    let [first, last] = classes.each_ref().map(|class| {
        #[expect(
            clippy::cast_precision_loss,
            reason = "nanoseconds below a second, and counts"
        )]
        let kept: Vec<f64> = class
            .iter()
            .filter(|took| **took <= most)
            .map(|took| *took as f64)
            .collect();
        #[expect(clippy::cast_precision_loss, reason = "a count of measurements")]
        let count = kept.len() as f64;
        let mean = kept.iter().sum::<f64>() / count;
        let variance = kept.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    });
    (first.0 - last.0) / (first.1 + last.1).sqrt().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::welch_t;

    #[test]
    fn classes_that_differ_are_told_from_those_that_do_not() {
        let times = |offset: u64| {
            (0..1000_u64)
                .map(|n| 100 + n * 7919 % 13 + offset)
                .collect()
        };
        assert!(welch_t(&[times(0), times(0)]).abs() < 0.1);
        assert!(welch_t(&[times(0), times(2)]).abs() > 5.0);
    }
}
