//! Which programs have which ports, where the system tells everybody. On Linux `/proc` tells it of sockets.

#[cfg(windows)]
#[path = "windows/port_holders.rs"]
mod system;
#[cfg(windows)]
pub use system::{port_holders, program_of};

/// A port and the process that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortHolder {
    /// Port of UDP, or one at which TCP listens.
    pub port: u16,
    /// The process.
    pub pid: u32,
}

/// Fails: it is not done for this system.
///
/// # Errors
/// Always `Unsupported`.
#[cfg(not(windows))]
pub fn port_holders() -> std::io::Result<Vec<PortHolder>> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Returns `None`: it is not done for this system.
#[cfg(not(windows))]
pub fn program_of(_pid: u32) -> Option<String> {
    None
}
