//! Who plays the ends of a cell. Everything that depends on who it is stands here.

use std::time::Duration;

use crate::cell::{Announcement, Cell, InletEnd, Outcome, OutletEnd, Place, Run, Topic};
use crate::keys::{Keys, Policy};
use crate::lab::{Family, Lab, Library, Need, Protocol, Setup};
use crate::ours::{self, OurInlet, OurOutlet};

/// Who plays an end of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// A foreign implementation in a peer process.
    Foreign(Library),
    /// `lsl-core` in this process.
    Ours,
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Foreign(library) => library.name(),
            Self::Ours => "lsl-core",
        }
    }

    /// Whether it runs our code, which can tell of encryption.
    pub(crate) fn is_ours(self) -> bool {
        match self {
            Self::Foreign(library) => library.is_ours(),
            Self::Ours => true,
        }
    }

    pub(crate) fn needs(self) -> Option<Need> {
        match self {
            Self::Foreign(library) => Some(Need::Library(library)),
            Self::Ours => None,
        }
    }

    pub(crate) fn outlet(
        self,
        lab: &Lab,
        setup: Setup,
        stream: &Announcement,
    ) -> Outcome<Box<dyn OutletEnd>> {
        match self {
            Self::Foreign(library) => Ok(Box::new(lab.peer(library, setup)?.outlet(stream)?)),
            Self::Ours => Ok(Box::new(OurOutlet::open(&lab.context(setup)?, stream)?)),
        }
    }

    /// An outlet in a process of its own, which can be crashed without taking other cells along.
    /// Ours stays in this process: there, a closed outlet is the nearest thing.
    pub(crate) fn mortal_outlet(
        self,
        lab: &Lab,
        setup: Setup,
        stream: &Announcement,
    ) -> Outcome<Box<dyn OutletEnd>> {
        match self {
            Self::Foreign(library) => Ok(Box::new(lab.spawn(library, setup)?.outlet(stream)?)),
            Self::Ours => self.outlet(lab, setup, stream),
        }
    }

    /// An open inlet on the only stream with this source id.
    pub(crate) fn inlet(
        self,
        lab: &Lab,
        setup: Setup,
        source_id: &str,
    ) -> Outcome<Box<dyn InletEnd>> {
        self.inlet_where(lab, setup, &format!("source_id='{source_id}'"))
    }

    /// An open inlet on the only stream for which the predicate holds.
    pub(crate) fn inlet_where(
        self,
        lab: &Lab,
        setup: Setup,
        predicate: &str,
    ) -> Outcome<Box<dyn InletEnd>> {
        match self {
            Self::Foreign(library) => Ok(Box::new(lab.peer(library, setup)?.inlet(predicate)?)),
            Self::Ours => Ok(Box::new(OurInlet::open(&lab.context(setup)?, predicate)?)),
        }
    }

    /// The source ids of the streams for which the predicate holds, as soon as there are `minimum`.
    pub(crate) fn find(
        self,
        lab: &Lab,
        setup: Setup,
        predicate: &str,
        minimum: usize,
        timeout: Duration,
    ) -> Outcome<Vec<String>> {
        match self {
            Self::Foreign(library) => lab.peer(library, setup)?.find(predicate, minimum, timeout),
            Self::Ours => ours::find(&lab.context(setup)?, predicate, minimum, timeout),
        }
    }

    /// How long it may take to find a crowd. Ours has promised a second; liblsl promises nothing, and
    /// on a loaded machine it has needed more.
    pub(crate) fn resolve_limit(self) -> Duration {
        match self {
            Self::Foreign(_) => Duration::from_secs(5),
            Self::Ours => Duration::from_secs(1),
        }
    }

    /// How soon its inlets must read an outlet that came back.
    pub(crate) fn recovery_limit_secs(self) -> f64 {
        match self {
            ours if ours.is_ours() => 2.0,
            _ => 4.0,
        }
    }
}

/// From one side to the other. Each side has its own setup: 1.10 and 1.00 must meet, too.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) from: (Side, Setup),
    pub(crate) to: (Side, Setup),
}

impl Route {
    /// Both sides speak 1.10.
    pub(crate) fn new(from: Side, to: Side, family: Family) -> Self {
        Self::speaking(from, Protocol::V110, to, Protocol::V110, family)
    }

    pub(crate) fn speaking(
        from: Side,
        from_protocol: Protocol,
        to: Side,
        to_protocol: Protocol,
        family: Family,
    ) -> Self {
        Self {
            from: (from, Setup::new(from_protocol, family)),
            to: (to, Setup::new(to_protocol, family)),
        }
    }

    /// The protocol that the two ends agree on.
    pub(crate) fn spoken(self) -> Protocol {
        let setups = [self.from.1, self.to.1];
        let is_old = setups.iter().any(|setup| setup.protocol == Protocol::V100);
        if is_old {
            Protocol::V100
        } else {
            Protocol::V110
        }
    }

    /// A cell on this route. `what` tells it from the others of its topic.
    pub(crate) fn cell(self, topic: Topic, what: &str, run: Run) -> Cell {
        let ((from, from_setup), (to, to_setup)) = (self.from, self.to);
        let families = if from_setup.family == to_setup.family {
            from_setup.family.name().to_owned()
        } else {
            format!("{} to {}", from_setup.family.name(), to_setup.family.name())
        };
        let how = |setup: Setup| match setup.keys {
            Some(keys) => keys.name(),
            None => setup.protocol.number().to_string(),
        };
        let is_secure = from_setup.keys.is_some() || to_setup.keys.is_some();
        let row = format!(
            "{}{} {} to {} {}/{families}",
            if is_secure { "secure: " } else { "" },
            from.name(),
            how(from_setup),
            to.name(),
            how(to_setup),
        );
        let separator = if what.is_empty() { "" } else { "/" };
        Cell {
            name: format!("{row}/{}{separator}{what}", topic.name()),
            place: Place { row, topic },
            needs: from.needs().into_iter().chain(to.needs()).collect(),
            run,
        }
    }

    /// The same two with other security configurations, where only their like sees them.
    pub(crate) fn with(self, from: Option<Keys>, to: Option<Keys>) -> Self {
        let with =
            |(side, setup): (Side, Setup), keys| (side, Setup { keys, ..setup }.within("secure"));
        Self {
            from: with(self.from, from),
            to: with(self.to, to),
        }
    }

    /// Whether the inlet speaks with whom it should, encrypted or not.
    pub(crate) fn check_encryption(self, lab: &Lab, inlet: &mut dyn InletEnd) -> Outcome {
        if !self.to.0.is_ours() {
            return Ok(());
        }
        let encrypts = |keys: &Keys| keys.policy != Policy::Off;
        let from = self.from.1.keys.filter(encrypts);
        let expected = from.filter(|_| self.to.1.keys.is_some_and(|keys| encrypts(&keys)));
        let found = inlet.encryption()?;
        let is_right = match (&expected, &found) {
            (None, None) => true,
            (Some(keys), Some(found)) => {
                found.fingerprint == lab.keyring().fingerprint(keys.device)?
                    && found.peer_name == keys.device.name()
                    && CIPHERS.contains(&found.cipher.as_str())
            }
            _ => false,
        };
        if is_right {
            Ok(())
        } else {
            Err(format!(
                "{found:?} with {:?}",
                expected.map(|keys| keys.device)
            ))
        }
    }

    pub(crate) fn outlet(self, lab: &Lab, stream: &Announcement) -> Outcome<Box<dyn OutletEnd>> {
        self.from.0.outlet(lab, self.from.1, stream)
    }

    pub(crate) fn inlet_where(self, lab: &Lab, predicate: &str) -> Outcome<Box<dyn InletEnd>> {
        self.to.0.inlet_where(lab, self.to.1, predicate)
    }

    pub(crate) fn inlet(self, lab: &Lab, source_id: &str) -> Outcome<Box<dyn InletEnd>> {
        self.to.0.inlet(lab, self.to.1, source_id)
    }
}

/// What an encrypted connection may use.
const CIPHERS: [&str; 2] = ["AES-256-GCM", "ChaCha20-Poly1305"];
