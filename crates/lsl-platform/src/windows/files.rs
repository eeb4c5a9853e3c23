//! Owners, lists of access and identity of files. Makes no decision: which access is too much is the rule of
//! [`acl`](crate::acl).
//!
//! New files can be private, and open ones can be judged. What is asked of metadata fails: std's tell neither
//! owner nor list, so that lsl-secure reads no keys and no trust here until it asks of open files. Plaintext does
//! less harm than a key that everybody can read.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::Path;
use std::ptr::null_mut;
use std::time::Duration;

use windows_sys::Win32::Foundation::{GENERIC_WRITE, INVALID_HANDLE_VALUE, LocalFree};
use windows_sys::Win32::Security::Authorization::{
    ConvertStringSecurityDescriptorToSecurityDescriptorW, GetSecurityInfo, SDDL_REVISION_1,
    SE_FILE_OBJECT,
};
use windows_sys::Win32::Security::{
    DACL_SECURITY_INFORMATION, GetSecurityDescriptorLength, GetTokenInformation,
    OWNER_SECURITY_INFORMATION, PSECURITY_DESCRIPTOR, SECURITY_ATTRIBUTES, TOKEN_QUERY, TOKEN_USER,
    TokenUser,
};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, CREATE_NEW, CreateDirectoryW, CreateFileW, FILE_ATTRIBUTE_NORMAL,
    FILE_ID_INFO, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, FileIdInfo,
    GetFileInformationByHandle, GetFileInformationByHandleEx, GetVolumeInformationByHandleW,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

pub use crate::acl::{Exposure, Need};
use crate::acl::{Sid, exposure};
use crate::disk::{bytes_of, checked};
use crate::wide::wide_path;

/// Flag of a file system that keeps lists of access.
const FILE_PERSISTENT_ACLS: u32 = 8;

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

/// Creates a new file for writing and never replaces another one. Without the bits of group and others in
/// `mode` it is for the user of this program alone, else for those for whom its directory is.
///
/// # Errors
/// Those of the system, such as [`io::ErrorKind::AlreadyExists`].
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    if mode & OTHERS == 0 {
        return open_private(path, GENERIC_WRITE, CREATE_NEW, FILE_ATTRIBUTE_NORMAL);
    }
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Creates a new directory. Without the bits of group and others in `mode` it, and what will be in it, is for
/// the user of this program alone.
///
/// # Errors
/// As [`create_new`].
#[expect(unsafe_code, reason = "std gives rights to no directory")]
pub fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    if mode & OTHERS != 0 {
        return std::fs::create_dir(path);
    }
    let path = wide_path(path)?;
    let owned = Descriptor::of_owner("OICI")?;
    // SAFETY: a text that ends with NUL, and a structure that refers to a descriptor that still lives.
    checked(unsafe { CreateDirectoryW(path.as_ptr(), &owned.attributes()) })
}

/// Opens or creates a file; a new one is for the user of this program alone from its first moment.
#[expect(unsafe_code, reason = "std gives rights to no file")]
pub(crate) fn open_private(
    path: &Path,
    access: u32,
    disposition: u32,
    flags: u32,
) -> io::Result<File> {
    let path = wide_path(path)?;
    let owned = Descriptor::of_owner("")?;
    let share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    // SAFETY: as in `create_directory`; no file is a model.
    let file = unsafe {
        CreateFileW(
            path.as_ptr(),
            access,
            share,
            &owned.attributes(),
            disposition,
            flags,
            null_mut(),
        )
    };
    if file == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was opened above, and belongs to nobody else.
    Ok(unsafe { File::from_raw_handle(file) })
}

/// Returns the reason why others may have read or changed an open file or directory, if there is one.
/// Spec: LSS/1 §3.3.
///
/// # Errors
/// Those of the system.
pub fn exposed(file: &File, need: Need) -> io::Result<Option<Exposure>> {
    if need == Need::Secret && !has_owners(file) {
        return Ok(Some(Exposure::NoOwners));
    }
    let user = user()?;
    let user = Sid::read(&user).ok_or(io::ErrorKind::InvalidData)?;
    Ok(exposure(&Descriptor::of_file(file)?.bytes(), user, need))
}

/// Security descriptor that the system allocated.
struct Descriptor(PSECURITY_DESCRIPTOR);

impl Descriptor {
    /// Makes one of the user of this program, who alone may do anything, beside the system itself. Elevated
    /// programs would make files of the administrators.
    #[expect(unsafe_code, reason = "std knows nothing of owners")]
    fn of_owner(inherited: &str) -> io::Result<Self> {
        let user = user()?;
        let user = Sid::read(&user).ok_or(io::ErrorKind::InvalidData)?;
        let text = format!("O:{user}D:P(A;{inherited};FA;;;{user})(A;{inherited};FA;;;SY)");
        let text: Vec<u16> = text.encode_utf16().chain([0]).collect();
        let mut made = null_mut();
        // SAFETY: a text that ends with NUL, and room for a pointer.
        checked(unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                text.as_ptr(),
                SDDL_REVISION_1,
                &raw mut made,
                null_mut(),
            )
        })?;
        Ok(Self(made))
    }

    /// Reads owner and list of an open file.
    #[expect(unsafe_code, reason = "std knows nothing of owners")]
    fn of_file(file: &File) -> io::Result<Self> {
        let wanted = OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION;
        let mut made = null_mut();
        // SAFETY: the handle is open, and there is room for a pointer; of the parts none is wanted.
        let code = unsafe {
            GetSecurityInfo(
                file.as_raw_handle(),
                SE_FILE_OBJECT,
                wanted,
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
                &raw mut made,
            )
        };
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code.cast_signed()));
        }
        Ok(Self(made))
    }

    /// Copies its bytes, in which places stand for pointers.
    #[expect(unsafe_code, reason = "the system gives pointers")]
    fn bytes(&self) -> Vec<u8> {
        // SAFETY: a whole descriptor.
        let len = unsafe { GetSecurityDescriptorLength(self.0) };
        // SAFETY: so many bytes it has, as those that the system allocates lie in one piece.
        unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), len as usize) }.to_vec()
    }

    /// Returns what functions that create want, valid for as long as this lives.
    fn attributes(&self) -> SECURITY_ATTRIBUTES {
        SECURITY_ATTRIBUTES {
            nLength: bytes_of::<SECURITY_ATTRIBUTES>(),
            lpSecurityDescriptor: self.0,
            bInheritHandle: 0,
        }
    }
}

impl Drop for Descriptor {
    #[expect(unsafe_code, reason = "the system allocated it")]
    fn drop(&mut self) {
        // SAFETY: allocated for this value alone, in the way that this frees.
        unsafe { LocalFree(self.0) };
    }
}

/// Reads the number of the user that this process runs as, as bytes.
#[expect(unsafe_code, reason = "std knows nothing of users")]
fn user() -> io::Result<Vec<u8>> {
    let mut token = null_mut();
    // SAFETY: takes nothing; what it gives stands for this process and needs no closing.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: there is room for a handle.
    checked(unsafe { OpenProcessToken(process, TOKEN_QUERY, &raw mut token) })?;
    // SAFETY: it was opened above, and belongs to nobody else.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    // A pointer and a number, and behind them at most 68 bytes of what it points to. Aligned for both.
    let mut words = [0_u64; 16];
    let room = u32::try_from(size_of_val(&words)).unwrap_or(0);
    let (to, mut len) = (words.as_mut_ptr().cast(), 0);
    // SAFETY: the handle is open, and there is as much room as it says.
    checked(unsafe {
        GetTokenInformation(token.as_raw_handle(), TokenUser, to, room, &raw mut len)
    })?;
    let behind = size_of::<TOKEN_USER>()..len as usize;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    Ok(bytes.get(behind).unwrap_or_default().to_vec())
}

/// Returns whether the disk of a file has owners and lists; true where the system does not tell, since the
/// list decides then.
#[expect(unsafe_code, reason = "std does not tell")]
fn has_owners(file: &File) -> bool {
    let mut flags = FILE_PERSISTENT_ACLS;
    let nothing = null_mut();
    // SAFETY: the handle is open, there is room for a number, and nothing else is wanted.
    let told = unsafe {
        GetVolumeInformationByHandleW(
            file.as_raw_handle(),
            null_mut(),
            0,
            nothing,
            nothing,
            &raw mut flags,
            null_mut(),
            0,
        )
    };
    told == 0 || flags & FILE_PERSISTENT_ACLS != 0
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
    let asked = checked(unsafe {
        GetFileInformationByHandleEx(
            file.as_raw_handle(),
            FileIdInfo,
            (&raw mut id).cast(),
            bytes_of::<FILE_ID_INFO>(),
        )
    });
    if asked.is_err() {
        return short_identity(file);
    }
    Ok(Identity {
        volume: id.VolumeSerialNumber,
        file: id.FileId.Identifier,
    })
}

/// Reads the numbers that also FAT has, as on memory sticks.
#[expect(
    unsafe_code,
    reason = "std tells these numbers in unstable functions only"
)]
fn short_identity(file: &File) -> io::Result<Identity> {
    let mut id = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is open, and there is room for the structure.
    checked(unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut id) })?;
    let index = u128::from(id.nFileIndexHigh) << 32 | u128::from(id.nFileIndexLow);
    Ok(Identity {
        volume: id.dwVolumeSerialNumber.into(),
        file: index.to_le_bytes(),
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn private_files_are_for_their_user_alone() {
        let folder = std::env::temp_dir().join(format!("lsl-files-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        create_directory(&folder, 0o700).unwrap();
        let path = folder.join("it");
        let mut made = create_new(&path, 0o600).unwrap();
        io::Write::write_all(&mut made, b"text").unwrap();
        assert_eq!(
            create_new(&path, 0o600).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        let file = File::open(&path).unwrap();
        for need in [Need::Secret, Need::Shared] {
            assert_eq!(exposed(&file, need).unwrap(), None);
        }
        drop((file, made));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn two_handles_are_of_one_file_by_the_short_numbers_too() {
        let path = |name| std::env::temp_dir().join(format!("lsl-{name}-{}", std::process::id()));
        let (one, other) = (path("one"), path("other"));
        let open = |path| short_identity(&File::open(path).unwrap()).unwrap();
        for path in [&one, &other] {
            fs::write(path, "").unwrap();
        }
        assert!(open(&one).is_same(open(&one)) && !open(&one).is_same(open(&other)));
        fs::remove_file(one).unwrap();
        fs::remove_file(other).unwrap();
    }

    #[test]
    fn the_user_has_a_number() {
        let user = user().unwrap();
        assert_eq!(Sid::read(&user).map(|sid| sid.0.len()), Some(user.len()));
    }
}
