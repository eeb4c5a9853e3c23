//! Names of segments. Spec: relay §9.

use std::fmt;

/// Name of a segment without its folder: `20261122T083156Z-000123.xdf`, with `.age` behind it if it is encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentName {
    /// Time of its beginning, for people.
    begun: String,
    /// Number: later segments have larger ones.
    pub number: u64,
    /// Whether it is encrypted at rest.
    pub is_locked: bool,
}

impl SegmentName {
    /// Creates the name of a segment that begins at a time in RFC 3339, whole seconds in UTC.
    pub fn new(begun: &str, number: u64, is_locked: bool) -> Self {
        let begun = begun.chars().filter(char::is_ascii_alphanumeric).collect();
        Self {
            begun,
            number,
            is_locked,
        }
    }

    /// Parses the name of a file; `None` for one that is no segment.
    pub fn parse(name: &str) -> Option<Self> {
        let (name, is_locked) = match name.strip_suffix(".age") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let (begun, number) = name.strip_suffix(".xdf")?.split_once('-')?;
        let is_number = (6..=19).contains(&number.len());
        let is_digits = number.bytes().all(|byte| byte.is_ascii_digit());
        let is_time = begun.len() == 16 && begun.bytes().all(|it| it.is_ascii_alphanumeric());
        let number = number.parse().ok()?;
        (is_number && is_digits && is_time).then(|| Self {
            begun: begun.to_owned(),
            number,
            is_locked,
        })
    }

    /// Returns the name of the index beside it.
    pub fn index(&self) -> String {
        format!("{self}.idx")
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = if self.is_locked { ".age" } else { "" };
        write!(f, "{}-{:06}.xdf{age}", self.begun, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_others_are_none() {
        for (is_locked, text) in [
            (false, "20261122T083156Z-000123.xdf"),
            (true, "20261122T083156Z-000123.xdf.age"),
        ] {
            let name = SegmentName::new("2026-11-22T08:31:56Z", 123, is_locked);
            assert_eq!(name.to_string(), text);
            assert_eq!(SegmentName::parse(text), Some(name));
        }
        for other in [
            "20261122T083156Z-000123.xdf.idx",
            "20261122T083156Z-123.xdf",
            "20261122T083156Z-00012x.xdf",
            "20261122T083156Z-99999999999999999999.xdf",
            "../61122T083156Z-000123.xdf",
            "20261122T083156Z-000123_old1.xdf",
            "sub.xdf",
            "",
        ] {
            assert_eq!(SegmentName::parse(other), None, "{other}");
        }
    }
}
