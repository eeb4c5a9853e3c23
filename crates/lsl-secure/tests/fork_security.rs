//! What a real `fork` does to the security of a process: the child waits for no lock that a thread of
//! its parent holds, has no sessions, and reads its trust file anew. Spec: LSS/1 §8.6.
//!
//! A test binary of its own, because the child of a threaded process may do next to nothing.
#![cfg(unix)]
#![expect(unsafe_code, reason = "fork, waitpid and _exit have no safe form")]
#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "../../lsl-platform/tests/forked/mod.rs"]
mod forked;

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lsl_secure::audit::Span;
use lsl_secure::trust::{Peer, TrustList, TrustedRole};
use lsl_secure::{
    Cause, Descriptor, PublicKey, Role, SecretKey, Security, SessionEntry, files, keyfile,
};

use forked::in_child;

const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 7, 20));
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 7, 10));

fn key(seed: u8) -> PublicKey {
    SecretKey::from_seed(&[seed; 32]).public()
}

fn list(seeds: &[u8]) -> String {
    let peer = |seed: &u8| Peer {
        name: format!("peer{seed}"),
        key: key(*seed),
        role: TrustedRole::Both,
        not_after: None,
        from: Vec::new(),
        streams: Vec::new(),
    };
    TrustList::from_peers(seeds.iter().map(peer).collect())
        .unwrap()
        .to_toml()
}

fn session(seed: u8) -> SessionEntry {
    SessionEntry {
        peer: key(seed),
        role: Role::Inlet,
        remote: REMOTE,
        local: HERE,
        stream: Descriptor {
            uid: b"uid".to_vec(),
            ..Descriptor::default()
        },
        span: Span::begin(),
    }
}

fn may(security: &Security, seed: u8) -> Result<String, Cause> {
    security.authorise(&key(seed), Role::Inlet, REMOTE, HERE)
}

#[test]
fn a_child_decides_for_itself() {
    let name = format!("lsl-fork-security-{}", std::process::id());
    let directory: PathBuf = std::env::temp_dir().join(name);
    fs::create_dir(&directory).unwrap();
    let path = |name: &str| directory.join(name);
    let own = SecretKey::from_seed(&[1; 32]);
    keyfile::write_new_key(&path("device_key.pem"), &own, None).unwrap();
    files::create(&path("trusted_peers.toml"), list(&[2, 3]).as_bytes()).unwrap();
    let text = "[security]\npolicy = \"migrate\"\nmigrate_until = \"2999-12-31\"\n";
    files::create(&path("lsl-secure.toml"), text.as_bytes()).unwrap();
    let security = Arc::new(Security::from_file(&path("lsl-secure.toml")).unwrap());

    let ends = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ends);
    let end = move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let guard = security.register(session(2), end).unwrap();
    files::replace(&path("trusted_peers.toml"), list(&[3]).as_bytes()).unwrap();

    // As if another thread were at it while this one forks.
    let admission = security.admission().lock().unwrap();
    assert!(in_child(|| {
        let mut is_right = !security.has_live_sessions();
        // The child knows the list of now, and ends no session of its parent.
        is_right &= may(&security, 2) == Err(Cause::NotAuthorised);
        is_right &= may(&security, 3).as_deref() == Ok("peer3");
        security.refresh();
        is_right &= ends.load(Ordering::Relaxed) == 0;
        is_right &= security.admission().lock().is_ok_and(|a| a.pending() == 0);
        // Its first session has the number of its parent's, which it must not take away.
        let mine = security.register(session(3), |_| {});
        drop(guard_copy(&guard));
        is_right &= mine.is_ok() && security.has_live_sessions();
        drop(mine);
        is_right && !security.has_live_sessions()
    }));
    drop(admission);

    // A child whose trust file cannot be read trusts nobody until it can.
    let gone = path("gone.toml");
    fs::rename(path("trusted_peers.toml"), &gone).unwrap();
    assert!(in_child(|| {
        let mut is_right = may(&security, 3) == Err(Cause::NotAuthorised);
        is_right &= !security.refresh();
        is_right &= fs::rename(&gone, path("trusted_peers.toml")).is_ok();
        is_right && security.refresh() && may(&security, 3).is_ok()
    }));

    // The parent never noticed, and goes on.
    assert!(security.has_live_sessions());
    assert!(security.refresh());
    assert_eq!(ends.load(Ordering::Relaxed), 1);
    drop(guard);
    assert!(!security.has_live_sessions());
    fs::remove_dir_all(&directory).unwrap();
}

/// The same object a second time, as a child that drops all that it inherited would drop it.
fn guard_copy(guard: &lsl_secure::SessionGuard) -> lsl_secure::SessionGuard {
    // SAFETY: only called in a child that leaves by `_exit`, so that the original is never dropped
    // there: this is its only drop.
    unsafe { std::ptr::read(guard) }
}
