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

/// A round whose tags are wrong in this byte, and whether it leaks that on purpose.
#[derive(Debug, Clone, Copy)]
struct Forgery {
    wrong: usize,
    leaks: bool,
}

/// Times one refusal.
type Refusal<'a> = &'a mut dyn FnMut(Forgery) -> Result<u64>;

/// Measures every path, and each with a comparison beside it that ends early, or silence would prove
/// nothing; fails if a path leaks, or if that is not seen.
pub(crate) fn run() -> Result {
    let (inlet, outlet) = established(Suites::Both)?;
    let (mut prober, mut responder) = (inlet.time.into_prober(), outlet.time.into_responder());
    let record = |suites| {
        move |forgery: Forgery| {
            // A record that does not open ends its session.
            let (mut inlet, mut outlet) = established(suites)?;
            let mut record = Vec::new();
            outlet
                .sealer
                .seal_data(&[7; FRAME_BYTES], NOW, &mut record)?;
            break_tag(&mut record, forgery);
            timed(forgery, || {
                inlet.opener.receive(&mut record, NOW, |_| Ok(())).is_ok()
            })
        }
    };
    let paths: [(&str, usize, Refusal<'_>); 4] = [
        ("clock probe", 100_000, &mut |forgery| {
            let mut packet = prober.probe(NOW)?;
            break_tag(&mut packet, forgery);
            timed(forgery, || responder.answer(&packet, NOW, || NOW).is_some())
        }),
        (
            "record, ChaCha20-Poly1305",
            SESSIONS,
            &mut record(Suites::ChaCha20Only),
        ),
        ("record, AES-256-GCM", SESSIONS, &mut record(Suites::Both)),
        ("third message of the handshake", SESSIONS, &mut |forgery| {
            let (wait, _, mut third) = claimed(Suites::Both)?;
            break_tag(&mut third, forgery);
            timed(forgery, || wait.receive_m3(&third).is_ok())
        }),
    ];
    let (mut most, mut least) = (0.0_f64, f64::INFINITY);
    let mut problems = Vec::new();
    for (name, count, refusal) in paths {
        let leaky = smallest_t(count, true, refusal)?;
        let t = smallest_t(count, false, refusal)?;
        println!("{name}: |t| = {t:.1}, with a leak {leaky:.1}");
        if leaky < LIMIT {
            problems.push(format!("{name}: a leak would not be seen on this machine"));
        } else if t > LIMIT {
            problems.push(format!("{name}: the time tells of the tag"));
        }
        (most, least) = (most.max(t), least.min(leaky));
    }
    if !problems.is_empty() {
        return Err(problems.join("; ").into());
    }
    println!("nothing: t at most {most:.1} (limit {LIMIT}), with a leak at least {least:.1}");
    Ok(())
}

/// Sessions made for a round of a path that needs a new one each time.
const SESSIONS: usize = 20_000;

/// Bytes of a tag, at the end of all that is sealed.
const TAG: usize = 16;

fn break_tag(sealed: &mut [u8], forgery: Forgery) {
    let at = sealed.len() - TAG + forgery.wrong;
    sealed[at] ^= 1;
}

/// Nanoseconds of a refusal; it must be one.
#[expect(clippy::disallowed_methods, reason = "what is measured is no LSL time")]
fn timed(forgery: Forgery, accept: impl FnOnce() -> bool) -> Result<u64> {
    let tag = black_box([7_u8; TAG]);
    let mut forged = tag;
    break_tag(&mut forged, forgery);
    let begin = Instant::now();
    let accepted = accept();
    // Ends at the first difference, as memcmp may.
    let seems_same = forgery.leaks && tag.iter().zip(&forged).all(|(a, b)| black_box(a) == b);
    let took = begin.elapsed().as_nanos();
    if accepted || black_box(seems_same) {
        return Err("a forgery was accepted".into());
    }
    Ok(u64::try_from(took)?)
}

/// The smallest |t| of the rounds, each of `count` refusals of both classes together.
fn smallest_t(count: usize, leaks: bool, refusal: Refusal<'_>) -> Result<f64> {
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
            let wrong = if last { TAG - 1 } else { 0 };
            let took = refusal(Forgery { wrong, leaks })?;
            classes[usize::from(last)].push(took);
        }
        smallest = smallest.min(largest_t(&classes));
    }
    Ok(smallest)
}

/// The largest |t| of the fastest parts of both together: what is slow is the machine's doing more than the
/// code's, and how much of it is not known before.
fn largest_t(classes: &[Vec<u64>; 2]) -> f64 {
    let mut all = classes.concat();
    all.sort_unstable();
    let tenths = [2, 5, 9].map(|tenths| all.get(all.len() * tenths / 10));
    let limits = tenths.into_iter().flatten();
    limits
        .map(|most| welch_t(classes, *most).abs())
        .fold(0.0, f64::max)
}

/// Welch's t of the times up to `most`.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts, and nanoseconds of less than a second"
)]
fn welch_t(classes: &[Vec<u64>; 2], most: u64) -> f64 {
    let [first, last] = classes.each_ref().map(|class| {
        let kept = class.iter().filter(|took| **took <= most);
        let kept: Vec<f64> = kept.map(|took| *took as f64).collect();
        let count = kept.len() as f64;
        let mean = kept.iter().sum::<f64>() / count;
        let variance = kept.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    });
    (first.0 - last.0) / (first.1 + last.1).sqrt().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::largest_t;

    #[test]
    fn classes_that_differ_are_told_from_those_that_do_not() {
        let times = |offset: u64| {
            (0..1000_u64)
                .map(|n| 100 + n * 7919 % 13 + offset)
                .collect()
        };
        assert!(largest_t(&[times(0), times(0)]) < 0.1);
        assert!(largest_t(&[times(0), times(2)]) > 5.0);
    }
}
