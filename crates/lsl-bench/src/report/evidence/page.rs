//! A page: its parts between marks, made from the data; the rest is written by hand and stays.

use std::fmt::Write;

use serde_json::Value;

use super::super::format;
use super::cell;
use super::published::{Bar, Page, Table};
use crate::result::Results;

/// A page as it has to be, and why it must not stand so.
pub(super) struct Made {
    pub(super) text: String,
    pub(super) problems: Vec<String>,
}

/// Finds the result of a part.
pub(super) type Find<'a> = &'a dyn Fn(&str) -> Option<&'a Results>;

/// Puts every table, and the bars, where the page has marks for them.
pub(super) fn make(page: &Page, results: Find<'_>, before: &str) -> Made {
    let mut made = Made {
        text: before.to_owned(),
        problems: Vec::new(),
    };
    let mut marks = 0;
    for table in &page.tables {
        let section = made.table(page, table, results);
        made.put(page, &table.name, &section);
        marks += 1;
    }
    if !page.bars.is_empty() {
        let section = made.bars(page, results);
        made.put(page, BARS, &section);
        marks += 1;
    }
    if before.matches("<!-- begin: ").count() != marks {
        made.say(page, "has marks of tables that nobody published");
    }
    made
}

pub(super) fn begin(name: &str) -> String {
    format!("<!-- begin: {name}, made by `cargo xtask evidence` -->")
}

pub(super) fn end(name: &str) -> String {
    format!("<!-- end: {name} -->")
}

impl Made {
    fn say(&mut self, page: &Page, what: &str) {
        self.problems
            .push(format!("evidence/{}.md {what}", page.name));
    }

    fn put(&mut self, page: &Page, name: &str, section: &str) {
        match format::put_between(&self.text, &begin(name), &end(name), section) {
            Some(text) => self.text = text,
            None => self.say(page, &format!("lacks the marks of {name:?}")),
        }
    }

    fn table(&mut self, page: &Page, table: &Table, results: Find<'_>) -> String {
        let titles: Vec<&str> = table.columns.iter().map(|it| it.name.as_str()).collect();
        let mut text = format!("| | {} |\n|---|", titles.join(" | "));
        text += &"---|".repeat(titles.len());
        text.push('\n');
        let mut is_open = false;
        let mut used: Vec<&Results> = Vec::new();
        for row in &table.rows {
            if row.theirs.len() != titles.len() {
                let what = format!("{:?}: not a value for each column", row.name);
                self.say(page, &what);
            }
            let theirs: Vec<String> = row.theirs.iter().map(plain).collect();
            let _ = writeln!(text, "| {} | {} |", row.name, theirs.join(" | "));
            is_open |= row.ours.is_empty();
            for ours in &row.ours {
                let mut shown = Vec::new();
                for column in &table.columns {
                    let pick = ours.with(column);
                    let found = pick.part.as_deref().and_then(results);
                    let cells = found.map(|found| cell::find(found, &pick));
                    if let Some(cell) = cells.unwrap_or_default().into_iter().next() {
                        used.extend(found.filter(|it| !used.iter().any(|u| is_same(u, it))));
                        shown.push(format!("**{}**", cell.text));
                    } else {
                        is_open = true;
                        shown.push("open".into());
                    }
                }
                let _ = writeln!(text, "| … ours: {} | {} |", ours.name, shown.join(" | "));
            }
        }
        for results in used {
            let _ = write!(text, "\n{}\n", measured(results));
        }
        match &table.open {
            Some(open) if is_open => {
                let _ = write!(text, "\n*Open*: {open}\n");
            }
            None if is_open => {
                let what = format!("{:?}: has neither ours nor an open line", table.name);
                self.say(page, &what);
            }
            _ => {}
        }
        text
    }

    fn bars(&mut self, page: &Page, results: Find<'_>) -> String {
        let mut text = "| bar | measured | |\n|---|---|---|\n".to_owned();
        for bar in &page.bars {
            let found = bar.ours.part.as_deref().and_then(results);
            let (measured, verdict) = match found.and_then(|it| worst(it, bar)) {
                None => ("open".to_owned(), Verdict::Open),
                Some((shown, is_met)) => {
                    let is_busy = found.is_some_and(|it| it.machine.busy.is_some());
                    (shown, Verdict::of(is_met, is_busy))
                }
            };
            if bar.claimed && verdict != Verdict::Met {
                let what = format!("claims {:?}, which is {}", bar.ours.name, verdict.text());
                self.say(page, &what);
            }
            let _ = writeln!(
                text,
                "| {} | {measured} | {} |",
                bar.ours.name,
                verdict.text()
            );
        }
        text
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Met,
    Missed,
    /// A busy machine proves nothing, either way.
    MetBusy,
    MissedBusy,
    Open,
}

impl Verdict {
    fn of(is_met: bool, is_busy: bool) -> Self {
        match (is_met, is_busy) {
            (true, false) => Self::Met,
            (false, false) => Self::Missed,
            (true, true) => Self::MetBusy,
            (false, true) => Self::MissedBusy,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Met => "**met**",
            Self::Missed => "*not met*",
            Self::MetBusy => "met on a busy machine: not claimed",
            Self::MissedBusy => "*not met*, on a busy machine",
            Self::Open => "open",
        }
    }
}

/// The worst of all cells that a bar is about, and whether it is met there.
fn worst(results: &Results, bar: &Bar) -> Option<(String, bool)> {
    let cells = cell::find(results, &bar.ours);
    let worst = cells.into_iter().reduce(|one, other| {
        let is_other = match bar.most {
            Some(_) => other.value > one.value,
            None => other.value < one.value,
        };
        if is_other { other } else { one }
    })?;
    let is_met = bar.most.is_none_or(|most| worst.value <= most)
        && bar.least.is_none_or(|least| worst.value >= least);
    Some((worst.text, is_met))
}

fn is_same(one: &Results, other: &Results) -> bool {
    std::ptr::eq(one, other)
}

/// Where and how ours was measured.
fn measured(results: &Results) -> String {
    let machine = &results.machine;
    let rounds = || results.cells.iter().map(|cell| cell.rounds.len());
    let rounds = (rounds().min().unwrap_or(0), rounds().max().unwrap_or(0));
    let busy = machine.busy.as_ref();
    let busy = busy.map(|busy| format!(" **The machine was busy** ({busy}): these are no proof."));
    format!(
        "Ours: `lsl bench {}` from {} on, {}, {} cores, {}, lsl {}; {} of each cell.{}",
        results.args.get(1..).unwrap_or_default().join(" "),
        machine.started,
        machine.cpu,
        machine.cores,
        machine.kernel,
        machine.version,
        format::rounds(rounds),
        busy.unwrap_or_default()
    )
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "–".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

const BARS: &str = "bars";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::made_up;

    fn bar(most: f64, claimed: bool) -> Page {
        let bar = serde_json::json!({"ours": {"name": "a bar", "part": "p", "metric": "latency_p50_us",
            "subject": made_up().subjects[0].name}, "most": most, "claimed": claimed});
        Page {
            name: "page".into(),
            parts: Vec::new(),
            tables: Vec::new(),
            bars: vec![serde_json::from_value(bar).unwrap()],
        }
    }

    fn problems(page: &Page, results: &Results) -> Vec<String> {
        let text = format!("{}\n{}", begin(BARS), end(BARS));
        make(page, &|_| Some(results), &text).problems
    }

    #[test]
    fn a_bar_is_claimed_only_where_it_is_met_on_a_quiet_machine() {
        let mut results = made_up();
        assert_eq!(problems(&bar(1e9, true), &results), [""; 0]);
        assert_eq!(problems(&bar(0.0, false), &results), [""; 0]);
        assert_eq!(problems(&bar(0.0, true), &results).len(), 1);
        results.machine.busy = Some("load 6.0".into());
        assert_eq!(problems(&bar(1e9, true), &results).len(), 1);
        results.cells.clear();
        assert_eq!(problems(&bar(1e9, true), &results).len(), 1);
    }

    #[test]
    fn a_table_has_ours_or_says_why_not() {
        let mut page = bar(1.0, false);
        page.bars.clear();
        let table = serde_json::json!({"name": "t", "columns": [{"name": "c"}],
            "rows": [{"name": "r", "theirs": [1.5]}]});
        page.tables = vec![serde_json::from_value(table).unwrap()];
        let text = format!("{}\n{}", begin("t"), end("t"));
        let neither = make(&page, &|_| None, &text);
        assert_eq!(neither.problems.len(), 1);
        page.tables[0].open = Some("as yet".into());
        let open = make(&page, &|_| None, &text);
        assert_eq!(open.problems, [""; 0]);
        assert!(open.text.contains("| r | 1.5 |\n\n*Open*: as yet\n"));
    }
}
