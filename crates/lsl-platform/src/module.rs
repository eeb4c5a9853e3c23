//! The library that this code is part of, as the process has it loaded.

/// Keeps the library in the process for good: its threads would go on in code that is gone. On Unix the
/// library itself asks for that when it is linked.
#[cfg_attr(
    windows,
    expect(unsafe_code, reason = "std knows nothing of libraries")
)]
pub fn pin() {
    #[cfg(windows)]
    {
        use windows_sys::Win32::System::LibraryLoader::{
            GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_PIN,
            GetModuleHandleExW,
        };

        let flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN;
        let within: *const u16 = (pin as *const fn()).cast();
        let mut module = std::ptr::null_mut();
        // SAFETY: an address of this library in place of a name, and room for a handle, which needs no
        // closing.
        let done = unsafe { GetModuleHandleExW(flags, within, &raw mut module) };
        debug_assert_ne!(done, 0, "the library with this code is loaded");
    }
}
