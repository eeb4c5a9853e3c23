//! Values of every kind of text as in liblsl, and that shown values read back.

use std::net::Ipv4Addr;

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "keeps the cases short")]
fn check<T: Setting + PartialEq + fmt::Debug>(text: &str, expected: T, problem: &str) {
    let mut problems = Vec::new();
    let value = T::read(text, None, &mut problems).expect(text);
    assert_eq!(value, expected, "{text:?}");
    let problems = problems.join("|");
    assert_eq!(
        problems.is_empty(),
        problem.is_empty(),
        "{text:?}: {problems}"
    );
    assert!(problems.contains(problem), "{text:?}: {problems}");
    let again = T::read(&value.show(), None, &mut Vec::new());
    assert_eq!(again.as_ref(), Ok(&value), "shown as {:?}", value.show());
}

#[test]
fn numbers_are_prefixes() {
    check("16573", 16573_u16, "");
    check("16573 ; ours", 16573_u16, "");
    check("16573x", 16573_u16, "'x' after the number");
    check("0x4000", 0_u16, "'x4000'");
    check("abc", 0_u16, "means 0");
    check("70000", 4464_u16, "wraps to 4464");
    check("-1", 65535_u16, "wraps to 65535");
    check("99999999999999999999", 65535_u16, "wraps");
    check("+7", 7_u16, "");
    check("-", 0_i32, "means 0");
    check("-3", -3_i32, "");
    check("1.9", 1_i32, "'.9'");
    check("-5", 0_u32, "outside");
    check("0.5", 0.5_f64, "");
    check(".5", 0.5_f64, "");
    check("5.", 5.0_f64, "");
    check("-2.5e-1", -0.25_f64, "");
    check("1,5", 1.0_f64, "',5' after the number");
    check("2s", 2.0_f64, "'s'");
    check("1e", 0.0_f64, "means 0");
    check("1e+", 0.0_f64, "means 0");
    check(".", 0.0_f64, "means 0");
    check("inf", 0.0_f64, "means 0");
    check("nan", 0.0_f64, "means 0");
    check("1e999", f64::MAX, "");
    check("0.064", 0.064_f64, "");
    check("90.0", 90.0_f32, "");
}

#[test]
fn booleans_are_one_or_not() {
    check("1", true, "");
    check("0", false, "");
    for text in ["true", "yes", "on", "01", "1 ; yes", "2", "TRUE"] {
        check(text, false, "means no");
    }
}

#[test]
fn sets_need_braces() {
    let peer = |host: &str, port| {
        let host = host.to_owned();
        KnownPeer::Host(HostPort { host, port })
    };
    check::<Vec<KnownPeer>>("{}", vec![], "");
    check("{a}", vec![peer("a", None)], "");
    check("{ a ,, b\t,}", vec![peer("a", None), peer("b", None)], "");
    check::<Vec<KnownPeer>>("a, b", vec![], "no entries");
    check::<Vec<KnownPeer>>("{a, b", vec![], "no entries");
    check::<Vec<KnownPeer>>("{a} ; comment", vec![], "no entries");
    check(
        "{h:1, [::1]:2, ::1, [fe80::1]}",
        vec![
            peer("h", Some(1)),
            peer("::1", Some(2)),
            peer("::1", None),
            peer("fe80::1", None),
        ],
        "",
    );
    for bad in [
        "10.0.0.0/8",
        "h/24",
        "h:",
        "h:0",
        "h:65536",
        "h:x",
        ":5",
        "[::1",
        "[::1]5",
        "[h]:1",
        "a b",
    ] {
        check::<Vec<KnownPeer>>(&format!("{{{bad}}}"), vec![], "ignored");
    }
    let v4: IpAddr = Ipv4Addr::LOCALHOST.into();
    check(
        "{127.0.0.1, nonsense}",
        vec![v4],
        "'nonsense' is not an IP address",
    );
    check(
        "{127.0.0.1, fe80::1%3}",
        vec![
            InterfaceAddress {
                address: v4,
                index: 0,
            },
            InterfaceAddress {
                address: IpAddr::V6("fe80::1".parse().unwrap()),
                index: 3,
            },
        ],
        "",
    );
    check::<Vec<InterfaceAddress>>("{fe80::1%eth0}", vec![], "ignored");
}

#[test]
fn words() {
    check("forced", Ipv6Mode::Force, "");
    check("allowed", Ipv6Mode::Allow, "");
    check("disabled", Ipv6Mode::Disable, "");
    check("organization", ResolveScope::Organization, "");
    for text in ["Allow", "", "1", "allow ; both"] {
        assert!(
            Ipv6Mode::read(text, None, &mut Vec::new()).is_err(),
            "{text:?}"
        );
        assert!(
            ResolveScope::read(text, None, &mut Vec::new()).is_err(),
            "{text:?}"
        );
    }
    check("default ; x", "default ; x".to_owned(), "comment");
    check("", None::<IpAddr>, "");
    check("everywhere", None::<IpAddr>, "not an IP address");
    check("1:2:3:4:5:6:7", MulticastGroup([1, 2, 3, 4, 5, 6, 7]), "");
    check("1:2:3", MulticastGroup::default(), "default is used");
}
