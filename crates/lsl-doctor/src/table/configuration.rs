//! Causes in configuration files. Spec: doctor §3.2

use std::net::IpAddr;

use super::{Cause, unfound};
use crate::observe::{FileSeen, Observations, Setting, StreamSeen};
use crate::remedy::{self, Remedy};

pub(super) fn secure(seen: &Observations) -> Option<Cause> {
    let error = seen.security_error.as_ref().filter(|it| !it.is_empty())?;
    Some(Cause {
        subject: "encryption".into(),
        text: "The encryption set up on this machine cannot be used, so nothing streams.".into(),
        seen: vec![error.clone()],
        remedies: vec![Remedy::command(seen, "lsl security status".into())],
        ..Cause::default()
    })
}

pub(super) fn rejected(seen: &Observations) -> Option<Cause> {
    let file = seen.config.as_ref()?.rejected.first()?;
    let line = file
        .line
        .map(|line| format!(", line {line}"))
        .unwrap_or_default();
    Some(Cause {
        subject: file.path.display().to_string(),
        text: format!(
            "{}{line} cannot be read as a configuration: nothing of it is used.",
            file.path.display()
        ),
        seen: vec![file.problem.clone()],
        remedies: vec![Remedy::advice(
            seen,
            format!(
                "put that line right; `lsl config check {}` says when it is",
                lsl_platform::remedy::path(&file.path)
            ),
        )],
        ..Cause::default()
    })
}

pub(super) fn misnamed(seen: &Observations) -> Option<Cause> {
    let decides = |it: &&FileSeen| !it.settings.is_empty();
    let file = seen.config.as_ref()?.misnamed.iter().find(decides)?;
    let remedy = match &file.belongs {
        Some(place) => remedy::move_file(seen, &file.path, place),
        None => Remedy::advice(
            seen,
            "copy what it sets into the file in use (`lsl config show --origin` names it)",
        ),
    };
    Some(Cause {
        subject: file.path.display().to_string(),
        text: format!("{} is not read: {}.", file.path.display(), file.problem),
        seen: vec![format!("it sets {}", settings(file))],
        remedies: vec![remedy],
        ..Cause::default()
    })
}

pub(super) fn hidden(seen: &Observations) -> Option<Cause> {
    let config = seen.config.as_ref()?;
    let in_use = config.in_use.as_ref()?;
    let file = config.hidden.iter().find(|it| !it.settings.is_empty())?;
    let mut off = in_use.clone().into_os_string();
    off.push(".off");
    Some(Cause {
        subject: in_use.display().to_string(),
        text: format!(
            "{} is used, and {} is not: only one file is.",
            in_use.display(),
            file.path.display()
        ),
        seen: vec![format!("the latter sets {}", settings(file))],
        remedies: vec![remedy::move_file(seen, in_use, off.as_ref())],
        ..Cause::default()
    })
}

/// Answers come with the ports that everybody has, and this machine is told to use others.
pub(super) fn ports(seen: &Observations) -> Option<Cause> {
    excluded(seen, &["ports.MulticastPort"], |line| {
        format!(
            "{}: others use {}, so they do not hear this machine",
            line.value, line.default
        )
    })
}

/// Answers come by what everybody has, and this machine is told not to use it.
pub(super) fn limits(seen: &Observations) -> Option<Cause> {
    excluded(seen, LIMITS, |line| {
        format!("{}: that leaves out where answers come from", line.value)
    })
}

fn excluded(seen: &Observations, keys: &[&str], why: fn(&Setting) -> String) -> Option<Cause> {
    // One that is found of the same host shows that nothing leaves it out.
    let reached: Vec<IpAddr> = seen
        .found
        .iter()
        .flatten()
        .filter_map(|it| it.address)
        .collect();
    let is_left_out = |it: &&StreamSeen| it.address.is_none_or(|it| !reached.contains(&it));
    let by_group = unfound(seen).filter(|it| it.by_group);
    let by_default: Vec<_> = by_group.filter(is_left_out).collect();
    let stream = by_default.first()?;
    let config = seen.config.as_ref()?;
    let line = config
        .changed
        .iter()
        .find(|it| keys.contains(&it.key.as_str()))?;
    let address = stream
        .address
        .map(|it| format!(", {it}"))
        .unwrap_or_default();
    let remedy = if line.default.is_empty() || line.default == "{}" {
        remedy::remove_key(seen, &line.key)
    } else {
        remedy::set_key(seen, &line.key, &line.default)
    };
    Some(Cause {
        subject: line.key.clone(),
        text: format!("{} = {} ({}).", line.key, why(line), line.origin),
        streams: by_default.len(),
        seen: vec![format!(
            "{} answered without it (\"{}\"{address})",
            count(by_default.len()),
            stream.name
        )],
        remedies: vec![remedy],
        ..Cause::default()
    })
}

fn settings(file: &FileSeen) -> String {
    let said: Vec<String> = file
        .settings
        .iter()
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    said.join(", ")
}

pub(super) fn count(streams: usize) -> String {
    format!("{streams} stream{}", if streams == 1 { "" } else { "s" })
}

/// Keys that say where questions go and answers are heard, most telling first.
const LIMITS: &[&str] = &[
    "multicast.ResolveScope",
    "multicast.Interfaces",
    "multicast.AddressesOverride",
    "multicast.ListenAddress",
    "multicast.TTLOverride",
    "multicast.IPv6MulticastGroup",
    "multicast.SiteAddresses",
    "multicast.LinkAddresses",
    "ports.IPv6",
];
