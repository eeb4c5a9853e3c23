//! `lsl relay status`: what a relay does. Spec: relay §13.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;
use indicatif::HumanBytes;
use lsl_core::local_clock;
use lsl_platform::terminal;
use lsl_relay::config::{DEFAULT_PORT, target};
use lsl_relay::shell::{Visit, VisitError};
use serde_json::Value;

use crate::failure::{Failure, Outcome};
use crate::globals::Globals;
use crate::interrupt::Stop;
use crate::ui::table::{Align, Table};
use crate::ui::text::{age, count, printable};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Status {
    /// Machine of the relay; it must trust this one as a relay [default: this one]
    #[arg(value_name = "HOST[:PORT]")]
    host: Option<String>,

    /// Port of the relay
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,

    /// Print one JSON object, or with --watch one a line
    #[arg(long)]
    json: bool,

    /// Show it anew every two seconds, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

const EXAMPLES: &str = "\
Examples:
  lsl relay status
  lsl relay status lab2.example.org       the relay there
  lsl relay status --watch
  lsl relay status --json | jq '.streams[] | select(.readers > 0)'

WAY is how a stream comes here: directly, or by the link of that name, over HOPS relays. PASSED ON are the samples
that came; LOST those that were missing then; DROPPED those that readers were too slow for.

Exit status: 3 if no relay runs there; 5 if encryption does not allow to ask it.";

impl Status {
    pub(super) fn run(&self, globals: &Globals) -> Outcome {
        let visit = match &self.host {
            Some(host) => {
                let target = self.target(host)?;
                Some((Visit::new(&globals.context()?)?, target))
            }
            None => None,
        };
        let ask = || match &visit {
            Some((visit, target)) => visit.status(target),
            None => ask((Ipv4Addr::LOCALHOST, self.port).into()),
        };
        let ask = || {
            ask().map_err(|error| match error {
                VisitError::NotThere(text) => Failure::NotFound(text),
                VisitError::Refused(text) => Failure::Recording(5, text),
            })
        };
        let mut shown = ask()?;
        if !self.watch {
            return self.write(&shown, None);
        }
        let stop = Stop::install()?;
        let screen = terminal::prepare(&io::stdout());
        loop {
            self.write(
                &shown,
                screen.then(|| terminal::rows().unwrap_or(usize::MAX)),
            )?;
            if !stop.sleep_until(local_clock() + WATCH_SECS) {
                return Ok(());
            }
            shown = ask()?;
        }
    }

    /// Returns the address to ask: the host may name the port, too.
    fn target(&self, host: &str) -> Outcome<String> {
        let whole = target(host).map_err(Failure::Usage)?;
        let bare = whole.strip_suffix(&format!(":{DEFAULT_PORT}"));
        Ok(match bare.filter(|_| whole != host) {
            Some(bare) => format!("{bare}:{}", self.port),
            None => whole,
        })
    }

    /// Writes it; on a terminal with so many rows in the place of what it shows.
    fn write(&self, status: &Value, rows: Option<usize>) -> Outcome {
        let mut text = Vec::new();
        if self.json {
            writeln!(text, "{status}")?;
        } else {
            show(&mut text, status)?;
        }
        let mut out = io::stdout().lock();
        if let Some(rows) = rows.filter(|_| !self.json) {
            // Lines that wrap, or do not fit, would move what is above.
            let text = String::from_utf8_lossy(&text);
            let lines = text.lines().take(rows.saturating_sub(1));
            let lines: String = lines.flat_map(|line| [line, "\n"]).collect();
            write!(out, "\x1b[H\x1b[J\x1b[?7l{lines}\x1b[?7h")?;
        } else {
            out.write_all(&text)?;
        }
        Ok(out.flush()?)
    }
}

/// Asks the relay of this machine at an address of the loopback interface.
pub(super) fn ask(address: SocketAddr) -> Result<Value, VisitError> {
    let asking = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"LSL:relay-status/1\r\n")?;
        let mut text = String::new();
        match stream.take(MOST_BYTES).read_to_string(&mut text) {
            // It did not even read.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            read => drop(read?),
        }
        Ok(text)
    };
    let nobody = |error: io::Error| {
        let text = format!("no relay answers at {address}: {error}; start one by: lsl relay");
        VisitError::NotThere(text)
    };
    let text: String = asking().map_err(nobody)?;
    let closed =
        |_| VisitError::NotThere(format!("{address} is no relay (it closed the connection)"));
    serde_json::from_str(&text).map_err(closed)
}

/// Returns the relay in words.
pub(super) fn headline(status: &Value) -> String {
    let (name, id) = (word(status, "name"), word(status, "relay"));
    let up = age(status["uptime_s"].as_f64().unwrap_or(0.0));
    let links = rows(status, "links").iter();
    let links = links.filter(|link| link["state"] == "up").count();
    let streams = rows(status, "streams");
    let readers = streams.iter().map(|it| number(it, "readers")).sum::<u64>();
    format!(
        "relay {} ({id}), up {up}: {}, {}, {}",
        printable(name),
        count(links, "link"),
        count(streams.len(), "stream"),
        count(usize::try_from(readers).unwrap_or(usize::MAX), "reader"),
    )
}

fn show(out: &mut impl Write, status: &Value) -> io::Result<()> {
    writeln!(out, "{}", headline(status))?;
    let links = rows(status, "links");
    if !links.is_empty() {
        writeln!(out)?;
        show_links(out, links)?;
    }
    let mut streams: Vec<_> = rows(status, "streams").iter().collect();
    if !streams.is_empty() {
        streams.sort_by_key(|it| (word(it, "name"), word(it, "hostname"), word(it, "uid")));
        writeln!(out)?;
        show_streams(out, &streams, links)?;
    }
    let engine = &status["engine"];
    if engine.is_object() {
        writeln!(out, "\n{}", engine_line(engine))?;
    }
    let totals = &status["totals"];
    writeln!(
        out,
        "\n{} samples came and {} went to readers; {} were lost before they came, {} for slow readers",
        number(totals, "samples_in"),
        number(totals, "samples_out"),
        number(totals, "lost_exact"),
        number(totals, "reader_dropped"),
    )?;
    let refused = totals["refused"].as_object().into_iter().flatten();
    let refused = refused.filter(|(_, count)| count.as_u64() != Some(0));
    let refused: Vec<_> = refused
        .map(|(why, count)| format!("{why} {count}"))
        .collect();
    if !refused.is_empty() {
        writeln!(out, "refused: {}", printable(&refused.join(", ")))?;
    }
    let history = &status["history"];
    if history.is_object() {
        let bytes = HumanBytes(number(history, "bytes"));
        let segments = usize::try_from(number(history, "segments")).unwrap_or(usize::MAX);
        let segments = count(segments, "segment");
        let dir = printable(word(history, "dir"));
        write!(out, "history: {bytes} in {segments} in {dir}")?;
        match number(history, "dropped") {
            0 => {}
            dropped => write!(out, ", {dropped} samples not kept")?,
        }
        if history["write_only"] == true {
            write!(out, "; nobody reads it here: no identity is set")?;
        }
        match history["stopped"].as_str() {
            Some(reason) => writeln!(out, "; stopped: {}", printable(reason))?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

/// Returns what an engine does in words.
fn engine_line(engine: &Value) -> String {
    let text = |key| printable(word(engine, key));
    let (state, for_secs) = (word(engine, "state"), engine["for_s"].as_f64());
    let state = match for_secs {
        Some(secs) if state == "full" => format!("full for {}", age(secs)),
        Some(secs) => format!("not storing for {} ({})", age(secs), text("error")),
        None => state.to_owned(),
    };
    let lost = match number(engine, "lost") {
        0 => "nothing lost".to_owned(),
        lost => format!("{lost} samples lost"),
    };
    let standby = match number(engine, "standby") {
        0 => String::new(),
        standby => format!(", of which {standby} another relay writes"),
    };
    let streams = usize::try_from(number(engine, "streams")).unwrap_or(usize::MAX);
    format!(
        "engine {} {state}: {}{standby}, {} samples stored, {} waiting, {lost}",
        text("address"),
        count(streams, "stream"),
        number(engine, "stored"),
        HumanBytes(number(engine, "waiting_bytes")),
    )
}

fn show_links(out: &mut impl Write, links: &[Value]) -> io::Result<()> {
    let (left, right) = (Align::Left, Align::Right);
    let mut table = Table::new(&[
        ("LINK", left),
        ("STATE", left),
        ("ROUND TRIP", right),
        ("IN", right),
        ("OUT", right),
        ("BEHIND", right),
        ("", left),
    ]);
    for link in links {
        let rtt = link["rtt_ms"].as_f64();
        let bytes = |key| {
            link[key]
                .as_u64()
                .map_or_else(String::new, |it| HumanBytes(it).to_string())
        };
        table.push([
            word(link, "name"),
            word(link, "state"),
            &rtt.map_or_else(String::new, |rtt| format!("{rtt:.1} ms")),
            &bytes("in"),
            &bytes("out"),
            &bytes("behind_bytes"),
            word(link, "error"),
        ]);
    }
    table.write(out, "")
}

fn show_streams(out: &mut impl Write, streams: &[&Value], links: &[Value]) -> io::Result<()> {
    let (left, right) = (Align::Left, Align::Right);
    let mut table = Table::new(&[
        ("STREAM", left),
        ("TYPE", left),
        ("HOST", left),
        ("WAY", left),
        ("HOPS", right),
        ("STATE", left),
        ("READERS", right),
        ("PASSED ON", right),
        ("LOST", right),
        ("DROPPED", right),
    ]);
    for stream in streams {
        let way = word(stream, "way");
        let link = links.iter().find(|link| word(link, "id") == way);
        let lost = match (number(stream, "lost_exact"), number(stream, "lost_unknown")) {
            (exact, 0) => exact.to_string(),
            (exact, unknown) => format!("{exact} + {unknown} unknown"),
        };
        table.push([
            word(stream, "name"),
            word(stream, "type"),
            word(stream, "hostname"),
            link.map_or(way, |link| word(link, "name")),
            &number(stream, "hops").to_string(),
            word(stream, "state"),
            &number(stream, "readers").to_string(),
            &number(stream, "received").to_string(),
            &lost,
            &number(stream, "reader_dropped").to_string(),
        ]);
    }
    table.write(out, "")
}

fn rows<'a>(status: &'a Value, key: &str) -> &'a [Value] {
    status[key].as_array().map_or(&[], Vec::as_slice)
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

/// How long the relay of this machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of the longest answer.
const MOST_BYTES: u64 = 64 << 20;

const WATCH_SECS: f64 = 2.0;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn links_and_streams_are_tables_and_names_steer_no_terminal() {
        let status = json!({
            "relay": "0123456789abcdef", "name": "hub", "uptime_s": 90.0,
            "links": [
                {"name": "lab2", "id": "1111111111111111", "state": "up", "rtt_ms": 12.34, "in": 2048, "out": 7,
                    "behind_bytes": 0},
                {"name": "lab3:16570", "state": "down", "error": "nobody there"},
            ],
            "streams": [
                {"uid": "b", "name": "\u{1b}[2J", "type": "EEG", "hostname": "amp", "way": "1111111111111111",
                    "hops": 1, "state": "flowing", "readers": 2, "received": 300, "lost_exact": 7,
                    "lost_unknown": 1, "reader_dropped": 4},
                {"uid": "a", "name": "A", "way": "direct", "state": "known"},
            ],
            "totals": {"samples_in": 300, "samples_out": 596, "lost_exact": 7, "reader_dropped": 4,
                "refused": {"rule": 0, "clients": 2}},
        });
        let mut text = Vec::new();
        show(&mut text, &status).unwrap();
        let expected = "\
relay hub (0123456789abcdef), up 1 min: 1 link, 2 streams, 2 readers

LINK        STATE  ROUND TRIP        IN  OUT  BEHIND
lab2        up        12.3 ms  2.00 KiB  7 B     0 B
lab3:16570  down                                      nobody there

STREAM     TYPE  HOST  WAY     HOPS  STATE    READERS  PASSED ON           LOST  DROPPED
\\u{1b}[2J  EEG   amp   lab2       1  flowing        2        300  7 + 1 unknown        4
A                      direct     0  known          0          0              0        0

300 samples came and 596 went to readers; 7 were lost before they came, 4 for slow readers
refused: clients 2
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn an_engine_is_a_line() {
        let mut engine = json!({"address": "redis.lan:6379", "state": "up", "for_s": null, "streams": 2, "standby": 1,
            "stored": 300, "waiting_bytes": 0, "lost": 0});
        assert_eq!(
            engine_line(&engine),
            "engine redis.lan:6379 up: 2 streams, of which 1 another relay writes, 300 samples stored, 0 B waiting, \
             nothing lost"
        );
        for (key, value) in [
            ("state", json!("full")),
            ("for_s", json!(180.0)),
            ("lost", json!(4)),
            ("standby", json!(0)),
            ("waiting_bytes", json!(1_048_576)),
        ] {
            engine[key] = value;
        }
        assert_eq!(
            engine_line(&engine),
            "engine redis.lan:6379 full for 3 min: 2 streams, 300 samples stored, 1.00 MiB waiting, 4 samples lost"
        );
        engine["state"] = json!("denied");
        engine["error"] = json!("the user may not XADD (NOPERM)");
        let line = engine_line(&engine);
        assert!(
            line.contains(" not storing for 3 min (the user may not XADD (NOPERM)): "),
            "{line}"
        );
    }

    #[test]
    fn the_host_may_name_the_port() {
        let target = |host: &str| {
            let status = Status {
                host: None,
                port: 7,
                json: false,
                watch: false,
            };
            status.target(host).map_err(|failure| failure.status())
        };
        for (host, expected) in [
            ("lab2", "lab2:7"),
            ("lab2:16570", "lab2:16570"),
            ("10.0.0.1", "10.0.0.1:7"),
            ("fe80::1", "[fe80::1]:7"),
            ("[fe80::1]", "[fe80::1]:7"),
        ] {
            assert_eq!(target(host), Ok(expected.to_owned()));
        }
        assert_eq!(target("a b"), Err(2));
    }
}
