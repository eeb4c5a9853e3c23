//! Records, time probes and exporter against the reference script, both ways. Spec: LSS/1 §14.

use serde::Deserialize;

use super::*;
use crate::session::Exporter;
use crate::{SessionId, TimeKeys};

#[derive(Deserialize)]
struct Run {
    name: String,
    suite: u16,
    records: Vec<Vector>,
    ap_i: String,
    ap_r: String,
    ap_r_after_update: String,
    time_i: String,
    time_r: String,
    exporter: String,
    session_id: String,
    time_request: String,
    time_reply: String,
}

#[derive(Deserialize)]
struct Vector {
    dir: String,
    ctr: u64,
    #[serde(rename = "type")]
    kind: u8,
    payload: String,
    pad: u16,
    after_update: bool,
    wire: String,
}

fn runs() -> Vec<Run> {
    #[derive(Deserialize)]
    struct File {
        vectors: Vec<Run>,
    }
    let text = include_str!("../../../tests/vectors/secure-session-vectors.json");
    let file: File = serde_json::from_str(text).unwrap();
    assert_eq!(file.vectors.len(), 5);
    file.vectors
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn secret_of(text: &str) -> Secret {
    Secret::new(hex(text).try_into().unwrap())
}

#[test]
fn records_are_the_reference() {
    for run in runs() {
        let suite = Suite::from_id(run.suite).unwrap();
        let mut sealed_types = Vec::new();
        for vector in &run.records {
            let (role, secret) = match (vector.dir.as_str(), vector.after_update) {
                ("i", false) => (Role::Inlet, &run.ap_i),
                ("r", false) => (Role::Outlet, &run.ap_r),
                ("r", true) => (Role::Outlet, &run.ap_r_after_update),
                other => panic!("{other:?}"),
            };
            // `pad` is what lies behind the payload. The one padded record of the reference fills 17
            // bytes, which no allowed `pad_to` does, but the arithmetic is the same.
            let payload = hex(&vector.payload);
            let pad_to = match vector.pad {
                0 => 0,
                pad => pad + u16::try_from(payload.len()).unwrap(),
            };
            // Samples of the record layer: the reference has no DESCRIPTOR before them.
            let mut sealer = Sealer::new(suite, &secret_of(secret), role, pad_to);
            sealer.skip_descriptor();
            sealer.ratchet().set_counter(vector.ctr);
            let mut wire = Vec::new();
            match vector.kind {
                1 => sealer.seal_data(&payload, NOW, &mut wire).unwrap(),
                3 => sealer.seal_key_update(&mut wire).unwrap(),
                4 => sealer.seal_close(&mut wire).unwrap(),
                other => panic!("{other}"),
            }
            assert_eq!(wire, hex(&vector.wire), "{} {}", run.name, vector.kind);
            sealed_types.push(vector.kind);

            let peer = match role {
                Role::Inlet => Role::Outlet,
                Role::Outlet => Role::Inlet,
            };
            let mut opener = Opener::new(suite, &secret_of(secret), peer);
            opener.skip_descriptor();
            opener.ratchet().set_counter(vector.ctr);
            let (events, received) = open(&mut opener, &hex(&vector.wire));
            received.unwrap();
            let expected = match vector.kind {
                1 => vec![Event::Data(payload)],
                4 => vec![Event::Close],
                _ => vec![],
            };
            assert_eq!(events, expected);
        }
        assert_eq!(sealed_types, [1, 1, 3, 1, 4]);
    }
}

/// The outlet's three records in one sequence, through the update.
#[test]
fn the_ratchet_is_the_reference() {
    for run in runs() {
        let suite = Suite::from_id(run.suite).unwrap();
        let mut opener = Opener::new(suite, &secret_of(&run.ap_r), Role::Inlet);
        opener.skip_descriptor();
        let wire: Vec<u8> = run
            .records
            .iter()
            .filter(|vector| vector.dir == "r")
            .flat_map(|vector| hex(&vector.wire))
            .collect();
        let (events, received) = open_in_pieces(&mut opener, &wire, NOW, &[5]);
        received.unwrap();
        assert_eq!(events.len(), 2);
        assert_eq!(events[1], Event::Data(b"x".to_vec()));
        assert_eq!(opener.totals().key_updates, 1);
    }
}

#[test]
fn time_packets_are_the_reference() {
    for run in runs() {
        let keys = || {
            let id = SessionId(hex(&run.session_id).try_into().unwrap());
            TimeKeys::new(id, secret_of(&run.time_i), secret_of(&run.time_r))
        };
        let mut prober = keys().into_prober();
        let mut responder = keys().into_responder();
        let request = prober.probe(1.5).unwrap();
        assert_eq!(request[..], hex(&run.time_request), "{}", run.name);
        let reply = responder.answer(&request, 2.5, || 2.75).unwrap();
        assert_eq!(reply[..], hex(&run.time_reply), "{}", run.name);
        let received = prober.receive(&reply, 1.75, 0.128).unwrap();
        assert_eq!((received.t0, received.t1, received.t2), (1.5, 2.5, 2.75));
    }
}

/// `EL(exp, label, SHA-256(context), L)`, computed once with Python's `hmac` from the formulas.
#[test]
fn the_exporter_is_the_reference() {
    let run = runs().remove(0);
    let exporter = Exporter::new(secret_of(&run.exporter));
    let check = |label: &[u8], context: &[u8], expected: &str| {
        let mut out = vec![0; expected.len() / 2];
        exporter.export(label, context, &mut out);
        assert_eq!(out, hex(expected));
    };
    check(
        b"",
        b"",
        "6556463c6c04f9fb74a575a9c09efdf48ff56a95ea963e3eeedda67374cb55e7",
    );
    check(
        b"EXPERIMENTER channel binding",
        b"run 7",
        "ed9a70fd6c54949b5d35e8de3d907540e2512d16e2bb85080da01baa5b17322494a90204a78c8e33256847f6e815c10e",
    );
    check(b"x", &[b'y'; 1000], "e3");
}
