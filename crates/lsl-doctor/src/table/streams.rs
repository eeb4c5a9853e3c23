//! Troubles of streams that are found. Spec: doctor §3.2

use std::fmt;

use lsl_proto::clock::ClockSuspect;
use serde::{Deserialize, Serialize};

use super::configuration::count;
use super::network::answered;
use super::{Cause, peers};
use crate::observe::{
    Barred, ClockAnswer, DescriptorsUsed, Fed, Observations, Opened, StreamProbed, StreamSeen,
    Verdict,
};
use crate::remedy::Remedy;

/// What does not work with a stream that is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trouble {
    /// Its port answers that nothing listens there.
    Closed,
    /// No connection comes about.
    Unreachable,
    /// It connects, and not all comes.
    Stalled,
    /// No sample comes.
    Silent,
    /// Fewer come than announced.
    Slow,
    /// Some are missing.
    Gaps,
    /// They come later and later.
    Old,
    /// No clock probe is answered.
    Clockless,
    /// The clock is known too coarsely.
    Coarse,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "does not open: nothing listens at its port any more",
            Self::Unreachable => "does not open: no connection comes about",
            Self::Stalled => "does not open: it connects, and not all of what is asked for comes",
            Self::Silent => "opens, and no sample comes",
            Self::Slow => "has fewer samples than it announces",
            Self::Gaps => "loses samples",
            Self::Old => "comes later and later",
            Self::Clockless => "has a clock that cannot be asked",
            Self::Coarse => "has a clock that is known only coarsely",
        })
    }
}

const ALL: [Trouble; 9] = [
    Trouble::Closed,
    Trouble::Unreachable,
    Trouble::Stalled,
    Trouble::Silent,
    Trouble::Slow,
    Trouble::Gaps,
    Trouble::Old,
    Trouble::Clockless,
    Trouble::Coarse,
];

/// Returns the troubles there are, with how many streams have each.
pub(super) fn troubles(seen: &Observations) -> impl Iterator<Item = (Trouble, usize)> {
    let number = |trouble| with(seen, trouble).count();
    let all = ALL
        .into_iter()
        .map(move |trouble| (trouble, number(trouble)));
    all.filter(|(_, number)| *number > 0)
}

/// Returns the streams that have a trouble.
pub(super) fn with(seen: &Observations, trouble: Trouble) -> impl Iterator<Item = &StreamProbed> {
    let probed = seen.probed.iter().flatten();
    probed.filter(move |stream| has(stream, trouble))
}

fn has(stream: &StreamProbed, trouble: Trouble) -> bool {
    let fed = stream.fed.as_ref();
    let regular = fed.filter(|_| stream.rate > 0.0);
    // Stamps of another clock may be in other units.
    let stamped = regular.filter(|_| suspect(stream) != Some(ClockSuspect::Foreign));
    match trouble {
        Trouble::Closed => stream.opened == Some(Opened::Closed),
        Trouble::Unreachable => stream.opened == Some(Opened::Unreachable),
        Trouble::Stalled => stream.opened == Some(Opened::Stalled),
        Trouble::Silent => regular.is_some_and(|fed| {
            fed.samples == 0 && fed.secs >= SILENT_SECS && fed.secs * stream.rate >= FEWEST_DUE
        }),
        Trouble::Slow => stamped.is_some_and(|fed| fed.slow(stream.rate).is_some()),
        Trouble::Gaps => stamped.is_some_and(|fed| fed.has_gaps(stream.rate)),
        Trouble::Old => suspect(stream).is_none() && fed.and_then(growing_lag).is_some(),
        Trouble::Clockless => fed.is_some_and(|fed| fed.clock == Some(ClockAnswer::Silent)),
        Trouble::Coarse => fed.and_then(uncertainty).is_some_and(|it| it > COARSE_SECS),
    }
}

fn uncertainty(fed: &Fed) -> Option<f64> {
    match fed.clock? {
        ClockAnswer::Seconds(secs) => Some(secs),
        ClockAnswer::Silent => None,
    }
}

/// The age of samples at the end, if it is large and grows.
fn growing_lag(fed: &Fed) -> Option<f64> {
    let (first, last) = (fed.lags.first()?, fed.lags.last()?);
    (*last > OLD_SECS && last - first > GROWTH_SECS).then_some(*last)
}

fn suspect(stream: &StreamProbed) -> Option<ClockSuspect> {
    let fed = stream.fed.as_ref()?;
    // The first second has what waited for the connection.
    let lag = *fed.lags.get(1..)?.last()?;
    ClockSuspect::of_sample(lag, fed.stamp?, fed.day, uncertainty(fed)?)
}

/// A cause that is what some streams have: what is said of the first, and of each.
fn cause<'a>(
    seen: &Observations,
    streams: impl Iterator<Item = &'a StreamProbed>,
    says: impl Fn(&StreamProbed) -> String,
    advice: &str,
) -> Option<Cause> {
    let streams: Vec<&StreamProbed> = streams.collect();
    let first = streams.first()?;
    let others = match streams.len() - 1 {
        0 => String::new(),
        others => format!(" And {} more.", count(others)),
    };
    Some(Cause {
        subject: first.name.clone(),
        text: format!("{}{others}", says(first)),
        streams: streams.len(),
        seen: streams
            .iter()
            .skip(1)
            .take(MOST_SAID)
            .map(|it| says(it))
            .collect(),
        remedies: vec![Remedy::advice(seen, advice)],
        ..Cause::default()
    })
}

fn called(stream: &StreamProbed) -> String {
    format!("\"{}\" on {}", stream.name, stream.hostname)
}

pub(super) fn silent(seen: &Observations) -> Option<Cause> {
    let says = |it: &StreamProbed| {
        let secs = it.fed.as_ref().map_or(0.0, |fed| fed.secs);
        format!(
            "{} announces {} samples a second, and none came in {secs:.1} s.",
            called(it),
            it.rate
        )
    };
    cause(
        seen,
        with(seen, Trouble::Silent),
        says,
        "look at its program and its device: it offers the stream and pushes nothing",
    )
}

pub(super) fn slow(seen: &Observations) -> Option<Cause> {
    let says = |it: &StreamProbed| {
        let fed = it.fed.as_ref();
        let slow = fed.and_then(|fed| fed.slow(it.rate)).unwrap_or_default();
        format!(
            "{} announces {} samples a second and has {slow:.1}, all the time.",
            called(it),
            it.rate
        )
    };
    cause(
        seen,
        with(seen, Trouble::Slow),
        says,
        "have its program announce the rate that its device has, or find out why it cannot keep up",
    )
}

pub(super) fn gaps(seen: &Observations) -> Option<Cause> {
    let says = |it: &StreamProbed| {
        let fed = it.fed.clone().unwrap_or_default();
        let told = if fed.lost > 0 {
            format!("{} samples are known to be lost", fed.lost)
        } else {
            format!("its stamps jump {} times", fed.jumps)
        };
        format!("{} loses samples: {told} in {:.1} s.", called(it), fed.secs)
    };
    cause(
        seen,
        with(seen, Trouble::Gaps),
        says,
        "look at the device and its connection (Bluetooth, USB): they are missing before they are sent",
    )
}

pub(super) fn old(seen: &Observations) -> Option<Cause> {
    let says = |it: &StreamProbed| {
        let lag = it.fed.as_ref().and_then(growing_lag).unwrap_or_default();
        format!("{} comes {lag:.1} s late, and later and later.", called(it))
    };
    cause(
        seen,
        with(seen, Trouble::Old),
        says,
        "its program or the network cannot keep up: fewer channels, a lower rate, or a cable",
    )
}

pub(super) fn no_clock(seen: &Observations) -> Option<Cause> {
    let says = |it: &StreamProbed| {
        format!(
            "The clock of {} answers no probe: its samples cannot be put on the time of this machine.",
            called(it)
        )
    };
    let advice = format!(
        "let UDP {}-{} of that machine in, and answers back",
        seen.asked.ports.base,
        seen.asked.ports.last()
    );
    cause(seen, with(seen, Trouble::Clockless), says, &advice)
}

pub(super) fn coarse(seen: &Observations) -> Option<Cause> {
    let says = |it: &StreamProbed| {
        let secs = it.fed.as_ref().and_then(uncertainty).unwrap_or_default();
        format!(
            "The clock of {} is known to {:.0} ms only.",
            called(it),
            secs * 1000.0
        )
    };
    cause(
        seen,
        with(seen, Trouble::Coarse),
        says,
        "use a cable, or a network with less to carry",
    )
}

pub(super) fn alien(seen: &Observations) -> Option<Cause> {
    let says = |it: &StreamProbed| {
        let lag = it.fed.as_ref().and_then(|fed| fed.lags.last().copied());
        let why = match suspect(it) {
            Some(ClockSuspect::Future) => format!(
                "they are {:.0} ms ahead of the time at which they come",
                lag.unwrap_or_default() * -1000.0
            ),
            suspect => suspect.map(|it| it.to_string()).unwrap_or_default(),
        };
        format!(
            "Stamps of {} are not of the LSL clock: {why}. A recording cannot align it with other streams.",
            called(it)
        )
    };
    let probed = seen.probed.iter().flatten();
    cause(
        seen,
        probed.filter(|it| suspect(it).is_some()),
        says,
        "have its program stamp with lsl_local_clock(), or leave stamps out",
    )
}

/// Streams that encryption forbids to read, by who refuses.
fn barred(
    seen: &Observations,
    is_meant: impl Fn(&Barred) -> bool,
    says: impl Fn(&StreamProbed) -> String,
) -> Option<Cause> {
    let barred = |it: &StreamProbed| it.barred.as_ref().is_some_and(&is_meant);
    let streams: Vec<&StreamProbed> = seen
        .probed
        .iter()
        .flatten()
        .filter(|it| barred(it))
        .collect();
    let first = streams.first()?;
    // One command for each machine: its streams have one key.
    let mut hosts: Vec<&str> = Vec::new();
    let mut remedies = Vec::new();
    for stream in &streams {
        let Some((place, command)) = stream.barred.as_ref().and_then(|it| it.command.clone())
        else {
            continue;
        };
        if !hosts.contains(&stream.hostname.as_str()) {
            hosts.push(&stream.hostname);
            remedies.push(Remedy {
                place,
                ..Remedy::command(seen, command)
            });
        }
    }
    let words = streams.iter().filter_map(|it| it.barred.as_ref());
    let mut texts: Vec<String> = words
        .flat_map(|it| it.text.lines())
        .map(str::to_owned)
        .collect();
    texts.dedup();
    texts.truncate(MOST_SAID);
    Some(Cause {
        subject: first.name.clone(),
        text: says(first),
        streams: streams.len(),
        seen: texts,
        remedies,
        ..Cause::default()
    })
}

pub(super) fn no_key(seen: &Observations) -> Option<Cause> {
    barred(
        seen,
        |it| !it.has_key && it.by != Verdict::Plaintext,
        |it| format!("{} is encrypted, and this machine has no key.", called(it)),
    )
}

pub(super) fn refused_here(seen: &Observations) -> Option<Cause> {
    barred(
        seen,
        |it| it.has_key && it.by == Verdict::RefusedHere,
        |it| format!("This machine does not trust the key of {}.", called(it)),
    )
}

pub(super) fn refused_there(seen: &Observations) -> Option<Cause> {
    barred(
        seen,
        |it| it.has_key && it.by == Verdict::RefusedThere,
        |it| format!("The machine of {} does not trust this one.", called(it)),
    )
}

pub(super) fn no_session(seen: &Observations) -> Option<Cause> {
    barred(
        seen,
        |it| it.has_key && it.by == Verdict::Failed,
        |it| format!("No encrypted session with {} comes about.", called(it)),
    )
}

pub(super) fn plaintext(seen: &Observations) -> Option<Cause> {
    let says = |it: &StreamProbed| {
        format!(
            "{} offers no encryption, and this machine reads nothing else.",
            called(it)
        )
    };
    let advice = "give its machine a key (`lsl key init` there) if its programs use this library, else name it in \
                  [[plaintext_allow]] of lsl-secure.toml here";
    Some(Cause {
        remedies: vec![Remedy::advice(seen, advice)],
        ..barred(seen, |it| it.by == Verdict::Plaintext, says)?
    })
}

pub(super) fn descriptors(seen: &Observations) -> Option<Cause> {
    let is_near = |it: &&DescriptorsUsed| it.used * 5 > it.allowed * 4;
    let worst = seen.descriptors.iter().flatten().find(is_near)?;
    let DescriptorsUsed {
        program,
        used,
        allowed,
    } = worst;
    Some(Cause {
        subject: program.name.clone(),
        text: format!(
            "{} (pid {}) has {used} files and sockets open, and may have {allowed}: further streams \
             will not open.",
            program.name, program.pid
        ),
        remedies: vec![Remedy::advice(
            seen,
            format!(
                "start it again behind `ulimit -n {}`",
                allowed.saturating_mul(4)
            ),
        )],
        ..Cause::default()
    })
}

pub(super) fn old_library(seen: &Observations) -> Option<Cause> {
    let mut libraries = seen.libraries.iter().flatten();
    let found = libraries.find(|it| it.streams > 1 && is_old(&it.version))?;
    Some(Cause {
        subject: found.program.name.clone(),
        text: format!(
            "{} (pid {}) has {} by liblsl {}: of several streams on one machine it may show only \
             one to known peers.",
            found.program.name,
            found.program.pid,
            count(found.streams),
            found.version
        ),
        streams: found.streams,
        remedies: vec![Remedy::advice(seen, "let it use liblsl 1.18 or newer")],
        ..Cause::default()
    })
}

/// Whether a version is before 1.18.
fn is_old(version: &str) -> bool {
    let mut numbers = version.split('.').map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(1)), Some(Ok(minor))) if minor < 18)
}

/// All streams that are known, each once per uid and host.
fn all_streams(seen: &Observations) -> Vec<&StreamSeen> {
    let mut all: Vec<&StreamSeen> = Vec::new();
    let wave = seen.wave.iter().flat_map(|wave| &wave.streams);
    for stream in wave.chain(seen.found.iter().flatten()) {
        if !all
            .iter()
            .any(|it| (&it.uid, &it.hostname) == (&stream.uid, &stream.hostname))
        {
            all.push(stream);
        }
    }
    all
}

/// The first two streams for which something holds.
fn pair<'a>(
    streams: &[&'a StreamSeen],
    holds: impl Fn(&StreamSeen, &StreamSeen) -> bool,
) -> Option<(&'a StreamSeen, &'a StreamSeen)> {
    streams.iter().enumerate().find_map(|(at, one)| {
        let other = streams
            .iter()
            .skip(at + 1)
            .find(|other| holds(one, other))?;
        Some((*one, *other))
    })
}

pub(super) fn cloned(seen: &Observations) -> Option<Cause> {
    let all = all_streams(seen);
    let (one, other) = pair(&all, |one, other| {
        one.uid == other.uid && one.hostname != other.hostname
    })?;
    Some(Cause {
        subject: one.name.clone(),
        text: format!(
            "\"{}\" has one uid on {} and on {}: a machine was cloned with its programs running. \
             Receivers take both for one stream.",
            one.name, one.hostname, other.hostname
        ),
        streams: 2,
        remedies: vec![Remedy::advice(
            seen,
            "start the program again on one of them",
        )],
        ..Cause::default()
    })
}

pub(super) fn duplicate(seen: &Observations) -> Option<Cause> {
    let all = all_streams(seen);
    let key = |it: &StreamSeen| {
        (
            it.name.clone(),
            it.stream_type.clone(),
            it.source_id.clone(),
            it.session.clone(),
        )
    };
    let (one, other) = pair(&all, |one, other| {
        !one.source_id.is_empty() && one.uid != other.uid && key(one) == key(other)
    })?;
    Some(Cause {
        subject: one.name.clone(),
        text: format!(
            "\"{}\" with source id '{}' is there twice, on {} and on {}: receivers cannot tell them \
             apart, and a recording may change from one to the other.",
            one.name, one.source_id, one.hostname, other.hostname
        ),
        streams: 2,
        remedies: vec![Remedy::advice(
            seen,
            "end one of them, or give it a source id of its own",
        )],
        ..Cause::default()
    })
}

pub(super) fn fades(seen: &Observations) -> Option<Cause> {
    let wave = seen.wave.as_ref().filter(|wave| wave.waves >= 3)?;
    let is_faint = |it: &&StreamSeen| it.waves > 0 && it.waves * 3 < wave.waves * 2 && it.by_group;
    let faint: Vec<&StreamSeen> = answered(seen).filter(is_faint).collect();
    let first = faint.first()?;
    Some(Cause {
        // A way that loses or delays all has a finding of its own.
        is_harmless: faint.iter().all(|it| peers::is_poor(seen, it.address))
            || seen.drops.iter().flatten().next().is_some(),
        subject: first.name.clone(),
        text: format!(
            "{} answered in {} of {} waves: a short search may miss it.",
            count(faint.len()),
            first.waves,
            wave.waves
        ),
        streams: faint.len(),
        remedies: vec![Remedy::advice(
            seen,
            "search longer (--timeout 5), or use a cable",
        )],
        ..Cause::default()
    })
}

const MOST_SAID: usize = 3;
const SILENT_SECS: f64 = 2.5;
/// Samples that would have come.
const FEWEST_DUE: f64 = 5.0;
const OLD_SECS: f64 = 1.0;
const GROWTH_SECS: f64 = 0.2;
const COARSE_SECS: f64 = 0.010;
