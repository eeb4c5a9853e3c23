//! `lsl bench net`

use clap::Args;

use crate::failure::{Failure, Outcome};

/// `lsl bench net`
#[derive(Debug, Args)]
pub(super) struct Net {}

impl Net {
    pub(super) fn run(&self) -> Outcome {
        Err(Failure::Usage("not there yet".into()))
    }
}
