use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::clock::local_clock;

/// Makes an empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("lsl-disk-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path).unwrap();
    path
}

fn to_write(path: &Path) -> File {
    open(path, OpenOptions::new().read(true).write(true).create(true)).unwrap()
}

#[test]
fn a_locked_file_can_be_read_and_written_but_not_locked() {
    let folder = folder("lock");
    let path = folder.join("it");
    let (one, other) = (to_write(&path), to_write(&path));
    try_lock(&one, true).unwrap();
    for exclusive in [true, false] {
        let refused = try_lock(&other, exclusive).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
    }
    io::Write::write_all(&mut &other, b"text").unwrap();
    other.set_len(3).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "tex");
    fs::copy(&path, folder.join("copy")).unwrap();
    unlock(&one);
    try_lock(&one, false).unwrap();
    try_lock(&other, false).unwrap();
    drop(one);
    unlock(&other);
    lock_once_closed(&other);
    drop(other);
    lock_once_closed(&to_write(&path));
    fs::remove_dir_all(folder).unwrap();
}

/// Locks a file that was just closed elsewhere: a child that another test forked has it until it is another program.
fn lock_once_closed(file: &File) {
    let until = local_clock() + 10.0;
    while let Err(error) = try_lock(file, true) {
        assert!(local_clock() < until, "{error}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_name_is_taken_from_another_file_only_by_replacing() {
    let folder = folder("names");
    let (one, other) = (folder.join("one"), folder.join("other"));
    fs::write(&one, "1").unwrap();
    fs::write(&other, "2").unwrap();
    let refused = rename_new(&one, &other).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
    let open = to_write(&one);
    assert!(is_still(&one, &open).unwrap() && !is_still(&other, &open).unwrap());
    let third = folder.join("third");
    rename_new(&one, &third).unwrap();
    assert!(is_still(&third, &open).unwrap());
    replace(&third, &other, Some(to_write(&other))).unwrap();
    drop(open);
    assert_eq!(fs::read_to_string(&other).unwrap(), "1");
    assert!(!third.exists());
    let missing = rename_new(&third, &one).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    sync_folder(&folder).unwrap();
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn room_is_told_for_files_to_come_and_reserved_beyond_the_length() {
    let folder = folder("room");
    let path = folder.join("a").join("b");
    assert!(free_space(&path).is_some_and(|bytes| bytes > 0));
    assert!(is_one_disk(&folder, &std::env::temp_dir()));
    assert!(!is_one_disk(&folder, &path));
    let file = to_write(&folder.join("it"));
    io::Write::write_all(&mut &file, b"text").unwrap();
    // Not every file system can.
    let _ = reserve(&file, 0, 1 << 20);
    let _ = reserve(&file, 0, 1);
    assert_eq!(file.metadata().unwrap().len(), 4);
    drop(file);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
#[cfg(windows)]
fn devices_and_hidden_streams_are_no_files() {
    for name in ["nul", r"C:\nul", "a:b", r"C:\a\b:c.xdf"] {
        let error = open(Path::new(name), OpenOptions::new().read(true)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}: {error}");
    }
}
