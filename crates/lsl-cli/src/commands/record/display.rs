//! Shows the state of a recording: a table redrawn in place on a terminal, a line of JSON a second
//! elsewhere.

use std::io;

use lsl_core::local_clock;
use lsl_platform::terminal;
use lsl_record::{Alarm, Status, StreamState, StreamStatus};
use serde::Serialize;

use super::messages;
use super::screen::{Piece, Screen};
use crate::ui::table::{Align, Table};
use crate::ui::text::{age, count, printable};

/// Shows the state of a recording while it goes on.
#[derive(Debug)]
pub(super) struct Display {
    is_live: bool,
    screen: Screen,
    /// Whether the bell has rung for the trouble of now.
    has_rung: bool,
    next: f64,
}

/// State of a recording as one line of JSON.
#[derive(Debug, Serialize)]
pub(super) struct StatusLine {
    event: &'static str,
    /// Seconds since the recording began.
    secs: f64,
    /// Paths; bytes that are not Unicode become replacement characters.
    files: Vec<String>,
    bytes: u64,
    synced_bytes: u64,
    bytes_per_sec: f64,
    waiting_bytes: usize,
    free_bytes: Option<u64>,
    /// Seconds until the disk is full at this rate.
    left_secs: Option<f64>,
    unwritten_samples: u64,
    trouble: Option<String>,
    awaited: Vec<String>,
    streams: Vec<StreamRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u8>,
}

/// One stream of the recording, as JSON.
#[derive(Debug, Serialize)]
pub(super) struct StreamRow {
    name: String,
    #[serde(rename = "type")]
    stream_type: String,
    hostname: String,
    source_id: String,
    uid: String,
    state: &'static str,
    refused: Option<String>,
    samples: u64,
    nominal_srate: f64,
    rate: Option<f64>,
    idle_secs: Option<f64>,
    lag_secs: Option<f64>,
    offset_secs: Option<f64>,
    uncertainty_secs: Option<f64>,
    offsets: u64,
    failed_offsets: u64,
    gaps: u64,
    missing_samples: u64,
    lost_samples: u64,
    unknown_losses: u64,
    reconnects: u64,
    encrypted_with: Option<String>,
}

impl StreamRow {
    pub(super) fn of(stream: &StreamStatus, now: f64) -> Self {
        let info = &stream.info;
        Self {
            name: info.name().into_owned(),
            stream_type: info.stream_type().into_owned(),
            hostname: info.hostname().into_owned(),
            source_id: info.source_id().into_owned(),
            uid: info.uid().into_owned(),
            state: stream.state.name(),
            refused: match &stream.state {
                StreamState::Refused(reason) => Some(reason.clone()),
                _ => None,
            },
            samples: stream.samples,
            nominal_srate: info.nominal_srate(),
            rate: stream.rate(now),
            idle_secs: stream.idle_secs,
            lag_secs: stream.lag(now),
            offset_secs: stream.offset_secs,
            uncertainty_secs: stream.uncertainty_secs,
            offsets: stream.offsets,
            failed_offsets: stream.failed_offsets,
            gaps: stream.gaps,
            missing_samples: stream.missing,
            lost_samples: stream.lost,
            unknown_losses: stream.unknown_losses,
            reconnects: stream.reconnects,
            encrypted_with: stream.encryption.clone(),
        }
    }
}

impl Display {
    pub(super) fn new(json: bool) -> Self {
        let is_live = !json && terminal::prepare(&io::stdout());
        if is_live {
            messages::hold();
        }
        Self {
            is_live,
            screen: Screen::start(io::stdout()),
            has_rung: false,
            next: local_clock(),
        }
    }

    /// Whether it is time to show something.
    pub(super) fn is_due(&self) -> bool {
        !self.screen.has_failed() && (local_clock() >= self.next || messages::is_waiting())
    }

    /// Shows the present state; the next update is due later.
    pub(super) fn update(&mut self, status: &Status) {
        let now = local_clock();
        self.next = now + if self.is_live { LIVE_SECS } else { LINE_SECS };
        let piece = if self.is_live {
            let bell = if self.rings(status) { "\x07" } else { "" };
            Piece::Picture(format!("{bell}{}", picture(status, now, rows())))
        } else {
            Piece::Line(text(&StatusLine::of("status", status, None)))
        };
        self.screen.show(piece);
    }

    /// Shows the final state and waits shortly until it is written.
    pub(super) fn finish(&mut self, status: &Status, exit_status: u8) {
        let piece = if self.is_live {
            Piece::Last(picture(status, local_clock(), usize::MAX))
        } else {
            Piece::Line(text(&StatusLine::of("done", status, Some(exit_status))))
        };
        self.screen.end(piece);
    }

    /// Whether to ring the bell: once for each trouble.
    fn rings(&mut self, status: &Status) -> bool {
        let is_bad = trouble(status).is_some();
        let has_rung = std::mem::replace(&mut self.has_rung, is_bad);
        is_bad && !has_rung
    }
}

impl StatusLine {
    /// The line that `status` of the remote control answers with.
    pub(super) fn of(event: &'static str, status: &Status, exit_status: Option<u8>) -> Self {
        let now = local_clock();
        Self {
            event,
            secs: status.secs,
            files: (status.files.iter())
                .map(|file| file.to_string_lossy().into_owned())
                .collect(),
            bytes: status.bytes,
            synced_bytes: status.synced_bytes,
            bytes_per_sec: status.bytes_per_sec,
            waiting_bytes: status.waiting_bytes,
            free_bytes: status.free_bytes,
            left_secs: status.left_secs(),
            unwritten_samples: status.unwritten,
            trouble: trouble(status),
            awaited: status.awaited.clone(),
            streams: (status.streams.iter())
                .map(|stream| StreamRow::of(stream, now))
                .collect(),
            status: exit_status,
        }
    }
}

/// Draws the whole state in so many lines at the most: lines beyond the screen could not be erased.
fn picture(status: &Status, now: f64, rows: usize) -> String {
    let mut top = Vec::new();
    // Nothing fails in memory.
    let _ = table(&status.streams, now).write(&mut top, "");
    let mut top = String::from_utf8_lossy(&top).into_owned();
    for wish in &status.awaited {
        top.extend(["○ ", &printable(wish), " is not there yet\n"]);
    }
    let file = status.files.last().map(|file| file.display().to_string());
    let mut bottom = format!(
        "\n{}  {}  {}  {}/s{}\n",
        file.unwrap_or_default(),
        clock(status.secs),
        size(status.bytes),
        size(to_bytes(status.bytes_per_sec)),
        match (status.free_bytes, status.left_secs()) {
            (Some(free), Some(left)) => format!("  {} free, {} left", size(free), age(left)),
            (Some(free), None) => format!("  {} free", size(free)),
            _ => String::new(),
        }
    );
    if let Some(trouble) = trouble(status) {
        bottom.extend(["!! ", &trouble, "\n"]);
    }
    fitting(&top, &bottom, rows)
}

/// Describes the present fault of the recording, if there is one.
fn trouble(status: &Status) -> Option<String> {
    (status.trouble.clone()).or_else(|| status.alarm.as_ref().map(warning))
}

/// Describes an alarm about free space on the disk.
pub(super) fn warning(alarm: &Alarm) -> String {
    match *alarm {
        Alarm::BelowMinimum { free, min_free } => format!(
            "only {} free, less than the {} of --min-free",
            size(free),
            size(min_free)
        ),
        Alarm::FullSoon { free, left_secs } => format!(
            "the disk will be full in {:.0} min ({} free)",
            (left_secs / 60.0).floor(),
            size(free)
        ),
    }
}

/// Two parts of a picture in so many lines; the first one gives way.
fn fitting(top: &str, bottom: &str, rows: usize) -> String {
    let lines: Vec<&str> = top.lines().collect();
    let room = rows.saturating_sub(bottom.lines().count());
    if lines.len() <= room {
        return format!("{top}{bottom}");
    }
    // One line replaces those that do not fit.
    let shown = room.saturating_sub(1).max(1).min(lines.len());
    let rest = count(lines.len() - shown, "line");
    format!(
        "{}\n  ... and {rest} more\n{bottom}",
        lines[..shown].join("\n")
    )
}

/// Lines that the terminal has for a picture.
fn rows() -> usize {
    // The cursor stands below the picture.
    terminal::rows().map_or(usize::MAX, |rows| rows.saturating_sub(1))
}

fn text(line: &StatusLine) -> String {
    // Numbers and texts: nothing in it can fail.
    let mut text = serde_json::to_string(line).unwrap_or_default();
    text.push('\n');
    text
}

fn table(streams: &[StreamStatus], now: f64) -> Table {
    let (left, right) = (Align::Left, Align::Right);
    let mut table = Table::new(&[
        ("", left),
        ("STREAM", left),
        ("SAMPLES", right),
        ("RATE/NOMINAL", right),
        ("LAST", right),
        ("LAG ms", right),
        ("OFFSET ms", right),
        ("GAPS", right),
        ("", left),
    ]);
    for stream in streams {
        let info = &stream.info;
        let mark = match stream.state {
            StreamState::Recording => "●",
            StreamState::Done => "■",
            StreamState::Connecting => "○",
            StreamState::Lost | StreamState::Refused(_) => "✗",
        };
        let dash = || "-".to_owned();
        let rate = stream
            .rate(now)
            .map_or_else(dash, |rate| format!("{rate:.1}"));
        let nominal = match info.nominal_srate() {
            0.0 => "irreg".to_owned(),
            rate => rate.to_string(),
        };
        let offset = match (stream.offset_secs, stream.uncertainty_secs) {
            (Some(offset), Some(error)) => {
                format!("{:.3}±{:.3}", offset * 1e3, error * 0.5e3)
            }
            _ => dash(),
        };
        let gaps = match (stream.gaps, stream.missing + stream.lost) {
            (gaps, 0) => gaps.to_string(),
            (gaps, lost) if stream.unknown_losses == 0 => format!("{gaps} ({lost} lost)"),
            (gaps, lost) => format!("{gaps} ({lost}+ lost)"),
        };
        let remark = match (&stream.state, &stream.encryption) {
            (StreamState::Recording | StreamState::Done, Some(_)) => "locked",
            (StreamState::Recording | StreamState::Done, None) => "",
            (state, _) => state.name(),
        };
        table.push([
            mark.to_owned(),
            format!("{}@{}", info.name(), info.hostname()),
            stream.samples.to_string(),
            format!("{rate}/{nominal}"),
            stream
                .idle_secs
                .map_or_else(dash, |secs| format!("{secs:.1} s")),
            stream
                .lag(now)
                .map_or_else(dash, |lag| format!("{:.0}", lag * 1e3)),
            offset,
            gaps,
            remark.to_owned(),
        ]);
    }
    table
}

/// Formats bytes in units of 1000.
pub(super) fn size(bytes: u64) -> String {
    let bytes = bytes as f64;
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
}

/// Reads a number of bytes: `500M`, `2G`.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
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

/// Seconds as a clock shows them.
fn clock(secs: f64) -> String {
    let secs = to_bytes(secs);
    format!("{:02}:{:02}:{:02}", secs / 3600, secs / 60 % 60, secs % 60)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates: neither sizes nor times are negative"
)]
pub(super) fn to_bytes(number: f64) -> u64 {
    number as u64
}

const LIVE_SECS: f64 = 0.25;
const LINE_SECS: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (16_400_000, "16.4 MB"),
            (2_000_000_000_000, "2.0 TB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(clock(3725.9), "01:02:05");
    }

    #[test]
    fn a_picture_is_no_taller_than_the_terminal() {
        let (top, bottom) = ("head\n1\n2\n3\n4\n", "\nfile\n!! trouble\n");
        assert_eq!(fitting(top, bottom, 8), format!("{top}{bottom}"));
        for rows in 5..8 {
            let picture = fitting(top, bottom, rows);
            assert_eq!(picture.lines().count(), rows, "{picture}");
            assert!(picture.ends_with(bottom), "{picture}");
        }
        assert!(fitting(top, bottom, 7).contains("2\n  ... and 2 lines more\n"));
        assert!(fitting(top, bottom, 0).starts_with("head\n"));
    }

    #[test]
    fn the_bell_rings_once_for_each_trouble() {
        let mut display = Display {
            is_live: false,
            screen: Screen::start(io::sink()),
            has_rung: false,
            next: 0.0,
        };
        let mut rings = |free: Option<u64>| {
            let alarm = |free| Alarm::BelowMinimum { free, min_free: 9 };
            let alarm = free.map(alarm);
            display.rings(&Status {
                alarm,
                ..Status::default()
            })
        };
        let alarms = [None, Some(2), Some(1), None, Some(0)];
        assert_eq!(alarms.map(&mut rings), [false, true, false, false, true]);
    }

    #[test]
    fn alarms_in_words() {
        let below = Alarm::BelowMinimum {
            free: 5,
            min_free: 6,
        };
        assert!(warning(&below).contains("--min-free"));
        let soon = Alarm::FullSoon {
            free: 1_000_000,
            left_secs: 599.0,
        };
        assert!(warning(&soon).contains("9 min"));
    }

    #[test]
    fn numbers_of_bytes() {
        assert_eq!(parse_size("500M"), Ok(500_000_000));
        assert_eq!(parse_size("12"), Ok(12));
        assert_eq!(parse_size("2 GB"), Ok(2_000_000_000));
        assert!(parse_size("2X").is_err());
        assert!(parse_size("G").is_err());
    }

    #[cfg(unix)]
    #[test]
    fn names_that_are_not_unicode_are_shown_as_well_as_can_be() {
        use std::os::unix::ffi::OsStrExt as _;

        let name = std::ffi::OsStr::from_bytes(b"dat\xe9.xdf");
        let status = Status {
            files: vec![name.into()],
            ..Status::default()
        };
        let line = StatusLine::of("status", &status, None);
        assert!(text(&line).contains("dat\u{fffd}.xdf"), "{line:?}");
    }
}
