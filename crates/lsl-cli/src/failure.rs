//! Failures of a command, and the exit status of each. The numbers are part of the interface:
//! scripts test them, `lsl --help` lists them.

use std::fmt;
use std::io;
use std::process::ExitCode;

use lsl_core::{Error, ErrorKind};

/// Reason why a command stopped. The text is for people and contains advice.
#[derive(Debug)]
pub enum Failure {
    /// Sockets, files, a peer that broke the protocol, a configuration with problems.
    Runtime(String),
    /// The command line asks for something that cannot be done.
    Usage(String),
    /// A stream, answer or file was not found, or not in time.
    NotFound(String),
    /// A stream, or some of its samples, went away.
    Lost(String),
    /// A recording is not as wanted; the exit status says in which way.
    Recording(u8, String),
    /// The output says what is wrong; the exit status says of which kind it is.
    Told(u8),
    /// The program that reads our output has seen enough. Not an error: `lsl recv … | head`.
    ReaderLeft,
}

/// Result of every command and of its parts.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Returns the exit status of the process.
    pub fn status(&self) -> u8 {
        match self {
            Self::ReaderLeft => 0,
            Self::Runtime(_) => 1,
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::Lost(_) => 4,
            Self::Recording(status, _) | Self::Told(status) => *status,
        }
    }

    /// Puts the attempted action in front of the text.
    #[must_use]
    pub fn context(self, attempt: &str) -> Self {
        let add = |text: String| format!("{attempt}: {text}");
        match self {
            Self::Runtime(text) => Self::Runtime(add(text)),
            Self::Usage(text) => Self::Usage(add(text)),
            Self::NotFound(text) => Self::NotFound(add(text)),
            Self::Lost(text) => Self::Lost(add(text)),
            Self::Recording(status, text) => Self::Recording(status, add(text)),
            Self::Told(status) => Self::Told(status),
            Self::ReaderLeft => Self::ReaderLeft,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(text)
            | Self::Usage(text)
            | Self::NotFound(text)
            | Self::Lost(text)
            | Self::Recording(_, text) => f.write_str(text),
            Self::Told(_) => f.write_str("said already"),
            Self::ReaderLeft => f.write_str("the reader of the output closed it"),
        }
    }
}

impl From<&Failure> for ExitCode {
    fn from(failure: &Failure) -> Self {
        Self::from(failure.status())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error.kind() {
            ErrorKind::Timeout => Self::NotFound(text),
            ErrorKind::Lost => Self::Lost(text),
            ErrorKind::Argument => Self::Usage(text),
            _ => Self::Runtime(text),
        }
    }
}

/// Errors of keys, trust files and security configurations; all of them contain advice.
impl From<lsl_core::secure::Error> for Failure {
    fn from(error: lsl_core::secure::Error) -> Self {
        Self::Runtime(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ReaderLeft
        } else {
            Self::Runtime(error.to_string())
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        io::Error::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_its_status() {
        let check = |failure: Failure, status| assert_eq!(failure.status(), status, "{failure}");
        check(Error::Timeout { operation: "info" }.into(), 3);
        check(
            Error::Lost {
                reason: "gone".into(),
            }
            .into(),
            4,
        );
        check(Error::Argument("a".into()).into(), 2);
        check(Error::Config("c".into()).into(), 1);
        check(Error::Protocol("p".into()).into(), 1);
        check(io::Error::from(io::ErrorKind::BrokenPipe).into(), 0);
        check(io::Error::from(io::ErrorKind::PermissionDenied).into(), 1);
        check(Failure::NotFound("x".into()).context("lsl"), 3);
    }

    #[test]
    fn context_stands_in_front() {
        let failure = Failure::Lost("the cable".into()).context("recv");
        assert_eq!(failure.to_string(), "recv: the cable");
    }
}
