//! What is measured of relays, and the bars that it is held against. Spec: relay §15.

use std::io::{self, Write};

use clap::ValueEnum;
use lsl_cli::failure::Outcome;
use lsl_cli::ui::table::{Align, Table};

use crate::result::Cell;
use crate::stats::median;
use crate::swarm::Values;

/// A row of the table in the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum What {
    /// Latency that one relay adds, and two with a link
    Hop,
    /// A thousand streams in chunks of 8
    Many,
    /// A hundred streams, pushed one by one
    Few,
    /// A thousand streams, and ten, that nobody reads
    Idle,
    /// Throughput of a link
    Link,
    /// How soon streams appear at the other site
    Appear,
    /// How late others are beside a reader that stops, substreams without credit, and a link of 1 MB/s
    Others,
    /// What it takes to keep the past, and how soon that comes
    History,
}

/// A metric, the most (or the least) that it may be, and digits to show.
type Bar = (&'static str, f64, usize);

impl What {
    /// Returns what the specification asks for.
    fn bars(self) -> &'static [Bar] {
        match self {
            Self::Hop => &[("hop_p50_ms", 0.1, 3), ("hop_p95_ms", 0.3, 3)],
            Self::Many => &[
                ("near_cores", 1.0, 2),
                ("far_cores", 1.0, 2),
                ("near_rss_mib", 400.0, 0),
                ("far_rss_mib", 400.0, 0),
                ("arrival_p95_ms", 25.0, 1),
            ],
            Self::Few => &[
                ("near_cores", 0.35, 2),
                ("far_cores", 0.35, 2),
                ("near_rss_mib", 60.0, 0),
                ("far_rss_mib", 60.0, 0),
            ],
            Self::Idle => &[
                ("near_cores", 0.05, 3),
                ("far_cores", 0.05, 3),
                ("near_rss_mib", 80.0, 0),
                ("far_rss_mib", 80.0, 0),
                ("near_switches_per_s", 5.0, 1),
                ("far_switches_per_s", 5.0, 1),
            ],
            Self::Link => &[("link_mb_per_s", -250.0, 0)],
            Self::Appear => &[("appear_max_s", 1.5, 2)],
            Self::Others => &[
                ("stopped_far_p99", 1.5, 2),
                ("stopped_link_p99", 1.5, 2),
                ("no_credit_far_p99", 1.5, 2),
                ("no_credit_link_p99", 1.5, 2),
                ("narrow_far_p99", 1.5, 2),
                ("narrow_link_p99", 1.5, 2),
                ("near_grows_mib", 8.0, 1),
                ("far_grows_mib", 8.0, 1),
            ],
            Self::History => &[("write_cores_100mb_s", 0.3, 2), ("since_p50_ms", 50.0, 1)],
        }
    }

    pub(super) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |it| it.get_name().to_owned())
    }
}

/// Prints medians over the rounds beside the bars.
pub(super) fn show(cells: &[(What, Cell)]) -> Outcome {
    let right = Align::Right;
    let columns = [
        ("what", Align::Left),
        ("streams", right),
        ("", Align::Left),
        ("median", right),
        ("bar", right),
        ("", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for (what, cell) in cells {
        let mut names: Vec<&str> = Vec::new();
        let measured: Vec<&Values> = cell.measurements(0).map(|it| &it.values).collect();
        names.extend(measured.iter().flat_map(|it| it.keys()).map(String::as_str));
        names.sort_unstable();
        names.dedup();
        for name in names {
            let bar = what.bars().iter().find(|(metric, ..)| *metric == name);
            let digits = bar.map_or(3, |(_, _, digits)| *digits);
            let value = median(&cell.values(0, name)).unwrap_or(f64::NAN);
            // Of what should be large the bar is below zero.
            let is_met = |bar: f64| {
                if bar < 0.0 {
                    value >= -bar
                } else {
                    value <= bar
                }
            };
            let streams = cell.parameters.get("streams");
            table.push([
                what.name(),
                streams.map(ToString::to_string).unwrap_or_default(),
                name.to_owned(),
                format!("{value:.digits$}"),
                bar.map_or_else(String::new, |(_, bar, _)| bar.abs().to_string()),
                match bar {
                    Some((_, bar, _)) if is_met(*bar) => "met".into(),
                    Some(_) => "missed".into(),
                    None => String::new(),
                },
            ]);
        }
    }
    let mut out = io::stdout().lock();
    table.write(&mut out, "")?;
    Ok(out.flush()?)
}
