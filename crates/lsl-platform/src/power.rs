//! What a program asks of the system's saving of power.

#[cfg(windows)]
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes waits of this process end within so many milliseconds of their time, for good. Does nothing for 0,
/// where a finer one was asked for before, and where they do anyway: everywhere but on Windows, whose default
/// is 16.
#[cfg_attr(
    windows,
    expect(unsafe_code, reason = "std knows nothing of the resolution of timers")
)]
pub fn set_timer_resolution(millis: u32) {
    #[cfg(windows)]
    if millis > 0 && FINEST.fetch_min(millis, Ordering::Relaxed) > millis {
        // SAFETY: takes a number; one that the system cannot do changes nothing.
        unsafe { windows_sys::Win32::Media::timeBeginPeriod(millis) };
    }
    #[cfg(not(windows))]
    let _ = millis;
}

/// Keeps the machine awake while this thread lives, and the resolution of timers while the process does: for
/// programs that stream for hours. Does nothing but on Windows.
#[cfg_attr(
    windows,
    expect(unsafe_code, reason = "std knows nothing of the saving of power")
)]
pub fn stay_awake() {
    #[cfg(windows)]
    {
        use windows_sys::Win32::System::{Power, Threading};

        let throttling = Threading::PROCESS_POWER_THROTTLING_STATE {
            Version: Threading::PROCESS_POWER_THROTTLING_CURRENT_VERSION,
            ControlMask: Threading::PROCESS_POWER_THROTTLING_IGNORE_TIMER_RESOLUTION,
            StateMask: 0,
        };
        // SAFETY: takes flags. Nothing is worse than before if it fails.
        unsafe { Power::SetThreadExecutionState(Power::ES_CONTINUOUS | Power::ES_SYSTEM_REQUIRED) };
        // SAFETY: takes nothing; what it gives stands for this process and needs no closing.
        let this = unsafe { Threading::GetCurrentProcess() };
        // SAFETY: the system reads one structure of this kind and size; older systems refuse it.
        unsafe {
            Threading::SetProcessInformation(
                this,
                Threading::ProcessPowerThrottling,
                (&raw const throttling).cast(),
                crate::disk::bytes_of::<Threading::PROCESS_POWER_THROTTLING_STATE>(),
            )
        };
    }
}

/// What was asked for, in milliseconds.
#[cfg(windows)]
static FINEST: AtomicU32 = AtomicU32::new(u32::MAX);
