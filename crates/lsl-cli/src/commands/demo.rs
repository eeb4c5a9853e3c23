//! `lsl demo`: everything at work in ten seconds, without a device, a network or any privilege.
//!
//! A 64-channel EEG and a marker stream go out through real sockets on the loopback interface, are
//! found by a real search and received back. One EEG channel carries the sample number, so that
//! "nothing was lost" is counted, not believed.

mod meter;
mod view;

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use lsl_core::config::Config;
use lsl_core::{ChannelFormat, Context, Inlet, Outlet, Selector, StreamInfo, Timeout, local_clock};

use self::meter::{Meter, Reading};
use self::view::View;
use crate::failure::{Failure, Outcome};
use crate::interrupt::{LONGEST_NAP, Stop};
use crate::signal::pace::Pace;
use crate::signal::pattern::{Eeg, add_channels};
use crate::streams::link::drain;
use crate::streams::select::seconds;
use crate::ui::text::printable;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Demo {
    /// How long to stream
    #[arg(long, value_name = "SECS", default_value = "10", value_parser = seconds)]
    duration: f64,

    /// Print one JSON object at the end instead of the table
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  lsl demo                  ten seconds of EEG, received live
  lsl demo --duration 3600  leave it on for an hour; Ctrl-C ends it with the summary
  lsl demo --duration 3 --json | jq .lost

Uses the loopback interface only, whatever the configuration says: nothing is sent to the network.
Latency is one way, from the push to the pull, on the same clock. Lost samples are counted by the
sample numbers that the last EEG channel and the markers carry.
Exit status 4 when a sample was lost.";

/// Stream of the demo, with its counts.
struct DemoStream {
    inlet: Inlet,
    meter: Meter,
    /// Samples sent, or [`UNKNOWN`] until all are.
    sent: AtomicU64,
}

impl Demo {
    pub(crate) fn run(&self) -> Outcome {
        let context = Context::new(private_config()?);
        let eeg = Outlet::builder(eeg_info()?).context(&context).open()?;
        let markers = Outlet::builder(marker_info()?).context(&context).open()?;

        let searched = local_clock();
        let found = context.resolve_blocking(&Selector::all(), 2, SEARCH_LIMIT)?;
        let search_secs = local_clock() - searched;
        let lines = [
            open_line(&context, &found, &eeg)?,
            open_line(&context, &found, &markers)?,
        ];

        let stop = Stop::install()?;
        let start = local_clock();
        let mut view = View::new(self.json, start, self.duration, search_secs);
        view.begin()?;
        let result = thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let result = send(&eeg, &markers, start, self.duration, &stop, &lines);
                // Without a number of samples sent, the receivers would wait for ever.
                for line in &lines {
                    let _ = line.sent.compare_exchange(
                        UNKNOWN,
                        line.meter.received(),
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                }
                result
            });
            let [eeg_line, marker_line] = &lines;
            let receivers = [
                scope.spawn(|| receive_eeg(eeg_line)),
                scope.spawn(|| receive_markers(marker_line)),
            ];
            let mut shown = Ok(());
            while !(sender.is_finished()
                && receivers.iter().all(thread::ScopedJoinHandle::is_finished))
            {
                thread::sleep(view.period());
                shown = view.update(|| lines.each_ref().map(DemoStream::reading));
                if shown.is_err() {
                    stop.request();
                }
            }
            let joined = [join(sender)].into_iter().chain(receivers.map(join));
            joined.fold(shown.map_err(Failure::from), Result::and)
        });
        result?;
        let readings = lines.each_ref().map(DemoStream::reading);
        view.finish(&readings, local_clock() - start)?;
        let lost: u64 = readings
            .iter()
            .map(|reading| reading.lost + reading.repeated)
            .sum();
        if lost > 0 {
            return Err(Failure::Lost(format!(
                "{lost} samples were lost or out of order"
            )));
        }
        Ok(())
    }
}

impl DemoStream {
    fn reading(&self) -> Reading {
        let sent = self.sent.load(Ordering::Relaxed);
        let clock = self.inlet.blocking().time_correction(Timeout::NOW).ok();
        self.meter
            .reading(self.inlet.info(), (sent != UNKNOWN).then_some(sent), clock)
    }

    /// Returns whether all samples are there, or the wait for the last ones is over.
    fn is_complete(&self, since_end: &mut Option<f64>) -> bool {
        let sent = self.sent.load(Ordering::Relaxed);
        if sent == UNKNOWN {
            return false;
        }
        let end = *since_end.get_or_insert_with(local_clock);
        self.meter.expects() >= sent || local_clock() - end > LAST_SAMPLES_SECS
    }
}

/// Configures loopback only, in a session and on ports of our own: a demo neither disturbs the
/// streams of this machine nor is disturbed by them.
fn private_config() -> Outcome<Config> {
    let mut config = Config::loopback();
    let free = UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?.port();
    config.set_ports(free.min(u16::MAX - PORT_RANGE), PORT_RANGE);
    config.set_session_id(&format!("lsl-demo-{}", std::process::id()))?;
    Ok(config)
}

fn eeg_info() -> Outcome<StreamInfo> {
    let mut info = StreamInfo::new(
        "Demo-EEG",
        "EEG",
        CHANNELS,
        RATE,
        ChannelFormat::Float32,
        format!("lsl-demo-eeg-{}", std::process::id()),
    )?;
    add_channels(&mut info, "EEG", "microvolts");
    Ok(info)
}

fn marker_info() -> Outcome<StreamInfo> {
    let source_id = format!("lsl-demo-markers-{}", std::process::id());
    let (name, kind) = ("Demo-Markers", "Markers");
    Ok(StreamInfo::new(
        name,
        kind,
        1,
        0.0,
        ChannelFormat::String,
        source_id,
    )?)
}

/// Connects to the stream of this outlet, as it was found.
fn open_line(context: &Context, found: &[StreamInfo], outlet: &Outlet) -> Outcome<DemoStream> {
    let own = |info: &&StreamInfo| info.uid_bytes() == outlet.info().uid_bytes();
    let info = found.iter().find(own).ok_or_else(|| {
        Failure::NotFound(
            "the demo's own stream was not found on 127.0.0.1; does something block UDP on the \
             loopback interface? (-vv shows the search)"
                .into(),
        )
    })?;
    let inlet = Inlet::builder(info).context(context).create()?;
    inlet
        .blocking()
        .open(SEARCH_LIMIT)
        .map_err(|error| Failure::from(error).context("connecting over loopback"))?;
    // Starts the measurement; the value is asked for later.
    let _ = inlet.blocking().time_correction(Timeout::NOW);
    Ok(DemoStream {
        inlet,
        meter: Meter::new(),
        sent: AtomicU64::new(UNKNOWN),
    })
}

/// Sends both streams on time until the end. Stores the numbers of samples sent in the lines.
#[expect(
    clippy::cast_possible_truncation,
    reason = "microvolts need no 53 bits"
)]
fn send(
    eeg: &Outlet,
    markers: &Outlet,
    start: f64,
    duration: f64,
    stop: &Stop,
    [eeg_line, marker_line]: &[DemoStream; 2],
) -> Outcome {
    let mut pace = Pace::new(start, 1.0 / RATE);
    let mut marker_pace = Pace::new(start, MARKER_PERIOD_SECS);
    let mut source = Eeg::new(RATE);
    let mut values = [0.0_f32; CHANNELS as usize];
    let end = start + duration;
    loop {
        let wake = pace.next_time(1).min(marker_pace.next_time(1));
        if wake >= end || !stop.sleep_until(wake) {
            break;
        }
        // A late wake-up catches up, but never past the end: a duration is a number of samples.
        let now = local_clock().min(end.next_down());
        for _ in 0..pace.due(now) {
            let number = pace.done();
            for (channel, value) in values.iter_mut().enumerate() {
                *value = source.value(number, channel) as f32;
            }
            if let Some(last) = values.last_mut() {
                *last = (number % COUNTER_MODULUS) as f32;
            }
            eeg.push(&values)?;
            pace.advance(1);
        }
        for _ in 0..marker_pace.due(now) {
            markers.push(&[marker_pace.done().to_string()])?;
            marker_pace.advance(1);
        }
    }
    eeg_line.sent.store(pace.done(), Ordering::Relaxed);
    marker_line
        .sent
        .store(marker_pace.done(), Ordering::Relaxed);
    drain([eeg, markers]);
    Ok(())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the sender made it from a small whole number"
)]
fn receive_eeg(line: &DemoStream) -> Outcome {
    let mut values = [0.0_f32; CHANNELS as usize];
    let mut since_end = None;
    while !line.is_complete(&mut since_end) {
        if let Some(stamp) = line.inlet.blocking().pull(&mut values, LONGEST_NAP)? {
            let latency_secs = local_clock() - stamp;
            let number = values.last().map_or(0, |last| *last as u64);
            line.meter.add(
                number,
                COUNTER_MODULUS,
                latency_secs,
                values.get(SHOWN_CHANNEL),
            );
        }
    }
    Ok(())
}

fn receive_markers(line: &DemoStream) -> Outcome {
    let mut values = [String::new()];
    let mut since_end = None;
    while !line.is_complete(&mut since_end) {
        if let Some(stamp) = line.inlet.blocking().pull(&mut values, LONGEST_NAP)? {
            let latency_secs = local_clock() - stamp;
            let [text] = &values;
            let number = text.parse().map_err(|_| {
                Failure::Lost(format!(
                    "a marker was changed on the way: '{}'",
                    printable(text)
                ))
            })?;
            line.meter.add(number, u64::MAX, latency_secs, None);
        }
    }
    Ok(())
}

fn join(thread: thread::ScopedJoinHandle<'_, Outcome>) -> Outcome {
    let panicked = || {
        Err(Failure::from(io::Error::other(
            "a thread of the demo panicked",
        )))
    };
    thread.join().unwrap_or_else(|_| panicked())
}

const CHANNELS: u32 = 64;
const RATE: f64 = 500.0;
const MARKER_PERIOD_SECS: f64 = 0.5;
/// Modulus of sample numbers: float32 counts exactly up to here.
const COUNTER_MODULUS: u64 = 1 << 24;
/// Channel whose curve is drawn: Fz.
const SHOWN_CHANNEL: usize = 4;
const PORT_RANGE: u16 = 16;
const SEARCH_LIMIT: Duration = Duration::from_secs(5);
/// Longest wait for samples that were sent, in seconds.
const LAST_SAMPLES_SECS: f64 = 1.0;
const UNKNOWN: u64 = u64::MAX;
