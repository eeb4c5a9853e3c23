use proptest::prelude::*;

use super::*;

const UID: &[u8] = b"39d71c4e-a901-4450-9e30-ee6f79450e0c";

fn generation() -> Generation {
    Generation::parse(UID).unwrap()
}

fn at(next: u64) -> ReplayFrom {
    ReplayFrom::At(
        Position {
            generation: generation(),
            next,
        },
        None,
    )
}

#[test]
fn generations_are_names_of_hexadecimal_digits() {
    assert_eq!(generation().to_string().as_bytes(), UID);
    for name in [&b"0"[..], b"-", &[b'f'; 64]] {
        assert_eq!(Generation::parse(name).unwrap().as_str().as_bytes(), name);
    }
    for name in [
        &b""[..],
        &[b'f'; 65],
        &[b'0'; 16_000],
        b"g",
        b"A",
        b"a b",
        b"a\0",
        b"\xff",
    ] {
        assert_eq!(Generation::parse(name), None, "{}", name.escape_ascii());
    }
    assert_ne!(Generation::parse(b"a"), Generation::parse(b"a0"));
}

#[test]
fn requests_are_read_by_the_grammar() {
    let check = |value: &str, expected| {
        assert_eq!(ReplayFrom::parse(value.as_bytes()), expected, "{value:?}");
    };
    let at_uid = |next: &str| format!("1 at {} {next}", generation());
    check("1 live", Some(ReplayFrom::Live));
    check("1 oldest", Some(ReplayFrom::Oldest));
    check(&at_uid("0"), Some(at(0)));
    check(&at_uid("00000000000000000007"), Some(at(7)));
    check(&at_uid("9223372036854775807"), Some(at(SEQUENCE_LIMIT - 1)));
    let silent = ReplayFrom::At(
        Position {
            generation: generation(),
            next: 5,
        },
        Some(1_250),
    );
    check(&at_uid("5 1.25"), Some(silent));
    check("1 last 500 n", Some(ReplayFrom::LastSamples(500)));
    check(
        "1 last 999999999999999 n",
        Some(ReplayFrom::LastSamples(MAX_LAST)),
    );
    check("1 last 10 s", Some(ReplayFrom::LastMillis(10_000)));
    check("1 last 0.5 s", Some(ReplayFrom::LastMillis(500)));
    check("1 last 0.05 s", Some(ReplayFrom::LastMillis(50)));
    check("1 last 1.005 s", Some(ReplayFrom::LastMillis(1005)));
    check(
        "1 last 999999999.999 s",
        Some(ReplayFrom::LastMillis(999_999_999_999)),
    );
    check(
        "1 last 999999999999999 s",
        Some(ReplayFrom::LastMillis(MAX_LAST * 1000)),
    );
    for next in [
        "",
        "-1",
        "+1",
        "1x",
        "9223372036854775808",
        "18446744073709551616",
        "000000000000000000007",
    ] {
        check(&at_uid(next), None);
    }
    for value in [
        "",
        "1",
        "live",
        "2 live",
        "11 live",
        "1  live",
        "1 live ",
        "1\tlive",
        "1 live x",
        "1 lively",
        "1 at",
        "1 at 0e",
        "1 at 0e 1 2 3",
        "1 at 0e 1 2s",
        "1 at 0e 1 ",
        "1 last 5 n 1",
        "1 at 0g 1",
        "1 last 5",
        "1 last 5 m",
        "1 last 5 n n",
        "1 last 5.5 n",
        "1 last 1000000000000000 n",
        "1 last 1000000000000000 s",
        "1 last 1000000000.5 s",
        "1 last .5 s",
        "1 last 5. s",
        "1 last 5.0000 s",
        "1 last 5.-1 s",
        "1 last 5.5.5 s",
        "1 last nan s",
        "1 last 1e3 s",
        &"1 ".repeat(8000),
        &format!("1 at {} 5", "f".repeat(65)),
    ] {
        check(value, None);
    }
}

#[test]
fn what_cannot_be_written_is_written_as_near_as_possible() {
    let check = |from: ReplayFrom, expected: &str| {
        assert_eq!(from.to_string(), expected);
        let line = format!("Lslx-Sequence: 1 {expected}\r\n");
        assert_eq!(from.header_line(), line);
    };
    check(ReplayFrom::Live, "live");
    let limit = format!("at {} 9223372036854775807", generation());
    check(at(u64::MAX), &limit);
    check(ReplayFrom::LastSamples(u64::MAX), "last 999999999999999 n");
    check(ReplayFrom::LastMillis(u64::MAX), "last 999999999999999 s");
    check(ReplayFrom::LastMillis(1), "last 0.001 s");
    check(
        ReplayFrom::LastMillis(999_999_999_001),
        "last 999999999.001 s",
    );
    check(
        ReplayFrom::LastMillis(1_000_000_000_001),
        "last 1000000001 s",
    );
}

#[test]
fn replies_are_read_and_written() {
    let granted = Granted {
        generation: generation(),
        begin: 5,
        live: 7,
        end: None,
    };
    let uid = generation();
    let line = format!("1 {uid} 5 7");
    assert_eq!(Granted::parse(line.as_bytes()), Some(granted));
    assert_eq!(granted.header_lines(), format!("Lslx-Sequence: {line}\r\n"));
    let ended = Granted {
        end: Some(9),
        ..granted
    };
    assert_eq!(
        ended.header_lines(),
        format!("Lslx-Sequence: {line}\r\nLslx-End: 9\r\n")
    );
    for value in [
        String::new(),
        format!("2 {uid} 5 7"),
        format!("1 {uid} 5"),
        format!("1 {uid} 5 7 9"),
        format!("1 {uid}  5 7"),
        format!("1 {uid} x 7"),
        format!("1 {uid} 5 -7"),
        format!("1 {uid} 5 9223372036854775808"),
        format!("1 {uid} 18446744073709551616 7"),
        format!("1 {} 5 7", "0".repeat(65)),
        "1  5 7".into(),
        "1 xyz 5 7".into(),
        "1 live".into(),
    ] {
        assert_eq!(Granted::parse(value.as_bytes()), None, "{value:?}");
    }
}

#[test]
fn replies_are_checked_against_the_request() {
    let check = |begin, live, end, asked: ReplayFrom, accepted: bool| {
        let granted = Granted {
            generation: generation(),
            begin,
            live,
            end,
        };
        let result = granted.check(&asked);
        assert_eq!(result.is_ok(), accepted, "{granted:?} {asked:?} {result:?}");
    };
    let other = ReplayFrom::At(
        Position {
            generation: Generation::parse(b"0e").unwrap(),
            next: 8,
        },
        None,
    );
    check(5, 5, None, ReplayFrom::Live, true);
    check(5, 4, None, ReplayFrom::Live, false);
    check(5, 9, None, at(5), true);
    check(6, 9, None, at(5), true);
    check(4, 9, None, at(5), false);
    check(4, 9, None, other, true);
    check(0, 0, None, ReplayFrom::Oldest, true);
    check(5, 9, Some(9), at(5), true);
    check(5, 9, Some(8), at(5), false);
}

#[test]
fn losses_are_counted_within_one_numbering() {
    let granted = Granted {
        generation: generation(),
        begin: 12,
        live: 20,
        end: None,
    };
    let position = |generation, next| Position { generation, next };
    let other = Generation::parse(b"0e").unwrap();
    assert_eq!(granted.lost_since(&position(generation(), 12)), Some(0));
    assert_eq!(granted.lost_since(&position(generation(), 2)), Some(10));
    assert_eq!(granted.lost_since(&position(other, 2)), None);
}

#[test]
fn gap_records_have_ten_bytes() {
    let gap = Gap {
        reason: GapReason::Skipped,
        to: 0x0102_0304_0506_0708,
    };
    let little = [3, 3, 8, 7, 6, 5, 4, 3, 2, 1];
    let big = [3, 3, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(gap.to_bytes(ByteOrder::Little), little);
    assert_eq!(gap.to_bytes(ByteOrder::Big), big);
    assert_eq!(Gap::parse(&little, ByteOrder::Little).unwrap(), gap);
    assert_eq!(Gap::parse(&big, ByteOrder::Big).unwrap(), gap);
    assert!(Gap::parse(&[3, 0, 0, 0, 0, 0, 0, 0, 0, 0x80], ByteOrder::Little).is_err());
    assert!(Gap::parse(&[3, 0, 0x80, 0, 0, 0, 0, 0, 0, 0], ByteOrder::Big).is_err());
    assert!(Gap::parse(&[3, 0, 0x7f, 0, 0, 0, 0, 0, 0, 0], ByteOrder::Big).is_ok());
    for code in 0..=255 {
        let reason = GapReason::from_code(code);
        assert_eq!(reason.code(), code);
        assert_eq!(
            matches!(reason, GapReason::Other(_)),
            !(1..=4).contains(&code)
        );
    }
}

#[test]
fn gaps_lead_forward() {
    let lost = |to, current| {
        let gap = Gap {
            reason: GapReason::ReaderTooSlow,
            to,
        };
        gap.lost(current).ok()
    };
    assert_eq!(lost(8, 5), Some(3));
    assert_eq!(lost(SEQUENCE_LIMIT - 1, 0), Some(SEQUENCE_LIMIT - 1));
    assert_eq!(lost(5, 5), None);
    assert_eq!(lost(4, 5), None);
    assert_eq!(lost(0, u64::MAX), None);
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        name in "[0-9a-f-]{1,64}",
        (next, begin, live) in (0..SEQUENCE_LIMIT, 0..SEQUENCE_LIMIT, 0..SEQUENCE_LIMIT),
        count in 0..=MAX_LAST,
        millis in prop_oneof![0_u64..1_000_000_000_000, (0..=MAX_LAST).prop_map(|secs| secs * 1000)],
    ) {
        let generation = Generation::parse(name.as_bytes()).unwrap();
        let value = |line: &str| {
            let value = line.strip_prefix("Lslx-Sequence: ").unwrap();
            value.strip_suffix("\r\n").unwrap().as_bytes().to_vec()
        };
        for from in [
            ReplayFrom::At(Position { generation, next }, None),
            ReplayFrom::At(Position { generation, next }, Some(millis)),
            ReplayFrom::LastSamples(count),
            ReplayFrom::LastMillis(millis),
        ] {
            prop_assert_eq!(ReplayFrom::parse(&value(&from.header_line())), Some(from));
        }
        let granted = Granted { generation, begin, live, end: None };
        prop_assert_eq!(Granted::parse(&value(&granted.header_lines())), Some(granted));
    }

    #[test]
    fn any_bytes_are_survived(value in prop::collection::vec(any::<u8>(), 0..100)) {
        let versioned = [b"1 ", value.as_slice()].concat();
        for value in [value, versioned] {
            let _ = (ReplayFrom::parse(&value), Granted::parse(&value), parse_sequence(&value));
        }
    }
}
