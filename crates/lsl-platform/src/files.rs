//! Owners, permissions and versions of files: who may have read or changed one, and new ones for the right
//! readers. Spec: LSS/1 §3.3.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::{
    DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown, lchown,
};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::geteuid;

use crate::access::By;
pub use crate::access::{Exposure, Need, Who};
use crate::remedy;

/// Returns why other users may have read or changed an open file, if they may. `path` is for the remedy.
/// Spec: LSS/1 §3.3.
///
/// # Errors
/// Those of the system.
pub fn exposed(file: &File, path: &Path, need: Need) -> io::Result<Option<Exposure>> {
    let metadata = file.metadata()?;
    let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
    Ok(exposure(path, need, mode, owner, geteuid().as_raw()))
}

/// Judges the permissions and the owner of a file for a process of `user`.
fn exposure(path: &Path, need: Need, mode: u32, owner: u32, user: u32) -> Option<Exposure> {
    let file = remedy::path(path);
    // Root may read any owner's files: containers mount secrets of users they do not know.
    if user != 0 && owner != user && owner != 0 {
        return Some(Exposure {
            by: By::Owner(format!(
                "belongs to user {owner}, but this program runs as user {user}"
            )),
            remedy: format!("chown {user} {file}"),
        });
    }
    let (refused, remedy) = match need {
        Need::Secret => (
            0o077,
            format!("chmod 600 {file} (where secrets are mounted: mode 0400)"),
        ),
        Need::Shared | Need::Kept => (0o022, format!("chmod go-w {file}")),
    };
    (mode & refused != 0).then(|| Exposure {
        by: By::Others(format!("mode {mode:04o} lets other users")),
        remedy,
    })
}

/// Returns why other users can replace or remove what is in a folder, if they can. On Unix they cannot where
/// the sticky bit is set.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::NotFound`] without a folder.
pub fn exposed_folder(folder: &Path, need: Need) -> io::Result<Option<Exposure>> {
    let metadata = std::fs::metadata(folder)?;
    let mode = metadata.mode() & 0o7777;
    // Asked last: the group's members may be known to a server alone.
    let is_fine = || {
        mode & STICKY != 0 || need == Need::Kept && mode & 0o002 == 0 && is_group_private(&metadata)
    };
    // Whose it is does not count.
    Ok(exposure(folder, need, mode, 0, 0).filter(|_| !is_fine()))
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
    /// Reads the version of an open file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|metadata| Self::told(&metadata))
    }

    /// Reads the version of the file that a path leads to.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of_path(path: &Path) -> io::Result<Self> {
        std::fs::metadata(path).map(|metadata| Self::told(&metadata))
    }

    fn told(metadata: &Metadata) -> Self {
        let since_1970 = |secs: i64, nanos: i64| {
            let secs = u64::try_from(secs).unwrap_or(0);
            Duration::new(secs, u32::try_from(nanos).unwrap_or(0))
        };
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: since_1970(metadata.mtime(), metadata.mtime_nsec()),
            changed: since_1970(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
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

/// Creates a new file for writing and never replaces another one. No other user can open it before. On
/// Unix the umask takes readers away; on Windows a file for everybody is for those for whom its folder is.
///
/// # Errors
/// Those of the system, such as [`io::ErrorKind::AlreadyExists`].
pub fn create_new(path: &Path, who: Who) -> io::Result<File> {
    let mode = match who {
        Who::Owner => 0o600,
        Who::Everybody => 0o644,
    };
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
}

/// Creates a new folder, as [`create_new`] does a file.
///
/// # Errors
/// As [`create_new`].
pub fn create_directory(path: &Path, who: Who) -> io::Result<()> {
    let mode = match who {
        Who::Owner => 0o700,
        Who::Everybody => 0o755,
    };
    DirBuilder::new().mode(mode).create(path)
}

/// Gives `file` the owner and the group of `model`. On Windows only as far as this program may.
///
/// # Errors
/// Those of the system: only root gives files away.
pub fn copy_owner(file: &File, model: &File) -> io::Result<()> {
    let (own, model) = (file.metadata()?, model.metadata()?);
    if (model.uid(), model.gid()) != (own.uid(), own.gid()) {
        fchown(file, Some(model.uid()), Some(model.gid()))?;
    }
    Ok(())
}

/// Gives `file` the readers and writers of `model`.
///
/// # Errors
/// Those of the system.
pub fn copy_access(file: &File, model: &File) -> io::Result<()> {
    let mode = model.metadata()?.mode() & 0o7777;
    file.set_permissions(Permissions::from_mode(mode))
}

/// User of this machine, to whom files can be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner(u32);

impl Owner {
    /// Looks a user up by name, wherever this system keeps its users.
    pub fn named(user: &str) -> Option<Self> {
        let output = Command::new("id").args(["-u", "--", user]).output().ok()?;
        let number = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
        output.status.success().then_some(Self(number))
    }

    /// Returns the owner of a file, if it is another user than that of this program.
    ///
    /// # Errors
    /// Those of the system.
    pub fn if_other(path: &Path) -> io::Result<Option<Self>> {
        let owner = std::fs::metadata(path)?.uid();
        Ok((owner != geteuid().as_raw()).then_some(Self(owner)))
    }
}

/// Changes the owner of a file that this user alone may read, if `owner` is given. Of a symbolic link it
/// changes the link, never the target.
///
/// # Errors
/// Those of the system: only root gives files away.
pub fn give(path: &Path, owner: Option<&Owner>) -> io::Result<()> {
    lchown(path, owner.map(|owner| owner.0), None)
}

/// Gives a file or folder the access that the bits of a mode say, whoever has it. For tests: files of programs
/// have the right access from their first moment.
///
/// # Errors
/// Those of the system.
#[doc(hidden)]
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Returns the access to a file or folder as the bits of a mode. For tests.
///
/// # Errors
/// Those of the system.
#[doc(hidden)]
pub fn mode_of(path: &Path) -> io::Result<u32> {
    std::fs::metadata(path).map(|metadata| metadata.mode() & 0o7777)
}

/// Files in such a directory belong to their makers.
const STICKY: u32 = 0o1000;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn new_files_and_directories_have_the_readers_asked_for_and_versions() {
        let directory = std::env::temp_dir().join(format!("lsl-files-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        create_directory(&directory, Who::Owner).unwrap();
        let of = |path: &Path| fs::metadata(path).unwrap();
        let mode = |path: &Path| of(path).mode() & 0o7777;
        assert_eq!(mode(&directory), 0o700);
        let (one, other) = (directory.join("one"), directory.join("other"));
        let mut file = create_new(&one, Who::Owner).unwrap();
        assert_eq!(mode(&one), 0o600);
        assert_eq!(of(&one).uid(), geteuid().as_raw());
        let again = create_new(&one, Who::Owner).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        let version = || Version::of_path(&one).unwrap();
        let before = version();
        file.write_all(b"x").unwrap();
        assert_ne!(version(), before);
        assert_eq!(version(), Version::of(&file).unwrap());
        assert!(version().modified.as_secs() > 1_700_000_000);

        let model = File::open(&directory).unwrap();
        let made = create_new(&other, Who::Owner).unwrap();
        copy_owner(&made, &model).unwrap();
        copy_access(&made, &model).unwrap();
        assert_eq!(mode(&other), 0o700);
        give(&other, None).unwrap();
        give(&other, Some(&Owner(of(&other).uid()))).unwrap();
        assert_eq!(Owner::if_other(&other).unwrap(), None);
        assert_eq!(Owner::named("root"), Some(Owner(0)));
        assert_eq!(Owner::named("no such user"), None);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn owner_and_mode_decide_who_may_read() {
        use Need::{Secret, Shared};
        let told = |need, mode, owner, user| {
            let path = Path::new("/lab/device key.pem");
            let found = exposure(path, need, mode, owner, user);
            found.map(|found| found.told("at this"))
        };
        let check = |need, mode: u32, owner: u32, user: u32, expected: Result<(), &str>| match (
            told(need, mode, owner, user),
            expected,
        ) {
            (None, Ok(())) => {}
            (Some(text), Err(remedy)) if text.contains(remedy) => {}
            (told, _) => panic!("{need:?} {mode:o} {owner} {user}: {told:?}, not {expected:?}"),
        };
        let chmod = Err("chmod 600 '/lab/device key.pem'");
        for mode in [0o600, 0o400, 0o700] {
            check(Secret, mode, 1000, 1000, Ok(()));
            check(Secret, mode, 0, 1000, Ok(()));
        }
        for mode in [0o644, 0o640, 0o604, 0o660, 0o666, 0o601, 0o610] {
            check(Secret, mode, 1000, 1000, chmod);
            check(Secret, mode, 0, 0, chmod);
        }
        let chown = Err("chown 1000 '/lab/device key.pem'");
        check(Secret, 0o600, 1001, 1000, chown);
        check(Secret, 0o600, 1001, 0, Ok(()));
        check(Secret, 0o644, 1001, 0, chmod);
        for mode in [0o600, 0o644, 0o444, 0o755] {
            check(Shared, mode, 1000, 1000, Ok(()));
            check(Shared, mode, 0, 1000, Ok(()));
        }
        for mode in [0o664, 0o646, 0o666, 0o620] {
            let chmod = Err("chmod go-w '/lab/device key.pem'");
            check(Shared, mode, 1000, 1000, chmod);
        }
        check(Shared, 0o644, 1001, 1000, Err("belongs to user 1001"));
        check(Shared, 0o644, 1001, 0, Ok(()));
        // The message names the mode, and the one for mounted secrets.
        let text = told(Secret, 0o644, 0, 0).unwrap();
        let expected = "mode 0644 lets other users at this; run: chmod 600 '/lab/device key.pem' \
                        (where secrets are mounted: mode 0400)";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_group_is_private_only_if_it_has_the_number_of_the_owner() {
        let file = std::env::temp_dir().join(format!("lsl-group-{}", std::process::id()));
        drop(File::create(&file).unwrap());
        let owner = fs::metadata(&file).unwrap().uid();
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
