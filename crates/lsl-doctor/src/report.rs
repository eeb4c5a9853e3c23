//! Findings as people and programs read them. Spec: doctor §3.5

use std::collections::BTreeSet;
use std::fmt::Write as _;

use lsl_platform::terminal::printable;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::observe::Observations;
use crate::remedy::{Place, Remedy};
use crate::table::{Diagnosis, Finding, Level, Symptom};

/// One check as it went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Stable name, such as `port.bind`.
    pub id: String,
    /// The interface, file or host that it is about; empty for the machine as a whole.
    pub subject: String,
    /// How it went.
    pub state: State,
    /// How long it took.
    pub ms: u64,
    /// What was observed.
    pub data: Value,
}

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// In order.
    Ok,
    /// A cause was seen, whether or not it explains anything.
    Bad,
    /// Time ran out, or the system does not say.
    Unknown,
    /// Not to be looked at.
    Skipped,
}

/// The object of `--json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this format.
    pub v: u32,
    /// Duration of the run.
    pub took_ms: u64,
    /// Whether nothing is wrong; risks count.
    pub healthy: bool,
    /// Worst first.
    pub findings: Vec<Finding>,
    /// Causes that explain nothing.
    pub notes: Vec<Finding>,
    /// What no finding explains.
    pub unexplained: Vec<Symptom>,
    /// All that was looked at.
    pub checks: Vec<Check>,
    /// How the two ends of a pair hear each other, in sentences; none without a pair.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pair: Vec<String>,
    /// What was seen, as `tests/observations` has it.
    pub observations: Observations,
}

impl Report {
    /// Makes the report of a run.
    pub fn new(
        seen: Observations,
        diagnosis: Diagnosis,
        mut checks: Vec<Check>,
        took_ms: u64,
    ) -> Self {
        for check in &mut checks {
            let is_about = |it: &Finding| checks_of(&it.id).contains(&check.id.as_str());
            let all = diagnosis.findings.iter().chain(&diagnosis.notes);
            if check.state == State::Ok && all.into_iter().any(is_about) {
                check.state = State::Bad;
            }
        }
        Self {
            v: 1,
            took_ms,
            healthy: diagnosis.findings.is_empty() && diagnosis.unexplained.is_empty(),
            findings: diagnosis.findings,
            notes: diagnosis.notes,
            unexplained: diagnosis.unexplained,
            checks,
            pair: Vec::new(),
            observations: seen,
        }
    }

    /// Returns how many findings are faults.
    pub fn faults(&self) -> usize {
        self.findings
            .iter()
            .filter(|it| it.level == Level::Fault)
            .count()
    }

    /// Returns the first line: how many faults and risks there are, and what was looked at.
    pub fn headline(&self) -> String {
        let faults = self.faults();
        let verdict = match (faults, self.findings.len() - faults) {
            (0, 0) if !self.unexplained.is_empty() => "No fault is seen.".to_owned(),
            (0, 0) => "Nothing is wrong here.".to_owned(),
            (0, risks) => format!("{}.", number(risks, "risk")),
            (faults, 0) => format!("{}.", number(faults, "fault")),
            (faults, risks) => format!("{}, {}.", number(faults, "fault"), number(risks, "risk")),
        };
        let seen = &self.observations;
        let streams = seen.wave.iter().flat_map(|wave| &wave.streams);
        let streams = streams
            .chain(seen.own_streams.iter().flatten())
            .chain(seen.found.iter().flatten());
        let streams: BTreeSet<(&str, bool, &str)> = streams
            .map(|it| (it.hostname.as_str(), it.is_here, it.uid.as_str()))
            .collect();
        let hosts: BTreeSet<&str> = streams
            .iter()
            .filter(|(_, is_here, _)| !is_here)
            .map(|(host, ..)| *host)
            .collect();
        let uids: BTreeSet<&str> = streams.iter().map(|(.., uid)| *uid).collect();
        let interfaces = seen
            .interfaces
            .iter()
            .flatten()
            .filter(|it| it.is_up)
            .count();
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let secs = self.took_ms as f64 / 1000.0;
        format!(
            "{verdict}   {}, {}, {}; {secs:.1} s",
            number(interfaces, "interface"),
            number(hosts.len(), "other host"),
            number(uids.len(), "stream")
        )
    }

    /// Returns the text for people, without a line end. `all` has also what explains nothing.
    pub fn text(&self, all: bool) -> String {
        let mut text = self.headline();
        for line in &self.pair {
            let _ = write!(text, "\n{}", wrapped("pair  ", line));
        }
        let mut left = if all { usize::MAX } else { MOST_LINES };
        let mut hidden = 0;
        for finding in &self.findings {
            let said = finding_text(finding);
            let lines = said.lines().count();
            if lines > left && left < MOST_LINES {
                hidden += 1;
                continue;
            }
            left = left.saturating_sub(lines);
            text.extend(["\n", &said]);
        }
        if hidden > 0 {
            let _ = write!(text, "\nand {hidden} more: --all");
        }
        for symptom in &self.unexplained {
            let said = printable(symptom.to_string().as_bytes(), usize::MAX);
            let _ = write!(
                text,
                "\n{}",
                wrapped("     ", &format!("Not explained: {said}."))
            );
        }
        if !self.unexplained.is_empty() {
            text.push_str(UNEXPLAINED);
        }
        // What may be meant so is told where nothing else explains.
        let may_explain = |it: &&Finding| all || !it.certain && !self.unexplained.is_empty();
        for note in self.notes.iter().filter(may_explain) {
            let _ = write!(
                text,
                "\n{}",
                wrapped(&format!("note  {}  ", note.id), &note.text)
            );
        }
        if all {
            for check in &self.checks {
                let state = match check.state {
                    State::Ok => "ok",
                    State::Bad => "bad",
                    State::Unknown => "unknown",
                    State::Skipped => "skipped",
                };
                let _ = write!(
                    text,
                    "\n{state:<8}{:<12}{:>6} ms  {}",
                    check.id,
                    check.ms,
                    printable(check.subject.as_bytes(), usize::MAX)
                );
            }
        }
        text
    }
}

/// Returns a finding as lines.
pub fn finding_text(finding: &Finding) -> String {
    let level = match finding.level {
        Level::Fault => "FAULT",
        Level::Risk => "risk ",
    };
    let said = if finding.certain {
        finding.text.clone()
    } else {
        format!("Most likely: {}", finding.text)
    };
    let mut text = wrapped(&format!("{level} {}  ", finding.id), &said);
    for remedy in &finding.remedies {
        text.push_str(&remedy_text(remedy));
    }
    for (at, seen) in finding.seen.iter().enumerate() {
        let label = if at == 0 { "seen:" } else { "" };
        let _ = write!(text, "\n{}", wrapped(&format!("   {label:<16}"), seen));
    }
    text
}

fn remedy_text(remedy: &Remedy) -> String {
    let mut text = String::new();
    let place = match (remedy.place, remedy.root) {
        (Place::Here, false) => "here:",
        (Place::Here, true) => "here, as root:",
        (Place::There, false) => "there:",
        (Place::There, true) => "there, as root:",
    };
    for (at, command) in remedy.run.iter().enumerate() {
        let label = if at == 0 { place } else { "" };
        // One line each, however long: it will be copied.
        let command = printable(command.as_bytes(), usize::MAX);
        let _ = write!(text, "\n   {label:<16}{command}");
    }
    for (at, line) in remedy.lasting.iter().enumerate() {
        let label = if at == 0 { "to last:" } else { "" };
        let _ = write!(text, "\n{}", wrapped(&format!("   {label:<16}"), line));
    }
    if !remedy.advice.is_empty() {
        let label = if remedy.run.is_empty() { place } else { "" };
        let _ = write!(
            text,
            "\n{}",
            wrapped(&format!("   {label:<16}"), &remedy.advice)
        );
    }
    text
}

/// Breaks text into lines, the first with a head, the others as far in.
fn wrapped(head: &str, text: &str) -> String {
    let [head, text] = [head, text].map(|it| printable(it.as_bytes(), usize::MAX));
    let indent = head.chars().count().min(19);
    let mut column = head.chars().count();
    let mut lines = head;
    let mut is_first = true;
    for word in text.split(' ') {
        let length = word.chars().count();
        if !is_first && column + 1 + length > WIDTH {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            column = indent;
        } else if !is_first {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
        is_first = false;
    }
    lines
}

/// Checks that a finding rests on.
fn checks_of(finding: &str) -> &'static [&'static str] {
    match finding {
        "cfg.secure" => &["cfg.secure"],
        "cfg.rejected" | "cfg.misnamed" | "cfg.hidden" | "cfg.limits" | "cfg.ports" => {
            &["cfg.file"]
        }
        "net.none" => &["if.list"],
        "fw.in" | "fw.out" => &["loop"],
        "fw.reply" => &["fw.read"],
        "port.taken" => &["port.bind"],
        "route.vpn" => &["peer.route", "peer.bound"],
        "net.subnet" | "net.isolation" | "peer.off" => &["peer.arp"],
        "peer.fw-udp" => &["peer.udp"],
        "fw.program" | "port.beyond" | "peer.fw-tcp" | "peer.idle" => &["peer.tcp"],
        "peer.fw" => &["peer.udp", "peer.tcp"],
        "path.mtu" => &["peer.mtu"],
        "path.loss" | "path.slow" => &["peer.ping"],
        "udp.overrun" => &["udp.drops"],
        "host.clock" => &["host.clock"],
        "host.fds" => &["host.fds"],
        "lib.old" => &["lib.old"],
        "stream.cloned" | "stream.duplicate" | "stream.fades" => &["stream.seen"],
        id if id.starts_with("trust.") => &["stream.open"],
        id if id.starts_with("stream.") || id.starts_with("clock.") => &["stream.feed"],
        _ => &["wave"],
    }
}

fn number(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

const UNEXPLAINED: &str = "\n     If there should be one: is it started, and on this network? `lsl doctor HOST` asks its \
machine\n     directly. With `lsl doctor serve` running there, it tells what arrives there, and what does not.";

const WIDTH: usize = 100;
const MOST_LINES: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Os;

    #[test]
    fn a_finding_is_lines_that_can_be_copied() {
        let command = "nft insert rule inet filter input ip saddr 10.50.0.0/24 udp dport 16571-16603 accept # long";
        let finding = Finding {
            id: "fw.in".into(),
            level: Level::Fault,
            certain: true,
            subject: "eth0".into(),
            text: "This machine drops UDP 16571-16603 arriving at eth0: it finds no streams of other machines, which \
                   takes a second line."
                .into(),
            streams: 0,
            seen: vec!["own \u{1b}[2J datagrams".into()],
            remedies: vec![Remedy {
                place: Place::Here,
                os: Os::Linux,
                root: true,
                run: vec![command.into()],
                lasting: vec!["the same".into()],
                advice: String::new(),
            }],
        };
        let text = finding_text(&finding);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.first().unwrap().find("This"), Some(13));
        assert!(
            lines.iter().any(|line| *line
                == format!("   here, as root:  {command}")
                    .replace(":  ", ": ")
                    .replace(": nft", ":  nft")),
            "{text}"
        );
        assert!(
            text.contains("   to last:        the same") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert!(
            lines
                .iter()
                .all(|line| line.chars().count() <= WIDTH || line.contains(command))
        );
        let hostile = finding_text(&Finding {
            id: "fw.in\u{1b}[2J\n   here, as root:  reboot".into(),
            remedies: Vec::new(),
            ..finding
        });
        let is_head = |line: &str| line.starts_with("FAULT") || line.starts_with("    ");
        assert!(
            !hostile.contains('\u{1b}')
                && hostile
                    .lines()
                    .all(|it| is_head(it) || it.starts_with("   seen")),
            "{hostile}"
        );
    }
}
