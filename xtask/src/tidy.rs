//! House rules that a compiler does not know. Each rule collects what breaks it; all are run, so
//! that one visit shows everything.

mod citations;
mod licences;
mod proved;

use std::collections::BTreeSet;

use xshell::{Shell, cmd};

use crate::Result;

/// All that `lsl-proto` may depend on: none of it reaches sockets, threads or clocks.
const MAY_PROTO_USE: &[&str] = &["lsl-secure", "sha2", "thiserror", "tracing"];

/// What only knows bytes and facts, but for a part that has sockets, and what the rest of it may not name.
const PURE: &[(&str, &str, &[&str])] = &[
    ("crates/lsl-doctor/src/", "collect", NOT_IN_DOCTOR),
    ("crates/lsl-relay/src/", "shell", NOT_IN_RELAY),
];

const NOT_IN_DOCTOR: &[&str] = &[
    "lsl_core",
    "socket2",
    "std::env",
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::process",
    "std::thread",
    "std::time",
];

const NOT_IN_RELAY: &[&str] = &[
    "lsl_core",
    "lsl_platform",
    "lsl_secure::Security",
    "std::env",
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::sync::Condvar",
    "std::sync::Mutex",
    "std::sync::mpsc",
    "std::thread",
    "std::time",
    "tokio",
];

/// Modules of a crate: each may import those before it. In `lsl-proto` codecs come first, machines last.
const MODULES: &[(&str, &str)] = &[
    (
        "crates/lsl-cli/src/",
        "failure interrupt ui files globals signal streams commands main",
    ),
    (
        "crates/lsl-doctor/src/",
        "observe meter proc redact code firewall waves remedy table report pair collect",
    ),
    (
        "crates/lsl-proto/src/",
        "error text types limits xml query info config value wire transport describe security clock inlet \
         outlet discovery",
    ),
    (
        "crates/lsl-record/src/",
        "error space event template signing locked output place queue writer marks strangers live drain \
         pending halt losses shared stream selection resume recorder rcs",
    ),
    (
        "crates/lsl-relay/src/",
        "http id document mux hello link rules engine config book clock history shell",
    ),
];

/// Distinct crates that `lsl-core` may bring to a user.
const DEPENDENCY_BUDGET: usize = 80;

/// Beyond this a file holds more than one concept.
const MAX_LINES: usize = 800;

const MAX_ARCHITECTURE_LINES: usize = 150;

const ARCHITECTURE: &str = "crates/ARCHITECTURE.md";

/// What may lie in the root; a newcomer reads this list first.
const ROOT: &[&str] = &[
    ".cargo",
    ".ci",
    ".clippy.toml",
    ".gitattributes",
    ".gitignore",
    ".rustfmt.toml",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "benches",
    "crates",
    "docs",
    "examples",
    "xtask",
];

/// The audited places where `unsafe` may appear, one item at a time.
const MAY_BE_UNSAFE: &[&str] = &["lsl-platform", "lsl-ffi", "lsl-dl"];

/// Directories of somebody's machine; a path there works nowhere else.
const MACHINE_DIRS: &[&str] = &["work", "tmp", "home", "root"];

/// Files that may name such a directory, with what they may say: none of it is a path of ours.
const MACHINE_PATHS_ALLOWED: &[(&str, &str)] = &[];

/// How a rule looks at the workspace; the answer is what breaks it.
enum Check {
    /// By reading the tracked files.
    Files(fn(&[Source]) -> Vec<String>),
    /// By asking cargo or the disk.
    Shell(fn(&Shell) -> Result<Vec<String>>),
}

const RULES: &[(&str, Check)] = &[
    ("purity of lsl-proto", Check::Shell(purity)),
    ("purity of lsl-relay, lsl-doctor", Check::Files(part_purity)),
    ("order of imports", Check::Files(imports)),
    ("one build", Check::Files(one_build)),
    ("dependency budget", Check::Shell(dependency_budget)),
    ("licences of dependencies", Check::Shell(licences::check)),
    ("file length", Check::Files(file_length)),
    ("machine paths", Check::Files(machine_paths)),
    ("forbid unsafe", Check::Files(forbid_unsafe)),
    ("licences", Check::Files(licence_heads)),
    ("unfinished code", Check::Files(unfinished)),
    ("root listing", Check::Files(root_listing)),
    (
        "golden vectors",
        Check::Shell(|sh| Ok(problem_of(crate::vectors::check(sh)))),
    ),
    ("campaign", Check::Shell(crate::campaign::check)),
    ("architecture page", Check::Files(architecture)),
    ("citations of docs/spec", Check::Files(citations::check)),
    ("what is proved", Check::Files(proved::check)),
];

/// A failed task as a broken rule.
fn problem_of(result: Result) -> Vec<String> {
    result
        .err()
        .map(|error| error.to_string())
        .into_iter()
        .collect()
}

/// A tracked text file.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn has_extension(&self, extensions: &[&str]) -> bool {
        self.path
            .rsplit_once('.')
            .is_some_and(|(_, extension)| extensions.contains(&extension))
    }

    /// Lines with their number, from 1, as an editor counts.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }
}

/// Apply every rule to the tracked files.
pub(crate) fn run(sh: &Shell) -> Result {
    let sources = tracked(sh)?;
    let mut broken = 0;
    for (name, rule) in RULES {
        let problems = match rule {
            Check::Files(check) => check(&sources),
            Check::Shell(check) => check(sh)?,
        };
        println!(
            "tidy: {name}: {}",
            if problems.is_empty() { "ok" } else { "BROKEN" }
        );
        for problem in &problems {
            println!("    {problem}");
        }
        broken += problems.len();
    }
    if broken == 0 {
        Ok(())
    } else {
        Err(format!("tidy: {broken} problems").into())
    }
}

/// Tracked files and new ones git does not ignore, so that a rule speaks before the commit.
/// Binary files are left out.
fn tracked(sh: &Shell) -> Result<Vec<Source>> {
    let listing = cmd!(sh, "git ls-files --cached --others --exclude-standard")
        .quiet()
        .read()?;
    let mut sources = Vec::new();
    for path in listing.lines().filter(|path| sh.path_exists(path)) {
        if let Ok(text) = String::from_utf8(sh.read_binary_file(path)?) {
            sources.push(Source {
                path: path.to_owned(),
                text,
            });
        }
    }
    Ok(sources)
}

/// The protocol cannot do I/O even by accident; what of std it may not use says its `.clippy.toml`.
fn purity(sh: &Shell) -> Result<Vec<String>> {
    let crates = dependencies(sh, &["-p", "lsl-proto", "--depth", "1"])?;
    let is_allowed = |name: &String| name == "lsl-proto" || MAY_PROTO_USE.contains(&name.as_str());
    Ok(crates
        .iter()
        .filter(|name| !is_allowed(name))
        .map(|name| format!("lsl-proto depends on {name}"))
        .collect())
}

/// Machines and rules cannot do I/O either; one part of their crates may.
fn part_purity(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources {
        let forbidden = PURE.iter().find_map(|(folder, part, forbidden)| {
            let file = source.path.strip_prefix(folder)?;
            (!file.starts_with(part)).then_some(forbidden)
        });
        let Some(forbidden) = forbidden else {
            continue;
        };
        for (number, line) in source.lines() {
            if forbidden.iter().any(|name| line.contains(name)) {
                problems.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    problems
}

/// No circle between the modules of a crate, no codec that knows a machine, no command that knows another.
fn imports(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources {
        let found = MODULES
            .iter()
            .find_map(|(folder, modules)| Some((source.path.strip_prefix(folder)?, modules)));
        let Some((file, modules)) = found else {
            continue;
        };
        let place = |module: &str| modules.split(' ').position(|known| known == module);
        let module = file.split(['/', '.']).next().unwrap_or(file);
        if module == "lib" {
            continue;
        }
        let Some(own) = place(module) else {
            problems.push(format!("{}: which modules may it import?", source.path));
            continue;
        };
        for (number, line) in source.lines() {
            for path in line.split("crate::").skip(1) {
                let mut words = path.split(|c: char| !c.is_alphanumeric() && c != '_');
                let other = words.next().unwrap_or_default();
                let is_later = place(other).is_some_and(|other| other > own);
                let is_command = module == "commands" && other == module;
                if is_later || is_command && words.nth(1) != file.split(['/', '.']).nth(1) {
                    problems.push(format!("{}:{number}: {module} knows {other}", source.path));
                }
            }
        }
    }
    problems
}

/// One build of protocol and driver: a feature would double what is linted, tested and reviewed.
fn one_build(sources: &[Source]) -> Vec<String> {
    let dirs = ["crates/lsl-core/src/", "crates/lsl-proto/src/"];
    let is_bound = |source: &&Source| dirs.iter().any(|dir| source.path.starts_with(dir));
    let mut problems = Vec::new();
    for source in sources.iter().filter(is_bound) {
        for (number, line) in source.lines() {
            if line.contains("feature =") {
                problems.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    problems
}

fn dependency_budget(sh: &Shell) -> Result<Vec<String>> {
    let mut crates = dependencies(sh, &["-p", "lsl-core"])?;
    crates.retain(|name| !name.starts_with("lsl-"));
    let count = crates.len();
    println!("tidy: lsl-core brings {count} of at most {DEPENDENCY_BUDGET} crates");
    if count <= DEPENDENCY_BUDGET {
        return Ok(Vec::new());
    }
    let names: Vec<_> = crates.into_iter().collect();
    let names = names.join(" ");
    Ok(vec![format!("{count} crates: {names}")])
}

/// Names of a crate and of those that come with it, as `cargo tree` says.
fn dependencies(sh: &Shell, options: &[&str]) -> Result<BTreeSet<String>> {
    let tree = cmd!(
        sh,
        "cargo tree --locked -e normal --prefix none {options...}"
    )
    .quiet()
    .read()?;
    let names = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    Ok(names.map(str::to_owned).collect())
}

fn file_length(sources: &[Source]) -> Vec<String> {
    let long = sources
        .iter()
        .filter(|source| source.has_extension(&["rs", "py", "sh", "c", "h"]))
        .map(|source| (source, source.text.lines().count()))
        .filter(|(_, lines)| *lines >= MAX_LINES);
    long.map(|(source, lines)| format!("{}: {lines} lines; split it by concept", source.path))
        .collect()
}

fn machine_paths(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources.iter().filter(|source| source.path != "Cargo.lock") {
        for (number, line) in source.lines() {
            let is_allowed = MACHINE_PATHS_ALLOWED
                .iter()
                .any(|(path, words)| source.path == *path && line.contains(words));
            if !is_allowed && MACHINE_DIRS.iter().any(|dir| names_path_below(line, dir)) {
                problems.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    problems
}

/// Whether the line holds `/dir/` at the start of a path, not in the middle of a longer one.
fn names_path_below(line: &str, dir: &str) -> bool {
    line.match_indices(&format!("/{dir}/")).any(|(at, _)| {
        !line[..at].ends_with(|before: char| before.is_alphanumeric() || "_-.~}".contains(before))
    })
}

fn forbid_unsafe(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources {
        let is_crate_root = [
            "src/lib.rs",
            "src/main.rs",
            "tests/interop/main.rs",
            "tests/it/main.rs",
        ]
        .iter()
        .any(|end| source.path.ends_with(end));
        let is_exempt = MAY_BE_UNSAFE
            .iter()
            .any(|name| source.path.starts_with(&format!("crates/{name}/")));
        if is_crate_root && !is_exempt && !source.text.contains("#![forbid(unsafe_code)]") {
            problems.push(format!("{}: no #![forbid(unsafe_code)]", source.path));
        }
    }
    problems
}

fn licence_heads(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources
        .iter()
        .filter(|source| source.path.ends_with("/Cargo.toml"))
    {
        // A fuzz package stands outside the workspace and is never published.
        let inherits = source
            .text
            .lines()
            .any(|line| line.trim() == "license.workspace = true");
        if !inherits && !source.path.contains("/fuzz/") {
            problems.push(format!("{}: no `license.workspace = true`", source.path));
        }
    }
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        if !sources.iter().any(|source| source.path == name) {
            problems.push(format!("{name} is missing"));
        }
    }
    problems
}

/// Nothing is left for later without a word: a test is ignored for a stated reason, code is written.
fn unfinished(sources: &[Source]) -> Vec<String> {
    // Written in halves, or this file would find itself.
    let needles = [
        concat!("#[ig", "nore]"),
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
    ];
    let mut problems = Vec::new();
    for source in sources
        .iter()
        .filter(|source| source.has_extension(&["rs"]))
    {
        for (number, line) in source.lines() {
            if needles.iter().any(|needle| line.contains(needle)) {
                problems.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    problems
}

fn root_listing(sources: &[Source]) -> Vec<String> {
    let names: BTreeSet<&str> = sources
        .iter()
        .filter_map(|source| source.path.split('/').next())
        .collect();
    names
        .into_iter()
        .filter(|name| !ROOT.contains(name))
        .map(|name| format!("{name} does not belong in the root"))
        .collect()
}

/// Keeps the page readable and complete: it names every crate, and every file says what it is for itself.
fn architecture(sources: &[Source]) -> Vec<String> {
    let Some(page) = sources.iter().find(|source| source.path == ARCHITECTURE) else {
        return vec![format!("{ARCHITECTURE} is missing")];
    };
    let mut problems = Vec::new();
    let lines = page.text.lines().count();
    if lines > MAX_ARCHITECTURE_LINES {
        problems.push(format!("{lines} lines, {MAX_ARCHITECTURE_LINES} allowed"));
    }
    for source in sources
        .iter()
        .filter(|source| source.has_extension(&["rs"]))
    {
        let parts: Vec<&str> = source.path.split('/').collect();
        let ["crates", name, "src", .., file] = parts.as_slice() else {
            continue;
        };
        if *file == "lib.rs" && !page.text.contains(name) {
            problems.push(format!("{name} is not mentioned"));
        }
        if !source.path.contains("tests") && !source.text.starts_with("//!") {
            problems.push(format!("{}: begin with what it is for: //!", source.path));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_paths_are_found_only_at_the_start_of_a_path() {
        let slash = '/';
        for (line, expected) in [
            (format!("see {slash}tmp{slash}x"), true),
            (format!("\"{slash}home{slash}me\""), true),
            (format!("{slash}tmp{slash}x"), true),
            (format!("target{slash}tmp{slash}x"), false),
            (format!("..{slash}work{slash}x"), false),
            (format!("{slash}tmpfs{slash}x"), false),
        ] {
            let found = MACHINE_DIRS.iter().any(|dir| names_path_below(&line, dir));
            assert_eq!(found, expected, "{line}");
        }
    }
}
