//! The registry of Windows, read alone.

#[cfg(windows)]
#[path = "windows/registry.rs"]
mod system;
#[cfg(windows)]
pub use system::{keys, values};

/// Data of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// `REG_SZ`, and `REG_EXPAND_SZ` as it stands.
    Text(String),
    /// `REG_DWORD`
    Number(u32),
}

/// Fails: no other system has a registry.
///
/// # Errors
/// Always `Unsupported`.
#[cfg(not(windows))]
pub fn values(_key: &str) -> std::io::Result<Vec<(String, Data)>> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Fails as [`values`].
///
/// # Errors
/// Always `Unsupported`.
#[cfg(not(windows))]
pub fn keys(_key: &str) -> std::io::Result<Vec<String>> {
    Err(std::io::ErrorKind::Unsupported.into())
}
