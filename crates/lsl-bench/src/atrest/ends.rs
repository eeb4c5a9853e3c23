//! The two processes that a pipe lies between: one gives a file, one takes everything and counts.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use lsl_cli::failure::Outcome;
use lsl_platform::stream;

/// `lsl bench atrest-end`, which people do not run.
#[derive(Debug, Args)]
pub(crate) struct AtrestEnd {
    #[command(subcommand)]
    end: AtrestCommand,
}

#[derive(Debug, Subcommand)]
enum AtrestCommand {
    /// Write a file to standard output
    Give { file: PathBuf },
    /// Read standard input to its end and print how many bytes that were
    Take,
}

impl AtrestEnd {
    pub(crate) fn run(&self) -> Outcome {
        // As `cat` does it. `io::copy` would let the kernel move pages from file to pipe, which no
        // program that makes its data can do.
        let mut piece = vec![0; PIECE];
        match &self.end {
            AtrestCommand::Give { file } => {
                let mut input = File::open(file)?;
                let mut output = stream::output()?;
                loop {
                    let len = input.read(&mut piece)?;
                    if len == 0 {
                        return Ok(output.flush()?);
                    }
                    output.write_all(&piece[..len])?;
                }
            }
            AtrestCommand::Take => {
                let mut input = stream::input()?;
                let mut total = 0;
                loop {
                    let len = input.read(&mut piece)?;
                    if len == 0 {
                        break;
                    }
                    total += len as u64;
                }
                let mut output = io::stdout().lock();
                writeln!(output, "{total}")?;
                Ok(output.flush()?)
            }
        }
    }
}

const PIECE: usize = 128 << 10;
