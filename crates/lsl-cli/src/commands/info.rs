//! `lsl info`: everything a stream says about itself, metadata included.

use std::io::{self, Write};

use clap::Args;
use lsl_core::xml::ElementRef;
use lsl_core::{Context, Inlet, Retained, StreamInfo};
use lsl_doctor::collect::probe::{self, Checked, Finding};
use serde::Serialize;
use serde_json::Value;

use crate::failure::Outcome;
use crate::streams::describe::{Described, element_json};
use crate::streams::encryption::{self, Names, Proved};
use crate::streams::link;
use crate::streams::select::StreamArgs;
use crate::ui::text::{printable, rate};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Info {
    #[command(flatten)]
    stream: StreamArgs,

    /// Print the XML as it came from the network
    #[arg(long, conflicts_with = "json")]
    xml: bool,

    /// Print one JSON object; metadata is below `desc`
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  lsl info BioSemi               the stream called BioSemi
  lsl info type=EEG              the only stream of that type
  lsl info uid=2f0e... --xml     exactly this outlet, as XML
  lsl info BioSemi --json | jq '.desc.channels.channel[].label'";

/// Full description: the object of `--json`.
#[derive(Debug, Serialize)]
struct Document {
    #[serde(flatten)]
    stream: Described,
    /// Peer of the encrypted connection, proved by a handshake; null in plaintext.
    session: Option<Proved>,
    /// Samples that its outlet has for those who come late; null if it retains none.
    retained: Option<RetainedSamples>,
    desc: Value,
}

/// Samples that an outlet retains. Spec: resume §1.
#[derive(Debug, Serialize)]
struct RetainedSamples {
    /// Name of the numbering of its samples.
    generation: String,
    /// Number of the oldest one.
    first: u64,
    /// Number that the next one gets.
    live: u64,
    /// Seconds that they last by the nominal rate; null without one.
    secs: Option<f64>,
}

impl RetainedSamples {
    fn of(retained: &Retained, nominal_srate: f64) -> Self {
        let samples = retained.live.saturating_sub(retained.first);
        Self {
            generation: retained.generation.to_string(),
            first: retained.first,
            live: retained.live,
            secs: (nominal_srate > 0.0).then(|| samples as f64 / nominal_srate),
        }
    }

    fn sentence(&self) -> String {
        let Self { first, live, .. } = self;
        if first >= live {
            return format!("nothing now; the next sample is number {live}");
        }
        let secs = self
            .secs
            .map_or_else(String::new, |secs| format!(", {secs:.1} s"));
        format!(
            "{} samples{secs}: numbers {first} to {}",
            live - first,
            live - 1
        )
    }
}

impl Info {
    pub(crate) fn run(&self, context: &Context) -> Outcome {
        let found = self.stream.find(context)?;
        let inlet = Inlet::builder(&found).context(context).create()?;
        let full = link::full_info(&inlet, self.stream.timeout())
            .map_err(|failure| failure.context("full description"))?;
        let session = proved(context, &found);
        // No reader asks that: who waits for one is not to begin.
        let retained = inlet.retained_blocking(self.stream.timeout());
        let of = |it: &Retained| RetainedSamples::of(it, full.nominal_srate());
        let retained = retained.map(|it| it.as_ref().map(of));
        // The full description does not say where it came from; the answer to the search does.
        let mut stream = Described::from(&full);
        let answer = Described::from(&found);
        stream.v4_address = answer.v4_address;
        stream.v6_address = answer.v6_address;
        stream.encryption = answer.encryption;
        stream.relays = answer.relays;
        stream.name(&Names::of(context));

        let mut out = io::stdout().lock();
        if self.xml {
            out.write_all(&full.to_xml())?;
        } else if self.json {
            let desc = full.desc_ref().map_or(Value::Null, element_json);
            serde_json::to_writer_pretty(
                &mut out,
                &Document {
                    stream,
                    session,
                    retained: retained.ok().flatten(),
                    desc,
                },
            )?;
            writeln!(out)?;
        } else {
            write_fields(&stream, session.as_ref(), &retained, &mut out)?;
            match full.desc_ref() {
                Some(desc) if desc.children().next().is_some() => {
                    writeln!(out, "\nmetadata")?;
                    for child in desc.children() {
                        write_tree(child, 1, &mut out)?;
                    }
                }
                _ => writeln!(out, "\nno metadata")?,
            }
        }
        out.flush()?;
        Ok(())
    }
}

/// Proves the peer of this stream's encrypted sessions, by opening one. Does not read the stream:
/// some senders wait for their first reader, which must not be this command.
fn proved(context: &Context, found: &StreamInfo) -> Option<Proved> {
    found.security_advert()?;
    let security = context.security().ok()?;
    let Checked { peer, finding } = probe::check(security, security.local()?, found, &|| false);
    match (peer, finding) {
        (Some(key), Finding::Accepted { peer_name, suite }) => Some(Proved {
            peer_name,
            fingerprint: key.fingerprint().to_string(),
            cipher: suite.name(),
        }),
        _ => None,
    }
}

fn write_fields(
    stream: &Described,
    session: Option<&Proved>,
    retained: &lsl_core::Result<Option<RetainedSamples>>,
    out: &mut impl Write,
) -> io::Result<()> {
    let absent = |text: &str| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            printable(text)
        }
    };
    let ports = |address: &str, data: u16, service: u16| match data {
        0 => "-".to_owned(),
        _ => format!("{} data TCP {data}, service UDP {service}", absent(address)),
    };
    let fields = [
        ("name", absent(&stream.name)),
        ("type", absent(&stream.stream_type)),
        (
            "channels",
            format!("{} x {}", stream.channel_count, stream.channel_format),
        ),
        ("nominal rate", rate(stream.nominal_srate)),
        ("source id", absent(&stream.source_id)),
        ("session", absent(&stream.session_id)),
        ("host", absent(&stream.hostname)),
        (
            "IPv4",
            ports(
                &stream.v4_address,
                stream.v4_data_port,
                stream.v4_service_port,
            ),
        ),
        (
            "IPv6",
            ports(
                &stream.v6_address,
                stream.v6_data_port,
                stream.v6_service_port,
            ),
        ),
        (
            "encryption",
            match (session, &stream.encryption) {
                (Some(session), _) => encryption::sentence(session),
                (None, Some(claimed)) => printable(&encryption::cell(Some(claimed))),
                (None, None) if stream.relays.is_some() => {
                    "as its relay does: see what lsl recv says".into()
                }
                (None, None) => "none: anybody on the network can read and change it".into(),
            },
        ),
        ("uid", absent(&stream.uid)),
        ("protocol", format!("{:.2}", stream.version)),
        (
            "created at",
            format!("{:.3} s on the host's clock", stream.created_at),
        ),
        (
            "generation",
            match retained {
                Ok(Some(retained)) => retained.generation.clone(),
                _ => absent(""),
            },
        ),
        (
            "retained",
            match retained {
                Ok(Some(retained)) => retained.sentence(),
                Ok(None) => "nothing: a stream of liblsl, or RetainSeconds = 0 there".into(),
                Err(_) if stream.relays.is_some() => "as its relay has it".into(),
                Err(error) => format!("not known: {}", printable(&error.to_string())),
            },
        ),
    ];
    for (name, value) in fields {
        writeln!(out, "{name:<13} {value}")?;
        if name == "host" && !stream.relay_names.is_empty() {
            // The nearest to its source first.
            let relays = stream.relay_names.iter().map(|relay| printable(relay));
            let relays: Vec<_> = relays.collect();
            writeln!(out, "{:<13} {}", "relays", relays.join(", then "))?;
        }
    }
    Ok(())
}

/// Writes one line an element; elements that only hold texts, such as a channel, take one together.
fn write_tree(element: ElementRef<'_>, depth: usize, out: &mut impl Write) -> io::Result<()> {
    let indent = "  ".repeat(depth.min(DEEPEST_INDENT));
    let name = printable(&element.name());
    let attributes: String = element
        .attributes()
        .iter()
        .map(|attribute| {
            let (name, value) = (&attribute.name, &attribute.value);
            let text = format!(
                " @{}={}",
                String::from_utf8_lossy(name),
                String::from_utf8_lossy(value)
            );
            printable(&text)
        })
        .collect();
    if element.children().next().is_none() {
        return writeln!(
            out,
            "{indent}{name}{attributes}: {}",
            printable(&element.text())
        );
    }
    let flat = depth > 1
        && element
            .children()
            .all(|child| child.children().next().is_none() && child.attributes().is_empty());
    if flat {
        let pairs: Vec<String> = element
            .children()
            .map(|child| printable(&format!("{} {}", child.name(), child.text().trim())))
            .collect();
        return writeln!(out, "{indent}{name}{attributes}: {}", pairs.join(", "));
    }
    writeln!(out, "{indent}{name}{attributes}")?;
    element
        .children()
        .try_for_each(|child| write_tree(child, depth + 1, out))
}

/// Deeper elements stay where these stand: hostile metadata shall not fill lines with blanks.
const DEEPEST_INDENT: usize = 20;
