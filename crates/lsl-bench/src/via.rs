//! What stands between outlet and readers: nothing, a relay, or a Redis server that a relay writes to. Made for each
//! turn, so that none finds what another one left. Spec: relay §15.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use lsl_cli::failure::{Failure, Outcome};
use lsl_core::local_clock;
use serde::{Deserialize, Serialize};

use super::child::{Child, Environment};
use super::job::Job;
use super::process_usage::Used;
use super::sandbox::Sandbox;
use super::scratch::KilledOnDrop;

/// Way of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
pub(super) enum Via {
    /// Readers are connected to the outlet
    #[default]
    Direct,
    /// Readers are connected to `lsl relay`, which reads the outlet
    Relay,
    /// Readers ask Redis, to which `lsl relay` writes its own layout
    Packed,
    /// Readers ask Redis, to which `lsl relay` writes River's layout
    River,
}

/// Server that readers ask, at a port of this machine.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Store {
    pub(super) port: u16,
    pub(super) via: Via,
}

/// Where a relay counts the samples that are where readers find them.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Arrivals {
    /// Port of its metrics.
    port: u16,
    is_stored: bool,
}

/// The processes between outlet and readers, which end with it.
pub(super) struct Between {
    relay: Option<(Child, u16)>,
    store: Option<(KilledOnDrop, Store)>,
    pub(super) arrivals: Option<Arrivals>,
}

impl Via {
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Describes it for people.
    pub(super) fn detail(self) -> &'static str {
        match self {
            Self::Direct => "readers are connected to the outlet",
            Self::Relay => "readers are connected to lsl relay, which reads the outlet",
            Self::Packed => {
                "lsl relay writes chunks of samples to Redis, readers take them by XREAD"
            }
            Self::River => {
                "lsl relay writes an entry for each sample to Redis, as River does; readers take them by XREAD"
            }
        }
    }

    pub(super) fn is_stored(self) -> bool {
        matches!(self, Self::Packed | Self::River)
    }

    /// Connections that the outlet has, for so many readers.
    pub(super) fn consumers(self, readers: u32) -> u32 {
        if self == Self::Direct { readers } else { 1 }
    }
}

/// Whether there is a Redis server on this machine.
pub(super) fn has_redis() -> bool {
    let asked = Command::new(REDIS).arg("--version").output();
    asked.is_ok_and(|asked| asked.status.success())
}

impl Between {
    /// Starts what a job asks for, beside an outlet that is there already.
    pub(super) fn start(sandbox: &Sandbox, job: &Job) -> Outcome<Self> {
        let mut between = Self {
            relay: None,
            store: None,
            arrivals: None,
        };
        if job.via == Via::Direct {
            return Ok(between);
        }
        let [port, metrics] = [free_port()?, free_port()?];
        let mut rules =
            format!("[relay]\nlinger_s = 1\n\n[metrics]\nlisten = \"127.0.0.1:{metrics}\"\n");
        if job.via.is_stored() {
            let store = Store {
                port: free_port()?,
                via: job.via,
            };
            between.store = Some((redis(store.port)?, store));
            // With River's layout each sample is an entry of its own, whether it is gathered or not.
            let flush_ms = if job.via == Via::River {
                0
            } else {
                job.flush_ms
            };
            let layout = store.via.name();
            let engine = format!(
                "\n[engine]\nurl = \"redis://127.0.0.1:{}\"\nlayout = \"{layout}\"\nflush_ms = {flush_ms}\n\n\
                 [[rule]]\nengine = true\n",
                store.port
            );
            rules.push_str(&engine);
        }
        let rules = sandbox.rewrite("relay.toml", &rules)?;
        let (listen, rules) = (
            format!("127.0.0.1:{port}"),
            rules.to_string_lossy().into_owned(),
        );
        let words = [
            "lsl",
            "relay",
            "--listen",
            &listen,
            "--relay-config",
            &rules,
        ];
        let relay = Child::spawn(&words, &sandbox.environment(job.secure))?;
        wait_for(port).map_err(|failure| failure.context(&relay.remarks().join(" | ")))?;
        between.relay = Some((relay, port));
        between.arrivals = Some(Arrivals {
            port: metrics,
            is_stored: job.via.is_stored(),
        });
        Ok(between)
    }

    /// Returns the environment of readers, who see no outlet but through the relay.
    pub(super) fn environment(&self, sandbox: &Sandbox, secure: bool) -> Outcome<Environment> {
        let mut environment = sandbox.environment(secure);
        if let Some((_, port)) = &self.relay {
            let settings = sandbox.beyond(*port)?;
            environment.retain(|(name, _)| *name != "LSLAPICFG");
            environment.push(("LSLAPICFG", Some(OsString::from(settings))));
        }
        Ok(environment)
    }

    pub(super) fn store(&self) -> Option<Store> {
        self.store.as_ref().map(|(_, store)| *store)
    }

    /// Returns the processor time that relay and server have used so far, by name.
    pub(super) fn cpu_secs(&self) -> Vec<(&'static str, f64)> {
        let relay = self.relay.as_ref().map(|(relay, _)| relay.id());
        let store = self.store.as_ref().map(|(server, _)| server.id());
        let ids = [("relay", relay), ("redis", store)];
        let used = |(name, id): (_, Option<u32>)| Some((name, Used::of(id?)?.cpu_secs));
        ids.into_iter().filter_map(used).collect()
    }
}

impl Arrivals {
    /// Waits until so many samples are where readers find them, and returns when that was, as far as it is known.
    pub(super) fn wait_for(self, samples: u64) -> Outcome<f64> {
        let until = local_clock() + ARRIVAL_SECS;
        loop {
            let (asked_at, count) = (local_clock(), self.count()?);
            if count >= samples {
                return Ok(asked_at);
            }
            if asked_at > until {
                let text = format!("{count} of {samples} samples arrived at the relay");
                return Err(Failure::Lost(text));
            }
            thread::sleep(BETWEEN_LOOKS);
        }
    }

    fn count(self) -> Outcome<u64> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let host = format!("127.0.0.1:{}", self.port);
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        let name = if self.is_stored {
            "lslrelay_engine_samples_total "
        } else {
            "lslrelay_samples_total{dir=\"in\"} "
        };
        let count = page.lines().find_map(|line| line.strip_prefix(name));
        let count = count.and_then(|count| count.trim().parse().ok());
        count.ok_or_else(|| Failure::Runtime(format!("a relay does not say {name}")))
    }
}

/// Starts a server that keeps everything in memory.
fn redis(port: u16) -> Outcome<KilledOnDrop> {
    let port_text = port.to_string();
    let mut command = Command::new(REDIS);
    command
        .args(["--port", &port_text, "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let server = KilledOnDrop::spawn(&mut command);
    let server = server.map_err(|failure| failure.context(REDIS))?;
    wait_for(port).map_err(|failure| failure.context(REDIS))?;
    Ok(server)
}

/// Returns a port that nobody has, and that no other run beside this one is given before its server has it.
fn free_port() -> Outcome<u16> {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(PORTS_OF_A_RUN);
    for _ in PORTS {
        let number = first.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        let number = number % u32::from(PORTS.end - PORTS.start);
        let port = PORTS.start + u16::try_from(number).unwrap_or_default();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Failure::Runtime("no port is free".into()))
}

fn wait_for(port: u16) -> Outcome {
    let until = local_clock() + START_SECS;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if local_clock() > until {
            return Err(Failure::NotFound("a process did not come up".into()));
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    Ok(())
}

/// Behind those of LSL, and before those that systems give to whoever connects.
const PORTS: Range<u16> = 17_000..32_000;
const PORTS_OF_A_RUN: u32 = 32;

const REDIS: &str = "redis-server";

const START_SECS: f64 = 20.0;

/// Longer than even the slowest takes to write everything.
const ARRIVAL_SECS: f64 = 120.0;

const BETWEEN_LOOKS: Duration = Duration::from_millis(3);
