//! Records of an encrypted session between two devices that were made up for it, in memory.

use std::hint::black_box;
use std::sync::Arc;

use lsl_core::secure::handshake::{Claim, Initiator, PREAMBLE, Responder, Unconfirmed, WaitM3};
use lsl_core::secure::{self, Cause, Descriptor, Error, Local, Random, SecretKey, Session, Suites};

use crate::{Result, check};

/// Which work is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    Seal,
    /// Records open once and in order, so that each must be sealed before: subtract `Seal`.
    SealAndOpen,
}

/// Seals one payload after the other, as long as a frame of 64 floats.
pub(crate) fn records(times: usize, suites: Suites, ends: Ends) -> Result {
    let (mut inlet, mut outlet) = established(suites)?;
    let payload = [7; FRAME_BYTES];
    let mut record = Vec::new();
    let mut opened = 0;
    for _ in 0..times {
        record.clear();
        outlet
            .sealer
            .seal_data(black_box(&payload), NOW, &mut record)?;
        if ends == Ends::SealAndOpen {
            inlet.opener.receive(&mut record, NOW, |record| {
                black_box(&record);
                opened += 1;
                Ok(())
            })?;
        }
    }
    check(record.len() > FRAME_BYTES && opened == if ends == Ends::Seal { 0 } else { times })
}

/// The inlet's and the outlet's end of a new session.
pub(crate) fn established(suites: Suites) -> secure::Result<(Session, Session)> {
    let (wait, unconfirmed, third) = claimed(suites)?;
    let Claim::Verified(verified) = wait.receive_m3(&third)? else {
        return Err(Error::session(Cause::Internal, "a refusal"));
    };
    let (outlet, mut record) = verified.accept(&descriptor())?;
    let (inlet, _) = unconfirmed.receive_descriptor(&mut record)?;
    Ok((inlet, outlet))
}

/// A handshake up to its third message, which is the last.
pub(crate) fn claimed(suites: Suites) -> secure::Result<(WaitM3, Unconfirmed, Vec<u8>)> {
    let (initiator, flight) = Initiator::start(local(3, suites), &mut Fixed(1))?;
    let responder = Responder::new(local(4, suites));
    let (wait, second) = responder.receive_m1(&flight[PREAMBLE.len()..], &mut Fixed(2))?;
    let (unconfirmed, third) = initiator.receive_m2(&second)?.accept()?;
    Ok((wait, unconfirmed, third))
}

/// The same handshake each time, because checking a signature takes more or less work.
struct Fixed(u8);

impl Random for Fixed {
    fn fill(&mut self, bytes: &mut [u8]) -> secure::Result<()> {
        bytes.fill(self.0);
        Ok(())
    }
}

fn local(seed: u8, suites: Suites) -> Arc<Local> {
    Arc::new(Local {
        key: SecretKey::from_seed(&[seed; 32]),
        psk: None,
        suites,
        pad_to: 0,
    })
}

fn descriptor() -> Descriptor {
    Descriptor {
        uid: b"33333333-3333-4333-8333-333333333333".to_vec(),
        name: b"BioSemi".to_vec(),
        stream_type: b"EEG".to_vec(),
        source_id: b"src-42".to_vec(),
        hostname: b"lab-pc".to_vec(),
        session_id: b"default".to_vec(),
        channel_count: 64,
        nominal_srate: 1000.0,
        channel_format: 1,
        created_at: 12.5,
    }
}

/// 64 float32 with a time stamp, on the wire.
pub(crate) const FRAME_BYTES: usize = 265;

pub(crate) const NOW: f64 = 1000.0;
