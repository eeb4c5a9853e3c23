//! `lsl relay check`: opens each link and the engine once, and reports refusals. Spec: relay §13.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use lsl_relay::config::target;
use lsl_relay::shell::{Linked, Visit, check_engine};
use serde_json::Value;

use super::{engine_text, find, host_name, parse, read, status};
use crate::failure::{Failure, Outcome};
use crate::globals::Globals;
use crate::ui::notice::note;
use crate::ui::text::{count, printable};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Check {
    /// Relays to link with [default: those of [relay] connect in the file]
    #[arg(value_name = "HOST[:PORT]")]
    hosts: Vec<String>,

    /// File with the rules [default: as lsl relay]
    #[arg(long = "relay-config", value_name = "FILE")]
    rules: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  lsl relay check
  lsl relay check lab2.example.org        before it is among connect

Run it as the user of the relay, with the same files. It also asks the relay of this machine, and leaves alone what is
linked with it. It opens the engine once, and writes nothing there. Exit status 1 if a link cannot be made, the engine
cannot be used, or no relay runs here.";

/// What was checked, and what was found, or why not.
type Row = (String, Result<String, String>);

impl Check {
    pub(super) fn run(&self, globals: &Globals) -> Outcome {
        let context = globals.context()?;
        let file = self.rules.clone().or_else(find);
        let trust = context.security()?.trust();
        let config = parse(file.as_deref(), &read(file.as_deref())?, &trust)?;
        let named = self.hosts.iter().map(|host| target(host));
        let named: Vec<_> = named.collect::<Result<_, _>>().map_err(Failure::Usage)?;
        let targets = if named.is_empty() {
            config.connect
        } else {
            named
        };
        let visit = Visit::new(&context)?;
        let (mut rows, mut own) = (Vec::new(), Value::Null);
        for address in to_ask(&config.listen) {
            let asked = if address.ip().is_loopback() {
                status::ask(address)
            } else {
                visit.status(&address.to_string())
            };
            let found = asked.as_ref().map(status::headline);
            rows.push((address.to_string(), found.map_err(ToString::to_string)));
            own = asked.unwrap_or(own);
        }
        rows.extend(links(&visit, &own, targets)?);
        if let Some(engine) = config.engine.as_ref().filter(|_| self.hosts.is_empty()) {
            let found = check_engine(engine).map(|()| "engine, nothing missing".to_owned());
            let found = found.map_err(|error| engine_text(engine, &error));
            rows.push((engine.address.to_string(), found));
        }
        report(&rows)
    }
}

/// Returns the addresses at which the relay of this machine answers, one for each port if it listens at all.
fn to_ask(listen: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_any_v4 = |it: &&SocketAddr| it.ip() == IpAddr::from(Ipv4Addr::UNSPECIFIED);
    let ports: Vec<_> = (listen.iter().filter(is_any_v4).map(SocketAddr::port)).collect();
    let asked = listen.iter().filter_map(|address| match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Some((Ipv4Addr::LOCALHOST, address.port()).into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) if ports.contains(&address.port()) => None,
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Some((Ipv6Addr::LOCALHOST, address.port()).into()),
        _ => Some(*address),
    });
    asked.collect()
}

/// Links with all that the relay of this machine, with the status `own`, is not linked with: a second link would end
/// the first one.
fn links(visit: &Visit, own: &Value, targets: Vec<String>) -> Outcome<Vec<Row>> {
    let up = own["links"].as_array().into_iter().flatten();
    let up: Vec<_> = up.filter(|link| link["state"] == "up").collect();
    let leads = |link: &Value, target: &str| {
        let mut targets = link["targets"].as_array().into_iter().flatten();
        targets.any(|it| it == target)
    };
    let linked = |target: &str| up.iter().find(|link| leads(link, target));
    let (known, unknown): (Vec<_>, Vec<_>) =
        (targets.into_iter()).partition(|target| linked(target).is_some());
    let visited = visit.link(&unknown, &host_name())?;
    let visited = unknown.into_iter().zip(visited).map(|(target, found)| {
        let found = found.and_then(|found| match found {
            Linked::Already => Ok("linked".to_owned()),
            Linked::With { id, .. } if own["relay"] == *id => Err(format!(
                "this relay's own address is among connect (508): {target}"
            )),
            Linked::With { name, id } => Ok(format!("relay {name} ({id})")),
        });
        (target, found)
    });
    let known = known.iter().filter_map(|target| {
        let link = linked(target)?;
        let (name, id) = (link["name"].as_str()?, link["id"].as_str()?);
        Some((target.clone(), Ok(format!("relay {name} ({id}), linked"))))
    });
    Ok(known.chain(visited).collect())
}

fn report(rows: &[Row]) -> Outcome {
    let mut out = io::stdout().lock();
    for (subject, found) in rows {
        let (mark, text) = match found {
            Ok(text) => ("ok    ", text),
            Err(text) => ("FAILED", text),
        };
        let (subject, text) = (printable(subject), printable(text));
        writeln!(out, "{mark}  {subject}: {text}")?;
    }
    out.flush()?;
    let failed = rows.iter().filter(|(_, found)| found.is_err()).count();
    if failed > 0 {
        let all = count(rows.len(), "check");
        return Err(Failure::Runtime(format!("{failed} of {all} failed")));
    }
    note("Everything is in order.");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_open_everywhere_is_asked_once() {
        let asked = |listen: &[&str]| {
            let listen: Vec<_> = listen.iter().map(|it| it.parse().unwrap()).collect();
            let asked = to_ask(&listen).into_iter().map(|it| it.to_string());
            asked.collect::<Vec<_>>()
        };
        assert_eq!(asked(&["0.0.0.0:1", "[::]:1"]), ["127.0.0.1:1"]);
        assert_eq!(asked(&["[::]:1"]), ["[::1]:1"]);
        assert_eq!(
            asked(&["10.1.0.5:1", "0.0.0.0:2"]),
            ["10.1.0.5:1", "127.0.0.1:2"]
        );
    }
}
