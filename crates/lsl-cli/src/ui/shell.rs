//! Words of command lines that users copy.

/// Quotes `text` as one word of a shell.
pub fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@+,%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        for (text, expected) in [
            ("amp-1", "amp-1"),
            ("lsl-ed25519:a+/=", "lsl-ed25519:a+/="),
            ("", "''"),
            ("my amp", "'my amp'"),
            ("it's", "'it'\\''s'"),
            ("$(reboot)", "'$(reboot)'"),
        ] {
            assert_eq!(word(text), expected);
        }
    }
}
