//! What monitoring asks: numbers for Prometheus, the status, and whether there is life. Spec: relay §13.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use lsl_core::Result;
use serde_json::Value;

use crate::http::{Request, Response, Status, TEXT};
use crate::shell::state::Shared;
use crate::shell::totals::Histogram;
use crate::shell::{http, status};

/// Serves monitoring at an address, which it returns with the port that the system chose. Streams have names there
/// only `with_names`. To be called in the runtime of the relay.
pub(super) fn start(
    shared: &Arc<Shared>,
    address: SocketAddr,
    with_names: bool,
) -> Result<SocketAddr> {
    let (listener, address) = http::listen(address)?;
    let is_local = address.ip().to_canonical().is_loopback();
    let asked = Arc::clone(shared);
    shared.tasks.spawn(http::serve(listener, move |request| {
        if is_local && !request.is_for_address() {
            return Response::refusal(Status::Forbidden);
        }
        answer(&asked, request, with_names)
    }));
    Ok(address)
}

fn answer(shared: &Shared, request: &Request, with_names: bool) -> Response {
    match &*request.path {
        "/metrics" => {
            let text = render(&status::of(shared), &shared.totals.hop, with_names);
            Response::ok("text/plain; version=0.0.4; charset=utf-8", text)
        }
        "/status.json" => {
            let mut status = status::of(shared);
            if !with_names {
                remove_names(&mut status);
            }
            Response::ok("application/json", format!("{status}\n"))
        }
        "/healthz" => Response::ok(TEXT, "ok\n"),
        _ => Response::refusal(Status::NotFound),
    }
}

/// Removes what tells people which streams these are.
fn remove_names(status: &mut Value) {
    for stream in status["streams"].as_array_mut().into_iter().flatten() {
        for key in ["name", "type", "hostname"] {
            stream.as_object_mut().map(|stream| stream.remove(key));
        }
    }
}

/// Writes numbers as Prometheus reads them, in its text format 0.0.4.
fn render(status: &Value, hop: &Histogram, with_names: bool) -> String {
    let mut page = Page::default();
    let streams = rows(status, "streams");
    let totals = &status["totals"];
    let stages = ["known", "subscribing", "flowing", "linger", "switching"];
    page.family("streams", "gauge", "Streams by state.");
    page.states("streams", streams, &stages);
    page.family("links", "gauge", "Links to other relays by state.");
    page.states("links", rows(status, "links"), &["down", "up"]);
    for (name, key, help) in [
        (
            "samples_total",
            "samples",
            "Samples from sources and links; samples to readers.",
        ),
        (
            "bytes_total",
            "bytes",
            "Bytes of values that came; encoded bytes for readers.",
        ),
    ] {
        page.family(name, "counter", help);
        for dir in ["in", "out"] {
            page.value(name, &[("dir", dir)], &totals[&*format!("{key}_{dir}")]);
        }
    }
    for (key, help) in [
        (
            "lost_exact",
            "Samples that are known to be missing in what came.",
        ),
        ("lost_unknown", "Interruptions whose loss nobody knows."),
        ("reader_dropped", "Samples that readers were too slow for."),
    ] {
        let name = format!("{key}_total");
        page.family(&name, "counter", help);
        page.value(&name, &[], &totals[key]);
    }
    page.family("readers", "gauge", "Readers of streams, links included.");
    let readers: u64 = streams.iter().filter_map(|it| it["readers"].as_u64()).sum();
    page.value("readers", &[], &readers.into());
    page.histogram("hop_seconds", "Time of samples within the relay.", hop);
    let uncertainty = streams.iter().filter_map(|it| it["u_ms"].as_f64());
    if let Some(most) = uncertainty.reduce(f64::max) {
        let name = "clock_uncertainty_seconds";
        page.family(
            name,
            "gauge",
            "Largest uncertainty of the clock of a source.",
        );
        page.value(name, &[], &(most * 1e-3).into());
    }
    page.family(
        "refused_total",
        "counter",
        "What was refused, by the reason.",
    );
    for (why, count) in totals["refused"].as_object().into_iter().flatten() {
        page.value("refused_total", &[("why", why)], count);
    }
    if let Some(history) = status["history"].as_object() {
        for (name, kind, key, help) in [
            (
                "history_bytes",
                "gauge",
                "bytes",
                "Bytes of the past on disk.",
            ),
            (
                "history_dropped_total",
                "counter",
                "dropped",
                "Samples that could not be written.",
            ),
        ] {
            page.family(name, kind, help);
            page.value(name, &[], &history[key]);
        }
    }
    if status["engine"].is_object() {
        page.engine(&status["engine"]);
    }
    if with_names {
        page.streams(streams);
    }
    page.0
}

fn rows<'a>(status: &'a Value, key: &str) -> &'a [Value] {
    status[key].as_array().map_or(&[], Vec::as_slice)
}

/// Lines of the text format.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(
            self.0,
            "# HELP lslrelay_{name} {help}\n# TYPE lslrelay_{name} {kind}"
        );
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: &Value) {
        let _ = write!(self.0, "lslrelay_{name}");
        for (index, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', r"\\").replace('"', "\\\"");
            let text = text.replace('\n', r"\n");
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{text}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    /// Counts rows by their state; those that are `known` are there with 0, too.
    fn states(&mut self, name: &str, rows: &[Value], known: &[&'static str]) {
        let mut counts: BTreeMap<&str, u64> = known.iter().map(|state| (*state, 0)).collect();
        for row in rows {
            *counts
                .entry(row["state"].as_str().unwrap_or(""))
                .or_default() += 1;
        }
        for (state, count) in counts {
            self.value(name, &[("state", state)], &count.into());
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.family(name, "histogram", help);
        let (up_to, all, secs) = histogram.read();
        let bucket = format!("{name}_bucket");
        let up_to = up_to
            .iter()
            .map(|(bound, count)| (bound.to_string(), *count));
        for (bound, count) in up_to.chain([("+Inf".to_owned(), all)]) {
            self.value(&bucket, &[("le", &bound)], &count.into());
        }
        self.value(&format!("{name}_sum"), &[], &secs.into());
        self.value(&format!("{name}_count"), &[], &all.into());
    }

    fn engine(&mut self, engine: &Value) {
        for (name, kind, key, help) in [
            (
                "spool_bytes",
                "gauge",
                "waiting_bytes",
                "Bytes that wait for the engine.",
            ),
            (
                "engine_samples_total",
                "counter",
                "stored",
                "Samples that the engine stored.",
            ),
            (
                "engine_lost_total",
                "counter",
                "lost",
                "Samples in gaps of what the engine has.",
            ),
        ] {
            self.family(name, kind, help);
            self.value(name, &[], &engine[key]);
        }
        let name = "engine_errors_total";
        self.family(name, "counter", "Errors of the engine, by their kind.");
        for (kind, count) in engine["errors"].as_object().into_iter().flatten() {
            self.value(name, &[("kind", kind)], count);
        }
    }

    /// Writes the numbers of each stream.
    fn streams(&mut self, streams: &[Value]) {
        for (name, kind, key, help) in [
            (
                "stream_samples_total",
                "counter",
                "received",
                "Samples that came.",
            ),
            (
                "stream_bytes_total",
                "counter",
                "bytes",
                "Bytes of values that came.",
            ),
            (
                "stream_lost_exact_total",
                "counter",
                "lost_exact",
                "Samples missing in what came.",
            ),
            (
                "stream_lost_unknown_total",
                "counter",
                "lost_unknown",
                "Unknown losses.",
            ),
            ("stream_readers", "gauge", "readers", "Readers."),
        ] {
            self.family(name, kind, help);
            for stream in streams {
                let text = |key: &str| stream[key].as_str().unwrap_or("");
                self.value(
                    name,
                    &[("stream", text("name")), ("uid", text("uid"))],
                    &stream[key],
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_written_as_prometheus_reads_them() {
        let status = json!({
            "streams": [
                {"uid": "u1", "name": "a\"\\\n", "state": "flowing", "received": 7, "readers": 2, "u_ms": 0.5},
                {"uid": "u2", "name": "b", "state": "known", "received": 0, "readers": 0, "u_ms": 2.0},
            ],
            "links": [{"state": "up"}, {"state": "down"}],
            "totals": {
                "samples_in": 9, "samples_out": 14, "bytes_in": 36, "bytes_out": 90,
                "lost_exact": 3, "lost_unknown": 1, "reader_dropped": 5,
                "refused": {"link": 0, "rule": 4},
            },
            "engine": {"waiting_bytes": 12, "stored": 7, "lost": 2, "errors": {"full": 3}},
        });
        let hop = Histogram::default();
        hop.note(4e-4);
        let page = render(&status, &hop, false);
        for line in [
            "# TYPE lslrelay_streams gauge",
            "lslrelay_streams{state=\"flowing\"} 1",
            "lslrelay_streams{state=\"linger\"} 0",
            "lslrelay_links{state=\"down\"} 1",
            "lslrelay_links{state=\"up\"} 1",
            "# TYPE lslrelay_samples_total counter",
            "lslrelay_samples_total{dir=\"in\"} 9",
            "lslrelay_bytes_total{dir=\"out\"} 90",
            "lslrelay_lost_exact_total 3",
            "lslrelay_lost_unknown_total 1",
            "lslrelay_reader_dropped_total 5",
            "lslrelay_readers 2",
            "# TYPE lslrelay_hop_seconds histogram",
            "lslrelay_hop_seconds_bucket{le=\"0.0003\"} 0",
            "lslrelay_hop_seconds_bucket{le=\"0.001\"} 1",
            "lslrelay_hop_seconds_bucket{le=\"+Inf\"} 1",
            "lslrelay_hop_seconds_sum 0.0004",
            "lslrelay_hop_seconds_count 1",
            "lslrelay_clock_uncertainty_seconds 0.002",
            "lslrelay_refused_total{why=\"rule\"} 4",
            "lslrelay_spool_bytes 12",
            "lslrelay_engine_samples_total 7",
            "lslrelay_engine_lost_total 2",
            "lslrelay_engine_errors_total{kind=\"full\"} 3",
        ] {
            assert!(page.lines().any(|it| it == line), "{line}\n{page}");
        }
        assert!(!page.contains("u1"), "{page}");
        let named = render(&status, &hop, true);
        let rest = named.strip_prefix(&page).unwrap();
        let line = r#"lslrelay_stream_samples_total{stream="a\"\\\n",uid="u1"} 7"#;
        assert!(rest.lines().any(|it| it == line), "{rest}");
        // A family is one block.
        let families: Vec<_> = named
            .lines()
            .filter(|it| it.starts_with("# TYPE"))
            .collect();
        let mut distinct = families.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), families.len());
    }
}
