//! `lsl deploy`: puts this command on another machine and keeps it running there as a service. Each
//! part is one file of `deploy/`: the connection (`ssh`), the questions (`machine`), the fitting
//! program (`elf`, `build`), the steps (`unit`, `plan`) and the check afterwards (`check`).

mod build;
mod check;
mod elf;
mod machine;
mod plan;
mod ssh;
mod unit;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use lsl_platform::remedy::word;

use self::build::Build;
use self::check::Expected;
use self::machine::Remote;
use self::plan::{PlanAction, PlanStep, Service};
use self::ssh::Ssh;
use crate::failure::{Failure, Outcome};
use crate::globals::Globals;
use crate::ui::notice::note;
use crate::ui::text::printable;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Deploy {
    /// The machine: HOST, USER@HOST or a name from ~/.ssh/config
    #[arg(value_name = "HOST", value_parser = ssh::host)]
    host: String,

    /// What `lsl` is to do there as a service; without it only the program and the unit are installed
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<String>,

    /// Do it; without this the machine is looked at and the steps are printed
    #[arg(long)]
    yes: bool,

    /// Stop the service and remove it
    #[arg(long, conflicts_with_all = ["command", "from", "linger"])]
    remove: bool,

    /// Name of the service, lsl@NAME [default: the subcommand; with --remove the only one there]
    #[arg(long, value_name = "NAME", value_parser = unit::instance)]
    instance: Option<String>,

    /// Program for a machine unlike this one: a file, an unpacked release or target/cross
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,

    /// Let the service run from boot on and without a login
    #[arg(long)]
    linger: bool,

    /// Port of the ssh server
    #[arg(short, long, value_name = "PORT")]
    port: Option<u16>,

    /// Key to log in with
    #[arg(short, long, value_name = "FILE")]
    identity: Option<PathBuf>,

    /// Option for ssh, as after its -o; may be repeated
    #[arg(short = 'o', long, value_name = "KEY=VALUE")]
    ssh_option: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  lsl deploy pi@amp1.local -- gen --name Test --rate 250         only says what it would do
  lsl deploy pi@amp1.local --linger --yes -- gen --name Test     does it, and from every boot on
  lsl deploy pi@amp1.local --from target/cross -- gen            another kind of processor
  lsl deploy pi@amp1.local --instance amp2 --yes -- gen --name \"My Amp\"
  lsl deploy pi@amp1.local --remove --yes

Uses the system's ssh with its keys and settings; nothing on the machine is changed without --yes, and
nothing needs root there. The program goes to ~/.local/bin/lsl, the unit to
~/.config/systemd/user/lsl@.service, the arguments to ~/.config/lsl/NAME.conf. Running it again
updates what differs and restarts the service. Afterwards it is checked that the service runs and that
its stream is found, there and from here; exit status 3 if it is not.
On the machine: systemctl --user status lsl@NAME; journalctl --user-unit lsl@NAME; and for settings of
your own, which the next deploy leaves alone, systemctl --user edit lsl@NAME.";

impl Deploy {
    pub(crate) fn run(&self, globals: &Globals) -> Outcome {
        if !self.command.is_empty() {
            // Mistakes are reported before a password is asked for.
            Expected::read(&self.command, "")?;
        }
        let ssh = Ssh::connect(&self.host, self.ssh_options())
            .map_err(|failure| failure.context(&self.host))?;
        if self.remove {
            self.remove(&ssh)
        } else {
            self.install(&ssh, globals)
        }
    }

    fn install(&self, ssh: &Ssh, globals: &Globals) -> Outcome {
        let instance = match &self.instance {
            Some(name) => Some(name.clone()),
            None if self.command.is_empty() => None,
            None => Some(Expected::read(&self.command, "")?.subcommand.to_owned()),
        };
        let remote = self.look(ssh, instance.as_deref())?;
        describe(&self.host, &remote)?;
        let build = Build::choose(self.from.as_deref(), &remote)?;
        let service = instance
            .filter(|_| !self.command.is_empty())
            .map(|instance| Service {
                instance,
                command: self.command.clone(),
            });
        let steps = plan::install(&remote, build, service.as_ref(), self.linger)?;
        let name = service.as_ref().map(|service| service.instance.as_str());
        self.carry_out(ssh, &steps, name, globals)?;
        let Some(service) = &service else {
            return Ok(());
        };
        let checked = if self.yes {
            let expected = Expected::read(&service.command, &remote.hostname)?;
            expected.check(ssh, &remote, &service.instance, globals)
        } else {
            Ok(())
        };
        if !self.linger && !remote.linger {
            note(format_args!(
                "WARNING: the service ends when {user} logs out, so a few seconds after this connection, \
                 and is not started at boot.\nRepeat this with --linger, or run there: sudo loginctl \
                 enable-linger {user}",
                user = printable(&remote.user)
            ));
        }
        checked
    }

    fn remove(&self, ssh: &Ssh) -> Outcome {
        let remote = self.look(ssh, self.instance.as_deref())?;
        let instance = match (&self.instance, remote.instances.as_slice()) {
            (Some(name), there) if there.contains(name) => name,
            (None, [name]) => name,
            (_, []) => {
                return Err(Failure::NotFound(format!(
                    "{}: no service of `lsl deploy` is there",
                    self.host
                )));
            }
            (wanted, there) => {
                return Err(Failure::Usage(format!(
                    "{}: {}; there are: {}",
                    self.host,
                    wanted.as_ref().map_or_else(
                        || "which one? Say --instance NAME".to_owned(),
                        |name| format!("there is no service {name}")
                    ),
                    printable(&there.join(", "))
                )));
            }
        };
        let instance = unit::instance(instance).map_err(|error| {
            Failure::Runtime(format!(
                "{}: the service '{}': {error}",
                self.host,
                printable(instance)
            ))
        })?;
        describe(&self.host, &remote)?;
        let steps = plan::remove(&remote, &instance);
        self.carry_out(ssh, &steps, None, &Globals::default())?;
        if let Some(text) = plan::staying_unit(&remote, &instance) {
            note(text);
        }
        note("The program ~/.local/bin/lsl stays, for people who log in.");
        Ok(())
    }

    /// Asks the machine about itself; changes nothing.
    fn look(&self, ssh: &Ssh, instance: Option<&str>) -> Outcome<Remote> {
        let answers = ssh
            .run(&machine::questions(instance))
            .map_err(|failure| failure.context(&self.host))?;
        Remote::read(&answers).map_err(|failure| failure.context(&self.host))
    }

    /// Carries out the steps with `--yes`, else shows them.
    fn carry_out(
        &self,
        ssh: &Ssh,
        steps: &[PlanStep],
        instance: Option<&str>,
        globals: &Globals,
    ) -> Outcome {
        let mut out = io::stdout().lock();
        if steps.is_empty() {
            writeln!(out, "Nothing to do: all of it is there already.")?;
            return Ok(out.flush()?);
        }
        if !self.yes {
            writeln!(
                out,
                "Would do this, by `{} 'exec sh -s'` in the home directory there:\n",
                ssh.shown()
            )?;
            plan::show(steps, globals.is_verbose(), &mut out)?;
            writeln!(out, "\nNothing was changed. Add --yes to do it.")?;
            return Ok(out.flush()?);
        }
        for (number, step) in steps.iter().enumerate() {
            writeln!(out, "{}. {}", number + 1, step.title)?;
            out.flush()?;
            for action in &step.actions {
                perform(ssh, action).map_err(|failure| match instance {
                    Some(instance) if step.starts => Failure::Runtime(format!(
                        "{}: {failure}\n{}",
                        self.host,
                        check::last_words(ssh, instance)
                    )),
                    _ => failure.context(&format!("{}: step {}", self.host, number + 1)),
                })?;
            }
        }
        Ok(())
    }

    fn ssh_options(&self) -> Vec<String> {
        let mut options = Vec::new();
        for option in &self.ssh_option {
            options.extend(["-o".to_owned(), option.clone()]);
        }
        if let Some(port) = self.port {
            options.extend(["-p".to_owned(), port.to_string()]);
        }
        if let Some(file) = &self.identity {
            options.extend(["-i".to_owned(), file.to_string_lossy().into_owned()]);
        }
        options
    }
}

fn perform(ssh: &Ssh, action: &PlanAction) -> Outcome {
    match action {
        PlanAction::Upload { to, bytes, .. } => ssh.upload(bytes, to),
        other => other
            .script()
            .map_or(Ok(()), |script| ssh.run(&script).map(drop)),
    }
}

/// Prints the properties of the machine, in a line.
fn describe(host: &str, remote: &Remote) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let library = remote
        .glibc
        .map_or_else(|| "no glibc".into(), |version| format!("glibc {version}"));
    let program = match (&remote.program, &remote.packaged) {
        (Some((_, version)), _) => format!("{version} in ~/.local/bin"),
        (None, Some(version)) => format!("{version} in /usr/bin"),
        (None, None) => "no lsl yet".into(),
    };
    let services = if remote.instances.is_empty() {
        String::new()
    } else {
        format!(", services: {}", remote.instances.join(", "))
    };
    writeln!(
        out,
        "{}: {}, Linux on {}, {library}, systemd {}, {program}{}",
        word(host),
        printable(&remote.hostname),
        remote.machine,
        remote.systemd,
        printable(&services),
    )?;
    out.flush()
}
