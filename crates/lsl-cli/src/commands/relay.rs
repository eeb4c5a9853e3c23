//! `lsl relay`: gives the streams of this machine's networks to others through one TCP port. Spec: relay §13.

mod check;
mod ingest;
mod status;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use lsl_core::secure::trust::TrustList;
use lsl_core::{Context, Error, local_clock};
use lsl_platform::notify::{ServiceState, notify};
use lsl_platform::termination::{catch_hangup, take_hangup};
use lsl_relay::config::{Config, DEFAULT_PORT, EngineConfig, HistoryConfig, Layout, target};
use lsl_relay::engine::river::Pattern;
use lsl_relay::engine::{Address, EngineError, ErrorKind};
use lsl_relay::shell::{Relay as Running, StartError, check_engine};

use crate::failure::{Failure, Outcome};
use crate::globals::Globals;
use crate::interrupt::Stop;
use crate::ui::notice::note;
use crate::ui::text::printable;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Relay {
    #[command(subcommand)]
    action: Option<RelayCommand>,

    /// Address and port to listen at; more than once for several [default: 0.0.0.0:16570 and [::]:16570]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<SocketAddr>,

    /// Link with the relay at this host, both directions; more than once for several [port: 16570]
    #[arg(long, value_name = "HOST[:PORT]")]
    connect: Vec<String>,

    /// Address and port at which programs are answered that do not encrypt
    #[arg(long, value_name = "ADDR:PORT")]
    insecure: Vec<SocketAddr>,

    /// Addresses of this machine in two or more networks: what is seen in one is offered in the others
    #[arg(long, value_name = "ADDR,ADDR", value_delimiter = ',')]
    between: Vec<IpAddr>,

    /// Keep the past of all streams in this folder, for `--since` of `lsl recv` and `lsl record`
    #[arg(long, value_name = "DIR")]
    history: Option<PathBuf>,

    /// How old what is kept becomes, as 10min or 2d [default: 10min]
    #[arg(long, value_name = "AGE", value_parser = lsl_relay::config::age)]
    history_age: Option<f64>,

    /// How large what is kept becomes, as 20GiB [default: 20GiB]
    #[arg(long, value_name = "SIZE", value_parser = lsl_relay::config::size)]
    history_size: Option<u64>,

    /// File with the rules [default: $LSL_RELAY_CONFIG, or lsl-relay.toml in ~/lsl_api or /etc/lsl_api]
    #[arg(long = "relay-config", value_name = "FILE")]
    rules: Option<PathBuf>,

    /// Redis or Valkey server that keeps the streams for which a rule says `engine = true`
    #[arg(long, value_name = "URL")]
    engine: Option<String>,

    /// Keys and values in the engine: packed, or river as River reads them [default: packed]
    #[arg(long, value_name = "NAME", requires = "engine")]
    layout: Option<Layout>,

    /// Streams of River in the engine that are offered as streams of LSL, by their whole names
    #[arg(long, value_name = "REGEX", requires = "engine")]
    river: Option<Pattern>,

    /// Name of the relay [default: that of this host]
    #[arg(long)]
    name: Option<String>,
}

#[derive(Debug, Subcommand)]
enum RelayCommand {
    /// Show the links and streams of a relay, who reads them, and what was lost
    Status(status::Status),
    /// Open each link and the engine once, and say who refuses whom, why, and what to run
    Check(check::Check),
    /// Take streams of River from Redis into files of Apache Parquet
    Ingest(ingest::IngestStreams),
}

const EXAMPLES: &str = "\
Examples:
  lsl relay                               serve every stream of this network at port 16570
  lsl relay --listen 127.0.0.1:16570      for this machine alone: needs no key
  lsl relay --connect lab2.example.org    and a link to the relay there, for the streams of both
  lsl relay --between 10.1.0.5,10.2.0.5   two networks of this machine see the streams of each other
  lsl relay --history /data/lsl           and keep the last 10 min: `lsl recv EEG --since 5min`
  lsl relay --engine rediss://redis.lan   and keep the streams that the rules name there
  lsl relay --engine redis://redis.lan --river 'neuro.*'  and offer these streams of River as streams of LSL
  lsl relay status                        what does it serve, and to whom?
  lsl relay check                         does every link work, and if not, why?

A machine that sees no stream of the lab, because it is on Wi-Fi or in another building, needs one line in its
lsl_api.cfg, and every program there that uses this library finds and reads what the relay sees:
  [lab]
  Relay = {relay.lab.example.org}

Both ends need a key (`lsl key init`) and trust each other: there `lsl trust add relay KEY --role relay`, here
`lsl trust add laptop KEY`. Each stream is read once, however many read it here.

Exit status: 0 ended by a signal; 1 the port is taken; 2 wrong usage or configuration; 4 history cannot be kept there,
or the engine cannot be used; 5 encryption does not allow it.";

impl Relay {
    pub(crate) fn run(&self, globals: &Globals) -> Outcome {
        match &self.action {
            Some(RelayCommand::Status(status)) => status.run(globals),
            Some(RelayCommand::Check(check)) => check.run(globals),
            Some(RelayCommand::Ingest(ingest)) => ingest.run(globals),
            None => self.serve(&globals.context()?),
        }
    }

    /// Whether it is to run, not to ask about one.
    pub(crate) fn serves(&self) -> bool {
        self.action.is_none()
    }

    fn serve(&self, context: &Context) -> Outcome {
        catch_hangup()
            .map_err(|error| Failure::Runtime(format!("cannot catch SIGHUP: {error}")))?;
        let file = self.rules.clone().or_else(find);
        let mut text = read(file.as_deref())?;
        let security = context.security()?;
        let mut trust = security.trust();
        let config = self.config(file.as_deref(), &text, &trust)?;
        let host = host_name();
        let name = self.name.as_deref().unwrap_or(&host);
        if let Some(engine) = &config.engine {
            try_engine(engine)?;
        }
        let relay = Running::start(context, &config, name, self.insecure.clone());
        let mut relay = relay.map_err(|error| match error {
            StartError::Relay(error) => failed(&error, &config),
            StartError::Store(text) => Failure::Lost(text),
        })?;
        let addresses: Vec<_> = relay
            .addresses()
            .iter()
            .map(SocketAddr::to_string)
            .collect();
        let (id, addresses) = (relay.id(), addresses.join(", "));
        note(format_args!(
            "Relay {} ({id}) at {addresses}; Ctrl-C ends it",
            printable(name)
        ));
        let stop = Stop::install()?;
        tell_manager(ServiceState::Ready);
        while stop.sleep_until(local_clock() + LOOK_SECS) {
            let is_asked = take_hangup();
            if is_asked {
                security.refresh_if_idle();
            }
            let trusted = security.trust();
            // Names stand for other keys then.
            if !is_asked && Arc::ptr_eq(&trusted, &trust) {
                continue;
            }
            trust = trusted;
            let wanted = if is_asked {
                read(file.as_deref())
            } else {
                Ok(text.clone())
            };
            let config = wanted.and_then(|wanted| {
                let config = self.config(file.as_deref(), &wanted, &trust)?;
                text = wanted;
                Ok(config)
            });
            match config {
                Ok(config) => {
                    relay.reload(&config);
                    tracing::info!("new settings are in use");
                }
                Err(error) => tracing::error!("{error}; the settings before stay in use"),
            }
        }
        tell_manager(ServiceState::Stopping);
        drop(relay);
        Ok(())
    }

    /// Returns the settings: those of the file with this text, with the options in their place.
    fn config(&self, file: Option<&Path>, text: &str, trust: &TrustList) -> Outcome<Config> {
        let mut config = parse(file, text, trust)?;
        if !self.connect.is_empty() {
            let targets = self.connect.iter().map(|host| target(host));
            config.connect = targets.collect::<Result<_, _>>().map_err(Failure::Usage)?;
        }
        if !self.listen.is_empty() {
            config.listen.clone_from(&self.listen);
        } else if !self.insecure.is_empty() {
            // Whoever names addresses means these.
            config.listen.clear();
        }
        if !self.between.is_empty() {
            config.between.clone_from(&self.between);
        }
        if let Some(dir) = &self.history {
            match &mut config.history {
                Some(history) => history.dir.clone_from(dir),
                none => *none = Some(HistoryConfig::at(dir.clone())),
            }
        }
        match &mut config.history {
            Some(history) => {
                history.max_age_secs = self.history_age.unwrap_or(history.max_age_secs);
                history.max_bytes = self.history_size.unwrap_or(history.max_bytes);
            }
            None if self.history_age.is_some() || self.history_size.is_some() => {
                let text = "--history-age and --history-size go with --history DIR";
                return Err(Failure::Usage(text.to_owned()));
            }
            None => {}
        }
        if let Some(url) = &self.engine {
            let address = Address::parse(url).map_err(Failure::Usage)?;
            let engine = match config.engine.take() {
                Some(engine) => EngineConfig { address, ..engine },
                None => EngineConfig::new(address),
            };
            config.engine = Some(engine);
        }
        if let (Some(engine), Some(layout)) = (&mut config.engine, self.layout) {
            engine.layout = layout;
        }
        if let (Some(engine), Some(river)) = (&mut config.engine, &self.river) {
            engine.river = Some(river.clone());
        }
        Ok(config)
    }
}

/// Returns the settings of a file with this text.
fn parse(file: Option<&Path>, text: &str, trust: &TrustList) -> Outcome<Config> {
    let shown = || file.map_or(String::new(), |it| it.display().to_string());
    let config = Config::parse(text, trust)
        .map_err(|error| Failure::Usage(format!("{}: {error}", shown())))?;
    // Nothing that somebody asked for is left out in silence.
    let later = [("[local] plaintext", config.plaintext.is_some())];
    if let Some((key, _)) = later.iter().find(|(_, is_set)| *is_set) {
        return Err(Failure::Usage(format!(
            "{}: this version serves one port and has no {key} yet; remove it",
            shown()
        )));
    }
    Ok(config)
}

/// Asks an engine whether it can be used as it is. One that is not there may come later.
fn try_engine(config: &EngineConfig) -> Outcome {
    match check_engine(config) {
        Ok(()) => Ok(()),
        Err(error) if error.kind == ErrorKind::Retry => {
            tracing::warn!("engine: {error}; it is tried again and again");
            Ok(())
        }
        Err(error) => Err(Failure::Lost(engine_text(config, &error))),
    }
}

/// Returns the error of an engine in words.
fn engine_text(config: &EngineConfig, error: &EngineError) -> String {
    let user = config.user.as_deref().unwrap_or("default");
    let text = error
        .text
        .replace("the user may", &format!("user {user} may"));
    format!(
        "{} at {}: {text}",
        config.address.scheme.name(),
        config.address
    )
}

fn tell_manager(state: ServiceState) {
    if let Err(error) = notify(state) {
        tracing::warn!("the service manager is not told: {error}");
    }
}

fn host_name() -> String {
    String::from_utf8_lossy(&lsl_platform::process::hostname()).into_owned()
}

/// Returns the text of the file, none if there is none.
fn read(file: Option<&Path>) -> Outcome<String> {
    let Some(file) = file else {
        return Ok(String::new());
    };
    let failed = |error| Failure::Usage(format!("cannot read {}: {error}", file.display()));
    std::fs::read_to_string(file).map_err(failed)
}

/// Returns the file that the environment names, or that of the user or the machine, if there is one.
fn find() -> Option<PathBuf> {
    if let Some(file) = std::env::var_os("LSL_RELAY_CONFIG").filter(|file| !file.is_empty()) {
        return Some(file.into());
    }
    let home = lsl_platform::directories::home().map(|home| home.join("lsl_api"));
    let folders = home
        .into_iter()
        .chain([lsl_platform::directories::system().to_path_buf()]);
    folders
        .map(|folder| folder.join("lsl-relay.toml"))
        .find(|file| file.is_file())
}

fn failed(error: &Error, config: &Config) -> Failure {
    match error {
        Error::Io { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
            let port = config.listen.first().map_or(DEFAULT_PORT, SocketAddr::port);
            Failure::Runtime(format!(
                "port {port} is taken; another relay? lsl relay status --port {port}"
            ))
        }
        Error::Security(text) => Failure::Recording(5, text.clone()),
        error => Failure::Runtime(error.to_string()),
    }
}

/// Time between looks at what asks for other settings, in seconds.
const LOOK_SECS: f64 = 0.5;
