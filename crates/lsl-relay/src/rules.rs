//! Who may read which stream, and what is kept of it. Spec: relay §10.

mod bounds;

use std::collections::HashSet;
use std::sync::LazyLock;

use lsl_proto::StreamInfo;
use lsl_proto::query::{CHEAP_WORK, ParseError, Query};
use lsl_secure::Fingerprint;

use crate::document;

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
    /// A server of River, to which it may have come from anywhere.
    River,
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

/// Predicate of a rule.
#[derive(Debug, Clone)]
pub struct Predicate {
    query: Query,
    /// Whether `desc` may change what it says: not if it only compares fields by their names.
    reads_desc: bool,
}

impl Predicate {
    /// Parses a predicate.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let dense: String = text.chars().filter(|it| !it.is_whitespace()).collect();
        let beyond_fields = ["desc", "/", "*", ".", "::", "node(", "text(", "()"];
        Ok(Self {
            query: Query::parse(text)?,
            reads_desc: beyond_fields.iter().any(|part| dense.contains(part)),
        })
    }

    /// Whether it selects a stream; `None` if that is too expensive to say, or stood in a description that was left
    /// out on the way.
    fn is_true_of(&self, info: &StreamInfo) -> Option<bool> {
        if self.reads_desc && document::is_cut(info) {
            return None;
        }
        info.matches(&self.query).ok()
    }
}

/// One rule. The default is what holds where no rule matches.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Predicate on the full document; `None` matches every stream.
    pub predicate: Option<Predicate>,
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
    predicate: None,
    from: From::Anywhere,
    readers: Readers::Everybody,
    history: true,
    engine: false,
    reoffer: true,
};

/// What holds where nobody can tell whether a rule matches.
static NOBODY: LazyLock<Rule> = LazyLock::new(|| Rule {
    readers: Readers::Only {
        keys: HashSet::new(),
        local: false,
    },
    history: false,
    reoffer: false,
    ..DEFAULT.clone()
});

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

    /// Whether a stream that this rule decides about is offered on faces: not if nobody may read it.
    pub fn offers(&self) -> bool {
        let is_read = match &self.readers {
            Readers::Everybody => true,
            Readers::Only { keys, local } => *local || !keys.is_empty(),
        };
        self.reoffer && is_read
    }

    /// Whether it decides about a stream; `None` if that cannot be told.
    fn is_for(&self, info: &StreamInfo, source: Source) -> Option<bool> {
        let is_from_there = match (self.from, source) {
            (From::Anywhere, _) | (From::Local, Source::Local) | (From::Links, Source::Link(_)) => {
                Some(true)
            }
            (From::Relay(key), Source::Link(Some(relay))) => Some(key == relay),
            (_, Source::River) => None,
            _ => Some(false),
        };
        if is_from_there == Some(false) {
            return Some(false);
        }
        let predicate = self.predicate.as_ref();
        let is_meant = predicate.map_or(Some(true), |it| it.is_true_of(info))?;
        if is_meant { is_from_there } else { Some(false) }
    }
}

/// Rules in their order: the first that matches decides.
#[derive(Debug, Clone, Default)]
pub struct Rules(pub Vec<Rule>);

impl Rules {
    /// Returns the rule for a stream. Where it cannot be told whether one matches, nobody may read: a description
    /// that is hard to look through must not lead past the rule that is meant for it.
    pub fn decide(&self, info: &StreamInfo, source: Source) -> &Rule {
        let decided = self
            .0
            .iter()
            .find_map(|rule| match rule.is_for(info, source) {
                Some(true) => Some(rule),
                Some(false) => None,
                None => Some(&*NOBODY),
            });
        decided.unwrap_or(&DEFAULT)
    }

    /// Whether `reader` may read a stream wherever it came from: one that only history has, which does not say.
    pub fn may_read_past(&self, info: &StreamInfo, reader: Reader) -> bool {
        for rule in &self.0 {
            let is_meant = rule
                .predicate
                .as_ref()
                .map_or(Some(true), |it| it.is_true_of(info));
            match is_meant {
                None => return false,
                Some(true) if !rule.may_read(reader) => return false,
                Some(true) if rule.from == From::Anywhere => return true,
                Some(_) => {}
            }
        }
        DEFAULT.may_read(reader)
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

#[cfg(test)]
mod tests {
    use lsl_proto::ChannelFormat;

    use super::*;

    #[test]
    fn a_description_that_is_hard_to_look_through_leads_past_no_rule() {
        let predicate = Predicate::parse("count(//x[count(//x) > 100000]) > 0");
        let rules = Rules(vec![
            Rule {
                predicate: Some(predicate.expect("a predicate")),
                ..Rule::default()
            },
            Rule::default(),
        ]);
        let may_read = |parts: usize| {
            let info = StreamInfo::new("a", "EEG", 1, 1.0, ChannelFormat::Int8, "a");
            let mut info = info.expect("an info");
            info.reset_uid("u");
            let text = String::from_utf8(info.to_xml()).expect("text");
            let desc = format!("<desc>{}</desc>", "<x />".repeat(parts));
            let text = text.replace("<desc />", &desc);
            let info = StreamInfo::from_xml(text.as_bytes()).expect("an info");
            rules.decide(&info, Source::Local).may_read(Reader::Local)
        };
        assert!(may_read(10), "by the second rule");
        assert!(!may_read(10_000));
    }

    #[test]
    fn a_description_that_was_left_out_leads_past_no_rule_that_reads_it() {
        let info = |desc: &str| {
            let info = StreamInfo::new("a", "EEG", 1, 1.0, ChannelFormat::Int8, "a");
            let mut info = info.expect("an info");
            info.reset_uid("u");
            let text = String::from_utf8(info.to_xml()).expect("text");
            let text = text.replace("<desc />", desc);
            StreamInfo::from_xml(text.as_bytes()).expect("an info")
        };
        let may_read = |predicate: &str, desc: &str| {
            let rule = Rule {
                predicate: Some(Predicate::parse(predicate).expect(predicate)),
                readers: Readers::Only {
                    keys: HashSet::new(),
                    local: false,
                },
                ..Rule::default()
            };
            let rules = Rules(vec![rule]);
            (rules.decide(&info(desc), Source::Local)).may_read(Reader::Local)
        };
        let (whole, cut) = ("<desc><x>y</x></desc>", "<desc omitted=\"1\" />");
        for reads in [
            "desc/x='z'",
            "//x='z'",
            "*/x='z'",
            "contains(string(),'z')",
            "descendant::x='z'",
        ] {
            assert!(may_read(reads, whole), "{reads}");
            assert!(!may_read(reads, cut), "{reads}");
        }
        let fields = "type='MEG' and starts-with(name,'b')";
        assert!(may_read(fields, whole) && may_read(fields, cut));
    }
    #[test]
    fn a_way_by_river_leads_past_no_rule_for_another_place() {
        let rule = |from, predicate| Rule {
            predicate: Predicate::parse(predicate).ok(),
            from,
            ..Rule::default()
        };
        let info = StreamInfo::new("a", "EEG", 1, 1.0, ChannelFormat::Int8, "a").expect("an info");
        let may_read = |rules: Vec<Rule>| {
            let rules = Rules(rules);
            (rules.decide(&info, Source::River)).may_read(Reader::Local)
        };
        assert!(!may_read(vec![rule(From::Links, "type='EEG'")]));
        assert!(may_read(vec![rule(From::Links, "type='MEG'")]));
        let anywhere = rule(From::Anywhere, "type='EEG'");
        assert!(may_read(vec![anywhere, rule(From::Local, "type='EEG'")]));
    }
}
