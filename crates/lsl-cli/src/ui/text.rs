//! Numbers and foreign text in the words of people.

use std::fmt::Write;

use lsl_platform::terminal;

/// Returns foreign text of any length as one harmless line: a stream may be called anything, escape
/// sequences included.
pub fn printable(text: &str) -> String {
    terminal::printable(text.as_bytes(), usize::MAX)
}

/// Returns JSON with the characters escaped that would steer a terminal: the same values, as harmless to look at as
/// [`printable`] text.
pub fn printable_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    let mut units = [0; 2];
    for c in json.chars() {
        if matches!(c, '\n' | ' '..='~') {
            safe.push(c);
        } else if matches!(c, '\r' | '\t') {
            // Between values; in strings they are escaped already.
            safe.push(' ');
        } else if printable(c.encode_utf8(&mut [0; 4])).starts_with(c) {
            safe.push(c);
        } else {
            for unit in c.encode_utf16(&mut units) {
                // Writing to a string cannot fail.
                let _ = write!(safe, "\\u{unit:04x}");
            }
        }
    }
    safe
}

/// Formats seconds as people say them: `4 s`, `12 min`, `3.5 h`, `2.1 d`.
pub fn age(secs: f64) -> String {
    let units = [(86_400.0, "d"), (3600.0, "h")];
    match units.iter().find(|(unit, _)| secs >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", secs / unit),
        None if secs >= 60.0 => format!("{:.0} min", (secs / 60.0).floor()),
        None => format!("{:.0} s", secs.max(0.0).floor()),
    }
}

/// Formats a nominal rate: `500 Hz`, `0.5 Hz`, `irregular`.
pub fn rate(hertz: f64) -> String {
    if hertz == lsl_core::IRREGULAR_RATE {
        "irregular".into()
    } else {
        format!("{hertz} Hz")
    }
}

/// Formats a number with its noun: `1 stream`, `2 streams`.
pub fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        let counted = [0, 1, 2].map(|number| count(number, "stream"));
        assert_eq!(counted, ["0 streams", "1 stream", "2 streams"]);
    }

    #[test]
    fn json_cannot_steer_the_terminal_and_means_the_same() {
        let json = "{\r\n\t\"name\": \"\u{9b}2J ä\u{202e}x\u{e0001}\u{7f} \\u001b\"\n}";
        let safe = printable_json(json);
        assert!(
            safe.contains("\\u009b2J ä\\u202ex\\udb40\\udc01\\u007f"),
            "{safe}"
        );
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&safe), value(json));
    }

    #[test]
    fn ages_and_rates() {
        for (secs, expected) in [
            (-1.0, "0 s"),
            (0.0, "0 s"),
            (59.9, "59 s"),
            (60.0, "1 min"),
            (3599.0, "59 min"),
            (5400.0, "1.5 h"),
            (181_440.0, "2.1 d"),
        ] {
            assert_eq!(age(secs), expected);
        }
        for (hertz, expected) in [(0.0, "irregular"), (500.0, "500 Hz"), (0.5, "0.5 Hz")] {
            assert_eq!(rate(hertz), expected);
        }
    }
}
