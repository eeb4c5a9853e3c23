//! Numbers and foreign text in the words of people.

use lsl_platform::terminal;

/// Returns foreign text of any length as one harmless line: a stream may be called anything, escape
/// sequences included.
pub fn printable(text: &str) -> String {
    terminal::printable(text.as_bytes(), usize::MAX)
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
