//! The query language of discovery: XPath 1.0 as pugixml evaluates it, without variables. Queries
//! arrive from anybody on the network, so a query costs bounded time, memory and stack: its text,
//! its nesting and its number of parts are capped when it is parsed, its work when it is evaluated.
//! Knows documents, not stream infos. Text is bytes, as in the documents. Spec: lsl-protocol §4, §15.
#![deny(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod ast;
mod axis;
mod cache;
mod eval;
mod functions;
mod lex;
mod number;
mod parse;
mod quote;
mod scope;
mod value;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

pub use cache::QueryCache;
pub use quote::{quote, quote_bytes};

use self::ast::Expr;
use self::eval::{Budget, Evaluator};
use crate::Error;
use crate::xml::{Document, NodeId};

/// A parsed query. Cloning is cheap; a query may be used from several threads at once.
///
/// Spec: lsl-protocol §4.
#[derive(Clone)]
pub struct Query {
    text: Arc<[u8]>,
    /// `None` for an empty query, which matches everything.
    root: Option<Arc<Expr>>,
}

/// Two queries are equal that have the same text.
impl PartialEq for Query {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Query {}

impl Query {
    /// Parses a query. An empty text matches every document.
    ///
    /// # Errors
    /// Where pugixml refuses the text (unknown functions, wrong arity, `$variables`, `==`, trailing
    /// tokens, …), and where it exceeds [`MAX_QUERY_BYTES`], [`MAX_DEPTH`] or [`MAX_PARTS`].
    ///
    /// Spec: lsl-protocol §4, §15.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, ParseError> {
        let text = text.as_ref();
        let root = parse::parse(text).map_err(|fault| ParseError {
            query: shown(text),
            offset: fault.offset,
            reason: fault.reason,
        })?;
        Ok(Self {
            text: text.into(),
            root: root.map(Arc::new),
        })
    }

    /// Evaluates the query with `context` (the `info` element) as context node, position 1 of 1,
    /// and converts the result to a boolean. Never blocks; depends on its arguments alone.
    ///
    /// # Errors
    /// When the evaluation exceeds [`MAX_WORK`] or `context` is no node of `document`. On the wire an
    /// error is "no match".
    ///
    /// Spec: lsl-protocol §4, §15.
    pub fn matches(&self, document: &Document, context: NodeId) -> Result<bool, EvalError> {
        self.matches_within(document, context, &mut { MAX_WORK })
    }

    /// Evaluates as [`Query::matches`], spending from `work`, in the units of [`MAX_WORK`]. The
    /// unspent rest is left there; an evaluation that was too expensive leaves nothing.
    ///
    /// # Errors
    /// As [`Query::matches`].
    pub fn matches_within(
        &self,
        document: &Document,
        context: NodeId,
        work: &mut u64,
    ) -> Result<bool, EvalError> {
        if !document.contains(context) {
            return Err(EvalError::NoContext);
        }
        let Some(root) = &self.root else {
            return Ok(true);
        };
        let mut evaluator = Evaluator::new(document, Budget::new(*work));
        let matched = evaluator.matches(root, context);
        *work = evaluator.budget.left();
        matched
    }

    /// Returns the text as given to [`Query::parse`].
    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Query")
            .field(&String::from_utf8_lossy(&self.text))
            .finish()
    }
}

/// Rejection of a query text that is not a query or exceeds the limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Invalid query '{query}': {reason} (at byte {offset})")]
pub struct ParseError {
    query: String,
    offset: usize,
    reason: ParseReason,
}

impl ParseError {
    /// Returns the byte offset into the text where parsing stopped.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the reason for which parsing stopped.
    pub fn reason(&self) -> ParseReason {
        self.reason
    }
}

/// Reason for which a query text is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseReason {
    /// It does not follow the grammar.
    #[error("{0}")]
    Syntax(&'static str),
    /// It is longer than [`MAX_QUERY_BYTES`].
    #[error("the query is longer than {MAX_QUERY_BYTES} bytes")]
    TooLong,
    /// It nests deeper than [`MAX_DEPTH`].
    #[error("the query is nested too deeply")]
    TooDeep,
    /// It has more parts than [`MAX_PARTS`].
    #[error("the query has too many parts")]
    TooManyParts,
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Self {
        let reason = format!("{} (at byte {})", error.reason, error.offset);
        Self::Query {
            query: error.query,
            reason,
        }
    }
}

/// Reason for which a query cannot be evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// It needs more than [`MAX_WORK`] on this document.
    #[error("the query is too expensive for this document")]
    TooExpensive,
    /// The context node is not in the document.
    #[error("the context node is not in the document")]
    NoContext,
}

impl From<EvalError> for Error {
    fn from(error: EvalError) -> Self {
        Self::Argument(error.to_string())
    }
}

/// Returns the head of a refused text for an error message: the text may be a whole datagram.
fn shown(text: &[u8]) -> String {
    match text.get(..MAX_QUERY_BYTES) {
        Some(head) if text.len() > MAX_QUERY_BYTES => {
            let mut shown = String::from_utf8_lossy(head).into_owned();
            shown.push('…');
            shown
        }
        _ => String::from_utf8_lossy(text).into_owned(),
    }
}

/// A string value: a slice of the document or of the query where possible.
type Text<'a> = Cow<'a, [u8]>;

/// Longest query text that is parsed.
pub const MAX_QUERY_BYTES: usize = 4096;

/// Deepest nesting of parentheses, predicates, arguments and operands of tighter operators. Chains
/// (`a or b or c`, `a/b/c`, `1+2+3`, `x[1][2]`) do not nest.
pub const MAX_DEPTH: usize = 64;

/// Most operands, steps, predicates and calls in one query.
pub const MAX_PARTS: usize = 2048;

/// Work one evaluation may spend. A unit is the price of a byte of text produced or searched; a node
/// visited and an expression evaluated cost eight, a list sixteen, a number's text more. So priced, no
/// query takes longer than 3 ns per unit on a machine of 2024, and most take half of that.
pub const MAX_WORK: u64 = 8 << 20;

/// Work that any query may spend at once on the first stream; each further stream adds
/// [`CHEAP_WORK_PER_STREAM`]. Queries of real programs need a tenth.
pub const CHEAP_WORK: u64 = 8 << 10;

/// Work that each further stream adds to [`CHEAP_WORK`].
pub const CHEAP_WORK_PER_STREAM: u64 = 1 << 10;

/// Returns the price of parsing a text of so many bytes.
pub fn parse_work(bytes: usize) -> u64 {
    u64::try_from(bytes).map_or(u64::MAX, |bytes| bytes.saturating_mul(16))
}

/// Returns the most that one evaluation on a document of so many nodes may spend for an untrusted
/// peer. It allows hundreds of names to choose from and several looks at each node, but no look at
/// each node for each node.
pub fn costly_work(nodes: usize) -> u64 {
    let nodes = u64::try_from(nodes).unwrap_or(u64::MAX);
    (16 * CHEAP_WORK)
        .saturating_add(nodes.saturating_mul(96))
        .min(MAX_COSTLY_WORK)
}

/// Limit of [`costly_work`]: less than a millisecond.
const MAX_COSTLY_WORK: u64 = 384 << 10;
