//! Advice for a search that found nothing: the most frequent trouble of all LSL users deserves
//! better than an empty list.

use std::path::PathBuf;

use lsl_core::Context;
use lsl_core::config::{
    Bind, Config, Ipv6Mode, Loaded, Origin, Overrides, ResolveScope, Source, SystemFiles, load,
};
use lsl_doctor::collect::after_a_search;
use lsl_doctor::observe::{Asked, Observations, StreamAsked};
use lsl_doctor::report::finding_text;
use lsl_doctor::table::diagnose;

/// Explains the silence: by the cause, where this machine alone shows it, else by the configuration in use, most
/// likely cause first. Takes a second at most and sends nothing to the network. `asked` is what was looked for,
/// unless it was all.
pub(crate) fn explain(context: &Context, asked: Option<StreamAsked>) -> String {
    let config = context.config();
    let asked = Asked {
        stream: asked,
        ..Asked::default()
    };
    let seen =
        (config.bind() == Bind::All).then(|| after_a_search(&loaded(context), context, &asked));
    text_of(config, seen.as_ref()) + "More: lsl doctor"
}

fn text_of(config: &Config, seen: Option<&Observations>) -> String {
    let mut advice = "What to check:\n".to_owned();
    for hint in hints(config) {
        advice.extend(["  - ", &hint, "\n"]);
    }
    let Some(seen) = seen else {
        return advice;
    };
    let diagnosis = diagnose(seen);
    let mut findings = String::new();
    for finding in &diagnosis.findings {
        findings.extend([&finding_text(finding), "\n"]);
    }
    let mut own = seen.own_streams.iter().flatten();
    let has_others = own.any(|it| it.session == seen.asked.session);
    if seen.asked.stream.is_some() && has_others {
        // Streams are heard here; that this one is not may have nothing to do with the machine.
        let near = diagnosis.notes.iter().find(|it| it.id == "query.miss");
        let near = near.map_or_else(String::new, |it| format!("{}\n", it.text));
        near + &advice + &findings
    } else if findings.is_empty() {
        advice
    } else {
        findings
    }
}

/// The configuration of a context, with the file that it came from.
fn loaded(context: &Context) -> Loaded {
    let config = context.config().clone();
    let file: Option<PathBuf> = config
        .entries()
        .into_iter()
        .find_map(|entry| match entry.origin {
            Origin::File { path, .. } => Some(path),
            _ => None,
        });
    let mut loaded = load(&SystemFiles, &Overrides::default());
    if file.as_deref() != loaded.source.path() {
        // It was named on the command line, or says nothing.
        loaded.source = file.map_or(Source::Defaults, Source::Api);
        loaded.diagnostics.clear();
    }
    loaded.config = config;
    loaded
}

fn hints(config: &Config) -> Vec<String> {
    let (ports, lab) = (config.ports(), config.lab());
    let mut hints = vec![format!(
        "session: only streams of session '{}' are visible (--session ID looks into another one)",
        lab.session_id
    )];
    for (host, port) in config.relays() {
        hints.push(format!(
            "relay: {host}:{port} does not answer, or has no such stream; ask it: lsl relay status {host} --port {port}"
        ));
    }
    if config.bind() == Bind::Loopback {
        let last = u32::from(ports.base_port) + u32::from(ports.port_range.saturating_sub(1));
        hints.push(format!(
            "loopback: only this machine's ports {} to {last} were asked (leave out --loopback \
             to ask the network)",
            ports.base_port
        ));
        return hints;
    }
    hints.push(format!(
        "firewall: UDP {} and UDP/TCP {}-{} must be open both ways, on both hosts",
        ports.multicast_port,
        ports.base_port,
        u32::from(ports.base_port) + u32::from(ports.port_range.saturating_sub(1)),
    ));
    hints.push(match lab.known_peers.as_slice() {
        [] => "multicast: Wi-Fi, VPN and routed networks often swallow it; try --known-peer HOST \
               or lab.KnownPeers"
            .into(),
        peers => {
            let peers: Vec<String> = peers.iter().map(ToString::to_string).collect();
            format!(
                "known peers: asked {} directly; are they up and reachable?",
                peers.join(", ")
            )
        }
    });
    match ports.ipv6 {
        Ipv6Mode::Disable => hints.push("IPv6: switched off (ports.IPv6 = disable)".into()),
        Ipv6Mode::Force => hints.push(
            "IPv6: IPv4 is switched off (ports.IPv6 = force), outlets without IPv6 stay invisible"
                .into(),
        ),
        Ipv6Mode::Allow => {}
    }
    if config.multicast().resolve_scope < ResolveScope::Site {
        hints.push(format!(
            "scope: multicast.ResolveScope = {} does not reach the whole site",
            config.multicast().resolve_scope.name()
        ));
    }
    hints.push("configuration: `lsl config show --origin` tells which file is in use".into());
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(settings: &[(&str, &str)], bind: Bind, parts: &[&str], absent: &[&str]) {
        let mut config = Config::default();
        for (key, value) in settings {
            config.set(key, value).unwrap();
        }
        config.set_bind(bind);
        let text = hints(&config).join("\n");
        for part in parts {
            assert!(text.contains(part), "{part} in {text}");
        }
        for part in absent {
            assert!(!text.contains(part), "{part} in {text}");
        }
    }

    /// A filter of this machine does not hide a stream of another name.
    #[test]
    fn streams_of_this_machine_put_the_filter_behind_the_hints() {
        let mut seen: Observations = serde_json::from_value(serde_json::json!({
            "asked": {
                "session": "default", "hosts": [],
                "ports": {"multicast": 16571, "base": 16572, "count": 32},
                "stream": {"text": "Maker", "field": ["name", "Maker"], "found": false},
            },
            "interfaces": [{"name": "eth0", "is_up": true, "addresses": [["10.50.0.2", 24]]}],
            "loopback": [{"interface": "eth0", "group": "224.0.0.1", "port": 16572, "sent": 3, "heard": 0, "error": null}],
            "own_streams": [{"name": "Marker", "session": "default", "is_here": true}],
            "found": [],
        }))
        .unwrap();
        let config = Config::default();
        let text = text_of(&config, Some(&seen));
        let at = |part: &str| {
            text.find(part)
                .unwrap_or_else(|| panic!("{part} in {text}"))
        };
        assert!(
            at("name='Marker'") < at("What to check") && at("What to check") < at("FAULT fw.in")
        );
        seen.own_streams = None;
        let text = text_of(&config, Some(&seen));
        assert!(
            text.starts_with("FAULT fw.in") && !text.contains("What to check"),
            "{text}"
        );
    }

    #[test]
    fn hints_follow_the_configuration() {
        let all = Bind::All;
        let relay = [("lab.Relay", "{hub.lab}")];
        let asked = ["hub.lab:16570", "lsl relay status hub.lab --port 16570"];
        check(&relay, all, &asked, &[]);
        check(
            &[],
            all,
            &["'default'", "UDP 16571", "16572-16603", "--known-peer"],
            &["IPv6:"],
        );
        check(&[("lab.SessionID", "x y")], all, &["session 'x y'"], &[]);
        check(
            &[("lab.KnownPeers", "{lab2, [::1]:7}")],
            all,
            &["asked lab2, [::1]:7"],
            &["Wi-Fi"],
        );
        check(
            &[("ports.IPv6", "disable")],
            all,
            &["IPv6: switched off"],
            &[],
        );
        check(
            &[("ports.IPv6", "force")],
            all,
            &["IPv4 is switched off"],
            &[],
        );
        check(
            &[("multicast.ResolveScope", "link")],
            all,
            &["ResolveScope = link"],
            &[],
        );
        check(
            &[],
            Bind::Loopback,
            &["16572 to 16603", "--loopback"],
            &["firewall"],
        );
    }
}
