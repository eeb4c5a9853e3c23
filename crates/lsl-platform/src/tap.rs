//! Network devices whose frames a program takes and gives: Linux' TAP.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::num::NonZeroU64;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// An Ethernet device of this network namespace, or of the one it is moved to. Gone when dropped.
#[derive(Debug)]
pub struct Tap(File);

impl Tap {
    /// Makes the device.
    ///
    /// # Errors
    ///
    /// For whom may not administer the network; if the name is taken, empty or longer than 15 bytes.
    #[expect(unsafe_code, reason = "rustix knows ioctls by number alone")]
    pub fn create(name: &str) -> io::Result<Self> {
        let mut request = Request {
            name: [0; 16],
            flags: IFF_TAP | IFF_NO_PI,
            rest: [0; 22],
        };
        let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "no name of a device");
        // The last byte stays 0.
        let room = request.name.get_mut(..name.len().min(16));
        match room {
            Some(room) if (1..16).contains(&name.len()) => room.copy_from_slice(name.as_bytes()),
            _ => return Err(wrong()),
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/net/tun")?;
        // SAFETY: the request is what TUNSETIFF reads and writes, a whole `ifreq`.
        let request = unsafe { Updater::<TUNSETIFF, Request>::new(&mut request) };
        // SAFETY: the same, of an open file.
        unsafe { ioctl(&file, request) }?;
        Ok(Self(file))
    }

    /// Waits for a frame that the system sends, and returns how long it is.
    ///
    /// # Errors
    ///
    /// Those of `read(2)`.
    pub fn take(&self, frame: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(frame)
    }

    /// Lets the system receive a frame.
    ///
    /// # Errors
    ///
    /// Those of `write(2)`, also while the device is down.
    pub fn give(&self, frame: &[u8]) -> io::Result<()> {
        (&self.0).write_all(frame)
    }
}

/// Makes this thread's sleeps end within about a nanosecond of their time, not 50 µs.
pub fn sleep_exactly() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// The part of `ifreq` that names and flags take, and the rest.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// `linux/if_tun.h`, which says `int` and means the structure.
const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
const IFF_TAP: u16 = 2;
const IFF_NO_PI: u16 = 0x1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit() {
        for name in ["", "a name of sixteen", "a name of 16 byt"] {
            let error = Tap::create(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
        }
    }
}
