//! What this machine offers: which liblsl binaries, whether a private network, and the foreign peers
//! that run so far. Peers are shared: a cell asks for one by library and setup, and the first to ask
//! starts it.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use lsl_core::Context;

use crate::capture::Capture;
use crate::cell::{Cell, Outcome};
use crate::keys::{Keyring, Keys};
use crate::peer::{Peer, locked};

/// A foreign implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Library {
    V1_18_0,
    V1_17_7,
    /// The Python classes most users know, on 1.18.0.
    Pylsl,
    /// Our own library, loaded as if it were liblsl.
    LslFfi,
    /// The same Python classes on our library.
    PylslOnOurs,
    /// The newest release for Windows, played by Wine.
    Windows,
    /// Our library for Windows, played by Wine.
    LslDll,
    /// The Python classes on it.
    PylslOnDll,
}

impl Library {
    /// The releases of liblsl.
    pub(crate) const LIBLSL: [Self; 2] = [Self::V1_18_0, Self::V1_17_7];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1_18_0 => "liblsl 1.18.0",
            Self::V1_17_7 => "liblsl 1.17.7",
            Self::Pylsl => "pylsl 1.18.6",
            Self::LslFfi => "lsl-ffi",
            Self::PylslOnOurs => "pylsl on lsl-ffi",
            Self::Windows => "Windows liblsl 1.18.0",
            Self::LslDll => "Windows lsl-ffi",
            Self::PylslOnDll => "pylsl on Windows lsl-ffi",
        }
    }

    pub(crate) fn is_ours(self) -> bool {
        matches!(
            self,
            Self::LslFfi | Self::PylslOnOurs | Self::LslDll | Self::PylslOnDll
        )
    }

    pub(crate) fn is_for_windows(self) -> bool {
        matches!(self, Self::Windows | Self::LslDll | Self::PylslOnDll)
    }

    /// What the peer is started with: a library to load, for pylsl the Python that has it.
    fn variable(self) -> &'static str {
        match self {
            Self::V1_18_0 => "LSL_INTEROP_LIB_1_18_0",
            Self::V1_17_7 => "LSL_INTEROP_LIB_1_17_7",
            Self::Pylsl | Self::PylslOnOurs => "LSL_INTEROP_PYLSL",
            Self::LslFfi => "LSL_INTEROP_LIB_LSL_FFI",
            Self::Windows => "LSL_INTEROP_DLL_1_18_0",
            Self::LslDll => "LSL_INTEROP_DLL_LSL_FFI",
            Self::PylslOnDll => "LSL_INTEROP_WINDOWS_PYTHON",
        }
    }

    const ALL: [Self; 8] = [
        Self::V1_18_0,
        Self::V1_17_7,
        Self::Pylsl,
        Self::LslFfi,
        Self::PylslOnOurs,
        Self::Windows,
        Self::LslDll,
        Self::PylslOnDll,
    ];
}

/// Something of which cells must be ignored when it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Library(Library),
    /// Our `lsl`.
    Command,
    /// What the stage gives by this name.
    Variable(&'static str),
}

/// The protocol a peer is configured for (`tuning.UseProtocolVersion`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Protocol {
    V110,
    V100,
}

impl Protocol {
    pub(crate) const ALL: [Self; 2] = [Self::V110, Self::V100];

    pub(crate) fn number(self) -> u32 {
        match self {
            Self::V110 => 110,
            Self::V100 => 100,
        }
    }
}

/// The address families a peer uses (`ports.IPv6`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    V4,
    V6,
    Both,
}

impl Family {
    /// Those that leave no choice.
    pub(crate) const SINGLE: [Self; 2] = [Self::V4, Self::V6];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
            Self::Both => "v4+v6",
        }
    }

    /// The value of `ports.IPv6`.
    fn setting(self) -> &'static str {
        match self {
            Self::V4 => "disable",
            Self::V6 => "force",
            Self::Both => "allow",
        }
    }
}

/// How a side of a cell is set up, foreign or ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Setup {
    pub(crate) protocol: Protocol,
    pub(crate) family: Family,
    /// Sides of different sessions do not see each other.
    pub(crate) session: &'static str,
    /// Who it is and what it lets through, if it knows of encryption at all.
    pub(crate) keys: Option<Keys>,
}

impl Setup {
    /// In a session for each family, where both protocols meet.
    pub(crate) fn new(protocol: Protocol, family: Family) -> Self {
        Self {
            protocol,
            family,
            session: family.name(),
            keys: None,
        }
    }

    /// The same side with a security configuration.
    pub(crate) fn with(self, keys: Keys) -> Self {
        Self {
            keys: Some(keys),
            ..self
        }
    }

    /// The same side where only those of this session see it.
    pub(crate) fn within(self, session: &'static str) -> Self {
        Self { session, ..self }
    }

    /// The `lsl_api.cfg` for this setup.
    pub(crate) fn config(self) -> String {
        format!(
            "[ports]\nIPv6 = {}\n[lab]\nSessionID = interop-{}\n[tuning]\nUseProtocolVersion = {}\n",
            self.family.setting(),
            self.session,
            self.protocol.number(),
        )
    }
}

/// The stage that `cargo xtask interop` made, as found in the environment.
pub(crate) struct Lab {
    python: Option<PathBuf>,
    /// What starts a Python of Windows.
    windows_python: Option<PathBuf>,
    libraries: HashMap<Library, PathBuf>,
    command: Option<PathBuf>,
    /// Why nothing can run here at all.
    closed: Option<String>,
    gaps: String,
    peers: Mutex<HashMap<(Library, Setup), Slot>>,
    contexts: Mutex<HashMap<Setup, Arc<OnceLock<Outcome<Context>>>>>,
    keyring: Keyring,
    /// Tells the files of peers apart.
    spawned: AtomicU32,
    /// Shared peers on a real liblsl that ended though nobody ended them.
    deaths: AtomicU32,
}

/// Filled by the first cell that needs it while others wait for that one peer only.
type Slot = Arc<OnceLock<Outcome<Arc<Peer>>>>;

impl Lab {
    pub(crate) fn from_env() -> Self {
        let path = |name| env::var_os(name).map(PathBuf::from);
        let gaps = env::var("LSL_INTEROP_SKIP").unwrap_or_default();
        let closed = if env::var_os("LSL_INTEROP_STAGE").is_none() {
            Some("no peers and no private network here: run `cargo xtask interop`".to_owned())
        } else if gaps.contains("no private network") {
            Some(gaps.clone())
        } else {
            None
        };
        Self {
            python: path("LSL_INTEROP_PYTHON"),
            windows_python: path("LSL_INTEROP_WINDOWS_PYTHON"),
            libraries: Library::ALL
                .into_iter()
                .filter_map(|library| Some((library, path(library.variable())?)))
                .collect(),
            command: path("LSL_INTEROP_COMMAND"),
            closed,
            gaps,
            peers: Mutex::default(),
            contexts: Mutex::default(),
            keyring: Keyring::default(),
            spawned: AtomicU32::new(0),
            deaths: AtomicU32::new(0),
        }
    }

    /// Why a cell cannot run, if so.
    pub(crate) fn reason_against(&self, cell: &Cell) -> Option<String> {
        if let Some(closed) = &self.closed {
            return Some(closed.clone());
        }
        cell.needs.iter().find_map(|need| self.lacks(*need))
    }

    fn lacks(&self, need: Need) -> Option<String> {
        match need {
            Need::Library(library) => {
                let is_there = self.python.is_some() && self.libraries.contains_key(&library);
                (!is_there).then(|| format!("no {}: {}", library.name(), self.gaps))
            }
            Need::Command => self
                .command
                .is_none()
                .then(|| "no lsl command was built".to_owned()),
            Need::Variable(name) => env::var_os(name)
                .is_none()
                .then(|| format!("no {name}: {}", self.gaps)),
        }
    }

    /// The shared peer of this kind, started if need be.
    pub(crate) fn peer(&self, library: Library, setup: Setup) -> Outcome<Arc<Peer>> {
        let slot = Arc::clone(locked(&self.peers).entry((library, setup)).or_default());
        slot.get_or_init(|| self.spawn(library, setup)).clone()
    }

    /// How many shared peers on a real liblsl have died so far. Their successors start when they are asked for.
    pub(crate) fn deaths(&self) -> u32 {
        let is_dead = |library: &Library, slot: &Slot| {
            let peer = slot.get().and_then(|peer| peer.as_ref().ok());
            !library.is_ours() && peer.is_some_and(|peer| peer.is_dead())
        };
        let mut peers = locked(&self.peers);
        for ((library, _), _) in peers.extract_if(|(library, _), slot| is_dead(library, slot)) {
            println!("interop: {} died of itself", library.name());
            self.deaths.fetch_add(1, Ordering::Relaxed);
        }
        self.deaths.load(Ordering::Relaxed)
    }

    /// A peer of its own, for a cell that wants to kill it.
    pub(crate) fn spawn(&self, library: Library, setup: Setup) -> Outcome<Arc<Peer>> {
        let path = self.libraries.get(&library).ok_or("no library")?;
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/");
        let mut command = match library {
            Library::V1_18_0
            | Library::V1_17_7
            | Library::LslFfi
            | Library::Windows
            | Library::LslDll => {
                let python = if library.is_for_windows() {
                    &self.windows_python
                } else {
                    &self.python
                };
                let python = python.as_ref().ok_or("no Python")?;
                let mut command = Command::new(python);
                command.arg(format!("{folder}peer.py")).arg(path);
                command
            }
            Library::Pylsl | Library::PylslOnOurs | Library::PylslOnDll => {
                let mut command = Command::new(path);
                command.arg(format!("{folder}pylsl_peer.py"));
                let ours = match library {
                    Library::PylslOnOurs => Some(Library::LslFfi),
                    Library::PylslOnDll => Some(Library::LslDll),
                    _ => None,
                };
                if let Some(ours) = ours {
                    let ours = self.libraries.get(&ours).ok_or("no library")?;
                    command.env("PYLSL_LIB", ours);
                }
                command
            }
        };
        let config = self.config_file(library.name(), setup)?;
        command.env("LSLAPICFG", &config);
        self.secure(&mut command, setup.keys, library.is_for_windows())?;
        Peer::spawn(command, config.with_extension("log"))
    }

    /// Our `lsl` with a configuration, without any arguments yet.
    pub(crate) fn command(&self, setup: Setup) -> Outcome<Command> {
        let mut command = Command::new(self.command.as_ref().ok_or("no lsl command")?);
        command.arg("--config").arg(self.config_file("lsl", setup)?);
        self.secure(&mut command, setup.keys, false)?;
        Ok(command)
    }

    /// Give a program these keys, or none, whatever this machine's user has.
    fn secure(&self, command: &mut Command, keys: Option<Keys>, is_for_windows: bool) -> Outcome {
        match keys {
            Some(keys) => {
                let mut file = self.keyring.file(keys)?;
                if is_for_windows {
                    file = on_drive(&file);
                }
                command.env(SECURE_CONFIG, file)
            }
            None => command.env_remove(SECURE_CONFIG),
        };
        command.env("HOME", Path::new(env!("CARGO_TARGET_TMPDIR")));
        Ok(())
    }

    /// The devices and their keys.
    pub(crate) fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// Begin to record what goes over the wire.
    pub(crate) fn capture(&self) -> Outcome<Capture> {
        let mut command = Command::new(self.python.as_ref().ok_or("no Python")?);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/python/capture.py"));
        let number = self.spawned.fetch_add(1, Ordering::Relaxed);
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("capture-{number}.pcap"));
        Capture::start(command, file)
    }

    /// A script of `python/` with the Python of this variable, on a library of ours, in a session of its own.
    /// With keys, the program is one device that sends to itself.
    pub(crate) fn program(
        &self,
        library: Library,
        python: &str,
        script: &str,
        check: &str,
        keys: Option<Keys>,
    ) -> Outcome<Command> {
        let is_for_windows = library.is_for_windows();
        let library = self.libraries.get(&library).ok_or("no library")?;
        let python = env::var_os(python).ok_or("no Python")?;
        let how = keys.map_or("plain", |_| "secure");
        let config = Self::log_file(script, check, keys).with_extension("cfg");
        let text = format!("[lab]\nSessionID = {script}-{check}-{how}\n");
        fs::write(&config, text).map_err(|error| format!("{}: {error}", config.display()))?;
        let mut command = Command::new(python);
        command
            .arg(format!("{}/python/{script}", env!("CARGO_MANIFEST_DIR")))
            .arg(check)
            .env("LSLAPICFG", config)
            .env("PYLSL_LIB", library)
            .env("MNE_LSL_LIB", library)
            // Or the script might have found another library and proved nothing.
            .env("LSL_EXPECT_LIBRARY", "lsl-rs");
        self.secure(&mut command, keys, is_for_windows)?;
        if let Some(keys) = keys {
            command.env("LSL_EXPECT_POLICY", keys.policy.name());
        }
        Ok(command)
    }

    /// The same on a real liblsl, which knows no keys.
    pub(crate) fn foreign_program(
        &self,
        library: Library,
        python: &str,
        script: &str,
        check: &str,
    ) -> Outcome<Command> {
        let path = self.libraries.get(&library).ok_or("no library")?;
        let mut command = self.program(Library::LslFfi, python, script, check, None)?;
        let config = Self::log_file(script, check, None);
        let config = config.with_extension(format!("{library:?}.cfg"));
        let text = format!("[lab]\nSessionID = {script}-{check}-{library:?}\n");
        fs::write(&config, text).map_err(|error| format!("{}: {error}", config.display()))?;
        command
            .env("LSLAPICFG", config)
            .env("PYLSL_LIB", path)
            .env("LSL_EXPECT_LIBRARY", "git:");
        Ok(command)
    }

    /// Where a program's words go.
    pub(crate) fn log_file(script: &str, check: &str, keys: Option<Keys>) -> PathBuf {
        let how = keys.map_or("plain", |_| "secure");
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{script}-{check}-{how}.log"))
    }

    /// The configuration of a setup for one process of its own.
    fn config_file(&self, who: &str, setup: Setup) -> Outcome<PathBuf> {
        let name = format!(
            "{}-{}-{}-{}.cfg",
            who.replace(' ', "-"),
            setup.protocol.number(),
            setup.family.name(),
            self.spawned.fetch_add(1, Ordering::Relaxed),
        );
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, setup.config()).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    /// Our shared context for a setup, made if need be.
    pub(crate) fn context(&self, setup: Setup) -> Outcome<Context> {
        let slot = Arc::clone(locked(&self.contexts).entry(setup).or_default());
        slot.get_or_init(|| crate::ours::context(self, setup))
            .clone()
    }

    /// Stop the shared peers; a process that exits would not drop them.
    pub(crate) fn close(&self) {
        for (_, slot) in locked(&self.peers).drain() {
            if let Some(Ok(peer)) = slot.get() {
                peer.kill();
            }
        }
    }
}

/// A file as Windows names it under Wine: without a drive no path is absolute there.
fn on_drive(file: &Path) -> PathBuf {
    format!("Z:{}", file.display()).replace('/', "\\").into()
}

/// Names the security configuration of a process.
pub(crate) const SECURE_CONFIG: &str = "LSL_SECURE_CONFIG";
