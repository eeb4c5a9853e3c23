//! The inlets' process: one thread for each inlet pulls, checks the numbers, and times the samples.

use std::io::Write;
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;

use lsl_cli::failure::{Failure, Outcome};
use lsl_core::local_clock;

use super::super::backend::Receiver;
use super::super::gaps::GapDetector;
use super::super::job::{ChildEvent, Counted, Job, Order, Pull, Ready, Report, Speed};
use super::super::number::{Number, Numbering};
use super::super::stats::{buckets, mean_latency, percentile, sorted_latencies};
use super::super::usage::{EverySecond, Holdings, Usage, peak_rss_mib};
use super::{Orders, tell};

pub(super) fn run<T: Number>(job: &Job, orders: &Orders) -> Outcome {
    let before = Holdings::now();
    let (receivers, encrypted) = Receiver::open_all(job)?;
    let control = job.control.as_ref().map(TcpStream::connect).transpose()?;
    tell(&ChildEvent::Ready(Ready {
        encrypted,
        ..Ready::default()
    }))?;
    let race = Race {
        total: AtomicU64::new(job.total().unwrap_or(u64::MAX)),
        begun: OnceLock::new(),
        // And this thread.
        end: Barrier::new(job.readers as usize + 1),
    };
    let pushed = |order| match order {
        Order::Pushed(total) => Some(total),
        _ => None,
    };
    if job.read_last {
        race.total.store(orders.expect(pushed)?, Ordering::Release);
    }
    let seconds = EverySecond::start();
    let (readings, peak, after) = thread::scope(|scope| {
        let mut control = control;
        let threads: Vec<_> = (0..)
            .zip(receivers)
            .map(|(index, receiver)| {
                let (control, race) = (control.take(), &race);
                scope.spawn(move || {
                    let reading = read_all::<T>(job, index, receiver, race, control);
                    race.end.wait();
                    reading
                })
            })
            .collect();
        if !job.read_last
            && let Ok(total) = orders.expect(pushed)
        {
            race.total.store(total, Ordering::Release);
        }
        // While all is still open and every thread lives.
        let peak = seconds.peak_percent();
        let after = Holdings::now();
        race.end.wait();
        let readings: Outcome<Vec<Reading>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
            .collect();
        (readings, peak, after)
    });
    let readings = readings?;
    let mut report = summarise(job, &readings, &race);
    let (threads, descriptors) = (job.readers as usize, usize::from(job.window.is_some()));
    let started = |after: Option<usize>, before: Option<usize>, own| {
        Some(after?.saturating_sub(before?).saturating_sub(own) as f64)
    };
    let held = [
        ("inlet_cpu_peak_percent", peak),
        ("inlet_rss_mib", peak_rss_mib()),
        // The pulling threads are the application's.
        (
            "inlet_threads",
            started(after.threads, before.threads, threads),
        ),
        (
            "inlet_fds",
            started(after.descriptors, before.descriptors, descriptors),
        ),
    ];
    for (name, value) in held {
        if let Some(value) = value {
            report.values.insert(name.into(), value);
        }
    }
    tell(&ChildEvent::Report(report))
}

fn panicked() -> Failure {
    Failure::Runtime("a reading thread failed".into())
}

/// State that the reading threads share.
struct Race {
    /// Samples that are or will be pushed; `u64::MAX` until that is known.
    total: AtomicU64,
    /// When the first of them reached the measured part: the time, and what had been used.
    begun: OnceLock<(f64, Usage)>,
    /// No thread ends before all are done: its usage would be forgotten.
    end: Barrier,
}

impl Race {
    fn begin(&self) {
        self.begun.get_or_init(|| (local_clock(), Usage::now()));
    }
}

/// Samples that one reader received.
struct Reading {
    detector: GapDetector,
    /// Latencies in microseconds by number, from the first measured sample on; NaN where none came.
    latencies: Vec<f32>,
    ended: f64,
    used: Usage,
}

fn read_all<T: Number>(
    job: &Job,
    index: u32,
    receiver: Receiver,
    race: &Race,
    mut control: Option<TcpStream>,
) -> Outcome<Reading> {
    // It lives on to be counted; the process ends without it.
    let mut receiver = ManuallyDrop::new(receiver);
    let channels = job.channels as usize;
    let numbering = Numbering::of::<T>(channels);
    let most = match job.pull {
        Pull::Sample => 1,
        Pull::Chunk => usize::try_from(job.batch).unwrap_or(1).max(1),
    };
    let (mut values, mut stamps) = (vec![T::default(); channels * most], vec![0.0; most]);
    let mut detector = GapDetector::new(index, job.warm_up, numbering.modulus);
    let mut latencies = latencies_of(job);
    let period_secs = 1.0 / job.nominal_rate();
    let batch = job.batch.max(1);
    // Often enough that the outlet never waits for what will not be said.
    let step = job.window.map_or(u64::MAX, |window| {
        (window / 16).min(window.saturating_sub(job.batch)).max(1)
    });
    // The last of the warm-up, for whose end the outlet waits.
    let warmed_up = job.warm_up.saturating_sub(1);
    let (mut told, mut last, mut ended) = (0, local_clock(), 0.0);
    receiver.begin()?;
    if job.warm_up == 0 {
        race.begin();
    }
    while detector.next() < race.total.load(Ordering::Acquire) {
        // Up to the end of a batch, should one have been missed.
        let chunk = most as u64;
        let wanted = usize::try_from(chunk - detector.next() % chunk).unwrap_or(1);
        let pulled = if most == 1 {
            match receiver.pull(&mut values)? {
                Some(stamp) => {
                    stamps.fill(stamp);
                    1
                }
                None => 0,
            }
        } else {
            let room = values.get_mut(..channels * wanted).unwrap_or_default();
            receiver.pull_chunk(room, stamps.get_mut(..wanted).unwrap_or_default())?
        };
        let now = local_clock();
        let mut expected = detector.next();
        let mut place = expected % batch;
        for (sample, stamp) in values.chunks_exact(channels).zip(&stamps).take(pulled) {
            let number = detector.add(numbering.read(sample));
            // Seldom: a division for each sample would slow down the measured loop.
            if number != expected {
                place = number % batch;
            }
            // A batch has the stamp of its last sample, when it was pushed.
            let pushed = stamp + (batch - 1 - place) as f64 * period_secs;
            expected = number + 1;
            place = if place + 1 == batch { 0 } else { place + 1 };
            detector.pushed(pushed);
            let slot = number.checked_sub(job.warm_up).map(usize::try_from);
            if let Some(Ok(slot)) = slot
                && let Some(latency) = latencies.get_mut(slot)
            {
                *latency = micros(now - pushed);
            }
        }
        if pulled > 0 {
            (last, ended) = (now, now);
        } else if now - last > PATIENCE_SECS {
            break;
        }
        if detector.next() >= job.warm_up {
            race.begin();
        }
        if let Some(control) = &mut control
            && (detector.next() - told >= step || (told..detector.next()).contains(&warmed_up))
        {
            told = detector.next();
            // An outlet that has pushed everything may have closed it.
            let _ = control.write_all(&told.to_be_bytes());
        }
    }
    Ok(Reading {
        detector,
        latencies,
        ended,
        used: Usage::now(),
    })
}

/// Room for the latency of each measured sample, touched, so that none waits for memory. Nothing where
/// samples are not due at a time of their own.
fn latencies_of(job: &Job) -> Vec<f32> {
    let samples = match (job.speed, job.total()) {
        (Speed::Paced(_), Some(total)) => total - job.warm_up,
        _ => 0,
    };
    vec![f32::NAN; usize::try_from(samples).unwrap_or(0)]
}

#[expect(clippy::cast_possible_truncation, reason = "seven digits are enough")]
fn micros(secs: f64) -> f32 {
    (1e6 * secs) as f32
}

fn summarise(job: &Job, readings: &[Reading], race: &Race) -> Report {
    let mut report = Report::default();
    let total = race.total.load(Ordering::Acquire);
    for reading in readings {
        report.received += reading.detector.received;
        report.disorder += reading.detector.disorder;
        report.end = report.end.max(reading.ended);
    }
    if total != u64::MAX {
        let gaps = readings
            .iter()
            .flat_map(|reading| reading.detector.gaps_of(total));
        report.gaps = gaps.collect();
    }
    if let Some((begin, begun)) = race.begun.get() {
        report.begin = *begin;
        let last = readings
            .iter()
            .map(|reading| reading.used)
            .max_by(|a, b| a.cpu_secs.total_cmp(&b.cpu_secs));
        if let Some(used) = last {
            let (cpu_secs, switches) = used.since(*begun);
            report.cpu_secs = Some(cpu_secs);
            report.switches = switches;
        }
    }
    let all = sorted_latencies(
        readings
            .iter()
            .flat_map(|reading| reading.latencies.iter().copied()),
    );
    let slots = readings
        .first()
        .map_or(0, |reading| reading.latencies.len());
    let slowest = sorted_latencies((0..slots).map(|slot| {
        let of_all = readings.iter().filter_map(|r| r.latencies.get(slot));
        // `max` would take a number for one that is missing.
        of_all.fold(f32::NEG_INFINITY, |slowest, latency| {
            if slowest.is_nan() || latency.is_nan() {
                f32::NAN
            } else {
                slowest.max(*latency)
            }
        })
    }));
    let counted = match job.counted {
        Counted::Each => &all,
        Counted::Slowest => &slowest,
    };
    report.histogram = buckets(counted);
    let values = [
        ("latency_p50_us", percentile(counted, 0.5)),
        ("latency_p95_us", percentile(counted, 0.95)),
        ("latency_p99_us", percentile(counted, 0.99)),
        ("latency_max_us", percentile(counted, 1.0)),
        ("latency_mean_us", mean_latency(counted)),
        ("slowest_p50_us", percentile(&slowest, 0.5)),
        ("slowest_p95_us", percentile(&slowest, 0.95)),
        ("slowest_p99_us", percentile(&slowest, 0.99)),
        ("slowest_mean_us", mean_latency(&slowest)),
    ];
    for (name, value) in values {
        if let Some(value) = value {
            report.values.insert(name.into(), value);
        }
    }
    report
}

/// A pause this long ends the stream: samples may be missing, or never come.
const PATIENCE_SECS: f64 = 10.0;
