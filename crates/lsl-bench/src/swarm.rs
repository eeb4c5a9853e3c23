//! Many streams at once: one process with all outlets, another one with all inlets, each with the
//! library under test. `discovery` and `scale` give the orders. The processes stay on this machine
//! unless multicast is asked for.

mod api;
mod process;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::Stop;
use serde::{Deserialize, Serialize};

pub(super) use self::process::Swarm;
use super::child::{Child, Environment};
use super::job::Backend;
use super::library::Library;
use super::sandbox::Sandbox;

/// Orders to a process of many streams, after its backend.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Order {
    /// Offer streams called `KIND-0`, `KIND-1`, …, of type KIND: `create_s`.
    Offer {
        kind: String,
        count: u32,
        channels: u32,
        rate: f64,
    },
    /// Push numbered samples on the first so many streams, on time.
    Push {
        streams: u32,
        samples: u32,
        rate: f64,
    },
    /// Find the stream of this name: `first_hit_ms`.
    FindOne { name: String },
    /// Find this many of a type: `all_s`, `found`.
    FindAll { kind: String, count: u32, secs: f64 },
    /// See what there is: `found`.
    Sweep { kind: String, secs: f64 },
    /// Read the stream found last: `open_ms`, `first_sample_ms`, `correction_s`, `correction_us`,
    /// `destroy_inlet_ms`.
    Meet { outlet_clock_ahead: f64 },
    /// Read all streams found: `create_s`, `open_s`, `open`.
    OpenAll,
    /// Take out so many samples of each: `deliver`, `received`.
    Collect { samples: u32 },
    /// Compare the library's clock with this program's: `clock_ahead`.
    Clock,
    /// Count resources in use: `threads`, `fds`, `rss_mib`.
    Count,
    /// Do nothing for so long: `cpu_percent`, `switches_per_s`.
    Idle { secs: f64 },
    /// Destroy all inlets and outlets: `destroy_s`.
    Destroy,
}

/// Answer of a process to one order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum SwarmAnswer {
    /// Values by name of the metric.
    Done(BTreeMap<String, f64>),
    Failed(String),
}

/// Values that an order gave, by name.
pub(super) type Values = BTreeMap<String, f64>;

/// A process, seen from the driver.
pub(super) struct Side<'a> {
    child: Child,
    stop: &'a Stop,
}

/// Both processes of a subject.
pub(super) struct Pair<'a> {
    pub(super) outlets: Side<'a>,
    pub(super) inlets: Side<'a>,
}

impl<'a> Pair<'a> {
    pub(super) fn start(subject: &Library, place: &Workplace, stop: &'a Stop) -> Outcome<Self> {
        let start = || -> Outcome<Side<'a>> {
            let mut child = Child::spawn(COMMAND, &place.environment(subject.secure()))?;
            child.say(&subject.backend)?;
            Ok(Side { child, stop })
        };
        Ok(Self {
            outlets: start()?,
            inlets: start()?,
        })
    }
}

impl Side<'_> {
    /// Has it done and waits for that.
    pub(super) fn order(&mut self, order: &Order) -> Outcome<Values> {
        self.begin(order)?;
        self.end()
    }

    /// Has it done; [`end`](Self::end) waits for it.
    pub(super) fn begin(&mut self, order: &Order) -> Outcome {
        self.child.say(order)
    }

    pub(super) fn end(&mut self) -> Outcome<Values> {
        match self.child.hear(self.stop, LONGEST_SECS)? {
            SwarmAnswer::Done(values) => Ok(values),
            SwarmAnswer::Failed(reason) => Err(Failure::Runtime(reason)),
        }
    }
}

/// Sandbox and addresses in which the processes work.
pub(super) struct Workplace {
    sandbox: Sandbox,
    multicast: Option<PathBuf>,
}

impl Workplace {
    /// Makes a sandbox with enough ports for so many streams.
    pub(super) fn make(streams: u32, is_multicast: bool) -> Outcome<Self> {
        let ports = u16::try_from(streams.saturating_mul(2) + SPARE_PORTS).map_err(|_| {
            Failure::Usage("there are not as many ports as these streams need".into())
        })?;
        let sandbox = Sandbox::make(ports)?;
        let own = sandbox.environment(false).into_iter();
        let own = own
            .filter(|(name, _)| *name == "LSLAPICFG")
            .find_map(|(_, value)| value);
        let multicast = match own {
            Some(own) if is_multicast => {
                let file = PathBuf::from(own).with_file_name("multicast.cfg");
                fs::write(&file, multicast_configuration(std::process::id()))?;
                Some(file)
            }
            _ => None,
        };
        Ok(Self { sandbox, multicast })
    }

    pub(super) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn environment(&self, secure: bool) -> Environment {
        let mut environment = self.sandbox.environment(secure);
        if let Some(file) = &self.multicast {
            environment.push(("LSLAPICFG", Some(file.into())));
        }
        environment
    }
}

/// Returns the configuration of a plain network, in a session of its own.
fn multicast_configuration(id: u32) -> String {
    format!(
        "[ports]\nPortRange = 8192\nIPv6 = disable\n\n[multicast]\nResolveScope = link\n\n\
         [lab]\nSessionID = lsl-bench-{id}\n\n[log]\nlevel = -2\n"
    )
}

/// Whether it can find streams at all.
pub(super) fn is_lsl(subject: &Library) -> bool {
    matches!(subject.backend, Backend::Core | Backend::Library(_))
}

/// Datagrams that the kernel has dropped because their socket was full, in this network namespace.
/// `None` where it does not tell.
pub(super) fn datagrams_dropped() -> Option<f64> {
    dropped_in(&fs::read_to_string("/proc/net/snmp").ok()?)
}

fn dropped_in(snmp: &str) -> Option<f64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let place = names
        .split_whitespace()
        .position(|name| name == "RcvbufErrors")?;
    values.split_whitespace().nth(place)?.parse().ok()
}

/// Puts what one order measured under the names of the results.
pub(super) fn take(values: &mut Values, from: &Values, names: &[(&str, &str)]) {
    for (name, to) in names {
        if let Some(value) = from.get(*name) {
            values.insert((*to).to_owned(), *value);
        }
    }
}

/// Arguments that start the hidden command.
const COMMAND: &[&str] = &["swarm"];
/// Thousands of streams of liblsl take their time.
const LONGEST_SECS: f64 = 600.0;
const SPARE_PORTS: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_found_by_their_name() {
        let text = "Tcp: A B\nTcp: 1 2\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors \
                    SndbufErrors\nUdp: 10 20 30 40 50 60\nUdpLite: RcvbufErrors\nUdpLite: 7\n";
        assert_eq!(dropped_in(text), Some(50.0));
        assert_eq!(dropped_in("Udp: InDatagrams\nUdp: 3\n"), None);
        assert_eq!(dropped_in(""), None);
    }
}
