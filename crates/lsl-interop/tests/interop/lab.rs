//! What this machine offers: which liblsl binaries, whether a private network, and the foreign peers
//! that run so far. Peers are shared: a cell asks for one by library, protocol and family, and the
//! first to ask starts it.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::cell::Outcome;
use crate::peer::{Peer, locked};

/// A release of liblsl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Library {
    V1_18_0,
    V1_17_7,
}

impl Library {
    pub(crate) const ALL: [Self; 2] = [Self::V1_18_0, Self::V1_17_7];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1_18_0 => "1.18.0",
            Self::V1_17_7 => "1.17.7",
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Self::V1_18_0 => "LSL_INTEROP_LIB_1_18_0",
            Self::V1_17_7 => "LSL_INTEROP_LIB_1_17_7",
        }
    }
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

/// The only address family a peer uses (`ports.IPv6`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }

    /// The value of `ports.IPv6` that leaves only this family.
    fn setting(self) -> &'static str {
        match self {
            Self::V4 => "disable",
            Self::V6 => "force",
        }
    }
}

/// How a side of a cell is set up, foreign or ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Setup {
    pub(crate) protocol: Protocol,
    pub(crate) family: Family,
}

impl Setup {
    /// The `lsl_api.cfg` for this setup. One session per family, since both protocols must meet; the
    /// short resolve interval keeps cells that start a moment too early from waiting long.
    pub(crate) fn config(self) -> String {
        format!(
            "[ports]\nIPv6 = {}\n[lab]\nSessionID = interop-{}\n[tuning]\nUseProtocolVersion = {}\n\
             MulticastMinRTT = 0.2\n",
            self.family.setting(),
            self.family.name(),
            self.protocol.number(),
        )
    }
}

/// The stage that `cargo xtask interop` made, as found in the environment.
pub(crate) struct Lab {
    python: Option<PathBuf>,
    libraries: HashMap<Library, PathBuf>,
    /// Why nothing can run here at all.
    closed: Option<String>,
    gaps: String,
    peers: Mutex<HashMap<(Library, Setup), Slot>>,
    /// Tells the files of peers apart.
    spawned: AtomicU32,
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
            libraries: Library::ALL
                .into_iter()
                .filter_map(|library| Some((library, path(library.variable())?)))
                .collect(),
            closed,
            gaps,
            peers: Mutex::default(),
            spawned: AtomicU32::new(0),
        }
    }

    /// Why cells that need this library cannot run, if so.
    pub(crate) fn lacks(&self, library: Library) -> Option<String> {
        if let Some(closed) = &self.closed {
            return Some(closed.clone());
        }
        let is_there = self.python.is_some() && self.libraries.contains_key(&library);
        (!is_there).then(|| format!("no liblsl {}: {}", library.name(), self.gaps))
    }

    /// The shared peer of this kind, started if need be.
    pub(crate) fn peer(&self, library: Library, setup: Setup) -> Outcome<Arc<Peer>> {
        let slot = Arc::clone(locked(&self.peers).entry((library, setup)).or_default());
        slot.get_or_init(|| self.spawn(library, setup)).clone()
    }

    /// A peer of its own, for a cell that wants to kill it.
    pub(crate) fn spawn(&self, library: Library, setup: Setup) -> Outcome<Arc<Peer>> {
        let python = self.python.as_ref().ok_or("no Python")?;
        let path = self.libraries.get(&library).ok_or("no library")?;
        let number = self.spawned.fetch_add(1, Ordering::Relaxed);
        let protocol = setup.protocol.number();
        let stem = format!(
            "{}-{protocol}-{}-{number}",
            library.name(),
            setup.family.name()
        );
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let config = folder.join(format!("{stem}.cfg"));
        fs::write(&config, setup.config())
            .map_err(|error| format!("{}: {error}", config.display()))?;
        Peer::spawn(python, path, &config, folder.join(format!("{stem}.log")))
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
