//! Measures from the client's machine against a server.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::globals::Globals;
use lsl_cli::interrupt::{LONGEST_NAP, Stop};
use lsl_cli::streams::link;
use lsl_cli::ui::notice::note;
use lsl_cli::ui::table::{Align, Table};
use lsl_cli::ui::text::printable;
use lsl_core::{Context, Inlet, Outlet, TimeCorrection, Timeout, local_clock, random_uid};
use lsl_platform::usage::Usage;

use super::control::{ControlRequest, MAX_CHANNELS, MAX_ECHOES, Offer, Reply, VERSION};
use super::line::ControlLine;
use super::server::{WAIT, addresses, find};
use super::{Ways, info};
use crate::child::interrupted;
use crate::driver::wrong_order;
use crate::gaps::GapDetector;
use crate::number::Numbering;
use crate::output::{Measured, Output};
use crate::result::{Cell, Machine, Measurement, Round, Subject};
use crate::rotation::order;
use crate::stats::{buckets, mean_latency, percentile, sorted_latencies};
use crate::usage::{EverySecond, peak_rss_mib};

#[derive(Debug, Args)]
pub(super) struct Client {
    /// Where `lsl bench net server` runs; an IPv6 address with a port in brackets, [fd00::7]:16690
    #[arg(value_name = "HOST[:PORT]")]
    host: String,

    /// Channels of float32
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CHANNELS)))]
    channels: u32,

    /// Samples per second
    #[arg(long, value_name = "HZ", default_value = "1000")]
    rate: f64,

    /// Seconds per iteration
    #[arg(long, value_name = "SECS", default_value = "30")]
    duration: f64,

    /// How often; with and without encryption take turns in each
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    iterations: u32,

    /// Without and with encryption by the machines' own keys
    #[arg(long, value_enum, value_delimiter = ',', default_value = "off,on")]
    secure: Vec<Secure>,

    /// Samples sent back and forth per iteration, one after the other; 0 for none
    #[arg(long, value_name = "N", default_value = "200", value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_ECHOES)))]
    pings: u32,

    #[command(flatten)]
    output: Output,
}

/// Encryption of one iteration's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Secure {
    /// In plaintext
    Off,
    /// Encrypted
    On,
}

impl Client {
    pub(super) fn run(&self, globals: &Globals) -> Outcome {
        let samples = self.samples()?;
        let ways = Ways::new(globals)?;
        for secure in &self.secure {
            ways.check(*secure == Secure::On)?;
        }
        let stop = Stop::install()?;
        let mut server = Peer::connect(&self.host, &stop)?;
        let machine = Machine::here();
        let mut rounds = Vec::new();
        let done = self.measure(samples, &ways, &mut server, &stop, &mut rounds);
        let parameters = [
            ("channels".to_owned(), self.channels.into()),
            ("rate".to_owned(), self.rate.into()),
            ("duration".to_owned(), self.duration.into()),
        ];
        let mut cells = vec![Cell {
            parameters: parameters.into(),
            rounds,
        }];
        cells.retain(|cell| !cell.rounds.is_empty());
        for cell in &cells {
            self.show(cell)?;
        }
        let measured = Measured {
            benchmark: "net",
            subjects: self.secure.iter().map(|secure| secure.subject()).collect(),
            baseline: 0,
            cells,
        };
        self.output.end(machine, measured, done, &stop)
    }

    /// All iterations. An error ends them; `rounds` has those before.
    fn measure(
        &self,
        samples: u64,
        ways: &Ways,
        server: &mut Peer,
        stop: &Stop,
        rounds: &mut Vec<Round>,
    ) -> Outcome {
        for round in 0..self.iterations as usize {
            let mut measurements = vec![Measurement::default(); self.secure.len()];
            for index in order(round, self.secure.len()) {
                let secure = self.secure[index];
                note(format_args!(
                    "lsl: iteration {} of {}, {}",
                    round + 1,
                    self.iterations,
                    secure.name()
                ));
                let iteration = Iteration {
                    client: self,
                    offer: Offer {
                        channels: self.channels,
                        rate: self.rate,
                        samples,
                        secure: secure == Secure::On,
                    },
                    context: ways.context(secure == Secure::On, &server.host)?,
                    stop,
                };
                let measured = iteration.run(server)?;
                measurements[index] = measured.ok_or_else(interrupted)?;
            }
            rounds.push(Round { measurements });
        }
        Ok(())
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the server's limits are checked next"
    )]
    fn samples(&self) -> Outcome<u64> {
        let offer = Offer {
            channels: self.channels,
            rate: self.rate,
            samples: (self.rate * self.duration).round().max(0.0) as u64,
            secure: false,
        };
        offer.check().map_err(Failure::Usage)?;
        if offer.samples == 0 {
            return Err(Failure::Usage(
                "--duration is too short for one sample".into(),
            ));
        }
        Ok(offer.samples)
    }

    fn show(&self, cell: &Cell) -> Outcome {
        let mut table = Table::new(&[
            ("", Align::Left),
            ("latency p50 us", Align::Right),
            ("p95", Align::Right),
            ("p99", Align::Right),
            ("max", Align::Right),
            ("clock +-", Align::Right),
            ("round trip/2 p50", Align::Right),
            ("p95", Align::Right),
            ("delivered %", Align::Right),
            ("missing", Align::Right),
            ("outlet CPU us", Align::Right),
            ("inlet CPU us", Align::Right),
        ]);
        for (index, secure) in self.secure.iter().enumerate() {
            let all = || {
                cell.rounds
                    .iter()
                    .filter_map(|round| round.measurements.get(index))
            };
            let value = |metric: &str| cell.median_text(index, metric, 1);
            let expected: u64 = all().map(|measurement| measurement.expected).sum();
            let received: u64 = all().map(|measurement| measurement.received).sum();
            let delivered = 100.0 * received as f64 / expected.max(1) as f64;
            table.push([
                secure.name().to_owned(),
                value("latency_p50_us"),
                value("latency_p95_us"),
                value("latency_p99_us"),
                value("latency_max_us"),
                value("clock_error_max_us"),
                value("half_round_trip_p50_us"),
                value("half_round_trip_p95_us"),
                format!("{delivered:.3}"),
                expected.saturating_sub(received).to_string(),
                value("outlet_cpu_us_per_sample"),
                value("inlet_cpu_us_per_sample"),
            ]);
        }
        Ok(table.write(&mut io::stdout().lock(), "")?)
    }
}

impl Secure {
    fn name(self) -> &'static str {
        match self {
            Self::Off => "plain",
            Self::On => "secure",
        }
    }

    fn subject(self) -> Subject {
        Subject {
            name: self.name().into(),
            detail: match self {
                Self::Off => "in plaintext".into(),
                Self::On => "encrypted by the machines' own keys".into(),
            },
            secure: self == Self::On,
        }
    }
}

/// Control connection to the server.
struct Peer {
    line: ControlLine,
    /// Address of the server, for discovery.
    host: String,
}

impl Peer {
    fn connect(host: &str, stop: &Stop) -> Outcome<Self> {
        let mut failure = Failure::NotFound(format!("{host} has no address"));
        for address in addresses(host)? {
            match TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
                Ok(stream) => {
                    let mut peer = Self {
                        line: ControlLine::new(stream, stop)?,
                        host: address.ip().to_string(),
                    };
                    peer.greet()?;
                    return Ok(peer);
                }
                Err(error) => {
                    failure = Failure::NotFound(format!(
                        "no `lsl bench net server` at {address}: {error}"
                    ));
                }
            }
        }
        Err(failure)
    }

    fn greet(&mut self) -> Outcome {
        match self.ask(&ControlRequest::Hello { version: VERSION }, SOON)? {
            Some(Reply::Hello { version, .. }) if version != VERSION => Err(Failure::Runtime(
                format!("the server speaks version {version} of this benchmark, not {VERSION}"),
            )),
            _ => Ok(()),
        }
    }

    fn ask(&mut self, request: &ControlRequest, secs: f64) -> Outcome<Option<Reply>> {
        self.line.say(request)?;
        self.hear(secs)
    }

    fn hear(&mut self, secs: f64) -> Outcome<Option<Reply>> {
        match self.line.hear(secs)? {
            Some(Reply::Failed { reason }) => Err(Failure::Runtime(format!(
                "the server: {}",
                printable(&reason)
            ))),
            reply => Ok(reply),
        }
    }
}

/// One measurement with a pair of streams.
struct Iteration<'a> {
    client: &'a Client,
    offer: Offer,
    context: Context,
    stop: &'a Stop,
}

/// Samples that came over a stream.
struct TakenSamples {
    detector: GapDetector,
    /// When a sample came, and when it was pushed by the server's clock.
    times: Vec<(f64, f64)>,
}

impl Iteration<'_> {
    /// `None` when the user wants to end.
    fn run(&self, server: &mut Peer) -> Outcome<Option<Measurement>> {
        let asked = server.ask(&ControlRequest::Offer(self.offer.clone()), SOON)?;
        let Some(Reply::Offered { stream, echo }) = asked else {
            return self.ended(asked.as_ref());
        };
        let inlet = self.open(&stream)?;
        let before = link::time_correction(&inlet, WAIT)?;
        let (used, start, seconds) = (Usage::now(), local_clock(), EverySecond::start());
        server.line.say(&ControlRequest::Push)?;
        let taken = self.take(&inlet)?;
        let (used, took) = (Usage::now().since(used), local_clock() - start);
        let peak = seconds.peak_percent();
        let pushed = server.hear(SOON)?;
        let Some(Reply::Pushed {
            samples,
            cpu_secs,
            values: theirs,
        }) = pushed
        else {
            return self.ended(pushed.as_ref());
        };
        let after = link::time_correction(&inlet, WAIT)?;
        drop(inlet);
        let mut values = BTreeMap::new();
        let mut set = |name: &str, value: f64| {
            values.insert(name.to_owned(), value);
        };
        let TakenSamples { detector, times } = taken;
        let late = sorted_latencies(latencies(&times, before, after));
        for (name, part) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)] {
            if let Some(value) = percentile(&late, part) {
                set(&format!("latency_{name}_us"), value);
            }
        }
        if let Some(value) = mean_latency(&late) {
            set("latency_mean_us", value);
        }
        let error = before.max_error_secs().max(after.max_error_secs());
        set("clock_error_max_us", error * 1e6);
        let per_sample = |cpu_secs: f64| cpu_secs * 1e6 / samples.max(1) as f64;
        let own = used.user_secs + used.system_secs;
        set("outlet_cpu_us_per_sample", per_sample(cpu_secs));
        set("inlet_cpu_us_per_sample", per_sample(own));
        set("cpu_us_per_sample", per_sample(cpu_secs + own));
        set("inlet_cpu_percent", 100.0 * own / took);
        for (name, value) in [
            ("inlet_cpu_peak_percent", peak),
            ("inlet_rss_mib", peak_rss_mib()),
        ] {
            if let Some(value) = value {
                set(name, value);
            }
        }
        let is_known = |name: &str| name.starts_with("outlet_") || name == "push_mean_us";
        let theirs = theirs
            .iter()
            .filter(|(name, value)| is_known(name) && value.is_finite());
        theirs.for_each(|(name, value)| set(name, *value));
        if self.client.pings > 0 {
            let Some(trips) = self.ping(server, &echo)? else {
                return Ok(None);
            };
            for (name, part) in [("p50", 0.5), ("p95", 0.95)] {
                if let Some(value) = percentile(&trips, part) {
                    set(&format!("half_round_trip_{name}_us"), value);
                }
            }
        }
        let ended = server.ask(&ControlRequest::End, SOON)?;
        if ended != Some(Reply::Ended) {
            return self.ended(ended.as_ref());
        }
        Ok(Some(Measurement {
            values,
            expected: samples,
            gaps: detector.gaps_of(samples),
            received: detector.received,
            histogram: buckets(&late),
            failure: wrong_order(detector.disorder),
        }))
    }

    /// Explains a reply that was not asked for: the end, a lost server or a fault.
    fn ended<T>(&self, reply: Option<&Reply>) -> Outcome<Option<T>> {
        match reply {
            _ if self.stop.requested() => Ok(None),
            None => Err(Failure::Lost("the server is gone".into())),
            Some(_) => Err(Failure::Runtime("the server answers something else".into())),
        }
    }

    /// Connects with a stream of the server, as encrypted as it should be.
    fn open(&self, source_id: &str) -> Outcome<Inlet> {
        let inlet = find(&self.context, source_id, self.offer.channels)?;
        link::open(&inlet, WAIT)?;
        if inlet.encryption().is_some() == self.offer.secure {
            Ok(inlet)
        } else {
            let found = if self.offer.secure {
                "is in plaintext and should be encrypted"
            } else {
                "is encrypted and should be in plaintext"
            };
            Err(Failure::Runtime(format!(
                "the connection with the server {found}: look at `lsl security` and `lsl trust check` \
                 on both machines"
            )))
        }
    }

    /// Takes out all samples, or those that come.
    fn take(&self, inlet: &Inlet) -> Outcome<TakenSamples> {
        let channels = self.offer.channels as usize;
        let numbering = Numbering::of::<f32>(channels);
        let mut detector = GapDetector::new(0, 0, numbering.modulus);
        let mut sample = vec![0.0_f32; channels];
        let mut times = Vec::new();
        let nap = Timeout::After(LONGEST_NAP);
        let mut last = local_clock() + START_SECS;
        while detector.next() < self.offer.samples && !self.stop.requested() {
            let pulled = inlet.blocking().pull(&mut sample, nap)?;
            let now = local_clock();
            if let Some(stamp) = pulled {
                detector.add(numbering.read(&sample));
                detector.pushed(stamp);
                times.push((now, stamp));
                last = now;
            } else if now - last > QUIET_SECS + self.offer.rate.recip() {
                break;
            }
        }
        Ok(TakenSamples { detector, times })
    }

    /// Half of each round trip in microseconds, sorted. `None` when the user wants to end.
    fn ping(&self, server: &mut Peer, echo: &str) -> Outcome<Option<Vec<f32>>> {
        let channels = self.offer.channels as usize;
        let id = format!("lsl-bench-ping-{}", random_uid()?);
        let own = info("lsl-bench-ping", &id, self.offer.channels, 0.0)?;
        let outlet = Outlet::builder(own).context(&self.context).open()?;
        let inlet = self.open(echo)?;
        let count = self.client.pings;
        server.line.say(&ControlRequest::Echo {
            source_id: id,
            count,
        })?;
        let numbering = Numbering::of::<f32>(channels);
        let mut sample = vec![0.0_f32; channels];
        let mut halves = Vec::new();
        if !outlet.blocking().wait_for_consumers(WAIT) {
            // It says why.
            let reply = server.hear(SOON)?;
            return self.ended(reply.as_ref());
        }
        for number in 0..u64::from(count) {
            if !self.stop.sleep_until(local_clock() + BETWEEN_PINGS_SECS) {
                return Ok(None);
            }
            numbering.write(number, &mut sample);
            let start = local_clock();
            outlet.push(&sample)?;
            let back = inlet.blocking().pull(&mut sample, PING_WAIT)?;
            let end = local_clock();
            let came = numbering.read(&sample);
            if back.is_none() {
                return Err(Failure::Lost(format!(
                    "ping {number} did not come back in 2 s; {} bytes of ours wait to be sent",
                    outlet.stats().backlog_bytes
                )));
            }
            if came != number {
                return Err(Failure::Lost(format!(
                    "ping {came} came back in place of {number}"
                )));
            }
            halves.push(micros((end - start) / 2.0));
        }
        let reply = server.hear(SOON)?;
        match reply {
            Some(Reply::Echoed { count: echoed }) if echoed == count => {
                Ok(Some(sorted_latencies(halves)))
            }
            other => self.ended(other.as_ref()),
        }
    }
}

/// Returns the latencies in microseconds. The clocks' difference is taken to go steadily from its
/// value before to its value after.
fn latencies(
    times: &[(f64, f64)],
    before: TimeCorrection,
    after: TimeCorrection,
) -> impl Iterator<Item = f32> {
    let (first, last) = match (times.first(), times.last()) {
        (Some(first), Some(last)) => (first.0, last.0),
        _ => (0.0, 0.0),
    };
    let (from, to) = (before.offset_secs, after.offset_secs);
    times.iter().map(move |(came, stamp)| {
        let part = if last > first {
            (came - first) / (last - first)
        } else {
            0.0
        };
        micros(came - stamp - (from + (to - from) * part))
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "microseconds of latency in seven digits"
)]
fn micros(secs: f64) -> f32 {
    (secs * 1e6) as f32
}

/// Longest wait for answers that need no work, beyond any work before.
const SOON: f64 = 20.0;
/// Longest wait for the first sample: the server waits for its reader.
const START_SECS: f64 = 10.0;
/// After so long without a sample nothing more comes.
const QUIET_SECS: f64 = 5.0;
const BETWEEN_PINGS_SECS: f64 = 0.005;
const PING_WAIT: Timeout = Timeout::After(Duration::from_secs(2));
