//! Idioms of programs in the wild (`tests/c/idioms.c`): the same program says the same with our
//! library as with liblsl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::stage::{Outcome, Stage, libraries_from};
use crate::{Need, Test};

/// The releases to compare with, and which variable names the library.
const RELEASES: [(&str, &str); 2] = [
    ("1.18.0", "LSL_HOSTS_LIBLSL"),
    ("1.17.7", "LSL_HOSTS_LIBLSL_1_17_7"),
];

/// The idioms, and why one is not compared with 1.17.7.
const IDIOMS: &[(&str, Option<&str>)] = &[
    ("returned desc", None),
    ("edited desc of a temporary", None),
    ("copy from a temporary", None),
    ("desc of the info of a stream", None),
    ("node of a deleted result", None),
    ("desc of a replaced info", None),
    ("removed node", None),
    ("loop that removes", None),
    ("removed desc", None),
    ("replaced node", None),
    ("fields of a destroyed info", None),
    ("copies outlive their originals", None),
    ("desc edited after the outlet", None),
    ("identity before and after the outlet", None),
    ("infos destroyed first", None),
    ("outlet destroyed first", None),
    ("outlet destroyed without recovery", UNNOTICED),
    ("pull without open", None),
    ("closed and opened again", None),
    ("closed while it opens", UNENDED),
    ("closed while it is pulled", UNENDED),
    ("asked before open", None),
    ("outlet made again while read", UNNOTICED),
    ("outlet made again after its end", UNNOTICED),
    ("doubles into integers", None),
    ("texts into numbers", None),
    ("numbers into texts", None),
    ("wrong lengths", None),
    ("zero time-outs", None),
    ("huge time-outs", None),
    ("negative time-outs", None),
];

const UNNOTICED: Option<&str> = Some("1.17.7 often misses the end of an outlet of its own process");

const UNENDED: Option<&str> =
    Some("1.17.7 ends no open, and receives nothing after a close that lasted");

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![Test {
        name: "idioms/list".to_owned(),
        needs: vec![Need::Tool("cc")],
        run: Box::new(list),
    }];
    for (release, variable) in RELEASES {
        for &(idiom, differs) in IDIOMS {
            if release == "1.17.7"
                && let Some(reason) = differs
            {
                println!("hosts: not compared with {release}: {idiom}: {reason}");
                continue;
            }
            tests.push(Test {
                name: format!("idioms/{idiom}/{release}"),
                needs: vec![Need::Tool("cc"), Need::Variable(variable)],
                run: Box::new(move |stage| compare(stage, idiom, release, variable)),
            });
        }
    }
    tests
}

/// The program has the idioms that are played, and no others.
fn list(stage: &Stage) -> Outcome {
    let said = Stage::run(Command::new(program(stage)?), &stage.folder("idioms-list")?)?;
    let has: Vec<&str> = said.lines().collect();
    let played: Vec<&str> = IDIOMS.iter().map(|(idiom, _)| *idiom).collect();
    if has == played {
        return Ok(());
    }
    Err(format!("the program has {has:#?}, played are {played:#?}"))
}

fn compare(stage: &Stage, idiom: &str, release: &str, variable: &str) -> Outcome {
    let program = program(stage)?;
    let folder = stage.folder(&format!("idioms-{idiom}-{release}"))?;
    let theirs = folder.join("theirs");
    fs::create_dir(&theirs).map_err(|error| error.to_string())?;
    fs::copy(Stage::path(variable)?, theirs.join("liblsl.so.2"))
        .map_err(|error| error.to_string())?;
    let expected = transcript(&program, idiom, &theirs, &folder)?;
    let found = transcript(&program, idiom, &stage.prefix()?.join("lib"), &folder)?;
    if found == expected {
        return Ok(());
    }
    Err(format!(
        "with liblsl {release}:\n{expected}\nwith ours:\n{found}"
    ))
}

/// What the idiom says; liblsl's log and ours are something else.
fn transcript(program: &Path, idiom: &str, libraries: &Path, folder: &Path) -> Outcome<String> {
    let mut command = Command::new(program);
    command.arg(idiom);
    libraries_from(&mut command, libraries);
    let said = Stage::run(command, folder)?;
    if said.contains("panicked at") {
        return Err(said);
    }
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("> ")).collect();
    match lines.last() {
        Some(&"> end") => Ok(lines.join("\n")),
        _ => Err(format!("it does not come to its end:\n{said}")),
    }
}

/// The program, compiled once.
fn program(stage: &Stage) -> Outcome<PathBuf> {
    static PROGRAM: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut program = PROGRAM.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = &*program {
        return Ok(program.clone());
    }
    let folder = stage.folder("idioms")?;
    let made = stage.compile("cc", "c/idioms.c", &["-std=gnu11"], &folder)?;
    Ok(program.insert(made).clone())
}
