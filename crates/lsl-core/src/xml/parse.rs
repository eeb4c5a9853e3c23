//! Stub awaiting its author.
/// Why a document was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub &'static str);

/// Parses.
///
/// # Errors
/// Always, for now.
pub fn parse(_text: &[u8]) -> Result<super::Document, ParseError> {
    Err(ParseError("not written yet"))
}
