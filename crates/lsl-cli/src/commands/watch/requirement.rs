//! `STREAM; CONDITION; …` on the command line: what is demanded of a stream.

use std::fmt;

use crate::failure::{Failure, Outcome};
use crate::streams::select::Wanted;
use crate::ui::text::printable;

/// One stream, and what is demanded of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Requirement {
    /// As it was typed.
    pub(super) text: String,
    pub(super) stream: Wanted,
    pub(super) limits: Limits,
    /// Name or fingerprint of the key that it has to have.
    pub(super) key: Option<String>,
    pub(super) host: Option<String>,
}

/// Limits of a stream; those that are not given are usual ones, some only of regular streams.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Limits {
    pub(super) silent_secs: Option<f64>,
    pub(super) rate: Option<f64>,
    pub(super) late_secs: Option<f64>,
    pub(super) clock_secs: Option<f64>,
    pub(super) no_loss: bool,
}

impl Limits {
    /// Returns how long no sample may come, of a stream with this nominal rate.
    pub(super) fn silent_secs(&self, rate: f64) -> Option<f64> {
        let usual = (rate > 0.0).then(|| (SILENT_SAMPLES / rate).max(SILENT_SECS));
        self.silent_secs.or(usual)
    }

    /// Returns how many samples a second have to come.
    pub(super) fn rate(&self, rate: f64) -> Option<f64> {
        let usual = (rate > 0.0).then_some(rate * SHARE);
        self.rate.or(usual)
    }

    pub(super) fn late_secs(&self) -> f64 {
        self.late_secs.unwrap_or(LATE_SECS)
    }

    pub(super) fn clock_secs(&self) -> f64 {
        self.clock_secs.unwrap_or(CLOCK_SECS)
    }
}

impl Requirement {
    pub(super) fn parse(text: &str) -> Outcome<Self> {
        let mut parts = pieces(text).into_iter();
        let stream = Wanted::parse(parts.next().unwrap_or_default().trim())?;
        let mut requirement = Self {
            text: text.trim().to_owned(),
            stream,
            limits: Limits::default(),
            key: None,
            host: None,
        };
        for part in parts.map(str::trim).filter(|it| !it.is_empty()) {
            requirement.add(part).ok_or_else(|| {
                Failure::Usage(format!(
                    "'{}' is no condition. Known are silent<SECS, rate>=HZ, late<MS, clock<MS, loss=0, \
                     key=NAME or key=SHA256:..., host=NAME",
                    printable(part)
                ))
            })?;
        }
        Ok(requirement)
    }

    /// Reads one condition; `None` if it is none.
    fn add(&mut self, part: &str) -> Option<()> {
        let limits = &mut self.limits;
        let number = |text: &str| {
            let number = text.trim().parse::<f64>().ok();
            number.filter(|it| it.is_finite() && *it >= 0.0)
        };
        if let Some((name, value)) = part.split_once(">=") {
            (name.trim() == "rate").then_some(())?;
            limits.rate = Some(number(value)?);
        } else if let Some((name, value)) = part.split_once('<') {
            let value = number(value)?;
            match name.trim() {
                "silent" => limits.silent_secs = Some(value),
                "late" => limits.late_secs = Some(value / 1000.0),
                "clock" => limits.clock_secs = Some(value / 1000.0),
                _ => return None,
            }
        } else {
            let (name, value) = part.split_once('=')?;
            let value = value.trim();
            match name.trim() {
                "loss" => {
                    (value == "0").then_some(())?;
                    limits.no_loss = true;
                }
                "key" if !value.is_empty() => self.key = Some(value.to_owned()),
                "host" if !value.is_empty() => self.host = Some(value.to_owned()),
                _ => return None,
            }
        }
        Some(())
    }
}

/// Splits at `;` outside of quotes.
fn pieces(text: &str) -> Vec<&str> {
    let (mut pieces, mut start, mut quote) = (Vec::new(), 0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, ';') => {
                pieces.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(text.get(start..).unwrap_or_default());
    pieces
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.text))
    }
}

const SILENT_SECS: f64 = 2.0;
const SILENT_SAMPLES: f64 = 20.0;
const SHARE: f64 = 0.95;
const LATE_SECS: f64 = 0.250;
const CLOCK_SECS: f64 = 0.010;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_stand_behind_the_stream() {
        let read = |text: &str| Requirement::parse(text).unwrap();
        let all =
            read("type='E;G'; rate>=248 ;silent<3;late<100; clock<5; loss=0; key=amp1; host=pc");
        assert_eq!(all.stream, Wanted::Predicate("type='E;G'".into()));
        let expected = Limits {
            silent_secs: Some(3.0),
            rate: Some(248.0),
            late_secs: Some(0.1),
            clock_secs: Some(0.005),
            no_loss: true,
        };
        assert_eq!(all.limits, expected);
        assert_eq!(
            (all.key.as_deref(), all.host.as_deref()),
            (Some("amp1"), Some("pc"))
        );
        let plain = read("Marker");
        assert_eq!(plain.limits, Limits::default());
        for wrong in [
            "",
            "Amp; fast",
            "Amp; rate<3",
            "Amp; silent<-1",
            "Amp; loss=1",
            "Amp; key=",
            "Amp; late<x",
        ] {
            assert!(
                matches!(Requirement::parse(wrong), Err(Failure::Usage(_))),
                "{wrong}"
            );
        }
    }

    #[test]
    fn usual_limits_follow_the_rate() {
        let limits = Limits::default();
        assert_eq!((limits.silent_secs(0.0), limits.rate(0.0)), (None, None));
        assert_eq!(
            (limits.silent_secs(100.0), limits.rate(100.0)),
            (Some(2.0), Some(95.0))
        );
        assert_eq!(limits.silent_secs(1.0), Some(20.0));
        let given = Limits {
            silent_secs: Some(60.0),
            ..limits
        };
        assert_eq!(given.silent_secs(0.0), Some(60.0));
    }
}
