//! Both sides against the known answers, against each other and against everything in between.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Deserialize;

use super::*;
use crate::testing::unhex;
use crate::{Descriptor, Local, Psk, Random, SecretKey, Session, Suites};

mod connections;
mod exchange;
mod mutation;
mod sessions;
mod tiling;
mod trail;
mod vectors;

/// Random source that returns given values in order.
struct Fixed(VecDeque<[u8; 32]>);

impl Fixed {
    fn new(bytes: [u8; 32]) -> Self {
        Self(VecDeque::from([bytes]))
    }
}

impl Random for Fixed {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        let next = self.0.pop_front();
        bytes.copy_from_slice(&next.ok_or_else(|| Error::session(Cause::Internal, "empty"))?);
        Ok(())
    }
}

/// One run of `secure-session-vectors.json`; the rest of it is read where it is needed.
#[derive(Deserialize)]
struct Run {
    name: String,
    suite: u16,
    offered: Vec<u16>,
    fingerprint_i: String,
    fingerprint_r: String,
    records: Vec<RecordVector>,
    #[serde(flatten)]
    values: std::collections::HashMap<String, String>,
}

#[derive(Deserialize)]
struct RecordVector {
    dir: String,
    ctr: u64,
    #[serde(rename = "type")]
    record_type: u8,
    payload: String,
    pad: u16,
    after_update: bool,
    wire: String,
}

impl Run {
    fn all() -> Vec<Self> {
        #[derive(Deserialize)]
        struct File {
            vectors: Vec<Run>,
        }
        let text = include_str!("../../tests/vectors/secure-session-vectors.json");
        let file: File = serde_json::from_str(text).unwrap();
        assert_eq!(file.vectors.len(), 5);
        file.vectors
    }

    fn named(name: &str) -> Self {
        let mut runs = Self::all();
        runs.retain(|run| run.name == name);
        runs.pop().unwrap()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        unhex(&self.values[name])
    }

    fn secret(&self, name: &str) -> [u8; 32] {
        self.bytes(name).try_into().unwrap()
    }

    fn suite(&self) -> crate::Suite {
        crate::Suite::from_id(self.suite).unwrap()
    }

    /// The inlet of this run, with the options of the vector.
    fn inlet(&self) -> Arc<Local> {
        self.local("seed_i", self.offered.contains(&2))
    }

    /// The outlet of this run: forces ChaCha where it was chosen.
    fn outlet(&self) -> Arc<Local> {
        self.local("seed_r", self.suite == 2)
    }

    fn local(&self, seed: &str, aes: bool) -> Arc<Local> {
        Arc::new(Local {
            key: SecretKey::from_seed(&self.secret(seed)),
            // The vectors write "none" as zeros, which is what it is as a salt.
            psk: Psk::from_bytes(self.secret("psk")).ok(),
            suites: if aes {
                Suites::Both
            } else {
                Suites::ChaCha20Only
            },
            pad_to: 0,
        })
    }

    fn start(&self) -> (Initiator, Vec<u8>) {
        Initiator::start(self.inlet(), &mut Fixed::new(self.secret("e_i"))).unwrap()
    }

    /// Returns M1 without the preamble before it.
    fn m1(&self) -> Vec<u8> {
        self.bytes("M1")[PREAMBLE.len()..].to_vec()
    }

    fn answer(&self, m1: &[u8]) -> Result<(WaitM3, Vec<u8>)> {
        Responder::new(self.outlet()).receive_m1(m1, &mut Fixed::new(self.secret("e_r")))
    }
}

impl Run {
    /// Both sides of an honest handshake of this run.
    fn sessions(&self) -> (Session, Session) {
        let (initiator, _) = self.start();
        let (wait, m2) = self.answer(&self.m1()).unwrap();
        let (unconfirmed, m3) = initiator.receive_m2(&m2).unwrap().accept().unwrap();
        let Claim::Verified(verified) = wait.receive_m3(&m3).unwrap() else {
            panic!("an honest inlet refused");
        };
        let (outlet, mut record) = verified.accept(&descriptor()).unwrap();
        let (inlet, _) = unconfirmed.receive_descriptor(&mut record).unwrap();
        (inlet, outlet)
    }
}

fn descriptor() -> Descriptor {
    Descriptor {
        uid: b"uid".to_vec(),
        name: b"name".to_vec(),
        stream_type: b"EEG".to_vec(),
        source_id: b"source".to_vec(),
        hostname: b"host".to_vec(),
        session_id: b"default".to_vec(),
        channel_count: 8,
        nominal_srate: 500.0,
        channel_format: 1,
        created_at: 1.5,
    }
}
