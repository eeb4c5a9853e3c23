//! Reads results and puts runs of the same thing together: same benchmark, machine, subjects and cells
//! become more rounds. Anything else stays apart, because medians over different machines mean nothing.

use std::fs;
use std::path::{Path, PathBuf};

use lsl_cli::failure::{Failure, Outcome};
use serde_json::Value;

use crate::result::{Cell, Results, Round, SCHEMA};

/// Runs that belong together.
#[derive(Debug)]
pub(super) struct Group {
    /// All rounds; machine and command line are those of the first run.
    pub(super) results: Results,
    /// When each run started, and its command line.
    pub(super) runs: Vec<Run>,
}

/// One run of a group.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) started: String,
    pub(super) args: Vec<String>,
    pub(super) load: [f64; 3],
    pub(super) governor: Option<String>,
}

impl Run {
    pub(super) fn of(results: &Results) -> Self {
        Self {
            started: results.machine.started.clone(),
            args: results.args.clone(),
            load: results.machine.load,
            governor: results.machine.governor.clone(),
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
    let mut seen = Vec::new();
    files.retain(|file| match fs::canonicalize(file) {
        Ok(real) if seen.contains(&real) => false,
        Ok(real) => {
            seen.push(real);
            true
        }
        // Reading it will say what is wrong.
        Err(_) => true,
    });
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

/// Reads one file.
pub(super) fn read(path: &Path) -> Outcome<Results> {
    let name = path.display().to_string();
    let text = fs::read(path).map_err(|error| Failure::from(error).context(&name))?;
    parse(&text).map_err(|failure| failure.context(&name))
}

/// Reads the text of one file, and says what is wrong with it.
pub(super) fn parse(text: &[u8]) -> Outcome<Results> {
    // The schema first: a newer form may not fit ours at all.
    let value: Value = serde_json::from_slice(text)
        .map_err(|error| Failure::Runtime(format!("not JSON: {error}")))?;
    match value.get("schema").and_then(Value::as_str) {
        Some(SCHEMA) => {}
        Some(other) => {
            return Err(Failure::Runtime(format!(
                "its schema is {other:?}, this lsl reads {SCHEMA:?} only; use the lsl that wrote it"
            )));
        }
        None => {
            let text = "has no \"schema\": not written by `lsl bench`";
            return Err(Failure::Runtime(text.into()));
        }
    }
    let results: Results = serde_json::from_value(value)
        .map_err(|error| Failure::Runtime(format!("damaged results: {error}")))?;
    check(&results)?;
    Ok(results)
}

/// Whether the indices in `results` fit together.
pub(super) fn check(results: &Results) -> Outcome {
    let subjects = results.subjects.len();
    if results.baseline >= subjects {
        let text = format!(
            "damaged results: baseline {} of {subjects} subjects",
            results.baseline
        );
        return Err(Failure::Runtime(text));
    }
    for (index, subject) in results.subjects.iter().enumerate() {
        let earlier = results.subjects.iter().take(index);
        if earlier.into_iter().any(|other| other.name == subject.name) {
            let text = format!(
                "damaged results: two subjects are called {:?}",
                subject.name
            );
            return Err(Failure::Runtime(text));
        }
    }
    Ok(())
}

/// Makes `name` what ratios are taken to.
pub(super) fn set_baseline(results: &mut Results, name: &str) -> Outcome {
    let place = results
        .subjects
        .iter()
        .position(|subject| subject.name == name);
    if let Some(place) = place {
        results.baseline = place;
        return Ok(());
    }
    let names: Vec<String> = results
        .subjects
        .iter()
        .map(|subject| format!("{:?}", subject.name))
        .collect();
    Err(Failure::Usage(format!(
        "--baseline: no subject {name:?}; there are {}",
        names.join(", ")
    )))
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
        match groups
            .iter_mut()
            .find(|group| belong_together(&group.results, &results))
        {
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
    let subjects = |results: &Results| {
        let key = |subject: &crate::result::Subject| {
            (subject.name.clone(), subject.detail.clone(), subject.secure)
        };
        let mut keys: Vec<_> = results.subjects.iter().map(key).collect();
        keys.sort();
        keys
    };
    let same_cells = one.cells.len() == other.cells.len()
        && one
            .cells
            .iter()
            .all(|cell| twin(cell, &other.cells).is_some());
    let machine = |results: &Results| {
        let machine = &results.machine;
        (
            machine.host.clone(),
            machine.cpu.clone(),
            machine.cores,
            machine.version.clone(),
        )
    };
    one.benchmark == other.benchmark
        && machine(one) == machine(other)
        && subjects(one) == subjects(other)
        && same_cells
}

fn twin<'a>(cell: &Cell, cells: &'a [Cell]) -> Option<&'a Cell> {
    cells
        .iter()
        .find(|other| other.parameters == cell.parameters)
}

/// Adds the rounds of `more`, whose subjects may stand in another order.
fn add(results: &mut Results, more: &Results) {
    let place = |name: &str| {
        more.subjects
            .iter()
            .position(|subject| subject.name == name)
    };
    let order: Vec<Option<usize>> = results
        .subjects
        .iter()
        .map(|subject| place(&subject.name))
        .collect();
    for cell in &mut results.cells {
        let Some(other) = twin(cell, &more.cells) else {
            continue;
        };
        cell.rounds.extend(other.rounds.iter().map(|round| {
            Round {
                measurements: order
                    .iter()
                    .map(|place| place.and_then(|place| round.measurements.get(place)))
                    .map(|measurement| measurement.cloned().unwrap_or_default())
                    .collect(),
            }
        }));
    }
}

/// How far below a directory results are looked for.
const MOST_LEVELS: usize = 4;
