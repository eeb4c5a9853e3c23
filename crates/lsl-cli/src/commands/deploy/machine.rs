//! The other machine: read-only questions asked before anything is planned, and its answers.

use std::collections::BTreeMap;

use lsl_platform::remedy::word;

use super::elf::{Glibc, Machine};
use crate::failure::{Failure, Outcome};
use crate::ui::text::printable;

/// Answers of the other machine about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) machine: Machine,
    /// C library of the machine; `None` if that is not glibc.
    pub(super) glibc: Option<Glibc>,
    /// Host name of the machine, which streams carry.
    pub(super) hostname: String,
    pub(super) user: String,
    /// The version of systemd that manages this user's services.
    pub(super) systemd: u32,
    pub(super) linger: bool,
    /// SHA-256 and version of ~/.local/bin/lsl.
    pub(super) program: Option<(String, String)>,
    /// Version of the packaged /usr/bin/lsl.
    pub(super) packaged: Option<String>,
    /// SHA-256 of the unit in the home directory.
    pub(super) unit: Option<String>,
    /// Instances that have a file of arguments.
    pub(super) instances: Vec<String>,
    /// Arguments in the file of the instance in question, and its state by systemd.
    pub(super) arguments: Option<String>,
    pub(super) state: String,
}

/// Returns the script that asks about a machine and, if its name is known, an instance. `sh` reads
/// it from its standard input, so that no login shell sees it.
pub(super) fn questions(instance: Option<&str>) -> String {
    let unit = instance.map_or_else(String::new, |name| word(&format!("lsl@{name}.service")));
    let file = instance.map_or_else(String::new, |name| word(&format!("{name}.conf")));
    format!(
        "{PREAMBLE}instance={unit}\nfile={file}\n{QUESTIONS}",
        PREAMBLE = super::plan::PREAMBLE
    )
}

/// Each answer stands on a line of its own behind a mark, whatever else login scripts print.
const QUESTIONS: &str = r#"say() { printf 'lsl-answer %s %s\n' "$1" "$2"; }
say os "$(uname -s)"
say machine "$(uname -m)"
say bits "$(getconf LONG_BIT 2>/dev/null)"
say glibc "$(getconf GNU_LIBC_VERSION 2>/dev/null)"
say hostname "$(uname -n)"
say user "$(id -un)"
say checksums "$(command -v sha256sum)"
say systemd "$(systemctl --version 2>/dev/null | head -n 1)"
say manager "$(systemctl --user is-system-running 2>&1 | head -n 1)"
if [ "$(loginctl show-user "$(id -un)" --property=Linger --value 2>/dev/null)" = yes ] ||
  [ -e "/var/lib/systemd/linger/$(id -un)" ]; then say linger yes; fi
cd || exit
if [ -f .local/bin/lsl ]; then
  say program "$(sha256sum < .local/bin/lsl)"
  say version "$(.local/bin/lsl -V 2>/dev/null)"
fi
if [ -x /usr/bin/lsl ]; then say packaged "$(/usr/bin/lsl -V 2>/dev/null)"; fi
if [ -f .config/systemd/user/lsl@.service ]; then
  say unit "$(sha256sum < .config/systemd/user/lsl@.service)"
fi
for name in .config/lsl/*.conf; do
  if [ -f "$name" ]; then say instance "$name"; fi
done
if [ -n "$file" ]; then
  if [ -f ".config/lsl/$file" ]; then
    say arguments "$(grep LSL_ARGS= ".config/lsl/$file" | tail -n 1)"
  fi
  say state "$(systemctl --user is-active "$instance" 2>/dev/null)"
fi
say end yes
"#;

impl Remote {
    /// Parses the answers. An unfit machine is an error that says so, with advice.
    pub(super) fn read(answers: &str) -> Outcome<Self> {
        let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for line in answers.lines() {
            if let Some(answer) = line.strip_prefix("lsl-answer ") {
                let (name, value) = answer.split_once(' ').unwrap_or((answer, ""));
                found.entry(name).or_default().push(value.trim());
            }
        }
        let one = |name: &str| found.get(name).and_then(|all| all.first()).copied();
        let text = |name: &str| one(name).filter(|text| !text.is_empty());
        if one("end").is_none() {
            return Err(Failure::Runtime(
                "the machine stopped answering in the middle; is its shell sh-compatible at /bin/sh, and \
                 is there space on its disk?"
                    .into(),
            ));
        }
        let machine = machine(
            text("os").unwrap_or_default(),
            text("machine").unwrap_or_default(),
            text("bits"),
        )?;
        let systemd = systemd(text("systemd"), text("manager").unwrap_or_default())?;
        if text("checksums").is_none() {
            return Err(Failure::Runtime(
                "sha256sum is missing there; install the package coreutils".into(),
            ));
        }
        let checksum = |text: &str| {
            text.split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        Ok(Self {
            machine,
            glibc: text("glibc")
                .and_then(|text| text.strip_prefix("glibc "))
                .and_then(Glibc::parse),
            hostname: text("hostname").unwrap_or_default().into(),
            user: text("user").unwrap_or_default().into(),
            systemd,
            linger: text("linger").is_some(),
            program: text("program").map(|sum| {
                let version = text("version").unwrap_or("lsl that does not run");
                (checksum(sum), printable(version))
            }),
            packaged: text("packaged").map(printable),
            unit: text("unit").map(checksum),
            instances: found
                .get("instance")
                .into_iter()
                .flatten()
                .filter_map(|path| path.rsplit('/').next()?.strip_suffix(".conf"))
                .map(ToOwned::to_owned)
                .collect(),
            arguments: text("arguments").map(ToOwned::to_owned),
            state: text("state").unwrap_or("inactive").into(),
        })
    }
}

/// Returns the machine that builds must be for.
fn machine(os: &str, name: &str, bits: Option<&str>) -> Outcome<Machine> {
    if os != "Linux" {
        return Err(Failure::Runtime(format!(
            "it runs {}; `lsl deploy` knows Linux with systemd only. Copy a build for it by hand",
            printable(os)
        )));
    }
    let Some(machine) = Machine::from_uname(name) else {
        return Err(Failure::Runtime(format!(
            "its processor is {}; there are builds for x86_64 and aarch64 only (a Raspberry Pi 3, 4 or 5 \
             with a 64-bit system is aarch64)",
            printable(name)
        )));
    };
    // Raspberry Pi OS runs 32-bit programs on a 64-bit kernel unless the 64-bit image was chosen.
    if bits == Some("32") {
        return Err(Failure::Runtime(format!(
            "its kernel is {name}, but its programs are 32-bit; install the 64-bit system"
        )));
    }
    Ok(machine)
}

fn systemd(version: Option<&str>, manager: &str) -> Outcome<u32> {
    let number = |text: &str| text.split_whitespace().nth(1)?.parse().ok();
    let Some(version) = version.and_then(number) else {
        return Err(Failure::Runtime(
            "there is no systemd on it; copy `lsl` by hand and start it as that system starts services"
                .into(),
        ));
    };
    match manager {
        "running" | "degraded" | "starting" | "initializing" => Ok(version),
        other => Err(Failure::Runtime(format!(
            "its systemd does not manage services of this user (`systemctl --user is-system-running`: {}).\n\
             Log in to it as that user, not through sudo or su, with the package libpam-systemd installed; \
             or run there: sudo loginctl enable-linger USER",
            printable(other)
        ))),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::commands::deploy) const PI: &str = "\
Welcome to amp1!
lsl-answer os Linux
lsl-answer machine aarch64
lsl-answer bits 64
lsl-answer glibc glibc 2.36
lsl-answer hostname amp1
lsl-answer user pi
lsl-answer checksums /usr/bin/sha256sum
lsl-answer systemd systemd 252 (252.38-1~deb12u1)
lsl-answer manager running
lsl-answer state inactive
lsl-answer end yes
";

    #[test]
    fn a_fresh_pi() {
        let remote = Remote::read(PI).unwrap();
        assert_eq!(
            remote,
            Remote {
                machine: Machine::Aarch64,
                glibc: Some(Glibc(2, 36)),
                hostname: "amp1".into(),
                user: "pi".into(),
                systemd: 252,
                linger: false,
                program: None,
                packaged: None,
                unit: None,
                instances: Vec::new(),
                arguments: None,
                state: "inactive".into(),
            }
        );
    }

    #[test]
    fn what_was_installed_before() {
        let more = "lsl-answer linger yes\nlsl-answer program ab12  -\nlsl-answer version lsl 0.1.0\n\
                    lsl-answer instance .config/lsl/gen.conf\nlsl-answer instance .config/lsl/amp-2.conf\n\
                    lsl-answer arguments LSL_ARGS=gen --name \"My Amp\"\n";
        let remote = Remote::read(&format!("{more}{PI}")).unwrap();
        assert!(remote.linger);
        assert_eq!(remote.program, Some(("ab12".into(), "lsl 0.1.0".into())));
        assert_eq!(remote.instances, ["gen", "amp-2"]);
        assert_eq!(
            remote.arguments.as_deref(),
            Some("LSL_ARGS=gen --name \"My Amp\"")
        );
    }

    #[test]
    fn unfit_machines_are_refused_with_advice() {
        let check = |before: &str, after: &str, part: &str| {
            assert!(PI.contains(before), "{before}");
            let failure = Remote::read(&PI.replace(before, after)).unwrap_err();
            assert!(failure.to_string().contains(part), "{part} in {failure}");
        };
        check("os Linux", "os Darwin", "runs Darwin");
        check("aarch64", "armv7l", "64-bit system is aarch64");
        check("bits 64", "bits 32", "install the 64-bit system");
        check("systemd 252", "", "no systemd");
        check("manager running", "manager offline", "libpam-systemd");
        check("/usr/bin/sha256sum", "", "coreutils");
        check("lsl-answer end yes", "", "stopped answering");
    }

    #[test]
    fn musl_has_no_glibc() {
        let remote = Remote::read(&PI.replace("glibc 2.36", "")).unwrap();
        assert_eq!(remote.glibc, None);
    }

    #[test]
    fn questions_quote_the_instance() {
        let text = questions(Some("amp-1"));
        assert!(
            text.contains("\ninstance=lsl@amp-1.service\nfile=amp-1.conf\n"),
            "{text}"
        );
        assert!(questions(None).contains("\ninstance=\nfile=\n"));
    }
}
