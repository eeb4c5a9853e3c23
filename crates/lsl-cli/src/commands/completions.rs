//! `lsl completions`: scripts by which a shell completes subcommands, options and their values.

use std::io::{self, Write};

use clap::{Args, Command, ValueEnum};
use clap_complete::{Shell, generate};

use crate::failure::Outcome;

/// Arguments of the command `lsl completions`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Completions {
    /// The shell that is to complete
    #[arg(value_enum, value_name = "SHELL")]
    shell: SupportedShell,
}

/// The shells that `cargo xtask dist` installs completions for.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SupportedShell {
    Bash,
    Zsh,
    Fish,
}

const EXAMPLES: &str = "\
Examples:
  lsl completions bash > ~/.local/share/bash-completion/completions/lsl
  lsl completions zsh > ~/.zfunc/_lsl
  lsl completions fish > ~/.config/fish/completions/lsl.fish

The directory must exist (mkdir -p), and shells that run already do not look: open a new one. bash
needs the package bash-completion. zsh looks into ~/.zfunc if ~/.zshrc has, before compinit,
fpath=(~/.zfunc $fpath). The Debian package has installed all three.
`lsl bench completions SHELL` completes the benchmarks as well.";

impl Completions {
    /// Prints the script that completes `command`.
    pub fn run(&self, mut command: Command) -> Outcome {
        let shell = match self.shell {
            SupportedShell::Bash => Shell::Bash,
            SupportedShell::Zsh => Shell::Zsh,
            SupportedShell::Fish => Shell::Fish,
        };
        // Into memory first: the generator panics where it cannot write.
        let mut script = Vec::new();
        generate(shell, &mut command, "lsl", &mut script);
        let mut out = io::stdout().lock();
        out.write_all(&script)?;
        Ok(out.flush()?)
    }
}
