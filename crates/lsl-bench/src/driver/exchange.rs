//! One measurement: the outlet's and the inlets' process, and what both report.

use lsl_cli::failure::Failure;
use lsl_cli::interrupt::Stop;

use super::{Benchmark, MIB, bytes_of};
use crate::child::Child;
use crate::job::{ChildEvent, Extent, Job, Order, Ready, Report, Speed, Task};
use crate::library::{ENDPOINT, Library};
use crate::result::Measurement;
use crate::sandbox::Sandbox;
use crate::turn_error::{TurnError, must_encrypt};
use crate::via::Between;

/// Reports of the two processes.
#[derive(Debug)]
pub(crate) struct Sides {
    pub(crate) outlet: Report,
    pub(crate) inlet: Report,
    /// Samples that were pushed and counted, without warm-up.
    pub(crate) samples: u64,
    /// Processor time of the processes between, by their names.
    pub(crate) between: Vec<(&'static str, f64)>,
}

/// Runs the two processes of one turn to their reports.
pub(super) fn exchange(
    sandbox: &Sandbox,
    stop: &Stop,
    job: &Job,
    subject: &Library,
) -> Result<Sides, TurnError> {
    let environment = sandbox.environment(job.secure);
    let ready = |child: &mut Child| match child.hear(stop, CONNECT_SECS)? {
        ChildEvent::Ready(ready) => Ok::<Ready, Failure>(ready),
        other => Err(unexpected(other)),
    };
    let mut outlet = Child::spawn(ENDPOINT, &environment)?;
    outlet.say(&Task::Outlet(job.clone()))?;
    let found = ready(&mut outlet).map_err(|failure| failure.context("outlet"))?;
    let between = Between::start(sandbox, job)?;
    let mut inlet = Child::spawn(ENDPOINT, &between.environment(sandbox, job.secure)?)?;
    inlet.say(&Task::Inlet(Job {
        address: found.address,
        control: found.control,
        store: between.store(),
        ..job.clone()
    }))?;
    let opened = ready(&mut inlet).map_err(|failure| failure.context("inlet"))?;
    must_encrypt(subject, opened.encrypted.into(), job.readers.into())?;
    let before = between.cpu_secs();
    outlet.say(&Order::Go(between.arrivals))?;
    let limit = PUSH_SECS + 20.0 * expected_secs(job);
    let pushed = match outlet.hear(stop, limit)? {
        ChildEvent::Pushed(pushed) => pushed,
        // It may have stopped for something that happened to the inlets.
        other => {
            let failure = match inlet.hear(stop, 1.0) {
                Ok(ChildEvent::Failed(text)) => Failure::Runtime(text).context("inlet"),
                _ => unexpected(other).context("outlet"),
            };
            return Err(failure.into());
        }
    };
    inlet.say(&Order::Pushed(pushed))?;
    let report = |child: &mut Child, limit| match child.hear(stop, limit)? {
        ChildEvent::Report(report) => Ok::<Report, Failure>(report),
        other => Err(unexpected(other)),
    };
    let received = report(&mut inlet, limit).map_err(|failure| failure.context("inlet"))?;
    let used = between.cpu_secs().into_iter().zip(before);
    let used = used.map(|((name, after), (_, before))| (name, after - before));
    let used = used.collect();
    outlet.say(&Order::Finish)?;
    let sent = report(&mut outlet, CONNECT_SECS).map_err(|failure| failure.context("outlet"))?;
    Ok(Sides {
        outlet: sent,
        inlet: received,
        samples: pushed - job.warm_up,
        between: used,
    })
}

fn unexpected(event: ChildEvent) -> Failure {
    match event {
        ChildEvent::Failed(text) => Failure::Runtime(text),
        _ => Failure::Runtime("the processes of the benchmark do not agree".into()),
    }
}

/// Returns the expected time of pushing in seconds.
fn expected_secs(job: &Job) -> f64 {
    match (job.extent, job.speed) {
        (Extent::Seconds(secs), _) => secs,
        (Extent::Samples(samples), Speed::Paced(rate)) => samples as f64 / rate,
        (Extent::Samples(samples), Speed::Free) => samples as f64 / SLOWEST_RATE,
    }
}

/// Merges the reports of both sides and derives shares per sample.
pub(super) fn measurement(benchmark: &Benchmark, job: &Job, sides: Sides) -> Measurement {
    let mut values = sides.outlet.values.clone();
    values.extend(sides.inlet.values.clone());
    let samples = sides.samples as f64;
    let bytes_per_sample = f64::from(job.channels) * bytes_of(&job.format);
    let gigabytes = samples * bytes_per_sample / 1e9;
    let mut cpu = Some(0.0);
    for (name, side) in [("outlet", &sides.outlet), ("inlet", &sides.inlet)] {
        cpu = cpu.zip(side.cpu_secs).map(|(sum, secs)| sum + secs);
        if let Some(secs) = side.cpu_secs {
            values.insert(format!("{name}_cpu_us_per_sample"), 1e6 * secs / samples);
            values.insert(format!("{name}_cpu_s_per_gb"), secs / gigabytes);
            let took = side.end - side.begin;
            values.insert(format!("{name}_cpu_percent"), 100.0 * secs / took);
        }
        if let Some(switches) = side.switches {
            values.insert(
                format!("{name}_switches_per_sample"),
                switches as f64 / samples,
            );
        }
    }
    for (name, secs) in &sides.between {
        values.insert(format!("{name}_cpu_us_per_sample"), 1e6 * secs / samples);
        cpu = cpu.map(|sum| sum + secs);
    }
    if let Some(cpu) = cpu {
        values.insert("cpu_us_per_sample".into(), 1e6 * cpu / samples);
    }
    let took = sides.inlet.end - sides.outlet.begin;
    if took > 0.0 && !job.read_last {
        let rate = sides.inlet.received as f64 / f64::from(job.readers) / took;
        values.insert("samples_per_s".into(), rate);
        values.insert("mib_per_s".into(), rate * bytes_per_sample / MIB);
    }
    (benchmark.finish)(job, &sides, &mut values);
    values.retain(|_, value| value.is_finite());
    let disorder = sides.inlet.disorder;
    Measurement {
        values,
        expected: sides.samples * u64::from(job.readers),
        received: sides.inlet.received,
        gaps: sides.inlet.gaps,
        histogram: sides.inlet.histogram,
        failure: wrong_order(disorder),
    }
}

/// Describes this many disordered samples as a fault, if there are any.
pub(crate) fn wrong_order(disorder: u64) -> Option<String> {
    (disorder > 0).then(|| format!("{disorder} samples came out of order or twice"))
}

/// Searching, connecting, and a machine that does other things.
const CONNECT_SECS: f64 = 60.0;

/// Added to twenty times what pushing should take.
const PUSH_SECS: f64 = 60.0;

/// Samples per second that even the slowest pushes.
const SLOWEST_RATE: f64 = 5000.0;
