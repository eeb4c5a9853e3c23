//! Owners, permissions and versions of files. Makes no decision: which access is too much is the caller's
//! rule.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::{
    DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown, lchown,
};
use std::path::Path;
use std::time::Duration;

/// Owner and permission bits of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// User id of the owner; 0 is root.
    pub owner: u32,
    /// The twelve permission bits, including set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Effective user id of this process.
    pub user: u32,
}

impl Access {
    /// Reads the owner and permissions from the metadata of a file.
    ///
    /// # Errors
    /// None on Unix; `Unsupported` where files have neither owners nor modes.
    pub fn of(metadata: &Metadata) -> io::Result<Self> {
        Ok(Self {
            owner: metadata.uid(),
            mode: metadata.mode() & 0o7777,
            user: rustix::process::geteuid().as_raw(),
        })
    }
}

/// Version of a file. Any difference means that the file was changed or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    device: u64,
    inode: u64,
    size: u64,
    /// Time of the last write since 1970; zero for earlier times.
    pub modified: Duration,
    /// Time of the last change, of name and permissions too, since 1970. No program can set it.
    pub changed: Duration,
}

impl Version {
    /// Reads the version from the metadata of a file.
    ///
    /// # Errors
    /// None on Unix; `Unsupported` where the system does not tell.
    pub fn of(metadata: &Metadata) -> io::Result<Self> {
        let since_1970 = |secs: i64, nanos: i64| {
            let secs = u64::try_from(secs).unwrap_or(0);
            Duration::new(secs, u32::try_from(nanos).unwrap_or(0))
        };
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: since_1970(metadata.mtime(), metadata.mtime_nsec()),
            changed: since_1970(metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// Returns whether both are the same file, under whatever name.
///
/// # Errors
/// None on Unix; `Unsupported` where the system does not tell.
pub fn is_same(one: &Metadata, other: &Metadata) -> io::Result<bool> {
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// Returns whether the group of a file is its owner's alone. On many systems each user has such a group,
/// with the number of the user.
#[expect(unsafe_code, reason = "neither std nor rustix looks groups up")]
pub fn is_group_private(metadata: &Metadata) -> bool {
    if metadata.gid() != metadata.uid() {
        return false;
    }
    let mut texts = vec![0_u8; LONGEST_ENTRY_BYTES];
    let mut entry = MaybeUninit::<libc::group>::uninit();
    let mut found = std::ptr::null_mut();
    // SAFETY: all four are valid for writing, and the length is that of the buffer.
    let status = unsafe {
        libc::getgrgid_r(
            metadata.gid(),
            entry.as_mut_ptr(),
            texts.as_mut_ptr().cast(),
            texts.len(),
            &raw mut found,
        )
    };
    if status != 0 {
        return false;
    }
    // An unknown group has no members.
    if found.is_null() {
        return true;
    }
    // SAFETY: an entry was found, so that it is filled in.
    let members = unsafe { entry.assume_init() }.gr_mem;
    // SAFETY: a list that ends with NULL, inside `texts`, which still lives.
    members.is_null() || unsafe { *members }.is_null()
}

/// Upper limit for an entry of the group database: room for thousands of members.
const LONGEST_ENTRY_BYTES: usize = 64 << 10;

/// Creates a new file for writing and never replaces another one. Its permissions are `mode` without the
/// bits of the umask.
///
/// # Errors
/// Those of the system, such as [`io::ErrorKind::AlreadyExists`]; `Unsupported` where access of others
/// cannot be limited.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
}

/// Creates a new directory. Its permissions are `mode` without the bits of the umask.
///
/// # Errors
/// As [`create_new`].
pub fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)
}

/// Gives `file` the owner, the group and the permissions of `model`.
///
/// # Errors
/// Those of the system: only root gives files away.
pub fn make_alike(file: &File, model: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    if (model.uid(), model.gid()) != (own.uid(), own.gid()) {
        fchown(file, Some(model.uid()), Some(model.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(model.mode() & 0o7777))
}

/// Changes the owner of a file if `owner` is given. Of a symbolic link it changes the link, never the target.
///
/// # Errors
/// Those of the system: only root gives files away.
pub fn give(path: &Path, owner: Option<u32>) -> io::Result<()> {
    lchown(path, owner, None)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn new_files_and_directories_have_the_modes_asked_for_and_versions() {
        let directory = std::env::temp_dir().join(format!("lsl-files-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        create_directory(&directory, 0o700).unwrap();
        let access = |path: &Path| Access::of(&fs::metadata(path).unwrap()).unwrap();
        assert_eq!(access(&directory).mode, 0o700);
        let (one, other) = (directory.join("one"), directory.join("other"));
        let mut file = create_new(&one, 0o600).unwrap();
        assert_eq!(access(&one).mode, 0o600);
        assert_eq!(access(&one).owner, access(&one).user);
        let again = create_new(&one, 0o600).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        let version = || Version::of(&fs::metadata(&one).unwrap()).unwrap();
        let before = version();
        file.write_all(b"x").unwrap();
        assert_ne!(version(), before);
        assert!(version().modified.as_secs() > 1_700_000_000);

        let model = fs::metadata(&directory).unwrap();
        make_alike(&create_new(&other, 0o600).unwrap(), &model).unwrap();
        assert_eq!(access(&other).mode, 0o700);
        give(&other, None).unwrap();
        give(&other, Some(access(&other).owner)).unwrap();
        let of = |path: &Path| fs::metadata(path).unwrap();
        assert!(is_same(&of(&one), &file.metadata().unwrap()).unwrap());
        assert!(!is_same(&of(&one), &of(&other)).unwrap());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_group_is_private_only_if_it_has_the_number_of_the_owner() {
        let file = std::env::temp_dir().join(format!("lsl-group-{}", std::process::id()));
        drop(File::create(&file).unwrap());
        let owner = Access::of(&fs::metadata(&file).unwrap()).unwrap().owner;
        // Root alone gives files to groups that it is not in.
        if std::os::unix::fs::chown(&file, None, Some(owner ^ 0x4000_0000)).is_ok() {
            assert!(!is_group_private(&fs::metadata(&file).unwrap()));
            // A group that no database knows has no members.
            let stranger = Some(0x3fff_fff0);
            std::os::unix::fs::chown(&file, stranger, stranger).unwrap();
            assert!(is_group_private(&fs::metadata(&file).unwrap()));
        }
        fs::remove_file(&file).unwrap();
    }
}
