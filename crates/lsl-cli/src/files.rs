//! Files that several commands read and write: recordings with their keys, and the keys, trust file and
//! configuration of this device.

pub(crate) mod at_rest_keys;
pub(crate) mod device;
pub(crate) mod place;
pub(crate) mod recording;
pub(crate) mod security_log;
pub(crate) mod summary;
pub(crate) mod trust;
