//! Sites with a relay each, in processes of their own: what they find, their keys, and what they use.

use std::ffi::OsString;
use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lsl_cli::failure::{Failure, Outcome};
use lsl_core::config::{Bind, Config};
use lsl_core::secure::{OsRandom, SecretKey, Security, keyfile};
use lsl_core::{Context, local_clock};
use lsl_platform::files::{Who, create_directory};

use crate::child::{Child, Environment};
use crate::process_usage::Used;
use crate::scratch::{Folder, write_private};
use crate::usage::field;

/// Sites of a run, of which none finds the streams of another one but through their relays.
pub(super) struct Sites {
    folder: Folder,
    is_multicast: bool,
    base_port: u16,
    keys: Vec<SecretKey>,
}

/// A relay that runs.
pub(super) struct Relay {
    process: Child,
    pub(super) port: u16,
}

/// What a process used up to a moment, and has then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    at: f64,
    used: Used,
    switches: u64,
}

/// What a relay used per second, and had in the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) cores: f64,
    pub(super) rss_mib: f64,
    pub(super) switches_per_s: f64,
}

impl Sites {
    /// Makes `number` sites. With keys, all trust each other as relays.
    pub(super) fn make(number: usize, has_keys: bool, is_multicast: bool) -> Outcome<Self> {
        let folder = Folder::make(&std::env::temp_dir(), "relay")?;
        let free = UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let last =
            u16::MAX - SITE_PORTS * u16::try_from(number + 1).unwrap_or(u16::MAX / SITE_PORTS);
        let count = if has_keys { number } else { 0 };
        let keys = (0..count).map(|_| Ok(SecretKey::generate(&mut OsRandom)?));
        let sites = Self {
            folder,
            is_multicast,
            base_port: free.min(last),
            keys: keys.collect::<Outcome<_>>()?,
        };
        for site in 0..number {
            sites.furnish(site)?;
        }
        Ok(sites)
    }

    fn furnish(&self, site: usize) -> Outcome {
        let place = self.place(site);
        create_directory(&place, Who::Owner)?;
        write_private(
            &place.join("lsl_api.cfg"),
            self.settings(site, None, false).as_bytes(),
        )?;
        write_private(&place.join("relay.toml"), b"[relay]\nlinger_s = 1\n")?;
        let Some(key) = self.keys.get(site) else {
            return Ok(());
        };
        keyfile::write_new_key(&place.join("device_key.pem"), key, None)?;
        let others = self
            .keys
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != site);
        let trusted = others.map(|(other, key)| {
            let key = key.public();
            format!("[[peer]]\nname = \"site{other}\"\nkey = \"{key}\"\nrole = \"relay\"\n\n")
        });
        let trusted: String = trusted.collect();
        write_private(&place.join("trusted_peers.toml"), trusted.as_bytes())?;
        let security = format!(
            "[security]\nname = \"site{site}\"\npolicy = \"migrate\"\nmigrate_until = \"2099-12-31\"\n\
             key_file = \"device_key.pem\"\ntrusted_peers = \"trusted_peers.toml\"\n"
        );
        write_private(&place.join("lsl-secure.toml"), security.as_bytes())
    }

    /// Starts the relay of a site, which dials the one at this port.
    pub(super) fn relay(&self, site: usize, to: Option<u16>) -> Outcome<Relay> {
        self.relay_with(site, to, &[])
    }

    /// Starts the relay of a site, which keeps the past on disk.
    pub(super) fn keeping(&self, site: usize) -> Outcome<Relay> {
        let folder = self.place(site).join("history").display().to_string();
        self.relay_with(site, None, &["--history", &folder])
    }

    fn relay_with(&self, site: usize, to: Option<u16>, more: &[&str]) -> Outcome<Relay> {
        let place = self.place(site);
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let listen = format!("127.0.0.1:{port}");
        let rules = place.join("relay.toml").display().to_string();
        let mut words = vec![
            "lsl",
            "relay",
            "--listen",
            &listen,
            "--relay-config",
            &rules,
        ];
        let connect = to.map(|port| format!("127.0.0.1:{port}"));
        if let Some(connect) = &connect {
            words.extend(["--connect", connect]);
        }
        words.extend(more);
        let file = |name: &str| Some(OsString::from(place.join(name)));
        let secure = (!self.keys.is_empty())
            .then(|| file("lsl-secure.toml"))
            .flatten();
        let environment: Environment = vec![
            ("LSLAPICFG", file("lsl_api.cfg")),
            ("LSL_SECURE_CONFIG", secure),
            ("SUDO_USER", None),
            ("HOME", Some(place.into())),
        ];
        let process = Child::spawn(&words, &environment)?;
        let relay = Relay { process, port };
        let until = local_clock() + START_SECS;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if local_clock() > until {
                let text = format!("no relay came up: {}", relay.process.remarks().join(" | "));
                return Err(Failure::Runtime(text));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(relay)
    }

    /// Returns what a program at a site finds: its streams, and with `relay` what that has. Site 0 has the outlets;
    /// its number is one more than that of the last site for a program that sees no stream itself.
    pub(super) fn program(&self, site: usize, relay: Option<&Relay>) -> Outcome<Context> {
        let mut config = Config::from_text(&self.settings(site, relay, site == 0))?;
        if !self.is_multicast {
            config.set_bind(Bind::Loopback);
        }
        let off = Arc::new(Security::off(Vec::new())?);
        Ok(Context::with_security(config, off))
    }

    fn settings(&self, site: usize, relay: Option<&Relay>, has_outlets: bool) -> String {
        let base = self.base_port + SITE_PORTS * u16::try_from(site).unwrap_or(0);
        // Relays look for what tells of the streams, which is at the first ports: as on any network.
        let range = if has_outlets {
            SITE_PORTS - 1
        } else {
            SEARCHED_PORTS
        };
        let multicast = base + SITE_PORTS - 1;
        let (scope, peers) = if self.is_multicast {
            ("link", "")
        } else {
            ("machine", "KnownPeers = {127.0.0.1}\n")
        };
        let relay = relay.map_or_else(String::new, |it| {
            format!("Relay = {{127.0.0.1:{}}}\n", it.port)
        });
        format!(
            "[ports]\nBasePort = {base}\nPortRange = {range}\nMulticastPort = {multicast}\nIPv6 = disable\n\n\
             [multicast]\nResolveScope = {scope}\n\n\
             [lab]\nSessionID = lsl-bench-relay\n{peers}{relay}\n[log]\nlevel = -2\n"
        )
    }

    fn place(&self, site: usize) -> PathBuf {
        self.folder.path(&format!("site{site}"))
    }
}

impl Relay {
    pub(super) fn now(&self) -> Outcome<Moment> {
        let id = self.process.id();
        let gone = || {
            Failure::Lost(format!(
                "a relay ended: {}",
                self.process.remarks().join(" | ")
            ))
        };
        Ok(Moment {
            at: local_clock(),
            used: Used::of(id).ok_or_else(gone)?,
            switches: switches(Path::new(&format!("/proc/{id}/task"))).ok_or_else(gone)?,
        })
    }

    /// Returns what was used since `then`.
    pub(super) fn since(&self, then: Moment) -> Outcome<Cost> {
        let now = self.now()?;
        let secs = now.at - then.at;
        Ok(Cost {
            cores: (now.used.cpu_secs - then.used.cpu_secs) / secs,
            rss_mib: now.used.rss_mib,
            switches_per_s: now.switches.saturating_sub(then.switches) as f64 / secs,
        })
    }
}

impl Moment {
    pub(super) fn rss_mib(&self) -> f64 {
        self.used.rss_mib
    }
}

/// Times that threads of a process fell asleep so far.
fn switches(tasks: &Path) -> Option<u64> {
    let mut sum = 0;
    for task in fs::read_dir(tasks).ok()?.filter_map(Result::ok) {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        sum += field(&status, "voluntary_ctxt_switches:")?;
    }
    Some(sum)
}

/// Ports of a site: each outlet has one or two.
const SITE_PORTS: u16 = 4096;

/// Default of `PortRange`.
const SEARCHED_PORTS: u16 = 32;

const START_SECS: f64 = 20.0;
