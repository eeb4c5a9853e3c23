//! `lsl bench bulk`

use clap::Args;

use crate::failure::{Failure, Outcome};

/// `lsl bench bulk`
#[derive(Debug, Args)]
pub(super) struct Bulk {}

impl Bulk {
    pub(super) fn run(&self) -> Outcome {
        Err(Failure::Usage("not there yet".into()))
    }
}
