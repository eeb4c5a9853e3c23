//! Reads results and puts runs of the same thing together: same benchmark, machine, subjects and cells
//! become more rounds. Anything else stays apart, because medians over different machines mean nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lsl_cli::failure::{Failure, Outcome};
use serde_json::Value;

use super::GRID;
use crate::result::{Cell, Machine, Results, Round, SCHEMA, Subject};

/// Runs that one report puts together.
#[derive(Debug)]
pub(super) struct Group {
    /// All rounds; machine and command line are those of the first run.
    pub(super) results: Results,
    pub(super) runs: Vec<Run>,
}

/// Machine, time and command of one run of a group.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) machine: Machine,
    pub(super) args: Vec<String>,
}

impl Run {
    pub(super) fn of(results: &Results) -> Self {
        Self {
            machine: results.machine.clone(),
            args: results.args.clone(),
        }
    }
}

/// All files that `paths` mean: files themselves, and `results*.json` in and below directories. Each
/// once, whatever ways lead to it.
pub(super) fn find(paths: &[PathBuf]) -> Outcome<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = files.len();
            search(path, MOST_LEVELS, &mut files)?;
            if files.len() == before {
                let text = format!("no results*.json in or below {}", path.display());
                return Err(Failure::NotFound(text));
            }
        } else {
            files.push(path.clone());
        }
    }
    let mut seen = BTreeSet::new();
    // A file without a real path fails when it is read.
    files.retain(|file| fs::canonicalize(file).map_or(true, |real| seen.insert(real)));
    Ok(files)
}

fn search(directory: &Path, levels: usize, files: &mut Vec<PathBuf>) -> Outcome {
    let context = |error| Failure::from(error).context(&directory.display().to_string());
    let mut entries = fs::read_dir(directory)
        .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
        .map_err(context)?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if levels > 0 {
                search(&path, levels - 1, files)?;
            }
        } else if name.starts_with("results") && path.extension().is_some_and(|end| end == "json") {
            files.push(path);
        }
    }
    Ok(())
}

/// Reads one file; failures name its path.
pub(crate) fn read(path: &Path) -> Outcome<Results> {
    let name = path.display().to_string();
    let text = fs::read(path).map_err(|error| Failure::from(error).context(&name))?;
    parse(&text).map_err(|failure| failure.context(&name))
}

/// Reads the text of one file, and describes its fault.
pub(super) fn parse(text: &[u8]) -> Outcome<Results> {
    // The schema first: a newer form may not fit ours at all.
    let value: Value = serde_json::from_slice(text)
        .map_err(|error| Failure::Runtime(format!("not JSON: {error}")))?;
    let problem = match value.get("schema").and_then(Value::as_str) {
        Some(SCHEMA) => {
            let results = serde_json::from_value(value)
                .map_err(|error| Failure::Runtime(format!("damaged results: {error}")))?;
            check(&results)?;
            return Ok(results);
        }
        Some(other) => format!(
            "its schema is {other:?}, this lsl reads {SCHEMA:?} only; use the lsl that wrote it"
        ),
        None => "has no \"schema\": not written by `lsl bench`".into(),
    };
    Err(Failure::Runtime(problem))
}

/// Whether the indices in `results` fit together.
pub(super) fn check(results: &Results) -> Outcome {
    let subjects = results.subjects.len();
    let mut names = BTreeSet::new();
    let twice = results
        .subjects
        .iter()
        .find(|subject| !names.insert(&subject.name));
    let problem = if results.baseline >= subjects {
        format!("baseline {} of {subjects} subjects", results.baseline)
    } else if let Some(subject) = twice {
        format!("two subjects are called {:?}", subject.name)
    } else {
        return Ok(());
    };
    Err(Failure::Runtime(format!("damaged results: {problem}")))
}

/// Makes `name` what ratios are taken to.
pub(super) fn set_baseline(results: &mut Results, name: &str) -> Outcome {
    let names = || results.subjects.iter().map(|subject| &subject.name);
    let Some(place) = names().position(|known| known == name) else {
        let names: Vec<String> = names().map(|name| format!("{name:?}")).collect();
        let names = names.join(", ");
        return Err(Failure::Usage(format!(
            "--baseline: no subject {name:?}; there are {names}"
        )));
    };
    results.baseline = place;
    Ok(())
}

/// Puts together what belongs together, in the order of first appearance. Also gives how many runs
/// were left out because they are copies: rounds counted twice would look like evidence.
pub(super) fn merge(runs: Vec<Results>) -> (Vec<Group>, usize) {
    let mut groups: Vec<Group> = Vec::new();
    let mut known: Vec<String> = Vec::new();
    let mut copies = 0;
    for results in runs {
        let text = serde_json::to_string(&results).unwrap_or_default();
        if known.contains(&text) {
            copies += 1;
            continue;
        }
        known.push(text);
        let run = Run::of(&results);
        let mut same = groups.iter_mut();
        match same.find(|group| belong_together(&group.results, &results)) {
            Some(group) => {
                add(&mut group.results, &results);
                group.runs.push(run);
            }
            None => groups.push(Group {
                results,
                runs: vec![run],
            }),
        }
    }
    (groups, copies)
}

fn belong_together(one: &Results, other: &Results) -> bool {
    // Whose page has a column for each way, whenever it was measured.
    let is_grid = one.benchmark == GRID;
    let key = |results: &Results| {
        let machine = results.machine.clone();
        let mut subjects = results.subjects.clone();
        subjects.sort();
        if is_grid {
            subjects.clear();
        }
        let texts = [
            results.benchmark.clone(),
            machine.host,
            machine.cpu,
            machine.version,
        ];
        let cells = if is_grid { 0 } else { results.cells.len() };
        (texts, machine.cores, subjects, cells)
    };
    let mut cells = one.cells.iter();
    let is_same = key(one) == key(other);
    is_same && (is_grid || cells.all(|cell| twin(cell, &other.cells).is_some()))
}

fn twin<'a>(cell: &Cell, cells: &'a [Cell]) -> Option<&'a Cell> {
    cells
        .iter()
        .find(|other| other.parameters == cell.parameters)
}

/// Adds the rounds of `more`, whose subjects may stand in another order; also subjects and cells that only it has.
/// What a grid has of a way stays that of one run, measured beside the others, whatever later runs measured too.
fn add(results: &mut Results, more: &Results) {
    let known = results.subjects.len();
    for subject in &more.subjects {
        if !results.subjects.iter().any(|it| it.name == subject.name) {
            results.subjects.push(subject.clone());
        }
    }
    for cell in &more.cells {
        if twin(cell, &results.cells).is_none() {
            results.cells.push(Cell {
                parameters: cell.parameters.clone(),
                rounds: Vec::new(),
            });
        }
    }
    let place = |subject: &Subject| {
        let mut subjects = more.subjects.iter();
        subjects.position(|other| other.name == subject.name)
    };
    let order: Vec<Option<usize>> = results.subjects.iter().map(place).collect();
    for cell in &mut results.cells {
        let Some(other) = twin(cell, &more.cells) else {
            continue;
        };
        let is_kept = results.benchmark == GRID && !cell.rounds.is_empty();
        cell.rounds.extend(other.rounds.iter().map(|round| {
            let turn = |index: usize, place: &Option<usize>| {
                let place = place.filter(|_| !(is_kept && index < known));
                round.measurements.get(place?).cloned()
            };
            let measurements = order.iter().enumerate();
            let measurements =
                measurements.map(|(index, place)| turn(index, place).unwrap_or_default());
            Round {
                measurements: measurements.collect(),
            }
        }));
    }
}

/// Depth below a directory at which results are looked for.
const MOST_LEVELS: usize = 4;
