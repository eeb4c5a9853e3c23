//! `lsl doctor`: names the one cause for which streams are not found, and what to type. `lsl-doctor` knows what to
//! look at and what follows; here are the command line, progress and the exit status. Spec: doctor §3.5

mod file;
mod pair;
mod serve;

use std::io::{self, IsTerminal, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};
use lsl_core::config::Bind;
use lsl_core::{Context, Selector, local_clock};
use lsl_doctor::code;
use lsl_doctor::collect::pair::{find, knock};
use lsl_doctor::collect::{PORT, Post};
use lsl_doctor::observe::{Asked, HostAsked, OtherSide, StreamAsked, host_and_port};
use lsl_doctor::pair::{PairError, Side};
use lsl_doctor::report::Report;
use lsl_doctor::table::Symptom;
use lsl_proto::config::Ipv4Network;

use self::pair::End;
use crate::failure::{Failure, Outcome};
use crate::globals::Globals;
use crate::interrupt::Stop;
use crate::streams::select::{OPERATORS, Wanted, seconds};
use crate::ui::notice::note;
use crate::ui::progress;
use crate::ui::text::printable;

#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Doctor {
    #[command(subcommand)]
    action: Option<DoctorCommand>,

    /// A stream that should be there, or a host: an address, a network (10.1.2.0/24), host:port or a name
    /// with a dot
    #[arg(value_name = "STREAM|HOST")]
    words: Vec<String>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Seconds that it may take
    #[arg(long, value_name = "SECS", default_value = "10", value_parser = seconds)]
    time: f64,

    /// Show also what is in order
    #[arg(long)]
    all: bool,

    /// Look at this machine alone, and send nothing to the network
    #[arg(long)]
    local: bool,

    /// The code that `lsl doctor serve` prints on the machine that is named
    #[arg(long, value_name = "CODE", value_parser = code::decode, requires = "words")]
    code: Option<OtherSide>,

    /// Port of `lsl doctor serve` on the machine that is named
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,

    /// Let risks fail as faults do
    #[arg(long)]
    strict: bool,

    #[command(flatten)]
    file: file::ReportArgs,
}

#[derive(Debug, Subcommand)]
enum DoctorCommand {
    Serve(serve::Serve),
}

const EXAMPLES: &str = "\
Examples:
  lsl doctor                     why is nothing found, or not all?
  lsl doctor Amp                 why is this stream not found?
  lsl doctor 192.168.1.20        why is nothing of this host found? (with `lsl doctor serve` there it knows best)
  lsl doctor --local             is it this machine? (sends nothing)
  lsl doctor --json > before.json
  lsl doctor --report for-support.json    to send it: names of hosts, streams, users are left out

It changes nothing: what it prints is for you to type. As root it reads the rules of the firewall, and names
the chain. Run it on the machine that misses streams, then on the one that sends them.

Exit status: 0 nothing is wrong; 1 a fault (with --strict also a risk); 2 wrong usage; 3 no fault is seen, but
what was named, or any stream of another machine, is not there.";

impl Doctor {
    /// Returns whether `--report` is given.
    pub(crate) fn writes_report(&self) -> bool {
        self.file.is_wanted()
    }

    pub(crate) fn run(&self, globals: &Globals) -> Outcome {
        if let Some(DoctorCommand::Serve(serve)) = &self.action {
            return serve.run(globals);
        }
        let loaded = globals.load()?;
        let context = Context::new(loaded.config.clone());
        let stop = Stop::install()?;
        let line = progress::line(!self.json);
        let start = local_clock();
        let show = |layer: &str| line.set_message(layer.to_owned());
        // Asking for the address of a name is sending, too.
        let may_look_up = || !self.local && !stop.requested();
        let mut words = self.read_words(|host| addresses(host, may_look_up()))?;
        if self.code.is_some() && one(&words.asked).is_none() {
            return Err(Failure::Usage(
                "name the one host whose code it is: lsl doctor HOST --code CODE".into(),
            ));
        }
        let end = End {
            loaded: &loaded,
            context: &context,
            stop: &stop,
            show: &show,
            selector: None,
            is_local: self.local,
            patience: self.patience(),
        };
        if let Some(report) = self.pair(&end.of(words.selector.as_ref()), &words.asked, start)? {
            line.finish_and_clear();
            self.file.write(&report, &loaded, &context)?;
            return self.show(&report);
        }
        let mut seen = end.of(words.selector.as_ref()).look(&words.asked, None);
        // A word may be the name of a host, if no stream is called so.
        if let Some(host) = words.missed_host(&seen.observations.asked, |host| {
            addresses(host, may_look_up())
        }) {
            words.asked.stream = None;
            words.selector = None;
            words.asked.hosts.push(host);
            seen = end.of(words.selector.as_ref()).look(&words.asked, None);
        }
        line.finish_and_clear();
        seen.observations.other.clone_from(&self.code);
        let tag = self.knock(&end, &words.asked);
        let mut report = pair::report(seen, tag, start);
        if self.code.is_none() && one(&words.asked).is_some() && is_open(&report) {
            note(CODE_HINT);
            if !self.json && io::stdin().is_terminal() && io::stderr().is_terminal() {
                report = with_code(report, tag, &serve::lines(), &stop);
            }
        }
        self.file.write(&report, &loaded, &context)?;
        self.show(&report)
    }

    fn patience(&self) -> f64 {
        (self.time / USUAL_SECS).clamp(0.2, 30.0)
    }

    /// Sends to the one machine that was named, whose code may say what it heard; returns how it calls this one.
    fn knock(&self, end: &End<'_>, asked: &Asked) -> u8 {
        let to = one(asked).and_then(|it| it.addresses.first());
        let to = to.filter(|_| !self.local && end.loaded.config.bind() == Bind::All);
        to.map_or(0, |to| knock(&end.machine(asked), *to, self.port))
    }

    /// Looks at the network together with the doctor of the one machine that was named, if there is one.
    fn pair(&self, end: &End<'_>, asked: &Asked, start: f64) -> Outcome<Option<Report>> {
        let Some(host) = one(asked) else {
            return Ok(None);
        };
        if self.local || self.code.is_some() || end.loaded.config.bind() != Bind::All {
            return Ok(None);
        }
        let base = end.machine(asked);
        let Some((stream, _)) = find(&host.addresses, self.port, base.asked.ports) else {
            return Ok(None);
        };
        // The same port as there, or any: nobody has to find it.
        let post = Post::open(&end.loaded.config, &base, self.port)
            .or_else(|_| Post::open(&end.loaded.config, &base, 0))?;
        let (seen, ended) = end.talk(stream, Side::Dials, &post, &base, asked);
        pair::note_end(&host.text, &ended);
        // The code works all the same.
        if matches!(ended, Err(PairError::Refused(_))) {
            return Ok(None);
        }
        let seen = seen.unwrap_or_else(|| end.look(asked, Some(&post)));
        Ok(Some(pair::report(seen, 0, start)))
    }

    fn show(&self, report: &Report) -> Outcome {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, report)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}", report.text(self.all))?;
        }
        out.flush()?;
        self.status(report)
    }

    fn status(&self, report: &Report) -> Outcome {
        let is_absent = |it: &Symptom| *it != Symptom::Hidden;
        if report.faults() > 0 || self.strict && !report.findings.is_empty() {
            Err(Failure::Told(FOUND))
        } else if report.unexplained.iter().any(is_absent) {
            Err(Failure::Told(ABSENT))
        } else {
            Ok(())
        }
    }

    fn read_words(&self, look_up: impl Fn(&str) -> Vec<IpAddr>) -> Outcome<Words> {
        let mut asked = Asked::default();
        let mut selector = None;
        for word in &self.words {
            if is_host(word) {
                asked.hosts.push(HostAsked {
                    addresses: look_up(word),
                    text: word.clone(),
                });
                continue;
            }
            if asked.stream.is_some() {
                return Err(Failure::Usage(format!(
                    "'{}' is a second stream; name one, and any number of hosts (addresses, or names \
                     with a dot)",
                    printable(word)
                )));
            }
            let wanted = Wanted::parse(word)?;
            selector = Some(wanted.selector()?);
            asked.stream = Some(wanted.asked());
        }
        let name = match &self.words[..] {
            [word] if asked.stream.is_some() && !word.contains(OPERATORS) => Some(word.clone()),
            _ => None,
        };
        // A name with a dot may be that of a stream, if no host is called so.
        let may_be_stream = |it: &HostAsked| it.addresses.is_empty() && !it.text.contains(':');
        if asked.stream.is_none()
            && let Some(at) = asked.hosts.iter().position(may_be_stream)
        {
            let HostAsked { text, .. } = asked.hosts.remove(at);
            let wanted = Wanted::Name(text);
            selector = Some(wanted.selector()?);
            asked.stream = Some(StreamAsked {
                text: format!("a host with a known address, or a stream {wanted},"),
                ..wanted.asked()
            });
        }
        Ok(Words {
            asked,
            selector,
            name,
        })
    }
}

/// Whether the other machine may know better.
fn is_open(report: &Report) -> bool {
    !report.unexplained.is_empty() || report.findings.iter().any(|it| !it.certain)
}

/// Concludes again with the code of the other machine, once a right one is typed; an empty line is none.
fn with_code(report: Report, tag: u8, typed: &mpsc::Receiver<String>, stop: &Stop) -> Report {
    note("Code, or Enter for none:");
    while !stop.requested() {
        match typed.recv_timeout(NAP) {
            Ok(line) if !line.trim().is_empty() => match code::decode(&line) {
                Ok(other) => return pair::again(report, other, tag),
                Err(error) => note(format!("{error}. Code, or Enter for none:")),
            },
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            _ => break,
        }
    }
    report
}

/// What was named on the command line.
struct Words {
    asked: Asked,
    selector: Option<Selector>,
    /// The one word, if it may be the name of a host as well.
    name: Option<String>,
}

impl Words {
    /// Returns the host that was meant, if there is no such stream.
    fn missed_host(
        &mut self,
        asked: &Asked,
        look_up: impl Fn(&str) -> Vec<IpAddr>,
    ) -> Option<HostAsked> {
        let name = self
            .name
            .take()
            .filter(|_| asked.stream.as_ref().is_some_and(|it| !it.found))?;
        let addresses = look_up(&name);
        (!addresses.is_empty()).then_some(HostAsked {
            text: name,
            addresses,
        })
    }
}

/// Whether a word is an address, a network, `host:port` or a name with a dot, and no predicate.
fn is_host(word: &str) -> bool {
    let is_address = word.parse::<IpAddr>().is_ok() || word.parse::<SocketAddr>().is_ok();
    let is_address = is_address || network(word).is_some();
    let (host, port) = word.rsplit_once(':').unwrap_or((word, "1"));
    let is_name = !word.contains(OPERATORS) && !host.contains(':') && port.parse::<u16>().is_ok();
    is_address || is_name && (word.contains(':') || word.trim_matches('.').contains('.'))
}

/// The one machine that was named, if it is one.
fn one(asked: &Asked) -> Option<&HostAsked> {
    match &asked.hosts[..] {
        [host] if !host.is_network() => Some(host),
        _ => None,
    }
}

/// The hosts of a network of IPv4 such as 10.1.2.0/24, if a word is one.
fn network(word: &str) -> Option<Vec<IpAddr>> {
    let network: Ipv4Network = word.parse().ok()?;
    Some(network.hosts().map(IpAddr::from).collect())
}

/// The addresses of a host, with the port that was named.
fn places(host: &HostAsked) -> Vec<SocketAddr> {
    let (_, port) = host_and_port(&host.text);
    // Hosts of a network are asked in another way.
    let addresses = host.addresses.iter().filter(|_| !host.is_network());
    addresses.map(|it| SocketAddr::new(*it, port)).collect()
}

/// Reads an address, or looks a name up, for two seconds at most, if that may be asked.
fn addresses(host: &str, may_look_up: bool) -> Vec<IpAddr> {
    let host = host_and_port(host).0.to_owned();
    if let Ok(address) = host.parse() {
        return vec![address];
    }
    if let Some(hosts) = network(&host) {
        return hosts;
    }
    if !may_look_up {
        return Vec::new();
    }
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let found = (host.as_str(), 0).to_socket_addrs();
        // Who asked may have given up.
        let _ = sender.send(found.map(|all| all.map(|it| it.ip()).take(MOST_ADDRESSES).collect()));
    });
    receiver
        .recv_timeout(LOOK_UP)
        .ok()
        .and_then(Result::ok)
        .unwrap_or_default()
}

/// Exit statuses.
const FOUND: u8 = 1;
const ABSENT: u8 = 3;
/// What `--time` says unless told otherwise; it takes less.
const USUAL_SECS: f64 = 10.0;
const CODE_HINT: &str = "Run `lsl doctor serve` there, then this again. If they do not find each other, press Enter there, and type \
here what it prints, or add it: --code CODE";
const NAP: Duration = Duration::from_millis(100);
const LOOK_UP: Duration = Duration::from_secs(2);
const MOST_ADDRESSES: usize = 4;

#[cfg(test)]
mod tests {
    use lsl_doctor::observe::Observations;

    use super::*;

    #[test]
    fn words_are_hosts_or_streams() {
        for host in [
            "10.1.0.7",
            "::1",
            "fe80::1",
            "amp.local",
            "amp:16572",
            "10.1.0.7:16572",
            "[::1]:16572",
            "10.1.2.0/24",
        ] {
            assert!(is_host(host), "{host}");
        }
        for stream in [
            "Amp",
            "type=EEG",
            "type='a.b'",
            "name=10.1",
            "My Amp v1.2",
            "a:b",
            "x.",
            "EEG/1",
        ] {
            assert!(!is_host(stream), "{stream}");
        }
    }

    #[test]
    fn a_code_is_asked_for_until_it_is_one() {
        let typed = |lines: &[&str]| {
            let (sender, receiver) = mpsc::channel();
            for line in lines {
                sender.send((*line).to_owned()).unwrap();
            }
            drop(sender);
            let seen = pair::Seen {
                observations: Observations::default(),
                checks: Vec::new(),
                talked: None,
            };
            let report = pair::report(seen, 0, local_clock());
            let report = with_code(report, 0, &receiver, &Stop::default());
            report.observations.other
        };
        let right = code::encode(&OtherSide::default());
        assert_eq!(typed(&["4000", &right]), Some(OtherSide::default()));
        for none in [&[][..], &["", &right], &["4000"]] {
            assert_eq!(typed(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_network_is_all_its_hosts() {
        let all = addresses("10.1.2.0/24", false);
        assert_eq!(all.len(), 254);
        let named = HostAsked {
            text: "10.1.2.0/24".into(),
            addresses: all,
        };
        assert_eq!(places(&named), [], "asked in another way");
        let asked = |hosts| Asked {
            hosts,
            ..Asked::default()
        };
        let single = HostAsked {
            text: "10.1.2.3".into(),
            ..HostAsked::default()
        };
        // No single machine of it is talked with.
        assert_eq!(one(&asked(vec![named])), None);
        assert_eq!(one(&asked(vec![single.clone()])), Some(&single));
        assert_eq!(one(&asked(vec![single.clone(), single])), None);
    }

    #[test]
    fn names_are_looked_up_only_if_they_may_be() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(addresses("10.1.0.7:16572", false), [address("10.1.0.7")]);
        assert_eq!(addresses("[::1]:16572", false), [address("::1")]);
        assert_eq!(addresses("::1", false), [address("::1")]);
        assert!(addresses("localhost", true).iter().all(IpAddr::is_loopback));
        assert!(!addresses("localhost:16572", true).is_empty());
        assert!(addresses("localhost", false).is_empty());
        let host = HostAsked {
            text: "amp:17000".into(),
            addresses: vec![address("10.1.0.7")],
        };
        assert_eq!(places(&host), ["10.1.0.7:17000".parse().unwrap()]);
    }
}
