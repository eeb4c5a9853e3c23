//! The outlet's process: pushes numbered samples on time, or as fast as it can, and times the pushes.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::signal::pace::Pace;
use lsl_core::local_clock;

use super::super::backend::{PATIENCE, Sender};
use super::super::job::{ChildEvent, Extent, Job, Order, Ready, Report, Speed};
use super::super::number::{Number, Numbering};
use super::super::stats::{mean_latency, percentile, sorted_latencies};
use super::super::usage::{EverySecond, Holdings, Usage, peak_rss_mib};
use super::{Orders, tell};

pub(super) fn run<T: Number>(job: &Job, orders: &Orders) -> Outcome {
    let before = Holdings::now();
    let mut sender = Sender::open::<T>(job)?;
    let control = job
        .window
        .map(|_| TcpListener::bind(("127.0.0.1", 0)))
        .transpose()?;
    let port = control.as_ref().map(TcpListener::local_addr).transpose()?;
    tell(&ChildEvent::Ready(Ready {
        address: sender.address()?,
        control: port.map(|port| port.to_string()),
        encrypted: 0,
    }))?;
    let arrivals = orders.expect(|order| match order {
        Order::Go(arrivals) => Some(arrivals),
        _ => None,
    })?;
    sender.wait(job.via.consumers(job.readers))?;
    let mut progress = control
        .map(|control| InletProgress::accept(&control))
        .transpose()?;
    let seconds = EverySecond::start();
    let (mut report, begun, pushed) = push_all::<T>(job, &mut sender, progress.as_mut())?;
    if let Some(arrivals) = arrivals.filter(|_| job.read_last) {
        report.end = arrivals.wait_for(pushed)?.max(report.end);
    }
    tell(&ChildEvent::Pushed(pushed))?;
    orders.expect(|order| matches!(order, Order::Finish).then_some(()))?;
    // The cost includes sending queued samples after the last push.
    let (cpu_secs, switches) = Usage::now().since(begun);
    report.cpu_secs = Some(cpu_secs);
    report.switches = switches;
    let peak = seconds.peak_percent();
    let after = Holdings::now();
    let own = usize::from(job.window.is_some());
    let started = |after: Option<usize>, before: Option<usize>, own| {
        Some(after?.saturating_sub(before?).saturating_sub(own) as f64)
    };
    let held = [
        ("outlet_cpu_peak_percent", peak),
        ("outlet_rss_mib", peak_rss_mib()),
        ("outlet_threads", started(after.threads, before.threads, 0)),
        // The connection over which progress comes is ours.
        (
            "outlet_fds",
            started(after.descriptors, before.descriptors, own),
        ),
    ];
    for (name, value) in held {
        if let Some(value) = value {
            report.values.insert(name.into(), value);
        }
    }
    tell(&ChildEvent::Report(report))
}

/// Pushes everything; gives the report so far, what had been used when the measured part began, and
/// how many samples were pushed in all.
fn push_all<T: Number>(
    job: &Job,
    sender: &mut Sender,
    mut progress: Option<&mut InletProgress>,
) -> Outcome<(Report, Usage, u64)> {
    let channels = job.channels as usize;
    let numbering = Numbering::of::<T>(channels);
    let batch = usize::try_from(job.batch).unwrap_or(1).max(1);
    // Values that no format can compress to nothing and none has trouble with.
    let mut values: Vec<T> = (0..channels * batch)
        .map(|index| T::from_digit(index as u64 % 100))
        .collect();
    let pushes = job.total().unwrap_or(0) / batch as u64;
    let mut took = Vec::with_capacity(usize::try_from(pushes).unwrap_or(0));
    let mut report = Report::default();
    let mut begun = Usage::now();
    let pace = match job.speed {
        Speed::Paced(rate) => Some(Pace::new(local_clock() + START_SECS, 1.0 / rate)),
        Speed::Free => None,
    };
    let mut number = 0;
    loop {
        let is_measured = number >= job.warm_up;
        if number == job.warm_up {
            if let Some(progress) = progress.as_deref_mut() {
                progress.wait_for(number)?;
            }
            begun = Usage::now();
            report.begin = local_clock();
        }
        let is_over = match job.extent {
            Extent::Samples(samples) => number >= job.warm_up + samples,
            Extent::Seconds(secs) => is_measured && local_clock() >= report.begin + secs,
        };
        if is_over {
            break;
        }
        for (index, sample) in values.chunks_exact_mut(channels).enumerate() {
            numbering.write(number + index as u64, sample);
        }
        let end = number + batch as u64;
        if let (Some(progress), Some(window)) = (progress.as_deref_mut(), job.window) {
            progress.wait_for(end.saturating_sub(window))?;
        }
        if let Some(pace) = &pace {
            // A batch is pushed when its last sample is there.
            sleep_until(pace.time_of(end));
        }
        let stamp = local_clock();
        sender.push(&values, channels, stamp)?;
        if is_measured && pace.is_some() {
            took.push(micros(local_clock() - stamp));
        }
        number = end;
    }
    report.end = local_clock();
    let mean = mean_latency(&took);
    let took = sorted_latencies(took);
    let pushes = [
        ("push_mean_us", mean),
        ("push_p50_us", percentile(&took, 0.5)),
        ("push_p99_us", percentile(&took, 0.99)),
    ];
    for (name, value) in pushes {
        if let Some(value) = value {
            report.values.insert(name.into(), value);
        }
    }
    Ok((report, begun, number))
}

#[expect(clippy::cast_possible_truncation, reason = "seven digits are enough")]
fn micros(secs: f64) -> f32 {
    (1e6 * secs) as f32
}

fn sleep_until(due: f64) {
    let left = due - local_clock();
    if left > 0.0 {
        thread::sleep(Duration::from_secs_f64(left));
    }
}

/// Progress of the inlet, reported over a connection of its own.
struct InletProgress {
    connection: TcpStream,
    pulled: u64,
}

impl InletProgress {
    fn accept(listener: &TcpListener) -> Outcome<Self> {
        let (connection, _) = listener.accept()?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            connection,
            pulled: 0,
        })
    }

    /// Waits until so many samples were pulled.
    fn wait_for(&mut self, samples: u64) -> Outcome {
        while self.pulled < samples {
            let mut number = [0; 8];
            self.connection.read_exact(&mut number).map_err(|error| {
                Failure::Lost(format!(
                    "the inlet stopped at sample {}, before sample {samples}: {error}",
                    self.pulled
                ))
            })?;
            self.pulled = u64::from_be_bytes(number);
        }
        Ok(())
    }
}

/// Time from the order to the first sample.
const START_SECS: f64 = 0.05;
