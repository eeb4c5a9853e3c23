//! Signing of a recording while it grows. `lsl_xdf::integrity` decides their contents and
//! intervals.

use std::sync::Arc;

use lsl_core::secure::{Fingerprint, SecretKey};
use lsl_xdf::integrity::Signer;

/// Signs recordings with the key of a device.
#[derive(Debug, Clone)]
pub struct DeviceSigner(Arc<SecretKey>);

impl DeviceSigner {
    /// Creates a signer with this key.
    pub fn new(key: SecretKey) -> Self {
        Self(Arc::new(key))
    }

    /// Returns the fingerprint by which people know the key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.0.public().fingerprint()
    }
}

impl Signer for DeviceSigner {
    fn public_key(&self) -> [u8; 32] {
        *self.0.public().as_bytes()
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign_recording(message)
    }
}
