//! Our own ends: `lsl-core` with a context per setup, so that v4 and v6, 1.10 and 1.00 stand side by
//! side in one process.

use std::sync::Arc;
use std::time::Duration;

use lsl_core::config::Config;
use lsl_core::secure::Security;
use lsl_core::{ChannelFormat, Context, Inlet, Outlet, Pushthrough, Selector, StreamInfo};

use crate::cell::{
    Announcement, Correction, Encryption, InletEnd, Outcome, OutletEnd, PATIENCE, Stamps,
};
use crate::lab::{Lab, Setup};
use crate::values::{Format, Values};

/// A context for a setup, configured by the very text the foreign peers get.
pub(crate) fn context(lab: &Lab, setup: Setup) -> Outcome<Context> {
    let config = Config::from_text(&setup.config()).map_err(text)?;
    let security = match setup.keys {
        Some(keys) => Security::from_file(&lab.keyring().file(keys)?).map_err(text)?,
        None => Security::off(Vec::new()).map_err(text)?,
    };
    Ok(Context::with_security(config, Arc::new(security)))
}

pub(crate) struct OurOutlet {
    /// `None` after a crash.
    outlet: Option<Outlet>,
    format: Format,
}

impl OurOutlet {
    pub(crate) fn open(context: &Context, stream: &Announcement) -> Outcome<Self> {
        let channels = u32::try_from(stream.channels).map_err(text)?;
        let format = channel_format(stream.format);
        let mut info = StreamInfo::new(
            stream.name.as_str(),
            stream.stream_type.as_str(),
            channels,
            stream.rate,
            format,
            stream.source_id.as_str(),
        )
        .map_err(text)?;
        for (name, value) in &stream.desc {
            info.desc_mut().set(name, value);
        }
        let outlet = Outlet::builder(info)
            .context(context)
            .synchronous(stream.synchronous)
            .open()
            .map_err(text)?;
        Ok(Self {
            outlet: Some(outlet),
            format: stream.format,
        })
    }

    /// How many connections it has ended for what they wanted.
    pub(crate) fn refused(&self) -> Outcome<u64> {
        Ok(self.outlet()?.stats().refused)
    }

    fn outlet(&self) -> Outcome<&Outlet> {
        self.outlet
            .as_ref()
            .ok_or_else(|| "the outlet has crashed".to_owned())
    }
}

/// Calls `$call` with the values as a slice of the format's own type.
macro_rules! with_slice {
    ($format:expr, $values:expr, |$slice:ident| $call:expr) => {
        match ($format, $values) {
            (Format::Text, Values::Texts(texts)) => {
                let $slice = texts.as_slice();
                $call
            }
            (Format::Float32, Values::Numbers(bytes)) => {
                let $slice = &numbers(bytes, f32::from_le_bytes)[..];
                $call
            }
            (Format::Double64, Values::Numbers(bytes)) => {
                let $slice = &numbers(bytes, f64::from_le_bytes)[..];
                $call
            }
            (Format::Int64, Values::Numbers(bytes)) => {
                let $slice = &numbers(bytes, i64::from_le_bytes)[..];
                $call
            }
            (Format::Int32, Values::Numbers(bytes)) => {
                let $slice = &numbers(bytes, i32::from_le_bytes)[..];
                $call
            }
            (Format::Int16, Values::Numbers(bytes)) => {
                let $slice = &numbers(bytes, i16::from_le_bytes)[..];
                $call
            }
            (Format::Int8, Values::Numbers(bytes)) => {
                let $slice = &numbers(bytes, i8::from_le_bytes)[..];
                $call
            }
            _ => Err("values of another format".to_owned()),
        }
    };
}

/// Runs `$call` with a zeroed `$room` of `$count` values of the format's own type and answers with
/// its result and what `$room` then holds.
macro_rules! with_room {
    ($format:expr, $count:expr, |$room:ident| $call:expr) => {
        match $format {
            Format::Text => {
                let mut $room = vec![Vec::new(); $count];
                $call.map(|got| (got, Values::Texts($room)))
            }
            Format::Float32 => {
                let mut $room = vec![0_f32; $count];
                $call.map(|got| (got, bytes($room.iter().map(|value| value.to_le_bytes()))))
            }
            Format::Double64 => {
                let mut $room = vec![0_f64; $count];
                $call.map(|got| (got, bytes($room.iter().map(|value| value.to_le_bytes()))))
            }
            Format::Int64 => {
                let mut $room = vec![0_i64; $count];
                $call.map(|got| (got, bytes($room.iter().map(|value| value.to_le_bytes()))))
            }
            Format::Int32 => {
                let mut $room = vec![0_i32; $count];
                $call.map(|got| (got, bytes($room.iter().map(|value| value.to_le_bytes()))))
            }
            Format::Int16 => {
                let mut $room = vec![0_i16; $count];
                $call.map(|got| (got, bytes($room.iter().map(|value| value.to_le_bytes()))))
            }
            Format::Int8 => {
                let mut $room = vec![0_i8; $count];
                $call.map(|got| (got, bytes($room.iter().map(|value| value.to_le_bytes()))))
            }
        }
    };
}

impl OutletEnd for OurOutlet {
    fn wait_for_consumers(&mut self) -> Outcome {
        let found = self.outlet()?.blocking().wait_for_consumers(PATIENCE);
        if found {
            Ok(())
        } else {
            Err("no consumer connected".to_owned())
        }
    }

    fn push(&mut self, sample: &Values, stamp: f64) -> Outcome {
        let outlet = self.outlet()?;
        with_slice!(self.format, sample, |values| outlet
            .push_at(values, stamp)
            .map_err(text))
    }

    fn push_chunk(&mut self, samples: &Values, stamps: &Stamps) -> Outcome {
        let outlet = self.outlet()?;
        with_slice!(self.format, samples, |values| match stamps {
            Stamps::Last(stamp) => outlet.push_chunk_at(values, *stamp).map_err(text),
            Stamps::Each(each) => outlet
                .push_chunk_with(values, lsl_core::Stamps::Each(each), Pushthrough::Flush)
                .map_err(text),
        })
    }

    fn crash(&mut self) {
        // The nearest a living process comes to it: sockets close, nobody is told.
        self.outlet = None;
    }
}

pub(crate) struct OurInlet {
    inlet: Inlet,
    format: Format,
    channels: usize,
}

impl OurInlet {
    /// Find the one stream for which the predicate holds and open an inlet on it.
    pub(crate) fn open(context: &Context, predicate: &str) -> Outcome<Self> {
        let info = &resolve(context, predicate)?;
        let format = Format::ALL
            .into_iter()
            .find(|format| channel_format(*format) == info.channel_format())
            .ok_or("a stream without format")?;
        let inlet = Inlet::builder(info)
            .context(context)
            .create()
            .map_err(text)?;
        inlet.blocking().open(PATIENCE).map_err(text)?;
        Ok(Self {
            inlet,
            format,
            channels: info.channel_count() as usize,
        })
    }
}

impl InletEnd for OurInlet {
    fn pull(&mut self) -> Outcome<(f64, Values)> {
        let inlet = self.inlet.blocking();
        let (stamp, values) = with_room!(self.format, self.channels, |room| inlet
            .pull(&mut room, PATIENCE))
        .map_err(text)?;
        Ok((stamp.ok_or("no sample came")?, values))
    }

    fn pull_chunk(&mut self, samples: usize) -> Outcome<(Vec<f64>, Values)> {
        let inlet = self.inlet.blocking();
        let mut stamps = vec![0.0; samples];
        let (got, values) = with_room!(self.format, samples * self.channels, |room| {
            inlet.pull_chunk(&mut room, Some(&mut stamps), PATIENCE)
        })
        .map_err(text)?;
        if got == samples {
            Ok((stamps, values))
        } else {
            Err(format!("{got} of {samples} samples came"))
        }
    }

    fn full_xml(&mut self) -> Outcome<Vec<u8>> {
        Ok(self
            .inlet
            .blocking()
            .full_info(PATIENCE)
            .map_err(text)?
            .to_xml())
    }

    fn time_correction(&mut self) -> Outcome<Correction> {
        let correction = self
            .inlet
            .blocking()
            .time_correction(PATIENCE)
            .map_err(text)?;
        Ok(Correction {
            offset_secs: correction.offset_secs,
            uncertainty_secs: Some(correction.uncertainty_secs),
        })
    }

    fn encryption(&mut self) -> Outcome<Option<Encryption>> {
        Ok(self.inlet.encryption().map(|found| Encryption {
            peer_name: found.peer_name,
            fingerprint: found.fingerprint,
            cipher: found.suite.to_string(),
        }))
    }
}

/// The one stream for which the predicate holds.
pub(crate) fn resolve(context: &Context, predicate: &str) -> Outcome<StreamInfo> {
    let selector = Selector::predicate(predicate).map_err(text)?;
    let mut infos = context
        .resolve_blocking(&selector, 1, PATIENCE)
        .map_err(text)?;
    match infos.pop() {
        Some(info) if infos.is_empty() => Ok(info),
        Some(_) => Err(format!("{} streams resolved instead of 1", infos.len() + 1)),
        None => Err("no stream resolved".to_owned()),
    }
}

/// The source ids of the streams for which the predicate holds, as soon as there are `minimum`.
pub(crate) fn find(
    context: &Context,
    predicate: &str,
    minimum: usize,
    timeout: Duration,
) -> Outcome<Vec<String>> {
    let selector = Selector::predicate(predicate).map_err(text)?;
    let infos = context
        .resolve_blocking(&selector, minimum, timeout)
        .map_err(text)?;
    Ok(infos
        .iter()
        .map(|info| info.source_id().into_owned())
        .collect())
}

fn channel_format(format: Format) -> ChannelFormat {
    match format {
        Format::Float32 => ChannelFormat::Float32,
        Format::Double64 => ChannelFormat::Double64,
        Format::Text => ChannelFormat::String,
        Format::Int32 => ChannelFormat::Int32,
        Format::Int16 => ChannelFormat::Int16,
        Format::Int8 => ChannelFormat::Int8,
        Format::Int64 => ChannelFormat::Int64,
    }
}

fn numbers<T, const N: usize>(bytes: &[u8], from: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes
        .chunks_exact(N)
        .map(|value| from(value.try_into().expect("chunks of N bytes")))
        .collect()
}

fn bytes<const N: usize>(values: impl Iterator<Item = [u8; N]>) -> Values {
    Values::Numbers(values.flatten().collect())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
