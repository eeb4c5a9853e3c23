//! Which day it is at least. Spec: LSS/1 §3.2.

use std::time::Duration;

use lsl_platform::calendar::Date;

/// The day on which this version of the library was made: no clock of a machine that runs it can be
/// right and earlier. Moved forward by hand with each release, because a build that asks the clock
/// gives another binary every day.
pub const BUILD_DATE: Date = Date::from_ymd(2026, 11, 21).expect("there is such a day");

/// Today: the latest of system clock, build date and time of the trust file. A clock that was set
/// back, or stands still without battery, revives nothing older than that.
pub fn today(clock: Duration, trust_modified: Option<Duration>) -> Date {
    let modified = trust_modified.unwrap_or(Duration::ZERO);
    BUILD_DATE.max(Date::from_unix_time(clock.max(modified)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn today_is_the_latest_of_three() {
        let secs = Duration::from_secs;
        let check = |clock: u64, modified: Option<u64>, expected: &str| {
            let day = today(secs(clock), modified.map(secs));
            assert_eq!(day.to_string(), expected);
        };
        check(0, None, &BUILD_DATE.to_string());
        check(0, Some(0), &BUILD_DATE.to_string());
        check(1_830_297_599, None, "2027-12-31");
        check(1_830_297_600, None, "2028-01-01");
        check(1_830_297_600, Some(1_861_920_000), "2029-01-01");
        check(1_861_920_000, Some(1_830_297_600), "2029-01-01");
        check(u64::MAX, None, "9999-12-31");
    }
}
