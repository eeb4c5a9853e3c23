//! Decoded samples waiting for the caller.
/// x
#[derive(Debug)]
pub struct SampleRing {}
