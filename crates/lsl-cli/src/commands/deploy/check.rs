//! Checks a started service: it runs, its stream is found over there, and from here.

use std::time::Duration;

use clap::Parser;
use lsl_core::Selector;
use lsl_platform::remedy::word;
use serde_json::Value;

use super::machine::Remote;
use super::plan::{PREAMBLE, name};
use super::ssh::Ssh;
use crate::failure::{Failure, Outcome};
use crate::globals::Globals;
use crate::ui::notice::note;
use crate::ui::text::printable;
use crate::{Cli, Command};

/// Expectations by the arguments of a service, read by the same rules as there.
#[derive(Debug)]
pub(super) struct Expected {
    globals: Globals,
    /// Name and source id of its stream on a machine of this name; `None` if it offers none.
    stream: Option<[String; 2]>,
    /// Usual name of the instance.
    pub(super) subcommand: &'static str,
}

impl Expected {
    /// Reads the arguments, so that a mistake is told before anything is copied.
    pub(super) fn read(command: &[String], hostname: &str) -> Outcome<Self> {
        let words = std::iter::once("lsl").chain(command.iter().map(String::as_str));
        let cli = Cli::try_parse_from(words).map_err(|error| {
            Failure::Usage(format!(
                "the command for the service: {}",
                error.to_string().trim_end()
            ))
        })?;
        let (subcommand, stream) = match &cli.command {
            Command::Gen(generate) => ("gen", Some(generate.stream_on(hostname))),
            Command::Recv(_) => ("recv", None),
            Command::Record(_) => ("record", None),
            Command::Play(_) => ("play", None),
            Command::List(_) => ("list", None),
            Command::Bench(_) => ("bench", None),
            Command::Audit(_) => ("audit", None),
            _ => {
                return Err(Failure::Usage(
                    "the command for the service ends by itself; a service goes on, such as \
                     -- gen --name NAME"
                        .into(),
                ));
            }
        };
        Ok(Self {
            globals: cli.globals,
            stream,
            subcommand,
        })
    }

    /// Waits and checks whether all is well; reports each finding.
    pub(super) fn check(
        &self,
        ssh: &Ssh,
        remote: &Remote,
        instance: &str,
        globals: &Globals,
    ) -> Outcome {
        service(ssh, instance)?;
        note(format_args!("{} runs.", name(instance)));
        let Some([stream, source_id]) = &self.stream else {
            return Ok(());
        };
        let uid = self
            .found_there(ssh, remote, stream, source_id)?
            .ok_or_else(|| {
                Failure::NotFound(format!(
                    "{} runs, but `lsl list` on {} does not find its stream '{}'. A firewall there that \
                     drops multicast or UDP 16571-16603 even within the machine? What it says:\n{}",
                    name(instance),
                    printable(&remote.hostname),
                    printable(stream),
                    last_words(ssh, instance)
                ))
            })?;
        note(format_args!(
            "The stream '{}' is found on {}.",
            printable(stream),
            printable(&remote.hostname)
        ));
        if self.globals.is_loopback() {
            note("With --loopback it stays on that machine; nothing to see from here.");
            return Ok(());
        }
        let address = ssh.address();
        if self.found_here(globals, &address, &uid)? {
            note(format_args!(
                "The stream '{}' is found from here. Try: lsl recv {}",
                printable(stream),
                word(stream)
            ));
            return Ok(());
        }
        Err(Failure::NotFound(format!(
            "the service runs and its stream is found on {}, but not from here ({} was asked \
             directly, too).\nOpen UDP 16571 and UDP and TCP 16572-16603 in the firewalls of both \
             machines, for example with: sudo ufw allow proto udp from any to any port 16571:16603 and \
             sudo ufw allow 16572:16603/tcp. If ssh reaches the machine through a tunnel, LSL does not.",
            printable(&remote.hostname),
            printable(&address),
        )))
    }

    /// Returns the uid of the stream, as the other machine's own `lsl` finds it.
    fn found_there(
        &self,
        ssh: &Ssh,
        remote: &Remote,
        stream: &str,
        source_id: &str,
    ) -> Outcome<Option<String>> {
        let globals: Vec<String> = self.globals.words().iter().map(|text| word(text)).collect();
        // Status 3 says that there was no stream at all, which is no failure of the question.
        let script = format!(
            "{PREAMBLE}cd\necho '{ROWS}'\n.local/bin/lsl {} list --json --timeout 1.5\nstatus=$?\n\
             if [ $status = 3 ]; then exit 0; fi\nexit $status\n",
            globals.join(" ")
        );
        for _ in 0..TRIES {
            let answer = ssh
                .run(&script)
                .map_err(|failure| failure.context("lsl list over there"))?;
            if let Some(uid) = uid_in(&answer, stream, source_id, &remote.hostname) {
                return Ok(Some(uid));
            }
        }
        Ok(None)
    }

    /// Returns whether this machine finds the very same outlet.
    fn found_here(&self, globals: &Globals, address: &str, uid: &str) -> Outcome<bool> {
        let context = globals.to_reach(&self.globals, address)?;
        let selector = Selector::property("uid", uid)?;
        let found = context.resolve_blocking(&selector, 1, FROM_HERE)?;
        Ok(!found.is_empty())
    }
}

/// Waits until a service that fails at once would have failed.
fn service(ssh: &Ssh, instance: &str) -> Outcome {
    let unit = name(instance);
    let script = format!(
        "{PREAMBLE}sleep {SETTLE_SECS}\nsystemctl --user show {unit} --property=ActiveState,ExecMainStatus,NRestarts\n"
    );
    let answer = ssh.run(&script)?;
    let state = ServiceState::read(&answer);
    if state.is_well() {
        return Ok(());
    }
    Err(Failure::Runtime(format!(
        "{unit} {}\n{}",
        state.trouble(),
        last_words(ssh, instance)
    )))
}

/// Returns the last words of the service, as far as the journal can be read.
pub(super) fn last_words(ssh: &Ssh, instance: &str) -> String {
    let unit = name(instance);
    let script = format!(
        "{PREAMBLE}systemctl --user status --no-pager --lines=0 {unit} 2>&1 | tail -n 8\n\
         journalctl --user-unit={unit} --lines=15 --no-pager --output=cat 2>&1\ntrue\n"
    );
    let text = ssh
        .run(&script)
        .unwrap_or_else(|failure| failure.to_string());
    let lines: Vec<String> = text
        .lines()
        .map(|line| format!("  {}", printable(line)))
        .collect();
    lines.join("\n")
}

/// State of a service by systemd, some seconds after its start.
#[derive(Debug, Default)]
struct ServiceState {
    active: String,
    status: u32,
    restarts: u32,
}

impl ServiceState {
    fn read(answer: &str) -> Self {
        let mut state = Self::default();
        for line in answer.lines() {
            match line.split_once('=') {
                Some(("ActiveState", value)) => state.active = value.into(),
                Some(("ExecMainStatus", value)) => state.status = value.parse().unwrap_or(0),
                Some(("NRestarts", value)) => state.restarts = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        state
    }

    fn is_well(&self) -> bool {
        self.active == "active" && self.restarts == 0
    }

    /// Explains the failure with advice, by systemd's numbers for failures before the program ran.
    fn trouble(&self) -> String {
        match self.status {
            0 if self.active == "inactive" => {
                "has ended by itself, with success: its command is no service".into()
            }
            2 => "ended for wrong usage (2): correct its arguments".into(),
            203 => "cannot run the program (203): is its file system mounted noexec?".into(),
            status => format!("does not run (status {status}); it is tried every 5 s"),
        }
    }
}

/// Returns the uid of the stream among the rows of `lsl list --json`, behind the words of login scripts.
fn uid_in(answer: &str, stream: &str, source_id: &str, hostname: &str) -> Option<String> {
    // With its line break: no JSON text has one within a name.
    let (_, rows) = answer.rsplit_once(&format!("{ROWS}\n"))?;
    let rows: Vec<Value> = serde_json::from_str(rows).ok()?;
    let text = |row: &Value, key: &str| row.get(key).and_then(Value::as_str).map(str::to_owned);
    rows.iter()
        .find(|row| {
            text(row, "name").as_deref() == Some(stream)
                && text(row, "source_id").as_deref() == Some(source_id)
                && text(row, "hostname").as_deref() == Some(hostname)
        })
        .and_then(|row| text(row, "uid"))
}

/// The line ahead of the rows.
const ROWS: &str = "lsl-answer rows";
/// Wait after the start, in seconds: longer than a program takes to fail, on a small machine too.
const SETTLE_SECS: u32 = 2;
const TRIES: u32 = 4;
const FROM_HERE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Outcome<Expected> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        Expected::read(&words, "amp1")
    }

    #[test]
    fn arguments_say_what_to_expect() {
        let expected = read(&["--session", "lab", "gen", "--name", "My Amp"]).unwrap();
        let stream = ["My Amp".to_owned(), "lsl-gen-My Amp-amp1".to_owned()];
        assert_eq!(expected.stream, Some(stream));
        assert_eq!(expected.subcommand, "gen");
        assert_eq!(expected.globals.words(), ["--session", "lab"]);
        assert_eq!(read(&["recv", "Amp"]).unwrap().stream, None);
        assert_eq!(
            read(&["record", "--watch", "Amp"]).unwrap().subcommand,
            "record"
        );
    }

    #[test]
    fn mistakes_are_told_before_anything_is_done() {
        let check = |words: &[&str], part: &str| {
            let failure = read(words).unwrap_err();
            assert_eq!(failure.status(), 2, "{failure}");
            assert!(failure.to_string().contains(part), "{part} in {failure}");
        };
        check(&["gen", "--rate", "fast"], "not a number");
        check(&["rekord"], "unrecognized subcommand");
        check(&["deploy", "amp2"], "ends by itself");
        check(&["key", "init"], "ends by itself");
    }

    #[test]
    fn states() {
        let state = |active: &str, status: u32, restarts: u32| {
            ServiceState::read(&format!(
                "ExecMainStatus={status}\nNRestarts={restarts}\nActiveState={active}\n"
            ))
        };
        assert!(state("active", 0, 0).is_well());
        assert!(!state("active", 0, 1).is_well());
        assert!(!state("activating", 1, 1).is_well());
        assert!(!ServiceState::read("").is_well());
        let check = |state: &ServiceState, part: &str| {
            let text = state.trouble();
            assert!(text.contains(part), "{part} in {text}");
        };
        check(&state("inactive", 0, 0), "ended by itself");
        check(&state("failed", 2, 0), "wrong usage");
        check(&state("activating", 1, 2), "status 1");
    }

    #[test]
    fn only_the_very_stream_counts() {
        let row = |name: &str, id: &str, host: &str, uid: &str| {
            format!(r#"{{"name":"{name}","source_id":"{id}","hostname":"{host}","uid":"{uid}"}}"#)
        };
        let rows = [
            row("A", "id", "amp2", "1"),
            row("A", "other", "amp1", "2"),
            row("A", "id", "amp1", "3"),
        ];
        let answer = format!("[ OK ] Welcome!\n{ROWS}\n[{}]\n", rows.join(","));
        assert_eq!(uid_in(&answer, "A", "id", "amp1").as_deref(), Some("3"));
        assert_eq!(uid_in(&answer, "B", "id", "amp1"), None);
        assert_eq!(uid_in("", "A", "id", "amp1"), None);
        assert_eq!(uid_in("[]", "A", "id", "amp1"), None);
        assert_eq!(uid_in(&format!("{ROWS}\n[]\n"), "A", "id", "amp1"), None);
    }
}
