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

/// The report of a run beside its results; `lsl bench report` makes the same.
pub(super) fn render(_: &super::result::Results, _: &std::path::Path) -> Outcome {
    Ok(())
}
