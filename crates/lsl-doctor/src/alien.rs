//! Stamps that are on no clock of LSL, judged by how old samples seem when they come. Spec: doctor §2.4

/// What is wrong with the stamps of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspect {
    /// They are seconds since 1970.
    Unix,
    /// They are of another clock.
    Foreign,
    /// They lie ahead of the time at which they come.
    Future,
}

/// Judges the last of the smallest lags of each second, in seconds: the time at which a sample came, less its stamp on
/// the clock of this machine. `stamp` is as it was sent, `day` the seconds since 1970 when it came.
pub fn judge(lags: &[f64], stamp: f64, day: Option<f64>, uncertainty_secs: f64) -> Option<Suspect> {
    // The first second has what waited for the connection.
    let lag = *lags.get(1..)?.last()?;
    if lag.abs() > ALIEN_SECS {
        let is_day = day.is_some_and(|day| (stamp - day).abs() < YEAR_SECS);
        return Some(if is_day {
            Suspect::Unix
        } else {
            Suspect::Foreign
        });
    }
    (lag < -(uncertainty_secs + TOLERANCE_SECS)).then_some(Suspect::Future)
}

const ALIEN_SECS: f64 = 10.0;
const YEAR_SECS: f64 = 365.25 * 86_400.0;
const TOLERANCE_SECS: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_judged_by_their_age() {
        let day = 1_795_000_000.0;
        for (lag, stamp, expected) in [
            (0.002, 500.0, None),
            (-0.010, 500.0, None),
            (9.0, 500.0, None),
            (-0.020, 500.0, Some(Suspect::Future)),
            (-1.7e9, day, Some(Suspect::Unix)),
            (-2.0e9, 2.0e9, Some(Suspect::Foreign)),
            (400.0, 100.0, Some(Suspect::Foreign)),
        ] {
            assert_eq!(
                judge(&[7.0, lag], stamp, Some(day), 0.010),
                expected,
                "{lag}"
            );
        }
        assert_eq!(
            judge(&[-1.7e9], day, Some(day), 0.01),
            None,
            "the first second"
        );
        assert_eq!(judge(&[], 0.0, None, 0.0), None);
    }
}
