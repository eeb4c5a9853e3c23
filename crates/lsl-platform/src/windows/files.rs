//! Owners, lists of access and versions of files. The rule of which access is too much is in
//! [`acl`](crate::acl).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::Duration;

use windows_sys::Win32::Foundation::{
    ERROR_NOT_ALL_ASSIGNED, GENERIC_WRITE, GetLastError, INVALID_HANDLE_VALUE, LUID, LocalFree,
};
use windows_sys::Win32::Security::Authorization::{
    ConvertStringSecurityDescriptorToSecurityDescriptorW, ConvertStringSidToSidW, GetSecurityInfo,
    SDDL_REVISION_1, SE_FILE_OBJECT,
};
use windows_sys::Win32::Security::{
    AdjustTokenPrivileges, CheckTokenMembership, DACL_SECURITY_INFORMATION,
    GetSecurityDescriptorLength, GetTokenInformation, LUID_AND_ATTRIBUTES, LookupAccountNameW,
    LookupAccountSidW, LookupPrivilegeValueW, OWNER_SECURITY_INFORMATION, PSECURITY_DESCRIPTOR,
    PSID, SE_PRIVILEGE_ENABLED, SE_RESTORE_NAME, SECURITY_ATTRIBUTES, SetKernelObjectSecurity,
    SidTypeUser, TOKEN_ADJUST_PRIVILEGES, TOKEN_PRIVILEGES, TOKEN_QUERY, TOKEN_USER, TokenUser,
};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, CREATE_NEW, CreateDirectoryW, CreateFileW, FILE_ATTRIBUTE_NORMAL,
    FILE_BASIC_INFO, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, FILE_ID_INFO,
    FILE_READ_ATTRIBUTES, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, FileBasicInfo,
    FileIdInfo, GetFileInformationByHandle, GetFileInformationByHandleEx,
    GetVolumeInformationByHandleW, READ_CONTROL, WRITE_DAC, WRITE_OWNER,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

use crate::access::By;
pub use crate::access::{Exposure, Need, Who};
use crate::acl::{Fault, Sid, fault, is_service, owner};
use crate::disk::{bytes_of, checked, open_any, open_itself};
use crate::remedy;
use crate::text::printable;
use crate::wide::{wide_path, wide_text};

/// Flag of a file system that keeps lists of access.
const FILE_PERSISTENT_ACLS: u32 = 8;

/// Returns why other users may have read or changed an open file or folder; see the Unix version.
///
/// # Errors
/// Those of the system.
pub fn exposed(file: &File, path: &Path, need: Need) -> io::Result<Option<Exposure>> {
    let user = user()?;
    let sid = Sid::read(&user).ok_or(io::ErrorKind::InvalidData)?;
    let found = if need == Need::Secret && !has_owners(file) {
        Some(Fault::NoOwners)
    } else {
        fault(&Descriptor::of_file(file)?.bytes(), sid, need)
    };
    let Some(found) = found else {
        return Ok(None);
    };
    let is_folder = file.metadata()?.is_dir();
    Ok(Some(exposure(
        &found,
        &sid.to_string(),
        path,
        need,
        is_folder,
    )))
}

/// Words a fault of a file or folder for people: names, numbers and the command against it.
fn exposure(fault: &Fault, user: &str, path: &Path, need: Need, is_folder: bool) -> Exposure {
    let file = remedy::path(path);
    let inherited = if is_folder { "(OI)(CI)" } else { "" };
    let mut remedy = format!(
        "icacls {file} /inheritance:r /grant:r \"*{user}:{inherited}F\" \"*S-1-5-18:{inherited}F\""
    );
    let list = "its access control list";
    let by = match fault {
        Fault::Owner(who) => {
            remedy = format!("takeown /f {file}");
            By::Owner(format!(
                "belongs to {}, but this program runs as {}",
                named(who),
                named(user)
            ))
        }
        Fault::Read(who) => By::Others(format!(
            "{list}, by which {} may read it, lets others",
            named(who)
        )),
        Fault::Write(who) => {
            if need != Need::Secret {
                remedy = format!("icacls {file} /inheritance:d /grant:r \"*{who}:{inherited}RX\"");
            }
            By::Others(format!(
                "{list}, by which {} may change it, lets others",
                named(who)
            ))
        }
        Fault::NoList => By::Others("has no access control list, which lets everybody".into()),
        Fault::NoOwners => {
            remedy = "move it to a disk with NTFS".into();
            By::Others("is on a disk that knows no owners, which lets everybody".into())
        }
        Fault::Unknown => By::Others(format!(
            "{list} has an entry of an unknown kind, which may let others"
        )),
    };
    Exposure { by, remedy }
}

/// Returns why other users can replace or remove what is in a folder; see the Unix version.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::NotFound`] without a folder.
pub fn exposed_folder(folder: &Path, need: Need) -> io::Result<Option<Exposure>> {
    let open = open_any(folder, READ_CONTROL | FILE_READ_ATTRIBUTES)?;
    exposed(&open, folder, need)
}

/// Version of a file. Any difference means that the file was changed or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    identity: Identity,
    size: u64,
    /// Time of the last write since 1970; zero for earlier times.
    pub modified: Duration,
    /// Time of the last change, of name and permissions too, since 1970.
    pub changed: Duration,
}

impl Version {
    /// Reads the version of an open file.
    ///
    /// # Errors
    /// Those of the system.
    #[expect(unsafe_code, reason = "std does not tell the time of changes")]
    pub fn of(file: &File) -> io::Result<Self> {
        let mut times = FILE_BASIC_INFO::default();
        // SAFETY: the handle is open, and there is room for one structure of this kind and size.
        checked(unsafe {
            GetFileInformationByHandleEx(
                file.as_raw_handle(),
                FileBasicInfo,
                (&raw mut times).cast(),
                bytes_of::<FILE_BASIC_INFO>(),
            )
        })?;
        Ok(Self {
            identity: identity(file)?,
            size: file.metadata()?.len(),
            modified: since_1970(times.LastWriteTime),
            changed: since_1970(times.ChangeTime),
        })
    }

    /// Reads the version of the file that a path leads to.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of_path(path: &Path) -> io::Result<Self> {
        Self::of(&open_any(path, FILE_READ_ATTRIBUTES)?)
    }
}

/// Converts steps of 100 ns since 1601.
fn since_1970(steps: i64) -> Duration {
    let steps = u64::try_from(steps).unwrap_or(0);
    let steps = steps.saturating_sub(STEPS_TO_1970);
    let (secs, rest) = (steps / STEPS_PER_SEC, steps % STEPS_PER_SEC);
    Duration::new(secs, u32::try_from(rest * 100).unwrap_or(0))
}

const STEPS_PER_SEC: u64 = 10_000_000;
const STEPS_TO_1970: u64 = 11_644_473_600 * STEPS_PER_SEC;

/// Creates a new file for writing and never replaces another one; see the Unix version.
///
/// # Errors
/// Those of the system, such as [`io::ErrorKind::AlreadyExists`].
pub fn create_new(path: &Path, who: Who) -> io::Result<File> {
    // For the owner and the list of another file.
    let access = GENERIC_WRITE | READ_CONTROL | WRITE_DAC | WRITE_OWNER;
    match who {
        Who::Owner => open_private(path, access, CREATE_NEW, FILE_ATTRIBUTE_NORMAL),
        // Its list is what its folder passes on.
        Who::Everybody if is_administrator() => {
            let owned = Descriptor::of_text(&format!("O:{ADMINISTRATORS}"))?;
            open_with(
                path,
                &owned,
                GENERIC_WRITE,
                CREATE_NEW,
                FILE_ATTRIBUTE_NORMAL,
            )
        }
        Who::Everybody => OpenOptions::new().write(true).create_new(true).open(path),
    }
}

/// Creates a new folder; see the Unix version. What will be in it is for the same users.
///
/// # Errors
/// As [`create_new`].
#[expect(unsafe_code, reason = "std gives rights to no directory")]
pub fn create_directory(path: &Path, who: Who) -> io::Result<()> {
    let wide = wide_path(path)?;
    let owned = match who {
        Who::Owner => Descriptor::of_owner("OICI")?,
        Who::Everybody => {
            // Programs of other users trust no other user.
            let owner = if is_administrator() {
                ADMINISTRATORS.to_owned()
            } else {
                text_of(&user()?)?
            };
            let all = format!("(A;OICI;FA;;;{owner})(A;OICI;FA;;;SY)");
            Descriptor::of_text(&format!("O:{owner}D:P{all}(A;OICI;0x1200a9;;;BU)"))?
        }
    };
    // SAFETY: a text that ends with NUL, and a structure that refers to a descriptor that still lives.
    checked(unsafe { CreateDirectoryW(wide.as_ptr(), &owned.attributes()) })
}

/// Opens or creates a file; a new one is for the user of this program alone from its first moment.
pub(crate) fn open_private(
    path: &Path,
    access: u32,
    disposition: u32,
    flags: u32,
) -> io::Result<File> {
    open_with(path, &Descriptor::of_owner("")?, access, disposition, flags)
}

/// Opens or creates a file; a new one is for the user of this program, for the owner of its folder, who may be
/// another user than an administrator who comes first, and for administrators, who can take any file anyway.
pub(crate) fn open_for_owners(
    path: &Path,
    access: u32,
    disposition: u32,
    flags: u32,
) -> io::Result<File> {
    let user = text_of(&user()?)?;
    let folder = path.parent().unwrap_or(path);
    let of_folder = open_any(folder, READ_CONTROL).and_then(|folder| Descriptor::of_file(&folder));
    let owner = of_folder.ok().and_then(|folder| folder.owner());
    let owned = Descriptor::shared(&user, owner.as_ref().unwrap_or(&user))?;
    open_with(path, &owned, access, disposition, flags)
}

/// Opens or creates a file; a new one has the owner and the list given.
#[expect(unsafe_code, reason = "std gives rights to no file")]
fn open_with(
    path: &Path,
    owned: &Descriptor,
    access: u32,
    disposition: u32,
    flags: u32,
) -> io::Result<File> {
    let path = wide_path(path)?;
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

/// Security descriptor that the system allocated.
struct Descriptor(PSECURITY_DESCRIPTOR);

impl Descriptor {
    /// Makes one of the user of this program, who alone may do anything, beside the system itself. Elevated
    /// programs would make files of the administrators.
    fn of_owner(inherited: &str) -> io::Result<Self> {
        Self::private(&text_of(&user()?)?, inherited)
    }

    /// Makes one of a user, who alone may do anything, beside the system itself.
    fn private(owner: &str, inherited: &str) -> io::Result<Self> {
        Self::of_text(&format!(
            "O:{owner}D:P(A;{inherited};FA;;;{owner})(A;{inherited};FA;;;SY)"
        ))
    }

    /// Makes one of a user, who may do anything together with another user, administrators and the system itself.
    fn shared(owner: &str, other: &str) -> io::Result<Self> {
        let list: String = [owner, other, "SY", ADMINISTRATORS]
            .map(|who| format!("(A;;FA;;;{who})"))
            .concat();
        Self::of_text(&format!("O:{owner}D:P{list}"))
    }

    /// Makes one of the text that Windows has for it (SDDL).
    #[expect(unsafe_code, reason = "std knows nothing of owners")]
    fn of_text(text: &str) -> io::Result<Self> {
        let text = wide_text(text);
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

    /// Returns the number of the owner in text.
    fn owner(&self) -> Option<String> {
        let bytes = self.bytes();
        owner(&bytes).map(|sid| sid.to_string())
    }

    /// Copies its bytes, in which places stand for pointers.
    #[expect(unsafe_code, reason = "the system gives pointers")]
    fn bytes(&self) -> Vec<u8> {
        // SAFETY: a whole descriptor.
        let len = unsafe { GetSecurityDescriptorLength(self.0) };
        // SAFETY: so many bytes it has, as those that the system allocates lie in one piece.
        unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), len as usize) }.to_vec()
    }

    /// Gives an open file this owner.
    fn set_owner(&self, file: &File) -> io::Result<()> {
        self.set(file, OWNER_SECURITY_INFORMATION)
    }

    /// Gives an open file this list, and nothing from its folder.
    fn set_list(&self, file: &File) -> io::Result<()> {
        self.set(file, DACL_SECURITY_INFORMATION)
    }

    #[expect(unsafe_code, reason = "std knows nothing of owners")]
    fn set(&self, file: &File, part: u32) -> io::Result<()> {
        // SAFETY: the handle is open, and this is a whole descriptor.
        checked(unsafe { SetKernelObjectSecurity(file.as_raw_handle(), part, self.0) })
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

/// Opens what says who this process runs as.
#[expect(unsafe_code, reason = "std knows nothing of users")]
fn token(access: u32) -> io::Result<OwnedHandle> {
    let mut token = null_mut();
    // SAFETY: takes nothing; what it gives stands for this process and needs no closing.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: there is room for a handle.
    checked(unsafe { OpenProcessToken(process, access, &raw mut token) })?;
    // SAFETY: it was opened above, and belongs to nobody else.
    Ok(unsafe { OwnedHandle::from_raw_handle(token) })
}

/// Reads the number of the user that this process runs as, as bytes.
#[expect(unsafe_code, reason = "std knows nothing of users")]
fn user() -> io::Result<Vec<u8>> {
    let token = token(TOKEN_QUERY)?;
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

/// Gives `file` the owner of `model`, as far as this program may.
///
/// # Errors
/// Those of the system when it reads owners.
pub fn copy_owner(file: &File, model: &File) -> io::Result<()> {
    let (own, model) = (Descriptor::of_file(file)?, Descriptor::of_file(model)?);
    if own.owner() != model.owner() {
        let _right = Restoring::begin();
        // Without the right to give files away it stays this user's.
        let _ = model.set_owner(file);
    }
    Ok(())
}

/// Gives `file` the list of access of `model`.
///
/// # Errors
/// Those of the system.
pub fn copy_access(file: &File, model: &File) -> io::Result<()> {
    if !has_owners(file) {
        return Ok(());
    }
    Descriptor::of_file(model)?.set_list(file)
}

/// User of this machine, to whom files can be given, as a number in text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner(String);

impl Owner {
    /// Looks a user or a service up by name, of this machine or as in `DOMAIN\user`. Groups are none.
    #[expect(unsafe_code, reason = "std knows nothing of users")]
    pub fn named(user: &str) -> Option<Self> {
        let name = wide_text(user);
        // At most 68 bytes, aligned for their numbers; names of domains have at most 255 characters.
        let (mut sid, mut domain) = ([0_u32; 17], [0_u16; 256]);
        let (mut sid_room, mut domain_room, mut kind) = (68, 256, 0);
        // SAFETY: a text that ends with NUL, and as much room as is said.
        let found = unsafe {
            LookupAccountNameW(
                null(),
                name.as_ptr(),
                sid.as_mut_ptr().cast(),
                &raw mut sid_room,
                domain.as_mut_ptr(),
                &raw mut domain_room,
                &raw mut kind,
            )
        };
        let bytes: Vec<u8> = sid.iter().flat_map(|part| part.to_ne_bytes()).collect();
        let sid = Sid::read(&bytes).filter(|_| found != 0)?;
        (kind == SidTypeUser || is_service(sid)).then(|| Self(sid.to_string()))
    }

    /// Returns the owner of a file, if it is another user than that of this program.
    ///
    /// # Errors
    /// Those of the system.
    pub fn if_other(path: &Path) -> io::Result<Option<Self>> {
        let file = open_any(path, READ_CONTROL)?;
        let owner = Descriptor::of_file(&file)?.owner();
        let owner = owner.ok_or(io::ErrorKind::InvalidData)?;
        Ok((owner != text_of(&user()?)?).then_some(Self(owner)))
    }
}

/// Changes the owner of a file that this user alone may read, if `owner` is given, and lets that user alone
/// read it. Of a symbolic link it changes the link, never the target.
///
/// # Errors
/// Those of the system: only administrators give files away.
pub fn give(path: &Path, owner: Option<&Owner>) -> io::Result<()> {
    let Some(owner) = owner else {
        return Ok(());
    };
    let flags = FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT;
    let file = open_itself(path, READ_CONTROL | WRITE_DAC | WRITE_OWNER, flags)?;
    let owned = Descriptor::private(&owner.0, "")?;
    let _right = Restoring::begin()?;
    // First the list: the new owner need not let us change it.
    owned.set_list(&file)?;
    owned.set_owner(&file)
}

/// Gives a file or folder the access that the bits of a mode say; see the Unix version. Group and others are
/// everybody.
///
/// # Errors
/// Those of the system.
#[doc(hidden)]
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let bits = mode | mode >> 3;
    let rights = [(4, 0x0012_0089), (2, 0x0012_0156), (1, 0x0012_00A0)];
    let rights = rights.iter().filter(|(bit, _)| bits & bit != 0);
    let rights = rights.fold(0, |all, (_, right)| all | right);
    let user = text_of(&user()?)?;
    let file = open_any(path, READ_CONTROL | FILE_READ_ATTRIBUTES | WRITE_DAC)?;
    let passed = if file.metadata()?.is_dir() {
        "OICI"
    } else {
        ""
    };
    let all = if rights == 0 {
        String::new()
    } else {
        format!("(A;{passed};{rights:#x};;;WD)")
    };
    let own = format!("(A;{passed};FA;;;{user})(A;{passed};FA;;;SY)");
    Descriptor::of_text(&format!("D:P{own}{all}"))?.set_list(&file)
}

/// Returns the access to a file or folder as the bits of a mode, as far as they matter: 600, 644 or 666. For
/// tests.
///
/// # Errors
/// Those of the system.
#[doc(hidden)]
pub fn mode_of(path: &Path) -> io::Result<u32> {
    let file = open_any(path, READ_CONTROL | FILE_READ_ATTRIBUTES)?;
    for (need, mode) in [(Need::Secret, 0o600), (Need::Shared, 0o644)] {
        if exposed(&file, path, need)?.is_none() {
            return Ok(mode);
        }
    }
    Ok(0o666)
}

/// Right of this process to set any owner, until dropped. Programs of administrators have it, switched off.
struct Restoring {
    token: OwnedHandle,
    before: TOKEN_PRIVILEGES,
}

impl Restoring {
    /// Switches it on; fails without the right.
    #[expect(unsafe_code, reason = "std knows nothing of rights")]
    fn begin() -> io::Result<Self> {
        let token = token(TOKEN_ADJUST_PRIVILEGES | TOKEN_QUERY)?;
        let mut luid = LUID::default();
        // SAFETY: a text that ends with NUL, and room for a number.
        checked(unsafe { LookupPrivilegeValueW(null(), SE_RESTORE_NAME, &raw mut luid) })?;
        let wanted = TOKEN_PRIVILEGES {
            PrivilegeCount: 1,
            Privileges: [LUID_AND_ATTRIBUTES {
                Luid: luid,
                Attributes: SE_PRIVILEGE_ENABLED,
            }],
        };
        let (mut before, mut len) = (TOKEN_PRIVILEGES::default(), 0);
        // SAFETY: the handle is open, the system reads one structure with one entry, and there is room for
        // another one and a number.
        checked(unsafe {
            AdjustTokenPrivileges(
                token.as_raw_handle(),
                0,
                &raw const wanted,
                bytes_of::<TOKEN_PRIVILEGES>(),
                &raw mut before,
                &raw mut len,
            )
        })?;
        // SAFETY: reads a number of this thread, which the call above sets also when it succeeds.
        if unsafe { GetLastError() } == ERROR_NOT_ALL_ASSIGNED {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Self { token, before })
    }
}

impl Drop for Restoring {
    #[expect(unsafe_code, reason = "as in `begin`")]
    fn drop(&mut self) {
        let (token, before) = (self.token.as_raw_handle(), &raw const self.before);
        // SAFETY: the handle is open, and the structure is what the system gave, with one entry or none.
        unsafe { AdjustTokenPrivileges(token, 0, before, 0, null_mut(), null_mut()) };
    }
}

/// Returns whether this process acts as an administrator.
#[expect(unsafe_code, reason = "std knows nothing of groups")]
fn is_administrator() -> bool {
    let mut is_member = 0;
    with_sid(ADMINISTRATORS, |sid| {
        // SAFETY: a whole number of a group, and room for the answer; no token means this process.
        let done = unsafe { CheckTokenMembership(null_mut(), sid, &raw mut is_member) };
        done != 0
    })
    .is_some_and(|done| done && is_member != 0)
}

/// Returns the name of a user or group with its number: `PC\anna (S-1-5-…)`; the number alone for one that is
/// no longer known.
#[expect(unsafe_code, reason = "std knows nothing of users")]
fn named(sid: &str) -> String {
    let (mut name, mut domain) = ([0_u16; 256], [0_u16; 256]);
    let (mut name_len, mut domain_len, mut kind) = (256, 256, 0);
    let found = with_sid(sid, |number| {
        // SAFETY: a whole number of a user, and as much room as is said.
        let done = unsafe {
            LookupAccountSidW(
                null(),
                number,
                name.as_mut_ptr(),
                &raw mut name_len,
                domain.as_mut_ptr(),
                &raw mut domain_len,
                &raw mut kind,
            )
        };
        done != 0
    });
    if found != Some(true) {
        return sid.to_owned();
    }
    let text = |units: &[u16], len: u32| {
        let units = units.get(..len as usize).unwrap_or_default();
        printable(String::from_utf16_lossy(units).as_bytes(), 600)
    };
    match (text(&name, name_len), text(&domain, domain_len)) {
        (name, domain) if domain.is_empty() => format!("{name} ({sid})"),
        (name, domain) => format!(r"{domain}\{name} ({sid})"),
    }
}

/// Calls `action` with a number of a user or group as Windows has it; `None` if the text is no number.
#[expect(unsafe_code, reason = "std knows nothing of users")]
fn with_sid<T>(text: &str, action: impl FnOnce(PSID) -> T) -> Option<T> {
    let text = wide_text(text);
    let mut made = null_mut();
    // SAFETY: a text that ends with NUL, and room for a pointer.
    checked(unsafe { ConvertStringSidToSidW(text.as_ptr(), &raw mut made) }).ok()?;
    let done = action(made);
    // SAFETY: allocated above, in the way that this frees; `action` is over.
    unsafe { LocalFree(made) };
    Some(done)
}

/// Writes the number of a user or group.
fn text_of(sid: &[u8]) -> io::Result<String> {
    let sid = Sid::read(sid).ok_or(io::ErrorKind::InvalidData)?;
    Ok(sid.to_string())
}

/// S-1-5-32-544, as everywhere.
const ADMINISTRATORS: &str = "S-1-5-32-544";

/// Number of a volume and of a file on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

#[cfg(test)]
#[path = "files/tests.rs"]
mod tests;
