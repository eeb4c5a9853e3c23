//! `lsl verify`: checks that encrypted files can be opened and are whole, and the signatures in
//! recordings.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lsl_core::secure::PublicKey;
use lsl_core::secure::audit::{Audit, Event, EventKind, Span};
use lsl_xdf::at_rest::{self, Options, is_locked};
use lsl_xdf::integrity::{self, Proof};
use serde::Serialize;

use super::report::{Deed, FileReporter, add_passphrase, is_pipe};
use super::signer::{Gathering, Keys};
use crate::failure::{Failure, Outcome};
use crate::files::at_rest_keys::IdentityArgs;
use crate::files::recording::Opener;
use crate::files::security_log;
use crate::interrupt::Stop;
use crate::ui::notice::note;
use crate::ui::text::{count, printable};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Verify {
    /// Encrypted files, and signed recordings
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Also look for signatures in encrypted recordings, and want every file to be signed from begin to
    /// end by a known key
    #[arg(long)]
    signed: bool,

    /// Want the files to be signed by this key, `lsl-ed25519:...` as `lsl key show --public` prints it
    #[arg(long, value_name = "KEY")]
    signer: Option<PublicKey>,

    /// Print one JSON object for each file, a line each
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    identity: IdentityArgs,
}

const EXAMPLES: &str = "\
Examples:
  lsl verify -i key.txt *.xdf.age
  lsl verify -i key.txt --json *.xdf.age | jq -r 'select(.error) | .file'
  lsl verify --signed today.xdf

Writes nothing. Of an encrypted file it proves that the key fits, that nothing is missing at the end,
and that nothing was changed by anybody who could not have made the whole file anew. Everybody a file
is locked to could have. A signed recording proves more: what comes from the holder of a device key,
in this order, and, if it was closed, that nothing is missing. Known keys are this device's and those
of `lsl trust list` whose entries let them record: role inlet or both, not past their last day, and
for these streams. Exit status 1 when a file is cut off, changed, or not what was wanted, or when
streams in a signed recording cannot be read.";

/// One object of `--json` about signatures.
#[derive(Debug, Serialize)]
struct Signed<'a> {
    file: &'a Path,
    result: &'static str,
    bytes: u64,
    /// Bytes from the begin of the XDF file.
    proven_bytes: u64,
    /// Whether the recording was closed.
    closed: bool,
    signer: Option<String>,
    fingerprint: Option<String>,
    public_key: Option<String>,
    /// Begin of the recording, and the sessions of its streams, as it says itself.
    date: Option<String>,
    sessions: Vec<String>,
    error: Option<String>,
}

impl Verify {
    pub(crate) fn run(&self) -> Outcome {
        if is_pipe(&self.files)? {
            return Err(Failure::Usage("verify works on files".into()));
        }
        let mut identities = self.identity.identities()?;
        let (mut encrypted, mut signed) = (Vec::new(), Vec::new());
        let wants_signature = self.signed || self.signer.is_some();
        for file in &self.files {
            let is_encrypted = is_locked(file).unwrap_or(true);
            if is_encrypted {
                encrypted.push(file.clone());
            }
            if wants_signature || !is_encrypted {
                signed.push(file.clone());
            }
        }
        add_passphrase(&mut identities, &encrypted)?;
        let stop = Stop::install()?;
        let cancel = stop.first().clone();
        let mut bad = None;
        if !encrypted.is_empty() {
            let report = FileReporter::new(self.json, Deed::Verify, &encrypted, None);
            let options = Options {
                cancel: Some(&cancel),
                watch: Some(&report),
                ..Options::default()
            };
            let outcomes = at_rest::verify(&encrypted, &identities, &options);
            bad = report.end(&outcomes, &cancel).err();
            signed.retain(|file| {
                outcomes
                    .iter()
                    .all(|outcome| outcome.from != *file || outcome.result.is_ok())
            });
        }
        let keys = Keys::find(self.signer);
        let audit = (!signed.is_empty()).then(security_log::found).flatten();
        let mut opener = Opener::with(identities, stop);
        let mut unproven = 0;
        for (index, file) in signed.iter().enumerate() {
            opener.check_stop(index, signed.len())?;
            if !self.signature(file, &keys, &mut opener, audit.as_ref())? {
                unproven += 1;
            }
        }
        match (bad, unproven) {
            (Some(failure), _) => Err(failure),
            (None, 0) => Ok(()),
            (None, unproven) => Err(Failure::Runtime(format!(
                "{unproven} of {} not proven",
                count(signed.len(), "file")
            ))),
        }
    }

    /// Reports the proof by the signatures in a file. Returns whether it is the wanted one.
    fn signature(
        &self,
        file: &Path,
        keys: &Keys,
        opener: &mut Opener,
        audit: Option<&Audit>,
    ) -> Outcome<bool> {
        let mut source = Gathering::new(opener.open(file, "Verifying")?);
        let proof = integrity::verify(&mut source, |key, message, signature| {
            PublicKey::from_bytes(*key)
                .is_ok_and(|key| key.has_signed_recording(message, signature))
        });
        let proof = match proof {
            Ok(proof) => proof,
            Err(error) => {
                let failure = Failure::from(error).context(&file.display().to_string());
                if self.files.len() == 1 {
                    return Err(failure);
                }
                note(format_args!("lsl: {failure}"));
                return Ok(false);
            }
        };
        let (source, content) = source.end();
        source.end_progress();
        let key = proof.key.and_then(|key| PublicKey::from_bytes(key).ok());
        let judged = key.as_ref().map(|key| keys.judge(key, &content));
        let (name, of_key) = judged.map_or((None, None), |it| (it.name, it.trouble));
        let doubt = content.doubt.as_deref().map(printable);
        let error = trouble(&proof, key.is_some()).or(of_key).or(doubt);
        if let Some(audit) = audit {
            audit.record(event(
                file,
                &proof,
                key.as_ref(),
                name.as_deref(),
                error.as_deref(),
            ));
        }
        let mut out = io::stdout().lock();
        if self.json {
            let line = Signed {
                file,
                result: if error.is_none() { "signed" } else { "failed" },
                bytes: proof.len,
                proven_bytes: proof.proven_bytes,
                closed: proof.is_closed,
                signer: name.clone(),
                fingerprint: key.map(|key| key.fingerprint().to_string()),
                public_key: key.map(|key| key.to_string()),
                date: content.date.clone(),
                sessions: content.sessions(),
                error: error.clone(),
            };
            serde_json::to_writer(&mut out, &line)?;
            writeln!(out)?;
        } else {
            let path = printable(&file.display().to_string());
            let by = key.map(|key| {
                let name = name.map_or_else(|| "an unknown key".into(), |name| printable(&name));
                format!("{name}, {}", key.fingerprint())
            });
            match (&error, by) {
                (None, by) => {
                    writeln!(
                        out,
                        "{path}: signed by {}; all {} bytes are as they were recorded",
                        by.unwrap_or_default(),
                        proof.len
                    )?;
                    let date = content
                        .date
                        .as_deref()
                        .map_or_else(|| "-".into(), printable);
                    let sessions = match content.sessions() {
                        none if none.is_empty() => "-".into(),
                        some => printable(&some.join(", ")),
                    };
                    writeln!(out, "  recorded {date}, session {sessions}")?;
                }
                (Some(error), Some(by)) => {
                    writeln!(out, "{path}: NOT PROVEN: {error}")?;
                    writeln!(
                        out,
                        "  signed by {by}: the first {} of {} bytes",
                        proof.proven_bytes, proof.len
                    )?;
                }
                (Some(error), None) => writeln!(out, "{path}: NOT PROVEN: {error}")?,
            }
        }
        out.flush()?;
        Ok(error.is_none())
    }
}

/// Returns what auditors are told: whose signatures a file has, and how far they vouch for it.
fn event(
    file: &Path,
    proof: &Proof,
    key: Option<&PublicKey>,
    name: Option<&str>,
    error: Option<&str>,
) -> Event {
    let file = file.display();
    let mut event = match error {
        None => Event::new(EventKind::FileVerified).detail(file.to_string()),
        Some(error) => {
            Event::new(EventKind::FileFailed).detail(format!("not proven: {error}: {file}"))
        }
    };
    // Without a good signature key and name are claims.
    if proof.proven_bytes > 0 {
        if let Some(key) = key {
            event = event.peer(key.fingerprint());
        }
        if let Some(name) = name {
            event = event.peer_name(name);
        }
    }
    event
        .span(Span::begin())
        .with("operation", "verify")
        .with("format", "xdf")
        .with("bytes", proof.len)
        .with("proven_bytes", proof.proven_bytes)
        .with("closed", proof.is_closed)
}

/// Returns the reason why a file is not proven to be as it was recorded.
fn trouble(proof: &Proof, has_key: bool) -> Option<String> {
    if proof.key.is_none() {
        return Some("nobody signed it".into());
    }
    if let Some(broken) = proof.broken {
        return Some(format!("the link at byte {}: {}", broken.at, broken.reason));
    }
    if !has_key {
        return Some("what signed it is no usable key".into());
    }
    if !proof.is_closed {
        return Some("the recording was not closed: the end may be missing".into());
    }
    if proof.proven_bytes < proof.len {
        return Some("something was added at its end".into());
    }
    None
}
