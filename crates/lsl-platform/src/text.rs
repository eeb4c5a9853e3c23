//! Escaping of foreign text for display: the one place that decides which characters are escaped.

use std::fmt::Write;

/// Escapes text from outside, so that it is one line that looks as it reads. Escaped are control
/// characters, line separators, characters that reorder or hide their surroundings, and bytes that are no
/// UTF-8. The result has at most `max_bytes`; the cut never splits a character or an escape. Escaping twice
/// changes nothing. Spec: LSS/1 §10.
pub fn printable(text: &[u8], max_bytes: usize) -> String {
    // Escaping shortens nothing, so the rest of a long text is not read. Four more bytes keep a character
    // at the cut valid.
    let text = text.get(..max_bytes.saturating_add(4)).unwrap_or(text);
    let mut safe = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            let before = safe.len();
            // Writing to a string cannot fail.
            let _ = match c {
                '\n' | '\r' | '\t' => write!(safe, "{}", c.escape_default()),
                _ if steers(c) => write!(safe, "{}", c.escape_unicode()),
                _ => safe.write_char(c),
            };
            if safe.len() > max_bytes {
                safe.truncate(before);
                return safe;
            }
        }
        for byte in chunk.invalid() {
            if safe.len() + ESCAPED_BYTE_LEN > max_bytes {
                return safe;
            }
            let _ = write!(safe, "\\x{byte:02x}");
        }
    }
    safe
}

/// Returns whether a character changes how its surroundings look.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Line and paragraph separators, interlinear annotations.
            '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}'
            // Default_Ignorable_Code_Point of Unicode: all that is invisible, marks, embeddings, overrides
            // and isolates of the bidirectional algorithm included.
            | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Bytes of an escape such as `\xff`.
const ESCAPED_BYTE_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_steer_a_terminal() {
        let check = |text: &[u8], expected: &str| {
            let safe = printable(text, usize::MAX);
            assert_eq!(safe, expected);
            assert_eq!(printable(safe.as_bytes(), usize::MAX), safe, "twice");
        };
        check(b"", "");
        check("plain ü 脳 \\ \" é".as_bytes(), "plain ü 脳 \\ \" é");
        check(b"two\r\nlines\t\0", r"two\r\nlines\t\u{0}");
        check(b"\x1b[2Jgone\x7f", r"\u{1b}[2Jgone\u{7f}");
        check("\u{9b}31m\u{85}".as_bytes(), r"\u{9b}31m\u{85}");
        check(
            "\u{202e}drawkcab\u{2066}\u{2069}".as_bytes(),
            r"\u{202e}drawkcab\u{2066}\u{2069}",
        );
        // Cases in which two former escapers disagreed.
        check(
            "\u{200e}\u{200f}\u{61c}\u{2028}\u{2029}\u{feff}".as_bytes(),
            r"\u{200e}\u{200f}\u{61c}\u{2028}\u{2029}\u{feff}",
        );
        check(
            "a\u{200b}\u{ad}\u{2060}\u{fe0f}\u{e0041}b".as_bytes(),
            r"a\u{200b}\u{ad}\u{2060}\u{fe0f}\u{e0041}b",
        );
        check(b"a\xffb\xc3", r"a\xffb\xc3");
        // An overlong slash and half a surrogate pair are no UTF-8 either.
        check(b"\xc0\xaf\xed\xa0\x80", r"\xc0\xaf\xed\xa0\x80");
    }

    #[test]
    fn long_text_is_cut_between_characters_and_escapes() {
        let check = |text: &[u8], expected: &str| assert_eq!(printable(text, 256), expected);
        check(&vec![b'a'; 1 << 20], &"a".repeat(256));
        check("ü".repeat(300).as_bytes(), &"ü".repeat(128));
        check("脳".repeat(300).as_bytes(), &"脳".repeat(85));
        // Six bytes each: 42 fit, and four bytes stay free.
        check(&[0x1b; 300], &r"\u{1b}".repeat(42));
        check(&[0xff; 300], &r"\xff".repeat(64));
        let text = ["a".repeat(255), "ü".into()].concat();
        check(text.as_bytes(), &"a".repeat(255));
        assert_eq!(printable(b"abc", 0), "");
    }
}
