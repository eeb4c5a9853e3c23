//! Text from outside made safe, and dates made readable. Spec: LSS/1 §10.

use std::time::Duration;

/// Makes text from outside safe to print, log and store, as
/// [`terminal::printable`](lsl_platform::terminal::printable): at most 256 bytes. Spec: LSS/1 §10.
pub fn printable(text: &[u8]) -> String {
    lsl_platform::terminal::printable(text, MAX_OUTSIDE)
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
    fn text_from_outside_is_short_and_harmless() {
        assert_eq!(printable(b"two\n\x1b[2J\xff"), r"two\n\u{1b}[2J\xff");
        assert_eq!(printable(&vec![b'a'; 1 << 20]), "a".repeat(256));
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
            prop_assert!(!safe.chars().any(char::is_control));
            prop_assert_eq!(printable(safe.as_bytes()), safe, "escaped twice");
        }

        #[test]
        fn every_day_follows_the_one_before(day in 0_u64..1_000_000) {
            let (before, after) = (date(day), date(day + 1));
            prop_assert!(before < after);
            prop_assert!(after.2 == 1 || after == (before.0, before.1, before.2 + 1));
        }
    }
}
