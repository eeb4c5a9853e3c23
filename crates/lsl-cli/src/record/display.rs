//! How a recording is doing: a table redrawn in place on a terminal, a line of JSON a second elsewhere.

use std::io::{self, IsTerminal};

use lsl_core::local_clock;
use serde::Serialize;

use super::live::{Live, Reading, State};
use super::remark;
use super::screen::{Piece, Screen};
use super::writer::Progress;
use crate::table::{Align, Table, age, count};

/// The display.
#[derive(Debug)]
pub(super) struct Display {
    is_live: bool,
    start: f64,
    screen: Screen,
    /// Whether the bell has rung for the trouble of now.
    has_rung: bool,
    next: f64,
    /// Bytes at a time, to tell how fast the file grows.
    growth: Option<(f64, u64)>,
    bytes_per_sec: f64,
}

/// Everything at a time.
pub(super) struct Snapshot<'a> {
    pub(super) streams: Vec<Reading>,
    pub(super) progress: &'a Progress,
    pub(super) free_bytes: Option<u64>,
    pub(super) alarm: Option<String>,
    /// What was asked for and is not there.
    pub(super) awaited: Vec<String>,
}

impl<'a> Snapshot<'a> {
    pub(super) fn of(streams: &[std::sync::Arc<Live>], progress: &'a Progress) -> Self {
        Self {
            streams: streams.iter().map(|live| live.reading()).collect(),
            progress,
            free_bytes: None,
            alarm: None,
            awaited: Vec::new(),
        }
    }
}

/// A line of JSON.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    event: &'static str,
    /// Seconds since the start.
    secs: f64,
    /// Names that are not Unicode have signs in them that stand for what is none.
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
    streams: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u8>,
}

/// A stream in it.
#[derive(Debug, Serialize)]
pub(super) struct Row {
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
    reconnects: u64,
    encrypted_with: Option<String>,
}

impl Row {
    pub(super) fn of(reading: &Reading, now: f64) -> Self {
        let info = &reading.info;
        Self {
            name: info.name().into_owned(),
            stream_type: info.stream_type().into_owned(),
            hostname: info.hostname().into_owned(),
            source_id: info.source_id().into_owned(),
            uid: info.uid().into_owned(),
            state: reading.state.name(),
            refused: match &reading.state {
                State::Refused(reason) => Some(reason.clone()),
                _ => None,
            },
            samples: reading.samples,
            nominal_srate: info.nominal_srate(),
            rate: reading.rate(now),
            idle_secs: reading.idle_secs,
            lag_secs: reading.lag(now),
            offset_secs: reading.offset_secs,
            uncertainty_secs: reading.uncertainty_secs,
            offsets: reading.offsets,
            failed_offsets: reading.failed_offsets,
            gaps: reading.gaps,
            missing_samples: reading.missing,
            reconnects: reading.reconnects,
            encrypted_with: reading.encryption.clone(),
        }
    }
}

impl Display {
    pub(super) fn new(json: bool) -> Self {
        let now = local_clock();
        let is_live = !json && io::stdout().is_terminal();
        if is_live {
            remark::hold();
        }
        Self {
            is_live,
            start: now,
            screen: Screen::start(io::stdout()),
            has_rung: false,
            next: now,
            growth: None,
            bytes_per_sec: 0.0,
        }
    }

    /// Whether it is time to show something.
    pub(super) fn is_due(&self) -> bool {
        !self.screen.has_failed() && (local_clock() >= self.next || remark::is_waiting())
    }

    /// Shows what there is.
    pub(super) fn update(&mut self, snapshot: Snapshot<'_>) {
        let now = local_clock();
        self.next = now + if self.is_live { LIVE_SECS } else { LINE_SECS };
        self.measure(now, snapshot.progress.bytes());
        let piece = if self.is_live {
            let rings = self.rings(&snapshot);
            let picture = self.picture(&snapshot, now, rows());
            Piece::Picture(format!("{}{picture}", if rings { "\x07" } else { "" }))
        } else {
            Piece::Line(text(&self.line("status", snapshot, now, None)))
        };
        self.screen.show(piece);
    }

    /// The end.
    pub(super) fn finish(&mut self, snapshot: Snapshot<'_>, status: u8) {
        let now = local_clock();
        self.measure(now, snapshot.progress.bytes());
        let piece = if self.is_live {
            Piece::Last(self.picture(&snapshot, now, usize::MAX))
        } else {
            Piece::Line(text(&self.line("done", snapshot, now, Some(status))))
        };
        self.screen.end(piece);
    }

    /// Whether to ring the bell: once for each trouble.
    fn rings(&mut self, snapshot: &Snapshot<'_>) -> bool {
        let is_bad = trouble(snapshot).is_some();
        let has_rung = std::mem::replace(&mut self.has_rung, is_bad);
        is_bad && !has_rung
    }

    /// The line that `status` of the remote control answers with.
    pub(super) fn line(
        &self,
        event: &'static str,
        snapshot: Snapshot<'_>,
        now: f64,
        status: Option<u8>,
    ) -> Line {
        let progress = snapshot.progress;
        Line {
            event,
            secs: now - self.start,
            files: (progress.files().iter())
                .map(|file| file.to_string_lossy().into_owned())
                .collect(),
            bytes: progress.bytes(),
            synced_bytes: progress.synced_bytes(),
            bytes_per_sec: self.bytes_per_sec,
            waiting_bytes: progress.waiting_bytes(),
            free_bytes: snapshot.free_bytes,
            left_secs: self.left_secs(snapshot.free_bytes),
            unwritten_samples: progress.unwritten(),
            trouble: progress.trouble().or(snapshot.alarm),
            awaited: snapshot.awaited,
            streams: (snapshot.streams.iter())
                .map(|reading| Row::of(reading, now))
                .collect(),
            status,
        }
    }

    /// How many seconds the disk will do at the rate of late.
    pub(super) fn left_secs(&self, free_bytes: Option<u64>) -> Option<f64> {
        let free = free_bytes? as f64;
        (self.bytes_per_sec > 0.0).then(|| free / self.bytes_per_sec)
    }

    fn measure(&mut self, now: f64, bytes: u64) {
        let (since, before) = *self.growth.get_or_insert((now, bytes));
        if now - since >= GROWTH_SECS {
            self.bytes_per_sec = bytes.saturating_sub(before) as f64 / (now - since);
            self.growth = Some((now, bytes));
        }
    }

    /// Everything, in so many lines at the most: of more than a screen has, some could not be erased.
    fn picture(&self, snapshot: &Snapshot<'_>, now: f64, rows: usize) -> String {
        let mut top = Vec::new();
        // Nothing fails in memory.
        let _ = table(&snapshot.streams, now).write(&mut top, "");
        let mut top = String::from_utf8_lossy(&top).into_owned();
        for wish in &snapshot.awaited {
            let wish = crate::table::printable(wish);
            top.extend(["○ ", &wish, " is not there yet\n"]);
        }
        let progress = snapshot.progress;
        let files = progress.files();
        let file = files.last().map(|file| file.display().to_string());
        let mut bottom = format!(
            "\n{}  {}  {}  {}/s{}\n",
            file.unwrap_or_default(),
            clock(now - self.start),
            size(progress.bytes()),
            size(to_bytes(self.bytes_per_sec)),
            match (snapshot.free_bytes, self.left_secs(snapshot.free_bytes)) {
                (Some(free), Some(left)) => format!("  {} free, {} left", size(free), age(left)),
                (Some(free), None) => format!("  {} free", size(free)),
                _ => String::new(),
            }
        );
        if let Some(trouble) = trouble(snapshot) {
            bottom.extend(["!! ", &trouble, "\n"]);
        }
        fitting(&top, &bottom, rows)
    }
}

/// What is wrong at present.
fn trouble(snapshot: &Snapshot<'_>) -> Option<String> {
    (snapshot.progress.trouble()).or_else(|| snapshot.alarm.clone())
}

/// Two parts of a picture in so many lines; the first one gives way.
fn fitting(top: &str, bottom: &str, rows: usize) -> String {
    let lines: Vec<&str> = top.lines().collect();
    let room = rows.saturating_sub(bottom.lines().count());
    if lines.len() <= room {
        return format!("{top}{bottom}");
    }
    // One line says what the others would have.
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
    terminal_rows().map_or(usize::MAX, |rows| rows.saturating_sub(1))
}

#[cfg(unix)]
fn terminal_rows() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_row)).filter(|rows| *rows > 0)
}

#[cfg(not(unix))]
fn terminal_rows() -> Option<usize> {
    None
}

fn text(line: &Line) -> String {
    // Numbers and texts: nothing in it can fail.
    let mut text = serde_json::to_string(line).unwrap_or_default();
    text.push('\n');
    text
}

fn table(streams: &[Reading], now: f64) -> Table {
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
    for reading in streams {
        let info = &reading.info;
        let mark = match reading.state {
            State::Recording => "●",
            State::Done => "■",
            State::Connecting => "○",
            State::Lost | State::Refused(_) => "✗",
        };
        let dash = || "-".to_owned();
        let rate = reading
            .rate(now)
            .map_or_else(dash, |rate| format!("{rate:.1}"));
        let nominal = match info.nominal_srate() {
            0.0 => "irreg".to_owned(),
            rate => rate.to_string(),
        };
        let offset = match (reading.offset_secs, reading.uncertainty_secs) {
            (Some(offset), Some(error)) => {
                format!("{:.3}±{:.3}", offset * 1e3, error * 0.5e3)
            }
            _ => dash(),
        };
        let gaps = match (reading.gaps, reading.missing) {
            (gaps, 0) => gaps.to_string(),
            (gaps, missing) => format!("{gaps} ({missing} lost)"),
        };
        let remark = match (&reading.state, &reading.encryption) {
            (State::Recording | State::Done, Some(_)) => "locked",
            (State::Recording | State::Done, None) => "",
            (state, _) => state.name(),
        };
        table.push([
            mark.to_owned(),
            format!("{}@{}", info.name(), info.hostname()),
            reading.samples.to_string(),
            format!("{rate}/{nominal}"),
            reading
                .idle_secs
                .map_or_else(dash, |secs| format!("{secs:.1} s")),
            reading
                .lag(now)
                .map_or_else(dash, |lag| format!("{:.0}", lag * 1e3)),
            offset,
            gaps,
            remark.to_owned(),
        ]);
    }
    table
}

/// Bytes for people.
pub(super) fn size(bytes: u64) -> String {
    let bytes = bytes as f64;
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
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
fn to_bytes(number: f64) -> u64 {
    number as u64
}

const LIVE_SECS: f64 = 0.25;
const LINE_SECS: f64 = 1.0;
/// Over how long the growth of the file is measured.
const GROWTH_SECS: f64 = 2.0;

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
        let progress = Progress::default();
        let mut display = Display {
            is_live: false,
            start: 0.0,
            screen: Screen::start(io::sink()),
            has_rung: false,
            next: 0.0,
            growth: None,
            bytes_per_sec: 0.0,
        };
        let mut rings = |alarm: Option<&str>| {
            let mut snapshot = Snapshot::of(&[], &progress);
            snapshot.alarm = alarm.map(str::to_owned);
            display.rings(&snapshot)
        };
        let alarms = [
            None,
            Some("2 GB left"),
            Some("1 GB left"),
            None,
            Some("none left"),
        ];
        assert_eq!(alarms.map(&mut rings), [false, true, false, false, true]);
    }

    #[cfg(unix)]
    #[test]
    fn names_that_are_not_unicode_are_shown_as_well_as_can_be() {
        use std::os::unix::ffi::OsStrExt as _;

        let progress = Progress::default();
        let name = std::ffi::OsStr::from_bytes(b"dat\xe9.xdf");
        progress.note_file(name.into());
        let display = Display::new(true);
        let line = display.line("status", Snapshot::of(&[], &progress), 1.0, None);
        assert!(text(&line).contains("dat\u{fffd}.xdf"), "{line:?}");
    }
}
