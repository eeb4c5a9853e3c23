//! `lsl gen`: a stream of made-up data, on time and with metadata.

mod audience;

use clap::Args;
use lsl_core::{ChannelFormat, Context, IRREGULAR_RATE, Outlet, Stamps, StreamInfo, local_clock};

use self::audience::Audience;
use crate::failure::{Failure, Outcome};
use crate::interrupt::{LONGEST_NAP, Stop};
use crate::signal::pace::Pace;
use crate::signal::pattern::{Eeg, Pattern, Synthetic, add_channels};
use crate::streams::encryption;
use crate::streams::link::drain;
use crate::streams::select::seconds;
use crate::ui::notice::note;
use crate::ui::text::{count, rate};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Generate {
    /// Name of the stream
    #[arg(long, value_name = "NAME", default_value = "Test")]
    name: String,

    /// Offer this many streams, NAME-1 and so on, with the same samples at the same times
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    streams: u32,

    /// Content type, such as EEG, Gaze, Markers
    #[arg(long = "type", value_name = "TYPE", default_value = "EEG")]
    stream_type: String,

    /// Values per sample
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    channels: u32,

    /// Samples per second; 0 for an irregular stream
    #[arg(long, value_name = "HZ", default_value_t = 250.0, value_parser = hertz)]
    rate: f64,

    /// Seconds between the samples of an irregular stream
    #[arg(long, value_name = "SECS", default_value_t = 1.0, value_parser = positive_seconds)]
    interval: f64,

    /// float32, double64, string, int32, int16, int8 or int64
    #[arg(long, value_name = "FORMAT", default_value = "float32")]
    format: ChannelFormat,

    /// Identity that outlives restarts; receivers reconnect by it [default: lsl-gen-NAME-HOST].
    /// Of several streams, the number of each follows
    #[arg(long, value_name = "ID")]
    source_id: Option<String>,

    /// End after this many seconds
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    duration: Option<f64>,

    /// End after this many samples
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// What samples contain
    #[arg(long, value_enum, default_value = "eeg")]
    pattern: Pattern,

    /// Send samples in chunks of this many [default: each when it is due]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    chunk: Option<u32>,

    /// Offer a second stream NAME-Markers with one text event a second
    #[arg(long)]
    markers: bool,

    /// Wait for a receiver of each stream before the first sample
    #[arg(long)]
    wait: bool,

    /// Add metadata below desc; may be repeated
    #[arg(long, value_name = "PATH=VALUE", value_parser = metadata)]
    desc: Vec<(Vec<String>, String)>,
}

const EXAMPLES: &str = "\
Examples:
  lsl gen                                            8 channels of EEG at 250 Hz
  lsl gen --name Amp --channels 64 --rate 2000 --chunk 20 --markers
  lsl gen --streams 64 --channels 64 --rate 1000 --chunk 10 --pattern counter
  lsl gen --rate 0 --interval 0.5 --format string --type Markers
  lsl gen --pattern counter --count 1000 --wait      for tests: nothing is sent unseen
  lsl gen --desc manufacturer=Acme --desc acquisition/model=X1

With --pattern counter, sample n carries n in every channel: integers wrap around (int8 127 is
followed by -128), strings are decimal text, float32 is exact up to 16777216. Timestamps of regular
streams are the times at which samples were due, start + n / rate; irregular ones are stamped when
they are sent. Receivers that come and go are reported on stderr.";

impl Generate {
    pub(crate) fn run(&self, context: &Context) -> Outcome {
        match self.format {
            ChannelFormat::Float32 => self.stream::<f32>(context),
            ChannelFormat::Double64 => self.stream::<f64>(context),
            ChannelFormat::String => self.stream::<String>(context),
            ChannelFormat::Int32 => self.stream::<i32>(context),
            ChannelFormat::Int16 => self.stream::<i16>(context),
            ChannelFormat::Int8 => self.stream::<i8>(context),
            ChannelFormat::Int64 => self.stream::<i64>(context),
            ChannelFormat::Undefined => Err(Failure::Usage("--format: not a format".into())),
        }
    }

    fn stream<T: Synthetic>(&self, context: &Context) -> Outcome {
        let open = |number| -> Outcome<Outlet> {
            Ok(Outlet::builder(self.info(number)?)
                .context(context)
                .open()?)
        };
        let outlets: Vec<Outlet> = (1..=self.streams).map(open).collect::<Outcome<_>>()?;
        let markers = self
            .markers
            .then(|| self.marker_outlet(context))
            .transpose()?;
        let stop = Stop::install()?;
        self.announce();
        encryption::readers(context).into_iter().for_each(note);
        let several = |name| (self.streams > 1).then_some(name);
        let mut audiences: Vec<Audience> = (1..=self.streams)
            .map(|number| Audience::new(several(self.name_of(number)).as_deref()))
            .collect();
        for outlet in outlets.iter().filter(|_| self.wait) {
            while !stop.requested() && !outlet.blocking().wait_for_consumers(LONGEST_NAP) {}
        }

        let start = local_clock();
        let mut pace = Pace::new(start, self.period_secs());
        let mut marker_pace = Pace::new(start, MARKER_PERIOD_SECS);
        let mut eeg = Eeg::new(self.rate);
        let mut values = Vec::new();
        let total = self.total();
        while !stop.requested() && pace.done() < total {
            let left = total - pace.done();
            let chunk = self.chunk.map_or(1, u64::from).min(left);
            let look = audiences.first().map_or(f64::INFINITY, Audience::next_look);
            let mut wake = pace.next_time(chunk).min(look);
            if markers.is_some() {
                wake = wake.min(marker_pace.next_time(1));
            }
            if !stop.sleep_until(wake) {
                break;
            }
            let now = local_clock();
            let mut due = pace.due(now).min(left);
            while due >= chunk {
                // Without --chunk everything due goes at once: after a late wake-up, and always at
                // rates that no sleep can follow.
                let count = if self.chunk.is_some() {
                    chunk
                } else {
                    due.min(self.largest_push())
                };
                self.fill::<T>(&mut values, pace.done(), count, &mut eeg);
                let stamp = match self.rate {
                    IRREGULAR_RATE => Stamps::Now,
                    _ => Stamps::Last(pace.time_of(pace.done() + count - 1)),
                };
                for outlet in &outlets {
                    outlet.push_chunk_with(&values, stamp, lsl_core::Pushthrough::Flush)?;
                }
                pace.advance(count);
                due -= count;
            }
            if let Some(markers) = &markers
                && marker_pace.due(now) > 0
            {
                markers.push(&[format!("marker {}", marker_pace.done())])?;
                marker_pace.advance(marker_pace.due(now));
            }
            for (audience, outlet) in audiences.iter_mut().zip(&outlets) {
                audience.look(outlet, now);
            }
        }
        drain(outlets.iter().chain(&markers));
        report(&outlets, pace.done(), local_clock() - start);
        Ok(())
    }

    /// Fills in the values of `count` samples from number `first` on.
    fn fill<T: Synthetic>(&self, values: &mut Vec<T>, first: u64, count: u64, eeg: &mut Eeg) {
        values.clear();
        for number in first..first + count {
            for channel in 0..self.channels as usize {
                values.push(match self.pattern {
                    Pattern::Counter => T::counter(number),
                    Pattern::Eeg => T::analog(eeg.value(number, channel)),
                });
            }
        }
    }

    /// Describes stream `number`, counted from 1.
    fn info(&self, number: u32) -> Outcome<StreamInfo> {
        let mut info = StreamInfo::new(
            self.name_of(number),
            self.stream_type.as_str(),
            self.channels,
            self.rate,
            self.format,
            self.numbered(self.source_id(), number),
        )?;
        let (kind, unit) = match self.pattern {
            Pattern::Eeg => ("EEG", "microvolts"),
            Pattern::Counter => ("COUNT", "samples"),
        };
        add_channels(&mut info, kind, unit);
        for (path, value) in &self.desc {
            let Some((last, parents)) = path.split_last() else {
                continue;
            };
            let mut at = info.desc_mut();
            for parent in parents {
                at = at.into_child(parent);
            }
            at.set(last, value);
        }
        Ok(info)
    }

    fn marker_outlet(&self, context: &Context) -> Outcome<Outlet> {
        let info = StreamInfo::new(
            format!("{}-Markers", self.name),
            "Markers",
            1,
            IRREGULAR_RATE,
            ChannelFormat::String,
            format!("{}-markers", self.source_id()),
        )?;
        Ok(Outlet::builder(info).context(context).open()?)
    }

    fn name_of(&self, number: u32) -> String {
        self.numbered(self.name.clone(), number)
    }

    /// Appends the number of a stream to a text, where there are several streams.
    fn numbered(&self, text: String, number: u32) -> String {
        if self.streams > 1 {
            format!("{text}-{number}")
        } else {
            text
        }
    }

    fn source_id(&self) -> String {
        let host = lsl_platform::process::hostname();
        self.source_id_on(&String::from_utf8_lossy(&host))
    }

    fn source_id_on(&self, host: &str) -> String {
        let usual = || format!("lsl-gen-{}-{host}", self.name);
        self.source_id.clone().unwrap_or_else(usual)
    }

    /// Returns name and source id of the first stream, were it offered by a machine called `host`.
    pub(crate) fn stream_on(&self, host: &str) -> [String; 2] {
        let source_id = self.numbered(self.source_id_on(host), 1);
        [self.name_of(1), source_id]
    }

    fn period_secs(&self) -> f64 {
        if self.rate == IRREGULAR_RATE {
            self.interval
        } else {
            1.0 / self.rate
        }
    }

    /// Returns the number of samples to send in all.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates: more than all is all"
    )]
    fn total(&self) -> u64 {
        // The rest of a period counts as a sample, noise in the division does not.
        let by_time = |secs: f64| (secs / self.period_secs() - 1e-6).ceil() as u64;
        let by_time = self.duration.map_or(u64::MAX, by_time);
        by_time.min(self.count.unwrap_or(u64::MAX))
    }

    /// Returns the most samples of one push, which bounds its memory.
    fn largest_push(&self) -> u64 {
        (LARGEST_PUSH_VALUES / u64::from(self.channels)).max(1)
    }

    fn announce(&self) {
        let names = if self.streams > 1 {
            format!("'{}' to '{}'", self.name_of(1), self.name_of(self.streams))
        } else {
            format!("'{}'", self.name)
        };
        let source_ids = self.numbered(self.source_id(), 1);
        note(format_args!(
            "Streaming {names} [{}]: {} x {}, {}, source id '{source_ids}'{}.{} Try: lsl recv '{}'",
            self.stream_type,
            self.channels,
            self.format,
            rate(self.rate),
            if self.streams > 1 { " and so on" } else { "" },
            if self.total() == u64::MAX {
                " Ctrl-C ends."
            } else {
                ""
            },
            self.name_of(1),
        ));
        if self.wait {
            note("Waiting for a receiver.");
        }
    }
}

fn report(outlets: &[Outlet], samples: u64, secs: f64) {
    let stats: Vec<_> = outlets.iter().map(Outlet::stats).collect();
    let each = if outlets.len() > 1 {
        format!(" on each of {}", count(outlets.len(), "stream"))
    } else {
        String::new()
    };
    note(format_args!(
        "Sent {samples} samples{each} in {secs:.1} s; {} receivers seen, {} samples dropped for slow \
         ones.",
        stats.iter().map(|stats| stats.consumers_seen).sum::<u64>(),
        stats.iter().map(|stats| stats.dropped).sum::<u64>()
    ));
}

fn hertz(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate == 0.0 || (0.001..=1e6).contains(&rate) => Ok(rate.abs()),
        Ok(_) => Err("0 (irregular), or between 0.001 and 1000000".into()),
        Err(_) => Err("not a number".into()),
    }
}

fn positive_seconds(text: &str) -> Result<f64, String> {
    seconds(text).and_then(|secs| {
        if secs >= 0.001 {
            Ok(secs)
        } else {
            Err("at least 0.001 seconds, please".into())
        }
    })
}

/// Reads `a/b=value`. Names become XML elements, so they must be names.
fn metadata(text: &str) -> Result<(Vec<String>, String), String> {
    let (path, value) = text
        .split_once('=')
        .ok_or("no '=' found, write PATH=VALUE")?;
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
    };
    let path: Vec<String> = path.split('/').map(Into::into).collect();
    match path.iter().find(|name| !is_name(name)) {
        Some(name) => Err(format!(
            "'{name}' is no name: letters, digits, _, - and . are"
        )),
        None => Ok((path, value.into())),
    }
}

const MARKER_PERIOD_SECS: f64 = 1.0;
const LARGEST_PUSH_VALUES: u64 = 1 << 16;
#[cfg(test)]
mod tests;
