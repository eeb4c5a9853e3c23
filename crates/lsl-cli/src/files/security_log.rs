//! The security log of the configuration, for commands that change what it is to tell of.

use base64ct::{Base64, Base64Unpadded, Encoding as _};
use lsl_core::secure::audit::{Audit, Event};
use lsl_core::secure::config::{Found, Settings, search};
use lsl_xdf::at_rest::Recipients;
use sha2::{Digest as _, Sha256};

use crate::ui::notice::note;

/// Opens the audit file of the configuration in use.
pub(crate) fn found() -> Option<Audit> {
    let Ok(Found::Settings { settings, .. }) = search() else {
        return None;
    };
    of(&settings)
}

/// Opens the audit file that settings name. A failure is reported and does not stop the command.
fn of(settings: &Settings) -> Option<Audit> {
    let path = settings.audit_file.as_ref()?;
    Audit::open(path, settings.audit_keep_days)
        .inspect_err(|error| note(format_args!("lsl: {error}; nothing is logged")))
        .ok()
}

/// Adds how a file is encrypted and, where that is known, for whom; recipients beyond the first are counted.
pub(crate) fn sealed(event: Event, recipients: Option<&Recipients>) -> Event {
    let event = event
        .with("format", "age-v1")
        .with("cipher", "ChaCha20-Poly1305");
    let Some(all) = recipients.map(Recipients::public_keys) else {
        return event;
    };
    let mut shown: Vec<String> = all
        .iter()
        .take(MAX_RECIPIENTS)
        .map(|key| shown(key))
        .collect();
    if shown.is_empty() {
        shown.push("passphrase".to_owned());
    }
    let event = event.with("recipients", shown);
    match all.len().saturating_sub(MAX_RECIPIENTS) {
        0 => event,
        others => event.with("others", others as u64),
    }
}

/// Returns a recipient's key; of one that a line has no room for, the fingerprint that `ssh-keygen -lf` shows.
fn shown(key: &str) -> String {
    if key.len() <= MAX_KEY_LEN {
        return key.to_owned();
    }
    let mut words = key.split_whitespace();
    let blob = words.nth(1).and_then(|text| Base64::decode_vec(text).ok());
    let digest = Sha256::digest(blob.as_deref().unwrap_or(key.as_bytes()));
    format!("SHA256:{}", Base64Unpadded::encode_string(&digest))
}

/// Records what a command has done.
pub(crate) fn record(settings: &Settings, events: impl IntoIterator<Item = Event>) {
    if let Some(audit) = of(settings) {
        events.into_iter().for_each(|event| audit.record(event));
    }
}

/// Recipients that a line names.
const MAX_RECIPIENTS: usize = 8;
/// Longer texts are cut in a line.
const MAX_KEY_LEN: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_key_is_its_fingerprint() {
        assert_eq!(shown("age1xyz"), "age1xyz");
        let blob = Base64::encode_string(&[7; 407]);
        let digest = Base64Unpadded::encode_string(&Sha256::digest([7; 407]));
        let expected = format!("SHA256:{digest}");
        assert_eq!(shown(&format!("ssh-rsa {blob} me@lab")), expected);
    }
}
