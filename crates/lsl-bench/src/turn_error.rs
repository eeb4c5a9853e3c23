//! Failures of a turn, and those that end the whole run. A library that fails is a result like
//! others; comparing plain with encrypted is pointless if connections are not as asked.

use lsl_cli::failure::Failure;

use super::library::Library;

/// Failure of one turn or of the whole run.
#[derive(Debug)]
pub(super) enum TurnError {
    /// Failure of this turn: the others go on.
    Turn(Failure),
    /// Failure of the whole run, whose results would be wrong: it ends, and earlier cells count.
    Run(Failure),
}

impl From<Failure> for TurnError {
    fn from(failure: Failure) -> Self {
        Self::Turn(failure)
    }
}

/// Whether of so many connections all were encrypted, or none, as the subject must.
pub(super) fn must_encrypt(subject: &Library, encrypted: u64, of: u64) -> Result<(), TurnError> {
    let name = &subject.shown.name;
    let text = if subject.secure() && encrypted < of {
        format!(
            "{name}: {} of {of} connections are in plaintext though the run made a key and a \
             configuration for it with policy \"required\" (LSL_SECURE_CONFIG). Its library does not \
             go by them: give --lib the path of a current build of ours, or measure it with --secure off",
            of - encrypted
        )
    } else if !subject.secure() && encrypted > 0 {
        format!(
            "{name}: {encrypted} of {of} connections are encrypted though it is to be measured in \
             plaintext. A configuration of the whole machine asks for that (`lsl security` names it, \
             /etc/lsl_api/lsl-secure.toml): move it away for the run, or measure with --secure on"
        )
    } else {
        return Ok(());
    };
    Err(TurnError::Run(Failure::Runtime(text)))
}

#[cfg(test)]
mod tests {
    use super::super::job::Backend;
    use super::super::result;
    use super::super::via::Via;
    use super::*;

    #[test]
    fn all_connections_or_none_are_encrypted() {
        let says = |secure, encrypted| {
            let subject = Library {
                shown: result::Subject {
                    name: "ours".into(),
                    detail: String::new(),
                    secure,
                },
                backend: Backend::Core,
                is_foreign: false,
                via: Via::Direct,
            };
            match must_encrypt(&subject, encrypted, 3) {
                Ok(()) => String::new(),
                Err(TurnError::Run(failure)) => failure.to_string(),
                Err(TurnError::Turn(failure)) => panic!("{failure}"),
            }
        };
        assert_eq!(says(true, 3), "");
        assert_eq!(says(false, 0), "");
        assert!(says(true, 0).starts_with("ours: 3 of 3 connections are in plaintext"));
        assert!(says(true, 2).starts_with("ours: 1 of 3"));
        assert!(says(true, 2).contains("--secure off"));
        assert!(says(false, 3).starts_with("ours: 3 of 3 connections are encrypted"));
        assert!(says(false, 1).contains("--secure on"));
    }
}
