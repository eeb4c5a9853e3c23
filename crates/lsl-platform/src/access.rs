//! What callers ask about the readers of a file, and what they are told, alike on every system.

/// Secrecy that a file or a folder needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Keys and passphrases: only the owner may even read them.
    Secret,
    /// Configuration and trust, and folders with files: others may read, not write.
    Shared,
    /// Folders that lack a file: others may add one, not remove one. On Unix the group of a single user may
    /// do both.
    Kept,
}

/// Readers that a new file or folder gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The user of this program alone.
    Owner,
    /// All users of the machine, who may read it.
    Everybody,
}

/// Reason why others may have read or changed a file, and the command against it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    pub(crate) by: By,
    /// Command for a shell, with whatever else is to be said of it.
    pub(crate) remedy: String,
}

/// Those who may have read or changed a file. The text is the beginning of the predicate of a sentence about
/// the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum By {
    /// Its owner is another user: a whole predicate.
    Owner(String),
    /// Its permissions let others do something, which is missing in the text.
    Others(String),
}

impl Exposure {
    /// Writes the predicate of a sentence about the file. `what` says what others can do with it.
    pub fn told(&self, what: &str) -> String {
        let remedy = &self.remedy;
        match &self.by {
            By::Owner(reason) => format!("{reason}; run: {remedy}"),
            By::Others(reason) => format!("{reason} {what}; run: {remedy}"),
        }
    }
}
