//! `lsl bench latency`

use clap::Args;

use crate::failure::{Failure, Outcome};

/// `lsl bench latency`
#[derive(Debug, Args)]
pub(super) struct Latency {}

impl Latency {
    pub(super) fn run(&self) -> Outcome {
        Err(Failure::Usage("not there yet".into()))
    }
}
