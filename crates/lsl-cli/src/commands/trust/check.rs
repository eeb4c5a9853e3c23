//! `lsl trust check`: opens a session with every visible outlet, and reports refusals.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use clap::Args;
use lsl_core::secure::trust::TrustList;
use lsl_core::secure::{Cause, Error, Local, Policy, PublicKey, Role, Security, policy};
use lsl_core::{Context, Selector, StreamInfo};
use lsl_platform::remedy;
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::files::device::check_name;
use crate::files::place::PlaceArgs;
use crate::globals::Globals;
use crate::streams::describe::Described;
use crate::streams::not_found;
use crate::streams::probe::{self, Checked, Finding};
use crate::streams::select::seconds;
use crate::ui::notice::note;
use crate::ui::text;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Check {
    /// Print a JSON array
    #[arg(long)]
    json: bool,

    /// Seconds to look for outlets
    #[arg(long, value_name = "SECS", default_value = "1.5", value_parser = seconds)]
    timeout: f64,

    #[command(flatten)]
    place: PlaceArgs,
}

const EXAMPLES: &str = "\
Examples:
  lsl trust check
  lsl trust check --json | jq '.[] | select(.result != \"ok\")'
  lsl trust check --dir /etc/lsl_api     with the key of the whole machine

Reads nothing of the streams. Run it where you will record. Exit status 1 if this machine or an outlet
refuses, or an outlet does not answer; 3 if there are no outlets.";

/// Result for one stream: an element of `--json`.
#[derive(Debug, Serialize)]
struct CheckedStream {
    name: String,
    hostname: String,
    uid: String,
    address: String,
    result: Verdict,
    /// The outlet's key, if it got so far as to prove it.
    fingerprint: Option<String>,
    /// Our name for the outlet's device.
    peer_name: Option<String>,
    cipher: Option<&'static str>,
    /// Name of the cause, as in the audit log.
    cause: Option<&'static str>,
    /// Explanation of the trouble, with advice.
    text: Option<String>,
}

/// Verdict on a stream, by the side that refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    /// The outlet offers no encryption; not an error, but required policies do not read it.
    Plaintext,
    RefusedHere,
    RefusedThere,
    /// The handshake failed: no agreement, no answer, or an attack.
    Failed,
}

impl Check {
    pub(super) fn run(&self, globals: &Globals) -> Outcome {
        let context = globals.context_in(self.place.directory())?;
        let security = context.security()?;
        let Some(local) = security.local() else {
            return Err(Failure::Runtime(
                "this machine has no key, there is nothing to check.\nRun: lsl key init --name NAME"
                    .into(),
            ));
        };
        let timeout = Duration::from_secs_f64(self.timeout);
        let mut found = context.resolve_blocking(&Selector::all(), 0, timeout)?;
        if found.is_empty() {
            if self.json {
                writeln!(io::stdout().lock(), "[]")?;
            }
            return Err(Failure::NotFound(format!(
                "no stream answered within {} s, so nothing was checked; start the senders first\n{}",
                self.timeout,
                not_found::explain(&context, None)
            )));
        }
        found.sort_by(|a, b| (a.name_bytes(), a.uid_bytes()).cmp(&(b.name_bytes(), b.uid_bytes())));
        if !self.json && security.policy() == Policy::Off {
            note("The policy of this machine is 'off': its programs do not encrypt yet.");
        }
        let rows = check_all(&context, security, local, &found);
        self.report(&rows)
    }

    fn report(&self, rows: &[CheckedStream]) -> Outcome {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, rows)?;
            writeln!(out)?;
        } else {
            for row in rows {
                write_row(row, &mut out)?;
            }
        }
        out.flush()?;
        drop(out);
        let number =
            |wanted: fn(Verdict) -> bool| rows.iter().filter(|row| wanted(row.result)).count();
        let bad = number(|verdict| !matches!(verdict, Verdict::Ok | Verdict::Plaintext));
        if bad > 0 {
            return Err(Failure::Runtime(format!(
                "{bad} of {} cannot be read encrypted",
                text::count(rows.len(), "stream")
            )));
        }
        if !self.json {
            note(format_args!(
                "{} encrypted and in order, {} plaintext.",
                text::count(number(|verdict| verdict == Verdict::Ok), "stream"),
                number(|verdict| verdict == Verdict::Plaintext)
            ));
        }
        Ok(())
    }
}

fn write_row(row: &CheckedStream, out: &mut impl Write) -> io::Result<()> {
    let mark = match row.result {
        Verdict::Ok => "ok       ",
        Verdict::Plaintext => "plaintext",
        Verdict::RefusedHere | Verdict::RefusedThere => "REFUSED  ",
        Verdict::Failed => "FAILED   ",
    };
    let name = text::printable(&row.name);
    let host = text::printable(&row.hostname);
    let address = text::printable(&row.address);
    write!(out, "{mark}  {name} on {host}, {address}")?;
    if let (Verdict::Ok, Some(peer), Some(cipher)) = (row.result, &row.peer_name, row.cipher) {
        write!(out, ": {}, {cipher}", text::printable(peer))?;
    }
    writeln!(out)?;
    for line in row.text.iter().flat_map(|text| text.lines()) {
        writeln!(out, "           {}", text::printable(line))?;
    }
    Ok(())
}

/// Checks a few at a time: each costs both ends asymmetric work.
fn check_all(
    context: &Context,
    security: &Arc<Security>,
    local: &Arc<Local>,
    found: &[StreamInfo],
) -> Vec<CheckedStream> {
    let trust = security.trust();
    let trust_file = security
        .settings()
        .and_then(|settings| settings.trusted_peers.clone());
    let checker = Checker {
        security,
        local,
        trust: &trust,
        trust_file: trust_file.as_deref(),
        policy: context.security().map_or(Policy::Required, |s| s.policy()),
    };
    let rows: Mutex<Vec<Option<CheckedStream>>> = Mutex::new(found.iter().map(|_| None).collect());
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..WORKERS.min(found.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(info) = found.get(index) else { break };
                    let row = checker.row(info);
                    let mut rows = rows
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    rows[index] = Some(row);
                }
            });
        }
    });
    let rows = rows.into_inner();
    rows.unwrap_or_else(std::sync::PoisonError::into_inner)
        .into_iter()
        .flatten()
        .collect()
}

/// Properties of this machine that a check needs.
struct Checker<'a> {
    security: &'a Arc<Security>,
    local: &'a Arc<Local>,
    trust: &'a TrustList,
    trust_file: Option<&'a Path>,
    policy: Policy,
}

impl Checker<'_> {
    fn row(&self, info: &StreamInfo) -> CheckedStream {
        let stream = Described::from(info);
        let address = stream.addresses().first().cloned().unwrap_or_default();
        let mut row = CheckedStream {
            name: stream.name.clone(),
            hostname: stream.hostname.clone(),
            uid: stream.uid.clone(),
            address,
            result: Verdict::Plaintext,
            fingerprint: None,
            peer_name: None,
            cipher: None,
            cause: None,
            text: None,
        };
        if stream.encryption.is_none() {
            row.text = (self.policy == Policy::Required).then(|| PLAINTEXT.to_owned());
            return row;
        }
        let Checked { peer, finding } = probe::check(self.security, self.local, info);
        if let Some(key) = &peer {
            row.fingerprint = Some(key.fingerprint().to_string());
            row.peer_name = self.trust.find(key).map(|entry| entry.name.clone());
        }
        let text = self.explain(&row, peer.as_ref(), &finding);
        row.text = (!text.is_empty()).then_some(text);
        (row.result, row.cause) = match &finding {
            Finding::Accepted { peer_name, suite } => {
                row.cipher = Some(suite.name());
                row.peer_name = Some(peer_name.clone());
                (Verdict::Ok, None)
            }
            Finding::Here(cause) => (Verdict::RefusedHere, Some(cause.name())),
            Finding::There(cause) => (Verdict::RefusedThere, Some(cause.name())),
            Finding::Failed(error) => (Verdict::Failed, Some(error.cause().name())),
        };
        row
    }

    /// Explains a finding, with advice; empty if there is nothing to do.
    fn explain(&self, row: &CheckedStream, peer: Option<&PublicKey>, finding: &Finding) -> String {
        let fingerprint = row.fingerprint.as_deref().unwrap_or("");
        match finding {
            Finding::Accepted { .. } => String::new(),
            Finding::Here(cause) => self.explain_here(row, fingerprint, *cause),
            Finding::There(Cause::NotAuthorised) => {
                peer.map_or_else(String::new, |key| self.security.not_trusted_text(key))
            }
            Finding::There(cause) => explain_there(*cause, fingerprint),
            Finding::Failed(error) => explain_failure(error, &row.address),
        }
    }

    /// Returns whether the peer's role lets it be an outlet.
    fn may_be_outlet(&self, fingerprint: &str) -> bool {
        let mut peers = self.trust.peers().iter();
        let peer = peers.find(|peer| peer.key.fingerprint().to_string() == fingerprint);
        peer.is_some_and(|peer| peer.role.allows(Role::Outlet))
    }

    fn explain_here(&self, row: &CheckedStream, fingerprint: &str, cause: Cause) -> String {
        let file = self.trust_file.map_or_else(
            || "the trust file".into(),
            |path| path.display().to_string(),
        );
        let name = row.peer_name.as_deref().map(text::printable);
        let name = name.unwrap_or_default();
        match cause {
            Cause::NotAuthorised if row.peer_name.is_some() => format!(
                "here: {name} is trusted, but not from this address; correct its `from` in {file}"
            ),
            Cause::NotAuthorised => format!(
                "here: its key {fingerprint} is not trusted. If that is what `lsl key show` says on \
                 {}, run here:\n{}",
                text::printable(&row.hostname),
                command_to_trust(&row.hostname, &row.address)
            ),
            Cause::RoleNotAllowed if self.may_be_outlet(fingerprint) => format!(
                "here: {name} ({fingerprint}) is trusted for other streams only; correct its \
                 `streams` in {file}"
            ),
            Cause::RoleNotAllowed => format!(
                "here: {name} ({fingerprint}) is trusted as inlet only; set its role to \"outlet\" or \
                 \"both\" in {file}"
            ),
            Cause::Expired => format!(
                "here: the entry of {name} ({fingerprint}) is past its not_after; set a new date in \
                 {file}"
            ),
            Cause::SelfKey => SELF_KEY.into(),
            other => format!("here: refused, {}", other.name()),
        }
    }
}

/// Returns the command that trusts an outlet. Its host name and address came by discovery: a forger
/// must not write options or commands into a line that people copy.
fn command_to_trust(hostname: &str, address: &str) -> String {
    let name = if check_name(hostname).is_ok() {
        remedy::word(hostname)
    } else {
        "NAME".into()
    };
    let address = match address.parse::<SocketAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => "HOST:PORT".into(),
    };
    format!("lsl trust add {name} {address} --role outlet")
}

fn explain_there(cause: Cause, fingerprint: &str) -> String {
    match cause {
        Cause::RoleNotAllowed => format!(
            "there ({fingerprint}): this device is trusted, but not as inlet, or for other streams \
             only; set its role to \"inlet\" or \"both\", or correct its `streams`, in the trust file \
             there"
        ),
        Cause::Expired => format!(
            "there ({fingerprint}): the entry of this device is past its not_after; set a new date \
             in the trust file there"
        ),
        Cause::SelfKey => SELF_KEY.into(),
        Cause::Busy => format!("there ({fingerprint}): too many sessions; try again later"),
        other => format!("there ({fingerprint}): refused, {}", other.name()),
    }
}

fn explain_failure(error: &Error, address: &str) -> String {
    match error.cause() {
        Cause::DecryptFailed => {
            "no common pre-shared key: one of the two has no psk_file, or another \
             one; copy the same file to both"
                .into()
        }
        Cause::PeerNotSecure if !matches!(error, Error::Refused { .. }) => format!(
            "it announces encryption, but: {}",
            policy::not_secure_text(address)
        ),
        Cause::DescriptorMismatch => format!(
            "{error}. Somebody forges discovery, or the stream has just restarted: run this again"
        ),
        _ => error.to_string(),
    }
}

const WORKERS: usize = 8;
const PLAINTEXT: &str = "it offers no encryption, and the policy of this machine is 'required': it does \
     not read it.\nGive its machine a key (`lsl key init` there), if its programs use this library; \
     otherwise see 'migrate' and\n[[plaintext_allow]] in lsl-secure.toml here.";
const SELF_KEY: &str = "both machines have the same key (a copied disk image?). On one of them move \
     device_key.pem and lsl-secure.toml away,\nrun `lsl key init`, and add the new key elsewhere.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_of_the_other_side_says_what_to_do_there() {
        let check = |cause, parts: &[&str]| {
            let text = explain_there(cause, "SHA256:x");
            for part in parts {
                assert!(text.contains(part), "{part} in {text}");
            }
        };
        check(
            Cause::RoleNotAllowed,
            &["SHA256:x", "not as inlet", "there"],
        );
        check(Cause::Expired, &["SHA256:x", "not_after", "there"]);
        check(Cause::SelfKey, &["same key", "disk image", "lsl key init"]);
        check(Cause::Busy, &["SHA256:x", "later"]);
        check(Cause::Internal, &["SHA256:x", "internal"]);
    }

    #[test]
    fn what_discovery_says_does_not_write_commands() {
        let check = |hostname, address, expected: &str| {
            let expected = format!("lsl trust add {expected} --role outlet");
            assert_eq!(command_to_trust(hostname, address), expected);
        };
        let address = "10.0.0.7:16572";
        check("amp-pc", address, "amp-pc 10.0.0.7:16572");
        check("amp-pc", "[fe80::1]:16572", "amp-pc [fe80::1]:16572");
        check("$(reboot)", address, "'$(reboot)' 10.0.0.7:16572");
        check("--yes", address, "NAME 10.0.0.7:16572");
        check("\u{1b}[2J", address, "NAME 10.0.0.7:16572");
        check("", address, "NAME 10.0.0.7:16572");
        check("amp-pc", "x;reboot:1", "amp-pc HOST:PORT");
    }

    #[test]
    fn failures_name_their_usual_causes() {
        let check = |error: Error, part: &str| {
            let text = explain_failure(&error, "10.0.0.7:16572");
            assert!(text.contains(part), "{part} in {text}");
        };
        let session = |cause| Error::session(cause, "detail");
        check(session(Cause::DecryptFailed), "psk_file");
        check(session(Cause::PeerNotSecure), "10.0.0.7:16572 is not");
        check(session(Cause::DescriptorMismatch), "forges discovery");
        check(session(Cause::Timeout), "detail");
        let refused = Error::Refused {
            status: 501,
            text: "LSL/110 501 Secure sessions are not enabled".into(),
        };
        check(refused, "not enabled");
    }
}
