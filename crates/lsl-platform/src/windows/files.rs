//! Owners, permissions and versions of files: not on Windows yet.
//!
//! LSS/1 §3.3 demands access control lists that allow the owner and SYSTEM alone. Nothing here reads or
//! sets them yet, so everything that depends on them fails. Plaintext does less harm than a key that
//! everybody can read.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::windows::io::AsRawHandle;
use std::path::Path;
use std::time::Duration;

use windows_sys::Win32::Storage::FileSystem::{
    FILE_ID_INFO, FileIdInfo, GetFileInformationByHandleEx,
};

use crate::disk::{bytes_of, checked};

/// Counterpart of the Unix type; never constructed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// User id of the owner.
    pub owner: u32,
    /// Permission bits as on Unix.
    pub mode: u32,
    /// User id of this process.
    pub user: u32,
}

impl Access {
    /// Fails: access control lists are not read yet.
    ///
    /// # Errors
    /// Always `Unsupported`.
    pub fn of(_metadata: &Metadata) -> io::Result<Self> {
        Err(unchecked())
    }
}

/// Counterpart of the Unix type; never constructed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Time of the last write since 1970.
    pub modified: Duration,
    /// Time of the last change since 1970.
    pub changed: Duration,
}

impl Version {
    /// Fails: the metadata that std gives here do not identify a file.
    ///
    /// # Errors
    /// Always `Unsupported`.
    pub fn of(_metadata: &Metadata) -> io::Result<Self> {
        Err(unchecked())
    }
}

/// Fails; on Unix it compares two files.
///
/// # Errors
/// Always `Unsupported`.
pub fn is_same(_one: &Metadata, _other: &Metadata) -> io::Result<bool> {
    Err(unchecked())
}

/// Returns false, since groups are unknown here.
pub fn is_group_private(_metadata: &Metadata) -> bool {
    false
}

/// Creates a new file for writing and never replaces another one.
///
/// # Errors
/// `Unsupported` for a file that others must not read; else those of the system.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    if mode & OTHERS == 0 {
        return Err(unchecked());
    }
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Creates a new directory with inherited access rights.
///
/// # Errors
/// `Unsupported` for one that others must not enter; else those of the system.
pub fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    if mode & OTHERS == 0 {
        return Err(unchecked());
    }
    std::fs::create_dir(path)
}

/// Fails; see the Unix version.
///
/// # Errors
/// Always `Unsupported`.
pub fn make_alike(_file: &File, _model: &Metadata) -> io::Result<()> {
    Err(unchecked())
}

/// Does nothing without an `owner`, and fails with one.
///
/// # Errors
/// `Unsupported` if an owner is given.
pub fn give(_path: &Path, owner: Option<u32>) -> io::Result<()> {
    match owner {
        None => Ok(()),
        Some(_) => Err(unchecked()),
    }
}

/// Number of a volume and of a file on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    /// 0 where the system does not tell: of a renamed file under Wine.
    pub(crate) volume: u64,
    file: [u8; 16],
}

impl Identity {
    pub(crate) fn is_same(self, other: Self) -> bool {
        let is_one_volume = self.volume == other.volume || self.volume == 0 || other.volume == 0;
        is_one_volume && self.file == other.file
    }
}

/// Reads the numbers by which an open file or folder is the same under any name.
#[expect(
    unsafe_code,
    reason = "std tells half of the number, in unstable functions"
)]
pub(crate) fn identity(file: &File) -> io::Result<Identity> {
    let mut id = FILE_ID_INFO::default();
    // SAFETY: the handle is open, and there is room for one structure of this kind and size.
    checked(unsafe {
        GetFileInformationByHandleEx(
            file.as_raw_handle(),
            FileIdInfo,
            (&raw mut id).cast(),
            bytes_of::<FILE_ID_INFO>(),
        )
    })?;
    Ok(Identity {
        volume: id.VolumeSerialNumber,
        file: id.FileId.Identifier,
    })
}

/// Permission bits of group and others.
const OTHERS: u32 = 0o077;

/// Returns the error of all functions that need access control lists.
pub(crate) fn unchecked() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "on Windows lsl cannot see yet who may read or change a file, so that it cannot keep keys and \
         trust there",
    )
}
