//! Text from outside made safe. Spec: LSS/1 §10.

/// Makes text from outside safe to print, log and store, as
/// [`terminal::printable`](lsl_platform::terminal::printable): at most 256 bytes. Spec: LSS/1 §10.
pub fn printable(text: &[u8]) -> String {
    lsl_platform::terminal::printable(text, MAX_OUTSIDE)
}

/// Makes a text safe, as [`printable`], at most `max_bytes` long.
pub(super) fn safe(text: &str, max_bytes: usize) -> String {
    lsl_platform::terminal::printable(text.as_bytes(), max_bytes)
}

/// Returns whether a text is safe as it is, within quotation marks of JSON too.
pub(super) fn is_plain(text: &str) -> bool {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    text.bytes().all(is_plain)
}

/// Longest text from outside, in bytes.
pub(super) const MAX_OUTSIDE: usize = 256;

/// Fits our own sentences with their quotations: a key and the command that adds it.
pub(super) const MAX_DETAIL: usize = 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_from_outside_is_short_and_harmless() {
        assert_eq!(printable(b"two\n\x1b[2J\xff"), r"two\n\u{1b}[2J\xff");
        assert_eq!(printable(&vec![b'a'; 1 << 20]), "a".repeat(256));
    }

    proptest! {
        #[test]
        fn whatever_comes_in_is_short_and_harmless(text in prop::collection::vec(any::<u8>(), 0..400)) {
            let safe = printable(&text);
            prop_assert!(safe.len() <= 256);
            prop_assert!(!safe.chars().any(char::is_control));
            prop_assert!(!is_plain(&safe) || !safe.contains(['"', '\\']));
            prop_assert_eq!(printable(safe.as_bytes()), safe, "escaped twice");
        }
    }
}
