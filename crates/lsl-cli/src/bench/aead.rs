//! `lsl bench aead`

use clap::Args;

use crate::failure::{Failure, Outcome};

/// `lsl bench aead`
#[derive(Debug, Args)]
pub(super) struct Aead {}

impl Aead {
    pub(super) fn run(&self) -> Outcome {
        Err(Failure::Usage("not there yet".into()))
    }
}
