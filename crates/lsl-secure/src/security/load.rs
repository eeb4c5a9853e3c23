//! Makes a [`Security`] at start: reads the files and reports their faults. Spec: LSS/1 §3.2, §3.3,
//! §4.3, §11.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use lsl_platform::fork::PerProcess;

use super::watch::Watch;
use super::{
    Audit, Clock, Error, Event, EventKind, Known, Local, Own, Policy, Psk, PublicKey, Result,
    Running, SecretKey, Security, Settings, Suites, TrustList,
};
use crate::keyfile;
use crate::trust::{Date, Peer};

/// Parts of which a [`Security`] is made.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) settings: Option<Settings>,
    pub(super) file: Option<PathBuf>,
    pub(super) searched: Vec<PathBuf>,
    pub(super) own: Option<Own>,
    pub(super) known: Option<Result<Known>>,
    pub(super) watch: Option<Watch>,
    pub(super) trust: TrustList,
    pub(super) audit: Audit,
    pub(super) clock: Clock,
}

impl Parts {
    /// Puts it together and says what holds.
    pub(super) fn assemble(self) -> Security {
        let (known, failed) = match self.known {
            None => (None, None),
            Some(Ok(known)) => (Some(known), None),
            Some(Err(error)) => (None, Some(error)),
        };
        let (origin, running) = Running::first(self.watch, self.trust, known);
        let security = Security {
            settings: self.settings,
            file: self.file,
            searched: self.searched,
            own: self.own,
            known_failed: AtomicBool::new(false),
            running: PerProcess::from(running),
            origin,
            queries: OnceLock::new(),
            audit: self.audit,
            clock: self.clock,
        };
        if let Some(error) = failed {
            security.known_fails(&error);
        }
        announce(&security);
        security
    }
}

/// Reads all files that a configuration names.
/// `passphrase` goes before `passphrase_file`.
pub(super) fn from_settings(
    settings: Settings,
    file: PathBuf,
    passphrase: Option<&str>,
    clock: Clock,
) -> Result<Security> {
    let audit = open_audit(&settings)?;
    let base = Parts {
        audit,
        ..Parts::default()
    };
    let own = own(&settings, &file, passphrase)?;
    if settings.policy == Policy::Off {
        // No stream depends on the trust list then, but the port of a relay does; a mistake in it must not stop
        // plaintext. Spec: relay §3.
        let path = settings.trusted_peers.clone().filter(|_| own.is_some());
        let opened = path.map(|path| Watch::open(path, clock.utc()));
        let (watch, trust) = match opened {
            Some(Ok((watch, trust))) => (Some(watch), trust),
            Some(Err(error)) => {
                tracing::warn!("nobody is trusted: {error}");
                (None, TrustList::default())
            }
            None => (None, TrustList::default()),
        };
        return Ok(Parts {
            settings: Some(settings),
            file: Some(file),
            own,
            watch,
            trust,
            clock,
            ..base
        }
        .assemble());
    }
    let path = settings
        .trusted_peers
        .clone()
        .ok_or_else(|| missing(&settings, "trusted_peers", &file))?;
    let (watch, trust) = Watch::open(path, clock.utc())?;
    let known = (settings.policy == Policy::Migrate)
        .then(|| Known::open(file.with_file_name("known_secure")));
    warn_of_ends(
        &trust,
        crate::trust::today(clock.utc(), Some(watch.modified())),
    );
    Ok(Parts {
        settings: Some(settings),
        file: Some(file),
        own,
        known,
        watch: Some(watch),
        trust,
        clock,
        ..base
    }
    .assemble())
}

/// Makes the parts from values of the program, without files.
pub(super) fn from_parts(
    settings: Settings,
    key: SecretKey,
    trust: TrustList,
    clock: Clock,
) -> Result<Security> {
    let audit = open_audit(&settings)?;
    let own = Some(own_of(&settings, key, None, None));
    let known = (settings.policy == Policy::Migrate).then(|| Ok(Known::in_memory()));
    Ok(Parts {
        settings: Some(settings),
        own,
        known,
        trust,
        audit,
        clock,
        ..Parts::default()
    }
    .assemble())
}

/// Our key, PSK and next key. Only `off` can do without.
fn own(settings: &Settings, file: &Path, passphrase: Option<&str>) -> Result<Option<Own>> {
    let path = match &settings.key_file {
        Some(path) if settings.policy == Policy::Off && path.symlink_metadata().is_err() => None,
        Some(path) => Some(path),
        None if settings.policy == Policy::Off => None,
        None => return Err(missing(settings, "key_file", file)),
    };
    let Some(path) = path else {
        return Ok(None);
    };
    let from_file = match (&settings.passphrase_file, passphrase) {
        (Some(file), None) => Some(keyfile::read_passphrase(file)?),
        _ => None,
    };
    let passphrase = passphrase.or_else(|| from_file.as_ref().map(|text| text.as_str()));
    let key = keyfile::read_key(path, passphrase)?;
    let psk = match &settings.psk_file {
        Some(file) => Some(keyfile::read_psk(file)?),
        None => None,
    };
    let next = path.with_file_name(NEXT_KEY);
    let next = (next != *path && next.symlink_metadata().is_ok())
        .then(|| match keyfile::read_key(&next, passphrase) {
            Ok(next) => Some(next.public()),
            Err(error) => {
                // It is only announced; streaming does not wait for it.
                tracing::warn!("the next key is not announced: {error}");
                None
            }
        })
        .flatten();
    Ok(Some(own_of(settings, key, psk, next)))
}

fn own_of(settings: &Settings, key: SecretKey, psk: Option<Psk>, next: Option<PublicKey>) -> Own {
    let public = key.public();
    let suites = if settings.force_chacha20 {
        Suites::ChaCha20Only
    } else {
        Suites::of_this_cpu()
    };
    Own {
        local: Arc::new(Local {
            key,
            psk,
            suites,
            pad_to: settings.pad_to,
        }),
        key: public,
        next: next.filter(|next| *next != public),
    }
}

fn missing(settings: &Settings, field: &str, file: &Path) -> Error {
    let policy = settings.policy.name();
    Error::file(
        file,
        format!(
            "policy \"{policy}\" needs {field}; name the file in [security], or make all files with: \
             lsl key init"
        ),
    )
}

fn open_audit(settings: &Settings) -> Result<Audit> {
    match &settings.audit_file {
        Some(file) => Audit::open(file, settings.audit_keep_days),
        None => Ok(Audit::default()),
    }
}

static UNLOCKED_TOLD: AtomicBool = AtomicBool::new(false);

/// Logs the effective policy once per process, and dangerous settings at each start.
fn announce(security: &Security) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let fingerprint = security
        .own
        .as_ref()
        .map(|own| own.key.fingerprint().to_string());
    if !TOLD.swap(true, Ordering::Relaxed) {
        let policy = security.policy().name();
        let fingerprint = fingerprint.as_deref().unwrap_or("none");
        match security.file() {
            Some(file) => tracing::info!(
                "security: policy {policy}, file {}, own key {fingerprint}",
                file.display()
            ),
            None if security.settings.is_some() => {
                tracing::info!(
                    "security: policy {policy}, set by the program, own key {fingerprint}"
                );
            }
            None => {
                let searched = security.searched_text();
                tracing::info!("security: policy off, no file in {searched}, own key none");
            }
        }
    }
    let Some(settings) = &security.settings else {
        return;
    };
    if settings.policy == Policy::Off && fingerprint.is_some() {
        tracing::warn!(
            "this device has a key, but security.policy is \"off\": all streams are plaintext; set it to \
             \"required\" in {}",
            security
                .file()
                .unwrap_or_else(|| Path::new("the program"))
                .display()
        );
    }
    let (memory, locked) = lsl_platform::locked::amounts();
    if locked < memory && !UNLOCKED_TOLD.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "keys may be swapped out to the disk: this process may lock no more memory (RLIMIT_MEMLOCK); raise \
             the limit (ulimit -l, in units LimitMEMLOCK), or encrypt the swap space"
        );
    }
    if settings.policy != Policy::Off && settings.allow_shared_key {
        tracing::warn!(
            "allow_shared_key is on: one stolen device is the whole lab, and the audit cannot tell \
             devices apart"
        );
        security.audit.record(Event::new(EventKind::SharedKeyMode));
    }
    if settings.policy != Policy::Off && settings.force_chacha20 {
        security.audit.record(Event::new(EventKind::ForceChacha20));
    }
}

/// Warns of all entries that end within 30 days.
pub(super) fn warn_of_ends(list: &TrustList, today: Date) {
    for peer in list.peers() {
        warn_of_the_end(peer, today);
    }
}

pub(super) fn warn_of_the_end(peer: &Peer, today: Date) {
    let Some(left) = peer.days_left_if_few(today) else {
        return;
    };
    let (name, fingerprint) = (&peer.name, peer.key.fingerprint());
    let last = peer.not_after.unwrap_or(today);
    if left < 0 {
        tracing::warn!(
            "{name:?} ({fingerprint}) may no longer connect: its not_after was {last}; write a later \
             day into the trust file, or remove the entry"
        );
    } else {
        tracing::warn!(
            "{name:?} ({fingerprint}) may connect until {last} only, {left} more days; write a later \
             not_after into the trust file in time"
        );
    }
}

/// Beside the key file; made by `lsl key init --next`.
const NEXT_KEY: &str = "device_key_next.pem";
