//! Peers with our own key (verification 37).

use super::*;

#[test]
fn programs_on_one_machine_share_a_key() {
    let trust = both();
    let check =
        |lines: &str, trust: &str, remote: &str, local: &str, expected: Result<&str, Cause>| {
            let lab = Lab::new(trust);
            let security = lab.start(lines).unwrap();
            for role in [Role::Outlet, Role::Inlet] {
                let decided = security.authorise(&key(OWN), role, ip(remote), ip(local));
                assert_eq!(
                    decided.as_deref().map_err(|cause| *cause),
                    expected,
                    "{remote} {role:?}"
                );
                let session = SessionEntry {
                    local: ip(local),
                    ..live(OWN, role, remote)
                };
                let guard = security.register(session, |_| {}).map(drop);
                assert_eq!(guard, expected.map(drop), "{remote} {role:?}");
            }
        };
    let alone = "policy = \"required\"";
    check(alone, &trust, "127.0.0.1", "127.0.0.1", Ok("own"));
    check(alone, &trust, "127.3.2.1", "127.0.0.1", Ok("own"));
    check(alone, &trust, "::1", "::1", Ok("own"));
    check(
        alone,
        &trust,
        "::ffff:127.0.0.1",
        "::ffff:127.0.0.1",
        Ok("own"),
    );
    check(alone, &trust, HERE, HERE, Ok("own"));
    check(alone, &trust, "::ffff:192.168.7.10", HERE, Ok("own"));
    check(alone, &trust, "fe80::1", "fe80::1", Ok("own"));
    check(alone, &trust, LAN, HERE, Err(Cause::SelfKey));
    check(alone, &trust, "fe80::2", "fe80::1", Err(Cause::SelfKey));
    check(
        alone,
        &trust,
        "::ffff:192.168.7.20",
        HERE,
        Err(Cause::SelfKey),
    );
    // Even if the common file lists it, as it does on every machine.
    let listed = trust.clone() + &peer("me", OWN, "");
    check(alone, &listed, LAN, HERE, Err(Cause::SelfKey));
    check(alone, &listed, "127.0.0.1", "127.0.0.1", Ok("own"));
    let shared = "policy = \"required\"\nallow_shared_key = true";
    check(shared, &trust, LAN, HERE, Ok("own"));
    check(shared, &listed, LAN, HERE, Ok("me"));
    // An entry for the shared key narrows it.
    let narrow = trust.clone() + &peer("me", OWN, "from = [\"10.0.0.0/8\"]");
    check(shared, &narrow, LAN, HERE, Err(Cause::NotAuthorised));
    check(shared, &narrow, "10.1.1.1", HERE, Ok("me"));
}

#[test]
fn a_shared_key_is_audited_and_a_lone_one_is_not() {
    let lab = Lab::new("");
    let security = lab
        .start("policy = \"required\"\nallow_shared_key = true")
        .unwrap();
    assert_eq!(lab.count(&security, "shared_key_mode"), 1);
    let lab = Lab::new("");
    let security = lab.required();
    assert_eq!(lab.count(&security, "shared_key_mode"), 0);
}

#[test]
fn an_empty_list_does_not_part_the_programs_of_one_machine() {
    let lab = Lab::new(&both());
    let security = lab.required();
    let ends = Ends::default();
    let session = live(OWN, Role::Outlet, "127.0.0.1");
    let _session = security.register(session, ends.callback()).unwrap();
    lab.replace_trust("");
    assert!(security.refresh());
    assert_eq!(ends.count(), 0);
}
