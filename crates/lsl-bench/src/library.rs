//! Libraries to compare: from `--lib` and `--secure` to libraries that processes can use.

use std::env::consts::OS;
use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::ValueEnum;
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::Stop;
use lsl_cli::ui::notice::note;
use lsl_platform::remedy::typed;

use super::child::Child;
use super::job::{Backend, ChildEvent, LibraryInfo, Task};
use super::result;
use super::sandbox::Sandbox;
use super::via::Via;

/// Encryption of connections, as `--secure` demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Secure {
    Off,
    On,
}

/// One of those that are compared, and how to run it.
#[derive(Debug, Clone)]
pub(super) struct Library {
    pub(super) shown: result::Subject,
    pub(super) backend: Backend,
    /// A library, and not ours.
    pub(super) is_foreign: bool,
    pub(super) via: Via,
}

impl Library {
    /// Whether it must encrypt; the processes of a library find a key then.
    pub(super) fn secure(&self) -> bool {
        self.shown.secure
    }
}

/// Finds out what `names` stand for, and says on stderr what cannot be. Without names: our own library
/// and the first other one there is.
pub(super) fn find(
    names: &[String],
    secure: &[Secure],
    sandbox: &Sandbox,
    stop: &Stop,
) -> Outcome<Vec<Library>> {
    let chosen = if names.is_empty() {
        defaults(sandbox, stop)?
    } else {
        let read = |name: &String| read(name, sandbox, stop);
        names.iter().map(read).collect::<Outcome<Vec<_>>>()?
    };
    let mut subjects: Vec<Library> = Vec::new();
    for found in chosen {
        let plain = secure.is_empty() || secure.contains(&Secure::Off);
        let wanted = secure.contains(&Secure::On);
        let can_encrypt = found.encryption == Encryption::AsAsked;
        if wanted && !can_encrypt && matches!(found.backend, Backend::Library(_)) {
            let name = &found.name;
            note(format_args!(
                "{name} cannot encrypt: it takes part in plaintext"
            ));
        }
        if plain || !can_encrypt {
            add(&mut subjects, &found, false);
        }
        if wanted && can_encrypt {
            add(&mut subjects, &found, true);
        }
    }
    Ok(subjects)
}

/// Returns our Rust library by each of these ways, plain and encrypted as asked, as far as a way can be.
pub(super) fn by_ways(ways: &[Via], secure: &[Secure]) -> Vec<Library> {
    let mut subjects = Vec::new();
    for &via in ways {
        let found = FoundLibrary {
            name: via.name(),
            detail: via.detail().into(),
            backend: Backend::Core,
            encryption: if via.is_stored() {
                Encryption::Never
            } else {
                Encryption::AsAsked
            },
            via,
        };
        if secure.is_empty() || secure.contains(&Secure::Off) {
            add(&mut subjects, &found, false);
        }
        if secure.contains(&Secure::On) && !via.is_stored() {
            add(&mut subjects, &found, true);
        }
    }
    subjects
}

/// Chooses the baseline of ratios: the first other liblsl if no library was named, else the first.
pub(super) fn baseline(subjects: &[Library], names: &[String]) -> usize {
    let foreign = || subjects.iter().position(|subject| subject.is_foreign);
    if names.is_empty() {
        foreign().unwrap_or(0)
    } else {
        0
    }
}

fn add(subjects: &mut Vec<Library>, found: &FoundLibrary, is_asked: bool) {
    let name = if is_asked {
        format!("{} secure", found.name)
    } else {
        found.name.clone()
    };
    let is_taken = |name: &str| subjects.iter().any(|other| other.shown.name == name);
    let mut free = name.clone();
    let mut number = 1;
    while is_taken(&free) {
        number += 1;
        free = format!("{name} ({number})");
    }
    let name = free;
    subjects.push(Library {
        shown: result::Subject {
            name,
            detail: found.detail.clone(),
            secure: is_asked || found.encryption == Encryption::Always,
        },
        backend: found.backend.clone(),
        is_foreign: matches!(found.backend, Backend::Library(_))
            && found.encryption == Encryption::Never,
        via: found.via,
    });
}

struct FoundLibrary {
    name: String,
    detail: String,
    backend: Backend,
    encryption: Encryption,
    via: Via,
}

/// Condition under which a library encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encryption {
    Never,
    /// Encrypts if `--secure` asks for it.
    AsAsked,
    /// Encrypts or not by its name, so `--secure` changes nothing.
    Always,
}

fn read(name: &str, sandbox: &Sandbox, stop: &Stop) -> Outcome<FoundLibrary> {
    let found = |detail: &str, backend, encryption| FoundLibrary {
        name: name.into(),
        detail: detail.into(),
        backend,
        encryption,
        via: Via::Direct,
    };
    match name {
        "core" => {
            let detail = format!("Rust library of lsl {}", env!("CARGO_PKG_VERSION"));
            Ok(found(&detail, Backend::Core, Encryption::AsAsked))
        }
        "raw:tcp" => Ok(found(
            "TCP without LSL, written by the pushing thread, read by the pulling one",
            Backend::Tcp,
            Encryption::Never,
        )),
        "raw:tcp-aesgcm" => Ok(found(
            "as raw:tcp, one AES-256-GCM frame per push",
            Backend::TcpAesGcm,
            Encryption::Always,
        )),
        other if other.starts_with("raw:") => Err(Failure::Usage(format!(
            "--lib {other}: there are raw:tcp and raw:tcp-aesgcm"
        ))),
        path => {
            // The processes may run elsewhere; a bare name is for the system's search.
            let file = Path::new(path);
            let full = if path.contains('/') || file.exists() || cfg!(windows) {
                full_path(file).map_err(|error| {
                    Failure::NotFound(format!(
                        "--lib {path}: {error}. Give the path of a liblsl (liblsl.so, liblsl.dylib, \
                         lsl.dll), core, raw:tcp or raw:tcp-aesgcm"
                    ))
                })?
            } else {
                file.into()
            };
            let library = probe(&full, sandbox, stop).map_err(|failure| {
                failure.context(&format!(
                    "--lib {path}: not a library with liblsl's functions"
                ))
            })?;
            Ok(library_found(full, &library))
        }
    }
}

/// Returns the whole path of a file that is there.
fn full_path(file: &Path) -> io::Result<PathBuf> {
    Ok(typed(&fs::canonicalize(file)?))
}

fn library_found(path: PathBuf, library: &LibraryInfo) -> FoundLibrary {
    let (major, minor) = (library.version / 100, library.version % 100);
    let name = if library.ours {
        "ours".into()
    } else {
        format!("liblsl {major}.{minor}")
    };
    FoundLibrary {
        name,
        detail: format!("{} ({})", path.display(), library.info),
        backend: Backend::Library(path),
        encryption: if library.ours {
            Encryption::AsAsked
        } else {
            Encryption::Never
        },
        via: Via::Direct,
    }
}

/// Loads the library in a process of its own: it may be anything.
fn probe(path: &Path, sandbox: &Sandbox, stop: &Stop) -> Outcome<LibraryInfo> {
    let mut child = Child::spawn(ENDPOINT, &sandbox.environment(false))?;
    child.say(&Task::Probe(path.into()))?;
    match child.hear(stop, PROBE_SECS)? {
        ChildEvent::Library(library) => Ok(library),
        ChildEvent::Failed(text) => Err(Failure::Runtime(text)),
        _ => Err(Failure::Runtime("it answered something else".into())),
    }
}

/// Our C library if it is where this program is, else the Rust library; and the first other liblsl.
fn defaults(sandbox: &Sandbox, stop: &Stop) -> Outcome<Vec<FoundLibrary>> {
    let mut found = Vec::new();
    let ours = our_places().into_iter().find_map(|path| {
        let library = probe(&path, sandbox, stop).ok()?;
        library.ours.then(|| library_found(path, &library))
    });
    match ours {
        Some(ours) => found.push(ours),
        None => found.push(read("core", sandbox, stop)?),
    }
    let theirs = other_places().into_iter().find_map(|path| {
        let library = probe(&path, sandbox, stop).ok()?;
        (!library.ours).then(|| library_found(path, &library))
    });
    match theirs {
        Some(theirs) => found.push(theirs),
        None => note(
            "no other liblsl found to compare with: name one with --lib PATH, or set PYLSL_LIB",
        ),
    }
    Ok(found)
}

fn our_places() -> Vec<PathBuf> {
    let program = std::env::current_exe().ok();
    let Some(folder) = program.as_deref().and_then(Path::parent) else {
        return Vec::new();
    };
    let folders = [folder.to_owned(), folder.join("../lib"), folder.join("..")];
    let files = folders
        .iter()
        .flat_map(|folder| library_names().iter().map(|name| folder.join(name)));
    files.filter_map(|file| full_path(&file).ok()).collect()
}

/// Returns the places where LSL programs search: that of PYLSL_LIB, then the system's. Windows would take a bare
/// name for a file in the working folder.
fn other_places() -> Vec<PathBuf> {
    let named = std::env::var_os("PYLSL_LIB").map(PathBuf::from);
    let system = library_names().iter().map(PathBuf::from);
    named
        .into_iter()
        .chain(system.filter(|_| OS != "windows"))
        .collect()
}

fn library_names() -> &'static [&'static str] {
    match OS {
        "windows" => &["lsl.dll"],
        "macos" => &["liblsl.2.dylib", "liblsl.dylib"],
        _ => &["liblsl.so.2", "liblsl.so"],
    }
}

/// The hidden command that the processes run.
pub(super) const ENDPOINT: &[&str] = &["endpoint"];

const PROBE_SECS: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, backend: Backend, encryption: Encryption) -> FoundLibrary {
        FoundLibrary {
            name: name.into(),
            detail: String::new(),
            backend,
            encryption,
            via: Via::Direct,
        }
    }

    fn three() -> Vec<Library> {
        let mut subjects = Vec::new();
        let ours = Backend::Library("/ours.so".into());
        let theirs = Backend::Library("/theirs.so".into());
        let ours = found("ours", ours, Encryption::AsAsked);
        add(&mut subjects, &ours, false);
        add(&mut subjects, &ours, true);
        add(
            &mut subjects,
            &found("liblsl 1.18", theirs, Encryption::Never),
            false,
        );
        subjects
    }

    #[test]
    fn ratios_are_to_the_other_liblsl_or_what_is_named_first() {
        let subjects = three();
        assert_eq!(baseline(&subjects, &[]), 2);
        assert_eq!(baseline(&subjects, &["target/liblsl.so".into()]), 0);
        // Nothing else was found.
        assert_eq!(baseline(&subjects[..2], &[]), 0);
    }

    #[test]
    fn what_always_encrypts_is_secure_under_its_own_name() {
        let mut subjects = three();
        let sealed = found("raw:tcp-aesgcm", Backend::TcpAesGcm, Encryption::Always);
        add(&mut subjects, &sealed, false);
        let shown: Vec<(&str, bool)> = subjects
            .iter()
            .map(|subject| (subject.shown.name.as_str(), subject.secure()))
            .collect();
        assert_eq!(
            shown,
            [
                ("ours", false),
                ("ours secure", true),
                ("liblsl 1.18", false),
                ("raw:tcp-aesgcm", true)
            ]
        );
    }
}
