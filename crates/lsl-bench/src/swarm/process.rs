//! A process with many outlets or many inlets: the hidden `lsl bench swarm`, which reads a backend and
//! orders from its input and answers each. It ends with its input, so none outlives the driver.

use std::fs;
use std::io::{BufRead, Write};
use std::time::Duration;

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::signal::pace::Pace;
use lsl_core::local_clock;
use lsl_platform::limits::raise_open_files;
use lsl_platform::usage::Usage;

use super::api::{Api, FoundStream, Sender, SwarmInlet};
use super::{Order, SwarmAnswer, Values};
use crate::job::Backend;

#[derive(Debug, Args)]
pub(crate) struct Swarm {}

impl Swarm {
    #[expect(clippy::unused_self, reason = "as every other action")]
    pub(crate) fn run(&self) -> Outcome {
        let mut lines = std::io::stdin().lock().lines();
        let misused = || Failure::Usage("`lsl bench` starts its processes by itself".into());
        let backend: Backend = match lines.next() {
            Some(line) => serde_json::from_str(&line?).map_err(|_| misused())?,
            None => return Err(misused()),
        };
        let mut members = Members::load(&backend);
        for line in lines {
            let order: Order = serde_json::from_str(&line?).map_err(|_| misused())?;
            let done = match &mut members {
                Ok(members) => members.obey(&order),
                Err(failure) => Err(Failure::Runtime(failure.to_string())),
            };
            let answer = match done {
                Ok(values) => SwarmAnswer::Done(values),
                Err(failure) => SwarmAnswer::Failed(failure.to_string()),
            };
            let mut out = std::io::stdout().lock();
            serde_json::to_writer(&mut out, &answer)?;
            out.write_all(b"\n")?;
            out.flush()?;
        }
        // Ends without returning: a foreign library may take long to end, and the driver does not
        // wait.
        lsl_platform::exit::leave(0);
    }
}

/// Outlets, inlets and found streams of this process.
struct Members {
    library: Api,
    /// Threads before the library started any.
    own_threads: usize,
    most_files: u64,
    channels: u32,
    outlets: Vec<Sender>,
    found: Vec<FoundStream>,
    inlets: Vec<SwarmInlet>,
}

impl Members {
    fn load(backend: &Backend) -> Outcome<Self> {
        let most_files = raise_open_files().unwrap_or(0);
        let own_threads = entries("/proc/self/task").unwrap_or(1);
        Ok(Self {
            library: Api::load(backend)?,
            own_threads,
            most_files,
            channels: 1,
            outlets: Vec::new(),
            found: Vec::new(),
            inlets: Vec::new(),
        })
    }

    fn obey(&mut self, order: &Order) -> Outcome<Values> {
        let start = local_clock();
        let since = || local_clock() - start;
        match order {
            Order::Offer {
                kind,
                count,
                channels,
                rate,
            } => {
                self.channels = *channels;
                for number in 0..*count {
                    let name = format!("{kind}-{number}");
                    let offered = self.library.offer(&name, kind, *channels, *rate);
                    self.outlets
                        .push(offered.map_err(|failure| self.explain(&failure, "outlet"))?);
                }
                Ok(values([("create_s", since())]))
            }
            Order::Push {
                streams,
                samples,
                rate,
            } => self.push(*streams as usize, *samples, *rate),
            Order::FindOne { name } => {
                self.found = self.library.find("name", name, 1, ONE_SECS)?;
                let is_it = |found: &FoundStream| found.name() == *name;
                if self.found.iter().any(is_it) {
                    Ok(values([("first_hit_ms", since() * 1e3)]))
                } else {
                    Err(Failure::NotFound(format!(
                        "{name} was not found in {ONE_SECS} s"
                    )))
                }
            }
            Order::FindAll { kind, count, secs } => {
                self.found = self.library.find("type", kind, *count, *secs)?;
                Ok(values([
                    ("all_s", since()),
                    ("found", self.found.len() as f64),
                ]))
            }
            Order::Sweep { kind, secs } => {
                let start_of = format!("{kind}-");
                let found = self.library.sweep(*secs)?;
                let ours = found
                    .iter()
                    .filter(|found| found.name().starts_with(&start_of));
                Ok(values([("found", ours.count() as f64)]))
            }
            Order::Meet { outlet_clock_ahead } => self.meet(*outlet_clock_ahead),
            Order::OpenAll => self.open_all(),
            Order::Collect { samples } => self.collect(*samples),
            Order::Clock => Ok(values([("clock_ahead", self.clock_ahead())])),
            Order::Count => Ok(self.count()),
            Order::Idle { secs } => Ok(idle(*secs)),
            Order::Destroy => {
                self.outlets.clear();
                self.inlets.clear();
                let destroyed = since();
                self.found.clear();
                Ok(values([("destroy_s", destroyed)]))
            }
        }
    }

    fn push(&self, streams: usize, samples: u32, rate: f64) -> Outcome<Values> {
        let mut sample = vec![0.0_f32; self.channels as usize];
        let mut pace = Pace::new(local_clock(), rate.recip());
        while pace.done() < u64::from(samples) {
            let left = pace.next_time(1) - local_clock();
            if left > 0.0 {
                std::thread::sleep(Duration::from_secs_f64(left));
            }
            let due = pace
                .due(local_clock())
                .min(u64::from(samples) - pace.done());
            for _ in 0..due {
                sample[0] = number(pace.done());
                for outlet in self.outlets.iter().take(streams) {
                    outlet.push(&sample)?;
                }
                pace.advance(1);
            }
        }
        Ok(Values::new())
    }

    /// Returns the seconds by which the library's clock is ahead: all of LSL on a host should have
    /// one.
    fn clock_ahead(&self) -> f64 {
        // The narrowest of several looks from both sides.
        let look = |_| {
            let before = local_clock();
            let theirs = self.library.clock();
            let after = local_clock();
            (after - before, theirs - f64::midpoint(before, after))
        };
        let narrowest = (0..20).map(look).min_by(|a, b| a.0.total_cmp(&b.0));
        narrowest.map_or(0.0, |(_, ahead)| ahead)
    }

    fn meet(&self, outlet_clock_ahead: f64) -> Outcome<Values> {
        let found = self.found.first().ok_or_else(nothing)?;
        let mut sample = vec![0.0_f32; found.channels() as usize];
        let start = local_clock();
        let inlet = self.library.inlet(found)?;
        inlet.open(ONE_SECS)?;
        let opened = local_clock();
        if !inlet.pull(&mut sample, ONE_SECS)? {
            return Err(Failure::NotFound(format!(
                "no sample came within {ONE_SECS} s"
            )));
        }
        let first = local_clock();
        let correction = inlet.time_correction(ONE_SECS)?;
        let corrected = local_clock();
        // Expected correction: one clock minus the other.
        let truth = self.clock_ahead() - outlet_clock_ahead;
        let is_encrypted = inlet.is_encrypted();
        let before = local_clock();
        drop(inlet);
        Ok(values([
            ("open_ms", (opened - start) * 1e3),
            ("first_sample_ms", (first - start) * 1e3),
            ("correction_s", corrected - first),
            ("correction_error_us", (correction - truth).abs() * 1e6),
            ("destroy_inlet_ms", (local_clock() - before) * 1e3),
            ("is_encrypted", f64::from(u8::from(is_encrypted))),
        ]))
    }

    fn open_all(&mut self) -> Outcome<Values> {
        let start = local_clock();
        for found in &self.found {
            let made = self.library.inlet(found);
            self.inlets
                .push(made.map_err(|failure| self.explain(&failure, "inlet"))?);
        }
        let created = local_clock();
        let (mut open, mut failed) = (0, 0);
        for inlet in &self.inlets {
            // Not for each of thousands that cannot be opened.
            let secs = if failed < 3 { OPEN_SECS } else { 0.0 };
            match inlet.open(secs) {
                Ok(()) => open += 1,
                Err(_) => failed += 1,
            }
        }
        let opened = local_clock();
        let encrypted = self
            .inlets
            .iter()
            .filter(|inlet| inlet.is_encrypted())
            .count();
        Ok(values([
            ("create_s", created - start),
            ("open_s", opened - created),
            ("open", f64::from(open)),
            ("encrypted", encrypted as f64),
        ]))
    }

    /// Takes samples out of all inlets in turn.
    fn collect(&self, samples: u32) -> Outcome<Values> {
        let channels = self
            .found
            .iter()
            .map(FoundStream::channels)
            .max()
            .unwrap_or(1);
        let mut sample = vec![0.0_f32; channels as usize];
        let mut next = vec![0_u32; self.inlets.len()];
        let mut is_whole = vec![true; self.inlets.len()];
        let mut received = 0_u64;
        let mut last = local_clock() + START_SECS;
        while next.iter().any(|next| *next < samples) {
            let mut is_quiet = true;
            let readers = self.inlets.iter().zip(&mut next).zip(&mut is_whole);
            for ((inlet, next), is_whole) in readers {
                while *next < samples && inlet.pull(&mut sample, 0.0)? {
                    *is_whole &= sample.first() == Some(&number(u64::from(*next)));
                    *next += 1;
                    received += 1;
                    is_quiet = false;
                }
            }
            let now = local_clock();
            if !is_quiet {
                last = last.max(now);
            } else if now > last + QUIET_SECS {
                break;
            } else {
                std::thread::sleep(BETWEEN_LOOKS);
            }
        }
        let readers = next.iter().zip(is_whole);
        let deliver = readers
            .filter(|(next, whole)| **next == samples && *whole)
            .count();
        Ok(values([
            ("deliver", deliver as f64),
            ("received", received as f64),
        ]))
    }

    fn count(&self) -> Values {
        let mut counted = Values::new();
        if let Some(threads) = entries("/proc/self/task") {
            let started = threads.saturating_sub(self.own_threads);
            counted.insert("threads".into(), started as f64);
        }
        if let Some(files) = entries("/proc/self/fd") {
            // One of them is this look.
            counted.insert("fds".into(), files.saturating_sub(1) as f64);
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        if let Some(kib) = rss_kib(&status) {
            counted.insert("rss_mib".into(), kib / 1024.0);
        }
        counted
    }

    /// Adds what usually is the reason.
    fn explain(&self, failure: &Failure, what: &str) -> Failure {
        let files = entries("/proc/self/fd").unwrap_or(0);
        let near = (files as u64).saturating_mul(10) > self.most_files.saturating_mul(9);
        let reason = if near {
            format!(
                ": {files} files are open and {} allowed; raise the hard limit (ulimit -Hn, \
                 LimitNOFILE=) and try again",
                self.most_files
            )
        } else {
            String::new()
        };
        let already = self.outlets.len() + self.inlets.len();
        Failure::Runtime(format!("no {what} after {already}: {failure}{reason}"))
    }
}

/// Processor time and context switches while nothing happens.
fn idle(secs: f64) -> Values {
    let (start, before) = (local_clock(), Usage::now());
    std::thread::sleep(Duration::from_secs_f64(secs));
    let (took, used) = (local_clock() - start, Usage::now().since(before));
    let cpu = (used.user_secs + used.system_secs) / took * 100.0;
    // The sleep itself is one.
    let switches = used
        .voluntary_switches
        .map(|number| number.saturating_sub(1) as f64 / took);
    let counted = switches.map(|rate| ("switches_per_s", rate));
    values([("cpu_percent", cpu)].into_iter().chain(counted))
}

/// The number of a sample as its first value; streams here are short.
fn number(number: u64) -> f32 {
    number as f32
}

fn values<'a>(values: impl IntoIterator<Item = (&'a str, f64)>) -> Values {
    let named = |(name, value): (&str, f64)| (name.to_owned(), value);
    values.into_iter().map(named).collect()
}

fn nothing() -> Failure {
    Failure::NotFound("nothing was found".into())
}

fn entries(folder: &str) -> Option<usize> {
    fs::read_dir(folder).ok().map(Iterator::count)
}

/// Memory in use, from `/proc/self/status`.
fn rss_kib(status: &str) -> Option<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Time for one stream to be found, opened and read.
const ONE_SECS: f64 = 20.0;
const OPEN_SECS: f64 = 10.0;
/// Time for the first sample to come.
const START_SECS: f64 = 10.0;
/// After so long without any sample no more come.
const QUIET_SECS: f64 = 3.0;
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_is_in_use() {
        let status = "VmHWM:\t  9000 kB\nVmRSS:\t    2048 kB\nThreads:\t1\n";
        assert_eq!(rss_kib(status), Some(2048.0));
        assert_eq!(rss_kib("VmHWM:\t 1 kB\n"), None);
    }

    #[test]
    fn the_own_clock_is_not_ahead() {
        let members = Members::load(&Backend::Core).unwrap();
        assert!(members.clock_ahead().abs() < 0.01);
        assert!(members.meet(0.0).is_err());
        assert!(Members::load(&Backend::Tcp).is_err());
    }
}
