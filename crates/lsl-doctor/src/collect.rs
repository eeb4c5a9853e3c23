//! Asks the machine and the network. The only part that knows sockets, files, processes and clocks.
//! Spec: doctor §3.1
//!
//! Linux is where all of it works; what another system does not tell stays unknown.

mod ask;
mod budget;
mod command;
mod configuration;
pub mod control;
mod dial;
mod files;
mod firewall;
mod host;
mod line;
mod loopback;
pub mod pair;
mod path;
mod peers;
mod plan;
mod post;
pub mod probe;
mod programs;
mod relays;
mod socket;
mod streams;
pub mod surroundings;
pub mod trust;
mod wave;
mod windows;

use std::net::{IpAddr, SocketAddr};
use std::thread;

use lsl_core::config::{Bind, Config, Loaded};
use lsl_core::{Context, Selector, StreamInfo, local_clock};
use serde_json::Value;

use crate::observe::peers::NeighbourSeen;
use crate::observe::{Asked, Interface, Observations, Os, PortsInUse, StreamSeen};
use crate::report::{Check, State};
use crate::table;

use self::budget::Budget;
pub use post::{PORT, Post};

/// What to look at.
#[derive(Clone, Copy)]
pub struct Wishes<'a> {
    /// The configuration in use.
    pub loaded: &'a Loaded,
    /// Searches as programs do.
    pub context: &'a Context,
    /// The stream that was named.
    pub selector: Option<&'a Selector>,
    /// What the user looks for, in words; `ports` and `session` are filled in.
    pub asked: &'a Asked,
    /// Hosts to ask directly, by their addresses; at the usual ports, and at this one unless it is 0.
    pub hosts: &'a [SocketAddr],
    /// Ports and a stream for the doctor at the other end, if there is one.
    pub post: Option<&'a Post>,
    /// Sends nothing to the network.
    pub is_local: bool,
    /// How much longer than usual each step may take.
    pub patience: f64,
    /// Whether the user wants to end.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Hears what is looked at.
    pub progress: &'a (dyn Fn(&str) + Sync),
}

impl std::fmt::Debug for Wishes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wishes")
            .field("asked", self.asked)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

/// Looks at everything. Takes about seven seconds, four if there are no streams, less if nothing may be sent.
pub fn run(wishes: &Wishes<'_>) -> (Observations, Vec<Check>) {
    let clock = host::ClockPair::read();
    let drops = host::drops(PortsInUse::default());
    let mut run = Run::new(wishes);
    let budget = Budget::new();
    let is_loopback = wishes.loaded.config.bind() != Bind::All;
    (wishes.progress)("this machine");
    run.machine(wishes);
    run.check(
        "fw.read",
        |_| true,
        |seen| seen.firewall = firewall::read(seen.asked.ports, RULES_SECS * wishes.patience),
    );
    (wishes.progress)("own filter");
    run.check(
        "loop",
        |_| !is_loopback,
        |seen| {
            seen.loopback = loopback::probe(seen, !wishes.is_local, wishes.patience);
        },
    );
    run.check(
        "loop.host",
        |_| true,
        |seen| seen.own_streams = wave::own(seen, wishes.patience),
    );
    (wishes.progress)("network");
    let may_send = !wishes.is_local && !(wishes.stop)();
    let mut infos = Vec::new();
    run.check(
        "wave",
        |_| may_send,
        |seen| infos = ask(seen, wishes, is_loopback, &budget),
    );
    run.check("relay", |seen| seen.relays.is_some(), |_| {});
    // Whatever there is to ask other machines, the streams themselves are opened.
    let of_streams = budget.set_aside(infos.len() * streams::MOST_ADDRESSES);
    if may_send && !is_loopback && !(wishes.stop)() {
        (wishes.progress)("other machines");
        run.peers(wishes, &budget);
    }
    run.streams(&infos, wishes, &of_streams);
    run.check("host.clock", |_| true, |seen| seen.clock_ppm = clock.ppm());
    run.check(
        "udp.drops",
        |_| true,
        |seen| {
            seen.drops = drops.and_then(|before| host::lost_since(&before));
        },
    );
    run.check("host.fds", |_| true, programs::look);
    run.check("lib.old", |_| true, |_| {});
    (run.seen, run.checks)
}

/// Looks at files, interfaces and ports alone: what a pair has to know before it begins.
pub fn machine(wishes: &Wishes<'_>) -> Observations {
    let mut run = Run::new(wishes);
    run.machine(wishes);
    run.seen
}

/// Looks at what explains at once that nothing was found by a search that just ended: nothing is sent to the
/// network, and it takes a second at most.
pub fn after_a_search(loaded: &Loaded, context: &Context, asked: &Asked) -> Observations {
    let never = || false;
    let wishes = Wishes {
        loaded,
        context,
        selector: None,
        asked,
        hosts: &[],
        post: None,
        is_local: true,
        patience: 1.0,
        stop: &never,
        progress: &|_| {},
    };
    let mut run = Run::new(&wishes);
    run.machine(&wishes);
    let is_loopback = loaded.config.bind() != Bind::All;
    run.check(
        "loop",
        |_| !is_loopback,
        |seen| seen.loopback = loopback::probe(seen, false, 1.0),
    );
    run.check(
        "loop.host",
        |_| true,
        |seen| seen.own_streams = wave::own(seen, 1.0),
    );
    run.seen.found = Some(Vec::new());
    // Asking for the rules takes a process; only a finding about them has a use for it.
    if table::diagnose(&run.seen)
        .findings
        .iter()
        .any(|it| it.id.starts_with("fw."))
    {
        run.seen.firewall = firewall::read(run.seen.asked.ports, RULES_AT_ONCE_SECS);
    }
    run.seen
}

/// Observations as they come, and the checks that made them.
struct Run {
    seen: Observations,
    checks: Vec<Check>,
}

impl Run {
    fn new(wishes: &Wishes<'_>) -> Self {
        let mut asked = wishes.asked.clone();
        let config: &Config = &wishes.loaded.config;
        asked.session.clone_from(&config.lab().session_id);
        asked.ports = PortsInUse {
            multicast: config.ports().multicast_port,
            base: config.ports().base_port,
            count: config.ports().port_range,
        };
        let seen = Observations {
            os: match std::env::consts::OS {
                "windows" => Os::Windows,
                "macos" => Os::Macos,
                _ => Os::Linux,
            },
            asked,
            ..Observations::default()
        };
        Self {
            seen,
            checks: Vec::new(),
        }
    }

    /// The layers that look at nothing but files, interfaces and ports.
    fn machine(&mut self, wishes: &Wishes<'_>) {
        self.check(
            "cfg.file",
            |_| true,
            |seen| {
                seen.config = Some(configuration::look(wishes.loaded));
            },
        );
        self.check(
            "cfg.secure",
            |_| true,
            |seen| {
                let error = wishes.context.security().err();
                seen.security_error =
                    Some(error.map(|error| error.to_string()).unwrap_or_default());
            },
        );
        self.check(
            "if.list",
            |_| true,
            |seen| seen.interfaces = host::interfaces(),
        );
        self.check("if.route", |_| true, |seen| seen.routes = peers::routes());
        self.seen.container = host::is_contained();
        self.check(
            "port.bind",
            |seen| seen.asked.ports.multicast != 0,
            |seen| {
                seen.multicast_port = host::multicast_port(seen.asked.ports.multicast);
            },
        );
    }

    /// Looks closely at streams that were found, as `found` has them.
    fn streams(&mut self, infos: &[StreamInfo], wishes: &Wishes<'_>, budget: &Budget) {
        let may_open = !infos.is_empty() && !(wishes.stop)();
        self.check("stream.seen", |_| may_open, |_| {});
        if may_open {
            (wishes.progress)("streams");
        }
        let open = |seen: &mut Observations| seen.probed = streams::open(infos, wishes, budget);
        self.check("stream.open", |_| may_open, open);
        let may_feed = |seen: &Observations| seen.probed.is_some() && !(wishes.stop)();
        let feed = |seen: &mut Observations| {
            let probed = seen.probed.as_deref_mut().unwrap_or_default();
            streams::feed(probed, infos, wishes);
        };
        self.check("stream.feed", may_feed, feed);
    }

    /// Looks at other machines, one by one. Each has checks of its own.
    fn peers(&mut self, wishes: &Wishes<'_>, budget: &Budget) {
        let start = local_clock();
        peers::look(&mut self.seen, wishes, budget);
        let ms = ms_since(start);
        let is_gateway = |it: &&NeighbourSeen| it.is_gateway;
        let (gates, others): (Vec<_>, Vec<_>) =
            self.seen.neighbours.iter().flatten().partition(is_gateway);
        for (id, all) in [("gate", gates), ("neigh", others)] {
            let data = serde_json::to_value(all).unwrap_or_default();
            self.checks.push(made(id, String::new(), ms, data));
        }
        for peer in self.seen.peers.iter().flatten() {
            let of = |id, data: serde_json::Result<Value>| {
                made(id, peer.text.clone(), ms, data.unwrap_or_default())
            };
            self.checks.extend([
                of("peer.name", serde_json::to_value(peer.address)),
                of("peer.route", serde_json::to_value(&peer.route)),
                of("peer.arp", serde_json::to_value(peer.arp)),
                of("peer.udp", serde_json::to_value(&peer.udp)),
                of("peer.tcp", serde_json::to_value(&peer.tcp)),
                of("peer.bound", serde_json::to_value(&peer.bound)),
                of("peer.ping", serde_json::to_value(peer.ping)),
                of("peer.mtu", serde_json::to_value(peer.mtu)),
            ]);
        }
    }

    /// Does a check if it is wanted, and notes how it went.
    fn check(
        &mut self,
        id: &str,
        is_wanted: impl FnOnce(&Observations) -> bool,
        look: impl FnOnce(&mut Observations),
    ) {
        let start = local_clock();
        let is_wanted = is_wanted(&self.seen);
        if is_wanted {
            look(&mut self.seen);
        }
        let data = if is_wanted {
            data_of(&self.seen, id)
        } else {
            Value::Null
        };
        let mut check = made(id, String::new(), ms_since(start), data);
        if !is_wanted {
            check.state = State::Skipped;
        }
        self.checks.push(check);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a run takes seconds"
)]
fn ms_since(start: f64) -> u64 {
    ((local_clock() - start) * 1000.0).max(0.0) as u64
}

/// A check that was made.
fn made(id: &str, subject: String, ms: u64, data: Value) -> Check {
    Check {
        id: id.to_owned(),
        subject,
        state: if data.is_null() {
            State::Unknown
        } else {
            State::Ok
        },
        ms,
        data,
    }
}

/// What a check observed.
fn data_of(seen: &Observations, id: &str) -> Value {
    let data = match id {
        "cfg.file" => serde_json::to_value(&seen.config),
        "cfg.secure" => serde_json::to_value(&seen.security_error),
        "if.list" => serde_json::to_value(&seen.interfaces),
        "if.route" => serde_json::to_value(&seen.routes),
        "port.bind" => serde_json::to_value(&seen.multicast_port),
        "fw.read" => serde_json::to_value(&seen.firewall),
        "loop" => serde_json::to_value(&seen.loopback),
        "loop.host" => serde_json::to_value(&seen.own_streams),
        "wave" => serde_json::to_value(&seen.wave),
        "relay" => serde_json::to_value(&seen.relays),
        "stream.seen" => serde_json::to_value(&seen.found),
        "stream.open" | "stream.feed" => serde_json::to_value(&seen.probed),
        "host.fds" => serde_json::to_value(&seen.descriptors),
        "lib.old" => serde_json::to_value(&seen.libraries),
        "host.clock" => serde_json::to_value(seen.clock_ppm),
        "udp.drops" => serde_json::to_value(&seen.drops),
        _ => return Value::Null,
    };
    data.unwrap_or(Value::Null)
}

/// Sends the waves, and beside them the searches that programs make: for all, and for the stream that was named.
/// Returns the streams to look at closely: those that were named, else some of all, of other machines first.
fn ask(
    seen: &mut Observations,
    wishes: &Wishes<'_>,
    is_loopback: bool,
    budget: &Budget,
) -> Vec<StreamInfo> {
    let timeout = std::time::Duration::from_secs_f64(SEARCH_SECS * wishes.patience);
    let (wave, found, test, named, relays) = thread::scope(|scope| {
        // On loopback nobody looks for others.
        let relays = scope.spawn(|| (!is_loopback).then(|| relays::look(wishes, budget))?);
        let search = |it: &Selector| wishes.context.resolve_blocking(it, 0, timeout);
        let found = scope.spawn(move || search(&Selector::all()));
        let context = wishes.post.map(|it| &it.context);
        let test = context
            .map(|it| scope.spawn(move || it.resolve_blocking(&Selector::all(), 0, timeout)));
        let named = wishes.selector.map(|it| scope.spawn(move || search(it)));
        let wave = if is_loopback {
            None
        } else {
            wave::ask(seen, wishes, budget)
        };
        (
            wave,
            found.join(),
            test.map(thread::ScopedJoinHandle::join),
            named.map(thread::ScopedJoinHandle::join),
            relays.join(),
        )
    });
    seen.relays = relays.ok().flatten();
    let own = own_addresses(seen.interfaces.as_deref().unwrap_or_default());
    let mut infos = Vec::new();
    // Not knowing is no reason to say that nothing was found.
    if let Ok(Ok(mut found)) = found {
        // The stream of the doctor at the other end is opened and read as all are.
        found.extend(
            test.and_then(Result::ok)
                .and_then(Result::ok)
                .unwrap_or_default(),
        );
        found.sort_by_cached_key(|info| {
            let stream = stream_of(info, None, &own);
            (stream.is_here, stream.name, stream.uid)
        });
        infos.extend(found.iter().take(MOST_OPENED).cloned());
        let found: Vec<StreamSeen> = found
            .iter()
            .map(|info| stream_of(info, None, &own))
            .collect();
        // On loopback nobody looks for others.
        if !is_loopback || seen.asked.stream.is_some() {
            seen.found = Some(found);
        }
    }
    if let (Some(stream), Some(Ok(Ok(named)))) = (&mut seen.asked.stream, named) {
        stream.found = !named.is_empty();
        infos = named;
        infos.truncate(MOST_OPENED);
    }
    if let (Some(wave), Some(mine)) = (&wave, &mut seen.own_streams) {
        for stream in wave.streams.iter().filter(|it| it.is_here) {
            if !mine.iter().any(|it| it.uid == stream.uid) {
                mine.push(stream.clone());
            }
        }
    }
    seen.wave = wave;
    infos
}

/// Returns what is kept of a stream info, whose answer came from this address.
fn stream_of(info: &StreamInfo, from: Option<IpAddr>, own: &[IpAddr]) -> StreamSeen {
    let address = from.or_else(|| {
        let v4 = info.v4_address().parse().ok();
        v4.or_else(|| info.v6_address().split('%').next()?.parse().ok())
    });
    let port = match info.v4_data_port() {
        0 => info.v6_data_port(),
        port => port,
    };
    StreamSeen {
        uid: info.uid().into_owned(),
        name: info.name().into_owned(),
        stream_type: info.stream_type().into_owned(),
        source_id: info.source_id().into_owned(),
        hostname: info.hostname().into_owned(),
        session: info.session_id().into_owned(),
        version: info.version(),
        address,
        is_here: address.is_some_and(|it| it.is_loopback() || own.contains(&it)),
        port,
        service_port: match info.v4_service_port() {
            0 => info.v6_service_port(),
            port => port,
        },
        waves: 0,
        by_group: false,
    }
}

fn own_addresses(interfaces: &[Interface]) -> Vec<IpAddr> {
    interfaces
        .iter()
        .flat_map(|it| it.addresses.iter().map(|(address, _)| *address))
        .collect()
}

/// Time of all commands that tell the rules of the firewall.
const RULES_SECS: f64 = 2.0;
const RULES_AT_ONCE_SECS: f64 = 0.4;
/// Time of the search beside the waves; `lsl list` takes 1.5 s.
const SEARCH_SECS: f64 = 2.0;
/// Streams that are opened; of hundreds, some tell enough.
const MOST_OPENED: usize = 32;
