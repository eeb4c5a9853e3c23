//! Plan of the changes on the other machine, step by step. The same texts are shown and run.

use std::io::{self, Write};
use std::path::PathBuf;

use lsl_platform::remedy::word;

use super::build::{Build, checksum};
use super::machine::Remote;
use super::unit;
use crate::failure::Outcome;
use crate::ui::text::printable;

/// Step of a plan, with its title.
#[derive(Debug)]
pub(super) struct PlanStep {
    pub(super) title: String,
    pub(super) actions: Vec<PlanAction>,
    /// Whether its failure is the service's, whose last words tell more.
    pub(super) starts: bool,
}

/// Action by which a step is done.
#[derive(Debug)]
pub(super) enum PlanAction {
    /// Lines that `sh` reads from its standard input, in the home directory, until one fails.
    Shell(String),
    /// A file that is written whole or not at all.
    Write { path: String, text: String },
    /// The program, to the name it has while it is copied.
    Upload {
        from: PathBuf,
        to: String,
        bytes: Vec<u8>,
    },
}

/// Service that is to run there.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) instance: String,
    pub(super) command: Vec<String>,
}

/// Beginning of all texts for `sh`. A session of ssh may lack the variable by which `systemctl`
/// finds the user's manager.
pub(super) const PREAMBLE: &str = "export XDG_RUNTIME_DIR=\"${XDG_RUNTIME_DIR:-/run/user/$(id -u)}\"\nexport LC_ALL=C SYSTEMD_PAGER= SYSTEMD_COLORS=0\n";

/// Returns the steps that install `build` and start `service`. Nothing that is there already is
/// done again, but a service is always restarted.
pub(super) fn install(
    remote: &Remote,
    build: Build,
    service: Option<&Service>,
    linger: bool,
) -> Outcome<Vec<PlanStep>> {
    let mut steps = Vec::new();
    if remote.program.as_ref().map(|(sum, _)| sum) != Some(&build.checksum) {
        steps.push(copy(remote, build));
    }
    let text = unit::for_home();
    if remote.unit.as_ref() != Some(&checksum(text.as_bytes())) {
        let verb = if remote.unit.is_some() {
            "Replace"
        } else {
            "Install"
        };
        steps.push(PlanStep {
            title: format!("{verb} the unit ~/{UNIT}"),
            actions: vec![
                PlanAction::Write {
                    path: UNIT.into(),
                    text,
                },
                PlanAction::Shell("systemctl --user daemon-reload\n".into()),
            ],
            starts: false,
        });
    }
    let lingers = linger && !remote.linger;
    if lingers {
        steps.push(PlanStep {
            title: format!(
                "Let the services of {} run without a login, from boot on",
                printable(&remote.user)
            ),
            actions: vec![PlanAction::Shell(
                "loginctl enable-linger || { echo 'run there: sudo loginctl enable-linger \"$USER\"' >&2; \
                 exit 1; }\n"
                    .into(),
            )],
            starts: false,
        });
    }
    if let Some(service) = service {
        steps.push(arguments(remote, service)?);
        let name = name(&service.instance);
        steps.push(PlanStep {
            title: if remote.state == "active" {
                format!("Restart {name}, which runs")
            } else {
                format!("Start {name}, now and from now on")
            },
            actions: vec![PlanAction::Shell(format!(
                "systemctl --user daemon-reload\n\
                 systemctl --user reset-failed {name} 2>/dev/null || true\n\
                 systemctl --user enable --quiet {name}\n\
                 systemctl --user restart {name}\n"
            ))],
            starts: true,
        });
    }
    Ok(steps)
}

fn copy(remote: &Remote, build: Build) -> PlanStep {
    let sum = build.checksum;
    let new = format!(".local/bin/.lsl-{}", sum.get(..12).unwrap_or("new"));
    let replaced = match &remote.program {
        Some((_, version)) => format!(", in place of {version}"),
        None => String::new(),
    };
    let megabytes = build.bytes.len() as f64 / 1e6;
    PlanStep {
        title: format!("Copy lsl ({megabytes:.1} MB) to ~/{PROGRAM}{replaced}"),
        actions: vec![
            PlanAction::Shell("mkdir -p .local/bin\n".into()),
            PlanAction::Upload {
                from: build.path,
                to: new.clone(),
                bytes: build.bytes,
            },
            PlanAction::Shell(format!(
                "trap 'rm -f {new}' EXIT\n\
                 echo '{sum}  {new}' | sha256sum --check --quiet\n\
                 chmod 755 {new}\n\
                 {new} --version\n\
                 mv -f {new} {PROGRAM}\n"
            )),
        ],
        starts: false,
    }
}

fn arguments(remote: &Remote, service: &Service) -> Outcome<PlanStep> {
    let path = arguments_path(&service.instance);
    let text = unit::arguments_file(&service.command)?;
    let title = match remote.arguments.as_deref().and_then(unit::arguments_in) {
        Some(old) if Some(old) == unit::arguments_in(&text) => {
            format!("Write the arguments again: ~/{path}")
        }
        Some(old) => format!(
            "Replace the arguments in ~/{path}, which are: {}",
            printable(old)
        ),
        None => format!("Write the arguments to ~/{path}"),
    };
    Ok(PlanStep {
        title,
        actions: vec![PlanAction::Write { path, text }],
        starts: false,
    })
}

/// Returns the steps that remove an instance, and the unit with the last one unless it was changed
/// by hand. All of them can be done again, and with the unit gone already.
pub(super) fn remove(remote: &Remote, instance: &str) -> Vec<PlanStep> {
    let name = name(instance);
    let path = arguments_path(instance);
    let mut steps = vec![PlanStep {
        title: format!("Stop {name} and remove it"),
        actions: vec![PlanAction::Shell(format!(
            "systemctl --user stop {name} || true\n\
             systemctl --user disable --quiet {name} || true\n\
             systemctl --user reset-failed {name} 2>/dev/null || true\n\
             state=$(systemctl --user show --property=ActiveState --value {name})\n\
             if [ \"$state\" != inactive ]; then echo \"{name} is $state\" >&2; exit 1; fi\n\
             rm -f {WANTS}/{name} {path}\n\
             rmdir .config/lsl 2>/dev/null || true\n"
        ))],
        starts: false,
    }];
    let is_last = remote.instances.iter().all(|other| other == instance);
    if is_last && has_our_unit(remote) {
        steps.push(PlanStep {
            title: format!("Remove the unit ~/{UNIT}, which no other instance uses"),
            actions: vec![PlanAction::Shell(format!(
                "rm -f {UNIT}\nsystemctl --user daemon-reload\n"
            ))],
            starts: false,
        });
    }
    steps
}

/// Returns whether the unit there is the very one that this program writes.
fn has_our_unit(remote: &Remote) -> bool {
    remote.unit.as_ref() == Some(&checksum(unit::for_home().as_bytes()))
}

/// Returns the remark on a unit that stays although its last instance goes.
pub(super) fn staying_unit(remote: &Remote, instance: &str) -> Option<String> {
    let is_last = remote.instances.iter().all(|other| other == instance);
    (is_last && remote.unit.is_some() && !has_our_unit(remote)).then(|| {
        format!(
            "The unit ~/{UNIT} stays: it is not as this version of lsl writes it, so somebody may have \
             changed it."
        )
    })
}

/// Returns the name of an instance's unit, as a word for `sh`.
pub(super) fn name(instance: &str) -> String {
    word(&format!("lsl@{instance}.service"))
}

fn arguments_path(instance: &str) -> String {
    word(&format!(".config/lsl/{instance}.conf"))
}

impl PlanAction {
    /// Returns the script for `sh`; `None` for an upload.
    pub(super) fn script(&self) -> Option<String> {
        match self {
            Self::Shell(lines) => Some(format!("set -eu\n{PREAMBLE}cd\n{lines}")),
            Self::Write { .. } => Some(format!("set -eu\n{PREAMBLE}cd\n{}", self.lines(true))),
            Self::Upload { .. } => None,
        }
    }

    /// Returns the commands, those that are the same everywhere left out.
    fn lines(&self, is_whole: bool) -> String {
        match self {
            Self::Shell(lines) => lines.clone(),
            Self::Write { path, text } => {
                let folder = path.rsplit_once('/').map_or(".", |(folder, _)| folder);
                let count = text.lines().count();
                let text = if is_whole || count <= LONGEST_SHOWN {
                    text.clone()
                } else {
                    format!("({count} lines; -v shows them)\n")
                };
                format!(
                    "mkdir -p {folder}\n\
                     cat > {path}.new <<'{END}'\n{text}{END}\n\
                     mv -f {path}.new {path}\n"
                )
            }
            Self::Upload { from, to, .. } => {
                format!("cat > {to}    (reads {})\n", from.display())
            }
        }
    }
}

/// Prints the steps as they would be done.
pub(super) fn show(steps: &[PlanStep], is_whole: bool, out: &mut impl Write) -> io::Result<()> {
    for (number, step) in steps.iter().enumerate() {
        writeln!(out, "{}. {}", number + 1, step.title)?;
        for action in &step.actions {
            for line in action.lines(is_whole).lines() {
                writeln!(out, "     {line}")?;
            }
        }
    }
    Ok(())
}

/// Below the home directory, where sessions of ssh begin.
const PROGRAM: &str = ".local/bin/lsl";
const UNIT: &str = ".config/systemd/user/lsl@.service";
/// Folder in which `enable` puts its links; `disable` leaves them if the unit is gone.
const WANTS: &str = ".config/systemd/user/default.target.wants";
const END: &str = "LSL_END_OF_FILE";
const LONGEST_SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::deploy::machine::tests::PI;

    fn build() -> Build {
        Build {
            path: "target/cross/lsl".into(),
            checksum: checksum(b"program"),
            bytes: b"program".to_vec(),
        }
    }

    fn service(words: &[&str]) -> Service {
        Service {
            instance: "amp".into(),
            command: words.iter().map(ToString::to_string).collect(),
        }
    }

    fn titles(steps: &[PlanStep]) -> Vec<&str> {
        steps.iter().map(|step| step.title.as_str()).collect()
    }

    #[test]
    fn a_fresh_machine_gets_everything_in_order() {
        let remote = Remote::read(PI).unwrap();
        let service = service(&["gen", "--name", "My Amp"]);
        let steps = install(&remote, build(), Some(&service), true).unwrap();
        assert_eq!(
            titles(&steps),
            [
                "Copy lsl (0.0 MB) to ~/.local/bin/lsl",
                "Install the unit ~/.config/systemd/user/lsl@.service",
                "Let the services of pi run without a login, from boot on",
                "Write the arguments to ~/.config/lsl/amp.conf",
                "Start lsl@amp.service, now and from now on",
            ]
        );
        let mut shown = Vec::new();
        show(&steps, false, &mut shown).unwrap();
        let shown = String::from_utf8(shown).unwrap();
        for part in [
            "LSL_ARGS=gen --name \"My Amp\"\n",
            "(reads target/cross/lsl)",
            "systemctl --user restart lsl@amp.service\n",
            "lines; -v shows them)",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
    }

    #[test]
    fn what_is_there_is_not_done_again() {
        let mut remote = Remote::read(PI).unwrap();
        remote.program = Some((build().checksum, "lsl 0.1.0".into()));
        remote.unit = Some(checksum(unit::for_home().as_bytes()));
        remote.linger = true;
        remote.state = "active".into();
        remote.arguments = Some("LSL_ARGS=gen --name Old".into());
        let steps = install(&remote, build(), Some(&service(&["gen"])), true).unwrap();
        assert_eq!(
            titles(&steps),
            [
                "Replace the arguments in ~/.config/lsl/amp.conf, which are: gen --name Old",
                "Restart lsl@amp.service, which runs",
            ]
        );
        assert!(install(&remote, build(), None, false).unwrap().is_empty());
    }

    #[test]
    fn the_unit_goes_with_the_last_instance() {
        let mut remote = Remote::read(PI).unwrap();
        remote.unit = Some(checksum(unit::for_home().as_bytes()));
        remote.instances = vec!["amp".into(), "gen".into()];
        assert_eq!(
            titles(&remove(&remote, "amp")),
            ["Stop lsl@amp.service and remove it"]
        );
        remote.instances = vec!["amp".into()];
        assert_eq!(remove(&remote, "amp").len(), 2);
        assert_eq!(staying_unit(&remote, "amp"), None);
        // Not if a person changed it.
        remote.unit = Some("ab".into());
        assert_eq!(remove(&remote, "amp").len(), 1);
        assert!(staying_unit(&remote, "amp").is_some());
        remote.instances.push("gen".into());
        assert_eq!(staying_unit(&remote, "amp"), None);
    }

    /// `sh` writes the file exactly, whatever the words are.
    #[test]
    #[cfg(unix)]
    fn files_arrive_as_they_are() {
        use std::process::{Command, Stdio};

        let home = std::env::temp_dir().join(format!("lsl-plan-{}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        let remote = Remote::read(PI).unwrap();
        let hostile = [
            "gen",
            "--name",
            "a'b\"c; touch x $(touch y) `touch z` \\ %i #",
        ];
        let step = arguments(&remote, &service(&hostile)).unwrap();
        let mut child = Command::new("sh")
            .arg("-s")
            .env("HOME", &home)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let script = step.actions.first().unwrap().script().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(script.as_bytes()).unwrap();
        drop(stdin);
        assert!(child.wait().unwrap().success());
        let written = std::fs::read_to_string(home.join(".config/lsl/amp.conf")).unwrap();
        let words: Vec<String> = hostile.iter().map(ToString::to_string).collect();
        assert_eq!(written, unit::arguments_file(&words).unwrap());
        let entries = std::fs::read_dir(&home).unwrap().count();
        assert_eq!(entries, 1, "only .config");
        std::fs::remove_dir_all(&home).unwrap();
    }
}
