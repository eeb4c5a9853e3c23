//! `lsl bench max`

use clap::Args;

use crate::failure::{Failure, Outcome};

/// `lsl bench max`
#[derive(Debug, Args)]
pub(super) struct Max {}

impl Max {
    pub(super) fn run(&self) -> Outcome {
        Err(Failure::Usage("not there yet".into()))
    }
}
