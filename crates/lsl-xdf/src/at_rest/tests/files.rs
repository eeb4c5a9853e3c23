use std::fs;
use std::path::Path;
use std::sync::Mutex;

use super::*;
use crate::at_rest::payload::SEALED_LEN;
use crate::at_rest::{
    Cancel, Done, Existing, FileOutcome, Options, Rewrap, Source, Task, Watch, is_locked, lock,
    locked_name, rotate, unlock, unlocked_name, verify,
};

/// Temporary folder that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("lsl-at-rest-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn task(from: &Path) -> Task {
    Task {
        from: from.into(),
        to: locked_name(from),
    }
}

fn only(outcomes: Vec<FileOutcome>) -> Result<Done, Error> {
    assert_eq!(outcomes.len(), 1);
    outcomes.into_iter().next().unwrap().result
}

#[test]
fn names() {
    assert_eq!(
        locked_name(Path::new("a/sub.xdf")),
        Path::new("a/sub.xdf.age")
    );
    assert_eq!(
        unlocked_name(Path::new("a/sub.xdf.age")).unwrap(),
        Path::new("a/sub.xdf")
    );
    assert_eq!(unlocked_name(Path::new("sub.xdf")), None);
    assert_eq!(unlocked_name(Path::new(".age")), None);
}

#[test]
fn many_files_there_and_back() {
    let folder = Folder::new("many");
    let (recipients, identities) = pair();
    let tasks: Vec<Task> = (0..20)
        .map(|index| task(&folder.file(&format!("{index:02}.xdf"), &bytes(index * 40_000))))
        .collect();
    let options = Options {
        source: Source::Remove,
        ..Options::default()
    };
    for (index, outcome) in lock(&tasks, &recipients, &options).into_iter().enumerate() {
        assert_eq!(outcome.from, tasks[index].from, "in the order given");
        let done = outcome.result.unwrap();
        assert_eq!(
            (done.plain_bytes, done.source_removed),
            (index as u64 * 40_000, true)
        );
    }
    assert!(folder.names().iter().all(|name| name.ends_with(".xdf.age")));
    let files: Vec<PathBuf> = tasks.iter().map(|task| task.to.clone()).collect();
    assert!(files.iter().all(|file| is_locked(file).unwrap()));
    for outcome in verify(&files, &identities, &Options::default()) {
        assert_eq!(outcome.result.unwrap().end, Some(End::Whole));
    }
    let back: Vec<Task> = files
        .iter()
        .map(|file| Task {
            from: file.clone(),
            to: unlocked_name(file).unwrap(),
        })
        .collect();
    for outcome in unlock(&back, &identities, &options) {
        outcome.result.unwrap();
    }
    for (index, task) in tasks.iter().enumerate() {
        assert!(!is_locked(&task.from).unwrap());
        assert!(fs::read(&task.from).unwrap() == bytes(index * 40_000));
    }
    assert_eq!(folder.names().len(), 20);
}

#[test]
fn one_failure_is_one_files_failure() {
    let folder = Folder::new("failures");
    let (recipients, identities) = pair();
    let good = folder.file("good.xdf", b"XDF:");
    let locked = folder.file("locked.xdf", &encrypt(b"XDF:", &recipients));
    let taken = folder.file("taken.xdf", b"XDF:");
    folder.file("taken.xdf.age", b"mine");
    fs::create_dir(folder.0.join("directory")).unwrap();
    let same = Task {
        from: good.clone(),
        to: good.clone(),
    };
    let twice = Task {
        from: taken.clone(),
        to: locked_name(&good),
    };
    let tasks = [
        task(&good),
        task(&locked),
        task(&taken),
        task(&folder.0.join("absent.xdf")),
        task(&folder.0.join("directory")),
        same,
        twice,
    ];
    let mut outcomes = lock(&tasks, &recipients, &Options::default()).into_iter();
    let mut next = || outcomes.next().unwrap().result;
    assert_eq!(next().unwrap().plain_bytes, 4);
    assert!(matches!(next(), Err(Error::AlreadyLocked)));
    assert!(matches!(next(), Err(Error::Exists(path)) if path == locked_name(&taken)));
    assert!(matches!(next(), Err(Error::Io(error)) if error.kind() == io::ErrorKind::NotFound));
    assert!(matches!(next(), Err(Error::NotAFile)));
    assert!(matches!(next(), Err(Error::SameFile)));
    assert!(
        matches!(next(), Err(Error::Exists(_))),
        "two sources, one target"
    );
    assert_eq!(fs::read(locked_name(&taken)).unwrap(), b"mine");
    assert_eq!(
        folder.names(),
        [
            "directory",
            "good.xdf",
            "good.xdf.age",
            "locked.xdf",
            "taken.xdf",
            "taken.xdf.age"
        ]
    );

    // Told so, it replaces.
    let options = Options {
        existing: Existing::Replace,
        ..Options::default()
    };
    only(lock(&[task(&taken)], &recipients, &options)).unwrap();
    let file = fs::read(locked_name(&taken)).unwrap();
    assert_eq!(decrypt(&file, &identities).unwrap().0, b"XDF:");
}

#[test]
fn unlocking_leaves_no_half_file() {
    let folder = Folder::new("half");
    let (recipients, identities) = pair();
    let plain = bytes(3 * CHUNK_LEN + 9);
    let mut file = encrypt(&plain, &recipients);
    file.truncate(file.len() - 1);
    let path = folder.file("sub.xdf.age", &file);
    let task = Task {
        from: path.clone(),
        to: unlocked_name(&path).unwrap(),
    };

    let other = only(unlock(
        std::slice::from_ref(&task),
        &pair().1,
        &Options::default(),
    ))
    .unwrap_err();
    assert!(matches!(other, Error::NoMatchingIdentity { .. }));
    let remove = Options {
        source: Source::Remove,
        ..Options::default()
    };
    let strict = only(unlock(std::slice::from_ref(&task), &identities, &remove)).unwrap_err();
    assert!(matches!(strict, Error::CutOff { plain_bytes } if plain_bytes == 3 * CHUNK_LEN as u64));
    let verified = only(verify(&[path], &identities, &Options::default())).unwrap_err();
    assert!(matches!(verified, Error::CutOff { .. }));
    assert_eq!(folder.names(), ["sub.xdf.age"]);

    let tolerant = Options {
        ending: Ending::Tolerant,
        ..remove
    };
    let done = only(unlock(&[task], &identities, &tolerant)).unwrap();
    assert_eq!((done.end, done.source_removed), (Some(End::CutOff), false));
    assert!(fs::read(folder.0.join("sub.xdf")).unwrap() == plain[..3 * CHUNK_LEN]);
    assert_eq!(folder.names(), ["sub.xdf", "sub.xdf.age"]);
}

#[test]
fn rotating_exchanges_recipients_and_nothing_else() {
    let folder = Folder::new("rotate");
    let (old, old_identities) = pair();
    let (new, new_identities) = pair();
    for len in [0, 100, 3 * CHUNK_LEN, 200 * CHUNK_LEN + 1] {
        let plain = bytes(len);
        let file = encrypt(&plain, &old);
        let path = folder.file("sub.xdf.age", &file);
        let files = [path.clone()];
        let options = Options::default();

        let none = only(rotate(
            &files,
            &new_identities,
            &new,
            Rewrap::Header,
            &options,
        ));
        assert!(matches!(none, Err(Error::NoMatchingIdentity { .. })));
        assert_eq!(fs::read(&path).unwrap(), file, "a failure changes nothing");

        let done = only(rotate(
            &files,
            &old_identities,
            &new,
            Rewrap::Header,
            &options,
        ))
        .unwrap();
        assert_eq!((done.plain_bytes, done.end), (len as u64, None));
        let rotated = fs::read(&path).unwrap();
        let payload = |file: &[u8]| file[head_len(file) - 16..].to_vec();
        assert!(payload(&rotated) == payload(&file), "the payload is copied");
        assert!(decrypt(&rotated, &old_identities).is_err());
        assert_eq!(
            decrypt(&rotated, &new_identities).unwrap(),
            (plain.clone(), End::Whole)
        );

        let everything = Rewrap::Everything;
        let done = only(rotate(&files, &new_identities, &old, everything, &options)).unwrap();
        assert_eq!((done.plain_bytes, done.end), (len as u64, Some(End::Whole)));
        let renewed = fs::read(&path).unwrap();
        assert!(payload(&renewed) != payload(&file));
        assert!(decrypt(&renewed, &new_identities).is_err());
        assert_eq!(
            decrypt(&renewed, &old_identities).unwrap(),
            (plain, End::Whole)
        );
        assert_eq!(folder.names(), ["sub.xdf.age"]);
    }

    // From keys to a passphrase and back.
    let path = folder.file("sub.xdf.age", &encrypt(b"XDF:", &old));
    let files = [path.clone()];
    let passphrase = Recipients::with_passphrase_and_work(&phrase("sesame"), 2);
    let mut knower = Identities::new();
    knower.add_passphrase(&phrase("sesame"));
    let options = Options::default();
    only(rotate(
        &files,
        &old_identities,
        &passphrase,
        Rewrap::Header,
        &options,
    ))
    .unwrap();
    only(verify(&files, &knower, &options)).unwrap();
    only(rotate(&files, &knower, &new, Rewrap::Header, &options)).unwrap();
    only(verify(&files, &new_identities, &options)).unwrap();

    // A stump keeps being one with its header exchanged, and is refused where it is read.
    let mut stump = encrypt(&bytes(2 * CHUNK_LEN), &old);
    stump.truncate(head_len(&stump) + SEALED_LEN + 5);
    fs::write(&path, &stump).unwrap();
    let refused = only(rotate(
        &files,
        &old_identities,
        &new,
        Rewrap::Everything,
        &options,
    ));
    assert!(matches!(refused, Err(Error::CutOff { .. })));
    assert!(fs::read(&path).unwrap() == stump);
    only(rotate(
        &files,
        &old_identities,
        &new,
        Rewrap::Header,
        &options,
    ))
    .unwrap();
    let read = decrypt(&fs::read(&path).unwrap(), &new_identities).unwrap();
    assert_eq!((read.0.len(), read.1), (CHUNK_LEN, End::CutOff));
}

#[derive(Default)]
struct Stopper {
    cancel: Cancel,
    advanced: Mutex<Vec<(u64, u64)>>,
    finished: Mutex<usize>,
}

impl Watch for Stopper {
    fn advanced(&self, _: &Path, done: u64, total: u64) {
        self.advanced.lock().unwrap().push((done, total));
        self.cancel.cancel();
    }

    fn finished(&self, _: &FileOutcome) {
        *self.finished.lock().unwrap() += 1;
    }
}

#[test]
fn stopping_leaves_nothing_behind() {
    let folder = Folder::new("stop");
    let (recipients, identities) = pair();
    let plain = bytes(30 * CHUNK_LEN);
    let tasks: Vec<Task> = (0..4)
        .map(|index| task(&folder.file(&format!("{index}.xdf"), &plain)))
        .collect();
    let before = folder.names();
    let watch = Stopper::default();
    let options = Options {
        cancel: Some(&watch.cancel),
        watch: Some(&watch),
        source: Source::Remove,
        ..Options::default()
    };
    for outcome in lock(&tasks, &recipients, &options) {
        assert!(matches!(outcome.result, Err(Error::Cancelled)));
    }
    assert_eq!(*watch.finished.lock().unwrap(), 4);
    assert!(
        watch
            .advanced
            .lock()
            .unwrap()
            .iter()
            .all(|(_, total)| *total == plain.len() as u64)
    );
    assert_eq!(folder.names(), before);

    let path = folder.file("9.xdf.age", &encrypt(&plain, &recipients));
    let file = fs::read(&path).unwrap();
    for rewrap in [Rewrap::Header, Rewrap::Everything] {
        let watch = Stopper::default();
        let options = Options {
            cancel: Some(&watch.cancel),
            watch: Some(&watch),
            ..Options::default()
        };
        let stopped = only(rotate(
            std::slice::from_ref(&path),
            &identities,
            &recipients,
            rewrap,
            &options,
        ));
        assert!(matches!(stopped, Err(Error::Cancelled)));
        assert!(fs::read(&path).unwrap() == file);
    }
    assert_eq!(folder.names().len(), before.len() + 1);
}

/// Appends to the file as soon as it is worked on.
struct Recorder(PathBuf);

impl Watch for Recorder {
    fn advanced(&self, _: &Path, _: u64, _: u64) {
        let mut file = fs::OpenOptions::new().append(true).open(&self.0).unwrap();
        file.write_all(b"one more sample").unwrap();
    }
}

#[test]
fn a_file_that_still_grows_is_not_locked() {
    let folder = Folder::new("grows");
    let (recipients, _) = pair();
    let path = folder.file("sub.xdf", &bytes(100));
    let watch = Recorder(path.clone());
    let options = Options {
        watch: Some(&watch),
        source: Source::Remove,
        ..Options::default()
    };
    let result = only(lock(&[task(&path)], &recipients, &options));
    assert!(matches!(result, Err(Error::Changed)), "{result:?}");
    assert_eq!(folder.names(), ["sub.xdf"]);
}

#[cfg(unix)]
#[test]
fn permissions_and_links_stay() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    let folder = Folder::new("permissions");
    let (recipients, identities) = pair();
    let path = folder.file("sub.xdf", b"XDF:");
    for mode in [0o600, 0o640, 0o444] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let options = Options {
            existing: Existing::Replace,
            ..Options::default()
        };
        only(lock(&[task(&path)], &recipients, &options)).unwrap();
        let mode_of = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode_of(&locked_name(&path)), mode);
        let link = folder.0.join("link.age");
        symlink(locked_name(&path), &link).unwrap();
        only(rotate(
            std::slice::from_ref(&link),
            &identities,
            &recipients,
            Rewrap::Header,
            &options,
        ))
        .unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(mode_of(&locked_name(&path)), mode);
        fs::remove_file(&link).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn a_link_is_not_taken_for_the_file_to_remove() {
    let folder = Folder::new("link");
    let (recipients, identities) = pair();
    let path = folder.file("sub.xdf", b"XDF:");
    let link = folder.0.join("link.xdf");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let remove = Options {
        source: Source::Remove,
        ..Options::default()
    };
    let result = only(lock(&[task(&link)], &recipients, &remove));
    assert!(matches!(result, Err(Error::Link)), "{result:?}");
    assert_eq!(folder.names(), ["link.xdf", "sub.xdf"]);
    only(lock(&[task(&link)], &recipients, &Options::default())).unwrap();
    let back = Task {
        from: folder.0.join("link.age"),
        to: folder.0.join("back.xdf"),
    };
    std::os::unix::fs::symlink(locked_name(&link), &back.from).unwrap();
    let result = only(unlock(&[back], &identities, &remove));
    assert!(matches!(result, Err(Error::Link)), "{result:?}");
}

#[test]
fn a_file_that_is_being_recorded_is_left_alone() {
    let folder = Folder::new("recorded");
    let (recipients, identities) = pair();
    let plain = folder.0.join("sub.xdf");
    let locked = locked_name(&plain);
    let plain_file = crate::claim(&plain).unwrap().file;
    (&plain_file).write_all(b"XDF:").unwrap();
    let file = crate::claim(&locked).unwrap().file;
    let mut recorder = Encrypting::new(&file, &recipients).unwrap();
    recorder.write_all(&bytes(2 * CHUNK_LEN + 5)).unwrap();
    let files = [locked.clone()];
    let other = Task {
        from: folder.file("other", b"XDF:"),
        to: plain.clone(),
    };
    let back = [Task {
        from: locked.clone(),
        to: folder.0.join("so-far.xdf"),
    }];
    let tolerant = Options {
        ending: Ending::Tolerant,
        ..Options::default()
    };
    let remove = Options {
        source: Source::Remove,
        existing: Existing::Replace,
        ..tolerant
    };
    let before = fs::read(&locked).unwrap();
    let in_use = |outcome: Result<Done, Error>| {
        assert!(matches!(outcome, Err(Error::InUse)), "{outcome:?}");
    };
    for rewrap in [Rewrap::Header, Rewrap::Everything] {
        in_use(only(rotate(
            &files,
            &identities,
            &recipients,
            rewrap,
            &tolerant,
        )));
    }
    in_use(only(lock(&[task(&plain)], &recipients, &remove)));
    in_use(only(lock(
        &[task(&plain)],
        &recipients,
        &Options::default(),
    )));
    in_use(only(lock(&[other], &recipients, &remove)));
    in_use(only(unlock(&back, &identities, &remove)));
    assert_eq!(folder.names(), ["other", "sub.xdf", "sub.xdf.age"]);
    assert!(fs::read(&locked).unwrap() == before);
    // Reading up to the present end is harmless.
    let done = only(unlock(&back, &identities, &tolerant)).unwrap();
    assert_eq!(done.end, Some(End::CutOff));
    // All of it arrives, and then it is a file like any other, as it is when a recorder was killed.
    recorder.write_all(b"the end").unwrap();
    recorder.finish().unwrap();
    drop((file, plain_file));
    only(rotate(
        &files,
        &identities,
        &recipients,
        Rewrap::Header,
        &tolerant,
    ))
    .unwrap();
    let rotated = decrypt(&fs::read(&locked).unwrap(), &identities).unwrap();
    assert_eq!(
        (rotated.0.len(), rotated.1),
        (2 * CHUNK_LEN + 12, End::Whole)
    );
    only(lock(&[task(&plain)], &recipients, &remove)).unwrap();
    assert!(!plain.exists());
}

#[test]
fn a_file_that_grows_unannounced_is_not_rotated() {
    let folder = Folder::new("rotate-grows");
    let (recipients, identities) = pair();
    let path = folder.file("sub.xdf.age", &encrypt(&bytes(100), &recipients));
    let watch = Recorder(path.clone());
    let options = Options {
        watch: Some(&watch),
        ending: Ending::Tolerant,
        ..Options::default()
    };
    for rewrap in [Rewrap::Header, Rewrap::Everything] {
        let before = fs::metadata(&path).unwrap().len();
        let files = std::slice::from_ref(&path);
        let result = only(rotate(files, &identities, &recipients, rewrap, &options));
        assert!(matches!(result, Err(Error::Changed)), "{result:?}");
        assert!(
            fs::metadata(&path).unwrap().len() > before,
            "it is the same file"
        );
        assert_eq!(folder.names(), ["sub.xdf.age"]);
    }
}
