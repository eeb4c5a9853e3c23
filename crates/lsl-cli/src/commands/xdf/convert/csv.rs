//! Tables as comma separated text (RFC 4180).

use std::fs::File;
use std::io::{self, BufWriter, Write};

use lsl_xdf::Values;

use super::{Labels, Sheet};
use crate::failure::Outcome;
use crate::ui::value::{Shown, write_csv_text};

/// Table written as comma separated text.
pub(super) struct Csv {
    out: BufWriter<File>,
    channels: usize,
}

impl Csv {
    pub(super) fn new(file: File, labels: &Labels) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(1 << 18, file);
        out.write_all(b"timestamp,timestamp_corrected")?;
        for label in labels.iter() {
            out.write_all(b",")?;
            write_csv_text(&label, &mut out)?;
        }
        out.write_all(b"\n")?;
        Ok(Self {
            out,
            channels: labels.channels,
        })
    }

    fn rows<T: Shown>(&mut self, stamps: &[f64], corrected: &[f64], values: &[T]) -> Outcome {
        let out = &mut self.out;
        let mut values = values.iter();
        for (stamp, corrected) in stamps.iter().zip(corrected) {
            stamp.write_csv(out)?;
            out.write_all(b",")?;
            corrected.write_csv(out)?;
            for value in values.by_ref().take(self.channels) {
                out.write_all(b",")?;
                value.write_csv(out)?;
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

impl Sheet for Csv {
    fn write(&mut self, stamps: &[f64], corrected: &[f64], values: &Values) -> Outcome {
        match values {
            Values::Float32(list) => self.rows(stamps, corrected, list),
            Values::Double64(list) => self.rows(stamps, corrected, list),
            Values::Int32(list) => self.rows(stamps, corrected, list),
            Values::Int16(list) => self.rows(stamps, corrected, list),
            Values::Int8(list) => self.rows(stamps, corrected, list),
            Values::Int64(list) => self.rows(stamps, corrected, list),
            Values::String(list) => {
                let texts: Vec<Vec<u8>> = list.iter().map(<[u8]>::to_vec).collect();
                self.rows(stamps, corrected, &texts)
            }
        }
    }

    fn finish(&mut self) -> Outcome {
        Ok(self.out.flush()?)
    }
}
