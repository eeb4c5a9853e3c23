//! The two directions of a session.

use super::*;
use crate::connection::send::MAX_UNSENT_BYTES;

/// The outlet's direction to its inlet, and the inlet's session.
fn sender(pad_to: u16) -> (SendHalf, ReceiveHalf) {
    let mut inlet = inlet();
    let mut outlet = Connection::responder(
        Arc::new(Local {
            pad_to,
            ..Arc::into_inner(local(4)).unwrap()
        }),
        descriptor().into(),
        0.0,
    );
    give(&mut outlet, &take(&mut inlet)[PREAMBLE.len()..], 0.0).unwrap();
    give(&mut inlet, &take(&mut outlet), 0.0).unwrap();
    give(&mut outlet, &take(&mut inlet), 0.0).unwrap();
    give(&mut inlet, &take(&mut outlet), 0.0).unwrap();
    (outlet.split().unwrap().0, inlet.split().unwrap().1)
}

/// A socket with room for so many bytes at a time.
#[derive(Default)]
struct Socket {
    room: usize,
    received: Vec<u8>,
}

impl Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.room);
        if taken == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.room -= taken;
        self.received.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }
}

fn send(sender: &mut SendHalf, bytes: &[u8], socket: &mut Socket) -> io::Result<usize> {
    sender.send(bytes, || NOW, |bytes| socket.write(bytes))
}

fn flush(sender: &mut SendHalf, socket: &mut Socket) -> bool {
    sender.flush(|| NOW, |bytes| socket.write(bytes)).unwrap()
}

/// What the inlet makes of what it received: DATA, and how much came before each PONG.
#[derive(Debug, Default, PartialEq)]
struct Opened {
    data: Vec<u8>,
    pongs: Vec<f64>,
    closed: bool,
}

fn open(inlet: &mut ReceiveHalf, received: &mut [u8]) -> Opened {
    let mut opened = Opened::default();
    let data = &mut opened.data;
    let result = inlet.handle_input(received, NOW, |bytes| {
        data.extend_from_slice(bytes);
        Ok(())
    });
    result.unwrap();
    while let Some(event) = inlet.poll_event() {
        match event {
            Event::Pong { times, .. } => opened.pongs.push(times[0]),
            Event::Closed => opened.closed = true,
            Event::Established(_) | Event::KeyUpdated => {}
            other => panic!("{other:?}"),
        }
    }
    opened
}

#[test]
fn a_full_socket_stalls_sealing_within_the_limit() {
    for pad_to in [0, 4096] {
        let (mut sender, mut inlet) = sender(pad_to);
        let mut socket = Socket {
            room: 1000,
            ..Socket::default()
        };
        let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        let sealed = send(&mut sender, &bytes, &mut socket).unwrap();
        assert!(sealed >= 32 * 1024 && sealed < bytes.len());
        assert!(sender.unsent() > sealed - 1000);
        // Nothing more is committed, whatever else has to be said.
        for _ in 0..100 {
            let refused = send(&mut sender, &bytes[sealed..], &mut socket);
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::WouldBlock);
            sender.pong(7.0, 7.0);
            assert!(!flush(&mut sender, &mut socket));
        }
        sender.close();
        assert!(sender.unsent() <= MAX_UNSENT_BYTES && !sender.is_closed());
        socket.room = usize::MAX;
        assert!(flush(&mut sender, &mut socket) && sender.is_closed());
        let opened = open(&mut inlet, &mut socket.received);
        assert!(opened.data == bytes[..sealed]);
        assert!(
            opened.closed && opened.pongs.is_empty(),
            "CLOSE is the last"
        );
    }
}

#[test]
fn only_the_newest_ping_is_answered_and_before_more_data() {
    let (mut sender, mut inlet) = sender(0);
    let mut socket = Socket {
        room: 10,
        ..Socket::default()
    };
    assert_eq!(send(&mut sender, &[1; 100], &mut socket).unwrap(), 100);
    let first = sender.unsent() + 10;
    for t0 in 1..=50 {
        sender.pong(f64::from(t0), NOW);
        assert!(!flush(&mut sender, &mut socket));
    }
    socket.room = usize::MAX;
    assert_eq!(send(&mut sender, &[2; 100], &mut socket).unwrap(), 100);
    let (first, rest) = socket.received.split_at_mut(first);
    assert_eq!(open(&mut inlet, first).data, [1; 100]);
    let (pong, rest) = rest.split_at_mut(24 + crate::record::RECORD_OVERHEAD);
    assert_eq!(open(&mut inlet, pong).pongs, [50.0]);
    assert_eq!(open(&mut inlet, rest).data, [2; 100]);
}

#[test]
fn of_pings_that_come_together_the_newest_is_told() {
    let [mut inlet, mut outlet] = established();
    let mut wire = Vec::new();
    for t0 in 1..=100 {
        inlet.sender().unwrap().ping(f64::from(t0)).unwrap();
        wire.extend(take(&mut inlet));
    }
    outlet.handle_input(&mut wire, 5.0, |_| Ok(())).unwrap();
    let told = format!("{:?}", outlet.poll_event());
    assert_eq!(told, "Some(Ping { t0: 100.0, t1: 5.0 })");
    assert!(outlet.poll_event().is_none());
}

#[test]
fn a_ping_does_not_wait_behind_unsent_bytes() {
    let [mut inlet, _] = established();
    let sender = inlet.sender().unwrap();
    sender.ping(1.0).unwrap();
    let unsent = sender.unsent();
    for t0 in 2..1000 {
        sender.ping(f64::from(t0)).unwrap();
    }
    assert_eq!(sender.unsent(), unsent);
}

#[test]
fn a_failed_session_says_not_a_byte_more() {
    let (mut sender, _) = sender(0);
    let mut socket = Socket {
        room: 10,
        ..Socket::default()
    };
    send(&mut sender, &[1; 100], &mut socket).unwrap();
    sender.pong(1.0, 1.0);
    sender.fail(&Error::session(Cause::RecordAuthFailed, "first"));
    sender.fail(&Error::session(Cause::Truncated, "second"));
    socket.room = usize::MAX;
    assert!(flush(&mut sender, &mut socket));
    assert!(send(&mut sender, &[1; 100], &mut socket).is_err());
    assert_eq!(socket.received.len(), 10);
    assert_eq!(sender.failure(), Some(Cause::RecordAuthFailed), "the first");
}

#[test]
fn a_session_that_failed_sends_opens_and_awaits_nothing() {
    let [mut inlet, _] = established();
    let sender = inlet.sender().unwrap();
    sender.fail(&Error::session(Cause::RecordAuthFailed, "changed"));
    assert!(sender.ping(1.0).is_err());
    assert!(take(&mut inlet).is_empty());

    let [mut inlet, mut outlet] = established();
    while inlet.poll_event().is_some() {}
    let due = |inlet: &Connection| inlet.poll_timeout().unwrap();
    for _ in 0..3 {
        inlet.handle_timeout(due(&inlet)).unwrap();
    }
    assert_eq!(cause(inlet.handle_timeout(due(&inlet))), Cause::Timeout);
    assert_eq!(inlet.poll_timeout(), None);
    inlet.handle_timeout(1e6).unwrap();
    let sender = outlet.sender().unwrap();
    let full = |_: &[u8]| Err(io::ErrorKind::WouldBlock.into());
    assert_eq!(sender.send(b"late", || NOW, full).unwrap(), 4);
    let late = inlet.handle_input(&mut take(&mut outlet), NOW, |_| panic!("delivered"));
    assert_eq!(cause(late), Cause::Timeout);
    assert!(inlet.take_time_keys().is_none() && take(&mut inlet).is_empty());
}

#[test]
fn keep_alives_do_not_pile_up_before_an_outlet_that_sends_and_does_not_read() {
    let [mut inlet, mut outlet] = established();
    for minute in 0..1000 {
        outlet.sender().unwrap().pong(1.0, 1.0);
        give(&mut inlet, &take(&mut outlet), 60.0 * f64::from(minute)).unwrap();
        let due = inlet.poll_timeout().unwrap();
        inlet.handle_timeout(due).unwrap();
    }
    let ping = 8 + crate::record::RECORD_OVERHEAD;
    assert_eq!(inlet.sender().unwrap().unsent(), ping);
}

#[test]
fn key_updates_are_reported_once() {
    let [mut inlet, outlet] = established();
    let (mut sender, _) = outlet.split().unwrap();
    let mut wire = Vec::new();
    for now in [0.0, 3600.0] {
        let sent = sender.send(
            b"x",
            || now,
            |bytes| {
                wire.extend_from_slice(bytes);
                Ok(bytes.len())
            },
        );
        sent.unwrap();
    }
    assert!(sender.has_key_updates());
    assert_eq!(
        (sender.take_key_updates(), sender.take_key_updates()),
        (1, 0)
    );
    assert!(!sender.has_key_updates());
    while inlet.poll_event().is_some() {}
    inlet.handle_input(&mut wire, NOW, |_| Ok(())).unwrap();
    assert!(matches!(inlet.poll_event(), Some(Event::KeyUpdated)));
    assert!(inlet.poll_event().is_none());
}

#[test]
fn close_is_the_end_and_an_end_without_it_is_none() {
    let [mut inlet, mut outlet] = established();
    while inlet.poll_event().is_some() {}
    let sender = outlet.sender().unwrap();
    sender.close();
    sender.close();
    sender.alert(Cause::Revoked);
    let mut wire = take(&mut outlet);
    inlet.handle_input(&mut wire, NOW, |_| Ok(())).unwrap();
    assert!(matches!(inlet.poll_event(), Some(Event::Closed)));
    assert!(inlet.receiver().unwrap().is_closed());
    assert_eq!(inlet.poll_timeout(), None);
    end(&mut inlet).unwrap();
    assert_eq!(cause(end(&mut outlet)), Cause::Truncated);
    assert!(take(&mut outlet).is_empty());
}

#[test]
fn who_breaks_the_rules_is_told_and_who_breaks_the_records_is_not() {
    let [mut inlet, mut outlet] = established();
    inlet.sender().unwrap().ping(1.0).unwrap();
    let mut forged = take(&mut inlet);
    forged[5] ^= 1;
    let broken = outlet.handle_input(&mut forged, NOW, |_| Ok(()));
    assert_eq!(cause(broken), Cause::RecordAuthFailed);
    outlet.sender().unwrap().close();
    assert!(take(&mut outlet).is_empty());

    let mut inlet = super::inlet();
    let (mut session, record) = accepted(&mut inlet);
    give(&mut inlet, &record, NOW).unwrap();
    let mut wire = Vec::new();
    for _ in 0..17 {
        session.sealer.seal_key_update(&mut wire).unwrap();
    }
    let flooded = inlet.handle_input(&mut wire, NOW, |_| Ok(()));
    assert_eq!(cause(flooded), Cause::UnexpectedRecord);
    let told = records(&mut session.opener, &mut take(&mut inlet));
    assert_eq!(told, ["Alert(UnexpectedRecord, \"\")"]);
}

#[test]
fn data_that_is_wrong_is_answered_with_nothing_but_the_end() {
    let [mut inlet, mut outlet] = established();
    let sender = outlet.sender().unwrap();
    sender
        .send(b"x", || NOW, |_| Err(io::ErrorKind::WouldBlock.into()))
        .unwrap();
    let mut wire = take(&mut outlet);
    let refused = inlet.handle_input(&mut wire, NOW, |_| {
        Err(Error::session(Cause::Malformed, "not LSL"))
    });
    assert_eq!(cause(refused), Cause::Malformed);
    let mut wire = take(&mut inlet);
    outlet.handle_input(&mut wire, NOW, |_| Ok(())).unwrap();
    assert!(matches!(outlet.poll_event(), Some(Event::Closed)));
}

#[test]
fn an_alert_is_an_error_with_its_text_made_safe_and_not_answered() {
    for (from_inlet, text) in [(true, ""), (false, "revoked")] {
        let [mut inlet, mut outlet] = established();
        let (from, to) = if from_inlet {
            (&mut inlet, &mut outlet)
        } else {
            (&mut outlet, &mut inlet)
        };
        from.sender().unwrap().alert(Cause::Revoked);
        assert_eq!(from.sender().unwrap().failure(), Some(Cause::Revoked));
        let mut wire = take(from);
        match to.handle_input(&mut wire, NOW, |_| Ok(())) {
            Err(Error::Alert { cause, text: told }) => {
                // Of two causes with one code the first of the table.
                assert_eq!((cause, told.as_str()), (Cause::Expired, text));
            }
            other => panic!("{other:?}"),
        }
        assert!(take(to).is_empty() && to.sender().unwrap().has_ended());
    }
}

/// A time in seconds of `local_clock`.
const NOW: f64 = 1000.0;
