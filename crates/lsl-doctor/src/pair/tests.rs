use super::*;
use crate::observe::{Class, OtherSide, Share};
use crate::table::{Finding, Level};

fn hello(nonce: &str) -> Hello {
    Hello {
        v: VERSION,
        nonce: nonce.into(),
        ..Hello::default()
    }
}

fn paths(datagrams: usize, connects: usize) -> Vec<Path> {
    let path = |is_tcp| Path {
        class: Class::Range,
        interface: String::new(),
        to: "192.0.2.7".parse().unwrap(),
        port: 16572,
        is_tcp,
    };
    let datagrams = std::iter::repeat_n(path(false), datagrams);
    datagrams
        .chain(std::iter::repeat_n(path(true), connects))
        .collect()
}

fn finding(text: &str) -> Finding {
    Finding {
        id: "fw.in".into(),
        level: Level::Fault,
        certain: true,
        subject: "eth0".into(),
        text: text.into(),
        streams: 0,
        seen: Vec::new(),
        remedies: Vec::new(),
    }
}

/// Carries bytes, in pieces of so many, until nobody has more.
fn talk(a: &mut Pair, b: &mut Pair, piece: usize, now: f64) {
    loop {
        let (to_b, to_a) = (a.take_output(), b.take_output());
        if to_a.is_empty() && to_b.is_empty() {
            break;
        }
        for bytes in to_b.chunks(piece) {
            b.handle_input(bytes, now).unwrap();
        }
        for bytes in to_a.chunks(piece) {
            a.handle_input(bytes, now).unwrap();
        }
    }
}

fn kinds(pair: &mut Pair) -> Vec<&'static str> {
    let name = |event| match event {
        Event::Hello(_) => "hello",
        Event::Begin(_) => "begin",
        Event::Count => "count",
        Event::Counts(_) => "counts",
        Event::Account(_) => "account",
        Event::Done => "done",
    };
    std::iter::from_fn(|| pair.poll_event()).map(name).collect()
}

#[test]
fn both_say_everything_in_whatever_pieces() {
    for piece in [1, 7, usize::MAX] {
        let mut a = Pair::new(Side::Dials, hello("a"), 0.0);
        let mut b = Pair::new(Side::Accepts, hello("b"), 0.0);
        // Who accepts says nothing to strangers.
        assert!(b.take_output().is_empty());
        talk(&mut a, &mut b, piece, 0.0);
        assert_eq!(
            (kinds(&mut a), kinds(&mut b)),
            (vec!["hello"], vec!["hello"])
        );
        a.plan(paths(3, 1));
        talk(&mut a, &mut b, piece, 1.0);
        assert!(kinds(&mut b).is_empty());
        b.plan(paths(50, 64));
        talk(&mut a, &mut b, piece, 2.0);
        for pair in [&mut a, &mut b] {
            assert_eq!(kinds(pair), ["begin"]);
            assert!((pair.poll_timeout() - (2.0 + SENDING_SECS)).abs() < 1e-9);
            pair.handle_timeout(pair.poll_timeout()).unwrap();
            assert_eq!(kinds(pair), ["count"]);
            pair.counted(Counts::default());
        }
        talk(&mut a, &mut b, piece, 4.0);
        a.report(Account::default());
        talk(&mut a, &mut b, piece, 5.0);
        assert_eq!(kinds(&mut b), ["counts", "account"]);
        b.report(Account::default());
        talk(&mut a, &mut b, piece, 6.0);
        assert_eq!(kinds(&mut a), ["counts", "account", "done"]);
        assert_eq!(kinds(&mut b), ["done"]);
        assert!(a.is_done() && b.is_done());
        a.handle_input(b"", 7.0).unwrap();
    }
}

#[test]
fn a_plan_of_ours_is_cut_and_one_of_theirs_refused() {
    let mut a = Pair::new(Side::Dials, hello("a"), 0.0);
    assert_eq!(a.plan(paths(80, 80)).len(), 50 + 64);
    for (datagrams, connects) in [(51, 0), (0, 65)] {
        let line = Message::Plan(paths(datagrams, connects)).line();
        hostile(&[&greeting(), &line], &PairError::Greedy);
    }
}

/// What a peer sends before its plan.
fn greeting() -> Vec<u8> {
    let hello = Message::Hello(Box::new(hello("x"))).line();
    [PREAMBLE.to_vec(), hello].concat()
}

/// Checks that this input ends the pair, and that it is told so where it speaks our language.
fn hostile(input: &[&[u8]], expected: &PairError) {
    for piece in [1, 1 << 20] {
        let mut pair = Pair::new(Side::Accepts, hello("b"), 0.0);
        let input = input.concat();
        let mut pieces = input.chunks(piece);
        let failed = pieces.find_map(|piece| pair.handle_input(piece, 0.0).err());
        assert_eq!(failed.as_ref(), Some(expected), "pieces of {piece}");
        let told = String::from_utf8(pair.take_output()).unwrap();
        let is_told = *expected != PairError::Foreign && !matches!(expected, PairError::Ended(_));
        assert_eq!(told.contains("{\"bye\":"), is_told, "{told}");
        assert!(pair.input.capacity() <= 2 * MAX_LINE_BYTES);
    }
}

#[test]
fn what_is_said_wrongly_ends_the_pair() {
    let greeting = greeting();
    let line = |message: Message| message.line();
    let plan = || line(Message::Plan(Vec::new()));
    for (input, expected) in [
        (&[&b"GET / HTTP/1.1\r\n"[..]][..], PairError::Foreign),
        (&[b"LSLD/2\r\n"], PairError::Foreign),
        (&[b"LSL:shortinfo\r\n"], PairError::Foreign),
        (
            &[PREAMBLE, &vec![b'x'; MAX_LINE_BYTES + 1]],
            PairError::Long,
        ),
        (&[PREAMBLE, b"{}\n"], PairError::Order),
        (&[PREAMBLE, &plan()], PairError::Order),
        (&[&greeting, &greeting[PREAMBLE.len()..]], PairError::Order),
        // We have not planned yet.
        (
            &[&greeting, &plan(), &line(Message::Ready(0))],
            PairError::Order,
        ),
        (&[&greeting, &plan(), &plan()], PairError::Order),
        (
            &[
                &greeting,
                &plan(),
                &line(Message::Counts(Counts::default())),
            ],
            PairError::Order,
        ),
        (
            &[&greeting, &line(Message::Bye(String::new()))],
            PairError::Order,
        ),
        (
            &[&greeting, &line(Message::Bye("no\u{1b}".into()))],
            PairError::Ended("no\u{1b}".into()),
        ),
        (&[PREAMBLE, b"{\"hello\":{\"v\":2}}\n"], PairError::Version),
    ] {
        hostile(input, &expected);
    }
    assert!(
        !PairError::Ended("no\u{1b}".into())
            .to_string()
            .contains('\u{1b}')
    );
    let mut pair = Pair::new(Side::Dials, hello("a"), 0.0);
    assert_eq!(pair.handle_input(b"", 0.0), Err(PairError::Gone));
}

#[test]
fn who_is_slow_is_left() {
    let mut pair = Pair::new(Side::Accepts, hello("b"), 0.0);
    // Single bytes win no time.
    for byte in PREAMBLE.iter().take(5) {
        pair.handle_input(&[*byte], STEP_SECS - 1.0).unwrap();
    }
    pair.handle_timeout(STEP_SECS - 0.1).unwrap();
    assert_eq!(pair.handle_timeout(STEP_SECS), Err(PairError::Slow));
    // Nor do whole lines, after ten minutes.
    let mut pair = Pair::new(Side::Accepts, hello("b"), 0.0);
    pair.handle_input(&greeting(), MOST_SECS - 1.0).unwrap();
    assert_eq!(pair.handle_timeout(MOST_SECS), Err(PairError::Slow));
}

#[test]
fn an_account_fits_a_line() {
    let mut pair = Pair::new(Side::Dials, hello("a"), 0.0);
    pair.take_output();
    pair.report(Account {
        findings: std::iter::repeat_n(finding(&"long".repeat(1000)), 30).collect(),
        ..Account::default()
    });
    let said = pair.take_output();
    assert!(said.len() <= MAX_LINE_BYTES);
    let Message::Report(said) = serde_json::from_slice(&said).unwrap() else {
        panic!("no report");
    };
    assert!(said.findings.len() > 10);
}

#[test]
fn a_probe_says_which_it_is() {
    let probe = Probe {
        nonce: "abc".into(),
        class: Class::GroupsV6,
        path: 12,
        copy: 9,
    };
    assert_eq!(Probe::parse(&probe.to_bytes()), Some(probe.clone()));
    for wrong in [
        "",
        "LSL:shortinfo\r\nabc 4.12 9\r\n",
        "LSL:doctor/1\r\nabc 7\r\n",
        "LSL:doctor/1\r\nabc 4.12 9",
        "LSL:doctor/1\r\nabc 4.12 10\r\n",
        "LSL:doctor/1\r\nabc 8.12 9\r\n",
        "LSL:doctor/1\r\nabc 4.128 9\r\n",
        "LSL:doctor/1\r\nabc 4.12 9 1\r\n",
        "LSL:doctor/1\r\na\u{1b}c 4.12 9\r\n",
    ] {
        assert_eq!(Probe::parse(wrong.as_bytes()), None, "{wrong}");
    }
    let mut heard = Heard::default();
    for copy in 0..10 {
        let probe = |class, path| Probe {
            class,
            path,
            copy,
            ..probe.clone()
        };
        heard.note(&probe(Class::SiteV4, 0));
        heard.note(&probe(Class::SiteV4, 0));
        if copy < 3 {
            heard.note(&probe(Class::Range, 2));
        }
    }
    assert_eq!(heard.counts("abc", 4), [10, 0, 3, 0]);
    assert_eq!(heard.counts("other", 1), [0]);
    let mut side = OtherSide::default();
    heard.tell(&mut side);
    assert_eq!(side.tag, 0xab);
    assert_eq!(tag(&nonce("amp", "1")), tag(&nonce("amp", "2")));
    let shares: Vec<(Class, Share)> = side.heard.into_iter().collect();
    assert_eq!(
        shares,
        [(Class::SiteV4, Share::All), (Class::Range, Share::Few)]
    );
    // Who makes up nonces wins no room.
    for number in 0..100 {
        heard.note(&Probe {
            nonce: format!("n{number}"),
            ..probe.clone()
        });
    }
    assert_eq!(heard.runs.len(), 8);
    // Nor the place of who is talked with.
    heard.pin(Some("peer"));
    for nonce in std::iter::once("peer".to_owned()).chain((0..100).map(|it| format!("f{it}"))) {
        heard.note(&Probe {
            nonce,
            ..probe.clone()
        });
    }
    assert_eq!(heard.runs.len(), 8);
    assert_eq!(heard.counts("peer", 13)[12], 1);
    let mut side = OtherSide::default();
    heard.tell(&mut side);
    assert_eq!(side.tag, tag("peer"));
}
