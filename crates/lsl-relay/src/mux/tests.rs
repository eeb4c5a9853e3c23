//! Both ends of a link joined by pipes in virtual time, and what a hostile peer can do.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits {
    window: 65_536,
    streams: 4096,
};

fn pair() -> (Mux, Mux) {
    let end = |side| Mux::new(side, LIMITS, LIMITS, 0.0);
    (end(Side::Dialler), end(Side::Acceptor))
}

/// Everything that is due, as one piece of bytes. Checks that no frame crosses a record.
fn sent(mux: &mut Mux, now: f64) -> Vec<u8> {
    let mut all = Vec::new();
    let mut gathered = Gathered::default();
    while mux.poll_transmit(now, &mut gathered) {
        assert!(gathered.bytes().len() <= GATHER_LEN);
        for record in gathered.records() {
            assert!(record.len() <= RECORD_LEN);
            let mut rest = record;
            while let Some((head, after)) = rest.split_first_chunk() {
                let header = frame::Header::parse(*head).expect("a frame");
                rest = &after[header.len..];
            }
            assert!(rest.is_empty(), "a frame crosses records");
        }
        all.extend_from_slice(gathered.bytes());
    }
    all
}

fn deliver(from: &mut Mux, to: &mut Mux, now: f64) {
    let bytes = sent(from, now);
    to.handle_input(&bytes, now);
}

fn events(mux: &mut Mux) -> Vec<Event> {
    std::iter::from_fn(|| mux.poll_event()).collect()
}

/// Kinds of the frames in `bytes`, with their substream.
fn kinds(mut bytes: &[u8]) -> Vec<(u8, u32)> {
    let mut kinds = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk() {
        let header = frame::Header::parse(*head).expect("a frame");
        kinds.push((head[0], header.substream));
        bytes = &rest[header.len..];
    }
    kinds
}

fn read_all(mux: &mut Mux, id: u32) -> (Vec<u8>, Read) {
    let mut all = Vec::new();
    let mut piece = [0; 1000];
    loop {
        match mux.read(id, &mut piece) {
            Read::Bytes(count) => all.extend_from_slice(&piece[..count]),
            end => return (all, end),
        }
    }
}

#[test]
fn a_request_is_answered_and_both_ends_forget_it() {
    let (mut dialler, mut acceptor) = pair();
    let id = dialler.open(b"LSL:fullinfo x\r\n", false).expect("room");
    assert_eq!(id, 1);
    dialler.finish(id);
    deliver(&mut dialler, &mut acceptor, 1.0);
    let request = b"LSL:fullinfo x\r\n".to_vec();
    let expected = [Event::Opened { id, request }, Event::Readable(id)];
    assert_eq!(events(&mut acceptor), expected);
    assert_eq!(acceptor.read(id, &mut [0; 9]), Read::End);
    assert_eq!(acceptor.write(id, b"<info/>", 1.0), 7);
    acceptor.finish(id);
    deliver(&mut acceptor, &mut dialler, 1.0);
    assert_eq!(read_all(&mut dialler, id), (b"<info/>".to_vec(), Read::End));
    assert_eq!((dialler.substreams(), acceptor.substreams()), (0, 0));
    assert_eq!(acceptor.open(b"x", false), Ok(2));
}

#[test]
fn frames_leave_in_their_order() {
    let (mut dialler, mut acceptor) = pair();
    deliver(&mut acceptor, &mut dialler, 0.0);
    let ids: Vec<_> = (0..4)
        .map(|_| dialler.open(b"x", false).expect("room"))
        .collect();
    deliver(&mut dialler, &mut acceptor, 0.0);
    acceptor.write(ids[2], &vec![7; 40_000], 0.0);
    deliver(&mut acceptor, &mut dialler, 0.0);
    acceptor.write(ids[2], &vec![7; 40_000], 0.0);
    acceptor.write(ids[2], &vec![7; 40_000], 0.0);
    deliver(&mut acceptor, &mut dialler, 0.0);
    read_all(&mut dialler, ids[2]);
    acceptor.handle_timeout(5.0);
    deliver(&mut acceptor, &mut dialler, 5.0);
    dialler.write(ids[3], b"data", 5.0);
    dialler.open(b"x", false).expect("room");
    dialler.handle_timeout(5.0);
    dialler.finish(ids[1]);
    dialler.reset(ids[0], Code::REFUSED, "");
    read_all(&mut dialler, ids[2]);
    acceptor.write(ids[2], &vec![7; 16_000], 5.0);
    deliver(&mut acceptor, &mut dialler, 5.0);
    read_all(&mut dialler, ids[2]);
    let frames = kinds(&sent(&mut dialler, 5.0));
    assert_eq!(
        frames,
        [(5, 1), (4, 3), (7, 0), (6, 0), (3, 5), (1, 9), (2, 7)]
    );
    dialler.close(Code::SHUTDOWN, "ends");
    assert_eq!(kinds(&sent(&mut dialler, 5.0)), [(8, 0)]);
}

#[test]
fn live_data_go_before_history_but_for_every_eighth_turn() {
    let (mut dialler, mut acceptor) = pair();
    let past = dialler.open(b"past", true).expect("room");
    let live = [(); 5].map(|()| dialler.open(b"live", false).expect("room"));
    deliver(&mut dialler, &mut acceptor, 0.0);
    deliver(&mut acceptor, &mut dialler, 0.0);
    deliver(&mut dialler, &mut acceptor, 0.0);
    let all = || live.into_iter().chain([past]);
    let full = vec![1; MAX_PAYLOAD + 1];
    all().for_each(|id| assert_eq!(dialler.write(id, &full, 0.0), MAX_PAYLOAD));
    let mut order = Vec::new();
    let mut gathered = Gathered::default();
    for _ in 0..40 {
        dialler.poll_transmit(0.0, &mut gathered);
        order.extend(
            kinds(gathered.bytes())
                .into_iter()
                .filter(|(kind, _)| *kind == 2),
        );
        acceptor.handle_input(gathered.bytes(), 0.0);
        all().for_each(|id| drop(read_all(&mut acceptor, id)));
        for event in events(&mut dialler) {
            if let Event::Writable(id) = event {
                dialler.write(id, &full, 0.0);
            }
        }
        deliver(&mut acceptor, &mut dialler, 0.0);
    }
    let count = |wanted| order.iter().filter(|(_, id)| *id == wanted).count();
    assert_eq!((order.len(), count(past)), (160, 20));
    let counts = live.map(count);
    assert_eq!(counts, [28; 5]);
}

#[test]
fn a_substream_without_credit_waits_alone_and_ends_after_a_minute() {
    let (mut dialler, mut acceptor) = pair();
    let [stuck, other] = [(); 2].map(|()| dialler.open(b"x", false).expect("room"));
    let mut taken = 0;
    for _ in 0..10 {
        taken += dialler.write(stuck, &vec![1; 20_000], 0.0);
        deliver(&mut dialler, &mut acceptor, 0.0);
    }
    // A window at the other end, a frame here.
    assert_eq!(taken, 65_536 + MAX_PAYLOAD);
    for second in 1..=60 {
        let now = f64::from(second);
        assert_eq!(dialler.write(other, &[2; 41], now), 41);
        dialler.handle_timeout(now);
        acceptor.handle_timeout(now);
        deliver(&mut dialler, &mut acceptor, now);
        deliver(&mut acceptor, &mut dialler, now);
        assert_eq!(read_all(&mut acceptor, other).0.len(), 41);
        let is_over = events(&mut dialler).iter().any(|event| {
            matches!(event, Event::Reset { id, code: Code::TOO_SLOW, by_peer: false, .. } if *id == stuck)
        });
        assert_eq!(is_over, second == 60);
    }
    let reset = |event: &Event| matches!(event, Event::Reset { id, code: Code::TOO_SLOW, by_peer: true, .. } if *id == stuck);
    assert!(events(&mut acceptor).iter().any(reset));
    assert_eq!(acceptor.read(stuck, &mut [0; 9]), Read::End);
}

#[test]
fn writable_is_said_once_there_is_room_again() {
    let (mut dialler, _) = pair();
    let id = dialler.open(b"x", false).expect("room");
    assert_eq!(dialler.write(id, &vec![1; 20_000], 0.0), MAX_PAYLOAD);
    assert_eq!(dialler.write(id, &vec![1; 20_000], 0.0), 0);
    assert_eq!(events(&mut dialler), []);
    sent(&mut dialler, 0.0);
    assert_eq!(events(&mut dialler), [Event::Writable(id)]);
    assert_eq!(dialler.write(id, &[1; 9], 0.0), 9);
    sent(&mut dialler, 0.0);
    assert_eq!(events(&mut dialler), []);
}

#[test]
fn a_silent_link_is_asked_and_then_down() {
    let (mut dialler, mut acceptor) = pair();
    deliver(&mut dialler, &mut acceptor, 0.0);
    let answer = sent(&mut acceptor, 0.25);
    dialler.handle_input(&answer, 0.5);
    assert_eq!(events(&mut dialler), [Event::Pong([0.0, 0.0, 0.25, 0.5])]);
    dialler.handle_input(&answer, 0.5);
    assert_eq!(events(&mut dialler), [], "a repeated PONG");
    assert_eq!(dialler.poll_timeout(), Some(5.0));
    for now in [5.0, 10.0, 15.0] {
        sent(&mut dialler, now - 0.1);
        dialler.handle_timeout(now);
        assert_eq!(kinds(&sent(&mut dialler, now)), [(6, 0)]);
    }
    dialler.handle_timeout(15.5);
    let [
        Event::Closed {
            by: ClosedBy::Silence,
            ..
        },
    ] = events(&mut dialler)[..]
    else {
        panic!("it is down");
    };
    assert_eq!(
        (dialler.poll_timeout(), sent(&mut dialler, 16.0)),
        (None, vec![])
    );
    dialler.set_ping_secs(0.25, 16.0);
    acceptor.set_ping_secs(0.25, 1.0);
    assert_eq!(acceptor.poll_timeout(), Some(1.25));
}

#[test]
fn mistakes_of_the_peer_end_the_link() {
    let open = |id: u8| [1, 0, 0, 1, 0, 0, 0, id, b'x'].to_vec();
    let on = |kind: u8, id: u8, payload: &[u8]| {
        let len = u8::try_from(payload.len()).expect("short");
        [&[kind, 0, 0, len, 0, 0, 0, id], payload].concat()
    };
    let much = [&[2, 0, 0x3f, 0xf8, 0, 0, 0, 1][..], &[0; MAX_PAYLOAD]].concat();
    let cases = [
        ("unknown kind", on(9, 1, b"")),
        ("kind 0", on(0, 0, b"")),
        ("flags", vec![4, 1, 0, 0, 0, 0, 0, 1]),
        ("too long", vec![2, 0, 0x3f, 0xf9, 0, 0, 0, 1]),
        ("short PING", on(6, 0, &[0; 7])),
        ("PING on a substream", on(6, 1, &[0; 8])),
        ("OPEN on the link", open(0)),
        ("wrong parity", open(2)),
        ("known id", [open(3), open(3)].concat()),
        ("falling id", [open(3), open(1)].concat()),
        ("never opened", on(2, 1, b"x")),
        ("END of ours that was never opened", on(4, 2, b"")),
        (
            "data after END",
            [open(1), on(4, 1, b""), on(2, 1, b"x")].concat(),
        ),
        ("two ENDs", [open(1), on(4, 1, b""), on(4, 1, b"")].concat()),
        ("no credit", [open(1), much.repeat(5)].concat()),
        ("credit", [open(1), on(3, 1, &[0x80, 0, 0, 0])].concat()),
    ];
    for (name, bytes) in cases {
        for cut in [1, 5, bytes.len()] {
            let (_, mut acceptor) = pair();
            for piece in bytes.chunks(cut) {
                acceptor.handle_input(piece, 1.0);
            }
            let last = events(&mut acceptor).pop();
            let is_closed = matches!(
                last,
                Some(Event::Closed {
                    code: Code::PROTOCOL,
                    by: ClosedBy::Us,
                    ..
                })
            );
            assert!(is_closed, "{name}: {last:?}");
            assert_eq!(kinds(&sent(&mut acceptor, 1.0)), [(8, 0)], "{name}");
            acceptor.handle_input(&open(1), 1.0);
            assert_eq!(events(&mut acceptor), [], "{name}");
        }
    }
}

#[test]
fn frames_on_the_way_to_a_reset_substream_are_dropped() {
    let (mut dialler, mut acceptor) = pair();
    let id = dialler.open(b"x", false).expect("room");
    deliver(&mut dialler, &mut acceptor, 0.0);
    deliver(&mut acceptor, &mut dialler, 0.0);
    events(&mut dialler);
    acceptor.reset(id, Code::REFUSED, "404");
    dialler.write(id, &[1; 9], 0.0);
    dialler.finish(id);
    deliver(&mut dialler, &mut acceptor, 0.0);
    deliver(&mut acceptor, &mut dialler, 0.0);
    assert!(!acceptor.is_closed() && !dialler.is_closed());
    let text = "404".to_owned();
    let reset = Event::Reset {
        id,
        code: Code::REFUSED,
        text,
        by_peer: true,
    };
    assert_eq!(events(&mut dialler), [reset]);
    assert_eq!(dialler.write(id, b"x", 0.0), 0);
}

#[test]
fn a_peer_has_no_more_substreams_and_answers_than_its_limit() {
    let few = Limits {
        streams: 2,
        ..LIMITS
    };
    let mut acceptor = Mux::new(Side::Acceptor, few, LIMITS, 0.0);
    let mut dialler = Mux::new(Side::Dialler, LIMITS, few, 0.0);
    for expected in [Ok(1), Ok(3), Err(OpenError::Limit)] {
        assert_eq!(dialler.open(b"x", false), expected);
    }
    assert_eq!(dialler.open(b"", false), Err(OpenError::Length));
    let mut hostile = Mux::new(Side::Dialler, LIMITS, LIMITS, 0.0);
    for _ in 0..4 {
        hostile.open(b"x", false).expect("room");
    }
    deliver(&mut hostile, &mut acceptor, 0.0);
    assert_eq!(acceptor.substreams(), 2);
    for _ in 0..2 {
        hostile.open(b"x", false).expect("room");
    }
    // It never reads what it is answered.
    deliver(&mut hostile, &mut acceptor, 0.0);
    assert_eq!(kinds(&sent(&mut acceptor, 0.0)), [(8, 0)]);
}

/// One end with 64 substreams that writes and reads as fast as it can, and what is left of it to check.
struct Busy {
    mux: Mux,
    /// Bytes written and read of each substream.
    moved: HashMap<u32, (u64, u64)>,
    unsent: Vec<u8>,
    pongs: usize,
    table: Vec<u8>,
}

/// Bytes of a substream from a position on, which tell one from another.
fn pattern(table: &[u8], id: u32, at: u64) -> &[u8] {
    &table[usize::try_from((u64::from(id) * 31 + at) % 251).expect("small")..]
}

impl Busy {
    fn new(side: Side) -> Self {
        Self {
            mux: Mux::new(side, LIMITS, LIMITS, 0.0),
            moved: HashMap::new(),
            unsent: Vec::new(),
            pongs: 0,
            table: (0..400_u32).flat_map(|_| 0..251).collect(),
        }
    }

    fn write(&mut self, id: u32, now: f64) {
        let (written, _) = self.moved.entry(id).or_default();
        let piece = &pattern(&self.table, id, *written)[..20_000];
        *written += self.mux.write(id, piece, now) as u64;
    }

    fn read(&mut self, id: u32) {
        let (bytes, _) = read_all(&mut self.mux, id);
        let (_, read) = self.moved.entry(id).or_default();
        assert!(pattern(&self.table, id, *read).starts_with(&bytes));
        *read += bytes.len() as u64;
    }

    fn turn(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>, now: f64) {
        self.mux.handle_input(&std::mem::take(input), now);
        self.mux.handle_timeout(now);
        while let Some(event) = self.mux.poll_event() {
            match event {
                Event::Opened { id, .. } | Event::Writable(id) => self.write(id, now),
                Event::Readable(id) => self.read(id),
                Event::Pong(_) => self.pongs += 1,
                other => panic!("{other:?}"),
            }
        }
        if self.unsent.is_empty() {
            let mut gathered = Gathered::default();
            self.mux.poll_transmit(now, &mut gathered);
            self.unsent.extend_from_slice(gathered.bytes());
        }
        let room = PIPE.saturating_sub(output.len()).min(self.unsent.len());
        output.extend(self.unsent.drain(..room));
    }
}

const PIPE: usize = 4096;

/// Test 8 of relay §14 in virtual time: a stall of either end would stop all progress for good.
#[test]
fn full_speed_both_ways_through_small_buffers_never_stalls() {
    let (mut one, mut other) = (Busy::new(Side::Dialler), Busy::new(Side::Acceptor));
    for end in [&mut one, &mut other] {
        end.mux.set_ping_secs(0.01, 0.0);
        for _ in 0..32 {
            let id = end.mux.open(b"LSL:streamfeed/110 x", false).expect("room");
            end.write(id, 0.0);
        }
    }
    let (mut there, mut back) = (Vec::new(), Vec::new());
    for step in 1..=10_000_u32 {
        let now = f64::from(step) * 1e-3;
        one.turn(&mut back, &mut there, now);
        other.turn(&mut there, &mut back, now);
    }
    for (from, to) in [(&one, &other), (&other, &one)] {
        let total: u64 = to.moved.values().map(|(_, read)| read).sum();
        // Nearly all of what the pipe can carry was data.
        assert!(total > 10_000 * PIPE as u64 * 9 / 10, "{total}");
        assert!(from.pongs > 100, "{} answers in 10 s", from.pongs);
        let read = to.moved.values().map(|(_, read)| *read);
        let (least, most) = (read.clone().min(), read.max());
        assert!(
            most.zip(least)
                .is_some_and(|(most, least)| most - least <= 3 * 65_536)
        );
    }
}

proptest! {
    /// Whatever arrives, in whatever pieces: the result does not depend on the cuts, and memory is bounded.
    #[test]
    fn any_bytes_in_any_pieces_have_one_result(
        frames in prop::collection::vec((0_u8..10, 0_u32..5, prop::collection::vec(any::<u8>(), 0..30)), 0..40),
        cut in 1_usize..50,
    ) {
        let mut bytes = Vec::new();
        for (kind, id, payload) in frames {
            let len = u16::try_from(payload.len()).expect("short");
            bytes.extend_from_slice(&[kind, 0]);
            bytes.extend_from_slice(&len.to_be_bytes());
            bytes.extend_from_slice(&id.to_be_bytes());
            bytes.extend_from_slice(&payload);
        }
        let result = |cut: usize| {
            let (_, mut mux) = pair();
            for piece in bytes.chunks(cut) {
                mux.handle_input(piece, 1.0);
            }
            (events(&mut mux), sent(&mut mux, 2.0))
        };
        prop_assert_eq!(result(cut), result(bytes.len().max(1)));
    }
}
