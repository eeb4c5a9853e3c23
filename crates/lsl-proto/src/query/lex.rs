//! Bytes to tokens. The rules are pugixml's: names may hold `-` and `.` (so `a-1` is one name) and
//! any byte above 127; an operator name is a name here, its position decides. Spec: lsl-protocol §4.

use super::ParseReason;
use super::parse::Fault;

/// Token and its byte offset in the query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Token<'a> {
    pub(super) offset: usize,
    pub(super) kind: TokenKind<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TokenKind<'a> {
    /// A `name`, `prefix:name` or `prefix:*`.
    Name(&'a [u8]),
    /// Content of a string literal.
    Literal(&'a [u8]),
    /// Digits with at most one point.
    Number(&'a [u8]),
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Plus,
    Minus,
    Star,
    Pipe,
    Open,
    Close,
    OpenSquare,
    CloseSquare,
    Comma,
    Slash,
    DoubleSlash,
    Dot,
    DoubleDot,
    At,
    DoubleColon,
}

/// Splits a whole query. Blanks alone have no tokens.
pub(super) fn tokens(text: &[u8]) -> Result<Vec<Token<'_>>, Fault> {
    let mut tokens = Vec::new();
    let mut rest = trim_start(text);
    while let Some(&first) = rest.first() {
        let offset = text.len() - rest.len();
        let (kind, used) = token(first, rest).map_err(|reason| Fault {
            offset,
            reason: ParseReason::Syntax(reason),
        })?;
        tokens.push(Token { offset, kind });
        rest = trim_start(rest.get(used..).unwrap_or_default());
    }
    Ok(tokens)
}

/// Returns the token at the head of `rest` and its length in bytes.
fn token(first: u8, rest: &[u8]) -> Result<(TokenKind<'_>, usize), &'static str> {
    let second = rest.get(1).copied();
    Ok(match (first, second) {
        (b'>', Some(b'=')) => (TokenKind::GreaterOrEqual, 2),
        (b'>', _) => (TokenKind::Greater, 1),
        (b'<', Some(b'=')) => (TokenKind::LessOrEqual, 2),
        (b'<', _) => (TokenKind::Less, 1),
        (b'!', Some(b'=')) => (TokenKind::NotEqual, 2),
        (b'=', _) => (TokenKind::Equal, 1),
        (b'+', _) => (TokenKind::Plus, 1),
        (b'-', _) => (TokenKind::Minus, 1),
        (b'*', _) => (TokenKind::Star, 1),
        (b'|', _) => (TokenKind::Pipe, 1),
        (b'(', _) => (TokenKind::Open, 1),
        (b')', _) => (TokenKind::Close, 1),
        (b'[', _) => (TokenKind::OpenSquare, 1),
        (b']', _) => (TokenKind::CloseSquare, 1),
        (b',', _) => (TokenKind::Comma, 1),
        (b'/', Some(b'/')) => (TokenKind::DoubleSlash, 2),
        (b'/', _) => (TokenKind::Slash, 1),
        (b'.', Some(b'.')) => (TokenKind::DoubleDot, 2),
        (b'.', Some(b'0'..=b'9')) | (b'0'..=b'9', _) => number(rest),
        (b'.', _) => (TokenKind::Dot, 1),
        (b'@', _) => (TokenKind::At, 1),
        (b':', Some(b':')) => (TokenKind::DoubleColon, 2),
        (b'"' | b'\'', _) => literal(first, rest)?,
        (b'$', _) => return Err("variables are not supported"),
        _ if is_name_start(first) => name(rest),
        _ => return Err("unexpected character"),
    })
}

fn number(rest: &[u8]) -> (TokenKind<'_>, usize) {
    let mut len = count(rest, |byte| byte.is_ascii_digit());
    if rest.get(len) == Some(&b'.') {
        len += 1;
        len += count(rest.get(len..).unwrap_or_default(), |byte| {
            byte.is_ascii_digit()
        });
    }
    (TokenKind::Number(rest.get(..len).unwrap_or_default()), len)
}

fn literal(terminator: u8, rest: &[u8]) -> Result<(TokenKind<'_>, usize), &'static str> {
    let inside = rest.get(1..).unwrap_or_default();
    let len = count(inside, |byte| byte != terminator);
    if len == inside.len() {
        return Err("string literal without an end");
    }
    Ok((
        TokenKind::Literal(inside.get(..len).unwrap_or_default()),
        len + 2,
    ))
}

fn name(rest: &[u8]) -> (TokenKind<'_>, usize) {
    let mut len = count(rest, is_name_byte);
    if rest.get(len) == Some(&b':') {
        match rest.get(len + 1) {
            Some(b'*') => len += 2,
            Some(&byte) if is_name_byte(byte) => {
                len += 1;
                len += count(rest.get(len..).unwrap_or_default(), is_name_byte);
            }
            _ => {}
        }
    }
    (TokenKind::Name(rest.get(..len).unwrap_or_default()), len)
}

fn count(bytes: &[u8], accepts: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|&&byte| accepts(byte)).count()
}

fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte > 127
}

fn is_name_byte(byte: u8) -> bool {
    is_name_start(byte) || byte.is_ascii_digit() || byte == b'-' || byte == b'.'
}

/// XPath white space: fewer bytes than `u8::is_ascii_whitespace`, which has the form feed too.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn trim_start(bytes: &[u8]) -> &[u8] {
    bytes.get(count(bytes, is_space)..).unwrap_or_default()
}
