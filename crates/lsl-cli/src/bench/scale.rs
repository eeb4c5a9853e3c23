//! `lsl bench scale`

use clap::Args;

use crate::failure::{Failure, Outcome};

/// `lsl bench scale`
#[derive(Debug, Args)]
pub(super) struct Scale {}

impl Scale {
    pub(super) fn run(&self) -> Outcome {
        Err(Failure::Usage("not there yet".into()))
    }
}
