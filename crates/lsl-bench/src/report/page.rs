//! The page of a report, as HTML and as Markdown: what its template shows.

use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::ui::text::{count, printable};
use lsl_platform::remedy;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value};
use serde::Serialize;
use serde_json::json;

use super::analysis::Analysis;
use super::figures::Figure;
use super::format;
use super::load::Run;
use crate::stats::Histograms;

/// Renders the page of `analysis`, made from `runs`: HTML, then Markdown, which links to figures in `charts/`.
pub(super) fn render(
    analysis: &Analysis<'_>,
    runs: &[Run],
    figures: &[Figure],
) -> Outcome<[String; 2]> {
    let failed = |error| Failure::Runtime(format!("cannot make the page: {error}"));
    let content = content(analysis, runs, figures);
    let parts = [
        ("html", include_str!("html.j2")),
        ("markdown", include_str!("markdown.j2")),
    ];
    let [html, markdown] = parts.map(|(name, parts)| {
        let environment = environment(name, parts)?;
        environment.get_template("page")?.render(&content)
    });
    Ok([html.map_err(failed)?, markdown.map_err(failed)?])
}

/// Returns the values that the template may use. Every text is escaped, so that nothing from
/// outside is markup.
fn environment(
    form: &'static str,
    parts: &'static str,
) -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    environment.set_syntax(syntax.trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(move |_| AutoEscape::Custom(form.into()));
    environment.set_formatter(move |out, _, value| {
        let text = value.to_string();
        let text = match form {
            _ if value.is_safe() => text,
            "html" => html(&text),
            _ => markdown(&text),
        };
        Ok(std::fmt::Write::write_str(out, &text)?)
    });
    let figure = |value: Option<f64>| format::or_dash(value, format::figure);
    environment.add_filter("figure", figure);
    environment.add_filter("signed", format::signed);
    environment.add_filter("ratio", |value: Option<f64>| {
        format::or_dash(value, format::ratio)
    });
    environment.add_filter("chance", |value: Option<f64>| {
        format::or_dash(value, format::chance)
    });
    let chances = |one: Option<f64>, five: Option<f64>| {
        let both = one
            .zip(five)
            .map(|(one, five)| [one, five].map(format::chance).join(" / "));
        format::or_dash(both, |both| both)
    };
    environment.add_filter("chances", chances);
    environment.add_filter("unit", |value: f64, unit: &str| {
        format::with_unit(value, unit)
    });
    environment.add_filter("titled", |title: &str, unit: &str| {
        format::titled(title, unit)
    });
    environment.add_filter("count", |number: usize, noun: &str| count(number, noun));
    environment.add_filter("printable", |text: &str| {
        Value::from_safe_string(printable(text))
    });
    let interval = |ends: Option<Vec<f64>>| ends.and_then(|ends| ends.try_into().ok());
    environment.add_filter("figures", move |ends| {
        format::or_dash(interval(ends), format::figures)
    });
    environment.add_filter("ratios", move |ends| {
        format::or_dash(interval(ends), format::ratios)
    });
    // Columns that hold text; numbers stand at the right.
    let texts = ["", "subject", "metric", "verdict", "within the limit?"];
    environment.add_global("texts", texts.to_vec());
    environment.add_template("out", parts)?;
    environment.add_template("page", include_str!("page.j2"))?;
    Ok(environment)
}

fn content(analysis: &Analysis<'_>, runs: &[Run], figures: &[Figure]) -> Value {
    let results = analysis.results;
    let runs = runs.iter().map(|run| {
        let words: Vec<String> = run.args.iter().map(|word| remedy::word(word)).collect();
        json!({ "machine": run.machine, "command": words.join(" ") })
    });
    Value::from(Serde(json!({
        "title": title(analysis),
        "subjects": results.subjects,
        "baseline": results.baseline,
        "machine": results.machine,
        "rounds": format::rounds(analysis.rounds()),
        "least_rounds": analysis.rounds().0,
        "labels": analysis.labels,
        "common": analysis.common,
        "varying": analysis.varying,
        "measures": analysis.measures,
        "encryption": analysis.encryption,
        "latency_title": results.latency_title(),
        "delivery": Delivery::of(analysis),
        "percentiles": percentiles(analysis),
        "runs": runs.collect::<Vec<_>>(),
        "figures": figures,
    })))
}

/// The title of a report.
pub(super) fn title(analysis: &Analysis<'_>) -> String {
    format!("lsl bench {}", analysis.results.benchmark)
}

/// Numbers of delivered samples, and turns that failed.
#[derive(Debug, Default, Serialize)]
struct Delivery {
    expected: u64,
    received: u64,
    lost: u64,
    share: String,
    /// Cell, subject, share, received, expected.
    incomplete: Vec<[String; 5]>,
    gaps: Vec<String>,
    failures: Vec<String>,
}

impl Delivery {
    fn of(analysis: &Analysis<'_>) -> Self {
        let mut all = Self::default();
        for (cell, label) in analysis.results.cells.iter().zip(&analysis.labels) {
            for (index, subject) in analysis.results.subjects.iter().enumerate() {
                let (mut received, mut expected) = (0_u64, 0_u64);
                for (round, turn) in (1..).zip(&cell.rounds) {
                    let Some(turn) = turn.measurements.get(index) else {
                        continue;
                    };
                    let place = format!("{label}, {}, round {round}", subject.name);
                    let failure = turn.failure.iter();
                    all.failures
                        .extend(failure.map(|failure| format!("{place}: {failure}")));
                    let lost = turn.expected.saturating_sub(turn.received);
                    all.lost = all.lost.saturating_add(lost);
                    received = received.saturating_add(turn.received);
                    expected = expected.saturating_add(turn.expected);
                    all.gaps.extend(turn.gaps.iter().map(|gap| {
                        let missing = usize::try_from(gap.count).unwrap_or(usize::MAX);
                        let (missing, first) = (count(missing, "sample"), gap.first);
                        format!(
                            "{place}, reader {}: {missing} missing from number {first} on",
                            gap.reader
                        )
                    }));
                }
                all.received = all.received.saturating_add(received);
                all.expected = all.expected.saturating_add(expected);
                if received != expected {
                    let share = format::delivered(received, expected);
                    let [received, expected] =
                        [received, expected].map(|samples| samples.to_string());
                    let name = subject.name.clone();
                    all.incomplete
                        .push([label.clone(), name, share, received, expected]);
                }
            }
        }
        all.share = format::delivered(all.received, all.expected);
        all
    }
}

/// Cell, subject and percentiles of latency over all rounds.
fn percentiles(analysis: &Analysis<'_>) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (cell, label) in analysis.results.cells.iter().zip(&analysis.labels) {
        for index in 0..analysis.results.subjects.len() {
            let turns = cell.measurements(index);
            let histograms = Histograms::of(turns.map(|turn| &turn.histogram[..]));
            let mut row = vec![label.clone(), analysis.subject(index).into()];
            for share in [0.5, 0.95, 0.99, 0.999] {
                let Some((value, bounds)) = histograms.percentile(share) else {
                    continue;
                };
                let bounds = bounds.map(|bounds| format!(" {}", format::figures(bounds)));
                row.push(format!(
                    "{}{}",
                    format::figure(value),
                    bounds.unwrap_or_default()
                ));
            }
            if row.len() > 2 {
                rows.push(row);
            }
        }
    }
    rows
}

/// Text in which nothing is markup for HTML and XML. Characters that these cannot hold are
/// replaced.
fn html(text: &str) -> String {
    let text = escape_tags(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

/// Text in which nothing is markup for Markdown, nor for the HTML in it.
fn markdown(text: &str) -> String {
    let mut out = String::new();
    for c in escape_tags(text).chars() {
        if r"\`*_[]|#~!$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn escape_tags(text: &str) -> String {
    let text = printable(text).replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_is_markup() {
        let text = "a|b <img src=x> `rm` [x](y) *_#\n& \"ok'\u{ffff}";
        assert_eq!(
            markdown(text),
            "a\\|b &lt;img src=x&gt; \\`rm\\` \\[x\\](y) \\*\\_\\#\\\\n&amp; \"ok'\u{ffff}"
        );
        assert_eq!(
            html(text),
            "a|b &lt;img src=x&gt; `rm` [x](y) *_#\\n&amp; &quot;ok&#39;\u{fffd}"
        );
    }
}
