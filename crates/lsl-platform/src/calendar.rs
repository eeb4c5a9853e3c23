//! The civil calendar in UTC, without a library and without leap seconds, as system clocks count.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Seconds of a day without a leap second.
pub const DAY_SECS: u64 = 86_400;

/// A day in UTC, of the years 1 to 9999.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    /// Days since 1970-01-01, negative before it.
    days: i32,
}

impl Date {
    /// The day if there is such a day.
    pub const fn from_ymd(year: i32, month: u32, day: u32) -> Option<Self> {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let length = match month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            _ => return None,
        };
        if year < 1 || year > 9999 || day < 1 || day > length {
            return None;
        }
        Some(Self::from_civil(year, month, day))
    }

    /// The day of a time since 1970; at most 9999-12-31.
    pub fn from_unix_time(time: Duration) -> Self {
        let last = Self::from_civil(9999, 12, 31);
        i32::try_from(time.as_secs() / DAY_SECS).map_or(last, |days| Self { days }.min(last))
    }

    /// Days from `earlier` to this one; negative if it is later.
    pub fn days_since(self, earlier: Self) -> i32 {
        self.days - earlier.days
    }

    /// Returns the day `days` later, earlier if negative.
    #[must_use]
    pub fn plus_days(self, days: i32) -> Self {
        Self {
            days: self.days.saturating_add(days),
        }
    }

    /// Counts days in years that begin in March, where the leap day is the last one.
    #[expect(
        clippy::cast_possible_wrap,
        reason = "months and days are small, and `try_from` is not const"
    )]
    const fn from_civil(year: i32, month: u32, day: u32) -> Self {
        let (year, month) = match month {
            1 | 2 => (year - 1, month as i32 + 9),
            _ => (year, month as i32 - 3),
        };
        let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        let in_year = (153 * month + 2) / 5 + day as i32 - 1;
        // 719 468 days lie between 0000-03-01 and 1970-01-01.
        Self {
            days: 365 * year + leap_days + in_year - 719_468,
        }
    }

    /// Returns year, month and day of the month.
    fn civil(self) -> (i32, i32, i32) {
        let days = self.days + 719_468;
        let era = days.div_euclid(146_097);
        let of_era = days.rem_euclid(146_097);
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let (carry, month) = if month < 10 {
            (0, month + 3)
        } else {
            (1, month - 9)
        };
        (era * 400 + year + carry, month, day)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.civil();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl fmt::Debug for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Date {
    type Err = NotADate;

    /// Reads `YYYY-MM-DD` with leading zeros, exactly.
    fn from_str(text: &str) -> Result<Self, NotADate> {
        let bytes = text.as_bytes();
        let form = bytes.len() == 10
            && bytes.iter().enumerate().all(|(at, byte)| match at {
                4 | 7 => *byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        if !form {
            return Err(NotADate);
        }
        let number = |part: &[u8]| part.iter().fold(0, |n, b| 10 * n + u32::from(b - b'0'));
        let year = i32::try_from(number(&bytes[..4])).map_err(|_| NotADate)?;
        Self::from_ymd(year, number(&bytes[5..7]), number(&bytes[8..])).ok_or(NotADate)
    }
}

/// A text is no day of the form `2027-12-31`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotADate;

impl fmt::Display for NotADate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a day; write it as 2027-12-31")
    }
}

impl Error for NotADate {}

/// A time since 1970 as RFC 3339 in UTC: `2026-11-21T19:30:00Z`.
pub fn rfc3339(since_1970: Duration) -> String {
    date_time(since_1970) + "Z"
}

/// Writes a time as [`rfc3339`], with nanoseconds, in ASCII: `2026-11-21T19:30:00.000000001Z`.
pub fn rfc3339_nanos(since_1970: Duration) -> [u8; 30] {
    let (year, month, day) = Date::from_unix_time(since_1970).civil();
    let secs = since_1970.as_secs();
    let part = |secs: u64| u32::try_from(secs).unwrap_or_default();
    let [hour, minute, second] = [secs / 3600 % 24, secs / 60 % 60, secs % 60].map(part);
    let parts = [
        (9, since_1970.subsec_nanos()),
        (2, second),
        (2, minute),
        (2, hour),
        (2, day.cast_unsigned()),
        (2, month.cast_unsigned()),
        (4, year.cast_unsigned()),
    ];
    let mut text = *b"0000-00-00T00:00:00.000000000Z";
    // From the end; what is no digit separates.
    let mut places = text.iter_mut().rev().filter(|byte| **byte == b'0');
    for (digits, mut number) in parts {
        for place in places.by_ref().take(digits) {
            *place += (number % 10) as u8;
            number /= 10;
        }
    }
    text
}

fn date_time(since_1970: Duration) -> String {
    let (date, secs) = (Date::from_unix_time(since_1970), since_1970.as_secs());
    let (hour, minute, second) = (secs / 3600 % 24, secs / 60 % 60, secs % 60);
    format!("{date}T{hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_numbered_as_the_calendar_does() {
        let check = |text: &str, days: i32| {
            let date: Date = text.parse().unwrap();
            assert_eq!(date.days, days, "{text}");
            assert_eq!(date.to_string(), text);
        };
        // Computed with `date -u -d TEXT +%s`.
        check("1970-01-01", 0);
        check("1969-12-31", -1);
        check("2000-02-29", 11_016);
        check("2000-03-01", 11_017);
        check("2026-11-21", 20_778);
        check("2100-03-01", 47_541);
        check("9999-12-31", 2_932_896);
        check("0001-01-01", -719_162);
    }

    #[test]
    fn every_day_comes_back_and_follows_the_one_before() {
        let first: Date = "1890-01-01".parse().unwrap();
        for offset in 0..100_000 {
            let (day, next) = (first.plus_days(offset), first.plus_days(offset + 1));
            assert_eq!(day.to_string().parse(), Ok(day));
            let (before, after) = (day.civil(), next.civil());
            assert!(before < after && (after.2 == 1 || after.2 == before.2 + 1));
        }
    }

    #[test]
    fn what_is_no_day_is_refused() {
        for text in [
            "",
            "2027",
            "2027-1-1",
            "2027-13-01",
            "2027-00-01",
            "2027-02-29",
            "2027-04-31",
            "2027-01-00",
            "2027-01-32",
            "0000-01-01",
            "2100-02-29",
            "2027/01/01",
            "2027-01-01 ",
            "+027-01-01",
            "2027-01-0x",
            "２027-01-01",
            "2027-01-01T00:00:00Z",
        ] {
            assert_eq!(text.parse::<Date>(), Err(NotADate), "{text:?}");
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let check = |secs: u64, expected: &str| {
            let time = Duration::new(secs, 7);
            assert_eq!(rfc3339(time), format!("{expected}Z"));
            let nanos = format!("{expected}.000000007Z");
            assert_eq!(rfc3339_nanos(time), nanos.as_bytes());
        };
        check(0, "1970-01-01T00:00:00");
        check(951_782_399, "2000-02-28T23:59:59");
        check(951_782_400, "2000-02-29T00:00:00");
        check(951_868_800, "2000-03-01T00:00:00");
        check(1_709_251_199, "2024-02-29T23:59:59");
        check(1_735_689_599, "2024-12-31T23:59:59");
        check(1_795_300_000, "2026-11-21T22:26:40");
        check(4_107_542_400, "2100-03-01T00:00:00");
    }
}
