//! The two processes that a pipe lies between: one gives a file, one takes everything and counts.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use lsl_cli::failure::Outcome;
use lsl_platform::stream;
use ring::digest::{Context, SHA256};

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
    /// Read standard input to its end and print how many bytes that were, and their SHA-256
    Take {
        /// Say what it is; else there is a dash
        #[arg(long)]
        hash: bool,
    },
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
            AtrestCommand::Take { hash } => {
                let mut input = stream::input()?;
                let (total, hash) = if *hash {
                    sha256(&mut input)?
                } else {
                    let mut total = 0;
                    loop {
                        let len = input.read(&mut piece)?;
                        if len == 0 {
                            break (total, "-".to_owned());
                        }
                        total += len as u64;
                    }
                };
                let mut output = io::stdout().lock();
                writeln!(output, "{total} {hash}")?;
                Ok(output.flush()?)
            }
        }
    }
}

/// Reads to the end; how many bytes that were, and their hash.
pub(super) fn sha256(input: &mut impl Read) -> Outcome<(u64, String)> {
    let mut hash = Context::new(&SHA256);
    let mut piece = vec![0; PIECE];
    let mut total = 0;
    loop {
        let len = input.read(&mut piece)?;
        if len == 0 {
            let hash = hash.finish();
            let digits = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
            return Ok((total, digits.collect()));
        }
        hash.update(&piece[..len]);
        total += len as u64;
    }
}

const PIECE: usize = 128 << 10;
