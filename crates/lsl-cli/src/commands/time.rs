//! `lsl time`: measures how far a stream's clock is from ours.

use std::fmt::{self, Display, Formatter};
use std::io::{self, Write};

use clap::Args;
use lsl_core::{Context, Inlet, local_clock};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::interrupt::Stop;
use crate::streams::link;
use crate::streams::select::StreamArgs;
use crate::ui::notice::note;
use crate::ui::text::printable;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Time {
    #[command(flatten)]
    stream: StreamArgs,

    /// Number of measurements; 0 goes on until Ctrl-C
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1)]
    count: u64,

    /// Print one JSON object a measurement
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  lsl time BioSemi                 one measurement
  lsl time type=EEG --count 10     ten, one every two seconds
  lsl time BioSemi -n 0 --json     for ever, for programs

Add the offset to a timestamp of the stream to get the time on this host's clock. It is wrong by at
most half of the round trip. The clocks of two hosts start at different times: offsets of days are
normal between hosts, and near zero on one host.

An encrypted stream whose clock service (UDP) does not answer is measured over its data connection. That
is less exact within the same bounds, and said behind each measurement.";

/// Measurement of a stream's clock, in seconds.
#[derive(Debug, Serialize)]
struct Measurement {
    offset_secs: f64,
    uncertainty_secs: f64,
    round_trip_secs: f64,
    remote_time: f64,
    local_time: f64,
    /// Whether it was measured over the data connection instead of UDP.
    low_quality: bool,
}

impl Time {
    pub(crate) fn run(&self, context: &Context) -> Outcome {
        let info = self.stream.find(context)?;
        let inlet = Inlet::builder(&info).context(context).create()?;
        let stop = Stop::install()?;
        if !self.json {
            let name = printable(&info.name());
            note(format_args!(
                "Clock of {name} on {}",
                printable(&info.hostname())
            ));
        }
        let mut last_remote = f64::NEG_INFINITY;
        let mut measured = 0;
        // The library measures every two seconds; a new measurement shows by its time.
        let mut deadline = self.stream.timeout().deadline(local_clock());
        while !stop.requested() && (self.count == 0 || measured < self.count) {
            let correction = link::time_correction(&inlet, self.stream.timeout())?;
            if correction.remote_time > last_remote {
                last_remote = correction.remote_time;
                measured += 1;
                deadline = patience(self.stream.timeout().deadline(local_clock()));
                self.print(&Measurement {
                    offset_secs: correction.offset_secs,
                    uncertainty_secs: correction.uncertainty_secs / 2.0,
                    round_trip_secs: correction.uncertainty_secs,
                    remote_time: correction.remote_time,
                    local_time: local_clock(),
                    low_quality: correction.is_low_quality(),
                })?;
            } else if local_clock() > deadline {
                return Err(Failure::NotFound(
                    "the stream's clock stopped answering".into(),
                ));
            } else {
                stop.sleep_until(local_clock() + 0.02);
            }
        }
        Ok(())
    }

    fn print(&self, measurement: &Measurement) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer(&mut out, measurement)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{measurement}")?;
        }
        out.flush()
    }
}

impl Display for Measurement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "offset {:+.6} s  ± {:.3} ms  round trip {:.3} ms",
            self.offset_secs,
            self.uncertainty_secs * 1e3,
            self.round_trip_secs * 1e3
        )?;
        if self.low_quality {
            f.write_str("  (over the data connection, UDP is filtered: less exact)")?;
        }
        Ok(())
    }
}

/// Extends a deadline: measurements come every two seconds, and the next one shall not be missed.
fn patience(deadline: f64) -> f64 {
    deadline.max(local_clock() + 6.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_exact_measurements_say_so() {
        let mut measurement = Measurement {
            offset_secs: -1234.5,
            uncertainty_secs: 0.0005,
            round_trip_secs: 0.001,
            remote_time: 2.0,
            local_time: 1.0,
            low_quality: false,
        };
        let plain = "offset -1234.500000 s  ± 0.500 ms  round trip 1.000 ms";
        assert_eq!(measurement.to_string(), plain);
        measurement.low_quality = true;
        let remark = "  (over the data connection, UDP is filtered: less exact)";
        assert_eq!(measurement.to_string(), format!("{plain}{remark}"));
        let json = serde_json::to_value(&measurement).unwrap();
        assert_eq!(json["low_quality"], true);
    }
}
