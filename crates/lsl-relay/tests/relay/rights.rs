//! Rights of programs with keys, as the trust file of a relay has them. Spec: relay §3.1, §10.

use std::fs;
use std::sync::Arc;

use lsl_core::secure::config::Settings;
use lsl_core::secure::trust::{Peer, TrustedRole};
use lsl_core::secure::{Policy, SecretKey, Security, keyfile};

use super::*;

fn entry(key: &SecretKey, streams: &[String]) -> Peer {
    Peer {
        name: "peer".to_owned(),
        key: key.public(),
        role: TrustedRole::Both,
        not_after: None,
        from: Vec::new(),
        streams: streams.to_vec(),
    }
}

/// Names of the streams of this type that a program finds.
fn found(context: &Context, kind: &str) -> Vec<String> {
    let selector = Selector::property("type", own(kind)).expect("a selector");
    let found = context.resolve_blocking(&selector, 0, Duration::from_millis(500));
    let mut names: Vec<_> = (found.expect("a search").iter())
        .map(|info| info.name().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_key_that_is_bound_to_streams_reads_no_others_and_a_change_ends_its_feeds() {
    let [hub, rec, rec_too] = [1, 2, 2].map(|seed| SecretKey::from_seed(&[seed; 32]));
    let dir = std::env::temp_dir().join(format!("lsl-relay-rights-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a folder");
    let write = |name: &str, text: &str| {
        fs::write(dir.join("new"), text).expect("written");
        fs::rename(dir.join("new"), dir.join(name)).expect("renamed");
    };
    let bind = |name: &str| {
        let streams = ["type='lsl-relay'".to_owned(), format!("name='{name}'")];
        write("peers.toml", &entry(&rec, &streams).to_toml());
    };
    keyfile::write_new_key(&dir.join("key.pem"), &hub, None).expect("a key");
    bind("one");
    write(
        "lsl-secure.toml",
        "[security]\nname = \"hub\"\npolicy = \"off\"\nkey_file = \"key.pem\"\n\
         trusted_peers = \"peers.toml\"\naudit_file = \"hub.jsonl\"\n",
    );
    let security = Security::from_file(&dir.join("lsl-secure.toml")).expect("security");
    let plain = context();
    let far = Context::with_security(plain.config().clone(), Arc::new(security));
    let outlets = ["one", "two"].map(|name| outlet(&plain, "rights", name));
    let relay = relay(&far, "");
    wait_for(&relay, "rights", 2);
    let relays = format!("{{{}}}", relay.addresses()[0]);
    let near = context_with(&[("lab.Relay", &relays)]);
    let trust = TrustList::from_peers(vec![entry(&hub, &[])]).expect("a list");
    let security = Security::from_parts(Settings::new(Policy::Required), rec_too, trust);
    let security = Arc::new(security.expect("security"));
    let near = Context::with_security(near.config().clone(), security);
    assert_eq!(found(&near, "rights"), ["one"]);
    let selector = Selector::property("name", "one").expect("a selector");
    let info = near.resolve_blocking(&selector, 1, SOON).expect("a search");
    let builder = Inlet::builder(&info[0]).context(&near);
    let inlet = builder.recover(false).create().expect("an inlet");
    inlet.blocking().open(SOON).expect("open");
    outlets[0].push_at(&[1], 1.0).expect("pushed");
    let mut sample = [0];
    let stamp = inlet.blocking().pull(&mut sample, SOON).expect("a sample");
    assert_eq!((stamp, sample), (Some(1.0), [1]));
    // One that asks for nothing but the clock.
    let asking = Inlet::builder(&info[0]).context(&near).create();
    let asking = asking.expect("an inlet");
    asking.blocking().time_correction(SOON).expect("a clock");
    let until = local_clock() + SOON.as_secs_f64();
    let wait = |what: &str, holds: &dyn Fn() -> bool| {
        while !holds() {
            assert!(local_clock() < until, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    bind("two");
    let readers = || {
        let status = relay.status();
        let streams = status["streams"].as_array().expect("streams").clone();
        let mut ours = streams.iter().filter(|it| it["type"] == own("rights"));
        ours.any(|it| it["readers"] != 0)
    };
    wait("the feed ends", &|| !readers());
    wait("both are audited", &|| {
        let audited = fs::read_to_string(dir.join("hub.jsonl")).expect("a file");
        let ended = audited
            .lines()
            .filter(|line| line.contains("ended, no rule"));
        ended.count() == 2
    });
    wait("the other is found", &|| found(&near, "rights") == ["two"]);
    drop((inlet, asking, relay));
    fs::remove_dir_all(&dir).expect("removed");
}
