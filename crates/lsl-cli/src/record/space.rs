//! Room on the disk: how much the streams will need, how much there is, and when to raise an alarm.

use std::path::Path;

use lsl_core::StreamInfo;

use super::display::size;

/// Bytes a second that streams will need, as far as they say; irregular ones need next to nothing, if
/// all is well.
pub(super) fn estimate(streams: &[StreamInfo]) -> f64 {
    let of_stream = |info: &StreamInfo| {
        let value = info.channel_format().value_size().max(1);
        let sample = f64::from(info.channel_count()) * value as f64 + STAMP_BYTES;
        info.nominal_srate().max(0.0) * sample
    };
    streams.iter().map(of_stream).sum()
}

/// Bytes that are free where a file is, or will be; `None` if nobody knows.
#[cfg(unix)]
pub(super) fn free(path: &Path) -> Option<u64> {
    // The folder may not be there yet.
    let place = path.ancestors().skip(1).find_map(|folder| {
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        rustix::fs::statvfs(folder).ok()
    })?;
    Some(place.f_bavail.saturating_mul(place.f_frsize))
}

#[cfg(not(unix))]
pub(super) fn free(_path: &Path) -> Option<u64> {
    None
}

/// What to say about the room on the disk, if it is worth a line.
pub(super) fn alarm(free: u64, left_secs: Option<f64>, min_free: u64) -> Option<String> {
    if free < min_free {
        return Some(format!(
            "only {} free, less than the {} of --min-free",
            size(free),
            size(min_free)
        ));
    }
    let left = left_secs.filter(|left| *left < ALARM_SECS)?;
    Some(format!(
        "the disk will be full in {:.0} min ({} free)",
        (left / 60.0).floor(),
        size(free)
    ))
}

/// Reads a number of bytes: `500M`, `2G`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "T" | "TB" => 1_000_000_000_000,
        _ => return Err("K, M, G or T may follow the number".into()),
    };
    let number: u64 = digits
        .trim()
        .parse()
        .map_err(|_| "not a number of bytes".to_owned())?;
    Ok(number.saturating_mul(unit))
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
        assert_eq!(alarm(1_000_000, None, 0), None);
        assert_eq!(alarm(1_000_000, Some(601.0), 0), None);
        assert!(alarm(1_000_000, Some(599.0), 0).unwrap().contains("9 min"));
        assert!(alarm(5, None, 6).unwrap().contains("--min-free"));
    }

    #[test]
    fn numbers_of_bytes() {
        assert_eq!(bytes("500M"), Ok(500_000_000));
        assert_eq!(bytes("12"), Ok(12));
        assert_eq!(bytes("2 GB"), Ok(2_000_000_000));
        assert!(bytes("2X").is_err());
        assert!(bytes("G").is_err());
    }
}
