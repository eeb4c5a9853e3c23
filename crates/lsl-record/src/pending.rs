//! Samples between an inlet and the writer, and the types of values that are recorded.

use lsl_core::PullElement;
use lsl_core::{Error, Inlet, local_clock};
use lsl_xdf::{Strings, Values};

/// Samples on their way from the inlet to the writer.
pub(crate) struct Pending<T> {
    channels: usize,
    pub(crate) stamps: Vec<f64>,
    values: Vec<T>,
    since: f64,
}

impl<T: Recorded> Pending<T> {
    pub(crate) fn new(channels: usize) -> Self {
        Self {
            channels,
            stamps: Vec::new(),
            values: Vec::new(),
            since: 0.0,
        }
    }

    /// Returns the samples that still fit into a chunk.
    pub(crate) fn room(&self) -> usize {
        let bytes = self.channels * T::BYTES + size_of::<f64>();
        (CHUNK_BYTES / bytes)
            .max(1)
            .saturating_sub(self.stamps.len())
    }

    pub(crate) fn is_due(&self, now: f64) -> bool {
        !self.stamps.is_empty() && now - self.since >= CHUNK_SECS
    }

    /// Pulls at most so many samples; pulled samples stay in spite of an error.
    pub(crate) fn pull(&mut self, inlet: &Inlet, count: usize) -> Result<(), Error> {
        let before = self.stamps.len();
        if before == 0 {
            self.since = local_clock();
        }
        self.stamps.resize(before + count, 0.0);
        let len = (before + count) * self.channels;
        self.values.resize(len, T::default());
        let values = &mut self.values[before * self.channels..];
        let stamps = &mut self.stamps[before..];
        let pulled = inlet.try_pull_chunk(values, Some(stamps));
        let got = *pulled.as_ref().unwrap_or(&0);
        self.stamps.truncate(before + got);
        self.values.truncate((before + got) * self.channels);
        pulled.map(drop)
    }

    /// Keeps of the samples from this one on those with such a timestamp.
    pub(crate) fn retain_from(&mut self, from: usize, is_wanted: impl Fn(f64) -> bool) {
        let mut kept = from;
        for at in from..self.stamps.len() {
            if !is_wanted(self.stamps[at]) {
                continue;
            }
            if kept < at {
                self.stamps.swap(kept, at);
                for channel in 0..self.channels {
                    (self.values)
                        .swap(kept * self.channels + channel, at * self.channels + channel);
                }
            }
            kept += 1;
        }
        self.stamps.truncate(kept);
        self.values.truncate(kept * self.channels);
    }

    pub(crate) fn empty(&mut self) -> Option<(Vec<f64>, Vec<T>)> {
        if self.stamps.is_empty() {
            return None;
        }
        let stamps = std::mem::take(&mut self.stamps);
        Some((stamps, std::mem::take(&mut self.values)))
    }

    pub(crate) fn put_back(&mut self, stamps: Vec<f64>, values: Values) {
        if let Some(values) = T::unpack(values) {
            self.stamps = stamps;
            self.values = values;
        }
    }
}

/// A type of values that is recorded.
pub(crate) trait Recorded: PullElement + Clone + Default + Send + 'static {
    /// Approximate bytes of one value in memory.
    const BYTES: usize;

    fn bytes(&self) -> usize {
        Self::BYTES
    }

    fn pack(values: Vec<Self>) -> Values;

    fn unpack(values: Values) -> Option<Vec<Self>>;
}

macro_rules! numbers {
    ($($type:ty => $variant:ident,)*) => {$(
        impl Recorded for $type {
            const BYTES: usize = size_of::<Self>();

            fn pack(values: Vec<Self>) -> Values {
                values.into()
            }

            fn unpack(values: Values) -> Option<Vec<Self>> {
                match values {
                    Values::$variant(values) => Some(values),
                    _ => None,
                }
            }
        }
    )*};
}

numbers! {
    f32 => Float32,
    f64 => Double64,
    i32 => Int32,
    i16 => Int16,
    i8 => Int8,
    i64 => Int64,
}

/// Texts may hold any bytes.
impl Recorded for Vec<u8> {
    const BYTES: usize = 512;

    fn bytes(&self) -> usize {
        self.len() + size_of::<usize>()
    }

    fn pack(values: Vec<Self>) -> Values {
        values.iter().collect::<Strings>().into()
    }

    fn unpack(values: Values) -> Option<Vec<Self>> {
        match values {
            Values::String(strings) => Some(strings.iter().map(<[u8]>::to_vec).collect()),
            _ => None,
        }
    }
}

/// A piece is handed over after this time or at this size.
const CHUNK_SECS: f64 = 0.5;
const CHUNK_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stamped_after_the_end_goes_and_the_rest_keeps_its_values() {
        let mut pending = Pending::<i32>::new(2);
        pending.stamps = vec![9.0, 1.0, 5.0, 2.0, 3.0, 7.0];
        pending.values = vec![90, 91, 10, 11, 50, 51, 20, 21, 30, 31, 70, 71];
        pending.retain_from(1, |stamp| stamp <= 3.0);
        assert_eq!(pending.stamps, [9.0, 1.0, 2.0, 3.0]);
        assert_eq!(pending.values, [90, 91, 10, 11, 20, 21, 30, 31]);
        pending.retain_from(0, |_| false);
        assert!(pending.empty().is_none() && pending.values.is_empty());
    }
}
