//! `lsl_cpp.h` compiles without a warning, and offers all that liblsl's does: one program, which uses everything, is
//! compiled with both, and names everything that is in liblsl's. That one is of 1.13; what is newer is behind `NEWEST`.

use std::collections::BTreeSet;
use std::path::Path;

use xshell::{Shell, cmd};

use super::{CPP_HEADER, INCLUDE};
use crate::Result;

/// Uses everything there is.
const PROGRAM: &str = "crates/lsl-ffi/tests/package/surface.cpp";

const OBJECT: &str = "target/abi/surface.o";

/// The oldest, and one that forbids what older ones allow.
const STANDARDS: &[&str] = &["c++11", "c++20"];

const OPTIONS: &[&str] = &[
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wshadow",
    "-Wconversion",
    "-Wsign-conversion",
    "-Wold-style-cast",
    "-Werror",
    "-DNEWEST",
];

/// What a compiler for C++ has against our header.
pub(super) fn compile(sh: &Shell, (cxx, of_cxx): (&str, &[&str])) -> Vec<String> {
    let mut problems = Vec::new();
    for standard in STANDARDS {
        let standard = format!("-std={standard}");
        let run = cmd!(
            sh,
            "{cxx} {of_cxx...} {standard} {OPTIONS...} -c -I {INCLUDE} {PROGRAM} -o {OBJECT}"
        );
        problems.extend(
            run.run()
                .err()
                .map(|error| format!("{CPP_HEADER}: {error}")),
        );
    }
    problems
}

/// What liblsl's header, in the folder `include`, lacks of what the program uses, or the program of what
/// that header offers.
pub(super) fn against_liblsl(sh: &Shell, include: &Path) -> Result<Vec<String>> {
    let run = cmd!(
        sh,
        "c++ -std=c++11 -w -c -I {include} {PROGRAM} -o {OBJECT}"
    );
    let error = run.run().err();
    let mut problems: Vec<String> = error
        .map(|error| format!("liblsl's {CPP_HEADER}: {error}"))
        .into_iter()
        .collect();
    let header = include.join(CPP_HEADER);
    // Without comments, and without what it includes.
    let text = cmd!(sh, "c++ -fpreprocessed -dD -E -P {header}")
        .quiet()
        .read()?;
    let program = sh.read_file(PROGRAM)?;
    let used: BTreeSet<&str> = words(&program).collect();
    let offered = offered(&text);
    println!("abi: {} names are in liblsl's {CPP_HEADER}", offered.len());
    let unused = offered.difference(&used);
    problems.extend(unused.map(|name| format!("{PROGRAM} does not use {name}, which liblsl has")));
    Ok(problems)
}

/// Of liblsl's header, what is private or a variable made from arguments.
const NOT_OFFERED: &[&str] = &[
    "check_numchan",
    "lengths",
    "pointers",
    "result",
    "result_lengths",
    "result_strings",
];

/// Classes, enumerations, their values, and functions: names before a bracket and behind a type.
fn offered(header: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for (at, _) in header.match_indices('(') {
        let before = &header[..at];
        let name = words(before)
            .next_back()
            .filter(|name| before.ends_with(name));
        let Some(name) = name else { continue };
        let before = before[..at - name.len()].trim_end();
        let is_type = words(before).next_back().is_some_and(|word| {
            before.ends_with(['>', '*', '&']) && !before.ends_with("->")
                || before.ends_with(word) && !["return", "throw", "else"].contains(&word)
        });
        if is_type && !NOT_OFFERED.contains(&name) {
            names.insert(name);
        }
    }
    let all: Vec<&str> = words(header).collect();
    for pair in all.windows(2) {
        if let ["class" | "enum", name] = pair
            && name.len() > 1
        {
            names.insert(name);
        }
    }
    let values = all
        .iter()
        .filter(|word| ["cf_", "post_"].iter().any(|start| word.starts_with(start)));
    names.extend(values);
    names
}

fn words(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offered_is_what_is_declared() {
        let header = "class aa { aa(int x): obj(x) {} template<class T> void b(T t) { if (t) c(t.d(), t->l()); }\n\
                      std::string *e() { return f(1); } h g() const; void check_numchan(); };\n\
                      enum ii { cf_j = 1 }; const double k = 1.0;";
        let wanted = ["aa", "b", "cf_j", "e", "g", "ii"];
        assert_eq!(offered(header), BTreeSet::from(wanted));
    }
}
