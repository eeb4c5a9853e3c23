//! `lsl bench handshake`

use clap::Args;

use crate::failure::{Failure, Outcome};

/// `lsl bench handshake`
#[derive(Debug, Args)]
pub(super) struct Handshake {}

impl Handshake {
    pub(super) fn run(&self) -> Outcome {
        Err(Failure::Usage("not there yet".into()))
    }
}
