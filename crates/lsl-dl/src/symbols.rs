//! Functions of the C ABI that are used, with the types of liblsl's headers. Knows nothing of their use.
//! Spec: c-abi-symbols.

use std::ffi::{c_char, c_ulong, c_void};

use libloading::Library;

/// Object of the library: a `lsl_streaminfo`, `lsl_outlet` or `lsl_inlet`.
pub(crate) type Handle = *mut c_void;

/// Looks up a function of the library by its name, which ends with NUL.
#[expect(unsafe_code, reason = "a symbol has no type; the ABI is the promise")]
fn find<T: Copy>(library: &Library, name: &str) -> Result<T, libloading::Error> {
    // SAFETY: a library that exports this name exports liblsl's function, whose type is the one
    // that the callers below give: that is what `Lsl::load` asks of its callers.
    unsafe { library.get::<T>(name.as_bytes()) }.map(|symbol| *symbol)
}

macro_rules! symbols {
    (
        required { $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)+ }
        optional { $($extra:ident: fn($($extra_argument:ty),*) -> $extra_result:ty;)+ }
        typed { $($field:ident: $value:ty, $letter:literal;)+ }
    ) => {
        /// Addresses of the library's functions, valid while it is loaded.
        #[derive(Debug)]
        pub(crate) struct Symbols {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
            // Missing in some versions of liblsl; `lslx_` functions are in our library alone.
            $(pub(crate) $extra: Option<unsafe extern "C" fn($($extra_argument),*) -> $extra_result>,)+
            $(pub(crate) $field: Typed<$value>,)+
            /// Never unloaded: its threads outlive every object (see `Lsl::load`).
            _library: std::mem::ManuallyDrop<Library>,
        }

        impl Symbols {
            /// Looks up all functions. Only the optional ones may be missing.
            pub(crate) fn find(library: Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $($name: find(&library, concat!(stringify!($name), "\0"))?,)+
                    $($extra: find(&library, concat!(stringify!($extra), "\0")).ok(),)+
                    $($field: Typed {
                        push_sample: find(&library, concat!("lsl_push_sample_", $letter, "tp\0"))?,
                        push_chunk: find(&library, concat!("lsl_push_chunk_", $letter, "tp\0"))?,
                        pull_sample: find(&library, concat!("lsl_pull_sample_", $letter, "\0"))?,
                        pull_chunk: find(&library, concat!("lsl_pull_chunk_", $letter, "\0"))?,
                    },)+
                    _library: std::mem::ManuallyDrop::new(library),
                })
            }
        }
    };
}

/// Functions that exist once for each type of value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Typed<T> {
    pub(crate) push_sample: unsafe extern "C" fn(Handle, *const T, f64, i32) -> i32,
    pub(crate) push_chunk: unsafe extern "C" fn(Handle, *const T, c_ulong, f64, i32) -> i32,
    pub(crate) pull_sample: unsafe extern "C" fn(Handle, *mut T, i32, f64, *mut i32) -> f64,
    pub(crate) pull_chunk:
        unsafe extern "C" fn(Handle, *mut T, *mut f64, c_ulong, c_ulong, f64, *mut i32) -> c_ulong,
}

symbols! {
    required {
        lsl_library_version: fn() -> i32;
        lsl_local_clock: fn() -> f64;
        lsl_destroy_string: fn(*mut c_char);
        lsl_create_streaminfo:
            fn(*const c_char, *const c_char, i32, f64, i32, *const c_char) -> Handle;
        lsl_destroy_streaminfo: fn(Handle);
        lsl_get_xml: fn(Handle) -> *mut c_char;
        lsl_get_name: fn(Handle) -> *const c_char;
        lsl_get_uid: fn(Handle) -> *const c_char;
        lsl_get_channel_count: fn(Handle) -> i32;
        lsl_get_channel_format: fn(Handle) -> i32;
        lsl_create_outlet: fn(Handle, i32, i32) -> Handle;
        lsl_destroy_outlet: fn(Handle);
        lsl_have_consumers: fn(Handle) -> i32;
        lsl_wait_for_consumers: fn(Handle, f64) -> i32;
        lsl_resolve_all: fn(*mut Handle, u32, f64) -> i32;
        lsl_resolve_byprop:
            fn(*mut Handle, u32, *const c_char, *const c_char, i32, f64) -> i32;
        lsl_create_inlet: fn(Handle, i32, i32, i32) -> Handle;
        lsl_destroy_inlet: fn(Handle);
        lsl_open_stream: fn(Handle, f64, *mut i32);
        lsl_get_fullinfo: fn(Handle, f64, *mut i32) -> Handle;
        lsl_time_correction: fn(Handle, f64, *mut i32) -> f64;
        lsl_samples_available: fn(Handle) -> u32;
    }
    optional {
        lsl_library_info: fn() -> *const c_char;
        lsl_last_error: fn() -> *const c_char;
        lslx_is_encrypted: fn(Handle) -> i32;
        lslx_last_security_error: fn(Handle) -> *mut c_char;
    }
    typed {
        int8: i8, "c";
        int16: i16, "s";
        int32: i32, "i";
        int64: i64, "l";
        float32: f32, "f";
        double64: f64, "d";
    }
}
