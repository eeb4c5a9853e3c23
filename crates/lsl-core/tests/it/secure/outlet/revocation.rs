//! Who is no longer trusted is gone within seconds, and does not come back.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use lsl_core::secure::trust::{Peer, TrustList, TrustedRole};
use lsl_core::secure::{Cause, Error, keyfile};
use lsl_platform::files::set_mode;
use serde_json::Value;

use super::reader::{Reader, feed_request};
use super::time::{Clock, answered};
use crate::lab;
use crate::secure::people::{Place, Side, info, key_of, trusted};

/// A device with files in `place`, which trusts these.
pub fn side_of_files(place: &Place, who: &str, peers: Vec<Peer>) -> Side {
    let dir = place.dir();
    set_mode(dir, 0o700).unwrap();
    keyfile::write_new_key(&dir.join("device_key.pem"), &key_of(who), None).unwrap();
    write_trust(dir, peers);
    let file = dir.join("lsl-secure.toml");
    fs::write(
        &file,
        format!(
            "[security]\nname = \"{who}\"\npolicy = \"required\"\nkey_file = \"device_key.pem\"\n\
             trusted_peers = \"trusted_peers.toml\"\naudit_file = \"audit.jsonl\"\n"
        ),
    )
    .unwrap();
    set_mode(&file, 0o600).unwrap();
    place.side_of_file(&file, dir.join("audit.jsonl"))
}

/// Replaces the trust file as an editor or a tool does: by rename.
pub fn write_trust(dir: &Path, peers: Vec<Peer>) {
    let text = TrustList::from_peers(peers).unwrap().to_toml();
    let fresh = dir.join("trusted_peers.new");
    fs::write(&fresh, text).unwrap();
    set_mode(&fresh, 0o600).unwrap();
    fs::rename(&fresh, dir.join("trusted_peers.toml")).unwrap();
}

#[test]
fn a_removed_peer_is_told_and_ended_and_its_clock_stops() {
    let place = Place::new();
    let dir = place.dir().to_owned();
    let inlet = |who| trusted(who, TrustedRole::Inlet);
    let amp = side_of_files(&place, "amp", vec![inlet("rec"), inlet("spare")]);
    let outlet = lab::outlet(&amp.context, info("revoked"));

    let mut leaving = Reader::feed(&outlet, "rec", 100);
    let mut keys = Reader::open(&outlet, "rec", b"LSL:timekeys/1\r\n");
    let mut staying = Reader::feed(&outlet, "spare", 100);
    let mut clock = Clock::of(&outlet, &mut leaving);
    assert!(answered(&mut clock));
    leaving.seal(|session, out| session.sealer.seal_key_update(out));
    leaving.seal(|session, out| session.sealer.seal_ping(2.0, out));
    while leaving.pongs.is_empty() {
        assert!(leaving.step());
    }

    // No handshake looks at the file: the watch alone.
    write_trust(&dir, vec![inlet("spare")]);
    for reader in [&mut leaving, &mut keys] {
        assert_eq!(reader.rest(), b"");
        assert_eq!(reader.alert.map(Cause::code), Some(Cause::Revoked.code()));
    }
    assert!(!answered(&mut clock));
    match Reader::try_open(&outlet, "rec", &feed_request(&outlet, 0)).map(|_| ()) {
        Err(Error::Alert { cause, .. }) => assert_eq!(cause, Cause::NotAuthorised),
        other => panic!("{other:?}"),
    }
    let updated = amp.await_audit("key_update", |_| true);
    let of_leaving = |event: &Value| event["span"] == updated["span"];
    let revoked = amp.await_audit("revoked", of_leaving);
    // All events of a connection are one tree, of another one another.
    let begun = amp.await_audit("handshake_ok", |event| event["span"] == revoked["span"]);
    assert!(begun["took_us"].is_u64(), "{begun}");
    let steps = begun["steps"].as_array().unwrap();
    let steps: Vec<_> = steps.iter().map(|step| step[0].as_str().unwrap()).collect();
    assert_eq!(steps, ["generate", "derive", "sign", "verify", "schedule"]);
    let is_same = |event: &Value| event["sid"] == begun["sid"];
    let closed = amp.await_audit("session_closed", is_same);
    assert_eq!(closed["span"], begun["span"]);
    assert_eq!(
        amp.tree_of(&closed),
        ["handshake_ok", "key_update", "revoked", "session_closed"]
    );
    let begun = amp.audited("handshake_ok");
    let spans: HashSet<_> = begun
        .iter()
        .map(|event| event["span"].as_str().unwrap())
        .collect();
    assert_eq!((begun.len(), spans.len()), (3, 3));
    let refused = amp.await_audit("policy_refused", |event| event["span"].is_string());
    assert!(!spans.contains(refused["span"].as_str().unwrap()));
    assert!(refused["took_us"].is_u64(), "{refused}");
    lab::until("one reader is left", || outlet.consumers().len() == 1);
    outlet.push_at(&[1.0_f32, 2.0, 3.0], 4.5).unwrap();
    assert_eq!(staying.sample(), Some((4.5, [1.0, 2.0, 3.0])));
    staying.close();
    lab::until("nobody is watched", || !amp.security.has_live_sessions());

    // A session that begins after all had ended is watched too.
    let mut narrowed = Reader::feed(&outlet, "spare", 100);
    write_trust(&dir, vec![trusted("spare", TrustedRole::Outlet)]);
    assert_eq!(narrowed.rest(), b"");
    assert_eq!(narrowed.alert.map(Cause::code), Some(Cause::Revoked.code()));
}
