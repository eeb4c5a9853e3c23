//! Frames of a hostile relay: the cuts do not matter, memory is bounded by window and substreams, and what is
//! sent back is frames of which none crosses a record.

use lsl_relay::mux::{
    Event, GATHER_LEN, Gathered, HEADER_LEN, Limits, Mux, RECORD_LEN, Read, Side,
};

use super::split;

const LIMITS: Limits = Limits {
    window: 16_384,
    streams: 3,
};

pub fn check(input: &[u8]) {
    let (length, bytes) = split(input);
    // As text, for a time may be no number.
    let [whole, cut] = [bytes.len().max(1), length].map(|length| {
        let (events, sent) = run(bytes, length);
        (format!("{events:?}"), sent)
    });
    assert_eq!(cut, whole, "depends on the cuts");
}

/// What happened and was sent, after all input and again a while later.
fn run(bytes: &[u8], length: usize) -> (Vec<Event>, Vec<u8>) {
    let mut mux = Mux::new(Side::Acceptor, LIMITS, LIMITS, 0.0);
    let own = mux.open(b"LSL:watch/1\r\n\r\n", false).expect("room");
    mux.write(own, &vec![7; 40_000], 0.0);
    let mut sent = drain(&mut mux, 0.0);
    for piece in bytes.chunks(length) {
        mux.handle_input(piece, 1.0);
    }
    let mut events = Vec::new();
    let mut total = 0;
    while let Some(event) = mux.poll_event() {
        if let Event::Opened { id, .. } = event {
            assert_eq!(id % 2, 1);
            mux.write(id, b"answer", 1.0);
            mux.finish(id);
        }
        if let Event::Readable(id) = event {
            let mut piece = [0; 1000];
            while let Read::Bytes(count) = mux.read(id, &mut piece) {
                total += count;
            }
        }
        events.push(event);
    }
    assert!(total <= 4 * 16_384, "{total} bytes were kept");
    assert!(mux.substreams() <= 4);
    sent.extend(drain(&mut mux, 1.0));
    mux.handle_timeout(6.0);
    sent.extend(drain(&mut mux, 6.0));
    mux.handle_timeout(20.0);
    sent.extend(drain(&mut mux, 20.0));
    assert!(mux.is_closed());
    (events, sent)
}

fn drain(mux: &mut Mux, now: f64) -> Vec<u8> {
    let mut sent = Vec::new();
    let mut gathered = Gathered::default();
    while mux.poll_transmit(now, &mut gathered) {
        assert!(gathered.bytes().len() <= GATHER_LEN);
        for mut record in gathered.records() {
            assert!(record.len() <= RECORD_LEN);
            while !record.is_empty() {
                let len = u16::from_be_bytes([record[2], record[3]]);
                record = &record[HEADER_LEN + usize::from(len)..];
            }
        }
        sent.extend_from_slice(gathered.bytes());
    }
    sent
}
