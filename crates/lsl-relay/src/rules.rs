//! Who may read which stream, and what is kept of it. Spec: relay §10.

mod bounds;

use std::collections::HashSet;

use lsl_proto::StreamInfo;
use lsl_proto::query::{CHEAP_WORK, Query};
use lsl_secure::Fingerprint;

pub use bounds::Bounds;

/// Somebody who asks to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reader {
    /// A program of this machine, without a session.
    Local,
    /// A program elsewhere, without a session.
    Stranger,
    /// A trusted peer: a client, or a relay for all behind it.
    Key(Fingerprint),
}

/// Place that a stream comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A face of this relay.
    Local,
    /// A link, with the key of its relay; `None` for a link of this machine without a session.
    Link(Option<Fingerprint>),
}

/// Places that a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// Every place.
    Anywhere,
    /// Faces of this relay.
    Local,
    /// All links.
    Links,
    /// Links to the relay with this key.
    Relay(Fingerprint),
}

/// Readers that a rule names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readers {
    /// Every trusted peer, and programs of this machine.
    Everybody,
    /// Those listed.
    Only {
        /// Their keys.
        keys: HashSet<Fingerprint>,
        /// Whether programs of this machine may read without a session.
        local: bool,
    },
}

/// One rule. The default is what holds where no rule matches.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Predicate on the full document; `None` matches every stream.
    pub query: Option<Query>,
    /// Places it is for.
    pub from: From,
    /// Those who may read.
    pub readers: Readers,
    /// Whether the past is kept.
    pub history: bool,
    /// Whether it goes to the engine.
    pub engine: bool,
    /// Whether it is offered on faces.
    pub reoffer: bool,
}

/// What holds where no rule matches.
static DEFAULT: Rule = Rule {
    query: None,
    from: From::Anywhere,
    readers: Readers::Everybody,
    history: true,
    engine: false,
    reoffer: true,
};

impl Default for Rule {
    fn default() -> Self {
        DEFAULT.clone()
    }
}

impl Rule {
    /// Whether `reader` may read a stream that this rule decides about.
    pub fn may_read(&self, reader: Reader) -> bool {
        match (&self.readers, reader) {
            (Readers::Everybody, _) => true,
            (Readers::Only { local, .. }, Reader::Local) => *local,
            (Readers::Only { .. }, Reader::Stranger) => false,
            (Readers::Only { keys, .. }, Reader::Key(key)) => keys.contains(&key),
        }
    }

    fn is_for(&self, info: &StreamInfo, source: Source) -> bool {
        let is_from_there = match (self.from, source) {
            (From::Anywhere, _) | (From::Local, Source::Local) | (From::Links, Source::Link(_)) => {
                true
            }
            (From::Relay(key), Source::Link(Some(relay))) => key == relay,
            _ => false,
        };
        is_from_there && selects(self.query.as_ref(), info)
    }
}

/// Rules in their order: the first that matches decides.
#[derive(Debug, Clone, Default)]
pub struct Rules(pub Vec<Rule>);

impl Rules {
    /// Returns the rule for a stream.
    pub fn decide(&self, info: &StreamInfo, source: Source) -> &Rule {
        let rule = self.0.iter().find(|rule| rule.is_for(info, source));
        rule.unwrap_or(&DEFAULT)
    }
}

/// Whether the predicate of a peer selects a stream. It may cost a few looks at each part of the document, more than
/// those of real programs need; one that costs more does not.
pub fn selects_for_peer(query: Option<&Query>, info: &StreamInfo) -> bool {
    let document = info.document();
    query.is_none_or(|query| {
        let root = document.child(document.root(), "info");
        let mut work = CHEAP_WORK + WORK_PER_NODE * document.len() as u64;
        let matched = root.map(|root| query.matches_within(document, root, &mut work));
        matches!(matched, Some(Ok(true)))
    })
}

/// Whether a predicate selects a stream; one that is too expensive does not, and none selects all.
pub fn selects(query: Option<&Query>, info: &StreamInfo) -> bool {
    query.is_none_or(|query| info.matches(query).unwrap_or(false))
}

/// Price of two looks at a part of a document.
const WORK_PER_NODE: u64 = 16;
