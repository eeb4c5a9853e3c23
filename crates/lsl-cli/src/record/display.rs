//! How a recording is doing: a table redrawn in place on a terminal, a line of JSON a second elsewhere.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use lsl_core::local_clock;
use serde::Serialize;

use super::live::{Live, Reading, State};
use super::remark;
use super::writer::Progress;
use crate::table::{Align, Table, age};

/// The display.
#[derive(Debug)]
pub(super) struct Display {
    is_live: bool,
    start: f64,
    /// Lines on the terminal that the next picture replaces.
    drawn: usize,
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
    files: Vec<PathBuf>,
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
            drawn: 0,
            next: now,
            growth: None,
            bytes_per_sec: 0.0,
        }
    }

    /// Whether it is time to show something.
    pub(super) fn is_due(&self) -> bool {
        local_clock() >= self.next || remark::is_waiting()
    }

    /// Shows what there is.
    pub(super) fn update(&mut self, snapshot: Snapshot<'_>) -> io::Result<()> {
        let now = local_clock();
        self.next = now + if self.is_live { LIVE_SECS } else { LINE_SECS };
        self.measure(now, snapshot.progress.bytes());
        let mut out = io::stdout().lock();
        if self.is_live {
            let picture = self.picture(&snapshot, now)?;
            self.erase(&mut out)?;
            if remark::is_waiting() {
                out.flush()?;
                remark::release();
            }
            // Lines that wrap on a narrow terminal could not be counted.
            write!(out, "\x1b[?7l{picture}\x1b[?7h")?;
            self.drawn = picture.lines().count();
        } else {
            let line = self.line("status", snapshot, now, None);
            write_line(&line, &mut out)?;
        }
        out.flush()
    }

    /// The end.
    pub(super) fn finish(&mut self, snapshot: Snapshot<'_>, status: u8) -> io::Result<()> {
        let now = local_clock();
        self.measure(now, snapshot.progress.bytes());
        let mut out = io::stdout().lock();
        if self.is_live {
            let picture = self.picture(&snapshot, now)?;
            self.erase(&mut out)?;
            out.flush()?;
            remark::release_all();
            write!(out, "{picture}")?;
            self.drawn = 0;
        } else {
            let line = self.line("done", snapshot, now, Some(status));
            write_line(&line, &mut out)?;
        }
        out.flush()
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
            files: progress.files(),
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

    fn picture(&self, snapshot: &Snapshot<'_>, now: f64) -> io::Result<String> {
        let mut picture = Vec::new();
        table(&snapshot.streams, now).write(&mut picture, "")?;
        for wish in &snapshot.awaited {
            writeln!(
                picture,
                "○ {} is not there yet",
                crate::table::printable(wish)
            )?;
        }
        let progress = snapshot.progress;
        let files = progress.files();
        let file = files.last().map(|file| file.display().to_string());
        writeln!(
            picture,
            "\n{}  {}  {}  {}/s{}",
            file.unwrap_or_default(),
            clock(now - self.start),
            size(progress.bytes()),
            size(to_bytes(self.bytes_per_sec)),
            match (snapshot.free_bytes, self.left_secs(snapshot.free_bytes)) {
                (Some(free), Some(left)) => format!("  {} free, {} left", size(free), age(left)),
                (Some(free), None) => format!("  {} free", size(free)),
                _ => String::new(),
            }
        )?;
        if let Some(trouble) = progress.trouble().or_else(|| snapshot.alarm.clone()) {
            writeln!(picture, "\x07!! {trouble}")?;
        }
        Ok(String::from_utf8_lossy(&picture).into_owned())
    }

    fn erase(&mut self, out: &mut impl Write) -> io::Result<()> {
        match std::mem::take(&mut self.drawn) {
            0 => Ok(()),
            // Up that many lines, to their start, and clear from there to the end of the screen.
            lines => write!(out, "\x1b[{lines}F\x1b[J"),
        }
    }
}

fn write_line(line: &Line, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    writeln!(out)
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
}
