//! Output and questions: tables, notices, progress, passphrases, words and values. Knows no stream.

pub mod notice;
pub(crate) mod progress;
pub(crate) mod prompt;
pub mod table;
pub mod text;
pub(crate) mod value;
