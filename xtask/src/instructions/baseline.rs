//! Counts that were accepted, one file per compiler, and what may not get worse.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use xshell::{Shell, cmd};

use super::folder;
use crate::Result;

/// A rise by more than this many percent fails, a drop by more asks for a new baseline.
const TOLERANCE_PERCENT: u64 = 10;

/// Instructions per unit that may not be exceeded, whatever the baseline says. Of a sample in a stream: liblsl 1.18 takes 3711
/// and 6215, in chunks of 64 630 and 796. Inlets have none yet: the goals are 1500, which single samples
/// do not reach, and 250 in chunks, which they reach with link-time optimisation and not here without.
/// Those of armed outlets are 20 and 5 % above what not armed ones take. Spec: resume §9. What a security log adds to
/// a handshake, both sides, is a matter of audit §3.
const BARS: [(&str, u64); 6] = [
    ("stream/outlet/1", 1500),
    ("stream/outlet/64", 200),
    ("stream/outlet/1/armed", 1505),
    ("stream/outlet/64/armed", 137),
    ("audit/off", 1_000),
    ("audit/on", 90_000),
];

/// What one unit of a case costs.
#[derive(Debug, Clone)]
pub(super) struct Count {
    pub(super) case: String,
    pub(super) instructions: u64,
}

/// The counts that were accepted for this compiler.
#[derive(Debug)]
pub(super) struct Baseline {
    compiler: String,
    file: PathBuf,
    /// None if this compiler has no baseline.
    counts: Option<BTreeMap<String, u64>>,
}

/// What a count is next to what was accepted.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    Lower,
    Higher,
    OverBar(u64),
    New,
}

impl Baseline {
    /// The one of the compiler that cargo uses here; there need not be one.
    pub(super) fn read(sh: &Shell) -> Result<Self> {
        let version = cmd!(sh, "rustc --version --verbose").quiet().read()?;
        let compiler = compiler(&version).ok_or("rustc says neither its version nor its host")?;
        let file = folder(sh).join(format!("{compiler}.tsv"));
        let counts = if sh.path_exists(&file) {
            Some(parse(&sh.read_file(&file)?)?)
        } else {
            None
        };
        Ok(Self {
            compiler,
            file,
            counts,
        })
    }

    /// Whether a count of `case` would fail.
    pub(super) fn is_exceeded_by(&self, case: &str, instructions: u64) -> bool {
        matches!(
            self.judge(case, instructions),
            Verdict::Higher | Verdict::OverBar(_)
        )
    }

    fn judge(&self, case: &str, now: u64) -> Verdict {
        let bar = BARS.iter().find(|(name, _)| *name == case);
        if let Some((_, bar)) = bar.filter(|(_, bar)| now > *bar) {
            return Verdict::OverBar(*bar);
        }
        let accepted = self.counts.as_ref().and_then(|counts| counts.get(case));
        match accepted {
            None => Verdict::New,
            Some(&before) if 100 * now > (100 + TOLERANCE_PERCENT) * before => Verdict::Higher,
            Some(&before) if 100 * now < (100 - TOLERANCE_PERCENT) * before => Verdict::Lower,
            Some(_) => Verdict::Same,
        }
    }

    /// Prints every count beside its baseline; fails if one rose too much.
    pub(super) fn compare(&self, counts: &[Count]) -> Result {
        let empty = BTreeMap::new();
        let accepted = self.counts.as_ref().unwrap_or(&empty);
        println!(
            "{:<26} {:>12} {:>12} {:>8}",
            "instructions per unit", "now", "baseline", "change"
        );
        let (mut worse, mut better, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for Count { case, instructions } in counts {
            let before = accepted.get(case);
            let number =
                |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |n| n.to_string());
            let change = before.map_or(String::new(), |&before| change(before, *instructions));
            let verdict = self.judge(case, *instructions);
            let note = match &verdict {
                Verdict::Same => String::new(),
                Verdict::Lower => "  lower".to_owned(),
                Verdict::Higher => "  HIGHER".to_owned(),
                Verdict::OverBar(bar) => format!("  OVER ITS BAR of {bar}"),
                Verdict::New => "  not compared".to_owned(),
            };
            let before = number(before.copied());
            println!("{case:<26} {instructions:>12} {before:>12} {change:>8}{note}");
            match verdict {
                Verdict::Higher | Verdict::OverBar(_) => worse.push(case.as_str()),
                Verdict::Lower => better.push(case.as_str()),
                Verdict::New => unknown.push(case.as_str()),
                Verdict::Same => {}
            }
        }
        if !better.is_empty() {
            println!(
                "lower by more than {TOLERANCE_PERCENT} %: {}. Keep it: {UPDATE}",
                better.join(", ")
            );
        }
        if !worse.is_empty() {
            return Err(format!(
                "more instructions than accepted (more than {TOLERANCE_PERCENT} % above the baseline, \
                 or over a bar): {}. If that is worth it, say why in the commit and: {UPDATE}",
                worse.join(", ")
            )
            .into());
        }
        if self.counts.is_none() {
            println!(
                "\n!!! NOT COMPARED: {} has no baseline. Only the bars were checked.\n\
                 !!! Make one where the code is known to be good, and commit it: {UPDATE}\n",
                self.compiler
            );
            return Ok(());
        }
        let gone = accepted
            .keys()
            .find(|case| !counts.iter().any(|count| count.case == **case));
        if let Some(case) = gone {
            return Err(format!("{case} is in the baseline and was not counted: {UPDATE}").into());
        }
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            return Err(format!("not in the baseline: {unknown}. Add them: {UPDATE}").into());
        }
        Ok(())
    }

    /// Accepts what was counted.
    pub(super) fn replace(&self, sh: &Shell, counts: &[Count]) -> Result {
        let valgrind = cmd!(sh, "valgrind --version").quiet().read()?;
        let mut text = format!(
            "# Instructions per unit of the hot paths, by {UPDATE}\n# {}, {valgrind}\n",
            self.compiler
        );
        for Count { case, instructions } in counts {
            let before = self.counts.as_ref().and_then(|counts| counts.get(case));
            let change = before.map_or(String::new(), |&before| change(before, *instructions));
            println!("{case:<26} {instructions:>12} {change:>8}");
            writeln!(text, "{case}\t{instructions}")?;
        }
        sh.write_file(&self.file, text)?;
        println!("written: {}", self.file.display());
        // A bar is no matter of a baseline.
        let over = counts.iter().filter(|count| {
            let verdict = self.judge(&count.case, count.instructions);
            matches!(verdict, Verdict::OverBar(_))
        });
        let over: Vec<&str> = over.map(|count| count.case.as_str()).collect();
        if over.is_empty() {
            Ok(())
        } else {
            Err(format!("over their bars: {}", over.join(", ")).into())
        }
    }
}

const UPDATE: &str = "cargo xtask instructions --update";

/// `rustc-1.95.0-x86_64-unknown-linux-gnu` from what rustc says about itself.
fn compiler(verbose_version: &str) -> Option<String> {
    let field = |name: &str| {
        let mut lines = verbose_version.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    Some(format!("rustc-{}-{}", field("release")?, field("host")?))
}

fn parse(text: &str) -> Result<BTreeMap<String, u64>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let counts = lines.map(|line| {
        let (case, count) = line.split_once('\t')?;
        Some((case.to_owned(), count.parse().ok()?))
    });
    let counts: Option<BTreeMap<String, u64>> = counts.collect();
    counts.ok_or_else(|| "a baseline has lines of name, tab and number".into())
}

/// `+12.5 %`
fn change(before: u64, now: u64) -> String {
    let per_mille = |part: u64| part * 1000 / before.max(1);
    let (sign, size) = if now >= before {
        ('+', per_mille(now - before))
    } else {
        ('-', per_mille(before - now))
    };
    format!("{sign}{}.{} %", size / 10, size % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(counts: Option<&str>) -> Baseline {
        Baseline {
            compiler: "rustc-1.0.0-tree".into(),
            file: PathBuf::new(),
            counts: counts.map(|text| parse(text).expect("good lines")),
        }
    }

    fn count(case: &str, instructions: u64) -> Count {
        Count {
            case: case.into(),
            instructions,
        }
    }

    #[test]
    fn a_rise_beyond_the_tolerance_fails_and_a_drop_does_not() {
        let accepted = baseline(Some("# a comment\npush\t1000\n"));
        let says = |instructions| accepted.compare(&[count("push", instructions)]);
        assert!(says(1100).is_ok());
        assert!(says(1101).is_err());
        assert!(says(899).is_ok());
        assert_eq!(accepted.judge("push", 900), Verdict::Same);
        assert_eq!(accepted.judge("push", 899), Verdict::Lower);
    }

    #[test]
    fn what_is_on_one_side_only_fails() {
        let accepted = baseline(Some("push\t1000\n"));
        let error = accepted.compare(&[]).expect_err("not counted");
        assert!(error.to_string().contains("was not counted"), "{error}");
        let both = [count("push", 1000), count("pull", 1)];
        let error = accepted.compare(&both).expect_err("not in the baseline");
        assert!(error.to_string().contains("pull"), "{error}");
    }

    #[test]
    fn bars_hold_without_a_baseline_and_above_a_high_one() {
        for accepted in [None, Some("stream/outlet/1\t9000\n")] {
            let accepted = baseline(accepted);
            assert!(accepted.compare(&[count("stream/outlet/1", 1501)]).is_err());
        }
        assert!(
            baseline(None)
                .compare(&[count("stream/outlet/1", 1500)])
                .is_ok()
        );
    }

    #[test]
    fn a_damaged_baseline_is_not_read_as_an_empty_one() {
        assert!(parse("push 1000\n").is_err());
        assert!(parse("push\tmany\n").is_err());
    }

    #[test]
    fn the_compiler_is_named_by_version_and_host() {
        let text = "rustc 1.95.0 (59807616e 2026-04-14)\nhost: tree\nrelease: 1.95.0\n";
        assert_eq!(compiler(text).as_deref(), Some("rustc-1.95.0-tree"));
        assert_eq!(compiler("rustc 1.95.0\n"), None);
    }
}
