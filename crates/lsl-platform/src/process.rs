//! Which process and which host this is.

use rustix::process::getpid;
use rustix::system::uname;

/// Identity of the running process. After `fork` the child sees another one, which is how objects
/// that own threads notice that their threads stayed behind in the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessId(i32);

impl ProcessId {
    /// The process that is running now. One cheap system call.
    pub fn current() -> Self {
        Self(getpid().as_raw_nonzero().get())
    }

    /// Whether the caller still runs in the process that recorded this value.
    pub fn is_current(self) -> bool {
        self == Self::current()
    }
}

/// The host's name as raw bytes, exactly what `gethostname` gives. Spec: lsl-protocol §2.1.
pub fn hostname() -> Vec<u8> {
    uname().nodename().to_bytes().to_vec()
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
