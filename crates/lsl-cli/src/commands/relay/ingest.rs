//! `lsl relay ingest`: takes streams of River from Redis into files of Apache Parquet. Spec: relay §12.2.

mod stream;
mod table;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;

use clap::Args;
use lsl_core::local_clock;
use lsl_platform::disk::try_lock;
use lsl_relay::config::{Config, EngineConfig};
use lsl_relay::engine::Address;
use lsl_relay::engine::river::Pattern;
use lsl_relay::shell::RiverClient;

use super::{find, read};
use crate::failure::{Failure, Outcome};
use crate::globals::Globals;
use crate::interrupt::Stop;
use crate::ui::notice::note;
use crate::ui::text::printable;
use stream::{Ingest, Stage};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct IngestStreams {
    /// Server with the streams [default: that of [engine] in the file]
    #[arg(long, value_name = "URL")]
    engine: Option<String>,

    /// Folder with a folder for each stream
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,

    /// Streams to take, by their whole names
    #[arg(long, value_name = "REGEX", default_value = ".*")]
    river: Pattern,

    /// Take what is there, and end
    #[arg(long)]
    once: bool,

    /// Leave everything in Redis
    #[arg(long)]
    keep: bool,

    /// File with [engine], for its password_file and ca_file [default: as lsl relay]
    #[arg(long = "relay-config", value_name = "FILE")]
    rules: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  lsl relay ingest --engine redis://redis.lan --output /data/river
  lsl relay ingest --engine redis://redis.lan --output /data/river --river 'lsl\\.lab\\..*' --once

Each stream becomes DIR/NAME/data.parquet once it has ended, and files data_0000000000.parquet and on until then: every
10 min, or 64 MiB. The columns are sample_index, key, timestamp_ms and the fields of the stream, compressed by Snappy;
metadata.json has what its writer says. What is in files is removed from Redis after a minute, and a stream that nobody
writes is ended after 5 min, unless --keep is given. Interrupted, it goes on where it was.

Do not run River's own ingester on the same streams.";

impl IngestStreams {
    pub(super) fn run(&self, globals: &Globals) -> Outcome {
        let client = RiverClient::new(&self.config(globals)?);
        let client = client.map_err(|error| Failure::Runtime(error.to_string()))?;
        let stop = Stop::install()?;
        let _lock = self.claim()?;
        let mut streams = Streams::default();
        let mut looked_at = f64::NEG_INFINITY;
        while !stop.requested() {
            let now = local_clock();
            let is_due = now - looked_at >= LOOK_SECS;
            if is_due {
                looked_at = now;
                if let Err(failure) = self.look(&client, &mut streams) {
                    if self.once {
                        return Err(failure);
                    }
                    tracing::warn!("{failure}; tried again");
                }
            }
            let has_come = streams.step(&client, false, self.once)?;
            if is_due && !self.keep {
                streams.tidy(&client);
            }
            if self.once && !has_come {
                return streams.finish(&client);
            }
            if !has_come {
                stop.sleep_until(local_clock() + NAP_SECS);
            }
        }
        streams.finish(&client)
    }

    /// Makes the folder, and keeps others who write tables out of it for as long as the file is held: each removes
    /// from the server what it has written.
    fn claim(&self) -> Outcome<File> {
        let shown = self.output.display().to_string();
        let failed = |error: std::io::Error| Failure::from(error).context(&shown);
        fs::create_dir_all(&self.output).map_err(failed)?;
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        let lock = options.open(self.output.join(LOCK)).map_err(failed)?;
        let taken = |_| Failure::Runtime(format!("another lsl relay ingest writes to {shown}"));
        try_lock(&lock, true).map_err(taken)?;
        Ok(lock)
    }

    fn config(&self, globals: &Globals) -> Outcome<EngineConfig> {
        let file = self.rules.clone().or_else(find);
        let trust = globals.context()?.security()?.trust();
        let config = Config::parse(&read(file.as_deref())?, &trust);
        let config = config.map_err(|error| Failure::Usage(error.to_string()))?;
        let address = self.engine.as_deref().map(Address::parse).transpose();
        match (config.engine, address.map_err(Failure::Usage)?) {
            (Some(engine), None) => Ok(engine),
            (Some(engine), Some(address)) => Ok(EngineConfig { address, ..engine }),
            (None, Some(address)) => Ok(EngineConfig::new(address)),
            (None, None) => {
                let text = "which server? --engine redis://HOST, or [engine] in lsl-relay.toml";
                Err(Failure::Usage(text.to_owned()))
            }
        }
    }

    /// Looks for streams that are not known yet.
    fn look(&self, client: &RiverClient, streams: &mut Streams) -> Outcome {
        let names = client
            .names()
            .map_err(|error| Failure::Lost(error.to_string()))?;
        for name in names.iter().filter(|name| self.river.matches(name)) {
            if streams.open.contains_key(name) || !streams.may_try(name) {
                continue;
            }
            let shown = printable(name);
            let is_tame = !name.starts_with('.') && !name.contains(['/', '\\', '\0', ':']);
            let opened = if is_tame {
                Ingest::open(client, self.output.join(name), name)
            } else {
                Err(Failure::Runtime("no folder can have this name".to_owned()))
            };
            match opened {
                Ok(Some(ingest)) => {
                    note(format_args!("{shown}: begins"));
                    streams.refused.remove(name);
                    streams.open.insert(name.clone(), ingest);
                }
                Ok(None) => {}
                Err(failure @ Failure::Lost(_)) => return Err(failure),
                Err(failure) => streams.refuse(name, &failure),
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Streams {
    open: BTreeMap<String, Ingest>,
    /// What cannot be taken as yet.
    refused: BTreeMap<String, Refusal>,
}

/// Why a stream cannot be taken, which was said, and when it is tried again.
struct Refusal {
    reason: String,
    secs: f64,
    until: f64,
}

impl Streams {
    /// Has each read what is there. Returns whether something came.
    fn step(&mut self, client: &RiverClient, all: bool, once: bool) -> Outcome<bool> {
        let (mut has_come, mut wrong) = (false, Vec::new());
        let mut waiting: usize = self.open.values().map(|ingest| ingest.bytes).sum();
        let share = MOST_BYTES / self.open.len().max(1);
        for (name, ingest) in &mut self.open {
            let was_open = ingest.stage == Stage::Open;
            waiting = waiting.saturating_sub(ingest.bytes);
            let room = MOST_BYTES.saturating_sub(waiting).max(share);
            match ingest.step(client, all, room) {
                Ok(came) => has_come |= came,
                Err(Failure::Lost(text)) if once => return Err(Failure::Lost(text)),
                Err(Failure::Lost(text)) => tracing::warn!("{text}; tried again"),
                // A full disk, say: everything is still in Redis.
                Err(failure) => wrong.push((name.clone(), failure)),
            }
            waiting += ingest.bytes;
            if was_open && ingest.stage == Stage::Complete {
                note(format_args!("{}: complete", printable(name)));
            }
        }
        for (name, failure) in wrong {
            self.open.remove(&name);
            self.refuse(&name, &failure);
        }
        Ok(has_come)
    }

    fn tidy(&mut self, client: &RiverClient) {
        self.open
            .retain(|_, ingest| match ingest.tidy(client, STALE_SECS) {
                Ok(is_removed) => !is_removed,
                Err(failure) => {
                    tracing::warn!("{failure}; tried again");
                    true
                }
            });
    }

    /// Writes what waits.
    fn finish(&mut self, client: &RiverClient) -> Outcome {
        // Whether there still is a server or not, and whatever came of another one.
        let flushed: Vec<_> = self.open.values_mut().map(Ingest::flush).collect();
        flushed.into_iter().collect::<Outcome>()?;
        self.step(client, true, true)?;
        match self.refused.len() {
            0 => Ok(()),
            count => Err(Failure::Runtime(format!(
                "{count} streams could not be taken"
            ))),
        }
    }

    fn refuse(&mut self, name: &str, failure: &Failure) {
        let (reason, now) = (failure.to_string(), local_clock());
        let before = self.refused.remove(name);
        let before = before.filter(|before| before.reason == reason);
        if before.is_none() {
            tracing::error!("{}: {reason}; tried again", printable(name));
        }
        let secs = before.map_or(REFUSED_SECS.0, |it| REFUSED_SECS.1.min(it.secs * 2.0));
        let until = now + secs;
        let refusal = Refusal {
            reason,
            secs,
            until,
        };
        self.refused.insert(name.to_owned(), refusal);
    }

    /// Whether it is time to try a stream.
    fn may_try(&self, name: &str) -> bool {
        let refused = self.refused.get(name);
        refused.is_none_or(|refused| local_clock() >= refused.until)
    }
}

/// Bytes of rows that wait in memory, of all streams.
const MOST_BYTES: usize = 256 << 20;

/// File that is locked for as long as tables are written here.
const LOCK: &str = ".lsl.lock";

/// Time in seconds between looks for streams, and for what can be removed.
const LOOK_SECS: f64 = 2.0;

/// Time in seconds until a stream that could not be taken is tried again, as a disk may have room then: at first, and at
/// most.
const REFUSED_SECS: (f64, f64) = (2.0, 60.0);

/// Time in seconds between looks for samples while none come.
const NAP_SECS: f64 = 0.2;

/// Time in seconds after which a stream that nobody writes is ended.
const STALE_SECS: f64 = 300.0;
