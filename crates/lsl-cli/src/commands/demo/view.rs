//! Display of the demo: a table redrawn in place on a terminal, a line a second elsewhere, nothing
//! but one JSON object with `--json`.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "conversions saturate: curves and bars end at their edges"
)]

use std::io::{self, Write};
use std::time::Duration;

use lsl_core::local_clock;
use lsl_platform::terminal::prepare;
use serde::Serialize;

use super::meter::Reading;
use crate::ui::table::{Align, Table};

/// Display of the demo on stdout.
#[derive(Debug)]
pub(super) struct View {
    mode: Mode,
    start: f64,
    duration: f64,
    search_secs: f64,
    /// Lines on the terminal that the next picture replaces.
    drawn: usize,
    /// Time at which the next line is due.
    next_line: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Live,
    Lines,
    Json,
}

/// Summary at the end: the object of `--json`.
#[derive(Debug, Serialize)]
struct DemoSummary<'a> {
    duration_secs: f64,
    search_ms: f64,
    lost: u64,
    streams: &'a [Reading; 2],
}

impl View {
    pub(super) fn new(json: bool, start: f64, duration: f64, search_secs: f64) -> Self {
        let mode = match (json, prepare(&io::stdout())) {
            (true, _) => Mode::Json,
            (false, true) => Mode::Live,
            (false, false) => Mode::Lines,
        };
        Self {
            mode,
            start,
            duration,
            search_secs,
            drawn: 0,
            next_line: start + 1.0,
        }
    }

    /// Returns the time between two updates.
    pub(super) fn period(&self) -> Duration {
        match self.mode {
            Mode::Live => Duration::from_millis(100),
            Mode::Lines | Mode::Json => Duration::from_millis(50),
        }
    }

    /// Introduces the demo; prints nothing with `--json`.
    pub(super) fn begin(&self) -> io::Result<()> {
        if self.mode == Mode::Json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "64 channels of EEG at 500 Hz and a marker stream, sent and received back over the\n\
             loopback interface: nothing leaves this machine. Found by a search of {:.1} ms.\n",
            self.search_secs * 1e3
        )?;
        out.flush()
    }

    /// Shows the readings, if it is time to.
    pub(super) fn update(&mut self, read: impl FnOnce() -> [Reading; 2]) -> io::Result<()> {
        let now = local_clock();
        let mut out = io::stdout().lock();
        match self.mode {
            Mode::Live => {
                let picture = self.picture(&read(), now - self.start)?;
                self.erase(&mut out)?;
                // Lines that wrap on a narrow terminal could not be counted.
                write!(out, "\x1b[?7l{picture}\x1b[?7h")?;
                self.drawn = picture.lines().count();
            }
            Mode::Lines if now >= self.next_line => {
                self.next_line += 1.0;
                write_line(&read(), now - self.start, &mut out)?;
            }
            Mode::Lines | Mode::Json => {}
        }
        out.flush()
    }

    /// Prints the result, and the commands to try next.
    pub(super) fn finish(&mut self, readings: &[Reading; 2], secs: f64) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let lost = readings.iter().map(|reading| reading.lost).sum();
        if self.mode == Mode::Json {
            let summary = DemoSummary {
                duration_secs: secs,
                search_ms: self.search_secs * 1e3,
                lost,
                streams: readings,
            };
            serde_json::to_writer_pretty(&mut out, &summary)?;
            writeln!(out)?;
            return out.flush();
        }
        self.erase(&mut out)?;
        if self.mode == Mode::Lines {
            writeln!(out)?;
        }
        table(readings, Reading::overall_rate).write(&mut out, "")?;
        let received: u64 = readings.iter().map(|reading| reading.received).sum();
        let repeated: u64 = readings.iter().map(|reading| reading.repeated).sum();
        if lost + repeated == 0 {
            writeln!(
                out,
                "\nNothing was lost: {received} numbered samples arrived, each once and in order, \
                 in {secs:.1} s."
            )?;
        } else {
            writeln!(
                out,
                "\nLOST {lost} samples, {repeated} out of order, in {secs:.1} s."
            )?;
        }
        out.write_all(NEXT.as_bytes())?;
        out.flush()
    }

    fn picture(&self, readings: &[Reading; 2], elapsed: f64) -> io::Result<String> {
        let mut picture = Vec::new();
        table(readings, |reading| reading.recent_rate).write(&mut picture, "")?;
        let [eeg, _] = readings;
        writeln!(picture, "\n  Fz {}", curve(&eeg.curve))?;
        writeln!(picture, "\n  {}", progress(elapsed, self.duration))?;
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

impl Reading {
    fn overall_rate(&self) -> Option<f64> {
        self.rate
    }
}

fn table(readings: &[Reading; 2], rate: impl Fn(&Reading) -> Option<f64>) -> Table {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("STREAM", Align::Left),
        ("CH", right),
        ("RATE/NOMINAL", right),
        ("P50", right),
        ("P95", right),
        ("P99 ms", right),
        ("RECEIVED", right),
        ("LOST", right),
        ("OFFSET ms", right),
    ]);
    for reading in readings {
        let millis =
            |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.3}"));
        let latency = reading.latency_ms;
        let nominal = match reading.nominal_srate {
            0.0 => "irreg".to_owned(),
            rate => rate.to_string(),
        };
        let rate = rate(reading).map_or_else(|| "-".into(), |rate| format!("{rate:.1}"));
        table.push([
            reading.name.clone(),
            reading.channels.to_string(),
            format!("{rate}/{nominal}"),
            millis(latency.map(|latency| latency.p50)),
            millis(latency.map(|latency| latency.p95)),
            millis(latency.map(|latency| latency.p99)),
            reading.received.to_string(),
            reading.lost.to_string(),
            reading
                .clock_offset_ms
                .map_or_else(|| "-".into(), |offset| format!("{offset:+.3}")),
        ]);
    }
    table
}

fn write_line(readings: &[Reading; 2], elapsed: f64, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{elapsed:5.1} s")?;
    for reading in readings {
        let rate = reading.recent_rate.unwrap_or(0.0);
        let lost = reading.lost;
        write!(
            out,
            "  {}: {rate:.1}/s, {} received, {lost} lost",
            reading.name, reading.received
        )?;
        if let Some(latency) = reading.latency_ms {
            write!(out, ", p50 {:.3} p99 {:.3} ms", latency.p50, latency.p99)?;
        }
    }
    writeln!(out)
}

/// Draws a curve of eighth blocks between its smallest and largest value.
fn curve(values: &[f32]) -> String {
    let low = values.iter().copied().fold(f32::INFINITY, f32::min);
    let high = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let span = (high - low).max(f32::MIN_POSITIVE);
    let block = |value: &f32| {
        // Saturates at both ends.
        let step = ((value - low) / span * 8.0) as usize;
        BLOCKS.get(step.min(7)).copied().unwrap_or(' ')
    };
    values.iter().map(block).collect()
}

fn progress(elapsed: f64, duration: f64) -> String {
    let share = if duration > 0.0 {
        (elapsed / duration).clamp(0.0, 1.0)
    } else {
        1.0
    };
    let full = (share * BAR_WIDTH as f64) as usize;
    let bar = "#".repeat(full) + &".".repeat(BAR_WIDTH - full);
    format!(
        "[{bar}] {:.0} of {duration} s, Ctrl-C ends",
        elapsed.min(duration).floor()
    )
}

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const BAR_WIDTH: usize = 40;
const NEXT: &str = "
Next, in two terminals:
  lsl gen --name Amp --markers     a stream that everybody on the network sees
  lsl recv Amp                     its samples; `lsl list` shows what else there is
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_span_their_range() {
        for (values, expected) in [
            (&[][..], ""),
            (&[1.0, 1.0], "▁▁"),
            (&[0.0, 1.0, 0.5], "▁█▅"),
            (&[-8.0, -7.0, 0.0], "▁▂█"),
        ] {
            assert_eq!(curve(values), expected);
        }
    }

    #[test]
    fn progress_bars() {
        for (elapsed, duration, hashes, text) in [
            (0.0, 10.0, 0, "0 of 10 s"),
            (5.5, 10.0, 22, "5 of 10 s"),
            (11.0, 10.0, 40, "10 of 10 s"),
            (0.0, 0.0, 40, "0 of 0 s"),
        ] {
            let bar = progress(elapsed, duration);
            assert_eq!(bar.matches('#').count(), hashes, "{bar}");
            assert!(bar.contains(text), "{bar}");
        }
    }
}
