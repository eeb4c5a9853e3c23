//! The table that a run ends with on stdout: medians over the rounds, and medians of the ratios to
//! the baseline of the same round.

use std::io::Write;

use lsl_cli::failure::{Failure, Outcome};

use super::driver::plain;
use super::metrics::METRICS;
use super::result::{Cell, Measurement, Results};
use super::stats::{median, median_ratio};

/// Columns of a table of results.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table {
    /// Names of parameters, in this order.
    pub(super) parameters: &'static [&'static str],
    /// Metrics shown as medians over the rounds.
    pub(super) columns: &'static [&'static str],
    /// Metrics shown as ratios to the baseline.
    pub(super) ratios: &'static [&'static str],
}

/// Writes the table of all cells and subjects.
pub(super) fn show(results: &Results, table: &Table, out: &mut impl Write) -> Outcome {
    let names: Vec<String> = table.parameters.iter().map(|name| (*name).into()).collect();
    let parameters = names.len();
    let mut header = names.clone();
    header.push(String::new());
    header.extend(table.columns.iter().map(|name| short(name)));
    header.push("delivered".into());
    let ratios = results.subjects.len() > 1;
    if ratios {
        header.extend(table.ratios.iter().map(|name| format!("x {}", bare(name))));
    }
    let mut rows = vec![header];
    for cell in results.cells.iter().filter(|cell| !cell.rounds.is_empty()) {
        for (index, subject) in results.subjects.iter().enumerate() {
            let value = |name: &String| cell.parameters.get(name).map(plain).unwrap_or_default();
            let mut row: Vec<String> = names.iter().map(value).collect();
            row.push(subject.name.clone());
            let medians = table
                .columns
                .iter()
                .map(|name| median(&cell.values(index, name)).map_or_else(|| "-".into(), digits));
            row.extend(medians);
            row.push(delivered(cell, index));
            if ratios {
                let shown = table.ratios.iter().map(|name| {
                    median_ratio(&cell.pairs(name, results.baseline, index))
                        .map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"))
                });
                row.extend(shown);
            }
            rows.push(row);
        }
    }
    write_aligned(&rows, parameters, out)?;
    if let (true, Some(baseline)) = (ratios, results.subjects.get(results.baseline)) {
        let rounds = results.cells.iter().map(|cell| cell.rounds.len()).max();
        writeln!(
            out,
            "x: median of the ratios to {} in the same round; {} rounds",
            baseline.name,
            rounds.unwrap_or(0)
        )?;
    }
    for subject in &results.subjects {
        writeln!(out, "{}: {}", subject.name, subject.detail)?;
    }
    Ok(())
}

/// An error if samples are missing or came in a wrong order, or nothing could be measured.
pub(super) fn verdict(results: &Results) -> Outcome {
    let all = || {
        let rounds = results.cells.iter().flat_map(|cell| &cell.rounds);
        rounds.flat_map(|round| &round.measurements)
    };
    let lost: u64 = all().map(missing).sum();
    if lost > 0 {
        return Err(Failure::Lost(format!(
            "{lost} samples are missing; which ones is in the results"
        )));
    }
    let failures =
        || all().filter_map(|measurement| Some((measurement, measurement.failure.as_ref()?)));
    // All samples came, so another fault is named. A subject that cannot run the cell expects no
    // samples.
    let is_wrong = |measurement: &Measurement| measurement.expected > 0;
    if let Some((_, failure)) = failures().find(|(measurement, _)| is_wrong(measurement)) {
        return Err(Failure::Lost(failure.clone()));
    }
    match failures().next() {
        Some((_, failure)) if all().all(|measurement| measurement.failure.is_some()) => {
            Err(Failure::Runtime(format!("nothing was measured: {failure}")))
        }
        _ => Ok(()),
    }
}

fn missing(measurement: &Measurement) -> u64 {
    measurement.expected.saturating_sub(measurement.received)
}

fn delivered(cell: &Cell, subject: usize) -> String {
    let measurements = || cell.measurements(subject);
    let expected: u64 = measurements().map(|m| m.expected).sum();
    let received: u64 = measurements().map(|m| m.received).sum();
    let failed = measurements().filter(|m| m.failure.is_some()).count();
    let failed = match failed {
        0 => String::new(),
        failed => format!(" ({failed} failed)"),
    };
    if expected == 0 {
        return format!("-{failed}");
    }
    // Cut, not rounded: 100.000 % is all of them.
    let share = (received as f64 / expected as f64 * 1e5).floor() / 1e3;
    format!("{share:.3} %{failed}")
}

/// Formats a value briefly, with `k` or `M` if it is large.
fn digits(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 1e6 {
        format!("{:.2}M", value / 1e6)
    } else if magnitude >= 1e4 {
        format!("{:.1}k", value / 1e3)
    } else if magnitude >= 100.0 {
        format!("{value:.0}")
    } else if magnitude >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A column's head: `p50 µs`.
fn short(name: &str) -> String {
    let unit = METRICS
        .iter()
        .find(|metric| metric.name == name)
        .map_or("", |metric| metric.unit);
    format!("{} {unit}", bare(name)).trim_end().into()
}

/// Without the unit at its end, and without the latency that most are.
fn bare(name: &str) -> String {
    let name = name.strip_prefix("latency_").unwrap_or(name);
    let name = name
        .replace("_us_per_sample", "")
        .replace("_per_sample", "")
        .replace("_s_per_gb", "");
    let mut name = name.as_str();
    for unit in ["_us", "_mib_per_s", "_per_s", "_mib"] {
        name = name.strip_suffix(unit).unwrap_or(name);
    }
    name.replace('_', " ")
}

fn write_aligned(rows: &[Vec<String>], left: usize, out: &mut impl Write) -> Outcome {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let blanks = " ".repeat(width.saturating_sub(cell.chars().count()));
            let gap = if index == 0 { "" } else { "  " };
            // The subject's name, after the parameters, is the one text.
            if index == left {
                line.extend([gap, cell, &blanks]);
            } else {
                line.extend([gap, &blanks, cell]);
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        for (value, text) in [
            (0.0, "0.00"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (123.4, "123"),
            (32_000.0, "32.0k"),
            (1_234_567.0, "1.23M"),
        ] {
            assert_eq!(digits(value), text);
        }
    }

    fn results(measurements: [Measurement; 2]) -> Results {
        let cell = Cell {
            parameters: std::collections::BTreeMap::new(),
            rounds: vec![super::super::result::Round {
                measurements: measurements.into(),
            }],
        };
        Results {
            schema: String::new(),
            benchmark: String::new(),
            machine: super::super::result::Machine::default(),
            args: Vec::new(),
            subjects: Vec::new(),
            baseline: 0,
            cells: vec![cell],
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_a_failure() {
        let measured = |expected, received, failure: Option<&str>| Measurement {
            expected,
            received,
            failure: failure.map(str::to_owned),
            ..Measurement::default()
        };
        let fine = || measured(10, 10, None);
        let unable = || measured(0, 0, Some("cannot"));
        let ends =
            |other| verdict(&results([fine(), other])).map_err(|failure| failure.to_string());
        assert_eq!(ends(fine()), Ok(()));
        assert_eq!(ends(unable()), Ok(()));
        assert!(ends(measured(10, 9, None)).unwrap_err().starts_with('1'));
        assert_eq!(ends(measured(10, 10, Some("twice"))), Err("twice".into()));
        assert!(verdict(&results([unable(), unable()])).is_err());
    }

    #[test]
    fn heads_of_columns() {
        assert_eq!(short("latency_p50_us"), "p50 µs");
        assert_eq!(short("cpu_us_per_sample"), "cpu µs");
        assert_eq!(short("write_mib_per_s"), "write MiB/s");
        assert_eq!(bare("outlet_cpu_s_per_gb"), "outlet cpu");
    }
}
