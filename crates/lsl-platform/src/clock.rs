//! The clock that every LSL program on a host shares. Spec: lsl-protocol §5.3.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Seconds since boot, equal to liblsl's `lsl_local_clock` on the same host.
///
/// The origin belongs to the machine, not to the process, so that timestamps of two programs on one
/// host compare without any correction. Never blocks; safe from any thread.
#[expect(
    clippy::cast_precision_loss,
    reason = "seconds since boot and nanoseconds both fit 52 bits"
)]
pub fn local_clock() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Whole seconds and the remainder are added last, so that nanoseconds survive long uptimes.
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Wall clock time since 1970-01-01 UTC, for dates in logs and trust files; zero if the clock stands
/// before that. It jumps when somebody sets it: never use it to measure.
pub fn utc_now() -> Duration {
    let now = clock_gettime(ClockId::Realtime);
    match (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec)) {
        (Ok(secs), Ok(nanos)) => Duration::new(secs, nanos),
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::{local_clock, utc_now};

    #[test]
    fn the_wall_clock_is_past_the_day_this_was_written() {
        assert!(utc_now().as_secs() > 1_700_000_000);
    }

    #[test]
    fn never_goes_backwards() {
        let mut last = local_clock();
        for _ in 0..1000 {
            let now = local_clock();
            assert!(now >= last);
            last = now;
        }
    }
}
