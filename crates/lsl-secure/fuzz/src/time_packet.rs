//! Clock probes with an attacker on the way. Input: steps; each sends, delivers, changes or replays a
//! packet.

use std::collections::HashSet;

use lsl_secure::{TIME_PACKET_LEN, session_prefix};

use super::Controls;
use super::two_party::sessions;

type Packet = [u8; TIME_PACKET_LEN];

pub fn check(input: &[u8]) {
    let mut controls = Controls { rest: input };
    let (inlet, outlet) = sessions();
    let (mut prober, mut responder) = (inlet.time.into_prober(), outlet.time.into_responder());
    let (mut probes, mut replies): (Vec<Packet>, Vec<Packet>) = (vec![], vec![]);
    let (mut answered, mut accepted) = (HashSet::new(), HashSet::new());
    let mut now = 100.0;
    while !controls.rest.is_empty() && probes.len() + replies.len() < 300 {
        now += 0.001;
        let step = controls.byte();
        let pick = usize::from(controls.byte());
        match step % 6 {
            0 => probes.push(prober.probe(now).expect("far from the limit")),
            // Delivered or replayed.
            1 => {
                let Some(probe) = probes.get(pick) else {
                    continue;
                };
                match responder.answer(probe, now, || now) {
                    Some(reply) => {
                        assert!(answered.insert(pick), "answered twice");
                        replies.push(reply);
                    }
                    None => assert!(
                        answered.contains(&pick) || probes.len() - pick > 64,
                        "an honest probe was not answered"
                    ),
                }
            }
            2 => {
                let Some(reply) = replies.get(pick) else {
                    continue;
                };
                if prober.receive(reply, now, 1e9).is_some() {
                    assert!(accepted.insert(pick), "accepted twice");
                }
            }
            // Changed, reflected or made up: nothing of it may pass.
            3 => {
                let from = if step & 64 == 0 { &probes } else { &replies };
                let mut packet = from.get(pick).map_or(vec![], |packet| packet.to_vec());
                controls.edit(&mut packet);
                if !probes.iter().any(|probe| packet == *probe) {
                    assert!(responder.answer(&packet, now, || now).is_none());
                }
                if !replies.iter().any(|reply| packet == *reply) {
                    assert!(prober.receive(&packet, now, 1e9).is_none());
                }
                let named = session_prefix(&packet).is_some();
                assert_eq!(
                    named,
                    packet.len() == TIME_PACKET_LEN && packet.starts_with(lsl_secure::TIME_PREFIX)
                );
            }
            4 => {
                if let Some(reply) = replies.get(pick) {
                    assert!(responder.answer(reply, now, || now).is_none());
                }
            }
            _ => {
                if let Some(probe) = probes.get(pick) {
                    assert!(prober.receive(probe, now, 1e9).is_none());
                }
            }
        }
    }
    assert!(accepted.len() <= answered.len());
}
