//! Commands in the middle of a sentence, and those of other systems: they are not run, but they exist, with all
//! their options.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::page::Page;

/// What is wrong with the commands that a page has and nothing types.
pub(crate) fn check(page: &Page) -> Vec<String> {
    let text: String = page
        .prose
        .iter()
        .flat_map(|(_, line)| [line, "\n"])
        .collect();
    let spans = text.split('`').skip(1).step_by(2);
    let elsewhere = page.blocks.iter().filter(|block| block.is_elsewhere());
    let lines = elsewhere.flat_map(|block| block.text.lines());
    spans
        .chain(lines)
        .filter_map(|span| {
            let span = span.split_whitespace().collect::<Vec<_>>().join(" ");
            check_span(&span).map(|wrong| format!("{}: `{span}`: {wrong}", page.path))
        })
        .collect()
}

fn check_span(span: &str) -> Option<String> {
    let span = span.strip_prefix("sudo ").unwrap_or(span);
    if let Some(task) = span.strip_prefix("cargo xtask ") {
        let task = task.split(' ').next().unwrap_or_default();
        let tasks = include_str!("../../../../../xtask/src/main.rs");
        let is_there = tasks.contains(&format!("\n  {task} "));
        return (!is_there).then(|| "`cargo xtask --help` does not know it".into());
    }
    let mut words = span.strip_prefix("lsl ")?.split(' ').peekable();
    let mut path: Vec<String> = Vec::new();
    loop {
        let commands = subcommands(&help(&path));
        match words.peek() {
            Some(word) if commands.iter().any(|command| command == word) => {
                path.extend(words.next().map(str::to_owned));
            }
            Some(word) if !commands.is_empty() && word.chars().all(|c| c.is_ascii_lowercase()) => {
                return Some(format!("there is no `{word}`"));
            }
            _ => break,
        }
    }
    let help = help(&path);
    let known = |option: &str| {
        let is_part = |c: char| c.is_alphanumeric() || c == '-';
        help.split(|c| !is_part(c)).any(|word| word == option)
    };
    words
        .take_while(|word| *word != "--")
        .filter_map(|word| word.split('=').next())
        .filter(|word| word.starts_with('-'))
        .find(|option| !known(option))
        .map(|option| format!("`lsl {} --help` has no {option}", path.join(" ")))
}

/// What `lsl PATH --help` prints when nobody's terminal has a say in how wide.
pub(crate) fn help(path: &[String]) -> String {
    static KNOWN: Mutex<Option<HashMap<String, String>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_with(HashMap::new);
    let text = known.entry(path.join(" ")).or_insert_with(|| {
        let output = Command::new(env!("CARGO_BIN_EXE_lsl"))
            .args(path)
            .arg("--help")
            .env_remove("COLUMNS")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert!(output.status.success(), "lsl {path:?} --help: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    });
    text.clone()
}

/// The names below `Commands:`, without `help`.
pub(crate) fn subcommands(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}
