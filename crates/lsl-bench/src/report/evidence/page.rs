//! A page: its parts between marks, made from the data; the rest is written by hand and stays.

use std::fmt::Write;

use serde_json::Value;

use super::super::format;
use super::published::{Bar, Figure, Page, Table, on};
use super::{Stored, cell, figure};
use crate::result::Results;

/// A page as it has to be, and why it must not stand so.
pub(super) struct Made {
    pub(super) text: String,
    pub(super) problems: Vec<String>,
    /// Pictures by their names below `images/`.
    pub(super) pictures: Vec<(String, String)>,
}

/// Puts every table with its figure, and the bars, where the page has marks for them.
pub(super) fn make(page: &Page, stored: &Stored, before: &str) -> Made {
    let mut made = Made {
        text: before.to_owned(),
        problems: Vec::new(),
        pictures: Vec::new(),
    };
    let mut marks = 0;
    for table in &page.tables {
        let mut section = made.table(page, table, stored);
        if let Some(figure) = &table.figure {
            section += &made.figure(page, table, figure, stored);
        }
        made.put(page, &table.name, &section);
        marks += 1;
    }
    if !page.bars.is_empty() {
        let section = made.bars(page, stored);
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

    fn figure(&mut self, page: &Page, table: &Table, figure: &Figure, stored: &Stored) -> String {
        match figure::draw(page, table, figure, stored) {
            Ok(Some(svg)) => {
                let file = format!("{}.svg", figure.file);
                let text = format!(
                    "\n![{}: the curves of the table above](../images/{file})\n",
                    figure.title
                );
                self.pictures.push((file, svg));
                return text;
            }
            Ok(None) => {}
            Err(failure) => self.say(page, &failure.to_string()),
        }
        String::new()
    }

    fn table(&mut self, page: &Page, table: &Table, stored: &Stored) -> String {
        let titles: Vec<&str> = table.columns.iter().map(|it| it.name.as_str()).collect();
        let mut text = format!("| | {} |\n|---|", titles.join(" | "));
        text += &"---|".repeat(titles.len());
        text.push('\n');
        let mut is_open = false;
        let machines = stored.machines(page);
        let mut used: Vec<(&str, &Results)> = Vec::new();
        for row in &table.rows {
            if row.theirs.len() != titles.len() {
                let what = format!("{:?}: not a value for each column", row.name);
                self.say(page, &what);
            }
            let theirs: Vec<String> = row.theirs.iter().map(plain).collect();
            let _ = writeln!(text, "| {} | {} |", row.name, theirs.join(" | "));
            is_open |= row.ours.is_empty();
            for (ours, machine) in pairs(&row.ours, &machines) {
                let mut shown = Vec::new();
                for column in &table.columns {
                    let pick = ours.with(column);
                    let part = pick.part.as_deref();
                    let found = part.and_then(|part| stored.of(page, part, machine));
                    let cells = found.map(|found| cell::find(found, &pick));
                    let cell = cells.unwrap_or_default().into_iter().next();
                    if let (Some(cell), Some(found)) = (cell, found) {
                        if !used.iter().any(|(_, it)| std::ptr::eq(*it, found)) {
                            used.push((machine, found));
                        }
                        shown.push(format!("**{}**", cell.text));
                    } else {
                        shown.push("open".into());
                    }
                }
                let is_lacking = shown.iter().any(|text| text == "open");
                if machine.is_empty() {
                    is_open |= is_lacking;
                } else if shown.iter().all(|text| text == "open") {
                    continue;
                }
                let label = ours.label(machine);
                let _ = writeln!(text, "| … {label} | {} |", shown.join(" | "));
            }
        }
        for (machine, results) in used {
            let _ = write!(text, "\n{}\n", measured(machine, results));
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

    fn bars(&mut self, page: &Page, stored: &Stored) -> String {
        let mut text = "| bar | measured | |\n|---|---|---|\n".to_owned();
        for (bar, machine) in pairs(&page.bars, &stored.machines(page)) {
            let part = bar.ours.part.as_deref();
            let found = part.and_then(|part| stored.of(page, part, machine));
            let (measured, verdict) = match found.and_then(|it| worst(it, bar)) {
                None if !machine.is_empty() => continue,
                None => ("open".to_owned(), Verdict::Open),
                Some((shown, is_met)) => {
                    let is_busy = found.is_some_and(|it| it.machine.busy.is_some());
                    (shown, Verdict::of(is_met, is_busy))
                }
            };
            if bar.claimed && machine.is_empty() && verdict != Verdict::Met {
                let what = format!("claims {:?}, which is {}", bar.ours.name, verdict.text());
                self.say(page, &what);
            }
            let _ = writeln!(
                text,
                "| {} | {measured} | {} |",
                on(&bar.ours.name, machine),
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

/// Each with every machine.
fn pairs<'a, T>(all: &'a [T], machines: &'a [&'a str]) -> impl Iterator<Item = (&'a T, &'a str)> {
    let on_each = move |it| machines.iter().map(move |machine| (it, *machine));
    all.iter().flat_map(on_each)
}

/// Where and how ours was measured.
fn measured(machine_name: &str, results: &Results) -> String {
    let machine = &results.machine;
    let rounds = || results.cells.iter().map(|cell| cell.rounds.len());
    let rounds = (rounds().min().unwrap_or(0), rounds().max().unwrap_or(0));
    let busy = machine.busy.as_ref();
    let busy = busy.map(|busy| format!(" **The machine was busy** ({busy}): these are no proof."));
    format!(
        "{}: `lsl bench {}` from {} on, {}, {} cores, {}, lsl {}; {} of each cell.{}",
        on("Ours", machine_name),
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

    fn stored(machine: &str, results: &Results) -> Stored {
        let key = ["page", "p", machine].map(str::to_owned);
        Stored([(key, results.clone())].into())
    }

    fn problems(page: &Page, results: &Results) -> Vec<String> {
        let text = format!("{}\n{}", begin(BARS), end(BARS));
        make(page, &stored("", results), &text).problems
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
        let neither = make(&page, &Stored::default(), &text);
        assert_eq!(neither.problems.len(), 1);
        page.tables[0].open = Some("as yet".into());
        let open = make(&page, &Stored::default(), &text);
        assert_eq!(open.problems, [""; 0]);
        assert!(open.text.contains("| r | 1.5 |\n\n*Open*: as yet\n"));
    }

    #[test]
    fn other_machines_stand_beside_and_claim_nothing() {
        let mut results = made_up();
        let mut page = bar(0.0, true);
        let subject = &results.subjects[0].name;
        let column =
            |it: u32| serde_json::json!({"name": it.to_string(), "where": {"channels": it}});
        let columns = [8, 64].map(column);
        let table = serde_json::json!({"name": "t", "open": "as yet", "columns": columns,
            "rows": [{"name": "r", "theirs": [1.5, 2.5],
                "ours": [{"name": "o", "part": "p", "metric": "latency_p50_us", "subject": subject}]}],
            "figure": {"file": "f", "title": "a figure", "along": "channels", "unit": "µs"}});
        page.tables = vec![serde_json::from_value(table).unwrap()];
        let marks = ["t", BARS].map(|name| format!("{}\n{}\n", begin(name), end(name)));
        let beside = make(&page, &stored("pi5", &results), &marks.concat());
        for part in [
            "| … ours: o | open | open |\n| … ours: o, on pi5 | **",
            "\nOurs, on pi5: `lsl bench ",
            "| a bar | open | open |\n| a bar, on pi5 | ",
        ] {
            assert!(beside.text.contains(part), "{part} in {}", beside.text);
        }
        // That of our own machine is claimed, and not there; what another one says is not drawn.
        assert_eq!((beside.problems.len(), beside.pictures.len()), (1, 0));
        results.cells.truncate(1);
        let own = make(&page, &stored("", &results), &marks.concat());
        assert!(own.text.contains("(../images/f.svg)"), "{}", own.text);
        let (file, svg) = &own.pictures[0];
        assert_eq!(file, "f.svg");
        for part in ["a figure", "\nr\n", "\nours: o\n"] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
    }
}
