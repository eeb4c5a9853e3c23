//! Whether the lines of an audit file are those that were written: chains checked line by line, in
//! the order of the files, oldest first. Sans-IO. Spec: LSS/1 §10.
//!
//! It finds lines that were changed, left out, added or moved within a chain. It cannot find that the
//! last lines of a chain, or a whole chain, are missing: evidence of tampering, no prevention.

use std::collections::HashMap;
use std::fmt;
use std::io::BufRead;

use serde::Deserialize;

use super::file::hash;

/// Reads lines of all files of one log and remembers where each chain stands.
#[derive(Debug, Default)]
pub struct Verifier {
    chains: HashMap<String, LastLine>,
    lines: u64,
    dropped: u64,
}

/// The end of a chain.
#[derive(Debug)]
struct LastLine {
    seq: u64,
    hash: [u8; 64],
}

/// Fields of a line that form the chain.
#[derive(Debug, Deserialize)]
struct Chained {
    chain: String,
    seq: u64,
    prev: String,
    #[serde(default)]
    dropped: u64,
}

/// Position and kind of a break in a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Break {
    /// No line of an audit file: no JSON object, or without `chain`, `seq` and `prev`.
    Unreadable,
    /// The first line of this chain is not its line 0: earlier lines are gone, for instance because
    /// `audit_keep_days` deleted it.
    Headless {
        /// Identifier of the broken chain.
        chain: String,
        /// Number of the first line found.
        seq: u64,
    },
    /// A line of this chain is missing, twice there, or out of place.
    Sequence {
        /// Identifier of the broken chain.
        chain: String,
        /// The number that should come.
        expected: u64,
        /// Number of the line found.
        found: u64,
    },
    /// This line does not follow the one before: one of the two was changed.
    Hash {
        /// Identifier of the broken chain.
        chain: String,
        /// Number of the line that does not fit.
        seq: u64,
    },
}

impl Verifier {
    /// Checks the next line, without its line feed. Empty lines mean nothing.
    ///
    /// After a break the chain is taken to go on from this line, so that each damage is told once.
    ///
    /// # Errors
    /// What is wrong with this line or with the one before it in its chain.
    pub fn line(&mut self, line: &[u8]) -> Result<(), Break> {
        if line.is_empty() {
            return Ok(());
        }
        self.lines += 1;
        let chained: Chained = serde_json::from_slice(line).map_err(|_| Break::Unreadable)?;
        self.dropped = self.dropped.saturating_add(chained.dropped);
        let Chained {
            chain, seq, prev, ..
        } = chained;
        let link = LastLine {
            seq,
            hash: hash(line),
        };
        let before = self.chains.insert(chain.clone(), link);
        match before {
            None if seq == 0 && prev.is_empty() => Ok(()),
            None if seq == 0 => Err(Break::Hash { chain, seq }),
            None => Err(Break::Headless { chain, seq }),
            Some(before) if before.seq.checked_add(1) != Some(seq) => Err(Break::Sequence {
                chain,
                expected: before.seq.saturating_add(1),
                found: seq,
            }),
            Some(before) if before.hash != prev.as_bytes() => Err(Break::Hash { chain, seq }),
            Some(_) => Ok(()),
        }
    }

    /// Returns the number of lines checked so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Chains seen: one for each process and audit object that wrote.
    pub fn chains(&self) -> usize {
        self.chains.len()
    }

    /// Lines that the writers say they lost.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Returns the length of what a killed process left of a line, if another one wrote its own right behind it: usually 0.
pub fn torn_len(line: &[u8]) -> usize {
    let (mut rest, mut torn) = (line.get(1..).unwrap_or_default(), 0);
    while !rest.is_empty() {
        // Finds a brace faster than a loop, or the end.
        let _ = rest.skip_until(b'{');
        let at = line.len() - rest.len() - 1;
        // Quotes in texts are escaped: only a line begins like this.
        if line
            .get(at..)
            .is_some_and(|rest| rest.starts_with(LINE_START))
        {
            torn = at;
        }
    }
    torn
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("not a line of an audit file (or only a part of one)"),
            Self::Headless { chain, seq } => write!(
                f,
                "chain {} begins with line {seq}: its first lines are missing",
                safe(chain)
            ),
            Self::Sequence {
                chain,
                expected,
                found,
            } => write!(
                f,
                "chain {}: line {expected} should be here, line {found} is",
                safe(chain)
            ),
            Self::Hash { chain, seq } => write!(
                f,
                "chain {}: line {seq} does not follow the line before it; one of them was changed",
                safe(chain)
            ),
        }
    }
}

impl std::error::Error for Break {}

/// Makes a chain's name safe to print: a changed file may hold anything.
fn safe(chain: &str) -> String {
    super::printable(chain.as_bytes())
}

/// Beginning of every line.
const LINE_START: &[u8] = b"{\"ts\":\"";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Lines of two chains, as two writers would make them.
    fn log() -> Vec<String> {
        let mut lines = Vec::new();
        let mut prev = [String::new(), String::new()];
        for seq in 0..6 {
            for (chain, prev) in ["aa", "bb"].iter().zip(&mut prev) {
                let line = format!(
                    r#"{{"event":"handshake_ok","chain":"{chain}","seq":{seq},"prev":"{prev}"}}"#
                );
                *prev = String::from_utf8(hash(line.as_bytes()).to_vec()).unwrap();
                lines.push(line);
            }
        }
        lines
    }

    fn breaks(lines: &[String]) -> Vec<Break> {
        let mut verifier = Verifier::default();
        let checked = lines.iter().map(|line| verifier.line(line.as_bytes()));
        checked.filter_map(Result::err).collect()
    }

    #[test]
    fn an_untouched_log_is_whole() {
        let mut lines = log();
        assert_eq!(breaks(&lines), []);
        lines.insert(3, String::new());
        assert_eq!(breaks(&lines), []);
        // The end may be missing without a trace.
        lines.truncate(7);
        assert_eq!(breaks(&lines), []);
    }

    #[test]
    fn every_kind_of_damage_is_found_once() {
        let check = |damage: fn(&mut Vec<String>), expected: &[Break]| {
            let mut lines = log();
            damage(&mut lines);
            assert_eq!(breaks(&lines), expected);
        };
        let sequence = |expected, found| Break::Sequence {
            chain: "aa".into(),
            expected,
            found,
        };
        // Line 4 is the third of chain aa.
        let changed = |seq| Break::Hash {
            chain: "aa".into(),
            seq,
        };
        check(
            |lines| lines[4] = lines[4].replace("_ok", "_ko"),
            &[changed(3)],
        );
        check(
            |lines| {
                lines[4].truncate(20);
            },
            &[Break::Unreadable, sequence(2, 3)],
        );
        check(|lines| drop(lines.remove(4)), &[sequence(2, 3)]);
        check(|lines| lines.insert(5, lines[4].clone()), &[sequence(3, 2)]);
        check(
            |lines| lines.swap(2, 4),
            &[sequence(1, 2), sequence(3, 1), sequence(2, 3)],
        );
        check(
            |lines| drop(lines.remove(0)),
            &[Break::Headless {
                chain: "aa".into(),
                seq: 1,
            }],
        );
        check(
            |lines| lines.push(r#"{"chain":"cc","seq":0,"prev":"11"}"#.into()),
            &[Break::Hash {
                chain: "cc".into(),
                seq: 0,
            }],
        );
        check(
            |lines| lines[0].clear(),
            &[Break::Headless {
                chain: "aa".into(),
                seq: 1,
            }],
        );
        check(|lines| lines.push("{}".into()), &[Break::Unreadable]);
    }

    #[test]
    fn a_line_behind_a_torn_one_is_found() {
        let line = br#"{"ts":"t","detail":"{\"ts\":\"{"}"#;
        assert_eq!([torn_len(line), torn_len(b""), torn_len(b"{")], [0; 3]);
        for len in 0..line.len() {
            let both = [&line[..len], &line[..len], line].concat();
            assert_eq!(torn_len(&both), 2 * len);
        }
    }

    proptest! {
        #[test]
        fn any_changed_byte_is_found(index in 0_usize..10, at in any::<prop::sample::Index>(), bit in 0_u8..8) {
            let mut lines: Vec<Vec<u8>> = log().into_iter().map(String::into_bytes).collect();
            // No later line vouches for the last line of a chain.
            let at = at.index(lines[index].len());
            lines[index][at] ^= 1_u8 << bit;
            let mut verifier = Verifier::default();
            let broken = lines.iter().filter(|line| verifier.line(line).is_err()).count();
            prop_assert!(broken > 0);
        }

        #[test]
        fn no_input_makes_it_panic(lines in prop::collection::vec(".{0,60}", 0..20)) {
            let mut verifier = Verifier::default();
            for line in lines {
                let _ = verifier.line(line.as_bytes());
            }
        }
    }
}
