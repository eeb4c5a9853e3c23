//! From observations to findings: a list of rules, read from the top. Spec: doctor §3.2
//!
//! A rule whose cause is seen is a finding if it explains a symptom that none before it explains; then it explains
//! all it can. So one cause is one finding, and a cause without a symptom is a note. What is unknown is no evidence:
//! no rule holds because something was not looked at.

mod configuration;
pub(crate) mod filters;
mod network;
pub mod pair;
mod peers;
mod relays;
mod streams;

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::observe::{Observations, StreamAsked, StreamSeen};
use crate::remedy::Remedy;

pub use streams::Trouble;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Something does not work.
    Fault,
    /// It works, and may fail.
    Risk,
}

/// A cause, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable name, such as `fw.in`.
    pub id: String,
    /// How bad it is.
    pub level: Level,
    /// Whether nothing else fits.
    pub certain: bool,
    /// The interface, file, host or stream that it is about.
    pub subject: String,
    /// The finding in a sentence.
    pub text: String,
    /// How many streams it concerns.
    pub streams: usize,
    /// The observations behind it.
    pub seen: Vec<String>,
    /// What to do about it; any one of them, best first.
    pub remedies: Vec<Remedy>,
}

/// What does not work, whatever the cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Symptom {
    /// No stream of another machine is found.
    Nothing,
    /// The stream that was named is not found.
    Missing(String),
    /// Nothing of a host that was named answers.
    Dark(String),
    /// Not all of a machine can be reached that answers.
    Partial(String),
    /// What was named could not be asked: nothing is known of it.
    Unasked(String),
    /// Streams of this session answered, and are not found as programs look for them.
    Half(usize),
    /// Streams of this machine cannot be found by others.
    Hidden,
    /// So many streams are found, and have this trouble.
    Poor(Trouble, usize),
}

impl fmt::Display for Symptom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no stream of another machine answers"),
            Self::Missing(text) => write!(f, "{text} is not found"),
            Self::Dark(host) => write!(f, "no stream of {host} answers"),
            Self::Partial(host) => write!(f, "not all ways to {host} work"),
            Self::Unasked(what) => write!(f, "{what} could not be asked"),
            Self::Half(1) => f.write_str("1 stream answers, but not as programs look for it"),
            Self::Half(count) => write!(
                f,
                "{count} streams answer, but not as programs look for them"
            ),
            Self::Hidden => f.write_str("streams of this machine cannot be found by others"),
            Self::Poor(trouble, 1) => write!(f, "1 stream {trouble}"),
            Self::Poor(trouble, count) => write!(f, "{count} streams, each of which {trouble}"),
        }
    }
}

/// All that follows from observations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diagnosis {
    /// Worst first, then by the streams concerned.
    pub findings: Vec<Finding>,
    /// Causes that explain nothing.
    pub notes: Vec<Finding>,
    /// What no finding explains.
    pub unexplained: Vec<Symptom>,
}

/// One line of the table.
struct Rule {
    id: &'static str,
    level: Level,
    /// Returns what is seen of the cause.
    cause: fn(&Observations) -> Option<Cause>,
    explains: Explains,
}

/// Symptoms that a cause explains.
#[derive(Clone, Copy)]
enum Explains {
    /// Nothing is found.
    NotFound,
    /// Nothing is found, or not all of a machine is reached, or of its streams.
    NotReached,
    /// The one that was named is not found.
    Missing,
    /// Others find nothing here.
    Hidden,
    /// Both of these, and that a stream does not open or its clock does not answer.
    Both,
    /// These troubles of streams that are found.
    Poor(&'static [Trouble]),
    /// It is a symptom itself.
    Itself,
    /// It is, and whatever else there is follows from it.
    All,
    /// It is a symptom itself, and what is not reached, or comes badly, may be so for it.
    ItselfAndNotReached,
    /// It is a symptom itself, and what is not found may be so for it.
    ItselfAndNotFound,
}

impl Explains {
    fn symptom(self, symptom: &Symptom) -> bool {
        let is_hidden = *symptom == Symptom::Hidden;
        match self {
            // No cause tells what is there.
            _ if matches!(symptom, Symptom::Unasked(_)) => false,
            Self::Poor(troubles) => {
                matches!(symptom, Symptom::Poor(trouble, _) if troubles.contains(trouble))
            }
            Self::All => true,
            Self::Both => !matches!(symptom, Symptom::Poor(trouble, _)
                if !matches!(trouble, Trouble::Unreachable | Trouble::Clockless)),
            Self::NotReached => match symptom {
                Symptom::Poor(trouble, _) => matches!(
                    trouble,
                    Trouble::Unreachable | Trouble::Stalled | Trouble::Clockless
                ),
                _ => !is_hidden,
            },
            Self::ItselfAndNotReached => {
                !is_hidden && !matches!(symptom, Symptom::Poor(Trouble::Closed, _))
            }
            Self::ItselfAndNotFound => matches!(
                symptom,
                Symptom::Nothing | Symptom::Missing(_) | Symptom::Half(_)
            ),
            _ if matches!(symptom, Symptom::Poor(..)) => false,
            Self::NotFound => !is_hidden && !matches!(symptom, Symptom::Partial(_)),
            Self::Missing => matches!(symptom, Symptom::Missing(_)),
            Self::Hidden => is_hidden,
            Self::Itself => false,
        }
    }
}

/// A cause that was seen.
#[derive(Default)]
struct Cause {
    /// Whether another cause fits as well.
    is_guess: bool,
    /// Explains nothing: others find and are found in spite of it, or there is a better reason.
    is_harmless: bool,
    /// Our own programs work in spite of it, so that it is a risk at most.
    is_healed: bool,
    /// Concerns only these machines; nothing means all.
    hosts: Vec<String>,
    /// Concerns only what is found here, or only what others find; none means both.
    only: Option<Side>,
    subject: String,
    text: String,
    streams: usize,
    seen: Vec<String>,
    remedies: Vec<Remedy>,
}

/// Whom a filter of this machine troubles.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Finds,
    IsFound,
}

/// The table. The order decides: what comes first explains first.
const RULES: &[Rule] = &[
    rule(
        "cfg.secure",
        Level::Fault,
        configuration::secure,
        Explains::All,
    ),
    rule(
        "cfg.rejected",
        Level::Fault,
        configuration::rejected,
        Explains::NotFound,
    ),
    rule(
        "cfg.misnamed",
        Level::Fault,
        configuration::misnamed,
        Explains::NotFound,
    ),
    rule(
        "cfg.hidden",
        Level::Fault,
        configuration::hidden,
        Explains::NotFound,
    ),
    rule(
        "cfg.ports",
        Level::Fault,
        configuration::ports,
        Explains::NotFound,
    ),
    rule(
        "cfg.limits",
        Level::Fault,
        configuration::limits,
        Explains::NotFound,
    ),
    rule("net.none", Level::Fault, network::none, Explains::Both),
    rule("fw.out", Level::Fault, filters::output, Explains::Both),
    rule("fw.in", Level::Fault, filters::input, Explains::Both),
    rule(
        "fw.program",
        Level::Fault,
        filters::blocked_self,
        Explains::NotFound,
    ),
    rule(
        "fw.program",
        Level::Risk,
        filters::blocked_program,
        Explains::Itself,
    ),
    rule(
        "fw.program",
        Level::Fault,
        peers::program,
        Explains::NotReached,
    ),
    rule(
        "fw.reply",
        Level::Fault,
        filters::no_answers,
        Explains::NotFound,
    ),
    rule(
        "port.taken",
        Level::Fault,
        filters::port_taken,
        Explains::Hidden,
    ),
    rule(
        "port.beyond",
        Level::Fault,
        peers::port_beyond,
        Explains::NotReached,
    ),
    rule(
        "session.other",
        Level::Fault,
        network::other_session,
        Explains::NotFound,
    ),
    rule(
        "query.miss",
        Level::Fault,
        network::near_miss,
        Explains::Missing,
    ),
    rule("nat", Level::Fault, peers::behind_host, Explains::NotFound),
    rule("route.vpn", Level::Fault, peers::vpn, Explains::NotReached),
    rule(
        "net.subnet",
        Level::Fault,
        peers::subnet,
        Explains::NotReached,
    ),
    rule(
        "net.isolation",
        Level::Fault,
        peers::isolation,
        Explains::NotReached,
    ),
    rule("peer.off", Level::Fault, peers::off, Explains::NotReached),
    rule("peer.idle", Level::Fault, peers::idle, Explains::NotReached),
    rule("peer.fw", Level::Fault, peers::filter, Explains::NotReached),
    rule(
        "peer.fw-udp",
        Level::Fault,
        peers::filter_udp,
        Explains::NotReached,
    ),
    rule(
        "peer.fw-tcp",
        Level::Fault,
        peers::filter_tcp,
        Explains::NotReached,
    ),
    rule(
        "net.multicast",
        Level::Fault,
        network::no_multicast,
        Explains::NotFound,
    ),
    rule("path.mtu", Level::Fault, peers::mtu, Explains::NotReached),
    rule(
        "path.loss",
        Level::Risk,
        peers::loss,
        Explains::ItselfAndNotReached,
    ),
    rule(
        "path.slow",
        Level::Risk,
        peers::slow,
        Explains::ItselfAndNotReached,
    ),
    rule(
        "udp.overrun",
        Level::Fault,
        network::overrun,
        Explains::Itself,
    ),
    rule("trust.key", Level::Fault, streams::no_key, Explains::Itself),
    rule(
        "trust.here",
        Level::Fault,
        streams::refused_here,
        Explains::Itself,
    ),
    rule(
        "trust.there",
        Level::Fault,
        streams::refused_there,
        Explains::Itself,
    ),
    rule(
        "trust.session",
        Level::Fault,
        streams::no_session,
        Explains::Itself,
    ),
    rule(
        "trust.plaintext",
        Level::Fault,
        streams::plaintext,
        Explains::Itself,
    ),
    rule(
        "relay.off",
        Level::Fault,
        relays::off,
        Explains::ItselfAndNotFound,
    ),
    rule(
        "relay.foreign",
        Level::Fault,
        relays::foreign,
        Explains::ItselfAndNotFound,
    ),
    rule(
        "relay.trust",
        Level::Fault,
        relays::barred,
        Explains::ItselfAndNotFound,
    ),
    rule(
        "stream.silent",
        Level::Fault,
        streams::silent,
        Explains::Poor(&[Trouble::Silent]),
    ),
    rule(
        "stream.slow",
        Level::Risk,
        streams::slow,
        Explains::Poor(&[Trouble::Slow]),
    ),
    rule(
        "stream.gaps",
        Level::Risk,
        streams::gaps,
        Explains::Poor(&[Trouble::Gaps]),
    ),
    rule(
        "stream.old",
        Level::Risk,
        streams::old,
        Explains::Poor(&[Trouble::Old]),
    ),
    rule(
        "stream.cloned",
        Level::Risk,
        streams::cloned,
        Explains::Itself,
    ),
    rule(
        "stream.duplicate",
        Level::Risk,
        streams::duplicate,
        Explains::Itself,
    ),
    rule(
        "stream.fades",
        Level::Risk,
        streams::fades,
        Explains::Itself,
    ),
    rule("clock.alien", Level::Risk, streams::alien, Explains::Itself),
    rule(
        "clock.none",
        Level::Risk,
        streams::no_clock,
        Explains::Poor(&[Trouble::Clockless]),
    ),
    rule(
        "clock.coarse",
        Level::Risk,
        streams::coarse,
        Explains::Poor(&[Trouble::Coarse]),
    ),
    rule(
        "host.fds",
        Level::Risk,
        streams::descriptors,
        Explains::Itself,
    ),
    rule(
        "lib.old",
        Level::Risk,
        streams::old_library,
        Explains::Itself,
    ),
    rule(
        "host.clock",
        Level::Risk,
        network::host_clock,
        Explains::Itself,
    ),
];

const fn rule(
    id: &'static str,
    level: Level,
    cause: fn(&Observations) -> Option<Cause>,
    explains: Explains,
) -> Rule {
    Rule {
        id,
        level,
        cause,
        explains,
    }
}

/// Returns whether a rule of the table is called so.
pub(crate) fn is_rule(id: &str) -> bool {
    RULES.iter().any(|it| it.id == id)
}

/// Reads the table.
pub fn diagnose(seen: &Observations) -> Diagnosis {
    let mut unexplained = symptoms(seen);
    let mut diagnosis = Diagnosis::default();
    for rule in RULES {
        let Some(cause) = (rule.cause)(seen) else {
            continue;
        };
        let explains = |symptom: &Symptom| {
            let is_of_side = match cause.only {
                Some(Side::Finds) => *symptom != Symptom::Hidden,
                Some(Side::IsFound) => *symptom == Symptom::Hidden,
                None => true,
            };
            let is_of_host = match symptom {
                Symptom::Dark(host) | Symptom::Partial(host) => {
                    cause.hosts.is_empty() || cause.hosts.contains(host)
                }
                _ => true,
            };
            !cause.is_harmless && is_of_side && is_of_host && rule.explains.symptom(symptom)
        };
        let before = unexplained.len();
        unexplained.retain(|symptom| !explains(symptom));
        let is_symptom = matches!(
            rule.explains,
            Explains::Itself
                | Explains::ItselfAndNotReached
                | Explains::ItselfAndNotFound
                | Explains::All
        ) && !cause.is_harmless;
        let is_finding = unexplained.len() < before || is_symptom;
        let finding = Finding {
            id: rule.id.to_owned(),
            level: if cause.is_healed {
                Level::Risk
            } else {
                rule.level
            },
            certain: !cause.is_guess,
            subject: cause.subject,
            text: cause.text,
            streams: cause.streams,
            seen: cause.seen,
            remedies: cause.remedies,
        };
        if is_finding {
            diagnosis.findings.push(finding);
        } else {
            diagnosis.notes.push(finding);
        }
    }
    diagnosis
        .findings
        .sort_by_key(|it| (it.level, std::cmp::Reverse(it.streams)));
    diagnosis.unexplained = unexplained;
    diagnosis
}

/// Returns what does not work.
pub fn symptoms(seen: &Observations) -> Vec<Symptom> {
    let mut symptoms = Vec::new();
    if let Some(asked) = &seen.asked.stream {
        if !asked.found && seen.found.is_some() {
            symptoms.push(Symptom::Missing(asked.text.clone()));
        }
    } else if seen
        .found
        .as_ref()
        .is_some_and(|found| found.iter().all(|it| it.is_here))
    {
        symptoms.push(Symptom::Nothing);
    }
    symptoms.extend(dark(seen).map(Symptom::Dark));
    symptoms.extend(peers::partial(seen).map(Symptom::Partial));
    symptoms.extend(unasked(seen).map(Symptom::Unasked));
    symptoms.extend(streams::troubles(seen).map(|(trouble, count)| Symptom::Poor(trouble, count)));
    let half = unfound(seen).count();
    if half > 0 {
        symptoms.push(Symptom::Half(half));
    }
    let has_own = seen.own_streams.as_ref().is_some_and(|own| !own.is_empty());
    if has_own && (filters::multicast_port_is_silent(seen) || filters::is_taken(seen)) {
        symptoms.push(Symptom::Hidden);
    }
    symptoms
}

/// Returns hosts that were named and asked, and of which nothing answers.
fn dark(seen: &Observations) -> impl Iterator<Item = String> {
    let silent = silent(seen).filter(|(_, is_asked)| *is_asked);
    silent.map(|(host, _)| host.to_owned())
}

/// Returns what was named and could not be asked: hosts without an address, and all if nothing was sent.
fn unasked(seen: &Observations) -> impl Iterator<Item = String> {
    let hosts = silent(seen).filter(|(_, is_asked)| !is_asked);
    let is_own = |asked: &StreamAsked| {
        let mut own = seen.own_streams.iter().flatten();
        own.any(|it| network::is_exactly(it, asked))
    };
    let stream = seen.asked.stream.iter();
    let stream = stream.filter(move |it| !it.found && seen.found.is_none() && !is_own(it));
    let hosts = hosts.map(|(host, _)| host.to_owned());
    hosts.chain(stream.map(|it| it.text.clone()))
}

/// Returns hosts that were named and of which nothing answers, and whether they were asked.
fn silent(seen: &Observations) -> impl Iterator<Item = (&str, bool)> {
    let wave = seen.wave.as_ref();
    let found = seen.found.iter().flatten();
    let known: Vec<IpAddr> = wave
        .iter()
        .flat_map(|it| &it.streams)
        .chain(found)
        .filter_map(|it| it.address)
        .collect();
    let peers = seen.peers.iter().flatten();
    let peers: Vec<IpAddr> = peers
        .filter(|it| it.udp.is_some())
        .filter_map(|it| it.address)
        .collect();
    let is_asked = move |address: &IpAddr| {
        let mut ways = wave.iter().flat_map(|it| &it.ways);
        peers.contains(address) || ways.any(|way| way.to == *address && way.sent > 0)
    };
    let hosts = seen.asked.hosts.iter();
    let silent = hosts.filter(move |host| !host.addresses.iter().any(|it| known.contains(it)));
    silent.map(move |host| (host.text.as_str(), host.addresses.iter().any(&is_asked)))
}

/// Returns streams of other machines in this session that answered a question and that programs do not find.
fn unfound(seen: &Observations) -> impl Iterator<Item = &StreamSeen> {
    let found = seen.found.as_deref();
    let is_found = move |stream: &StreamSeen| {
        found.is_none_or(|found| found.iter().any(|other| other.uid == stream.uid))
    };
    let answered = seen.wave.iter().flat_map(|wave| &wave.streams);
    answered.filter(move |it| !it.is_here && it.session == seen.asked.session && !is_found(it))
}

#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod tests;
