//! Licences and sources of the dependencies, by the list that cargo-deny reads too. Cargo itself knows
//! both, so that the gate need not build cargo-deny, which takes longer than most steps; the campaign
//! has it read the texts as well.

use xshell::{Shell, cmd};

use crate::Result;

const LIST: &str = ".cargo/deny.toml";

const REGISTRY: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

/// What may not be depended on.
pub(super) fn check(sh: &Shell) -> Result<Vec<String>> {
    let list = sh.read_file(LIST)?;
    let tree = cmd!(
        sh,
        "cargo tree --locked --workspace --all-features --target all --prefix none --format {FORMAT}"
    )
    .quiet()
    .read()?;
    let mut problems: Vec<String> = tree
        .lines()
        .map(|line| line.trim_end_matches(" (*)"))
        .filter_map(|line| line.split_once('\t'))
        .filter(|(package, licence)| !is_allowed(&list, package, licence))
        .map(|(package, licence)| format!("{package}: `{licence}` is not in {LIST}"))
        .collect();
    problems.sort();
    problems.dedup();
    let lock = sh.read_file("Cargo.lock")?;
    let foreign = lock.lines().filter(|line| line.starts_with("source = "));
    problems.extend(
        foreign
            .filter(|line| *line != REGISTRY)
            .map(|line| format!("Cargo.lock: {line}: only crates.io is trusted")),
    );
    Ok(problems)
}

const FORMAT: &str = "{p}\t{l}";

/// Whether the list has a licence expression (SPDX) of this package.
fn is_allowed(list: &str, package: &str, licence: &str) -> bool {
    let name = package.split(' ').next().unwrap_or_default();
    let exception = format!("{{ crate = \"{name}\", allow = [");
    let is_listed = |term: &str| {
        let quoted = format!("\"{term}\"");
        list.lines().any(|line| {
            let exceptions = line
                .split_once(&exception)
                .and_then(|(_, it)| it.split(']').next());
            line.trim() == format!("{quoted},") || exceptions.is_some_and(|it| it.contains(&quoted))
        })
    };
    holds(&licence.replace('/', " OR "), &is_listed)
}

/// The value of an expression of OR, AND (which binds tighter) and brackets.
fn holds(expression: &str, is_true: &dyn Fn(&str) -> bool) -> bool {
    let expression = expression.trim();
    if let Some((left, right)) = split_outside(expression, " OR ") {
        holds(left, is_true) || holds(right, is_true)
    } else if let Some((left, right)) = split_outside(expression, " AND ") {
        holds(left, is_true) && holds(right, is_true)
    } else if let Some(inner) = expression.strip_prefix('(') {
        inner
            .strip_suffix(')')
            .is_some_and(|inner| holds(inner, is_true))
    } else {
        is_true(expression)
    }
}

/// What stands before and after the first `operator` that no brackets enclose.
fn split_outside<'a>(expression: &'a str, operator: &str) -> Option<(&'a str, &'a str)> {
    let count = |text: &str, bracket| text.matches(bracket).count();
    expression
        .match_indices(operator)
        .map(|(at, _)| (&expression[..at], &expression[at + operator.len()..]))
        .find(|(left, _)| count(left, '(') == count(left, ')'))
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn a_licence_is_allowed_if_one_reading_of_it_is_listed() {
        let list = "allow = [\n  \"MIT\",\n  \"Apache-2.0 WITH LLVM-exception\",\n  \"Unicode-3.0\",\n]\n\
                    exceptions = [{ crate = \"odd\", allow = [\"CC0-1.0\"] }]\n";
        for (package, licence, expected) in [
            ("a v1.0.0", "MIT", true),
            ("a v1.0.0", "GPL-3.0", false),
            ("a v1.0.0", "", false),
            ("a v1.0.0", "GPL-3.0 OR MIT", true),
            ("a v1.0.0", "MIT AND GPL-3.0", false),
            ("a v1.0.0", "(MIT OR Apache-2.0) AND Unicode-3.0", true),
            (
                "a v1.0.0",
                "GPL-2.0 OR Apache-2.0 WITH LLVM-exception",
                true,
            ),
            ("a v1.0.0", "GPL-3.0/MIT", true),
            ("a v1.0.0", "(MIT OR Apache-2.0) AND GPL-3.0", false),
            ("a v1.0.0", "MI", false),
            ("odd v1.0.0", "CC0-1.0", true),
            ("odder v1.0.0", "CC0-1.0", false),
        ] {
            assert_eq!(is_allowed(list, package, licence), expected, "{licence}");
        }
    }
}
