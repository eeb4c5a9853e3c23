//! Records of an encrypted session between two devices that were made up for it, in memory.

use std::hint::black_box;

use lsl_benches::handshake::Peers;
use lsl_core::secure::handshake::{Unconfirmed, WaitM3};
use lsl_core::secure::{self, Random, Session, Suites};

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
    Peers::new(suites).shake_hands(&mut Fixed(1), &mut Fixed(2))
}

/// A handshake up to its third message, which is the last.
pub(crate) fn claimed(suites: Suites) -> secure::Result<(WaitM3, Unconfirmed, Vec<u8>)> {
    Peers::new(suites).claim(&mut Fixed(1), &mut Fixed(2))
}

/// The same handshake each time, because checking a signature takes more or less work.
pub(crate) struct Fixed(pub(crate) u8);

impl Random for Fixed {
    fn fill(&mut self, bytes: &mut [u8]) -> secure::Result<()> {
        bytes.fill(self.0);
        Ok(())
    }
}

/// 64 float32 with a time stamp, on the wire.
pub(crate) const FRAME_BYTES: usize = 265;

pub(crate) const NOW: f64 = 1000.0;
