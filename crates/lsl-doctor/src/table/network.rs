//! Causes in the network, and in streams. Spec: doctor §3.2

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::configuration::count;
use super::{Cause, filters, streams};
use crate::observe::{Interface, Kind, Observations, SocketDrops, StreamSeen, WayKind};
use crate::remedy::{self, Remedy};

pub(super) fn none(seen: &Observations) -> Option<Cause> {
    let all = seen.interfaces.as_ref()?;
    let others = || all.iter().filter(|it| it.kind != Kind::Loopback);
    let is_usable =
        |it: &Interface| it.is_up && it.has_carrier != Some(false) && !it.addresses.is_empty();
    if others().any(is_usable) {
        return None;
    }
    let why = |it: &Interface| {
        let reason = match (it.is_up, it.has_carrier) {
            (false, _) => "is switched off",
            (_, Some(false)) => "has no cable or access point",
            _ => "has no address",
        };
        format!("{} {reason}", it.name)
    };
    let physical = others().filter(|it| it.kind == Kind::Other);
    let seen_of: Vec<String> = physical.map(why).take(3).collect();
    let advice = "plug in the cable, or join the network".to_owned();
    Some(Cause {
        subject: others()
            .next()
            .map(|it| it.name.clone())
            .unwrap_or_default(),
        // Its own streams need none.
        is_harmless: near_miss(seen).is_some(),
        text: "This machine has no network: only its own streams can be found.".into(),
        seen: if seen_of.is_empty() {
            vec!["no interface but loopback".into()]
        } else {
            seen_of
        },
        remedies: vec![Remedy::advice(seen, advice)],
        ..Cause::default()
    })
}

/// Streams of other machines that answered.
pub(super) fn answered(seen: &Observations) -> impl Iterator<Item = &StreamSeen> {
    seen.wave
        .iter()
        .flat_map(|wave| &wave.streams)
        .filter(|it| !it.is_here)
}

pub(super) fn other_session(seen: &Observations) -> Option<Cause> {
    let found = seen.found.as_ref()?;
    let asked = seen.asked.stream.as_ref();
    let is_other = |it: &&StreamSeen| {
        it.session != seen.asked.session && it.session != super::pair::TEST_SESSION
    };
    let is_meant = |it: &&StreamSeen| asked.is_none_or(|asked| is_exactly(it, asked));
    let all: Vec<&StreamSeen> = answered(seen).filter(is_other).filter(is_meant).collect();
    if asked.is_none() && found.iter().any(|it| !it.is_here) {
        return None;
    }
    let mut sessions: BTreeMap<&str, usize> = BTreeMap::new();
    for stream in &all {
        *sessions.entry(&stream.session).or_default() += 1;
    }
    let (session, streams) = sessions.into_iter().max_by_key(|(_, streams)| *streams)?;
    Some(Cause {
        subject: session.to_owned(),
        text: format!(
            "{} of other machines {} in session '{session}', and this machine looks into '{}'.",
            count(streams),
            if streams == 1 { "is" } else { "are" },
            seen.asked.session
        ),
        streams,
        seen: all
            .iter()
            .take(3)
            .map(|it| format!("\"{}\" on {}", it.name, it.hostname))
            .collect(),
        remedies: vec![match remedy::plain(session) {
            Some(session) => Remedy {
                advice: format!("or for once: lsl list --session {session}"),
                ..remedy::set_key(seen, "lab.SessionID", session)
            },
            None => Remedy::advice(seen, "set lab.SessionID in lsl_api.cfg to it"),
        }],
        ..Cause::default()
    })
}

/// Whether a stream has the field that was asked for.
pub(super) fn is_exactly(stream: &StreamSeen, asked: &crate::observe::StreamAsked) -> bool {
    let Some((field, value)) = &asked.field else {
        return false;
    };
    fields(stream)
        .iter()
        .any(|(name, text)| name == field && text == value)
}

fn fields(stream: &StreamSeen) -> [(&'static str, &str); 5] {
    [
        ("name", &stream.name),
        ("type", &stream.stream_type),
        ("source_id", &stream.source_id),
        ("hostname", &stream.hostname),
        ("uid", &stream.uid),
    ]
}

pub(super) fn near_miss(seen: &Observations) -> Option<Cause> {
    let asked = seen.asked.stream.as_ref().filter(|asked| !asked.found)?;
    let (field, value) = asked.field.as_ref()?;
    let found = seen.found.iter().chain(&seen.own_streams).flatten();
    let candidates = found
        .chain(answered(seen))
        .filter(|it| it.session == seen.asked.session);
    let all: Vec<(&str, &str)> = candidates.flat_map(fields).collect();
    let same = all.iter().find(|(name, text)| {
        let may_be = name == field && *text != value
            || name != field && (*name == "name" || *name == "type");
        may_be && folded(text) == folded(value)
    });
    // Numbers tell devices apart: Amp1 is not Amp2, however near.
    let digits = |text: &str| text.chars().filter(|c| c.is_numeric()).collect::<String>();
    let near = || {
        all.iter().find(|(name, text)| {
            name == field
                && digits(text) == digits(value)
                && *text != value
                && is_within_two(&folded(text), &folded(value))
        })
    };
    let (name, text) = *same.or_else(near)?;
    Some(Cause {
        is_guess: same.is_none(),
        subject: asked.text.clone(),
        text: format!("No stream has {field}='{value}', and there is one with {name}='{text}'."),
        streams: 1,
        remedies: vec![match remedy::plain(text) {
            Some(text) => Remedy::command(seen, format!("lsl info {name}={text}")),
            None => Remedy::advice(seen, "ask for it as it is written there"),
        }],
        ..Cause::default()
    })
}

/// Without what people overlook: case and blanks.
fn folded(text: &str) -> String {
    let visible = text.chars().filter(|c| !c.is_whitespace());
    visible
        .flat_map(char::to_lowercase)
        .take(LONGEST_COMPARED)
        .collect()
}

/// Whether at most two letters were added, left out or changed, of more than three.
fn is_within_two(one: &str, other: &str) -> bool {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    if one.len().min(other.len()) <= 3 || one.len().abs_diff(other.len()) > 2 {
        return false;
    }
    let mut costs: Vec<usize> = (0..=other.len()).collect();
    for (row, from) in one.iter().enumerate() {
        let (mut left, mut diagonal) = (row + 1, row);
        for (cost, to) in costs.iter_mut().skip(1).zip(&other) {
            let best = (diagonal + usize::from(from != to))
                .min(*cost + 1)
                .min(left + 1);
            diagonal = *cost;
            *cost = best;
            left = best;
        }
        if let Some(first) = costs.first_mut() {
            *first = row + 1;
        }
    }
    costs.last().is_some_and(|cost| *cost <= 2)
}

pub(super) fn no_multicast(seen: &Observations) -> Option<Cause> {
    let wave = seen.wave.as_ref().filter(|wave| wave.waves >= 3)?;
    let loopback = seen.loopback.as_ref()?;
    let relevant = filters::relevant(seen);
    let mut in_order = loopback
        .iter()
        .filter(|it| relevant.iter().any(|to| to.name == it.interface));
    if relevant.is_empty() || !in_order.any(|it| it.heard > 0) || filters::input(seen).is_some() {
        return None;
    }
    let asked = |is_host: bool| {
        wave.ways
            .iter()
            .filter(move |it| (it.kind == WayKind::Host) == is_host)
    };
    if asked(false).all(|it| it.sent == 0) || asked(false).any(|it| it.answers > 0) {
        return None;
    }
    let ways = asked(true).filter(|it| it.answers > 0).map(|it| it.to);
    let mut hosts: Vec<IpAddr> = ways.collect();
    // A container of which LSL's range alone is published: a filter of the other port looks so, too.
    let is_guess = hosts.is_empty();
    if is_guess {
        let peers = seen.peers.iter().flatten();
        hosts.extend(
            peers
                .filter(|it| it.answers_udp())
                .filter_map(|it| it.address),
        );
    }
    let first = hosts.first()?;
    let streams = answered(seen)
        .filter(|it| it.session == seen.asked.session || it.session == super::pair::TEST_SESSION)
        .count();
    // Streams of another session alone are no reason to ask their host from now on.
    if streams == 0 {
        return None;
    }
    let mut addresses: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    addresses.dedup();
    let groups: u32 = asked(false).map(|it| it.sent).sum();
    Some(Cause {
        is_guess,
        subject: first.to_string(),
        text: "The network between does not carry groups and broadcasts: streams are found only \
               where their host is asked directly."
            .into(),
        streams,
        seen: vec![
            format!("{} answered when asked directly", addresses.join(", ")),
            format!(
                "{groups} questions to groups and broadcast in {} waves: no answer",
                wave.waves
            ),
        ],
        remedies: addresses
            .iter()
            .map(|it| remedy::known_peer(seen, it))
            .collect(),
        ..Cause::default()
    })
}

pub(super) fn overrun(seen: &Observations) -> Option<Cause> {
    let all = || seen.drops.iter().flatten();
    let now = all().filter(|it| it.lost > 0).max_by_key(|it| it.lost);
    // What was lost before matters only if answers are missing.
    let before = || {
        let worst = all().max_by_key(|it| it.total)?;
        streams::fades(seen).map(|_| worst)
    };
    let worst = now.or_else(before)?;
    let who = |it: &SocketDrops| {
        it.program.as_ref().map_or_else(
            || format!("a program at UDP {}", it.port),
            |program| format!("{} (pid {}) at UDP {}", program.name, program.pid, it.port),
        )
    };
    Some(Cause {
        subject: format!("UDP {}", worst.port),
        text: format!(
            "{} loses datagrams, because they come faster than it reads them.",
            who(worst)
        ),
        seen: seen
            .drops
            .iter()
            .flatten()
            .map(|it| format!("{}: {} lost now, {} in all", who(it), it.lost, it.total))
            .collect(),
        remedies: vec![remedy::more_room(seen)],
        ..Cause::default()
    })
}

pub(super) fn host_clock(seen: &Observations) -> Option<Cause> {
    let ppm = seen.clock_ppm.filter(|ppm| ppm.abs() > 1000.0)?;
    Some(Cause {
        subject: "clock".into(),
        text: format!(
            "The clock of this machine runs {ppm:+.0} ppm beside the time of day: it is being put right."
        ),
        remedies: vec![Remedy::advice(
            seen,
            "wait until it is set (`timedatectl`), then measure",
        )],
        ..Cause::default()
    })
}

/// Longest text that is compared with another.
const LONGEST_COMPARED: usize = 256;
