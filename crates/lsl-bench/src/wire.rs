//! `lsl bench wire`: a cable or Wi-Fi between two network namespaces, as far as time goes. Frames of one device come
//! out of the other as late as the model says, in the order in which they went in. Spec: audit §6.

mod model;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::Stop;
use lsl_cli::ui::notice::note;
use lsl_core::local_clock;
use lsl_platform::tap::{Tap, sleep_exactly};

use self::model::{Direction, Model, Profile};

#[derive(Debug, Args)]
pub(super) struct Wire {
    /// Names of the two devices, which this makes; each may be moved to another namespace
    #[arg(num_args = 2, required = true, value_name = "DEVICE")]
    devices: Vec<String>,

    /// What it is like
    #[arg(long, value_enum, default_value = "cable")]
    profile: Profile,

    /// Milliseconds one way, at least
    #[arg(long, value_name = "MS")]
    delay: Option<f64>,

    /// Milliseconds more on average
    #[arg(long, value_name = "MS")]
    jitter: Option<f64>,

    /// Bits per second, in millions
    #[arg(long, value_name = "MBIT")]
    rate: Option<f64>,

    /// Share of the frames that never arrive
    #[arg(long, value_name = "P", default_value = "0")]
    loss: f64,
}

/// A frame, and when it arrives.
type Frame = (f64, Vec<u8>);

/// Frames of one direction.
#[derive(Debug, Default)]
struct Counts {
    arrived: AtomicU64,
    /// By the model.
    lost: AtomicU64,
    /// Of more than a switch would hold.
    dropped: AtomicU64,
    /// By a device that is down.
    refused: AtomicU64,
}

impl Wire {
    pub(super) fn run(&self) -> Outcome {
        let model = self.model()?;
        let taps = self.devices.iter().map(|name| {
            let made = Tap::create(name);
            let made = made.map_err(|error| Failure::from(error).context(name))?;
            Ok((name, Arc::new(made)))
        });
        let taps = taps.collect::<Outcome<Vec<_>>>()?;
        let [(a, first), (b, second)] = taps.as_slice() else {
            return Err(Failure::Usage("a wire has two ends".into()));
        };
        let stop = Stop::install()?;
        let mut ways = Vec::new();
        for (seed, from, to) in [(1, first, second), (2, second, first)] {
            let counts = Arc::new(Counts::default());
            let (sender, receiver) = sync_channel(MOST_WAITING);
            let direction = Direction::new(model, seed);
            let (from, to, own) = (Arc::clone(from), Arc::clone(to), Arc::clone(&counts));
            thread::spawn(move || take(&from, direction, &sender, &own));
            let own = Arc::clone(&counts);
            thread::spawn(move || give(&to, &receiver, &own));
            ways.push(counts);
        }
        note(format_args!(
            "lsl: {a} and {b} are one wire; Ctrl-C ends it"
        ));
        while !stop.requested() {
            stop.sleep_until(local_clock() + LONG_SECS);
        }
        for (counts, name) in ways
            .iter()
            .zip([format!("{a} to {b}"), format!("{b} to {a}")])
        {
            let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
            note(format_args!(
                "lsl: {name}: {} frames arrived, {} lost, {} dropped, {} refused",
                of(&counts.arrived),
                of(&counts.lost),
                of(&counts.dropped),
                of(&counts.refused)
            ));
        }
        Ok(())
    }

    fn model(&self) -> Outcome<Model> {
        let mut model = self.profile.model();
        if let Some(delay) = self.delay {
            model.delay_secs = delay / 1e3;
            model.most_secs = f64::INFINITY;
        }
        if let Some(jitter) = self.jitter {
            model.jitter_secs = jitter / 1e3;
            model.most_secs = f64::INFINITY;
        }
        if let Some(rate) = self.rate {
            model.bytes_per_sec = rate * 1e6 / 8.0;
        }
        model.loss = self.loss;
        let is_sound = model.delay_secs >= 0.0
            && model.jitter_secs >= 0.0
            && model.bytes_per_sec > 0.0
            && (0.0..1.0).contains(&model.loss);
        if is_sound {
            return Ok(model);
        }
        let text = "--delay and --jitter are 0 or more, --rate above 0, --loss from 0 to 1";
        Err(Failure::Usage(text.into()))
    }
}

/// Takes frames from a device for as long as it is there.
fn take(tap: &Tap, mut direction: Direction, waiting: &SyncSender<Frame>, counts: &Counts) {
    let mut frame = vec![0; LONGEST_FRAME];
    while let Ok(len) = tap.take(&mut frame) {
        let Some(at) = direction.arrival(local_clock(), len) else {
            counts.lost.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let frame = frame.get(..len).unwrap_or_default().to_vec();
        match waiting.try_send((at, frame)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                counts.dropped.fetch_add(1, Ordering::Relaxed);
            }
            Err(TrySendError::Disconnected(_)) => return,
        }
    }
}

/// Gives each frame to the other device at its time.
fn give(tap: &Tap, waiting: &Receiver<Frame>, counts: &Counts) {
    sleep_exactly();
    for (at, frame) in waiting {
        let left = at - local_clock();
        if left > 0.0 {
            thread::sleep(Duration::from_secs_f64(left));
        }
        let count = match tap.give(&frame) {
            Ok(()) => &counts.arrived,
            Err(_) => &counts.refused,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Frames in one direction, some 6 MB.
const MOST_WAITING: usize = 4096;
/// Of a device with the largest MTU.
const LONGEST_FRAME: usize = 1 << 16;
const LONG_SECS: f64 = 3600.0;
