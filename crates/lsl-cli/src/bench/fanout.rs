//! `lsl bench fanout`

use clap::Args;

use crate::failure::{Failure, Outcome};

/// `lsl bench fanout`
#[derive(Debug, Args)]
pub(super) struct Fanout {}

impl Fanout {
    pub(super) fn run(&self) -> Outcome {
        Err(Failure::Usage("not there yet".into()))
    }
}
