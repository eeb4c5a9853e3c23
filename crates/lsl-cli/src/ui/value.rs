//! Writers of channel values: for people, as CSV cells and as JSON. Floats are written with the
//! fewest digits that read back as the same number.

use std::io::{self, Write};

use lsl_core::PullElement;

use lsl_platform::terminal::printable;

/// A type that samples are pulled as and that can be written.
pub(crate) trait Shown: PullElement + Clone + Default {
    /// Writes a JSON value. JSON has no infinities: these are the strings `"inf"`, `"-inf"`, `"nan"`.
    fn write_json(&self, out: &mut impl Write) -> io::Result<()>;
    /// Writes a cell of a comma separated file (RFC 4180).
    fn write_csv(&self, out: &mut impl Write) -> io::Result<()>;
    /// Writes text for people to read.
    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        self.write_csv(out)
    }
}

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl Shown for $type {
            fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
                write!(out, "{self}")
            }

            fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
                write!(out, "{self}")
            }
        }
    )+};
}

macro_rules! floats {
    ($($type:ty),+) => {$(
        impl Shown for $type {
            fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
                if self.is_finite() {
                    write!(out, "{self:?}")
                } else {
                    out.write_all(b"\"")?;
                    self.write_csv(out)?;
                    out.write_all(b"\"")
                }
            }

            fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
                if self.is_nan() {
                    out.write_all(b"nan")
                } else {
                    write!(out, "{self:?}")
                }
            }
        }
    )+};
}

integers!(i8, i16, i32, i64);
floats!(f32, f64);

/// Strings of any bytes; invalid UTF-8 shows as U+FFFD.
impl Shown for Vec<u8> {
    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(out, &String::from_utf8_lossy(self)).map_err(Into::into)
    }

    fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        write_csv_text(&String::from_utf8_lossy(self), out)
    }

    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        write!(out, "{}", printable(self, usize::MAX))
    }
}

/// Writes text as a cell of a comma separated file, quoted if need be.
pub(crate) fn write_csv_text(text: &str, out: &mut impl Write) -> io::Result<()> {
    if text.contains([',', '"', '\r', '\n']) {
        write!(out, "\"{}\"", text.replace('"', "\"\""))
    } else {
        write!(out, "{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: &impl Shown, json: &str, csv: &str, text: &str) {
        let mut buffers = [Vec::new(), Vec::new(), Vec::new()];
        let [a, b, c] = &mut buffers;
        value.write_json(a).unwrap();
        value.write_csv(b).unwrap();
        value.write_text(c).unwrap();
        let shown = buffers.map(|buffer| String::from_utf8(buffer).unwrap());
        assert_eq!(shown, [json, csv, text]);
        serde_json::from_str::<serde_json::Value>(json).expect("the expected text is JSON");
    }

    #[test]
    fn numbers() {
        check(&-128_i8, "-128", "-128", "-128");
        check(
            &i64::MIN,
            "-9223372036854775808",
            "-9223372036854775808",
            "-9223372036854775808",
        );
        check(&0.1_f32, "0.1", "0.1", "0.1");
        check(&0.1_f64, "0.1", "0.1", "0.1");
        check(&-0.0_f64, "-0.0", "-0.0", "-0.0");
        check(&1e300_f64, "1e300", "1e300", "1e300");
        check(&16_777_216_f32, "16777216.0", "16777216.0", "16777216.0");
        check(&f64::NAN, "\"nan\"", "nan", "nan");
        check(&-f64::NAN, "\"nan\"", "nan", "nan");
        check(&f32::INFINITY, "\"inf\"", "inf", "inf");
        check(&f32::NEG_INFINITY, "\"-inf\"", "-inf", "-inf");
    }

    #[test]
    fn strings() {
        let check = |value: &[u8], json, csv, text| check(&value.to_vec(), json, csv, text);
        check(b"", "\"\"", "", "");
        check(
            "ä\u{1b}[2J".as_bytes(),
            "\"ä\\u001b[2J\"",
            "ä\u{1b}[2J",
            "ä\\u{1b}[2J",
        );
        check(
            b"a,\"b\"\n",
            "\"a,\\\"b\\\"\\n\"",
            "\"a,\"\"b\"\"\n\"",
            "a,\"b\"\\n",
        );
        check(b"\xff!", "\"\u{fffd}!\"", "\u{fffd}!", r"\xff!");
    }
}
