//! What a program asks of the system's saving of power.

/// Makes waits of this process end within so many milliseconds of their time, for good. Does nothing for 0,
/// and where they do anyway: everywhere but on Windows, whose default is 16.
#[cfg_attr(
    windows,
    expect(unsafe_code, reason = "std knows nothing of the resolution of timers")
)]
pub fn set_timer_resolution(millis: u32) {
    #[cfg(windows)]
    if millis > 0 {
        // SAFETY: takes a number; one that the system cannot do changes nothing.
        unsafe { windows_sys::Win32::Media::timeBeginPeriod(millis) };
    }
    #[cfg(not(windows))]
    let _ = millis;
}
