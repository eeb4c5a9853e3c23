//! `lsl relay`: gives the streams of this machine's networks to others through one TCP port. Spec: relay §13.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use lsl_core::secure::trust::TrustList;
use lsl_core::{Context, Error, local_clock};
use lsl_platform::termination::{catch_hangup, take_hangup};
use lsl_relay::config::{Config, DEFAULT_PORT, target};
use lsl_relay::shell::Relay as Running;
use serde_json::Value;

use crate::failure::{Failure, Outcome};
use crate::globals::Globals;
use crate::interrupt::Stop;
use crate::ui::notice::note;
use crate::ui::text::{count, printable};

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

    /// File with the rules [default: $LSL_RELAY_CONFIG, or lsl-relay.toml in ~/lsl_api or /etc/lsl_api]
    #[arg(long = "relay-config", value_name = "FILE")]
    rules: Option<PathBuf>,

    /// Name of the relay [default: that of this host]
    #[arg(long)]
    name: Option<String>,
}

#[derive(Debug, Subcommand)]
enum RelayCommand {
    /// Show the streams that the relay of this machine knows, and who reads them
    Status(Status),
}

const EXAMPLES: &str = "\
Examples:
  lsl relay                               serve every stream of this network at port 16570
  lsl relay --listen 127.0.0.1:16570      for this machine alone: needs no key
  lsl relay --connect lab2.example.org    and a link to the relay there, for the streams of both
  lsl relay status                        what does it serve, and to whom?

A machine that sees no stream of the lab, because it is on Wi-Fi or in another building, needs one line in its
lsl_api.cfg, and every program there that uses this library finds and reads what the relay sees:
  [lab]
  Relay = {relay.lab.example.org}

Both ends need a key (`lsl key init`) and trust each other: there `lsl trust add relay KEY --role relay`, here
`lsl trust add laptop KEY`. Each stream is read once, however many read it here.

Exit status: 0 ended by Ctrl-C; 1 the port is taken; 2 wrong usage or configuration; 5 encryption does not allow it.";

#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
struct Status {
    /// Port of the relay
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const STATUS_EXAMPLES: &str = "\
Examples:
  lsl relay status
  lsl relay status --json | jq '.streams[] | select(.readers > 0)'

Exit status: 3 if no relay runs here.";

impl Relay {
    pub(crate) fn run(&self, globals: &Globals) -> Outcome {
        match &self.action {
            Some(RelayCommand::Status(status)) => status.run(),
            None => self.serve(&globals.context()?),
        }
    }

    fn serve(&self, context: &Context) -> Outcome {
        catch_hangup()
            .map_err(|error| Failure::Runtime(format!("cannot catch SIGHUP: {error}")))?;
        let file = self.rules.clone().or_else(find);
        let mut text = read(file.as_deref())?;
        let security = context.security()?;
        let mut trust = security.trust();
        let config = self.config(file.as_deref(), &text, &trust)?;
        let host = String::from_utf8_lossy(&lsl_platform::process::hostname()).into_owned();
        let name = self.name.as_deref().unwrap_or(&host);
        let relay = Running::start(context, &config, name, self.insecure.clone());
        let mut relay = relay.map_err(|error| failed(&error, &config))?;
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
        Ok(())
    }

    /// Returns the settings: those of the file with this text, with the options in their place.
    fn config(&self, file: Option<&Path>, text: &str, trust: &TrustList) -> Outcome<Config> {
        let shown = || file.map_or(String::new(), |it| it.display().to_string());
        let mut config = Config::parse(text, trust)
            .map_err(|error| Failure::Usage(format!("{}: {error}", shown())))?;
        // Nothing that somebody asked for is left out in silence.
        let later = [
            ("[local] between", !config.between.is_empty()),
            ("[history]", config.history.is_some()),
            ("[engine]", config.engine.is_some()),
        ];
        if let Some((key, _)) = later.iter().find(|(_, is_set)| *is_set) {
            return Err(Failure::Usage(format!(
                "{}: this version serves one port and has no {key} yet; remove it",
                shown()
            )));
        }
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
        Ok(config)
    }
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

impl Status {
    fn run(&self) -> Outcome {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let nobody = |error: io::Error| {
            Failure::NotFound(format!(
                "no relay answers at {address}: {error}; start one by: lsl relay"
            ))
        };
        let text = ask(address).map_err(nobody)?;
        let status: Value = serde_json::from_str(&text).map_err(|_| {
            Failure::NotFound(format!("{address} is no relay (it closed the connection)"))
        })?;
        let mut out = io::stdout().lock();
        let shown = if self.json {
            writeln!(out, "{status}")
        } else {
            show(&mut out, &status)
        };
        shown.map_err(|_| Failure::ReaderLeft)
    }
}

fn ask(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"LSL:relay-status/1\r\n")?;
    let mut text = String::new();
    stream.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn show(out: &mut impl Write, status: &Value) -> io::Result<()> {
    let text = |value: &Value, key: &str| printable(value[key].as_str().unwrap_or(""));
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap_or(0);
    let streams = status["streams"].as_array().map_or(&[][..], Vec::as_slice);
    let (name, id) = (text(status, "name"), text(status, "relay"));
    writeln!(
        out,
        "Relay {name} ({id}): {}",
        count(streams.len(), "stream")
    )?;
    for stream in streams {
        let (name, kind) = (text(stream, "name"), text(stream, "type"));
        let (host, state) = (text(stream, "hostname"), text(stream, "state"));
        let readers = count(
            usize::try_from(number(stream, "readers")).unwrap_or(0),
            "reader",
        );
        write!(out, "  {name} ({kind}) on {host}: {state}, {readers}")?;
        if number(stream, "received") > 0 {
            write!(out, ", {} samples passed on", number(stream, "received"))?;
        }
        if number(stream, "lost_exact") > 0 {
            write!(
                out,
                ", {} lost before they came here",
                number(stream, "lost_exact")
            )?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Time between looks at what asks for other settings, in seconds.
const LOOK_SECS: f64 = 0.5;

/// How long the relay of this machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of the longest answer.
const MOST_BYTES: u64 = 64 << 20;
