//! Errors of engines, and which of them the errors of Redis and Valkey are. Spec: relay §12.

/// Kind of an error, by what is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The network, or a server that will be there again soon.
    Retry,
    /// No room.
    Full,
    /// Refused by the server's rights, or by its settings.
    Denied,
    /// Another stream has the name.
    Conflict,
    /// What is stored makes no sense.
    Corrupt,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Retry,
        Self::Full,
        Self::Denied,
        Self::Conflict,
        Self::Corrupt,
    ];

    /// Returns the kind as a word, for status and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Full => "full",
            Self::Denied => "denied",
            Self::Conflict => "conflict",
            Self::Corrupt => "corrupt",
        }
    }
}

/// Error of an engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct EngineError {
    /// Kind, by what is done about it.
    pub kind: ErrorKind,
    /// Cause, for people.
    pub text: String,
}

impl EngineError {
    /// Creates an error.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { kind, text }
    }

    /// Takes over an error that Redis replied: a code and a text.
    pub fn of_reply(reply: &str) -> Self {
        // In a transaction the cause stands behind.
        let cause = reply
            .strip_prefix("EXECABORT Transaction discarded because of: ")
            .unwrap_or(reply);
        let code = cause.split(' ').next().unwrap_or_default();
        let kind = match code {
            "OOM" | "MISCONF" => ErrorKind::Full,
            "NOPERM" | "NOAUTH" | "WRONGPASS" | "NOPROTO" => ErrorKind::Denied,
            "WRONGTYPE" | "TOOLONG" => ErrorKind::Corrupt,
            "ERR" if cause.contains("AUTH") || cause.contains("password") => ErrorKind::Denied,
            "ERR" if cause.contains("unknown command") || cause.contains("DB index") => {
                ErrorKind::Denied
            }
            _ => ErrorKind::Retry,
        };
        let command = cause.split('\'').nth(1).map(str::to_uppercase);
        let text = match (code, command) {
            ("NOPERM", Some(command)) => format!("the user may not {command} (NOPERM)"),
            _ => cause.to_owned(),
        };
        Self { kind, text }
    }
}

/// Result of an engine.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_servers_are_answered_by_what_helps() {
        for (reply, kind, text) in [
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                ErrorKind::Full,
                "OOM command",
            ),
            (
                "EXECABORT Transaction discarded because of: OOM command not allowed",
                ErrorKind::Full,
                "OOM command",
            ),
            (
                "MISCONF Redis is configured to save RDB snapshots, but it's unable",
                ErrorKind::Full,
                "MISCONF",
            ),
            (
                "NOPERM this user has no permissions to run the 'xadd' command",
                ErrorKind::Denied,
                "the user may not XADD (NOPERM)",
            ),
            (
                "NOPERM User lsl has no permissions to run the 'xinfo|stream' command",
                ErrorKind::Denied,
                "the user may not XINFO|STREAM (NOPERM)",
            ),
            (
                "WRONGPASS invalid username-password pair",
                ErrorKind::Denied,
                "WRONGPASS",
            ),
            (
                "ERR AUTH <password> called without any password configured",
                ErrorKind::Denied,
                "ERR AUTH",
            ),
            (
                "WRONGTYPE Operation against a key",
                ErrorKind::Corrupt,
                "WRONGTYPE",
            ),
            (crate::engine::resp::TOO_LONG, ErrorKind::Corrupt, "TOOLONG"),
            (
                "LOADING Redis is loading the dataset",
                ErrorKind::Retry,
                "LOADING",
            ),
            (
                "READONLY You can't write against a read only replica.",
                ErrorKind::Retry,
                "READONLY",
            ),
            ("MOVED 1 10.0.0.1:6379", ErrorKind::Retry, "MOVED"),
            (
                "ERR The ID specified in XADD is equal or smaller than the target stream top item",
                ErrorKind::Retry,
                "ERR The ID",
            ),
        ] {
            let error = EngineError::of_reply(reply);
            assert_eq!(error.kind, kind, "{reply}");
            assert!(error.text.starts_with(text), "{error}");
        }
    }
}
