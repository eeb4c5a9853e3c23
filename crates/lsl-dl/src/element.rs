//! The types of values that streams carry, and their functions in the library.

use crate::symbols::{Symbols, Typed};

/// A number that a stream carries. All but strings.
pub trait Element: Copy + Default + Send + Sync + sealed::Sealed + 'static {
    /// The format in the words of LSL, such as `float32`.
    const FORMAT: Format;
}

/// What one value of a stream is; the codes of the ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Format {
    /// 32-bit float.
    Float32 = 1,
    /// 64-bit float.
    Double64 = 2,
    /// 32-bit signed.
    Int32 = 4,
    /// 16-bit signed.
    Int16 = 5,
    /// 8-bit signed.
    Int8 = 6,
    /// 64-bit signed.
    Int64 = 7,
}

impl Format {
    /// The format of a code of the ABI; none for strings and what is no format.
    pub fn from_code(code: i32) -> Option<Self> {
        let all = [
            Self::Float32,
            Self::Double64,
            Self::Int32,
            Self::Int16,
            Self::Int8,
            Self::Int64,
        ];
        all.into_iter().find(|format| *format as i32 == code)
    }
}

pub(crate) mod sealed {
    use super::{Symbols, Typed};

    /// Keeps [`Element`](super::Element) to the types for which the library has functions.
    #[expect(unnameable_types, reason = "that is the point of sealing")]
    pub trait Sealed: Sized {
        /// Its functions.
        #[expect(private_interfaces, reason = "callers outside cannot name this trait")]
        fn typed(symbols: &Symbols) -> &Typed<Self>;
    }
}

macro_rules! elements {
    ($($field:ident: $value:ty, $format:ident;)+) => {$(
        impl Element for $value {
            const FORMAT: Format = Format::$format;
        }

        impl sealed::Sealed for $value {
            #[expect(private_interfaces, reason = "callers outside cannot name this trait")]
            fn typed(symbols: &Symbols) -> &Typed<Self> {
                &symbols.$field
            }
        }
    )+};
}

elements! {
    int8: i8, Int8;
    int16: i16, Int16;
    int32: i32, Int32;
    int64: i64, Int64;
    float32: f32, Float32;
    double64: f64, Double64;
}
