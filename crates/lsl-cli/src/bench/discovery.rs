//! `lsl bench discovery`

use clap::Args;

use crate::failure::{Failure, Outcome};

/// `lsl bench discovery`
#[derive(Debug, Args)]
pub(super) struct Discovery {}

impl Discovery {
    pub(super) fn run(&self) -> Outcome {
        Err(Failure::Usage("not there yet".into()))
    }
}
