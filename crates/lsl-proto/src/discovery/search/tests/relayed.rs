//! Streams that relays tell of.

use super::*;

/// The document of a stream as a relay gives it out, with a description.
fn relayed_xml(uid: &str, name: &str) -> Vec<u8> {
    let mut info = StreamInfo::new(name, "EEG", 1, 100.0, ChannelFormat::Int8, "s").unwrap();
    info.reset_uid(uid);
    info.desc_mut().append_child("cap");
    marked(&info.to_xml(), uid)
}

fn marked(xml: &[u8], origin: &str) -> Vec<u8> {
    let mark = format!("<lsl_relay v=\"1\" origin=\"{origin}\" path=\"0011223344556677\"/></info>");
    let text = String::from_utf8(xml.to_vec()).unwrap();
    text.replace("</info>", &mark).into_bytes()
}

#[test]
fn a_relay_is_the_second_way_to_a_stream() {
    let mut search = continuous(5.0);
    let relay = peer().ip();
    let tell = |search: &mut Search, uid: &str, name: &str, is_selected, now| {
        search.handle_relayed(0, relay, &relayed_xml(uid, name), is_selected, now)
    };
    assert_eq!(tell(&mut search, "a", "x", false, 100.0), Received::New);
    assert_eq!(tell(&mut search, "b", "y", false, 100.0), Received::Foreign);
    assert_eq!(tell(&mut search, "c", "y", true, 100.0), Received::New);
    assert_eq!(events(&mut search, 100.0), ["+a", "+c"]);
    // It has told of them, and is not asked again.
    let found = search.results(500.0);
    assert_eq!(found.len(), 2);
    assert_eq!(
        (found[0].v4_address_bytes(), found[0].v4_data_port()),
        (&b""[..], 0)
    );
    assert!(
        found[0].relay_advert().is_some()
            && found[0]
                .desc_ref()
                .is_none_or(|desc| desc.child("cap").is_none())
    );
    // The outlet itself answers: its addresses come first, and stay.
    assert_eq!(
        search.handle_reply(peer(), &xml("a"), 500.0),
        Received::Changed
    );
    assert_eq!(events(&mut search, 500.0), ["~a"]);
    assert_eq!(
        tell(&mut search, "a", "x", false, 500.0),
        Received::Refreshed
    );
    assert_eq!(search.results(600.0)[0].v4_address(), "192.168.1.9");
    assert_eq!(search.relayed_by(0), [b"a", b"c"]);
    assert_eq!(search.relayed_by(1), [b""; 0]);
    // What is withdrawn is lost at once, unless its outlet answers.
    assert!(search.handle_withdrawn(0, b"c", true, 600.0));
    assert!(!search.handle_withdrawn(0, b"a", true, 600.0));
    assert_eq!(events(&mut search, 600.0), ["-c", "-a"]);
}

#[test]
fn a_relay_that_is_gone_may_come_back_in_time() {
    let mut search = continuous(5.0);
    for relay in [0, 1] {
        search.handle_relayed(relay, peer().ip(), &relayed_xml("a", "x"), true, 100.0);
    }
    assert!(!search.handle_withdrawn(0, b"a", true, 200.0));
    assert_eq!(search.results(300.0).len(), 1, "the other one tells of it");
    assert!(!search.handle_withdrawn(1, b"a", false, 300.0));
    assert_eq!(search.results(305.0).len(), 1);
    search.handle_relayed(1, peer().ip(), &relayed_xml("a", "x"), true, 305.0);
    assert_eq!(search.results(400.0).len(), 1);
    search.handle_withdrawn(1, b"a", false, 400.0);
    assert_eq!(search.results(405.1).len(), 0);
    assert_eq!(events(&mut search, 405.1), ["+a", "-a"]);
}

#[test]
fn a_stream_without_a_way_is_not_replaced_by_the_outlet_that_repeats_it() {
    let repeated = marked(&xml("r"), "a");
    let mut search = continuous(5.0);
    let tell = |search: &mut Search, now| {
        search.handle_relayed(0, peer().ip(), &relayed_xml("a", "x"), true, now);
    };
    tell(&mut search, 100.0);
    search.handle_reply(peer(), &repeated, 100.0);
    assert!(!search.handle_withdrawn(0, b"a", true, 101.0));
    for now in [104.0, 108.0, 112.0] {
        search.handle_reply(peer(), &repeated, now);
        assert_eq!(search.results(now)[0].uid(), "a");
    }
    tell(&mut search, 113.0);
    assert!(!search.handle_withdrawn(0, b"a", true, 114.0));
    // Its outlet ends, too.
    assert_eq!(search.results(118.0).len(), 1);
    assert_eq!(search.results(119.1).len(), 0);
    assert_eq!(events(&mut search, 119.1), ["+a", "-a"]);
}

#[test]
fn an_outlet_of_a_relay_is_not_shown_beside_its_origin() {
    let repeated = marked(&xml("r"), "a");
    let mut search = continuous(5.0);
    search.handle_reply(peer(), &repeated, 100.0);
    assert_eq!(
        (search.len(), events(&mut search, 100.0)),
        (1, vec!["+r".to_owned()])
    );
    search.handle_reply(peer(), &xml("a"), 101.0);
    assert_eq!(
        (search.len(), search.results(101.0)[0].uid()),
        (1, "a".into())
    );
    assert_eq!(events(&mut search, 101.0), ["+a", "-r"]);
    // Its other address is no news of a stream that is not shown.
    search.handle_reply(peer_v6(3), &repeated, 101.0);
    assert_eq!(events(&mut search, 101.0), [""; 0]);
    search.handle_reply(peer(), &repeated, 105.0);
    assert_eq!(events(&mut search, 106.5), ["-a", "+r"]);
    assert_eq!(search.results(106.5)[0].uid(), "r");
    search.handle_relayed(0, peer().ip(), &relayed_xml("a", "x"), true, 107.0);
    assert_eq!(events(&mut search, 107.0), ["+a", "-r"]);
    assert_eq!(search.answers().count(), 1);
}
