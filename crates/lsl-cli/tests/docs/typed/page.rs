//! What a page consists of, and the rules for its code blocks.
//!
//! * ```` ```console,STAGE ```` holds lines `$ command` (or `amp$ command`: on the machine `amp`), each
//!   followed by what it prints. Output that is shown is compared (`expected.rs`). A command that ends
//!   in `&` goes on until the session ends; `^C` as last line of output is typed once the lines before
//!   it have come. Further words behind the stage: `more`, the block goes on in the session of the one
//!   before it; `fresh`, on the contrary, is what happens without `more`; `like`, numbers and keys may
//!   differ from those shown; `exit=N`, the last command ends with this status.
//!   Stages: `lab`, one machine, and `two`, several (`amp$`, `rec$`), run in plain `cargo test`, on loopback;
//!   the others in `cargo xtask book`: `python` (pylsl, mne-lsl, the wheel), `c` (a compiler and the
//!   installed library), `dist` (what `cargo xtask dist` made), `debian` (a fresh Debian, as root), `ssh`
//!   (a host to deploy to), `build` (a clone of this repository), `bench` (the same, with few rounds).
//! * ```` ```LANGUAGE,file=NAME ```` is a file in the directory of the session that follows, which must
//!   use it.
//! * ```` ```sh,step ```` holds commands that tasks of xtask run; it is checked that they do.
//! * ```` ```rust ```` is a doc test at the head of `lsl-core`, word for word, which is checked.
//! * ```` ```LANGUAGE,windows ```` and `,macos` hold what only such a system can run: it is not typed, but the
//!   commands of `lsl` in it exist (`shown.rs`).
//! * ```` ```text ```` is no command.
//! * `<!-- $ command -->`, on a line of its own, is a command that readers need not see: it makes the
//!   trouble that a page explains.

use std::path::Path;

/// A page of the book, or the README.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    /// From the root of the repository.
    pub(crate) path: String,
    pub(crate) blocks: Vec<Block>,
    /// Lines outside of code blocks, with their numbers.
    pub(crate) prose: Vec<(usize, String)>,
}

/// A fenced block, or a hidden command as a block of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Block {
    pub(crate) line: usize,
    pub(crate) language: String,
    /// What stands behind the language.
    pub(crate) words: Vec<String>,
    pub(crate) text: String,
    pub(crate) is_hidden: bool,
}

/// Where console blocks run.
pub(crate) const STAGES: &[&str] = &[
    "lab", "two", "python", "c", "dist", "debian", "ssh", "build", "bench",
];

/// What may stand behind a stage.
const MANNERS: &[&str] = &["more", "fresh", "like"];

impl Page {
    pub(crate) fn read(root: &Path, path: &str) -> Self {
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        Self::parse(path, &text)
    }

    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let mut blocks = Vec::new();
        let mut prose = Vec::new();
        let mut open: Option<(usize, Block)> = None;
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let content = line.trim_start();
            let indent = line.len() - content.len();
            match (&mut open, content.strip_prefix("```")) {
                (Some(_), Some("")) => blocks.extend(open.take().map(|(_, block)| block)),
                (Some((indent, block)), _) => {
                    block.text += line.get(*indent..).unwrap_or_default();
                    block.text += "\n";
                }
                (None, Some(info)) => {
                    let mut words = info.split(',').map(|word| word.trim().to_owned());
                    let language = words.next().unwrap_or_default();
                    let words = words.collect();
                    open = Some((
                        indent,
                        Block {
                            line: number,
                            language,
                            words,
                            ..Block::default()
                        },
                    ));
                }
                (None, None) => {
                    if let Some(block) = hidden(content, number) {
                        blocks.push(block);
                    }
                    prose.push((number, line.to_owned()));
                }
            }
        }
        if let Some((_, mut block)) = open {
            block.language = "a block without end".into();
            blocks.push(block);
        }
        Self {
            path: path.to_owned(),
            blocks,
            prose,
        }
    }
}

/// A command in a comment.
fn hidden(line: &str, number: usize) -> Option<Block> {
    let comment = line.strip_prefix("<!--")?.strip_suffix("-->")?.trim();
    comment.split_once("$ ")?;
    Some(Block {
        line: number,
        language: "console".into(),
        words: vec!["more".into()],
        text: format!("{comment}\n"),
        is_hidden: true,
    })
}

impl Block {
    pub(crate) fn is_console(&self) -> bool {
        self.language == "console"
    }

    pub(crate) fn stage(&self) -> Option<&str> {
        let stage = self.words.first()?;
        STAGES.contains(&stage.as_str()).then_some(stage)
    }

    /// Whether it is for a system that has no stage.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.words == ["windows"] || self.words == ["macos"]
    }

    pub(crate) fn is(&self, word: &str) -> bool {
        self.words.iter().any(|given| given == word)
    }

    /// The value of `key=value`.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        self.words
            .iter()
            .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    /// Its commands, with what each prints.
    pub(crate) fn commands(&self) -> Vec<Command> {
        let mut commands: Vec<Command> = Vec::new();
        let mut goes_on = false;
        for (index, line) in self.text.lines().enumerate() {
            let last = commands.last_mut();
            match (prompt(line), last) {
                (Some((machine, text)), _) => commands.push(Command {
                    line: self.line + index + usize::from(!self.is_hidden),
                    machine: machine.to_owned(),
                    text: text.to_owned(),
                    output: Vec::new(),
                }),
                (None, Some(command)) if goes_on => {
                    command.text += "\n";
                    command.text += line.strip_prefix("> ").unwrap_or(line);
                }
                (None, Some(command)) => command.output.push(line.to_owned()),
                (None, None) => {}
            }
            goes_on = line.ends_with('\\');
        }
        commands
    }
}

/// A command as a page shows it.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    pub(crate) line: usize,
    /// Empty for the only one.
    pub(crate) machine: String,
    pub(crate) text: String,
    pub(crate) output: Vec<String>,
}

/// The machine and the command of `machine$ command`.
fn prompt(line: &str) -> Option<(&str, &str)> {
    let (machine, command) = line.split_once("$ ")?;
    machine
        .chars()
        .all(|c| c.is_ascii_lowercase())
        .then_some((machine, command))
}

/// Whether people would take this line for something to type.
fn looks_typed(line: &str) -> bool {
    let programs = [
        "$ ",
        "lsl ",
        "cargo ",
        "pip ",
        "python ",
        "sudo ",
        "apt ",
        "ssh ",
        "systemctl ",
        "journalctl ",
        "loginctl ",
        "python3 ",
        "git ",
        "apt-get ",
        "mkdir ",
        "tar ",
        "export ",
    ];
    programs
        .iter()
        .any(|program| line.trim().starts_with(program))
}

/// What is wrong with the blocks of a page: nothing may be left out in silence.
pub(crate) fn check(page: &Page) -> Vec<String> {
    let mut problems = Vec::new();
    let mut say = |line: usize, what: &str| problems.push(format!("{}:{line}: {what}", page.path));
    for (index, block) in page.blocks.iter().enumerate() {
        let later = &page.blocks[index + 1..];
        let wrong = match block.language.as_str() {
            _ if block.is_hidden => check_hidden(page, index),
            "console" => check_console(page, index),
            "text" if block.text.lines().any(looks_typed) => {
                Some("a command stands in a text block: make it a console block".into())
            }
            "text" if block.words.is_empty() => None,
            "rust" if block.words.is_empty() => check_rust(block),
            "sh" if block.words == ["step"] => check_steps(block),
            _ if block.is_elsewhere() => None,
            _ => match block.value("file") {
                Some(name) if block.words.len() == 1 => {
                    let is_used = later
                        .iter()
                        .any(|later| later.is_console() && later.text.contains(name));
                    (!is_used).then(|| format!("no later command uses {name}"))
                }
                _ => Some(format!(
                    "```{},{} is unknown: what runs it?",
                    block.language,
                    block.words.join(",")
                )),
            },
        };
        if let Some(what) = wrong {
            say(block.line, &what);
        }
    }
    let mut before = "";
    for (number, line) in &page.prose {
        let is_code = line.starts_with("    ") && !line.trim().is_empty();
        if is_code && before.is_empty() {
            say(*number, "an indented block has no stage: fence it");
        }
        if line.contains("<!-- $") && hidden(line.trim_start(), *number).is_none() {
            say(*number, "a hidden command needs a line of its own");
        }
        if ["~~~", "<pre"]
            .iter()
            .any(|fence| line.trim_start().starts_with(fence))
        {
            say(*number, "only ``` fences are read: use one");
        }
        before = line;
    }
    let ticks: usize = page
        .prose
        .iter()
        .map(|(_, line)| line.matches('`').count())
        .sum();
    if ticks % 2 == 1 {
        say(
            0,
            "a backtick has no partner, so commands in sentences are not found",
        );
    }
    problems
}

fn check_hidden(page: &Page, index: usize) -> Option<String> {
    let before = page.blocks[..index].iter().any(Block::is_console);
    let after = page.blocks[index..]
        .iter()
        .any(|block| block.stage().is_some());
    (!before && !after).then(|| "a hidden command without a session".into())
}

fn check_console(page: &Page, index: usize) -> Option<String> {
    let block = &page.blocks[index];
    if block.stage().is_none() {
        return Some(format!("a console block needs one of {STAGES:?}"));
    }
    let unknown = block.words[1..]
        .iter()
        .find(|word| !MANNERS.contains(&word.as_str()) && !word.starts_with("exit="));
    if let Some(word) = unknown {
        return Some(format!("`{word}` is unknown"));
    }
    if prompt(block.text.lines().next().unwrap_or_default()).is_none() {
        return Some("a console block begins with a prompt".into());
    }
    if block.is("more") {
        let before = page.blocks[..index].iter().rfind(|b| b.stage().is_some());
        if before.is_none_or(|before| before.stage() != block.stage()) {
            return Some("`more` of what? the block before has another stage".into());
        }
    }
    None
}

/// The example of `lsl-core`'s own documentation is compiled with its doc tests.
fn check_rust(block: &Block) -> Option<String> {
    let tests: String = include_str!("../../../../lsl-core/src/lib.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .flat_map(|line| [line.strip_prefix(' ').unwrap_or(line), "\n"])
        .collect();
    (!tests.contains(&block.text)).then(|| "not word for word a doc test of lsl-core".into())
}

/// The gate or the campaign really runs what it is said to run.
fn check_steps(block: &Block) -> Option<String> {
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let gate = squeezed(include_str!("../../../../../xtask/src/ci.rs"));
    let campaign = squeezed(include_str!("../../../../../xtask/src/campaign/parts.rs"));
    let tasks = concat!(
        include_str!("../../../../../xtask/src/main.rs"),
        include_str!("../../../../../xtask/src/book.rs")
    );
    block.text.lines().find_map(|line| {
        let command = line.split(" #").next().unwrap_or_default().trim();
        let is_run = match command.strip_prefix("cargo xtask ") {
            Some("ci") => true,
            Some(step) => {
                gate.contains(&format!("(\"{step}\","))
                    || campaign.contains(&format!("name:\"{step}\","))
            }
            None => tasks.contains(&format!("cmd!(sh, \"{command}\")")),
        };
        (!is_run).then(|| format!("no task of xtask runs `{command}`"))
    })
}

/// Tests of this file.
pub(crate) fn tests() -> Vec<super::SelfTest> {
    vec![("self: blocks that nobody would run are found", || {
        let cases = [
            ("```console,lab\n$ true\n```", true),
            ("```console\n$ true\n```", false),
            ("```console,lap\n$ true\n```", false),
            ("```console,lab,mroe\n$ true\n```", false),
            ("```console,lab\ntrue\n```", false),
            ("```console,lab,more\n$ true\n```", false),
            (
                "```console,lab\n$ true\n```\n```console,two,more\n$ true\n```",
                false,
            ),
            ("```\nlsl list\n```", false),
            ("```sh\nlsl list\n```", false),
            ("```text\nlsl list\n```", false),
            ("```text\n$ true\n```", false),
            ("```text\nno command\n```", true),
            ("```bat,windows\nlsl list\n```", true),
            ("```bat,window\nlsl list\n```", false),
            ("text\n\n    cargo test", false),
            ("~~~\ncargo test\n~~~", false),
            ("<pre>cargo test</pre>", false),
            ("a `command` without ` end", false),
            ("```console,lab\n$ true", false),
            ("```sh,step\ncargo test --workspace --locked\n```", true),
            ("```sh,step\ncargo test\n```", false),
            ("```sh,step\ncargo xtask interop   # comment\n```", true),
            ("```sh,step\ncargo xtask captures\n```", false),
            ("```python,file=a.py\npass\n```", false),
            (
                "```python,file=a.py\npass\n```\n```console,python\n$ python a.py\n```",
                true,
            ),
            ("<!-- $ true -->", false),
            ("```rust\nfn main() {}\n```", false),
        ];
        let wrong = cases.iter().filter(|(text, is_good)| {
            check(&Page::parse("docs/x.md", text)).is_empty() != *is_good
        });
        let wrong: Vec<String> = wrong.map(|case| format!("{case:?}")).collect();
        super::none(&wrong)
    })]
}
