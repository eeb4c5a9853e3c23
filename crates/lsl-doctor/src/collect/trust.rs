//! What a session with an outlet came to, and what to do about it: `lsl trust check` and the doctor say the same.
//! Spec: LSS/1 §4.2, §5

use std::path::Path;
use std::sync::Arc;

use lsl_core::StreamInfo;
use lsl_core::secure::{Cause, Error, Local, Policy, PublicKey, Role, Security, policy};
use lsl_platform::terminal;

use super::probe::{self, Checked, Finding};
use crate::observe::Place;
pub use crate::observe::Verdict;
use crate::remedy::plain;

/// What came of a session with one outlet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// Who refuses.
    pub verdict: Verdict,
    /// The outlet's key, if it got so far as to prove it.
    pub fingerprint: Option<String>,
    /// Our name for the outlet's device.
    pub peer_name: Option<String>,
    /// The cipher of the session.
    pub cipher: Option<&'static str>,
    /// Name of the cause, as in the audit log.
    pub cause: Option<&'static str>,
    /// The trouble in words, with advice.
    pub text: Option<String>,
    /// Whether there was no connection to begin with.
    pub is_unreachable: bool,
    /// What to type, and on which machine, where a command does it.
    pub command: Option<(Place, String)>,
}

impl Judged {
    fn new(verdict: Verdict) -> Self {
        Self {
            verdict,
            fingerprint: None,
            peer_name: None,
            cipher: None,
            cause: None,
            text: None,
            is_unreachable: false,
            command: None,
        }
    }
}

/// Opens a session with the outlet of a stream as an inlet would, if it offers one, and closes it. Blocks until it is
/// over, or `stop`ped.
pub fn judge(
    security: &Security,
    local: &Arc<Local>,
    info: &StreamInfo,
    stop: &dyn Fn() -> bool,
) -> Judged {
    if info.security_advert().is_none() {
        let text = (security.policy() == Policy::Required).then(|| PLAINTEXT.to_owned());
        return Judged {
            text,
            ..Judged::new(Verdict::Plaintext)
        };
    }
    let Checked { peer, finding } = probe::check(security, local, info, stop);
    let mut judged = Judged::new(Verdict::Failed);
    if let Some(key) = &peer {
        judged.fingerprint = Some(key.fingerprint().to_string());
        judged.peer_name = security.trust().find(key).map(|entry| entry.name.clone());
    }
    let (text, command) = explain(security, info, &judged, peer.as_ref(), &finding);
    judged.text = (!text.is_empty()).then_some(text);
    judged.command = command;
    judged.is_unreachable = matches!(finding, Finding::Failed(Error::Io { .. }));
    (judged.verdict, judged.cause) = match finding {
        Finding::Accepted { peer_name, suite } => {
            judged.cipher = Some(suite.name());
            judged.peer_name = Some(peer_name);
            (Verdict::Ok, None)
        }
        Finding::Here(cause) => (Verdict::RefusedHere, Some(cause.name())),
        Finding::There(cause) => (Verdict::RefusedThere, Some(cause.name())),
        Finding::Failed(error) => (Verdict::Failed, Some(error.cause().name())),
    };
    judged
}

type Explained = (String, Option<(Place, String)>);

fn explain(
    security: &Security,
    info: &StreamInfo,
    judged: &Judged,
    peer: Option<&PublicKey>,
    finding: &Finding,
) -> Explained {
    let fingerprint = judged.fingerprint.as_deref().unwrap_or("");
    let address = probe::addresses(info).first().map(ToString::to_string);
    let address = address.unwrap_or_default();
    match finding {
        Finding::Accepted { .. } => (String::new(), None),
        Finding::Here(Cause::NotAuthorised) if judged.peer_name.is_none() => {
            let command = command_to_trust(&info.hostname(), &address);
            let text = format!(
                "here: its key {fingerprint} is not trusted. If that is what `lsl key show` says on \
                 {}, run here:\n{command}",
                printable(&info.hostname()),
            );
            (text, Some((Place::Here, command)))
        }
        Finding::Here(cause) => (explain_here(security, peer, *cause), None),
        Finding::There(Cause::NotAuthorised) => peer.map_or_else(Explained::default, |key| {
            let text = security.not_trusted_text(key);
            let command = text.split_once("there run: ");
            let command = command.map(|(_, command)| (Place::There, command.to_owned()));
            (text, command)
        }),
        Finding::There(cause) => (explain_there(*cause, fingerprint), None),
        Finding::Failed(error) => (explain_failure(error, &address), None),
    }
}

pub(super) fn explain_here(security: &Security, peer: Option<&PublicKey>, cause: Cause) -> String {
    let file = security
        .settings()
        .and_then(|it| it.trusted_peers.as_deref());
    let file = file.map_or_else(
        || "the trust file".into(),
        |it: &Path| it.display().to_string(),
    );
    let trust = security.trust();
    let entry = peer.and_then(|key| trust.find(key));
    let name = entry.map(|it| printable(&it.name)).unwrap_or_default();
    let fingerprint = peer.map(|it| it.fingerprint().to_string());
    let fingerprint = fingerprint.unwrap_or_default();
    let may_be_outlet = entry.is_some_and(|it| it.role.allows(Role::Outlet));
    match cause {
        Cause::NotAuthorised => format!(
            "here: {name} is trusted, but not from this address; correct its `from` in {file}"
        ),
        Cause::RoleNotAllowed if may_be_outlet => format!(
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

/// Returns the command that trusts an outlet. Its host name and address came by discovery: a forger
/// must not write options or commands into a line that people copy.
fn command_to_trust(hostname: &str, address: &str) -> String {
    // As `lsl trust add` wants names of devices: no keys.
    let name = plain(hostname).filter(|it| !it.contains(':') && it.len() <= 100);
    let name = name.unwrap_or("NAME");
    let address = plain_place(address).unwrap_or("HOST:PORT");
    format!("lsl trust add {name} {address} --role outlet")
}

fn plain_place(text: &str) -> Option<&str> {
    text.parse::<std::net::SocketAddr>().is_ok().then_some(text)
}

pub(super) fn explain_there(cause: Cause, fingerprint: &str) -> String {
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

pub(super) fn explain_failure(error: &Error, address: &str) -> String {
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

fn printable(text: &str) -> String {
    terminal::printable(text.as_bytes(), usize::MAX)
}

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
        check("$(reboot)", address, "NAME 10.0.0.7:16572");
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
