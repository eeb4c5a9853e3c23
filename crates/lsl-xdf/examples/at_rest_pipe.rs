//! Locks or unlocks standard input to standard output, or one file to another:
//!
//! ```sh
//! at_rest_pipe new > key.txt                                   # prints the public key to standard error
//! at_rest_pipe lock age1… < sub.xdf > sub.xdf.age
//! at_rest_pipe unlock key.txt < sub.xdf.age > sub.xdf
//! at_rest_pipe lock age1… sub.xdf sub.xdf.age                  # through a temporary file, synced
//! ```
//!
//! `THREADS=n` sets how many threads seal or open.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for a terminal"
)]

use std::error::Error;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;

use lsl_xdf::at_rest::{
    Ending, Identities, KeyPair, Options, Recipients, Task, Work, lock, lock_stream, unlock,
    unlock_stream,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let threads: Option<usize> = std::env::var("THREADS")
        .ok()
        .map(|text| text.parse())
        .transpose()?;
    let work = Work {
        threads: threads.unwrap_or(0),
        ..Work::quiet()
    };
    let options = Options {
        threads: threads.and_then(NonZeroUsize::new),
        ..Options::default()
    };
    match arguments[..] {
        ["new"] => {
            let pair = KeyPair::generate();
            println!("{}", pair.identity.as_str());
            eprintln!("{}", pair.recipient);
        }
        ["lock", key] => {
            lock_stream(
                unbuffered_input()?,
                unbuffered_output()?,
                &recipients(key)?,
                &work,
            )?;
        }
        ["unlock", key] => {
            let identities = identities(key)?;
            let (input, output) = (unbuffered_input()?, unbuffered_output()?);
            unlock_stream(input, output, &identities, Ending::Strict, &work)?;
        }
        ["lock", key, from, to] => {
            let tasks = [Task {
                from: from.into(),
                to: to.into(),
            }];
            for outcome in lock(&tasks, &recipients(key)?, &options) {
                outcome.result?;
            }
        }
        ["unlock", key, from, to] => {
            let tasks = [Task {
                from: from.into(),
                to: to.into(),
            }];
            for outcome in unlock(&tasks, &identities(key)?, &options) {
                outcome.result?;
            }
        }
        _ => return Err("new | lock AGE1 [FROM TO] | unlock KEY_FILE [FROM TO]".into()),
    }
    Ok(())
}

fn recipients(key: &str) -> Result<Recipients, Box<dyn Error>> {
    let mut recipients = Recipients::new();
    recipients.add("the key", key)?;
    Ok(recipients)
}

fn identities(path: &str) -> Result<Identities, Box<dyn Error>> {
    let mut identities = Identities::new();
    identities.add_file(Path::new(path), &mut |_| None)?;
    Ok(identities)
}

/// Standard output looks for line ends in everything and keeps 1 KiB back; a file does not.
#[cfg(unix)]
fn unbuffered_output() -> io::Result<impl io::Write> {
    use std::os::fd::AsFd;
    Ok(std::fs::File::from(
        io::stdout().as_fd().try_clone_to_owned()?,
    ))
}

#[cfg(unix)]
fn unbuffered_input() -> io::Result<impl io::Read> {
    use std::os::fd::AsFd;
    Ok(std::fs::File::from(
        io::stdin().as_fd().try_clone_to_owned()?,
    ))
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "the same signature everywhere")]
fn unbuffered_output() -> io::Result<impl io::Write> {
    Ok(io::stdout())
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "the same signature everywhere")]
fn unbuffered_input() -> io::Result<impl io::Read> {
    Ok(io::stdin())
}
