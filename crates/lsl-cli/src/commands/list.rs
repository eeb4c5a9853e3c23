//! `lsl list`: lists streams, once or continuously.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use lsl_core::{Context, ContinuousResolver, ResolverEvent, Selector, local_clock};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::interrupt::{LONGEST_NAP, Stop};
use crate::streams::describe::{Described, duplicates, one_line};
use crate::streams::encryption::{self, Names};
use crate::streams::not_found;
use crate::streams::select::{Wanted, predicate, seconds};
use crate::ui::notice::note;
use crate::ui::table::{Align, Table};
use crate::ui::text::{age, rate};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct List {
    /// XPath predicate that streams must fulfil; without it all of the session are shown
    #[arg(value_name = "PREDICATE")]
    predicate: Option<String>,

    /// Keep looking and report streams that appear, change and go, until Ctrl-C
    #[arg(long)]
    watch: bool,

    /// Show also streams that are over, and of which a relay keeps something
    #[arg(long)]
    past: bool,

    /// Print JSON: one array, or with --watch one object a line
    #[arg(long)]
    json: bool,

    /// Seconds to wait for answers; with --watch, seconds of silence after which a stream is gone
    /// (then at least 3)
    #[arg(long, value_name = "SECS", default_value = "1.5", value_parser = seconds)]
    timeout: f64,
}

const EXAMPLES: &str = "\
Examples:
  lsl list                                   everything in this session
  lsl list \"type='EEG' and channel_count>8\"  only some
  lsl list --watch                           what comes and goes
  lsl list --past                            what was there, too, as far as a relay keeps it
  lsl list --json | jq -r .[].name           for programs

Streams marked 'duplicate' have the same name and source id as another one: receivers cannot tell
them apart and may switch between them. ENCRYPTION is what a sender announces: anybody can announce
anything, names of our trust file included, so they are marked 'claimed'. Only a session proves who
it is: `lsl info`, `lsl trust check`.
Exit status 3 when no stream was found.";

/// Stream as an element of `--json`.
#[derive(Debug, Serialize)]
struct ListedStream<'a> {
    #[serde(flatten)]
    stream: &'a Described,
    /// Seconds since the outlet was made; only for outlets of this host, whose clock is ours.
    age_secs: Option<f64>,
    duplicate: bool,
}

/// Change of a stream: one line of `--watch --json`.
#[derive(Debug, Serialize)]
struct Change<'a> {
    event: &'static str,
    /// Seconds of this host's clock.
    time: f64,
    stream: &'a Described,
}

impl List {
    pub(crate) fn run(&self, context: &Context) -> Outcome {
        if self.past {
            context.include_past();
        }
        let selector = match &self.predicate {
            Some(text) => predicate(text)?,
            None => Selector::all(),
        };
        if self.watch {
            self.follow(context, &selector)
        } else {
            self.once(context, &selector)
        }
    }

    fn once(&self, context: &Context, selector: &Selector) -> Outcome {
        let timeout = Duration::from_secs_f64(self.timeout);
        let found = context.resolve_blocking(selector, 0, timeout)?;
        let mut streams: Vec<Described> = found.iter().map(Described::from).collect();
        let names = Names::of(context);
        for stream in &mut streams {
            stream.name(&names);
        }
        // The order of the network means nothing to people.
        streams.sort_by(|a, b| (&a.name, &a.hostname, &a.uid).cmp(&(&b.name, &b.hostname, &b.uid)));
        let mut out = io::stdout().lock();
        if self.json {
            let duplicates = duplicates(&streams);
            let rows: Vec<ListedStream<'_>> = streams
                .iter()
                .zip(duplicates)
                .map(|(stream, duplicate)| ListedStream {
                    stream,
                    age_secs: age_secs(stream),
                    duplicate,
                })
                .collect();
            serde_json::to_writer_pretty(&mut out, &rows)?;
            writeln!(out)?;
        } else if !streams.is_empty() {
            write_table(&streams, &mut out)?;
        }
        out.flush()?;
        if streams.is_empty() {
            return Err(Failure::NotFound(format!(
                "no stream answered within {} s{}\n{}",
                self.timeout,
                if self.predicate.is_some() {
                    " (or none fulfils the predicate)"
                } else {
                    ""
                },
                not_found::explain(
                    context,
                    self.predicate
                        .clone()
                        .map(|it| Wanted::Predicate(it).asked())
                )
            )));
        }
        Ok(())
    }

    fn follow(&self, context: &Context, selector: &Selector) -> Outcome {
        // Waves go out about every 1.75 s; less than two of them would make streams flicker.
        let forget_after = Duration::from_secs_f64(self.timeout.max(SHORTEST_MEMORY_SECS));
        let resolver = ContinuousResolver::in_context(context, selector, forget_after)?;
        let names = Names::of(context);
        let stop = Stop::install()?;
        let start = local_clock();
        if !self.json {
            note("Watching for streams; Ctrl-C ends.");
        }
        let (mut appeared, mut lost) = (0_u64, 0_u64);
        while !stop.requested() {
            let (mark, event, info) = match resolver.next_event_blocking(LONGEST_NAP) {
                Some(ResolverEvent::Appeared(info)) => ('+', "appeared", info),
                Some(ResolverEvent::Changed(info)) => ('~', "changed", info),
                Some(ResolverEvent::Lost(info)) => ('-', "lost", info),
                _ => continue,
            };
            appeared += u64::from(mark == '+');
            lost += u64::from(mark == '-');
            let mut stream = Described::from(&info);
            stream.name(&names);
            let time = local_clock();
            let mut out = io::stdout().lock();
            if self.json {
                serde_json::to_writer(
                    &mut out,
                    &Change {
                        event,
                        time,
                        stream: &stream,
                    },
                )?;
                writeln!(out)?;
            } else {
                writeln!(out, "{:8.1} s  {mark} {}", time - start, one_line(&stream))?;
            }
            out.flush()?;
        }
        if !self.json {
            let present = resolver.results().len();
            note(format_args!(
                "{appeared} appeared, {lost} lost, {present} there now."
            ));
        }
        Ok(())
    }
}

fn write_table(streams: &[Described], out: &mut impl Write) -> io::Result<()> {
    let (left, right) = (Align::Left, Align::Right);
    let mut table = Table::new(&[
        ("NAME", left),
        ("TYPE", left),
        ("CH", right),
        ("RATE", right),
        ("FORMAT", left),
        ("SOURCE ID", left),
        ("HOST", left),
        ("ADDRESS", left),
        ("ENCRYPTION", left),
        ("AGE", right),
        ("", left),
    ]);
    for (stream, duplicate) in streams.iter().zip(duplicates(streams)) {
        table.push([
            stream.name.as_str(),
            &stream.stream_type,
            &stream.channel_count.to_string(),
            &rate(stream.nominal_srate),
            stream.channel_format,
            if stream.source_id.is_empty() {
                "-"
            } else {
                &stream.source_id
            },
            &stream.hostname,
            stream.addresses().first().map_or("-", String::as_str),
            &encryption::cell(stream.encryption.as_ref()),
            &age_secs(stream).map_or_else(|| "-".into(), age),
            &match stream.ended {
                Some(_) => ended(stream),
                None if duplicate => "duplicate".to_owned(),
                None => String::new(),
            },
        ]);
    }
    table.write(out, "")
}

/// Returns how long a stream has been over.
fn ended(stream: &Described) -> String {
    let now = lsl_platform::clock::utc_now().as_secs();
    let secs = now.saturating_sub(stream.ended.unwrap_or(now));
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let secs = secs as f64;
    format!("ended {} ago", age(secs))
}

/// Returns the seconds since the outlet was made, if it was made on this host: other hosts' clocks
/// started at another time.
fn age_secs(stream: &Described) -> Option<f64> {
    let here = stream.hostname.as_bytes() == lsl_platform::process::hostname();
    (here && stream.created_at > 0.0).then(|| (local_clock() - stream.created_at).max(0.0))
}

const SHORTEST_MEMORY_SECS: f64 = 3.0;
