//! The functions of the C ABI that are used, with the types of liblsl's headers. Knows nothing of
//! what they are used for. Spec: c-abi-symbols.

use std::ffi::{c_char, c_void};

use libloading::Library;

/// `lsl_streaminfo`, `lsl_outlet` and `lsl_inlet` alike.
pub(crate) type Handle = *mut c_void;

macro_rules! symbols {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)+) => {
        /// Addresses of the functions; valid as long as `library` is loaded.
        #[derive(Debug)]
        pub(crate) struct Symbols {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
            /// Never unloaded: its threads outlive every object (see `Lsl::load`).
            _library: std::mem::ManuallyDrop<Library>,
        }

        impl Symbols {
            /// Looks all of them up.
            #[expect(unsafe_code, reason = "a symbol has no type; the ABI is the promise")]
            pub(crate) fn find(library: Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $(
                        $name: {
                            // SAFETY: a library that exports this name exports liblsl's function,
                            // whose type is the one given: that is what `Lsl::load` asks of callers.
                            *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }?
                        },
                    )+
                    _library: std::mem::ManuallyDrop::new(library),
                })
            }
        }
    };
}

symbols! {
    lsl_library_version: fn() -> i32;
    lsl_local_clock: fn() -> f64;
    lsl_create_streaminfo:
        fn(*const c_char, *const c_char, i32, f64, i32, *const c_char) -> Handle;
    lsl_destroy_streaminfo: fn(Handle);
    lsl_create_outlet: fn(Handle, i32, i32) -> Handle;
    lsl_destroy_outlet: fn(Handle);
    lsl_have_consumers: fn(Handle) -> i32;
    lsl_wait_for_consumers: fn(Handle, f64) -> i32;
    lsl_push_sample_ftp: fn(Handle, *const f32, f64, i32) -> i32;
    lsl_resolve_byprop:
        fn(*mut Handle, u32, *const c_char, *const c_char, i32, f64) -> i32;
    lsl_create_inlet: fn(Handle, i32, i32, i32) -> Handle;
    lsl_destroy_inlet: fn(Handle);
    lsl_open_stream: fn(Handle, f64, *mut i32);
    lsl_pull_sample_f: fn(Handle, *mut f32, i32, f64, *mut i32) -> f64;
}
