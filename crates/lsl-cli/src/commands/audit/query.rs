//! `lsl audit query`: connections and what became of them, picked by time and content.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;
use serde::Serializer as _;

use super::context::{Id, Place};
use super::filter::{Conditions, Fields, Times, may_hold};
use super::flame;
use super::lines::Lines;
use super::program::{Program, Programs};
use super::tree::{Stacks, Tree};
use super::{Log, count};
use crate::failure::{Failure, Outcome};
use crate::ui::notice::note;
use crate::ui::text::printable_json;

#[derive(Debug, Args)]
pub(super) struct Query {
    #[command(flatten)]
    picked: Picked,

    /// Print one JSON array, in the shape of crypto-auditing's queries
    #[arg(long, conflicts_with_all = ["folded", "svg"])]
    json: bool,

    /// Print folded stacks with microseconds, of which flame graphs are made
    #[arg(long)]
    folded: bool,

    /// Draw a flame graph into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Count events in stacks instead of microseconds
    #[arg(long)]
    count: bool,

    /// Tell stacks apart by the value of this key: peer_name, pk::curve, ...
    #[arg(long, value_name = "KEY")]
    by: Option<String>,
}

/// Lines of logs that are meant.
#[derive(Debug, Default, Args)]
pub(super) struct Picked {
    /// Logs to read, each with its rotated files; by default the audit_file of the configuration
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,

    #[command(flatten)]
    times: Times,

    #[command(flatten)]
    conditions: Conditions,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  lsl audit query --since 2h --where peer_name=amp1
  lsl audit query --where 'took_us>5000'
  lsl audit query --where name=pk::sign --where 'took_us>500'
  lsl audit query --where event~refused --where peer_addr~10.0.0. --json
  lsl audit query --since today --svg handshakes.svg --by peer_name

A connection is shown whole, from its handshake to its end, if one of its events is meant.";

impl Query {
    pub(super) fn run(&self) -> Outcome {
        let trees = self.picked.trees()?;
        let stacks = Stacks {
            counts: self.count,
            by: self.by.clone(),
        };
        if let Some(path) = &self.svg {
            let picture = flame::draw(&fold(trees.iter(), &stacks), !self.count);
            std::fs::write(path, picture)
                .map_err(|it| Failure::from(it).context(&path.display().to_string()))?;
        }
        let mut out = BufWriter::new(io::stdout().lock());
        if self.json {
            write_json(trees.iter(), &mut out)?;
        } else if self.folded {
            write_folded(trees.iter(), &stacks, &mut out)?;
        } else if self.svg.is_none() {
            trees.iter().try_for_each(|tree| tree.write(&mut out))?;
        }
        Ok(out.flush()?)
    }
}

/// Writes trees as one array.
pub(super) fn write_json(trees: impl Iterator<Item = Tree>, out: &mut impl Write) -> Outcome {
    let mut trees = trees.map(|tree| tree.to_json());
    if io::stdout().is_terminal() {
        let text = serde_json::to_string_pretty(&trees.collect::<Vec<_>>())?;
        out.write_all(printable_json(&text).as_bytes())?;
    } else {
        serde_json::Serializer::pretty(&mut *out).collect_seq(&mut trees)?;
    }
    Ok(writeln!(out)?)
}

pub(super) fn write_folded(
    trees: impl Iterator<Item = Tree>,
    stacks: &Stacks,
    out: &mut impl Write,
) -> Outcome {
    for (path, weight) in fold(trees, stacks) {
        writeln!(out, "{path} {weight}")?;
    }
    Ok(())
}

/// Sums up the stacks of trees.
pub(super) fn fold(trees: impl Iterator<Item = Tree>, stacks: &Stacks) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for tree in trees {
        tree.fold(stacks, |path, weight| {
            let sum: &mut u64 = sums.entry(path).or_default();
            *sum = sum.saturating_add(weight);
        });
    }
    sums
}

/// Trees of the lines that are meant, in the order of their first lines. Each is parsed when it is wanted: parsed, lines
/// take eight times as much memory.
#[derive(Debug, Default)]
pub(super) struct Trees(Vec<Unparsed>);

#[derive(Debug)]
struct Unparsed {
    lines: Vec<Box<[u8]>>,
    program: Rc<Program>,
}

impl Trees {
    pub(super) fn iter(&self) -> impl Iterator<Item = Tree> {
        self.0.iter().map(|tree| {
            let lines = tree.lines.iter();
            // Each was read before.
            let lines = lines.filter_map(|line| serde_json::from_slice(line).ok());
            Tree::new(lines.collect(), Rc::clone(&tree.program))
        })
    }
}

impl Picked {
    /// Finds the files of the logs.
    pub(super) fn find(&self) -> Outcome<Vec<PathBuf>> {
        let mut files = Vec::new();
        if self.files.is_empty() {
            files = Log::of(None)?.files;
        }
        for path in &self.files {
            files.extend(Log::find(path, false)?.files);
        }
        Ok(files)
    }

    /// Returns whether a line is meant itself.
    pub(super) fn means(&self, fields: &Fields) -> bool {
        self.times.hold(fields) && self.conditions.hold(fields)
    }

    /// Hands the lines that are meant to `take`, with those of their trees and with who wrote each. Reads
    /// twice, so that memory holds no more than names of trees and programs.
    pub(super) fn each(
        &self,
        mut take: impl FnMut(Place<'_>, Fields, Rc<Program>) -> Outcome,
    ) -> Outcome {
        self.each_with_line(|_, place, fields, program| take(place, fields, program))
    }

    fn each_with_line(
        &self,
        mut take: impl FnMut(&[u8], Place<'_>, Fields, Rc<Program>) -> Outcome,
    ) -> Outcome {
        let files = self.find()?;
        let is_for_all = self.times.is_empty() && self.conditions.is_empty();
        let mut wanted: HashSet<Id> = HashSet::new();
        if !is_for_all {
            each_line(&files, |line| {
                if !may_hold(line, &self.times, &self.conditions) {
                    return Ok(true);
                }
                let Ok(fields) = serde_json::from_slice(line) else {
                    return Ok(false);
                };
                if self.means(&fields) {
                    wanted.insert(Place::of_fields(&fields).tree());
                }
                Ok(true)
            })?;
        }
        let mut programs = Programs::default();
        let unreadable = each_line(&files, |line| {
            let Some(place) = Place::of(line) else {
                return Ok(false);
            };
            let is_wanted = is_for_all || wanted.contains(&place.tree());
            if !is_wanted && !place.begins_chain() {
                return Ok(true);
            }
            let Ok(fields) = serde_json::from_slice(line) else {
                return Ok(false);
            };
            programs.learn(&place, &fields);
            if is_wanted {
                let program = programs.of(&place);
                take(line, place, fields, program)?;
            }
            Ok(true)
        })?;
        if unreadable > 0 {
            let lines = count(unreadable, "line");
            note(format_args!(
                "{lines} cannot be read; `lsl audit verify` says which."
            ));
        }
        Ok(())
    }

    /// Returns the trees of the lines that are meant.
    pub(super) fn trees(&self) -> Outcome<Trees> {
        let (mut trees, mut places) = (Vec::new(), HashMap::new());
        self.each_with_line(|line, place, _, program| {
            let place = *places.entry(place.tree()).or_insert_with(|| {
                let lines = Vec::with_capacity(1);
                trees.push(Unparsed { lines, program });
                trees.len() - 1
            });
            if let Some(tree) = trees.get_mut(place) {
                tree.lines.push(line.into());
            }
            Ok(())
        })?;
        Ok(Trees(trees))
    }
}

/// Hands the lines of all files to `take`, which says whether it can read them; returns the number of those that
/// it cannot.
pub(super) fn each_line(
    files: &[PathBuf],
    mut take: impl FnMut(&[u8]) -> Outcome<bool>,
) -> Outcome<u64> {
    let mut unreadable = 0;
    for file in files {
        let mut lines = Lines::open(file)?;
        while let Some(line) = lines.next()? {
            unreadable += u64::from(!line.is_empty() && !take(line)?);
        }
    }
    Ok(unreadable)
}
