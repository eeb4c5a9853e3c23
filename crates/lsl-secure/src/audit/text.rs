//! Text from outside made safe, and dates made readable. Spec: LSS/1 §10.

use std::fmt::Write;
use std::time::Duration;

/// Makes text from outside safe to print, log and store: at most 256 bytes, invalid UTF-8 replaced,
/// control and bidirectional-override characters escaped. Spec: LSS/1 §10.
pub fn printable(text: &[u8]) -> String {
    escaped(text, MAX_OUTSIDE)
}

/// As [`printable`] with another limit; what does not fit is cut between two characters, and no
/// escape is ever cut in two.
pub(super) fn escaped(text: &[u8], max_bytes: usize) -> String {
    // Nothing gets shorter by escaping or replacing, so the rest cannot matter; a megabyte costs no
    // more than this. Four bytes more, or a character cut here would look invalid.
    let text = text.get(..max_bytes + 4).unwrap_or(text);
    let mut safe = String::with_capacity(text.len());
    for c in String::from_utf8_lossy(text).chars() {
        let before = safe.len();
        if steers(c) {
            // Writing to a string cannot fail.
            let _ = write!(safe, "{}", c.escape_unicode());
        } else {
            safe.push(c);
        }
        if safe.len() > max_bytes {
            safe.truncate(before);
            break;
        }
    }
    safe
}

/// Whether a character changes how its surroundings look instead of looking like something.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Marks, embeddings, overrides and isolates of the bidirectional algorithm.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Line and paragraph separators; the byte order mark is invisible.
            | '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// A time since 1970 as RFC 3339 in UTC with nanoseconds: `2026-11-21T19:30:00.000000001Z`.
pub(super) fn utc(since_1970: Duration) -> String {
    let secs = since_1970.as_secs();
    let (year, month, day) = date(secs / DAY_SECS);
    let (hour, minute, second) = (secs / 3600 % 24, secs / 60 % 60, secs % 60);
    let nanos = since_1970.subsec_nanos();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// Year, month and day of a number of days since 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    // Years that start in March have their leap day at the end, and 400 of them always the same
    // length; the months of such a year follow a line of slope 153/5.
    let days = days + DAYS_FROM_0000_MARCH_TO_1970;
    let era = days / DAYS_OF_400_YEARS;
    let of_era = days % DAYS_OF_400_YEARS;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let (month, years) = if month_from_march < 10 {
        (month_from_march + 3, 0)
    } else {
        (month_from_march - 9, 1)
    };
    (era * 400 + year_of_era + years, month, day)
}

/// What comes from outside, in bytes.
const MAX_OUTSIDE: usize = 256;
pub(super) const DAY_SECS: u64 = 86_400;
const DAYS_FROM_0000_MARCH_TO_1970: u64 = 719_468;
const DAYS_OF_400_YEARS: u64 = 146_097;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn outside_text_cannot_steer_a_terminal() {
        let check = |text: &[u8], expected: &str| assert_eq!(printable(text), expected);
        check(b"", "");
        check("plain ü 脳 \\ \"".as_bytes(), "plain ü 脳 \\ \"");
        check(b"two\r\nlines\t\0", r"two\u{d}\u{a}lines\u{9}\u{0}");
        check(b"\x1b[2Jgone\x7f", r"\u{1b}[2Jgone\u{7f}");
        check("\u{9b}31m".as_bytes(), r"\u{9b}31m");
        check("\u{202e}drawkcab".as_bytes(), r"\u{202e}drawkcab");
        check(
            "\u{2066}\u{2069}\u{200f}\u{2028}\u{feff}".as_bytes(),
            r"\u{2066}\u{2069}\u{200f}\u{2028}\u{feff}",
        );
        check(b"a\xffb\xc3", "a\u{fffd}b\u{fffd}");
    }

    #[test]
    fn long_text_is_cut_between_characters_and_escapes() {
        assert_eq!(printable(&vec![b'a'; 1 << 20]), "a".repeat(256));
        assert_eq!(printable("ü".repeat(300).as_bytes()), "ü".repeat(128));
        assert_eq!(printable("脳".repeat(300).as_bytes()), "脳".repeat(85));
        // Six bytes each: 42 fit, and four bytes stay free.
        assert_eq!(printable(&[0x1b; 300]), r"\u{1b}".repeat(42));
        let mut text = vec![b'a'; 255];
        text.extend("ü".as_bytes());
        assert_eq!(printable(&text), "a".repeat(255));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let check = |secs: u64, expected: &str| assert_eq!(utc(Duration::new(secs, 7)), expected);
        check(0, "1970-01-01T00:00:00.000000007Z");
        check(951_782_399, "2000-02-28T23:59:59.000000007Z");
        check(951_782_400, "2000-02-29T00:00:00.000000007Z");
        check(951_868_800, "2000-03-01T00:00:00.000000007Z");
        check(1_735_689_599, "2024-12-31T23:59:59.000000007Z");
        check(1_795_289_400, "2026-11-21T19:30:00.000000007Z");
        check(4_107_542_400, "2100-03-01T00:00:00.000000007Z");
    }

    proptest! {
        #[test]
        fn whatever_comes_in_is_short_and_harmless(text in prop::collection::vec(any::<u8>(), 0..400)) {
            let safe = printable(&text);
            prop_assert!(safe.len() <= 256);
            prop_assert!(!safe.chars().any(steers));
        }

        #[test]
        fn every_day_follows_the_one_before(day in 0_u64..1_000_000) {
            let (before, after) = (date(day), date(day + 1));
            prop_assert!(before < after);
            prop_assert!(after.2 == 1 || after == (before.0, before.1, before.2 + 1));
        }
    }
}
