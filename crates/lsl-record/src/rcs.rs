//! Remote control as LabRecorder has it: lines over TCP that others start and stop recordings by.

mod protocol;
mod server;
mod token;

pub use protocol::Command;
pub use server::{ListenError, Request, listen};
pub use token::{Gate, TokenError};
