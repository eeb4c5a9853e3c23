//! Patterns of whole names. Spec: relay §12.2.

use std::str::FromStr;

use regex_lite::Regex;

/// Regular expression that a whole name matches.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Whether a name matches.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // What it says of a mistake has places in the whole expression.
        Regex::new(text).map_err(|error| error.to_string())?;
        let whole = Regex::new(&format!("^(?:{text})$"));
        whole.map(Self).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_matches_or_none() {
        let pattern: Pattern = "neuro.*|a\\.b".parse().unwrap();
        for (name, expected) in [
            ("neuro", true),
            ("neuro.1", true),
            ("a.b", true),
            ("a.bc", false),
            ("my neuro", false),
            ("", false),
        ] {
            assert_eq!(pattern.matches(name), expected, "{name}");
        }
        assert!("neuro(".parse::<Pattern>().is_err());
    }
}
