//! `lsl time`: how far a stream's clock is from ours.

use std::io::{self, Write};

use clap::Args;
use lsl_core::{Context, Inlet, local_clock};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::interrupt::Stop;
use crate::link;
use crate::note::note;
use crate::select::StreamArgs;
use crate::table::printable;

/// `lsl time`
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
normal between hosts, and near zero on one host.";

/// One measurement.
#[derive(Debug, Serialize)]
struct Measurement {
    offset_secs: f64,
    uncertainty_secs: f64,
    round_trip_secs: f64,
    remote_time: f64,
    local_time: f64,
}

impl Time {
    /// Runs the command.
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
            writeln!(
                out,
                "offset {:+.6} s  ± {:.3} ms  round trip {:.3} ms",
                measurement.offset_secs,
                measurement.uncertainty_secs * 1e3,
                measurement.round_trip_secs * 1e3
            )?;
        }
        out.flush()
    }
}

/// Measurements come every two seconds: a shorter patience would end before the next one.
fn patience(deadline: f64) -> f64 {
    deadline.max(local_clock() + 6.0)
}
