//! The few facts lsl-core asks of the operating system.
#![forbid(unsafe_code)]

pub mod clock {
    //! The clock that every LSL program on a host shares. Spec: lsl-protocol §5.3.

    use rustix::time::{ClockId, clock_gettime};

    /// Seconds since boot, equal to liblsl's `lsl_local_clock` on the same host.
    pub fn local_clock() -> f64 {
        let now = clock_gettime(ClockId::Monotonic);
        // Whole seconds and the remainder are added last, so that nanoseconds survive long uptimes.
        now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
    }
}
