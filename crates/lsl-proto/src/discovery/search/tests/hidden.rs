//! Outlets that hide what they are, and searches that hide what they look for.

use super::*;

#[test]
fn outlets_that_hide_are_told_from_those_that_match() {
    let hide = |xml: Vec<u8>, mode: &str| {
        let text = String::from_utf8(xml).unwrap();
        let advert = format!("<lsl_secure v=\"1\" mode=\"{mode}\"/></info>");
        text.replace("</info>", &advert).into_bytes()
    };
    let mut search = search(once(1, 0.0, f64::INFINITY)).with_open_query(7);
    let open = search.open_datagram(5).unwrap();
    assert_eq!(open, b"LSL:shortinfo\r\n\r\n5 7\r\n");
    let own = query_id(b"name='x'").to_string();
    let mut check = |id: &str, xml: Vec<u8>, expected| {
        let datagram = [id.as_bytes(), b"\r\n", &xml].concat();
        let received = search.handle_datagram(peer(), &datagram, 101.0);
        assert_eq!(received, expected, "{id}");
    };
    check("7", hide(xml("hidden"), "minimal"), Received::Redacted);
    // One that shows itself answers the real query if it matches.
    check("7", xml("other"), Received::Foreign);
    check("7", hide(xml("other"), "open"), Received::Foreign);
    check("8", hide(xml("hidden"), "minimal"), Received::Foreign);
    // What it shows may match by chance, and is still not what it is.
    check(&own, hide(xml("hidden"), "minimal"), Received::Redacted);
    check(&own, hide(xml("shown"), "open"), Received::New);
    check(&own, xml("plain"), Received::New);
    assert_eq!(search.len(), 2);
}

#[test]
fn a_discreet_search_tells_nobody_what_it_looks_for_and_finds_it() {
    let mut search = search(once(1, 0.0, f64::INFINITY)).with_open_query_alone(7);
    assert_eq!(search.datagram(5), None);
    let open = search.open_datagram(5).unwrap();
    assert_eq!(open, b"LSL:shortinfo\r\n\r\n5 7\r\n");
    let named = |uid: &str, name: &str| {
        let text = String::from_utf8(xml(uid)).unwrap();
        let (before, rest) = text.split_once("<name>").unwrap();
        let (_, after) = rest.split_once("</name>").unwrap();
        format!("{before}<name>{name}</name>{after}").into_bytes()
    };
    let mut check = |id: &str, xml: Vec<u8>, expected| {
        let datagram = [id.as_bytes(), b"\r\n", &xml].concat();
        let received = search.handle_datagram(peer(), &datagram, 101.0);
        assert_eq!(received, expected, "{id}");
    };
    check("7", named("sought", "x"), Received::New);
    check("7", named("sought", "x"), Received::Refreshed);
    check("7", named("other", "y"), Received::Foreign);
    check("7", b"no document".to_vec(), Received::Foreign);
    // Nobody was asked under another id, the empty one included.
    check("", named("forged", "x"), Received::Foreign);
    check(
        &query_id(b"name='x'").to_string(),
        named("forged", "x"),
        Received::Foreign,
    );
    assert_eq!(search.len(), 1);
}

#[test]
fn who_does_not_look_for_the_hidden_takes_them_as_they_are() {
    let mut search = search(once(1, 0.0, f64::INFINITY));
    assert_eq!(search.open_datagram(5), None);
    let text = String::from_utf8(reply("hidden")).unwrap();
    let text = text.replace("</info>", "<lsl_secure mode=\"minimal\"/></info>");
    let received = search.handle_datagram(peer(), text.as_bytes(), 101.0);
    assert_eq!(received, Received::New);
}
