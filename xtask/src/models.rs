//! The symbolic models of LSS/1 in `crates/lsl-secure/models`, proved again: Verifpal (bounded, quick)
//! and ProVerif (unbounded). Every query has the result that the design claims, and one shows the
//! attack that the design admits: a result that changes is a failure, whichever way.

use std::fmt::Write as _;

use xshell::{Shell, cmd};

use crate::Result;

const MODELS: &str = "crates/lsl-secure/models";

/// The version whose verdicts the expectations are.
pub(crate) const VERIFPAL: &str = "1.6.7";

/// Models in Verifpal, each with a check without which it must show attacks (its question mark goes), or the tool
/// proves nothing, and what that means.
const VERIFPAL_MODELS: &[(&str, &str, &str)] = &[
    (
        "secure-session.vp",
        "SIGNVERIF(pk_r, CONCAT(ctx_r, h3_i), a_sig_r)?",
        "the inlet does not check the outlet's signature",
    ),
    (
        "secure-session-relay.vp",
        "ASSERT(said_uid, HASH(pk_r))?",
        "the reader does not check whether it reached the relay's port",
    ),
];

/// Longest a single query of ProVerif took was 130 s on a busy machine.
const PROVERIF_SECONDS: u32 = 900;

/// Queries of the ProVerif models in the order of the file, each with what must come out.
const PROVERIF: &[(&str, &[(&str, Verdict)])] = &[
    (
        "secure-session.pv",
        &[
            ("R0 the honest run exists", Verdict::False),
            ("S1 inlet to outlet data is secret", Verdict::True),
            ("S2 outlet to inlet data is secret", Verdict::True),
            ("S3a master secret, inlet's view", Verdict::True),
            ("S3b master secret, outlet's view", Verdict::True),
            ("A1 the inlet authenticates the outlet", Verdict::True),
            ("A2 the outlet authenticates the inlet", Verdict::True),
            ("A3 the first record confirms the key", Verdict::True),
            ("A4a records from the inlet", Verdict::True),
            ("A4b records from the outlet", Verdict::True),
            ("A5 one secret is one session", Verdict::True),
            ("D1 no downgrade", Verdict::True),
            ("D2 no tampered offer", Verdict::True),
        ],
    ),
    (
        "secure-session-identity.pv",
        &[("nobody sees which inlet connects", Verdict::True)],
    ),
    (
        "secure-session-time.pv",
        &[
            ("R0a the honest run exists", Verdict::False),
            ("R0b a relay's t1 > t2 is accepted", Verdict::False),
            (
                "every accepted reply was sent, once, for that stream and t0",
                Verdict::True,
            ),
            ("every reply answers a probe", Verdict::True),
            ("contents are secret", Verdict::True),
            ("t1 > t2 only where a relay may answer", Verdict::True),
            ("t1 > t2 never of an honest outlet", Verdict::True),
        ],
    ),
    (
        "secure-session-relay.pv",
        &[
            ("R0a a link exists", Verdict::False),
            ("R0b a stream is read through a relay", Verdict::False),
            ("R0c a stream is read directly", Verdict::False),
            ("L1 the acceptor links only with relays", Verdict::True),
            ("L2a the dialler shows itself only to relays", Verdict::True),
            ("L2b the dialler links only with relays", Verdict::True),
            ("W1 a directory comes from a relay's port", Verdict::True),
            ("W2 who is trusted as inlet gives none", Verdict::True),
            ("W3 a trusted outlet can give one", Verdict::False),
            ("B1 an info is read under its key", Verdict::True),
            ("B2 a relay's info is read at its port", Verdict::True),
            ("B3 an advert is read at its outlet", Verdict::True),
        ],
    ),
    (
        "secure-session-policy.pv",
        &[
            ("required is never plaintext", Verdict::True),
            ("migrate, known stream, is never plaintext", Verdict::True),
            ("migrate, never seen: the documented attack", Verdict::False),
        ],
    ),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    True,
    False,
    /// ProVerif gave up.
    Unproved,
}

impl Verdict {
    fn turned(self) -> Self {
        if self == Self::True {
            Self::False
        } else {
            Self::True
        }
    }
}

/// Run both tools, as far as they are there; what was proved.
pub(crate) fn run(sh: &Shell) -> Result<String> {
    let mut problems = Vec::new();
    verifpal(sh, &mut problems)?;
    let unbounded = if proverif(sh, &mut problems)? {
        "and ProVerif"
    } else {
        "without ProVerif, which is not there"
    };
    if problems.is_empty() {
        Ok(format!(
            "every verdict as expected, in Verifpal {VERIFPAL} {unbounded}"
        ))
    } else {
        Err(format!("models: {}", problems.join("; ")).into())
    }
}

fn verifpal(sh: &Shell, problems: &mut Vec<String>) -> Result {
    let version = cmd!(sh, "verifpal --version")
        .quiet()
        .ignore_stderr()
        .read();
    if !version.is_ok_and(|version| version.split_whitespace().last() == Some(VERIFPAL)) {
        println!("models: Verifpal's: ignored");
        return crate::missing(
            &format!("Verifpal {VERIFPAL}"),
            &format!("cargo install verifpal --version {VERIFPAL} --locked --ignore-rust-version"),
        );
    }
    for (file, check, without) in VERIFPAL_MODELS {
        let path = format!("{MODELS}/{file}");
        let model = sh.read_file(&path)?;
        let queries = verifpal_queries(&model);
        let code = cmd!(sh, "verifpal verify --quiet --result-code {path}")
            .quiet()
            .read()?;
        let verdicts = code_verdicts(&code);
        if verdicts.len() != queries.len() {
            let (found, known) = (verdicts.len(), queries.len());
            return Err(format!("{file}: {found} verdicts for {known} queries: {code}").into());
        }
        for (query, verdict) in queries.iter().zip(verdicts) {
            let name = format!("Verifpal: {file}: {query}");
            report(&name, verdict, Verdict::True, problems);
        }

        // Two sessions find no more than one here, and take minutes.
        let control = replaced(&model, check, check.trim_end_matches('?'))?;
        let path = format!("{SCRATCH}/control.vp");
        sh.write_file(&path, control)?;
        let code = cmd!(
            sh,
            "verifpal verify --quiet --result-code --sessions 1 {path}"
        )
        .quiet()
        .read()?;
        let found = if code_verdicts(&code).contains(&Verdict::False) {
            Verdict::False
        } else {
            Verdict::True
        };
        let name = format!("Verifpal: {file}, negative control: {without}");
        report(&name, found, Verdict::False, problems);
    }
    Ok(())
}

/// Whether it is there.
fn proverif(sh: &Shell, problems: &mut Vec<String>) -> Result<bool> {
    // It answers `-help` with its options and status 0; there is no `--version`.
    let is_there = cmd!(sh, "proverif -help")
        .quiet()
        .ignore_stdout()
        .ignore_stderr()
        .run()
        .is_ok();
    for (file, queries) in PROVERIF {
        let model = sh.read_file(format!("{MODELS}/{file}"))?;
        let single = single_queries(&model);
        // Also without the tool: nobody may add a query that is never run.
        if single.len() != queries.len() {
            let (found, known) = (single.len(), queries.len());
            return Err(format!("{file} has {found} queries, xtask knows {known}").into());
        }
        for (index, ((query, expected), text)) in queries.iter().zip(single).enumerate() {
            let name = format!("ProVerif: {file}: {query}");
            if !is_there {
                println!("models: {name}: ignored");
                continue;
            }
            prove(sh, &name, &text, *expected, problems)?;
            let controls = controls(&model);
            for (_, check, instead) in controls.iter().filter(|control| control.0 == index) {
                let name = format!("{name}; control `{check}` => `{instead}`");
                let changed = single_queries(&replaced(&without_comments(&model), check, instead)?);
                prove(sh, &name, &changed[index], expected.turned(), problems)?;
            }
        }
    }
    if !is_there {
        println!(
            "models: ProVerif is not installed, so its queries were ignored; no registry has it, \
             its source (2.05, OCaml) is at https://proverif.inria.fr"
        );
    }
    Ok(is_there)
}

/// Runs ProVerif on a model with one query.
fn prove(
    sh: &Shell,
    name: &str,
    text: &str,
    expected: Verdict,
    problems: &mut Vec<String>,
) -> Result {
    let path = format!("{SCRATCH}/query.pv");
    sh.write_file(&path, text)?;
    let limit = PROVERIF_SECONDS.to_string();
    let output = cmd!(sh, "timeout {limit} proverif {path}")
        .quiet()
        .ignore_status()
        .read()?;
    if let Some(verdict) = proverif_verdict(&output) {
        report(name, verdict, expected, problems);
    } else {
        let end: Vec<&str> = output.lines().rev().take(3).collect();
        println!("models: {name}: NO RESULT within {limit} s");
        problems.push(format!("{name}: no result ({})", end.join(" | ")));
    }
    Ok(())
}

fn report(name: &str, found: Verdict, expected: Verdict, problems: &mut Vec<String>) {
    let text = match (found, expected) {
        (Verdict::True, Verdict::True) => "holds",
        (Verdict::False, Verdict::False) => "does not hold, as intended",
        (Verdict::True, _) => "HOLDS, which was not expected",
        (Verdict::False, _) => "DOES NOT HOLD",
        (Verdict::Unproved, _) => "CANNOT BE PROVED",
    };
    println!("models: {name}: {text}");
    if found != expected {
        problems.push(format!("{name}: {text}"));
    }
}

/// The queries of a Verifpal model, one line each.
fn verifpal_queries(model: &str) -> Vec<&str> {
    let block = model.split_once("queries[").map_or("", |(_, block)| block);
    let lines = block.lines().map(str::trim);
    lines.filter(|line| line.contains('?')).collect()
}

/// `c0a1` as verdicts: 0 where the query holds.
fn code_verdicts(code: &str) -> Vec<Verdict> {
    let digits = code.chars().filter(char::is_ascii_digit);
    digits
        .map(|digit| match digit {
            '0' => Verdict::True,
            _ => Verdict::False,
        })
        .collect()
}

/// The model with a text replaced that stands in it once.
fn replaced(model: &str, check: &str, instead: &str) -> Result<String> {
    if model.matches(check).count() != 1 {
        return Err(format!("a model does not have `{check}` once").into());
    }
    Ok(model.replacen(check, instead, 1))
}

/// The controls of a ProVerif model: a line `(* CONTROL check => instead *)` below a query says that its
/// verdict turns where the one stands instead of the other. Each with the index of its query.
fn controls(model: &str) -> Vec<(usize, &str, &str)> {
    let mut queries = 0_usize;
    let mut found = Vec::new();
    for (line, code) in model.lines().zip(without_comments(model).lines()) {
        queries += usize::from(find_statement(code, "query", 0) == Some(0));
        let control = line.strip_prefix("(* CONTROL ");
        let control = control.and_then(|control| control.strip_suffix(" *)"));
        if let Some((check, instead)) = control.and_then(|control| control.split_once(" =>")) {
            found.push((queries.saturating_sub(1), check, instead.trim_start()));
        }
    }
    found
}

/// The model once for each of its queries, with only that one; once as it is if it has none, being
/// an equivalence. All queries in one process take longer than each alone, and more memory.
fn single_queries(model: &str) -> Vec<String> {
    let code = without_comments(model);
    let mut ranges = Vec::new();
    let mut from = 0;
    while let Some(at) = find_statement(&code, "query", from) {
        // Only the end of a statement has a full stop before white space.
        let end = [".\n", ". ", ".\r"]
            .iter()
            .filter_map(|stop| code[at..].find(stop))
            .min()
            .map_or(code.len(), |stop| at + stop + 1);
        ranges.push(at..end);
        from = end;
    }
    if ranges.is_empty() {
        return vec![model.to_owned()];
    }
    let keep_only = |kept: usize| {
        let mut text = String::new();
        let mut at = 0;
        for (index, range) in ranges.iter().enumerate() {
            let _ = write!(text, "{}", &code[at..range.start]);
            if index == kept {
                let _ = write!(text, "{}", &code[range.clone()]);
            }
            at = range.end;
        }
        text + &code[at..]
    };
    (0..ranges.len()).map(keep_only).collect()
}

/// Where the next line begins that starts with `word`.
fn find_statement(code: &str, word: &str, from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let found = at + code[at..].find(word)?;
        let starts_line = code[..found].ends_with('\n') || found == 0;
        let ends_word = code[found + word.len()..].starts_with(char::is_whitespace);
        if starts_line && ends_word {
            return Some(found);
        }
        at = found + word.len();
    }
}

/// The code with every comment (they nest) replaced by blanks, line by line.
fn without_comments(model: &str) -> String {
    let mut code = String::with_capacity(model.len());
    let mut depth = 0_usize;
    let mut chars = model.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('(', Some('*')) => {
                chars.next();
                depth += 1;
            }
            ('*', Some(')')) if depth > 0 => {
                chars.next();
                depth -= 1;
            }
            ('\n', _) => code.push(c),
            _ if depth == 0 => code.push(c),
            _ => {}
        }
    }
    code
}

/// What ProVerif says: of its `RESULT` lines the first, since a false one may be followed by weaker
/// claims that are true.
fn proverif_verdict(output: &str) -> Option<Verdict> {
    let mut results = output
        .lines()
        .filter_map(|line| line.strip_prefix("RESULT "));
    let result = results.next()?.trim_end();
    if result.ends_with("is true.") {
        Some(Verdict::True)
    } else if result.ends_with("is false.") {
        Some(Verdict::False)
    } else {
        Some(Verdict::Unproved)
    }
}

/// Models made from models.
const SCRATCH: &str = "target/models";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_split_into_one_for_each_query() {
        let model = "(* query in a (* nested *) comment. *)\nfree c: channel.\n\
                     query attacker(a).\nquery x: t;\n  event(E(x)) ==> event(F(x)). (* why *)\n\
                     let queryish = 0.\nprocess 0\n";
        let single = single_queries(model);
        assert_eq!(
            single,
            [
                "\nfree c: channel.\nquery attacker(a).\n \nlet queryish = 0.\nprocess 0\n",
                "\nfree c: channel.\n\nquery x: t;\n  event(E(x)) ==> event(F(x)). \n\
                 let queryish = 0.\nprocess 0\n",
            ]
        );
        assert_eq!(single_queries("process 0"), ["process 0"]);
    }

    #[test]
    fn verdicts_are_read_from_what_the_tools_print() {
        let check = |output: &str, expected| assert_eq!(proverif_verdict(output), expected);
        check("", None);
        check("Error: Timeout", None);
        check(
            "-- Query not attacker(x[]) in process 0.\nRESULT not attacker(x[]) is true.\n",
            Some(Verdict::True),
        );
        check(
            "RESULT inj-event(A) ==> inj-event(B) is false.\n\
             RESULT (but event(A) ==> event(B) is true.)\n",
            Some(Verdict::False),
        );
        check(
            "RESULT event(A) ==> event(B) cannot be proved.\n",
            Some(Verdict::Unproved),
        );
        check(
            "RESULT Observational equivalence is true.\n",
            Some(Verdict::True),
        );
        assert_eq!(code_verdicts("c0a1"), [Verdict::True, Verdict::False]);
        let model = "principal A[\n]\nqueries[\n\tconfidentiality? x\n\tequivalence? a, b\n]\n";
        assert_eq!(
            verifpal_queries(model),
            ["confidentiality? x", "equivalence? a, b"]
        );
    }

    #[test]
    fn what_is_not_expected_is_a_problem() {
        use Verdict::{False, True, Unproved};
        for (found, expected, is_problem) in [
            (True, True, false),
            (False, False, false),
            (True, False, true),
            (False, True, true),
            (Unproved, True, true),
            (Unproved, False, true),
        ] {
            let mut problems = Vec::new();
            report("test", found, expected, &mut problems);
            assert_eq!(!problems.is_empty(), is_problem, "{found:?} {expected:?}");
        }
    }

    #[test]
    fn a_control_changes_one_check_of_one_query() {
        let model = "query a. (* one *)\n(* CONTROL if a then => *)\nquery b.\n\
                     (* CONTROL c => d *)\n(* CONTROL e => *)\n";
        let expected = [(0, "if a then", ""), (1, "c", "d"), (1, "e", "")];
        assert_eq!(controls(model), expected);
        assert_eq!(replaced("a? b", "a?", "a").unwrap(), "a b");
        assert!(replaced("a? a?", "a?", "a").is_err() && replaced("b", "a?", "a").is_err());
    }
}
