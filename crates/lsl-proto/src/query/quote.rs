//! Writer of values as string literals. XPath 1.0 knows no escapes in literals, so a value that
//! holds both kinds of quote must be put together with `concat()`. Spec: lsl-protocol §3.5, §15.

/// Quotes a value: returns an expression for exactly this text, even if it contains quotes. Without
/// any the result is `'value'`, as liblsl writes it.
///
/// Quoting cannot help a value with CR or LF through a discovery datagram, whose query is one line,
/// nor one with NUL through C.
///
/// ```
/// # use lsl_proto::query::quote;
/// assert_eq!(quote("EEG"), "'EEG'");
/// assert_eq!(quote("O'Brien"), "\"O'Brien\"");
/// ```
/// Spec: lsl-protocol §15.
pub fn quote(value: &str) -> String {
    // Cut at quotes only, so whole characters stay whole.
    String::from_utf8_lossy(&quote_bytes(value.as_bytes())).into_owned()
}

/// Quotes as [`quote`] does a value off the wire, which need not be UTF-8.
///
/// Spec: lsl-protocol §15.
pub fn quote_bytes(value: &[u8]) -> Vec<u8> {
    let mut pieces = Vec::new();
    let mut rest = value;
    loop {
        let (piece, tail) = rest.split_at_checked(run(rest)).unwrap_or((rest, b""));
        let mark: &[u8] = if piece.contains(&b'\'') { b"\"" } else { b"'" };
        pieces.push([mark, piece, mark].concat());
        rest = tail;
        if rest.is_empty() {
            break;
        }
    }
    match pieces.as_slice() {
        [only] => only.clone(),
        several => [b"concat(", several.join(b",".as_slice()).as_slice(), b")"].concat(),
    }
}

/// Returns the length of the longest head that holds one kind of quote at most.
fn run(value: &[u8]) -> usize {
    let place = |quote: u8| value.iter().position(|&byte| byte == quote);
    match (place(b'\''), place(b'"')) {
        (Some(single), Some(double)) => single.max(double),
        _ => value.len(),
    }
}
