//! Types of the values in streams, and their functions in the library.

use crate::symbols::{Symbols, Typed};

/// Numeric type of a stream's values: every type of LSL except strings.
pub trait Element: Copy + Default + Send + Sync + sealed::Sealed + 'static {
    /// Format of streams that carry this type.
    const FORMAT: Format;
}

/// Format of a stream's values, with the codes of the ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Format {
    /// `cft_float32`: float of 32 bits.
    Float32 = 1,
    /// `cft_double64`: float of 64 bits.
    Double64 = 2,
    /// `cft_int32`: signed integer of 32 bits.
    Int32 = 4,
    /// `cft_int16`: signed integer of 16 bits.
    Int16 = 5,
    /// `cft_int8`: signed integer of 8 bits.
    Int8 = 6,
    /// `cft_int64`: signed integer of 64 bits.
    Int64 = 7,
}

impl Format {
    /// Returns the format of an ABI code; `None` for strings and unknown codes.
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

    /// Restricts [`Element`](super::Element) to the types for which the library has functions.
    #[expect(unnameable_types, reason = "that is the point of sealing")]
    pub trait Sealed: Sized {
        /// Returns the library's functions for this type.
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
