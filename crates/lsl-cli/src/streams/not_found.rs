//! Advice for a search that found nothing: the most frequent trouble of all LSL users deserves
//! better than an empty list.

use std::path::PathBuf;

use lsl_core::Context;
use lsl_core::config::{
    Bind, Config, Ipv6Mode, Loaded, Origin, Overrides, ResolveScope, Source, SystemFiles, load,
};
use lsl_doctor::collect::after_a_search;
use lsl_doctor::observe::Asked;
use lsl_doctor::report::finding_text;
use lsl_doctor::table::diagnose;

/// Explains the silence: by the cause, where this machine alone shows it, else by the configuration in use, most
/// likely cause first. Takes less than half a second and sends nothing to the network.
pub(crate) fn explain(context: &Context) -> String {
    let mut text = String::new();
    if context.config().bind() == Bind::All {
        let seen = after_a_search(&loaded(context), context, &Asked::default());
        for finding in diagnose(&seen).findings {
            text.extend([&finding_text(&finding), "\n"]);
        }
    }
    if text.is_empty() {
        text.push_str("What to check:\n");
        for hint in hints(context.config()) {
            text.extend(["  - ", &hint, "\n"]);
        }
    }
    text + "More: lsl doctor"
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
