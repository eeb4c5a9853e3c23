//! A process that may lock no memory, as some containers are: its keys load, it says once that they may be
//! swapped out, and its sessions work. A test binary of its own, because the limit is the process's.
//! Spec: LSS/1 §8.6.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "limits and users have no safe form here")]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lsl_platform::locked;
use lsl_secure::config::Settings;
use lsl_secure::handshake::{Claim, Initiator, PREAMBLE, Responder};
use lsl_secure::trust::TrustList;
use lsl_secure::{Descriptor, OsRandom, Policy, SecretKey, Security, keyfile};
use tracing::span::{Attributes, Id, Record};

/// Lets this process lock nothing from now on. Root may lock in spite of the limit, so that it becomes
/// nobody, unless it is root in a namespace alone, which has no such right.
fn lock_nothing() {
    let nothing = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a limit that outlives the call.
    let limited = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const nothing) };
    assert_eq!(limited, 0);
    // SAFETY: it takes numbers.
    let _ = unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) };
    let page = [0_u8; 1];
    // SAFETY: locking memory of our own changes nothing of what is in it.
    let locked = unsafe { libc::mlock(page.as_ptr().cast(), 1) };
    assert_ne!(locked, 0, "the limit does not hold for this process");
}

const NOBODY: libc::uid_t = 65534;

/// Counts warnings of memory.
struct Warnings(Arc<AtomicUsize>);

struct Text(String);

impl tracing::field::Visit for Text {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if text.0.contains("RLIMIT_MEMLOCK") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A session of the two, of which each sends the other something.
fn talk(one: &Security, other: &Security) {
    let local = |security: &Security| Arc::clone(security.local().unwrap());
    let (initiator, flight) = Initiator::start(local(one), &mut OsRandom).unwrap();
    let (wait, m2) = Responder::new(local(other))
        .receive_m1(&flight[PREAMBLE.len()..], &mut OsRandom)
        .unwrap();
    let (unconfirmed, m3) = initiator.receive_m2(&m2).unwrap().accept().unwrap();
    let Claim::Verified(verified) = wait.receive_m3(&m3).unwrap() else {
        panic!("refused");
    };
    let descriptor = Descriptor {
        uid: b"uid".to_vec(),
        channel_count: 1,
        channel_format: 1,
        created_at: 1.0,
        ..Descriptor::default()
    };
    let (mut outlet, mut record) = verified.accept(&descriptor).unwrap();
    let (mut inlet, _) = unconfirmed.receive_descriptor(&mut record).unwrap();
    let mut wire = Vec::new();
    for (from, to) in [
        (&mut outlet.sealer, &mut inlet.opener),
        (&mut inlet.sealer, &mut outlet.opener),
    ] {
        wire.clear();
        from.seal_data(b"sample", 1.0, &mut wire).unwrap();
        let mut records = 0;
        to.receive(&mut wire, 1.0, |_| {
            records += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(records, 1);
    }
}

#[test]
fn without_memory_to_lock_keys_load_with_one_warning_and_sessions_work() {
    lock_nothing();
    let directory = std::env::temp_dir().join(format!("lsl-memlock-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let warnings = Arc::new(AtomicUsize::new(0));
    let load = |name: &str, seed: u8| {
        let file = directory.join(name);
        keyfile::write_new_key(&file, &SecretKey::from_seed(&[seed; 32]), None).unwrap();
        let key = keyfile::read_key(&file, None).unwrap();
        let settings = Settings::new(Policy::Required);
        let counting = Warnings(Arc::clone(&warnings));
        tracing::subscriber::with_default(counting, || {
            Security::from_parts(settings, key, TrustList::default()).unwrap()
        })
    };
    let (one, other) = (load("one", 1), load("other", 2));
    talk(&one, &other);
    let (all, locked) = locked::amounts();
    assert!(all > 0);
    assert_eq!(locked, 0);
    assert_eq!(warnings.load(Ordering::Relaxed), 1);
    fs::remove_dir_all(&directory).unwrap();
}
