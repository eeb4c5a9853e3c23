//! Options that every command takes, and the configuration and context they amount to.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgAction, Args};
use lsl_core::Context;
use lsl_core::config::{
    Bind, Config, Loaded, Overrides, Severity, Source, SystemFiles, load, load_text,
};
use lsl_core::secure::config::{Found, search};
use lsl_proto::config::{EncryptionRequest, encryption_request_in_home};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::time::uptime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::failure::{Failure, Outcome};
use crate::files::place;
use crate::ui::notice::{KeptLog, LogLine, note};

/// Options that all commands of `lsl` and `lsl-bench` share.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Globals {
    /// Configuration file to use instead of LSLAPICFG and the usual places
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Session to work in: only streams of the same session see each other
    #[arg(long, global = true, value_name = "ID")]
    session: Option<String>,

    /// Stay on the loopback interface: see and serve only this machine, send nothing to the network
    #[arg(long, global = true)]
    loopback: bool,

    /// Also ask this host directly, where multicast does not reach; may be repeated
    #[arg(long, global = true, value_name = "HOST[:PORT]")]
    known_peer: Vec<String>,

    /// Log what happens inside to stderr; -vv and -vvv say more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
}

impl Globals {
    /// Starts the log. Call it once. Unless the user asks for more, security events are left out for
    /// commands that report them in their own words.
    pub fn start_log(&self, events: Events) {
        self.start(events, false);
    }

    /// Starts the log, and keeps it from debug on for a report: that of our crates, without security events.
    pub fn start_log_for_report(&self, events: Events) {
        self.start(events, true);
    }

    fn start(&self, events: Events, is_kept: bool) {
        let level = match self.verbose {
            0 => LevelFilter::WARN,
            1 => LevelFilter::INFO,
            2 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        let mut targets = Targets::new().with_default(level);
        if self.verbose == 0 && events == Events::Told {
            targets = without_events(targets);
        }
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(|| LogLine)
            .with_ansi(false)
            .without_time()
            .with_filter(targets);
        let kept = is_kept.then(|| {
            let lines = tracing_subscriber::fmt::layer().with_writer(|| KeptLog);
            let lines = lines.with_ansi(false).with_timer(uptime());
            lines.with_filter(without_events(
                Targets::new().with_target("lsl", LevelFilter::DEBUG),
            ))
        });
        let subscriber = tracing_subscriber::registry().with(lines).with(kept);
        // Fails only if there is a subscriber already, and then there is one.
        let _ = subscriber.try_init();
    }

    /// Loads the configuration: file, then the changes by the command line.
    pub fn load(&self) -> Outcome<Loaded> {
        let mut loaded = match &self.config {
            // Unlike a file named by a program, one named by the user wins over the environment.
            Some(path) => read(path)?,
            None => load(&SystemFiles, &Overrides::default()),
        };
        self.apply(&mut loaded.config)?;
        Ok(loaded)
    }

    /// Makes the context of this configuration. Reports mistakes in it on stderr. Asks for the
    /// passphrase of the device key where it must.
    pub fn context(&self) -> Outcome<Context> {
        self.context_in(None)
    }

    /// Makes a context as [`context`](Self::context) does, with the encryption set up in `directory`.
    pub fn context_in(&self, directory: Option<&Path>) -> Outcome<Context> {
        let security = place::unlock(directory)?;
        let config = self.usable()?;
        Ok(match security {
            Some(security) => Context::with_security(config, Arc::new(security)),
            None => Context::new(config),
        })
    }

    /// Makes a context that need not be able to read or offer anything: never asks for a passphrase.
    pub fn context_for_looking(&self) -> Outcome<Context> {
        Ok(Context::new(self.usable()?))
    }

    /// Makes a context that finds the streams of a service on the host `address`, whose options are
    /// `service`: in its session, and by asking it directly.
    pub fn to_reach(&self, service: &Self, address: &str) -> Outcome<Context> {
        let mut globals = self.clone();
        globals.session = service.session.clone().or(globals.session);
        let peer = if address.contains(':') && !address.starts_with('[') {
            format!("[{address}]")
        } else {
            address.to_owned()
        };
        globals.known_peer.push(peer);
        globals.context_for_looking()
    }

    /// Returns these options as words of a command line, without those that only say more.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(file) = &self.config {
            words.extend(["--config".into(), file.to_string_lossy().into_owned()]);
        }
        if let Some(session) = &self.session {
            words.extend(["--session".into(), session.clone()]);
        }
        if self.loopback {
            words.push("--loopback".into());
        }
        for peer in &self.known_peer {
            words.extend(["--known-peer".into(), peer.clone()]);
        }
        words
    }

    /// Returns whether nothing leaves the machine.
    pub fn is_loopback(&self) -> bool {
        self.loopback
    }

    /// Returns how often the user asked to see more.
    pub fn verbosity(&self) -> u8 {
        self.verbose
    }

    /// Returns whether the user wants to see more.
    pub fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    fn usable(&self) -> Outcome<Config> {
        let loaded = self.load()?;
        for diagnostic in &loaded.diagnostics {
            if diagnostic.severity >= Severity::Warning {
                note(format_args!("lsl: {diagnostic}"));
            }
        }
        Ok(loaded.config)
    }

    /// Returns the request for encryption that stops all streams (E7), if there is one.
    pub fn encryption_request(&self) -> Option<EncryptionRequest> {
        if !matches!(search(), Ok(Found::Nothing { .. })) {
            return None;
        }
        let config = self.load().ok()?.config;
        let in_force = config.encryption_request().cloned();
        in_force.or_else(|| encryption_request_in_home(&SystemFiles))
    }

    /// Reports that no stream can be read or offered, for commands that need none.
    pub fn warn_of_encryption_request(&self) {
        if let Some(request) = self.encryption_request() {
            note(format_args!("lsl: warning: {request}"));
        }
    }

    /// Returns the file named on the command line.
    pub fn config_file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    fn apply(&self, config: &mut Config) -> Outcome {
        if let Some(session) = &self.session {
            config
                .set_session_id(session)
                .map_err(|error| usage("--session", &error))?;
        }
        if self.loopback {
            config.set_bind(Bind::Loopback);
        }
        if !self.known_peer.is_empty() {
            let configured: Vec<String> = config
                .lab()
                .known_peers
                .iter()
                .map(ToString::to_string)
                .collect();
            let peers: Vec<&str> = configured
                .iter()
                .chain(&self.known_peer)
                .map(String::as_str)
                .collect();
            config
                .set_known_peers(&peers)
                .map_err(|error| usage("--known-peer", &error))?;
        }
        Ok(())
    }
}

/// Treatment of security events in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Events {
    /// Left out: the command reports them itself.
    Told,
    /// Logged like all other events.
    Logged,
}

fn without_events(targets: Targets) -> Targets {
    EVENT_TARGETS.iter().fold(targets, |targets, name| {
        targets.with_target(*name, LevelFilter::OFF)
    })
}

/// Log targets of security events that a command reports in its own words.
const EVENT_TARGETS: [&str; 2] = ["lsl_secure::audit", "lsl_core::drive_inlet::peers"];

/// Reads a configuration file by name.
fn read(path: &Path) -> Outcome<Loaded> {
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::Runtime(format!("{}: {error}", path.display())))?;
    let source = Source::Api(path.to_owned());
    match load_text(&String::from_utf8_lossy(&bytes), &source) {
        Ok((config, diagnostics)) => Ok(Loaded {
            config,
            source,
            diagnostics,
        }),
        Err(diagnostic) => Err(Failure::Runtime(format!(
            "{diagnostic} (`lsl config check {}` explains files)",
            path.display()
        ))),
    }
}

fn usage(option: &str, error: &lsl_core::Error) -> Failure {
    Failure::Usage(format!("{option}: {error}"))
}
