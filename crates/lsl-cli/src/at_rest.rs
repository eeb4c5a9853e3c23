//! `lsl lock`, `unlock`, `rotate` and `verify`: recordings, and any other files, encrypted at rest in
//! the age v1 format. Encrypting is `lsl_xdf::at_rest`'s; here is what people ask for and are told.

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
