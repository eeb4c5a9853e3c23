//! Reads the name of this host.

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
    fn the_host_has_a_name() {
        assert!(!hostname().is_empty());
    }
}
