//! Parser of `lsl_api.cfg`, exactly as liblsl reads it: rejects and tolerates the same lines, and
//! reports line and reason. Values stay text; this file knows no key. Spec: lsl-protocol §12.

/// One `key = value` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// `section.name`; only the name when no section header stood above it.
    pub key: String,
    /// Text after the first `=`, trimmed, never empty.
    pub value: String,
    /// Line of the file, counted from 1.
    pub line: usize,
}

/// Reason why a whole file is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct SyntaxError {
    /// Line of the file, counted from 1.
    pub line: usize,
    /// Kind of mistake in that line.
    pub reason: Reason,
}

/// Kind of a mistake in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A line that starts with `[` has no `]`.
    #[error("the section header has no closing ']'")]
    UnclosedSection,
    /// Neither comment nor section nor assignment.
    #[error("no '=' found{hint}")]
    NotAnAssignment {
        /// Advice for the usual mistakes, empty if none fits.
        hint: &'static str,
    },
    /// Nothing but blanks before the `=`.
    #[error("no key before the '='")]
    EmptyKey,
    /// Nothing but blanks after the `=`.
    #[error("no value after the '='; remove the line to get the default")]
    EmptyValue,
    /// The same key was set above.
    #[error("'{key}' was set before, in line {first}")]
    Duplicate {
        /// Full name of the key, as `section.name`.
        key: String,
        /// Line of the first assignment.
        first: usize,
    },
}

/// Splits a file into its assignments.
///
/// # Errors
/// The first line that liblsl would reject; liblsl then ignores the whole file.
pub fn parse(text: &str) -> Result<Vec<Assignment>, SyntaxError> {
    let mut section = String::new();
    let mut assignments: Vec<Assignment> = Vec::new();
    for (index, content) in text.split('\n').enumerate() {
        let line = index + 1;
        let fail = |reason| SyntaxError { line, reason };
        if content.starts_with(';') || trim(content).is_empty() {
            continue;
        }
        if let Some(rest) = content.strip_prefix('[') {
            let (name, _ignored) = rest
                .split_once(']')
                .ok_or_else(|| fail(Reason::UnclosedSection))?;
            section = format!("{name}.");
            continue;
        }
        let Some((key, value)) = content.split_once('=') else {
            return Err(fail(Reason::NotAnAssignment {
                hint: hint(content),
            }));
        };
        // An '=' in the first column escapes liblsl's test for an empty key: its key becomes the
        // whole line, which no setting is called. It is accepted and later reported as unknown.
        let key = if key.is_empty() {
            trim(content)
        } else {
            trim(key)
        };
        if key.is_empty() {
            return Err(fail(Reason::EmptyKey));
        }
        if trim(value).is_empty() {
            return Err(fail(Reason::EmptyValue));
        }
        let key = format!("{section}{key}");
        if let Some(first) = assignments.iter().find(|earlier| earlier.key == key) {
            return Err(fail(Reason::Duplicate {
                key,
                first: first.line,
            }));
        }
        assignments.push(Assignment {
            key,
            value: trim(value).to_owned(),
            line,
        });
    }
    Ok(assignments)
}

/// Trims the characters that liblsl takes for blanks; other Unicode space belongs to the text.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\r', '\n'])
}

fn hint(content: &str) -> &'static str {
    if content.starts_with('\u{feff}') {
        "; the file starts with a byte order mark, save it as plain UTF-8"
    } else if trim(content).starts_with(['#', ';']) {
        "; comments start with ';' in the first column"
    } else if trim(content).starts_with('[') {
        "; a section header must start in the first column"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_liblsl_accepts() {
        let check = |text: &str, expected: &[(&str, &str, usize)]| {
            let parsed = parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
            let parsed: Vec<_> = parsed
                .iter()
                .map(|a| (a.key.as_str(), a.value.as_str(), a.line))
                .collect();
            assert_eq!(parsed, expected, "{text:?}");
        };
        check("", &[]);
        check("\n \t\r\n; comment = 1\n;\n", &[]);
        check("[ports]\nBasePort = 5", &[("ports.BasePort", "5", 2)]);
        check("[ports]\r\nBasePort=5\r\n", &[("ports.BasePort", "5", 2)]);
        check(
            "[ports]\n\t BasePort\t=\t 5 \t",
            &[("ports.BasePort", "5", 2)],
        );
        check("[a]\nk = x = y ; z", &[("a.k", "x = y ; z", 2)]);
        check("[a] anything = goes\nk=1", &[("a.k", "1", 2)]);
        check("[a]=b\nk=1", &[("a.k", "1", 2)]);
        check("[ a ]\nk=1", &[(" a .k", "1", 2)]);
        check("[a]\nk=1\n[b]\nk=2", &[("a.k", "1", 2), ("b.k", "2", 4)]);
        check("[a]\nk=1\nK=2", &[("a.k", "1", 2), ("a.K", "2", 3)]);
        check("a.k = 1", &[("a.k", "1", 1)]);
        check("[]\nk=1", &[(".k", "1", 2)]);
        check("=5", &[("=5", "5", 1)]);
        check("# a = b", &[("# a", "b", 1)]);
    }

    #[test]
    fn rejects_what_liblsl_rejects() {
        let check = |text: &str, line: usize, part: &str| {
            let error = parse(text).expect_err(text);
            assert_eq!(error.line, line, "{text:?}");
            assert!(error.to_string().contains(part), "{text:?}: {error}");
        };
        check("[ports\nBasePort=5", 1, "closing ']'");
        check("[a]\nwords", 2, "no '='");
        check("# comment", 1, "comments start with ';'");
        check("  ; comment", 1, "comments start with ';'");
        check(" [a]", 1, "first column");
        check("\u{feff}[a]\nk=1", 1, "byte order mark");
        check("k =", 1, "no value");
        check("k = \t\r\n", 1, "no value");
        check("=", 1, "no value");
        check(" = 5", 1, "no key");
        check("[a]\nk=1\nk=1", 3, "line 2");
        check("a.k=1\n[a]\nk=2", 3, "'a.k' was set before, in line 1");
    }
}
