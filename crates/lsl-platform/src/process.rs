//! Which process and which host this is.

#[cfg(unix)]
use rustix::process::getpid;

/// Identity of the running process. After `fork` the child sees another one, which is how objects
/// that own threads notice that their threads stayed behind in the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessId(u32);

impl ProcessId {
    /// The process that is running now. One cheap system call.
    pub fn current() -> Self {
        Self(id())
    }

    /// Whether the caller still runs in the process that recorded this value.
    pub fn is_current(self) -> bool {
        self == Self::current()
    }
}

#[cfg(unix)]
#[inline]
fn id() -> u32 {
    getpid().as_raw_nonzero().get().cast_unsigned()
}

/// Nothing forks on Windows, so that every process keeps its number.
#[cfg(windows)]
fn id() -> u32 {
    std::process::id()
}

/// The host's name as raw bytes, exactly what `gethostname` gives. Spec: lsl-protocol §2.1.
#[cfg(unix)]
pub fn hostname() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

/// The host's name in UTF-8, which is what `gethostname` gives for names of ASCII. Empty if the system
/// does not tell.
#[cfg(windows)]
#[expect(unsafe_code, reason = "std does not tell the name of the host")]
pub fn hostname() -> Vec<u8> {
    use windows_sys::Win32::System::SystemInformation::{
        ComputerNamePhysicalDnsHostname, GetComputerNameExW,
    };

    // A label of the domain name system has 63 characters at most.
    let mut name = [0_u16; 256];
    let mut length = 256_u32;
    // SAFETY: the system writes at most as many units as there is room for, and says how many.
    let done = unsafe {
        GetComputerNameExW(
            ComputerNamePhysicalDnsHostname,
            name.as_mut_ptr(),
            &raw mut length,
        )
    };
    let name = usize::try_from(length)
        .ok()
        .filter(|_| done != 0)
        .and_then(|length| name.get(..length));
    String::from_utf16_lossy(name.unwrap_or_default()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_recognises_itself_and_its_host_has_a_name() {
        assert!(ProcessId::current().is_current());
        assert!(!hostname().is_empty());
    }
}
