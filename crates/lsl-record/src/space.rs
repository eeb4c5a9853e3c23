//! Room on the disk: how much the streams will need, how much there is, and when to raise an alarm.

use lsl_core::StreamInfo;

/// Bytes a second that streams will need, as far as they say; irregular ones need next to nothing, if
/// all is well.
pub(crate) fn estimate(streams: &[StreamInfo]) -> f64 {
    let of_stream = |info: &StreamInfo| {
        let value = info.channel_format().value_size().max(1);
        let sample = f64::from(info.channel_count()) * value as f64 + STAMP_BYTES;
        info.nominal_srate().max(0.0) * sample
    };
    streams.iter().map(of_stream).sum()
}

/// Reason to warn of a disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Alarm {
    /// Less is free than was asked for.
    BelowMinimum {
        /// Bytes that are free now.
        free: u64,
        /// Bytes that were asked for.
        min_free: u64,
    },
    /// It will be full within ten minutes.
    FullSoon {
        /// Bytes that are free now.
        free: u64,
        /// Seconds until it is full, at the rate of late.
        left_secs: f64,
    },
}

impl Alarm {
    /// Returns the alarm to raise, if any.
    pub(crate) fn of(free: u64, left_secs: Option<f64>, min_free: u64) -> Option<Self> {
        if free < min_free {
            return Some(Self::BelowMinimum { free, min_free });
        }
        let left_secs = left_secs.filter(|left| *left < ALARM_SECS)?;
        Some(Self::FullSoon { free, left_secs })
    }
}

/// Most timestamps of regular streams are one byte, some are nine.
const STAMP_BYTES: f64 = 9.0;
const ALARM_SECS: f64 = 600.0;

#[cfg(test)]
mod tests {
    use lsl_core::ChannelFormat;

    use super::*;

    #[test]
    fn estimates_follow_the_stream_infos() {
        let stream =
            |channels, rate, format| StreamInfo::new("n", "t", channels, rate, format, "").unwrap();
        let streams = [
            stream(64, 1000.0, ChannelFormat::Float32),
            stream(1, 0.0, ChannelFormat::String),
        ];
        assert!((estimate(&streams) - 265_000.0).abs() < 1e-6);
    }

    #[test]
    fn alarms_are_raised_in_time() {
        let of = |left_secs, min_free| Alarm::of(1_000_000, left_secs, min_free);
        assert_eq!(of(None, 0), None);
        assert_eq!(of(Some(601.0), 0), None);
        assert!(matches!(of(Some(599.0), 0), Some(Alarm::FullSoon { .. })));
        let below = of(None, 1_000_001);
        assert!(matches!(below, Some(Alarm::BelowMinimum { .. })));
    }
}
