//! `lsl bench report`

use clap::Args;

use crate::failure::{Failure, Outcome};

/// `lsl bench report`
#[derive(Debug, Args)]
pub(super) struct Report {}

impl Report {
    pub(super) fn run(&self) -> Outcome {
        Err(Failure::Usage("not there yet".into()))
    }
}
