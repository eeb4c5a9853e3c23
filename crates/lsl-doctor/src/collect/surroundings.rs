//! What a report has beside the doctor's own: versions, configuration, routes, sockets. Never keys, trust, samples.

use std::path::Path;

use lsl_core::Context;
use lsl_core::config::{Config, Loaded};
use lsl_core::local_clock;
use lsl_platform::udp_sockets::udp_sockets;
use serde_json::{Value, json};

use super::{command, files};
use crate::observe::{Observations, PortsInUse};
use crate::redact::Names;

/// Returns them; the rules of the firewall only if they are wanted.
pub fn look(loaded: &Loaded, context: &Context, with_firewall: bool) -> Value {
    let text = |path: &str| files::text(path);
    let ports = PortsInUse::default();
    let is_lsl = |port: u16| port == ports.multicast || ports.has(port);
    let sockets = udp_sockets().unwrap_or_default().into_iter();
    let sockets: Vec<Value> = sockets
        .filter(|it| is_lsl(it.port))
        .map(|it| json!({"udp": it.port, "drops": it.drops}))
        .collect();
    let security = match context.security() {
        Ok(security) => {
            json!({"policy": security.policy().name(), "has_key": security.local().is_some()})
        }
        Err(error) => json!({"error": error.to_string()}),
    };
    let rules = || command::output(NFT, &["list", "ruleset"], local_clock() + 2.0);
    json!({
        "lsl": env!("CARGO_PKG_VERSION"),
        "system": std::env::consts::OS,
        "machine": std::env::consts::ARCH,
        "kernel": text("/proc/sys/kernel/osrelease").map(|it| it.trim().to_owned()),
        "configuration": settings(&loaded.config),
        "security": security,
        "routes": text("/proc/net/route"),
        "routes6": text("/proc/net/ipv6_route"),
        "sockets": sockets,
        "firewall": with_firewall.then(rules).flatten(),
    })
}

/// Returns what `EXE -m lsl_rs doctor --json` says of the library that this program uses.
///
/// # Errors
/// Why it says nothing.
pub fn of_python(program: &Path) -> Result<Value, &'static str> {
    let program = program.to_str().ok_or("its path is no text")?;
    let deadline = local_clock() + PYTHON_SECS;
    let text = command::output(&[program], &["-m", "lsl_rs", "doctor", "--json"], deadline);
    let text = text.ok_or("it is not there, or failed: pip install lsl-rs there?")?;
    serde_json::from_str(&text).map_err(|_| "what it said is no JSON")
}

/// Collects the names in it, and those of this machine and user.
pub fn names(seen: &Observations, loaded: &Loaded) -> Names {
    let mut names = Names::of(seen);
    names.add(
        "host",
        &String::from_utf8_lossy(&lsl_platform::process::hostname()),
    );
    let mut users: Vec<String> = Vec::new();
    for variable in ["USER", "LOGNAME", "USERNAME", "SUDO_USER"] {
        users.extend(std::env::var(variable));
    }
    let home = std::env::home_dir();
    let home = home.as_deref().and_then(Path::file_name);
    users.extend(home.map(|it| it.to_string_lossy().into_owned()));
    // Everybody has these.
    for user in users
        .iter()
        .filter(|it| !["root", "lsl", "home"].contains(&it.as_str()))
    {
        names.add("user", user);
    }
    // Addresses and numbers are none.
    for key in ["lab.KnownPeers", "lab.Relay", "lab.SessionID"] {
        let value = loaded.config.entries().into_iter().find(|it| it.key == key);
        let value = value.map(|it| it.value).unwrap_or_default();
        for name in value.split([',', '{', '}', ' ']) {
            let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
            if host.parse::<std::net::IpAddr>().is_err() && !host.is_empty() && !host.contains(':')
            {
                names.add("host", host);
            }
        }
    }
    names
}

fn settings(config: &Config) -> Vec<Value> {
    let entries = config.entries().into_iter();
    let changed = entries.filter(|it| it.value != it.default);
    changed
        .map(|it| json!({"key": it.key, "value": it.value, "origin": it.origin.to_string()}))
        .collect()
}

const NFT: &[&str] = &["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft"];
const PYTHON_SECS: f64 = 20.0;
