//! `lsl recv`: the samples of a stream, for people and for programs.

use std::io::{self, BufWriter, StdoutLock, Write};

use clap::{Args, ValueEnum};
use lsl_core::{
    ChannelFormat, Context, ErrorKind, History, Inlet, InletStats, LostSamples, ProcessingOptions,
    StreamInfo, Timeout, local_clock,
};

use crate::failure::{Failure, Outcome};
use crate::interrupt::{LONGEST_NAP, Stop};
use crate::streams::encryption::{self, Proved};
use crate::streams::link;
use crate::streams::select::{StreamArgs, past, seconds, since};
use crate::ui::notice::note;
use crate::ui::text::{printable, rate};
use crate::ui::value::{Shown, write_csv_text};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Recv {
    #[command(flatten)]
    stream: StreamArgs,

    /// How samples are printed
    #[arg(long, short, value_enum, default_value = "text")]
    output: OutputFormat,

    /// Begin with the past so far back: 10s, 5min, 1h or all. Outlets of lsl-rs have as much as their
    /// RetainSeconds says
    #[arg(long, value_name = "PAST", value_parser = past)]
    history: Option<History>,

    /// Begin so long ago, as 30s or 10min, at a time, as 2026-11-22T08:31:56Z, or with all there is: start. Relays
    /// that keep a history have that; of streams that are over, too
    #[arg(long, value_name = "WHEN", value_parser = since, conflicts_with = "history")]
    since: Option<History>,

    /// End after this many samples
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u64>,

    /// End after this many seconds
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    duration: Option<f64>,

    /// Print timestamps on this host's clock instead of the sender's
    #[arg(long)]
    clocksync: bool,

    /// End with status 4 when the sender goes away instead of waiting until it is back
    #[arg(long)]
    no_recover: bool,
}

/// Format in which samples are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// Timestamp and values, with blanks between
    Text,
    /// Comma separated, with a header line of channel labels
    Csv,
    /// One JSON object a line: t is the timestamp, v the values
    Jsonl,
}

const EXAMPLES: &str = "\
Examples:
  lsl recv BioSemi                              until Ctrl-C
  lsl recv type=EEG --count 5
  lsl recv BioSemi --output csv --duration 60 > minute.csv
  lsl recv type=Markers -o jsonl | jq -r .v[0]
  lsl recv BioSemi --history 10s                what happened before, too
  lsl recv BioSemi --since 10min                the same, also from a relay that keeps it on disk

Floats are printed with the fewest digits that read back as the same number; in JSON, what is no
finite number is the text \"nan\", \"inf\" or \"-inf\". Strings that are no UTF-8 are repaired. A stream
with a source id is found again when its sender restarts. What was lost is reported on stderr.
Exit status 4 when the stream is lost for good.";

impl Recv {
    pub(crate) fn run(&self, context: &Context) -> Outcome {
        if self.since.is_some() {
            context.include_past();
        }
        let info = self.stream.find(context)?;
        if info.channel_count() == 0 {
            return Err(Failure::Usage(
                "the stream has no channels, there is nothing to receive".into(),
            ));
        }
        let processing = if self.clocksync {
            ProcessingOptions::CLOCKSYNC
        } else {
            ProcessingOptions::NONE
        };
        let mut builder = Inlet::builder(&info)
            .context(context)
            .processing(processing)
            .recover(!self.no_recover && !self.is_over(&info))
            // The end of one that is over comes at once.
            .samples_first(self.is_over(&info));
        if let Some(past) = self.history.or(self.since) {
            builder = builder.history(past);
        }
        let inlet = builder.create()?;
        match link::open(&inlet, self.stream.timeout()) {
            // All of it came before anybody could look.
            Err(Failure::Lost(_)) if inlet.has_ended() => {}
            opened => opened.map_err(|failure| failure.context("connecting to the stream"))?,
        }
        let stop = Stop::install()?;
        note(format_args!(
            "Receiving {} from {}: {} x {}, {}. Ctrl-C ends.",
            printable(&info.name()),
            printable(&info.hostname()),
            info.channel_count(),
            info.channel_format(),
            rate(info.nominal_srate())
        ));
        match inlet.encryption().map(Proved::from) {
            Some(proved) => note(format_args!(
                "Encrypted: {}.",
                encryption::sentence(&proved)
            )),
            None => encryption::plaintext_warning(context)
                .into_iter()
                .for_each(note),
        }
        match info.channel_format() {
            ChannelFormat::Float32 => self.receive::<f32>(&inlet, &stop),
            ChannelFormat::Double64 => self.receive::<f64>(&inlet, &stop),
            ChannelFormat::String => self.receive::<Vec<u8>>(&inlet, &stop),
            ChannelFormat::Int32 => self.receive::<i32>(&inlet, &stop),
            ChannelFormat::Int16 => self.receive::<i16>(&inlet, &stop),
            ChannelFormat::Int8 => self.receive::<i8>(&inlet, &stop),
            ChannelFormat::Int64 => self.receive::<i64>(&inlet, &stop),
            ChannelFormat::Undefined => {
                Err(Failure::Usage("the stream has no channel format".into()))
            }
        }
    }

    /// Whether only the past is left of a stream.
    fn is_over(&self, info: &StreamInfo) -> bool {
        self.since.is_some() && info.relay_advert().is_some_and(|it| it.ended.is_some())
    }

    fn receive<T: Shown>(&self, inlet: &Inlet, stop: &Stop) -> Outcome {
        let mut sink = Sink {
            out: BufWriter::new(io::stdout().lock()),
            output: self.output,
        };
        if self.output == OutputFormat::Csv {
            sink.header(&labels(inlet, self.stream.timeout()))?;
        }
        let start = local_clock();
        let mut received = 0;
        let result = self.copy::<T>(inlet, stop, start, &mut sink, &mut received);
        let summary = SampleSummary {
            received,
            secs: local_clock() - start,
            stats: inlet.stats(),
        };
        note(summary.line());
        result
    }

    fn copy<T: Shown>(
        &self,
        inlet: &Inlet,
        stop: &Stop,
        start: f64,
        sink: &mut Sink<'_>,
        received: &mut u64,
    ) -> Outcome {
        let channels = inlet.info().channel_count() as usize;
        let batch = (BATCH_VALUES / channels).max(1);
        let mut values = vec![T::default(); batch * channels];
        let mut stamps = vec![0.0; batch];
        let end = self.duration.map_or(f64::INFINITY, |secs| start + secs);
        let mut watch = Watch::default();
        while !stop.requested() && local_clock() < end {
            let wanted = self.count.unwrap_or(u64::MAX) - *received;
            // Saturates: more than a batch is a batch.
            let batch = usize::try_from(wanted).unwrap_or(usize::MAX).min(batch);
            if batch == 0 {
                break;
            }
            let values = &mut values[..batch * channels];
            let taken = match take(inlet, values, &mut stamps[..batch], channels, end) {
                Ok(taken) => taken,
                Err(error) if error.kind() == ErrorKind::Timeout => {
                    watch.clock_is_silent();
                    0
                }
                Err(error) => {
                    watch.look(&inlet.stats(), &inlet.take_gaps(usize::MAX));
                    watch.look_at_encryption(inlet.last_security_error());
                    if error.kind() == ErrorKind::Lost && inlet.has_ended() {
                        note("The stream is over, and this was all of it.");
                        return Ok(());
                    }
                    return Err(error.into());
                }
            };
            for (sample, stamp) in values.chunks_exact(channels).zip(&stamps).take(taken) {
                sink.sample(*stamp, sample)?;
            }
            if taken > 0 {
                *received += taken as u64;
                // Pipes stay live, and a batch costs one write.
                sink.out.flush()?;
            }
            watch.look(&inlet.stats(), &inlet.take_gaps(usize::MAX));
            watch.look_at_encryption(inlet.last_security_error());
        }
        Ok(())
    }
}

/// Waits for a sample, then takes those that are there with it. Returns their number.
fn take<T: Shown>(
    inlet: &Inlet,
    values: &mut [T],
    stamps: &mut [f64],
    channels: usize,
    end: f64,
) -> lsl_core::Result<usize> {
    let nap = Timeout::from_secs((end - local_clock()).min(LONGEST_NAP.as_secs_f64()));
    let (first, rest) = values.split_at_mut(channels);
    let Some(stamp) = inlet.blocking().pull(first, nap)? else {
        return Ok(0);
    };
    let Some((first_stamp, rest_stamps)) = stamps.split_first_mut() else {
        return Ok(0);
    };
    *first_stamp = stamp;
    if rest.is_empty() {
        return Ok(1);
    }
    match inlet.try_pull_chunk(rest, Some(rest_stamps)) {
        Ok(more) => Ok(1 + more),
        // The next call reports it again; the first sample must not be lost for it.
        Err(_) => Ok(1),
    }
}

/// Destination of samples: standard output, buffered.
struct Sink<'a> {
    out: BufWriter<StdoutLock<'a>>,
    output: OutputFormat,
}

impl Sink<'_> {
    fn header(&mut self, labels: &[String]) -> io::Result<()> {
        write!(self.out, "time")?;
        for label in labels {
            write!(self.out, ",")?;
            write_csv_text(label, &mut self.out)?;
        }
        writeln!(self.out)
    }

    fn sample<T: Shown>(&mut self, stamp: f64, values: &[T]) -> io::Result<()> {
        write_sample(&mut self.out, self.output, stamp, values)
    }
}

fn write_sample<T: Shown>(
    out: &mut impl Write,
    output: OutputFormat,
    stamp: f64,
    values: &[T],
) -> io::Result<()> {
    match output {
        OutputFormat::Text => {
            write!(out, "{stamp:.6} ")?;
            for value in values {
                out.write_all(b" ")?;
                value.write_text(out)?;
            }
        }
        OutputFormat::Csv => {
            stamp.write_csv(out)?;
            for value in values {
                out.write_all(b",")?;
                value.write_csv(out)?;
            }
        }
        OutputFormat::Jsonl => {
            out.write_all(b"{\"t\":")?;
            stamp.write_json(out)?;
            out.write_all(b",\"v\":[")?;
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.write_all(b",")?;
                }
                value.write_json(out)?;
            }
            out.write_all(b"]}")?;
        }
    }
    out.write_all(b"\n")
}

/// Returns the labels of the channels; numbers where the stream gives none.
fn labels(inlet: &Inlet, timeout: Timeout) -> Vec<String> {
    let full = inlet.blocking().full_info(timeout);
    let full = full.as_ref().unwrap_or_else(|_| inlet.info());
    let mut given = full
        .desc_ref()
        .and_then(|desc| desc.child("channels"))
        .into_iter()
        .flat_map(|channels| channels.children_named("channel"))
        .map(|channel| channel.get("label").map(|label| label.trim().to_owned()));
    (1..=inlet.info().channel_count())
        .map(|number| {
            let label = given.next().flatten().filter(|label| !label.is_empty());
            label.unwrap_or_else(|| format!("ch{number}"))
        })
        .collect()
}

/// Reports trouble of a stream while it goes on.
#[derive(Debug, Default)]
struct Watch {
    dropped: u64,
    reconnects: u64,
    resumed: u64,
    clock_reported: bool,
    /// Reason why encryption keeps us from the stream, as reported last.
    refused: Option<String>,
}

impl Watch {
    fn look(&mut self, stats: &InletStats, gaps: &[LostSamples]) {
        for gap in gaps {
            if let Some(lost) = gap.lost {
                let after = gap
                    .stamp_before
                    .map_or_else(String::new, |stamp| format!(" after {stamp:.6}"));
                note(format_args!(
                    "{lost} samples are missing{after}: {}.",
                    gap.reason
                ));
            }
        }
        if stats.resumed > self.resumed {
            // Losses of this look have lines of their own.
            let end = if gaps.is_empty() {
                " Nothing is lost."
            } else {
                ""
            };
            note(format_args!(
                "The connection broke and was made again.{end}"
            ));
        } else if stats.reconnects > self.reconnects {
            note(format_args!(
                "The stream was lost and found again ({}).",
                stats.reconnects
            ));
        }
        if stats.dropped > 0 && self.dropped == 0 {
            note("Samples are dropped: the output is not read fast enough.");
        }
        (self.reconnects, self.resumed) = (stats.reconnects, stats.resumed);
        self.dropped = stats.dropped;
    }

    fn look_at_encryption(&mut self, refused: Option<String>) {
        if refused.is_some() && refused != self.refused {
            let reason = refused.as_deref().unwrap_or_default();
            note(format_args!("No samples: {}", printable(reason)));
            self.refused = refused;
        }
    }

    fn clock_is_silent(&mut self) {
        if !std::mem::replace(&mut self.clock_reported, true) {
            note("--clocksync: the stream's clock service does not answer; samples wait for it.");
        }
    }
}

/// Totals for the last line on stderr.
struct SampleSummary {
    received: u64,
    secs: f64,
    stats: InletStats,
}

impl SampleSummary {
    fn line(&self) -> String {
        let Self {
            received,
            secs,
            stats,
        } = self;
        // Over less than a second a rate says more about the connection than about the stream.
        let rate = (*secs >= 1.0).then(|| format!(" ({:.1} per second)", *received as f64 / secs));
        format!(
            "Received {received} samples in {secs:.1} s{}; {} dropped here, {} reconnects.",
            rate.unwrap_or_default(),
            stats.dropped,
            stats.reconnects
        )
    }
}

/// Most values that are pulled at once.
const BATCH_VALUES: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T: Shown>(values: &[T], text: &str, csv: &str, jsonl: &str) {
        let outputs = [
            (OutputFormat::Text, text),
            (OutputFormat::Csv, csv),
            (OutputFormat::Jsonl, jsonl),
        ];
        for (output, expected) in outputs {
            let mut out = Vec::new();
            write_sample(&mut out, output, 1234.5, values).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), format!("{expected}\n"));
        }
    }

    #[test]
    fn lines() {
        check(
            &[1_i8, -2],
            "1234.500000  1 -2",
            "1234.5,1,-2",
            "{\"t\":1234.5,\"v\":[1,-2]}",
        );
        check(
            &[f32::NAN, 0.25],
            "1234.500000  nan 0.25",
            "1234.5,nan,0.25",
            "{\"t\":1234.5,\"v\":[\"nan\",0.25]}",
        );
        check(
            &[b"a,b".to_vec()],
            "1234.500000  a,b",
            "1234.5,\"a,b\"",
            "{\"t\":1234.5,\"v\":[\"a,b\"]}",
        );
    }
}
