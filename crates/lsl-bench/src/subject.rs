//! What is compared: from `--lib` and `--secure` to processes that use a library, and the private
//! corner they work in: a configuration of their own, so that nothing leaves the host and nothing on
//! it interferes, and keys made for the run.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::interrupt::Stop;
use lsl_cli::note::note;
use lsl_core::secure::{OsRandom, SecretKey, keyfile};
use lsl_platform::files::{create_directory, create_new};

use super::child::{Child, Environment};
use super::job::{Carrier, Event, Library, Task};
use super::result;

/// Whether connections are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Secure {
    Off,
    On,
}

/// One of those that are compared, and how to run it.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) shown: result::Subject,
    pub(super) carrier: Carrier,
    /// A library, and not ours.
    pub(super) is_foreign: bool,
}

impl Subject {
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
    corner: &Corner,
    stop: &Stop,
) -> Outcome<Vec<Subject>> {
    let chosen = if names.is_empty() {
        defaults(corner, stop)?
    } else {
        let read = |name: &String| read(name, corner, stop);
        names.iter().map(read).collect::<Outcome<Vec<_>>>()?
    };
    let mut subjects: Vec<Subject> = Vec::new();
    for found in chosen {
        let plain = secure.is_empty() || secure.contains(&Secure::Off);
        let wanted = secure.contains(&Secure::On);
        let can_encrypt = found.encryption == Encryption::AsAsked;
        if wanted && !can_encrypt && matches!(found.carrier, Carrier::Library(_)) {
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

/// What ratios are taken to unless the user says: the first other liblsl that was found where no
/// libraries were named, else the first.
pub(super) fn baseline(subjects: &[Subject], names: &[String]) -> usize {
    let foreign = || subjects.iter().position(|subject| subject.is_foreign);
    if names.is_empty() {
        foreign().unwrap_or(0)
    } else {
        0
    }
}

fn add(subjects: &mut Vec<Subject>, found: &Found, is_asked: bool) {
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
    subjects.push(Subject {
        shown: result::Subject {
            name,
            detail: found.detail.clone(),
            secure: is_asked || found.encryption == Encryption::Always,
        },
        carrier: found.carrier.clone(),
        is_foreign: matches!(found.carrier, Carrier::Library(_))
            && found.encryption == Encryption::Never,
    });
}

struct Found {
    name: String,
    detail: String,
    carrier: Carrier,
    encryption: Encryption,
}

/// When something encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encryption {
    Never,
    /// As `--secure` says.
    AsAsked,
    /// It is what its name says, so `--secure` changes nothing.
    Always,
}

fn read(name: &str, corner: &Corner, stop: &Stop) -> Outcome<Found> {
    let found = |detail: &str, carrier, encryption| Found {
        name: name.into(),
        detail: detail.into(),
        carrier,
        encryption,
    };
    match name {
        "core" => {
            let detail = format!("Rust library of lsl {}", env!("CARGO_PKG_VERSION"));
            Ok(found(&detail, Carrier::Core, Encryption::AsAsked))
        }
        "raw:tcp" => Ok(found(
            "TCP without LSL, written by the pushing thread, read by the pulling one",
            Carrier::Tcp,
            Encryption::Never,
        )),
        "raw:tcp-aesgcm" => Ok(found(
            "as raw:tcp, one AES-256-GCM frame per push",
            Carrier::TcpAesGcm,
            Encryption::Always,
        )),
        other if other.starts_with("raw:") => Err(Failure::Usage(format!(
            "--lib {other}: there are raw:tcp and raw:tcp-aesgcm"
        ))),
        path => {
            // The processes may run elsewhere; a bare name is for the system's search.
            let file = Path::new(path);
            let full = if path.contains('/') || file.exists() {
                fs::canonicalize(file).map_err(|error| {
                    Failure::NotFound(format!(
                        "--lib {path}: {error}. Give the path of a liblsl (liblsl.so, liblsl.dylib), \
                         core, raw:tcp or raw:tcp-aesgcm"
                    ))
                })?
            } else {
                file.into()
            };
            let library = probe(&full, corner, stop).map_err(|failure| {
                failure.context(&format!(
                    "--lib {path}: not a library with liblsl's functions"
                ))
            })?;
            Ok(library_found(full, &library))
        }
    }
}

fn library_found(path: PathBuf, library: &Library) -> Found {
    let (major, minor) = (library.version / 100, library.version % 100);
    let name = if library.ours {
        "ours".into()
    } else {
        format!("liblsl {major}.{minor}")
    };
    Found {
        name,
        detail: format!("{} ({})", path.display(), library.info),
        carrier: Carrier::Library(path),
        encryption: if library.ours {
            Encryption::AsAsked
        } else {
            Encryption::Never
        },
    }
}

/// Loads the library in a process of its own: it may be anything.
fn probe(path: &Path, corner: &Corner, stop: &Stop) -> Outcome<Library> {
    let mut child = Child::spawn(ENDPOINT, &corner.environment(false))?;
    child.say(&Task::Probe(path.into()))?;
    match child.hear(stop, PROBE_SECS)? {
        Event::Library(library) => Ok(library),
        Event::Failed(text) => Err(Failure::Runtime(text)),
        _ => Err(Failure::Runtime("it answered something else".into())),
    }
}

/// Our C library if it is where this program is, else the Rust library; and the first other liblsl.
fn defaults(corner: &Corner, stop: &Stop) -> Outcome<Vec<Found>> {
    let mut found = Vec::new();
    let ours = our_places().into_iter().find_map(|path| {
        let library = probe(&path, corner, stop).ok()?;
        library.ours.then(|| library_found(path, &library))
    });
    match ours {
        Some(ours) => found.push(ours),
        None => found.push(read("core", corner, stop)?),
    }
    let theirs = other_places().into_iter().find_map(|path| {
        let library = probe(&path, corner, stop).ok()?;
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
        .flat_map(|folder| LIBRARY_NAMES.map(|name| folder.join(name)));
    files
        .filter_map(|file| fs::canonicalize(file).ok())
        .collect()
}

/// As LSL programs search: what PYLSL_LIB names, then the system's.
fn other_places() -> Vec<PathBuf> {
    let named = std::env::var_os("PYLSL_LIB").map(PathBuf::from);
    named
        .into_iter()
        .chain(LIBRARY_NAMES.map(PathBuf::from))
        .collect()
}

const LIBRARY_NAMES: [&str; 2] = if cfg!(target_os = "macos") {
    ["liblsl.2.dylib", "liblsl.dylib"]
} else {
    ["liblsl.so.2", "liblsl.so"]
};

/// The hidden command that the processes run.
pub(super) const ENDPOINT: &[&str] = &["endpoint"];

const PROBE_SECS: f64 = 20.0;

/// A temporary folder with the configurations of the processes; removed when dropped.
#[derive(Debug)]
pub(super) struct Corner {
    folder: PathBuf,
}

impl Corner {
    /// Makes it. Streams of the run get `ports` ports on the loopback interface; a liblsl outlet takes
    /// two.
    pub(super) fn make(ports: u16) -> Outcome<Self> {
        let name = format!("lsl-bench-{}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        let private = |folder: &Path| -> Outcome { Ok(create_directory(folder, 0o700)?) };
        private(&folder).map_err(|failure| failure.context(&folder.display().to_string()))?;
        let corner = Self { folder };
        private(&corner.path("home"))?;
        private(&corner.path("secure"))?;
        let free = UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let base = free.min(u16::MAX - ports - 1);
        corner.write("lsl_api.cfg", &configuration(&name, base, ports))?;
        let key = SecretKey::generate(&mut OsRandom)?;
        keyfile::write_new_key(&corner.path("secure/device_key.pem"), &key, None)?;
        corner.write("secure/trusted_peers.toml", "")?;
        corner.write("secure/lsl-secure.toml", SECURE_CONFIG)?;
        Ok(corner)
    }

    /// What processes find that are to encrypt, or not to.
    pub(super) fn environment(&self, secure: bool) -> Environment {
        let os = |path: PathBuf| Some(OsString::from(path));
        let config = secure.then(|| self.path("secure/lsl-secure.toml").into());
        vec![
            ("LSLAPICFG", os(self.path("lsl_api.cfg"))),
            ("LSL_SECURE_CONFIG", config),
            ("SUDO_USER", None),
            // Where no keys are.
            ("HOME", os(self.path("home"))),
        ]
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, text: &str) -> Outcome {
        Ok(create_new(&self.path(name), 0o600)?.write_all(text.as_bytes())?)
    }
}

impl Drop for Corner {
    fn drop(&mut self) {
        // What cannot be removed is left in the folder for such things.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// One host, found by asking its ports one by one: multicast may not work on a loopback interface.
fn configuration(session: &str, base_port: u16, ports: u16) -> String {
    format!(
        "[ports]\nBasePort = {base_port}\nPortRange = {ports}\nMulticastPort = {}\n\
         IPv6 = disable\n\n\
         [multicast]\nResolveScope = machine\n\n\
         [lab]\nSessionID = {session}\nKnownPeers = {{127.0.0.1}}\n\n\
         [log]\nlevel = -2\n",
        base_port + ports
    )
}

/// A device that trusts nobody but itself.
const SECURE_CONFIG: &str = "[security]\nname = \"benchmark\"\npolicy = \"required\"\n\
                             key_file = \"device_key.pem\"\n\
                             trusted_peers = \"trusted_peers.toml\"\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, carrier: Carrier, encryption: Encryption) -> Found {
        Found {
            name: name.into(),
            detail: String::new(),
            carrier,
            encryption,
        }
    }

    fn three() -> Vec<Subject> {
        let mut subjects = Vec::new();
        let ours = Carrier::Library("/ours.so".into());
        let theirs = Carrier::Library("/theirs.so".into());
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
        let sealed = found("raw:tcp-aesgcm", Carrier::TcpAesGcm, Encryption::Always);
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
