//! `lsl audit query`: connections and what became of them, picked by time and content.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;

use super::filter::{Conditions, Fields, Times};
use super::lines::Lines;
use super::tree::{Tree, tree_of};
use super::{Log, count};
use crate::failure::Outcome;
use crate::ui::notice::note;
use crate::ui::text::printable_json;

#[derive(Debug, Args)]
pub(super) struct Query {
    /// Logs to read, each with its rotated files; by default the audit_file of the configuration
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    times: Times,

    #[command(flatten)]
    conditions: Conditions,

    /// Print one JSON array, in the shape of crypto-auditing's queries
    #[arg(long, conflicts_with = "folded")]
    json: bool,

    /// Print folded stacks with microseconds, of which flame graphs are made
    #[arg(long)]
    folded: bool,

    /// Count events in folded stacks instead of microseconds
    #[arg(long, requires = "folded")]
    count: bool,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  lsl audit query --since 2h --where peer_name=amp1
  lsl audit query --where 'took_us>5000'
  lsl audit query --where event~refused --where peer_addr~10.0.0. --json
  lsl audit query --since today --folded > handshakes.folded

A connection is shown whole, from its handshake to its end, if one of its events is meant.";

impl Query {
    pub(super) fn run(&self) -> Outcome {
        let mut files = Vec::new();
        if self.files.is_empty() {
            files = Log::of(None)?.files;
        }
        for path in &self.files {
            files.extend(Log::find(path, false)?.files);
        }
        // Twice through the files, so that memory holds no more than what is shown.
        let is_for_all = self.times.is_empty() && self.conditions.is_empty();
        let mut wanted = HashSet::new();
        if !is_for_all {
            each_line(&files, |fields| {
                if self.times.hold(&fields) && self.conditions.hold(&fields) {
                    wanted.insert(tree_of(&fields));
                }
            })?;
        }
        let (mut trees, mut places) = (Vec::new(), HashMap::new());
        let unreadable = each_line(&files, |fields| {
            let id = tree_of(&fields);
            if is_for_all || wanted.contains(&id) {
                let place = *places.entry(id.clone()).or_insert_with(|| {
                    trees.push(Tree::new(id));
                    trees.len() - 1
                });
                if let Some(tree) = trees.get_mut(place) {
                    Tree::push(tree, fields);
                }
            }
        })?;
        self.show(&trees)?;
        if unreadable > 0 {
            let lines = count(unreadable, "line");
            note(format_args!(
                "{lines} cannot be read; `lsl audit verify` says which."
            ));
        }
        Ok(())
    }

    fn show(&self, trees: &[Tree]) -> Outcome {
        let mut out = BufWriter::new(io::stdout().lock());
        if self.json {
            let trees: Vec<_> = trees.iter().map(Tree::to_json).collect();
            if io::stdout().is_terminal() {
                let text = serde_json::to_string_pretty(&trees)?;
                out.write_all(printable_json(&text).as_bytes())?;
            } else {
                serde_json::to_writer_pretty(&mut out, &trees)?;
            }
            writeln!(out)?;
        } else if self.folded {
            trees
                .iter()
                .try_for_each(|tree| tree.fold(self.count, &mut out))?;
        } else {
            trees.iter().try_for_each(|tree| tree.write(&mut out))?;
        }
        Ok(out.flush()?)
    }
}

/// Hands the lines of all files to `take`; returns the number of those that cannot be read.
fn each_line(files: &[PathBuf], mut take: impl FnMut(Fields)) -> Outcome<u64> {
    let mut unreadable = 0;
    for file in files {
        let mut lines = Lines::open(file)?;
        while let Some(line) = lines.next()? {
            match serde_json::from_slice::<Fields>(line) {
                Ok(fields) if fields.contains_key("event") => take(fields),
                _ => unreadable += u64::from(!line.is_empty()),
            }
        }
    }
    Ok(unreadable)
}
