//! `--sign`: this device signs what it records, while it records it. What a signature proves, and how
//! often there is one, is `lsl_xdf::integrity`'s.

use std::sync::Arc;

use lsl_core::secure::{Fingerprint, SecretKey};
use lsl_xdf::integrity::Signer;

use crate::failure::{Failure, Outcome};
use crate::place::Place;

/// The key that signs recordings.
#[derive(Clone)]
pub(super) struct Device(Arc<SecretKey>);

impl Device {
    /// That of this machine.
    pub(super) fn find() -> Outcome<Self> {
        let key = Place::find(None).and_then(|place| place.key());
        let key = key.map_err(|failure| {
            let text = failure.to_string();
            let hint = if text.contains("lsl key init") {
                ""
            } else {
                "\nA machine that has no device key gets one by: lsl key init --name NAME"
            };
            Failure::Runtime(format!("--sign needs the key of this device: {text}{hint}"))
        })?;
        Ok(Self(Arc::new(key)))
    }

    /// By which people know it.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        self.0.public().fingerprint()
    }
}

impl Signer for Device {
    fn public_key(&self) -> [u8; 32] {
        *self.0.public().as_bytes()
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign_recording(message)
    }
}
