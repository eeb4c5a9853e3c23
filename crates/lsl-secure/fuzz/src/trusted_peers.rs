//! `trusted_peers.toml`. Input: the text.

use std::net::IpAddr;
use std::path::Path;

use lsl_secure::Role;
use lsl_secure::trust::{Date, TrustList};

pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let path = Path::new("trusted_peers.toml");
    let Ok(list) = TrustList::parse(&text, path) else {
        return;
    };
    let written = list.to_toml();
    let again = TrustList::parse(&written, path).expect("its own text");
    assert_eq!(again.to_toml(), written);
    assert_eq!(again.peers().len(), list.peers().len());
    let today = Date::from_ymd(2026, 11, 21).expect("a day");
    let addresses = ["10.1.2.3", "::1", "::ffff:10.1.2.3"];
    for peer in list.peers() {
        assert!(list.find(&peer.key).is_some());
        for address in addresses.map(|text| text.parse::<IpAddr>().expect("an address")) {
            for role in [Role::Outlet, Role::Inlet] {
                let decide = |list: &TrustList| {
                    list.decide(&peer.key, role, address, today)
                        .map(|peer| peer.name.clone())
                };
                assert_eq!(decide(&list), decide(&again));
                if decide(&list).is_ok() {
                    assert!(peer.role.allows(role));
                    assert!(peer.not_after.is_none_or(|last| last >= today));
                }
            }
        }
    }
}
