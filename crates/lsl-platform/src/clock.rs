//! The clock that every LSL program on a host shares. Spec: lsl-protocol §5.3.

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

#[cfg(test)]
mod tests {
    use super::local_clock;

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
