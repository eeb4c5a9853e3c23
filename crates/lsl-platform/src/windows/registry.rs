//! Keys and values as functions of Windows list them.

use std::io;
use std::ptr::{null, null_mut};

use windows_sys::Win32::Foundation::{ERROR_MORE_DATA, ERROR_NO_MORE_ITEMS, ERROR_SUCCESS};
use windows_sys::Win32::System::Registry::{
    HKEY, HKEY_LOCAL_MACHINE, KEY_READ, KEY_WOW64_64KEY, REG_DWORD, REG_EXPAND_SZ, REG_SZ,
    RegCloseKey, RegEnumKeyExW, RegEnumValueW, RegOpenKeyExW,
};

use super::Data;
use crate::wide::wide_text;

/// Lists the texts and numbers of a key of `HKEY_LOCAL_MACHINE`, with their names; other kinds are left out.
///
/// # Errors
/// Those of `RegOpenKeyExW` and `RegEnumValueW`.
#[expect(unsafe_code, reason = "std does not know the registry")]
pub fn values(key: &str) -> io::Result<Vec<(String, Data)>> {
    let key = Key::open(key)?;
    let mut data = vec![0_u8; MOST_BYTES as usize];
    let mut all = Vec::new();
    for index in 0..MOST {
        let mut name = [0_u16; MOST_NAME as usize];
        let (mut name_units, mut bytes, mut kind) = (MOST_NAME, MOST_BYTES, 0);
        // SAFETY: the key is open, and both buffers are as long as is said.
        let code = unsafe {
            RegEnumValueW(
                key.0,
                index,
                name.as_mut_ptr(),
                &raw mut name_units,
                null(),
                &raw mut kind,
                data.as_mut_ptr(),
                &raw mut bytes,
            )
        };
        match code {
            ERROR_SUCCESS => {}
            ERROR_MORE_DATA => continue,
            ERROR_NO_MORE_ITEMS => break,
            code => return Err(io::Error::from_raw_os_error(code.cast_signed())),
        }
        let data = data.get(..bytes as usize).unwrap_or_default();
        let data = match kind {
            REG_SZ | REG_EXPAND_SZ => {
                let units = data.chunks_exact(2);
                let units = units.map(|it| u16::from_le_bytes([it[0], it[1]]));
                let units: Vec<u16> = units.take_while(|it| *it != 0).collect();
                Data::Text(String::from_utf16_lossy(&units))
            }
            REG_DWORD => match data.try_into() {
                Ok(bytes) => Data::Number(u32::from_le_bytes(bytes)),
                Err(_) => continue,
            },
            _ => continue,
        };
        all.push((text(&name, name_units), data));
    }
    Ok(all)
}

/// Lists the names of the keys below one of `HKEY_LOCAL_MACHINE`.
///
/// # Errors
/// As [`values`].
#[expect(unsafe_code, reason = "std does not know the registry")]
pub fn keys(key: &str) -> io::Result<Vec<String>> {
    let key = Key::open(key)?;
    let mut all = Vec::new();
    for index in 0..MOST {
        let mut name = [0_u16; MOST_NAME as usize];
        let mut units = MOST_NAME;
        // SAFETY: the key is open, and the buffer is as long as is said.
        let code = unsafe {
            RegEnumKeyExW(
                key.0,
                index,
                name.as_mut_ptr(),
                &raw mut units,
                null(),
                null_mut(),
                null_mut(),
                null_mut(),
            )
        };
        match code {
            ERROR_SUCCESS => all.push(text(&name, units)),
            ERROR_MORE_DATA => {}
            ERROR_NO_MORE_ITEMS => break,
            code => return Err(io::Error::from_raw_os_error(code.cast_signed())),
        }
    }
    Ok(all)
}

fn text(units: &[u16], length: u32) -> String {
    String::from_utf16_lossy(units.get(..length as usize).unwrap_or_default())
}

/// A key that is open.
struct Key(HKEY);

impl Key {
    #[expect(unsafe_code, reason = "std does not know the registry")]
    fn open(name: &str) -> io::Result<Self> {
        let name = wide_text(name);
        let mut key = null_mut();
        // A program of 32 bits sees what those of 64 do.
        let rights = KEY_READ | KEY_WOW64_64KEY;
        // SAFETY: the name ends with NUL, and the key is written where it may be.
        let code =
            unsafe { RegOpenKeyExW(HKEY_LOCAL_MACHINE, name.as_ptr(), 0, rights, &raw mut key) };
        match code {
            ERROR_SUCCESS => Ok(Self(key)),
            code => Err(io::Error::from_raw_os_error(code.cast_signed())),
        }
    }
}

impl Drop for Key {
    #[expect(unsafe_code, reason = "std does not know the registry")]
    fn drop(&mut self) {
        // SAFETY: it is open, and not used behind this.
        unsafe { RegCloseKey(self.0) };
    }
}

/// Values of a key, and keys below one.
const MOST: u32 = 100_000;
/// Units of a name; Windows allows 255 for keys, and 16,383 for values, of which ours have few.
const MOST_NAME: u32 = 1024;
const MOST_BYTES: u32 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_says_its_version() {
        let key = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion";
        let all = values(key).unwrap();
        let build = all.iter().find(|(name, _)| name == "CurrentBuildNumber");
        assert!(
            matches!(build, Some((_, Data::Text(text))) if text.parse::<u32>().is_ok()),
            "{all:?}"
        );
        assert!(keys(r"SOFTWARE\Microsoft").unwrap().len() > 1);
        assert_eq!(
            values(r"SOFTWARE\lsl\no such key").unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
