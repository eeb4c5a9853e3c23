//! The page on which results of `lsl bench grid` stand beside the figures that River's performance page has: its part
//! between two marks, and its pictures. Spec: relay §15.

mod figures;

use std::fmt::Write;

use lsl_cli::failure::Outcome;
use serde_json::Value;

use super::axis::Axis;
use super::charts::{self, Curve, Style};
use super::format;
use crate::result::Results;
use crate::stats;
use figures::{BARS, BATCHES, Bar, EVENTS, MAX, READERS, SIZES, STREAM, STREAM_BATCHES};

/// What is shown of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Events,
    Stream,
    Write,
    Read,
}

/// A cell of the grid, and its figure on River's page.
#[derive(Debug, Clone, Copy)]
struct Place {
    part: Part,
    readers: u32,
    bytes: u32,
    batch: u32,
    river: Option<f64>,
}

/// What a page shows of the results, and how often they are not slower than River.
struct Comparison<'a> {
    results: &'a Results,
    text: String,
    equal: usize,
    slower: Vec<String>,
    absent: usize,
}

/// A part of a page, and its pictures by their names.
pub(super) struct Section {
    pub(super) text: String,
    pub(super) pictures: Vec<(String, String)>,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Stream => "stream",
            Self::Write | Self::Read => "max",
        }
    }

    /// Its metric, and by what that is divided to have its unit.
    fn metric(self) -> (&'static str, f64) {
        match self {
            Self::Events | Self::Stream => ("latency_p95_us", 1e3),
            Self::Write => ("write_mib_per_s", 1.0),
            Self::Read => ("read_mib_per_s", 1.0),
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Events | Self::Stream => "p95, ms",
            Self::Write => "written, MiB/s",
            Self::Read => "read, MiB/s",
        }
    }

    fn is_as_good(self, value: f64, other: f64) -> bool {
        match self {
            Self::Events | Self::Stream => value <= other,
            Self::Write | Self::Read => value >= other,
        }
    }
}

impl Place {
    fn event(readers: u32, bytes: u32) -> Option<Self> {
        let row = READERS.iter().position(|it| *it == readers)?;
        let column = SIZES.iter().position(|it| *it == bytes)?;
        Some(Self {
            part: Part::Events,
            readers,
            bytes,
            batch: 1,
            river: EVENTS.get(row).and_then(|row| row.get(column)).copied(),
        })
    }

    fn batch(part: Part, batch: u32) -> Option<Self> {
        let (batches, bytes): (&[u32], _) = match part {
            Part::Stream => (&STREAM_BATCHES, 768),
            _ => (&BATCHES, 256),
        };
        let place = batches.iter().position(|it| *it == batch)?;
        let (write, read) = MAX.get(place).copied().unwrap_or_default();
        let river = match part {
            Part::Stream => *STREAM.get(place)?,
            Part::Write => write,
            _ => read,
        };
        Some(Self {
            part,
            readers: 1,
            bytes,
            batch,
            river: Some(river),
        })
    }

    /// Returns the median of a subject in the unit of the page, and whether it kept up.
    fn measured(&self, results: &Results, subject: usize) -> Option<(f64, bool)> {
        let cell = results.cells.iter().find(|cell| {
            let is = |name: &str, wanted: u32| {
                let found = cell.parameters.get(name).and_then(Value::as_u64);
                found.is_none_or(|found| found == u64::from(wanted))
            };
            let part = cell.parameters.get("part").and_then(Value::as_str);
            part == Some(self.part.name())
                && is("readers", self.readers)
                && is("bytes", self.bytes)
                && is("batch", self.batch)
        })?;
        let (metric, divisor) = self.part.metric();
        let value = stats::median(&cell.values(subject, metric))? / divisor;
        let kept = stats::median(&cell.values(subject, "rate_kept"));
        Some((value, kept.is_none_or(|kept| kept >= LEAST_KEPT)))
    }

    fn title(&self) -> String {
        match self.part {
            Part::Events => format!("{} B to {}", self.bytes, readers(self.readers)),
            Part::Stream => format!("32 kHz x 768 B, batch {}", self.batch),
            Part::Write => format!("written, batch {}", self.batch),
            Part::Read => format!("read, batch {}", self.batch),
        }
    }
}

/// Makes the part of the page, and its pictures.
pub(super) fn section(results: &Results) -> Outcome<Section> {
    let mut page = Comparison {
        results,
        text: String::new(),
        equal: 0,
        slower: Vec::new(),
        absent: 0,
    };
    let events = |readers: &u32| {
        let readers = *readers;
        SIZES
            .iter()
            .filter_map(move |bytes| Place::event(readers, *bytes))
    };
    let mut events: Vec<Place> = READERS.iter().flat_map(events).collect();
    let is_measured = |place: &Place| {
        let mut subjects = 0..results.subjects.len();
        subjects.any(|subject| place.measured(results, subject).is_some())
    };
    events.retain(|place| place.river.is_some() || is_measured(place));
    let batches = |part, batches: &[u32]| -> Vec<Place> {
        let places = batches
            .iter()
            .filter_map(|batch| Place::batch(part, *batch));
        places.collect()
    };
    let stream = batches(Part::Stream, &STREAM_BATCHES);
    let written = batches(Part::Write, &BATCHES);
    let read = batches(Part::Read, &BATCHES);

    page.heading("Events of 1 kHz: p95 of the slowest reader, ms");
    page.table(&["readers", "bytes"], &events);
    page.pictures(&["river-events-8.svg", "river-events-128.svg"]);
    page.heading("32 kHz x 768 B in batches: p95, ms");
    page.table(&["batch"], &stream);
    page.pictures(&["river-stream.svg"]);
    page.heading("31 MiB in samples of 256 B, written: MiB/s");
    page.table(&["batch"], &written);
    page.pictures(&["river-write.svg"]);
    page.heading("… and read then: MiB/s");
    page.table(&["batch"], &read);
    page.pictures(&["river-read.svg"]);
    page.bars();

    let mut pictures = Vec::new();
    for bytes in [8, 128] {
        let title = format!("events of {bytes} B a millisecond: p95 of the slowest reader");
        let of_size: Vec<Place> = events
            .iter()
            .copied()
            .filter(|it| it.bytes == bytes)
            .collect();
        let svg = picture(results, &title, "readers", &of_size)?;
        pictures.push((format!("river-events-{bytes}.svg"), svg));
    }
    for (name, title, places) in [
        ("stream", "32 kHz x 768 B: p95", &stream),
        ("write", "31 MiB in samples of 256 B, written", &written),
        ("read", "31 MiB in samples of 256 B, read then", &read),
    ] {
        let svg = picture(results, title, "batch", places)?;
        pictures.push((format!("river-{name}.svg"), svg));
    }
    Ok(Section {
        text: page.head() + &page.text,
        pictures,
    })
}

/// Puts the part into a page that has the marks; without them it is the page.
pub(super) fn put(section: &str, page: Option<&str>) -> String {
    page.and_then(|page| format::put_between(page, BEGIN, END, section))
        .unwrap_or_else(|| format!("# Beside River\n\n{BEGIN}\n\n{section}\n{END}\n"))
}

impl Comparison<'_> {
    /// What was measured where, and what came of it.
    fn head(&self) -> String {
        let machine = &self.results.machine;
        let rounds = || self.results.cells.iter().map(|cell| cell.rounds.len());
        let rounds = (rounds().min().unwrap_or(0), rounds().max().unwrap_or(0));
        let subjects = 0..self.results.subjects.len();
        let loads = subjects.flat_map(|subject| {
            let cells = self.results.cells.iter();
            cells.flat_map(move |cell| cell.values(subject, "load"))
        });
        let loads: Vec<f64> = loads.collect();
        let load = |share| stats::quantile(&sorted(&loads), share).unwrap_or(f64::NAN);
        let mut text = format!(
            "Measured from {} on: {}, {} cores, {}, lsl {}; load of one minute {:.1} (median; 95 % of the turns up to \
             {:.1}); {} of each cell.\n\n",
            machine.started,
            machine.cpu,
            machine.cores,
            machine.kernel,
            machine.version,
            load(0.5),
            load(0.95),
            format::rounds(rounds),
        );
        let all = self.equal + self.slower.len();
        let _ = writeln!(
            text,
            "**Not slower than River's figure: {} of {all} cells.** Not measured: {}.",
            self.equal, self.absent
        );
        if !self.slower.is_empty() {
            let _ = writeln!(text, "\nSlower:\n");
            for line in &self.slower {
                let _ = writeln!(text, "* {line}");
            }
        }
        text
    }

    fn heading(&mut self, title: &str) {
        let _ = write!(self.text, "\n### {title}\n\n");
    }

    fn table(&mut self, names: &[&str], places: &[Place]) {
        let subjects = self.results.subjects.iter().map(|it| it.name.as_str());
        let head: Vec<&str> = names
            .iter()
            .copied()
            .chain(subjects)
            .chain(["River"])
            .collect();
        let _ = writeln!(self.text, "| {} |", head.join(" | "));
        let _ = writeln!(self.text, "|{}", "---|".repeat(head.len()));
        for place in places {
            let mut row: Vec<String> = match place.part {
                Part::Events => vec![place.readers.to_string(), place.bytes.to_string()],
                _ => vec![place.batch.to_string()],
            };
            for subject in 0..self.results.subjects.len() {
                row.push(self.cell(place, subject));
            }
            row.push(format::or_dash(place.river, number));
            let _ = writeln!(self.text, "| {} |", row.join(" | "));
        }
    }

    fn cell(&mut self, place: &Place, subject: usize) -> String {
        let name = self.results.subjects.get(subject).map_or("", |it| &it.name);
        let Some((value, keeps_up)) = place.measured(self.results, subject) else {
            self.absent += 1;
            return "–".into();
        };
        let behind = if keeps_up { "" } else { ", falls behind" };
        let shown = number(value);
        let Some(river) = place.river else {
            return shown + behind;
        };
        if keeps_up && place.part.is_as_good(value, river) {
            self.equal += 1;
            return format!("**{shown}**");
        }
        self.slower.push(format!(
            "{name}, {}: {shown}{behind}; River {}",
            place.title(),
            number(river)
        ));
        format!("*{shown}{behind}*")
    }

    fn pictures(&mut self, names: &[&str]) {
        self.text.push('\n');
        for name in names {
            let _ = writeln!(self.text, "![{name}](images/{name})");
        }
    }

    /// The goals that the specification has, and what they are held against: of events the worst size.
    fn bars(&mut self) {
        self.heading("Goals of the specification");
        let _ = writeln!(
            self.text,
            "| what | way | measured | goal |\n|---|---|---|---|"
        );
        for Bar { part, way, places } in BARS {
            let subject = self.results.subjects.iter().position(|it| it.name == *way);
            let Some(subject) = subject else {
                continue;
            };
            let mut measured = Vec::new();
            for (at, goal) in *places {
                let value = match part {
                    Part::Events => {
                        let sizes = SIZES.iter().filter_map(|bytes| Place::event(*at, *bytes));
                        let values = sizes.filter_map(|it| it.measured(self.results, subject));
                        values.map(|(value, _)| value).reduce(f64::max)
                    }
                    _ => Place::batch(*part, *at)
                        .and_then(|it| it.measured(self.results, subject))
                        .map(|(value, _)| value),
                };
                measured.push(match value {
                    None => "–".into(),
                    Some(value) if part.is_as_good(value, *goal) => {
                        format!("**{}**", number(value))
                    }
                    Some(value) => format!("*{}*", number(value)),
                });
            }
            let goals: Vec<String> = places.iter().map(|(_, goal)| goal.to_string()).collect();
            let at: Vec<String> = places.iter().map(|(at, _)| at.to_string()).collect();
            let along = if *part == Part::Events {
                "readers"
            } else {
                "batch"
            };
            let _ = writeln!(
                self.text,
                "| {} {}, {along} {} | {way} | {} | {} |",
                part.name(),
                part.unit(),
                at.join("; "),
                measured.join("; "),
                goals.join("; ")
            );
        }
    }
}

/// Draws the ways, and River dashed.
fn picture(results: &Results, title: &str, along: &str, places: &[Place]) -> Outcome<String> {
    let at = |place: &Place| {
        f64::from(if along == "readers" {
            place.readers
        } else {
            place.batch
        })
    };
    let curve = |name: &str, style: Style, value: &dyn Fn(&Place) -> Option<f64>| {
        let points = places
            .iter()
            .filter_map(|place| Some((at(place), value(place)?)));
        let points: Vec<(f64, f64)> = points.collect();
        Curve {
            name: name.into(),
            style,
            intervals: points.iter().map(|(_, value)| [*value; 2]).collect(),
            points,
        }
    };
    let mut curves = vec![curve("River", Style::new(0, true), &|it| it.river)];
    for (index, subject) in results.subjects.iter().enumerate() {
        let style = Style::new(index + 1, subject.secure);
        let value = |place: &Place| Some(place.measured(results, index)?.0);
        curves.push(curve(&subject.name, style, &value));
    }
    curves.retain(|curve| !curve.points.is_empty());
    let unit = places.first().map_or("", |it| it.part.unit());
    let values = curves.iter().flat_map(|curve| &curve.points);
    let y = Axis::of(unit, values.map(|(_, value)| *value));
    let x = Axis::at(along, &places.iter().map(at).collect::<Vec<_>>());
    let remark = "River was measured on another machine: Xeon W-2135, 1 GbE, Redis 5";
    charts::curves([title, remark], &x, &y, &curves)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn readers(number: u32) -> String {
    lsl_cli::ui::text::count(number as usize, "reader")
}

/// Three digits that matter.
fn number(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ if value >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

const BEGIN: &str = "<!-- begin: grid, made by `lsl bench report` -->";
const END: &str = "<!-- end: grid -->";

/// Share of the rate below which a reader falls behind.
const LEAST_KEPT: f64 = 0.984;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::load;
    use crate::report::tests::made_up;
    use crate::result::{Cell, Measurement, Round};

    fn cell(parameters: &Value, values: [&[(&str, f64)]; 2]) -> Cell {
        let parameters = parameters.as_object().unwrap().clone();
        let measured = |values: &[(&str, f64)]| Measurement {
            values: values
                .iter()
                .map(|(name, value)| ((*name).into(), *value))
                .collect(),
            ..Measurement::default()
        };
        Cell {
            parameters: parameters.into_iter().collect(),
            rounds: vec![Round {
                measurements: values.map(measured).into(),
            }],
        }
    }

    fn results() -> Results {
        let mut results = made_up();
        results.benchmark = crate::report::GRID.into();
        results.subjects.truncate(2);
        for (subject, name) in results.subjects.iter_mut().zip(["direct", "river"]) {
            subject.name = name.into();
        }
        let event = json!({"part": "events", "readers": 16, "bytes": 8, "rate": 1000});
        let stream = json!({"part": "stream", "bytes": 768, "batch": 64, "readers": 1});
        let max = json!({"part": "max", "bytes": 256, "batch": 128});
        results.cells = vec![
            cell(
                &event,
                [&[("latency_p95_us", 541.0)], &[("latency_p95_us", 542.0)]],
            ),
            cell(
                &stream,
                [
                    &[("latency_p95_us", 90.0), ("rate_kept", 1.0)],
                    &[("latency_p95_us", 90.0), ("rate_kept", 0.9)],
                ],
            ),
            cell(
                &max,
                [&[("write_mib_per_s", 400.0)], &[("write_mib_per_s", 52.4)]],
            ),
        ];
        results
    }

    #[test]
    fn what_is_slower_than_river_is_said_and_what_was_not_measured_counted() {
        let Section { text, pictures } = section(&results()).unwrap();
        for line in [
            "**Not slower than River's figure: 3 of 6 cells.** Not measured: 88.",
            "* river, 8 B to 16 readers: 0.542; River 0.541",
            "* river, 32 kHz x 768 B, batch 64: 0.090, falls behind; River 1.70",
            "* river, written, batch 128: 52.4; River 52.5",
            "| 16 | 8 | **0.541** | *0.542* | 0.541 |",
            "| 128 | **400** | *52.4* | 52.5 |",
            "| max written, MiB/s, batch 1; 16; 64; 128 | direct | –; –; –; **400** | 40; 200; 300; 300 |",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in {text}");
        }
        assert_eq!(pictures.len(), 5);
        assert!(pictures.iter().all(|(name, svg)| {
            text.contains(&format!("(images/{name})")) && svg.contains("\nRiver\n")
        }));
    }

    /// Runs of other ways stand beside the others, and 32 readers only where they were measured.
    #[test]
    fn an_encrypted_run_joins_the_others() {
        let mut encrypted = results();
        encrypted.subjects[1].name = "direct secure".into();
        encrypted.subjects[1].secure = true;
        // What it measured once more changes nothing.
        for cell in &mut encrypted.cells {
            cell.rounds[0].measurements[0]
                .values
                .values_mut()
                .for_each(|it| *it *= 10.0);
        }
        let event = json!({"part": "events", "readers": 32, "bytes": 8, "rate": 1000});
        let latency = [("latency_p95_us", 600.0)];
        encrypted.cells.remove(0);
        encrypted.cells.push(cell(&event, [&latency, &latency]));
        let (groups, _) = load::merge(vec![results(), encrypted]);
        assert_eq!(groups.len(), 1);
        let Section { text, .. } = section(&groups[0].results).unwrap();
        for line in [
            "| readers | bytes | direct | river | direct secure | River |",
            "| 16 | 8 | **0.541** | *0.542* | – | 0.541 |",
            "| 32 | 8 | 0.600 | – | 0.600 | – |",
            "| 128 | **400** | *52.4* | *52.4* | 52.5 |",
            "| max written, MiB/s, batch 64; 128 | direct secure | –; *52.4* | 250; 250 |",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in {text}");
        }
    }

    /// After another run: `lsl bench report docs/results/grid.json docs/results/grid-secure.json --output docs`.
    #[test]
    fn the_page_of_the_book_is_that_of_the_stored_result() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        let read = |name: &str| std::fs::read_to_string(format!("{docs}/{name}")).unwrap();
        let run = |text: String| load::parse(text.as_bytes()).unwrap();
        let encrypted = std::fs::read_to_string(format!("{docs}/results/grid-secure.json")).ok();
        let mut runs = vec![run(read("results/grid.json"))];
        runs.extend(encrypted.map(run));
        let (groups, _) = load::merge(runs);
        assert_eq!(groups.len(), 1);
        let Section { text, pictures } = section(&groups[0].results).unwrap();
        let page = read("river.md");
        assert!(
            put(&text, Some(&page)) == page,
            "docs/river.md is not that of the result"
        );
        for (name, svg) in pictures {
            assert!(
                read(&format!("images/{name}")) == svg,
                "{name} is not that of the result"
            );
        }
    }

    #[test]
    fn a_page_keeps_what_it_says_besides() {
        let page = put("new", None);
        assert_eq!(page, format!("# Beside River\n\n{BEGIN}\n\nnew\n{END}\n"));
        let own = page
            .replace("# Beside River", "before")
            .replace("new", "old")
            + "after";
        assert_eq!(
            put("new", Some(&own)),
            format!("before\n\n{BEGIN}\n\nnew\n{END}\nafter")
        );
    }
}
