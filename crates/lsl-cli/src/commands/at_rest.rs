//! `lsl lock`, `unlock`, `rotate` and `verify`: recordings, and any other files, encrypted at rest
//! in the age v1 format. `lsl_xdf::at_rest` encrypts; here are the arguments and the reports.

mod lock;
mod report;
mod rotate;
mod signer;
mod unlock;
mod verify;

pub(crate) use self::lock::Lock;
pub(crate) use self::rotate::Rotate;
pub(crate) use self::unlock::Unlock;
pub(crate) use self::verify::Verify;
