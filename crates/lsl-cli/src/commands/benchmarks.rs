//! `lsl bench`: runs the program `lsl-bench`, which is built and packed for itself.

use std::env::{self, consts::EXE_SUFFIX};
use std::ffi::OsString;
use std::io;
use std::process::Command;

use clap::Args;
use lsl_platform::process::become_program;

use crate::failure::{Failure, Outcome};
use crate::globals::Globals;

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Bench {
    /// What to measure, and how: `lsl bench --help` says it
    #[arg(
        value_name = "ARGUMENTS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<OsString>,
}

impl Bench {
    /// Becomes the program. Returns only if there is none.
    pub(crate) fn run(&self, globals: &Globals) -> Outcome {
        let program = format!("lsl-bench{EXE_SUFFIX}");
        let beside = env::current_exe()?.with_file_name(&program);
        let mut command = if beside.is_file() {
            Command::new(beside)
        } else {
            Command::new(&program)
        };
        command.args(globals.words());
        command.args((0..globals.verbosity()).map(|_| "-v"));
        let error = become_program(command.args(&self.arguments));
        Err(if error.kind() == io::ErrorKind::NotFound {
            Failure::NotFound(MISSING.into())
        } else {
            Failure::Runtime(format!("{program}: {error}"))
        })
    }
}

const MISSING: &str = "`lsl bench` runs the program lsl-bench, which is neither beside `lsl` nor on PATH. The \
    package lsl-rs has it; in a clone of the sources: cargo build --release -p lsl-bench";
