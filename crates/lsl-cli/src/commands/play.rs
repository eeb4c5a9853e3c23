//! `lsl play`: a recording as live streams, with its own timing.
//!
//! A first look finds the clock offsets, by which all streams get one time line (`timeline`). It
//! also finds how far samples lie from their place in time in the file. Then the file is read along
//! with the playing, just far enough ahead that nothing comes too late (`feed`).

mod feed;
mod outlets;
mod timeline;

use std::path::PathBuf;

use clap::Args;
use lsl_core::{Context, local_clock};

use self::feed::Feed;
use self::outlets::Outlets;
use self::timeline::Timeline;
use crate::failure::{Failure, Outcome};
use crate::files::at_rest_keys::IdentityArgs;
use crate::files::recording::Opener;
use crate::files::summary::Summary;
use crate::interrupt::{LONGEST_NAP, Stop};
use crate::streams::encryption;
use crate::streams::link::drain;
use crate::streams::select::seconds;
use crate::ui::notice::note;
use crate::ui::text::{count, printable, rate};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Play {
    /// Recording
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Only these streams, by name or by number as `lsl xdf info` shows it
    #[arg(long, value_name = "STREAM", value_delimiter = ',')]
    streams: Vec<String>,

    /// Play faster or slower; announced rates and the distances of timestamps change with it
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    speed: f64,

    /// Begin this many seconds after the begin of the recording
    #[arg(long, value_name = "SECS", default_value_t = 0.0, value_parser = seconds)]
    start: f64,

    /// Begin again at the end, until Ctrl-C
    #[arg(long = "loop")]
    repeat: bool,

    /// Wait for a receiver of every stream before the first sample
    #[arg(long)]
    wait: bool,

    #[command(flatten)]
    identity: IdentityArgs,
}

const EXAMPLES: &str = "\
Examples:
  lsl play today.xdf
  lsl play today.xdf --speed 4 --start 60
  lsl play today.xdf --streams EEG,Markers --loop
  lsl play --identity key.txt today.xdf.age      nothing of it is written in plain
  lsl play today.xdf --wait                      for tests: nothing is sent unseen

Streams keep name, type, format, rate, metadata and source id: receivers cannot tell them from the
device, so do not play on the network of the device itself (--session, --loopback). They play on one
time line, the recorder's clock by the measured offsets. Timestamps are those of the recording moved
to now: distances stay as they were, divided by --speed. Delays do not add up.";

impl Play {
    pub(crate) fn run(&self, context: &Context) -> Outcome {
        let named = |failure: Failure| failure.context(&self.file.display().to_string());
        let stop = Stop::install()?;
        let mut opener = Opener::new(&self.identity, stop.clone())?;
        let summary = Summary::read(opener.open(&self.file, "Looking")?).map_err(named)?;
        let mut timeline = Timeline::new(&summary, &self.chosen(&summary)?)?;
        timeline
            .measure(opener.open(&self.file, "Looking")?)
            .map_err(named)?;
        let Some((begin, end)) = timeline.span() else {
            return Err(named(Failure::NotFound(
                "there are no samples to play".into(),
            )));
        };
        let begin = begin + self.start;
        if begin > end {
            return Err(named(Failure::Usage(format!(
                "--start {} lies behind its end: it has {:.3} s",
                self.start,
                end - (begin - self.start)
            ))));
        }
        for text in timeline.remarks() {
            note(format_args!("lsl: {text}"));
        }

        let outlets = Outlets::open(&timeline, self.speed, context)?;
        for info in outlets.infos() {
            note(format_args!(
                "Playing '{}' [{}]: {} x {}, {}",
                printable(&info.name()),
                printable(&info.stream_type()),
                info.channel_count(),
                info.channel_format(),
                rate(info.nominal_srate()),
            ));
        }
        encryption::readers(context).into_iter().for_each(note);
        if self.wait {
            note("Waiting for receivers.");
        }
        while self.wait && !stop.requested() && !outlets.wait(LONGEST_NAP) {}

        let mut clock = PlaybackClock {
            start: local_clock() + LEAD_SECS,
            begin,
            speed: self.speed,
        };
        let mut played = 0;
        while !stop.requested() {
            let source = opener.open(&self.file, "Playing")?;
            let mut feed = Feed::new(source, timeline.clone(), begin);
            let ended = play_once(&mut feed, &outlets, &clock, &stop, &mut played);
            match ended {
                // Stopping ends the reading with an error, too.
                Err(_) if stop.requested() => break,
                Err(failure) => return Err(named(failure)),
                Ok(()) => {}
            }
            if !self.repeat {
                break;
            }
            // The distance between the last sample and the first one is that between samples.
            clock.start = clock.time_of(end + timeline.longest_interval());
        }
        drain(outlets.iter());
        note(format_args!(
            "Played {played} samples of {}.",
            count(outlets.len(), "stream")
        ));
        Ok(())
    }

    /// Returns the numbers of the streams to play.
    fn chosen(&self, summary: &Summary) -> Outcome<Vec<u32>> {
        if self.streams.is_empty() {
            return Ok(summary.streams.keys().copied().collect());
        }
        let mut chosen = Vec::new();
        for text in &self.streams {
            let number: Option<u32> = text.parse().ok();
            let found = summary.streams.iter().filter(|(id, stream)| {
                Some(**id) == number || stream.header.name() == text.as_str()
            });
            let before = chosen.len();
            chosen.extend(found.map(|(&id, _)| id));
            if chosen.len() == before {
                return Err(Failure::NotFound(format!(
                    "{}: there is no stream '{text}'; lsl xdf info shows them",
                    self.file.display()
                )));
            }
        }
        chosen.sort_unstable();
        chosen.dedup();
        Ok(chosen)
    }
}

/// Mapping from the time of the recording to ours.
#[derive(Debug, Clone)]
struct PlaybackClock {
    /// Time at which `begin` plays, on `local_clock`.
    start: f64,
    begin: f64,
    speed: f64,
}

impl PlaybackClock {
    fn time_of(&self, recorded: f64) -> f64 {
        self.start + (recorded - self.begin) / self.speed
    }

    fn recorded_at(&self, now: f64) -> f64 {
        self.begin + (now - self.start) * self.speed
    }
}

fn play_once(
    feed: &mut Feed,
    outlets: &Outlets,
    clock: &PlaybackClock,
    stop: &Stop,
    played: &mut u64,
) -> Outcome {
    while let Some(due) = feed.next_due()? {
        // Streams at high rates are sent in pieces of a millisecond.
        let wake = clock.time_of(due).max(local_clock() + SHORTEST_NAP_SECS);
        if !stop.sleep_until(wake) {
            break;
        }
        feed.take_due(clock.recorded_at(local_clock()), |stream, piece| {
            *played += piece.stamps.len() as u64;
            let stamps: Vec<f64> = piece.stamps.iter().map(|&at| clock.time_of(at)).collect();
            outlets.push(stream, &stamps, piece.values, piece.range)
        })?;
    }
    Ok(())
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (0.001..=1000.0).contains(&factor) => Ok(factor),
        Ok(_) => Err("between 0.001 and 1000, please".into()),
        Err(_) => Err("not a number".into()),
    }
}

const SHORTEST_NAP_SECS: f64 = 0.001;
/// Delay before the first sample, in seconds, so that it is not late.
const LEAD_SECS: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_divided_by_the_speed() {
        let clock = PlaybackClock {
            start: 1000.0,
            begin: 50.0,
            speed: 4.0,
        };
        for recorded in [50.0, 51.0, 1e4] {
            let time = clock.time_of(recorded);
            assert!((clock.recorded_at(time) - recorded).abs() < 1e-9);
        }
        assert!((clock.time_of(54.0) - 1001.0).abs() < 1e-9);
    }

    #[test]
    fn speeds() {
        assert_eq!(factor("2"), Ok(2.0));
        for text in ["0", "-1", "inf", "nan", "fast"] {
            assert!(factor(text).is_err(), "{text}");
        }
    }
}
