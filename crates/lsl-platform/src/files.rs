//! Whose files these are and who may read or change them. Decides nothing: what is too much is the caller's
//! rule.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::{
    DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown, lchown,
};
use std::path::Path;
use std::time::Duration;

/// Who may do what with a file, as far as its owner and its permission bits say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The number of the user whose file it is. 0 is root.
    pub owner: u32,
    /// The permission bits with set-user-id, set-group-id and sticky: twelve bits.
    pub mode: u32,
    /// The effective user of this process, whose files are our own.
    pub user: u32,
}

impl Access {
    /// That of a file, seen by this process.
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

/// Which version of which file it is. Any difference means that something happened to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    device: u64,
    inode: u64,
    size: u64,
    /// When it was written, since 1970; zero for earlier times.
    pub modified: Duration,
    /// When anything of it changed, its name or permissions included, since 1970. Nobody can set this time.
    pub changed: Duration,
}

impl Version {
    /// That of a file.
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

/// Whether both are the same file, under whatever name.
///
/// # Errors
/// None on Unix; `Unsupported` where the system does not tell.
pub fn is_same(one: &Metadata, other: &Metadata) -> io::Result<bool> {
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// Whether the group of a file is its owner's alone: on many systems each user has one, of the user's number.
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
    // A group that nobody knows has no members.
    if found.is_null() {
        return true;
    }
    // SAFETY: an entry was found, so that it is filled in.
    let members = unsafe { entry.assume_init() }.gr_mem;
    // SAFETY: a list that ends with NULL, inside `texts`, which still lives.
    members.is_null() || unsafe { *members }.is_null()
}

/// No group with fewer than thousands of members has a longer entry.
const LONGEST_ENTRY_BYTES: usize = 64 << 10;

/// Makes a new file for writing, which never replaces another one. Others may do with it what `mode` and
/// the process's umask allow them.
///
/// # Errors
/// Those of the system, [`io::ErrorKind::AlreadyExists`] for one; `Unsupported` where a file cannot be kept
/// from others.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
}

/// Makes a new directory. Others may do with it what `mode` and the process's umask allow them.
///
/// # Errors
/// As [`create_new`].
pub fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)
}

/// Gives `file` the owner, the group and the permissions of another one.
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

/// Gives a file to another user, if one is named. A symbolic link is given itself, never what it leads to.
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
