//! `lsl record`: streams into a file that survives.
//!
//! `lsl_record` does the recording. Here are the options (`plan`), messages (`events`, `messages`),
//! the display (`display`, `screen`) and the exit status (`running`); `control` is a recorder under
//! remote control. Spec: recorder §3.

mod control;
mod display;
mod events;
mod messages;
mod naming;
mod plan;
mod resume;
mod running;
mod screen;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lsl_core::{Context, History, local_clock};
use lsl_platform::exit::leave;
use lsl_record::rcs::{self, Gate, ListenError, TokenError};
use lsl_record::template::{self, BIDS, Fields, TemplateError};
use lsl_record::{Events, OtherKeys, PADDING_SECS, Stamps};

use self::control::Control;
use self::events::Reporter;
use self::naming::Naming;
use self::plan::{Plan, Wishes, selector, signer};
use self::resume::Resume;
use self::running::Running;
use crate::failure::{Failure, Outcome};
use crate::files::at_rest_keys::RecipientArgs;
use crate::interrupt::Stop;
use crate::streams::select::{past, seconds, since};
use crate::ui::notice::note;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Record {
    /// Streams to record: names, KEY=VALUE or XPath predicates; without any, all of the session
    #[arg(value_name = "STREAM")]
    streams: Vec<String>,

    /// File to write, or a template: %p participant, %s session, %b task, %a acquisition, %m modality,
    /// %r run; [...] is left out if a value in it is missing [default: a BIDS layout]
    #[arg(long, short, value_name = "FILE")]
    output: Option<String>,

    /// Folder in which a template begins
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,

    /// This stream must be there at the start, else nothing is recorded; may be repeated
    #[arg(long, value_name = "STREAM")]
    require: Vec<String>,

    /// Record this stream when it comes, now or later; may be repeated
    #[arg(long, value_name = "STREAM")]
    watch: Vec<String>,

    /// Leave out streams that appear after the start
    #[arg(long)]
    only_now: bool,

    /// Begin each stream with what happened before, so far back: 10s, 5min, 1h or all. Outlets of lsl-rs
    /// have as much as their RetainSeconds says
    #[arg(long, value_name = "PAST", value_parser = past)]
    history: Option<History>,

    /// Begin each stream so long ago, as 30s or 10min, at a time, as 2026-11-22T08:31:56Z, or with all there is:
    /// start. Relays that keep a history have that; of streams that are over, too
    #[arg(long, value_name = "WHEN", value_parser = since, conflicts_with = "history")]
    since: Option<History>,

    /// End after this many seconds
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    duration: Option<f64>,

    /// Seconds to wait for streams to show up and to answer
    #[arg(long, value_name = "SECS", default_value = "5", value_parser = seconds)]
    timeout: f64,

    /// Write timestamps on the clock of this machine, and smoothed, instead of those of the senders with
    /// the offsets of their clocks. For readers that cannot align streams: it cannot be undone, and knows
    /// less than whoever has the whole recording
    #[arg(long)]
    online_sync: bool,

    /// Print JSON lines, as when the output is no terminal
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    fields: FieldArgs,

    #[command(flatten)]
    safety: SafetyArgs,

    #[command(flatten)]
    proof: ProofArgs,

    #[command(flatten)]
    lock: RecipientArgs,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Options about the integrity and authorship of the file.
#[derive(Debug, Args)]
#[command(next_help_heading = "Proofs")]
struct ProofArgs {
    /// Sign with the key of this device, again and again while the file grows: `lsl verify` says whose
    /// recording it is, and whether anything was changed, moved or left out
    #[arg(long)]
    sign: bool,

    /// Write nothing but the chunks that XDF 1.0 names, for readers that do not skip others. Of an
    /// encrypted recording of slow streams a crash then takes more: up to 64 KiB, however long ago
    #[arg(long, conflicts_with = "sign")]
    no_private_chunks: bool,
}

/// Being started and stopped by others.
#[derive(Debug, Args)]
#[command(next_help_heading = "Remote control")]
struct RemoteArgs {
    /// Wait for commands of LabRecorder's remote control, at this address [default: 127.0.0.1:22345]
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true,
          default_missing_value = "127.0.0.1:22345")]
    rcs: Option<String>,

    /// Its first line must come as `auth TOKEN` before any command but `status`; needed where others can
    /// connect [default: ~/.config/lsl/rcs-token, which is made]
    #[arg(long, value_name = "FILE", requires = "rcs")]
    rcs_token_file: Option<PathBuf>,

    /// Obey whoever is on this machine, without a token, as LabRecorder does: also its other users and
    /// what runs in its containers
    #[arg(long, requires = "rcs", conflicts_with = "rcs_token_file")]
    rcs_open: bool,

    /// Let `start` take every stream of the network when nothing is selected, as LabRecorder does
    #[arg(long, requires = "rcs")]
    rcs_start_selects_all: bool,
}

/// Values for the placeholders of templates.
#[derive(Debug, Args)]
#[command(next_help_heading = "Values of templates")]
struct FieldArgs {
    /// %p
    #[arg(long, value_name = "TEXT", default_value = "P001")]
    participant: String,

    /// %s (--session is that of LSL)
    #[arg(long, value_name = "TEXT", default_value = "S001")]
    visit: String,

    /// %b
    #[arg(long, value_name = "TEXT", default_value = "Default")]
    task: String,

    /// %a
    #[arg(long, value_name = "TEXT", default_value = "")]
    acquisition: String,

    /// %m
    #[arg(long, value_name = "TEXT", default_value = "eeg")]
    modality: String,

    /// %r [default: the first that is free]
    #[arg(long, value_name = "N")]
    run: Option<u32>,
}

/// Options against the loss of data.
#[derive(Debug, Args)]
#[command(next_help_heading = "Safety")]
struct SafetyArgs {
    /// Bring data to the disk this often, so that a loss of power costs no more
    #[arg(long, value_name = "SECS", default_value = "1", value_parser = seconds)]
    sync: f64,

    /// Seconds of samples that may wait in memory while the disk is slow or full
    #[arg(long, value_name = "SECS", default_value = "30", value_parser = seconds)]
    buffer: f64,

    /// Existing folder on another disk: the recording goes on there when less than --min-free is left here, or
    /// this disk fails
    #[arg(long, value_name = "DIR")]
    spill_dir: Option<PathBuf>,

    /// Repair what a crash left under the name of the file, before it is renamed; asks on a terminal
    #[arg(long)]
    resume: bool,

    /// Let an encrypted stream go on with another trusted key than it began with, as when its device
    /// changes keys. Otherwise that is refused, and stands in the footer
    #[arg(long)]
    allow_key_change: bool,

    /// Warn when less than this is free
    #[arg(long, value_name = "BYTES", default_value = "500M", value_parser = display::parse_size)]
    min_free: u64,
}

const EXAMPLES: &str = "\
Examples:
  lsl record -o today.xdf                              everything there is, until Ctrl-C
  lsl record BioSemi type=Markers -o sub1.xdf --duration 600
  lsl record --require type=EEG --watch type=Markers -o run.xdf
  lsl record --history 30s -o today.xdf                what happened before the start, too
  lsl record --since 10min -o today.xdf                the same, from a relay that keeps a history
  lsl record --participant P003 --task rest            sub-P003/ses-S001/eeg/sub-P003_..._eeg.xdf
  lsl record -o 'exp%n/%p_%b.xdf' --root /data         LabRecorder's templates
  lsl record -r age1... -o sub1.xdf.age                encrypted on its way to the disk
  lsl record --sign -o sub1.xdf                        `lsl verify` proves that it is as recorded
  lsl record --rcs --root /data                        wait for `select all`, `start`, `stop`

XDF files, as LabRecorder writes them: pyxdf, EEGLAB and MNE read them. A file is never overwritten,
the one before is renamed to _old1. Timestamps are those of the senders, with the offsets of their
clocks beside them. The file is whole at any time but for its last moments, also after a crash or a
loss of power: `lsl xdf repair`, or --resume the next time, gives it its end. Streams that go and come back go on under
their number; what is missing is counted, and stands in the footer.

--rcs takes LabRecorder's commands (select all|none, start, stop, update, filename {root:..}
{template:..} {participant:..} {session:..} {task:..} {run:..} {acquisition:..} {modality:..}) and
answers OK; besides them select STREAM, status, streams, mark TEXT and quit, which answer with JSON.
`auth TOKEN` comes before anything but status; the token is the first line of ~/.config/lsl/rcs-token,
which is made the first time. --rcs-open needs none, for programs that know LabRecorder only. Files
that clients name lie below --root, are not hidden, end in .xdf, and replace nothing but recordings.

The first Ctrl-C (or SIGTERM) ends with everything up to that moment, 2 s at the longest; the second
with what is here; the third at once, and the file has to be repaired.
Exit status: 0 nothing failed, interruptions that ended stand in the footers; 2 a stream was missing at
the start (or wrong usage); 3 a stream was lost and did not come back; 4 the disk failed or was too
slow; 5 encryption does not allow it; 130 stopped before it began.";

impl Record {
    /// Records, and waits shortly for the last messages to be written.
    pub(crate) fn run(&self, context: &Context) -> Outcome {
        let outcome = self.record(context);
        if !messages::flush() {
            // The reader of the messages is stuck: waiting for it would take for ever.
            leave(outcome.map_or_else(|failure| failure.status().into(), |()| 0));
        }
        outcome
    }

    fn record(&self, context: &Context) -> Outcome {
        if self.since.is_some() {
            context.include_past();
        }
        let wishes = self.wishes()?;
        let plan = self.plan()?;
        if let Some(address) = &self.remote.rcs {
            return self.obey(context, plan, wishes, address);
        }
        let path = plan.name(self.path()?);
        resume::look_at(&path, plan.resume)?;
        let stop = Stop::install_patient(2)?;
        let reporter = Reporter {
            context,
            plan: &plan,
            events: &Events::default(),
        };
        let Some(mut running) = Running::begin(reporter, &wishes, path, &stop)? else {
            return Err(Failure::Recording(
                STOPPED,
                "stopped before it began; nothing was recorded".into(),
            ));
        };
        while running.step() && stop.sleep_until(local_clock() + STEP_SECS) {}
        running.end(&stop)
    }

    /// Records under remote control at `address`.
    fn obey(&self, context: &Context, mut plan: Plan, wishes: Wishes, address: &str) -> Outcome {
        let gate = match &self.remote.rcs_token_file {
            _ if self.remote.rcs_open => Gate::Open,
            Some(file) => Gate::chosen(file).map_err(no_token)?,
            None => Gate::own().map_err(no_token)?,
        };
        let how = match &gate {
            Gate::Open => "obeys WHOEVER is on this machine (--rcs-open)".to_owned(),
            Gate::Token { file, .. } => {
                format!("`auth TOKEN` comes first, from {}", file.display())
            }
        };
        let template = self.output.as_deref().unwrap_or(BIDS).to_owned();
        let naming = Naming {
            allowed: self.root.clone(),
            root: self.root.clone(),
            template,
            fields: self.fields(),
        };
        // Reports a bad name now: a client would learn of it too late.
        naming.file()?;
        if plan.resume == Resume::Ask {
            // There is no terminal for a question.
            plan.resume = Resume::Repair;
        }
        let events = Events::default();
        let listening = rcs::listen(address, gate, &events).map_err(|error| not_listening(&error));
        let (address, requests) = listening?;
        let stop = Stop::install_patient(2)?;
        note(format_args!(
            "Waiting for commands at {address}; {how}; recordings go into {}. Ctrl-C ends.",
            self.root.display()
        ));
        let control = Control {
            reporter: Reporter {
                context,
                plan: &plan,
                events: &events,
            },
            naming,
            selected: wishes,
            start_selects_all: self.remote.rcs_start_selects_all,
            running: None,
            last_error: None,
            worst: None,
        };
        control.run(&requests, &stop)
    }

    fn wishes(&self) -> Outcome<Wishes> {
        let wishes = Wishes {
            wanted: self.streams.clone(),
            required: self.require.clone(),
            watched: self.watch.clone(),
            only_now: self.only_now,
        };
        let all = [&wishes.wanted, &wishes.required, &wishes.watched];
        all.into_iter()
            .flatten()
            .try_for_each(|text| selector(text).map(drop))?;
        Ok(wishes)
    }

    fn fields(&self) -> Fields {
        let fields = &self.fields;
        Fields {
            participant: fields.participant.clone(),
            session: fields.visit.clone(),
            task: fields.task.clone(),
            acquisition: fields.acquisition.clone(),
            modality: fields.modality.clone(),
            run: fields.run,
        }
    }

    /// Returns the path of the recording, with its template expanded.
    fn path(&self) -> Outcome<PathBuf> {
        match self.output.as_deref() {
            Some("") => Err(Failure::Usage("--output is empty; name a file".into())),
            Some(name) if !template::is_template(name) => Ok(plain(&self.root, name)),
            name => {
                let template = name.unwrap_or(BIDS);
                Ok(template::expand(template, &self.fields(), &self.root)?)
            }
        }
    }

    fn plan(&self) -> Outcome<Plan> {
        Ok(Plan {
            timeout_secs: self.timeout,
            duration_secs: self.duration,
            history: self.history.or(self.since).unwrap_or_default(),
            sync_secs: self.safety.sync,
            buffer_secs: self.safety.buffer,
            min_free: self.safety.min_free,
            spill: self.safety.spill_dir.clone(),
            json: self.json,
            resume: if self.safety.resume {
                Resume::Ask
            } else {
                Resume::Tell
            },
            other_keys: if self.safety.allow_key_change {
                OtherKeys::Allow
            } else {
                OtherKeys::Refuse
            },
            stamps: if self.online_sync {
                Stamps::Synced
            } else {
                Stamps::Raw
            },
            recipients: self.lock.recipients()?.map(Arc::new),
            signer: self.proof.sign.then(signer).transpose()?,
            padding_secs: (!self.proof.no_private_chunks).then_some(PADDING_SECS),
        })
    }
}

/// A name without placeholders is a path like any other.
fn plain(root: &Path, name: &str) -> PathBuf {
    if root == Path::new(".") {
        PathBuf::from(name)
    } else {
        root.join(name)
    }
}

fn no_token(error: TokenError) -> Failure {
    match error {
        TokenError::NoHome => Failure::Usage(
            "--rcs: there is no home directory for the file of its token; name one with \
             --rcs-token-file FILE, or let everybody on this machine in with --rcs-open"
                .into(),
        ),
        TokenError::TooShort(_) => Failure::Usage(error.to_string()),
        TokenError::Folder { .. } | TokenError::NotMade(_) => {
            Failure::Runtime(error.to_string()).context("the token of --rcs")
        }
        TokenError::NotRead(error) => error.into(),
    }
}

fn not_listening(error: &ListenError) -> Failure {
    match error {
        ListenError::Bind { .. } => Failure::Runtime(format!("--rcs {error}")),
        ListenError::OpenToOthers(_) => Failure::Usage(format!(
            "--rcs {error}; set --rcs-token-file, or stay on 127.0.0.1 and use `ssh -L`"
        )),
        ListenError::Threads(_) => Failure::Runtime(error.to_string()),
    }
}

impl From<TemplateError> for Failure {
    fn from(error: TemplateError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// Exit status that shells report after Ctrl-C.
const STOPPED: u8 = 130;
const STEP_SECS: f64 = 0.1;
