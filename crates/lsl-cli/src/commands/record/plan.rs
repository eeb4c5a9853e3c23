//! Options of the command line: the streams to record, and the way to do it.

use std::path::PathBuf;
use std::sync::Arc;

use lsl_core::{Context, History, Selector};
use lsl_record::{DeviceSigner, Events, OtherKeys, Output, Recorder, RecorderBuilder, Stamps};
use lsl_xdf::at_rest::{Recipients, locked_name};

use super::resume::Resume;
use crate::failure::{Failure, Outcome};
use crate::files::place::SecurityConfig;
use crate::streams::select::Wanted;

/// Options of a recording, checked.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) timeout_secs: f64,
    pub(super) duration_secs: Option<f64>,
    /// Past with which each stream begins.
    pub(super) history: History,
    pub(super) sync_secs: f64,
    pub(super) buffer_secs: f64,
    pub(super) min_free: u64,
    pub(super) spill: Option<PathBuf>,
    pub(super) json: bool,
    pub(super) resume: Resume,
    pub(super) stamps: Stamps,
    pub(super) other_keys: OtherKeys,
    /// Recipients that can open the files; `None` records in plaintext.
    pub(super) recipients: Option<Arc<Recipients>>,
    /// Time that encrypted data may wait for its block to become full; `None` for as long as it
    /// takes.
    pub(super) padding_secs: Option<f64>,
    /// Signer of the files, if there is one.
    pub(super) signer: Option<DeviceSigner>,
}

impl Plan {
    /// Returns the name of a file: encrypted ones end in `.age`.
    pub(super) fn name(&self, path: PathBuf) -> PathBuf {
        let is_named = path
            .extension()
            .is_some_and(|it| it.eq_ignore_ascii_case("age"));
        if self.recipients.is_none() || is_named {
            return path;
        }
        locked_name(&path)
    }

    /// The recorder of a file.
    pub(super) fn recorder(
        &self,
        context: &Context,
        wishes: &Wishes,
        path: PathBuf,
        events: &Events,
    ) -> Outcome<RecorderBuilder> {
        let mut output = Output::new(path);
        output.recipients.clone_from(&self.recipients);
        output.padding_secs = self.padding_secs;
        let mut recorder = Recorder::builder(context, output)
            .events(events)
            .only_now(wishes.only_now)
            .duration(self.duration_secs)
            .history(self.history)
            .timestamps(self.stamps)
            .other_keys(self.other_keys)
            .sync_every(self.sync_secs)
            .buffer(self.buffer_secs)
            .spill_dir(self.spill.clone())
            .min_free(self.min_free)
            .signer(self.signer.clone());
        for text in &wishes.required {
            recorder = recorder.require(text, selector(text)?);
        }
        for text in &wishes.wanted {
            recorder = recorder.record(text, selector(text)?);
        }
        for text in &wishes.watched {
            recorder = recorder.watch(text, selector(text)?);
        }
        Ok(recorder)
    }
}

/// Streams that are asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Wishes {
    /// Streams to record; without any wish at all everything.
    pub(super) wanted: Vec<String>,
    /// Streams that must be there at the start.
    pub(super) required: Vec<String>,
    /// Streams that may be absent at the start.
    pub(super) watched: Vec<String>,
    /// Whether streams that appear later are left out.
    pub(super) only_now: bool,
}

impl Wishes {
    /// Whether nothing is asked for.
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.required.is_empty() && self.watched.is_empty()
    }
}

/// Converts a wish into a selector for the network.
pub(super) fn selector(text: &str) -> Outcome<Selector> {
    if text == EVERYTHING {
        return Ok(Selector::all());
    }
    Wanted::parse(text)?.selector()
}

/// The key of this machine, to sign with.
pub(super) fn signer() -> Outcome<DeviceSigner> {
    let key = SecurityConfig::find(None).and_then(|place| place.key());
    let key = key.map_err(|failure| {
        let text = failure.to_string();
        let hint = if text.contains("lsl key init") {
            ""
        } else {
            "\nA machine that has no device key gets one by: lsl key init --name NAME"
        };
        Failure::Runtime(format!("--sign needs the key of this device: {text}{hint}"))
    })?;
    Ok(DeviceSigner::new(key))
}

/// Asks for every stream of the session.
pub(super) const EVERYTHING: &str = "*";
