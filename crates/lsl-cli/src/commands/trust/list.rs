//! `lsl trust list`: the entries of the trust file.

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;

use crate::failure::Outcome;
use crate::files::place::PlaceArgs;
use crate::files::trust::{TrustFile, expiry};
use crate::ui::notice::note;
use crate::ui::table::{Align, Table};
use crate::ui::text::printable;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct List {
    #[command(flatten)]
    place: PlaceArgs,

    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  lsl trust list
  lsl trust list --json | jq -r '.[] | select(.role != \"outlet\") | .name'   who may read our streams?";

/// Entry as an element of `--json`.
#[derive(Debug, Serialize)]
struct TrustedDevice {
    name: String,
    role: &'static str,
    fingerprint: String,
    public_key: String,
    not_after: Option<String>,
    /// Whether its last day is over.
    expired: bool,
    from: Vec<String>,
    /// Predicates of its streams; empty: all streams.
    streams: Vec<String>,
    /// Whether it is the key of this machine; null if that is locked by a passphrase.
    this_device: Option<bool>,
}

impl List {
    pub(super) fn run(&self) -> Outcome {
        let place = self.place.find()?;
        let file = TrustFile::read(place.trust_file()?)?;
        let own = place.public_key_if_open();
        let today = file.today();
        let rows: Vec<TrustedDevice> = file
            .list
            .peers()
            .iter()
            .map(|peer| TrustedDevice {
                name: peer.name.clone(),
                role: peer.role.name(),
                fingerprint: peer.key.fingerprint().to_string(),
                public_key: peer.key.to_string(),
                not_after: peer.not_after.map(|day| day.to_string()),
                expired: peer.not_after.is_some_and(|last| last < today),
                from: peer.from.iter().map(ToString::to_string).collect(),
                streams: peer.streams.clone(),
                this_device: own.map(|own| own == peer.key),
            })
            .collect();
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &rows)?;
            writeln!(out)?;
        } else if !rows.is_empty() {
            write_table(&rows, &mut out)?;
        }
        out.flush()?;
        drop(out);
        if rows.is_empty() && !self.json {
            note(format_args!(
                "{}: nobody is trusted yet. On another machine run `lsl key show`, here the line \
                 that it prints.",
                file.path.display()
            ));
        }
        for warning in file
            .list
            .peers()
            .iter()
            .filter_map(|peer| expiry(peer, today))
        {
            note(warning);
        }
        Ok(())
    }
}

fn write_table(rows: &[TrustedDevice], out: &mut impl Write) -> io::Result<()> {
    let columns = [
        "NAME",
        "ROLE",
        "FINGERPRINT",
        "NOT AFTER",
        "FROM",
        "STREAMS",
        "",
    ];
    let mut table = Table::new(&columns.map(|name| (name, Align::Left)));
    for row in rows {
        table.push([
            row.name.as_str(),
            row.role,
            &row.fingerprint,
            row.not_after.as_deref().unwrap_or("-"),
            &if row.from.is_empty() {
                "anywhere".into()
            } else {
                row.from.join(", ")
            },
            &if row.streams.is_empty() {
                "all".into()
            } else {
                printable(&row.streams.join(" or "))
            },
            match (row.expired, row.this_device) {
                (true, _) => "expired",
                (_, Some(true)) => "this device",
                _ => "",
            },
        ]);
    }
    table.write(out, "")
}
