//! The one table of configuration keys. Defaults, parsing, `lsl config show`, the sample file and
//! the suggestions for misspelt keys all come from it; a new key is one new line here and one field
//! in `config`. Spec: lsl-protocol §12.

use std::net::IpAddr;

use super::values::{Range, Setting};
use super::{
    HostPort, InterfaceAddress, Ipv6Mode, KnownPeer, MulticastGroup, ResolveScope, Values,
};

/// One key that `lsl_api.cfg` may contain.
#[derive(Debug)]
pub struct Key {
    /// Section of the file, without brackets.
    pub section: &'static str,
    /// Name inside the section; case matters.
    pub name: &'static str,
    /// Default as it would be written in a file.
    pub default: &'static str,
    /// Description of the accepted text, in words.
    pub kind: &'static str,
    /// Smallest and largest usable number, where the type leaves room for useless ones.
    pub range: Option<(f64, f64)>,
    /// First liblsl version that knows the key, for keys that are not as old as 1.16.
    pub since: Option<&'static str>,
    /// Explanation for people, in one sentence.
    pub doc: &'static str,
    /// False for keys that are accepted because liblsl has them and that change nothing here.
    pub effective: bool,
    pub(super) read: fn(&mut Values, &str, Range, &mut Vec<String>) -> Result<(), String>,
    pub(super) show: fn(&Values) -> String,
}

impl Key {
    /// Returns the full name, as `section.name`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    fn has_path(&self, path: &str) -> bool {
        path.split_once('.') == Some((self.section, self.name))
    }
}

/// Finds the key called `section.name`. Returns its index in the table, too.
pub(super) fn find(path: &str) -> Option<(usize, &'static Key)> {
    KEYS.iter().enumerate().find(|(_, key)| key.has_path(path))
}

/// Returns the key that the writer of an unknown key probably meant.
pub(super) fn suggest(path: &str) -> Option<&'static Key> {
    let name = path.rsplit_once('.').map_or(path, |(_, name)| name);
    if let Some(key) = KEYS.iter().find(|key| key.name.eq_ignore_ascii_case(name)) {
        return Some(key);
    }
    let wanted = name.to_ascii_lowercase();
    let tolerance = (wanted.len() / 3).clamp(1, 4);
    KEYS.iter()
        .map(|key| (distance(&wanted, &key.name.to_ascii_lowercase()), key))
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, key)| key)
}

/// Returns a complete configuration file: every key with its explanation and default, commented
/// out. Reading it back changes nothing.
pub fn sample_file() -> String {
    let mut text = String::from(
        "; Configuration of Lab Streaming Layer (lsl_api.cfg).\n\
         ; Every key is shown with its default; remove the ';' in front of those you change.\n\
         ; Comments need a line of their own that starts with ';'.\n",
    );
    let mut section = "";
    for key in KEYS {
        if key.section != section {
            section = key.section;
            text.extend(["\n[", section, "]\n"]);
        }
        let range = key
            .range
            .map(|(low, high)| format!(", {low} to {high}"))
            .unwrap_or_default();
        let since = key
            .since
            .map(|version| format!(", liblsl {version}"))
            .unwrap_or_default();
        text.extend(["; ", key.doc, " (", key.kind, &range, &since, ")\n"]);
        text.extend([";", key.name, " = ", key.default, "\n"]);
    }
    text
}

/// Counts the insertions, removals and replacements between two words.
fn distance(a: &str, b: &str) -> usize {
    let mut costs: Vec<usize> = (0..=b.chars().count()).collect();
    for (row, from) in a.chars().enumerate() {
        let mut left = row + 1;
        let mut diagonal = row;
        for (cost, to) in costs
            .iter_mut()
            .zip(std::iter::once(None).chain(b.chars().map(Some)))
        {
            let Some(to) = to else {
                *cost = left;
                continue;
            };
            let best = (diagonal + usize::from(from != to))
                .min(*cost + 1)
                .min(left + 1);
            diagonal = *cost;
            *cost = best;
            left = best;
        }
    }
    costs.last().copied().unwrap_or_default()
}

macro_rules! keys {
    ($([$section:ident] { $(
        $name:ident = $default:literal, $field:ident : $type:ty, $doc:literal
        $(, range $range:expr)? $(, since $since:literal)? $(, effective $effective:expr)?;
    )+ })+) => {
        /// Every key, in the order of the sample file.
        pub static KEYS: &[Key] = &[$($(
            Key {
                section: stringify!($section),
                name: stringify!($name),
                default: $default,
                kind: <$type as Setting>::KIND,
                range: keys!(@option $($range)?),
                since: keys!(@option $($since)?),
                doc: $doc,
                effective: true $(&& $effective)?,
                read: |values, text, range, problems| {
                    values.$section.$field = <$type>::read(text, range, problems)?;
                    Ok(())
                },
                show: |values| values.$section.$field.show(),
            },
        )+)+];
    };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
}

/// Range of periods in seconds: waiting for less than a millisecond would spin.
const PERIOD: (f64, f64) = (0.001, 1e9);
const WAIT: (f64, f64) = (0.0, 1e9);

keys! {
    [ports] {
        MulticastPort = "16571", multicast_port: u16, "UDP port on which outlets hear multicast queries.";
        BasePort = "16572", base_port: u16, "First port that outlets and resolvers try; 0: any free one.";
        PortRange = "32", port_range: u16, "Number of ports tried from BasePort on; known peers are searched on them.";
        AllowRandomPorts = "1", allow_random_ports: bool, "Take any free port when the range is used up.";
        IPv6 = "allow", ipv6: Ipv6Mode, "disable: IPv4 only; allow: both; force: IPv6 only.";
    }
    [multicast] {
        ResolveScope = "site", resolve_scope: ResolveScope, "How far queries reach; each scope includes the ones before it.";
        ListenAddress = "", listen_address: Option<IpAddr>, "Address to which multicast responders bind instead of all; on Linux this stops group traffic.";
        IPv6MulticastGroup = "113D:6FDD:2C17:A643:FFE2:1BD1:3CD2", ipv6_group: MulticastGroup, "IPv6 group after the prefix that the scope gives.";
        MachineAddresses = "{127.0.0.1}", machine_addresses: Vec<IpAddr>, "Addresses queried from scope machine on.";
        LinkAddresses = "{255.255.255.255, 224.0.0.1, 224.0.0.183}", link_addresses: Vec<IpAddr>, "Addresses queried from scope link on.";
        SiteAddresses = "{239.255.172.215}", site_addresses: Vec<IpAddr>, "Addresses queried from scope site on.";
        OrganizationAddresses = "{}", organization_addresses: Vec<IpAddr>, "Addresses queried from scope organization on.";
        GlobalAddresses = "{}", global_addresses: Vec<IpAddr>, "Addresses queried in scope global.";
        TTLOverride = "-1", ttl_override: i32, "Routers that queries may pass, instead of the number that the scope gives; -1: off.", range (-1.0, 255.0);
        AddressesOverride = "{}", addresses_override: Vec<IpAddr>, "When not empty, these addresses replace all the lists above.";
        Interfaces = "{}", interfaces: Vec<InterfaceAddress>, "Addresses of the interfaces to use; empty: all that can multicast.";
        InterfaceNames = "{}", interface_names: Vec<String>, "Names of the interfaces to use, with * ? [a-z]; ! denies, the first that fits counts: {!tun*} (only lsl-rs).";
    }
    [lab] {
        KnownPeers = "{}", known_peers: Vec<KnownPeer>, "Hosts that are asked directly, for networks without multicast (ports and networks only for lsl-rs); searches read it again every 10 s.";
        SessionID = "default", session_id: String, "Only streams of the same session see each other.";
        ResolveOverTCP = "0", resolve_over_tcp: bool, "Resolve over TCP too.", since "1.18";
        Relay = "{}", relay: Vec<HostPort>, "Relays that are asked for the streams behind them, at port 16570 if none is said (only lsl-rs).";
        SelfHealing = "1", self_healing: bool, "Find and keep streams in more ways than liblsl tries; 0: send and connect as liblsl does (only lsl-rs).";
        AskNeighbours = "0", ask_neighbours: bool, "Ask the hosts that the system knows on its networks, where a search finds nothing; looks like a scan (only lsl-rs).";
    }
    [tuning] {
        UseProtocolVersion = "110", protocol_version: u32, "Newest protocol to use: 110, or 100 for very old peers.", range (100.0, 110.0);
        WatchdogCheckInterval = "15.0", watchdog_check_interval_secs: f64, "How often an inlet checks whether its stream is alive.", range PERIOD;
        WatchdogTimeThreshold = "15.0", watchdog_time_threshold_secs: f64, "Silence after which an inlet searches its stream again.", range WAIT;
        MulticastMinRTT = "0.5", multicast_min_rtt_secs: f64, "Time between multicast queries.", range PERIOD;
        MulticastMaxRTT = "3.0", multicast_max_rtt_secs: f64, "How long answers to a multicast query are accepted.", range PERIOD;
        UnicastMinRTT = "0.75", unicast_min_rtt_secs: f64, "Time between queries to known peers.", range PERIOD;
        UnicastMaxRTT = "5.0", unicast_max_rtt_secs: f64, "How long answers of known peers are accepted.", range PERIOD;
        ContinuousResolveInterval = "0.5", continuous_resolve_interval_secs: f64, "Extra pause between the queries of a continuous resolver.", range WAIT;
        TimerResolution = "1", timer_resolution_ms: u32, "Timer resolution in ms on Windows.", effective cfg!(windows);
        MaxCachedQueries = "100", max_cached_queries: u32, "Number of queries whose answers an outlet remembers.", range (0.0, 1e6);
        TimeUpdateInterval = "2.0", time_update_interval_secs: f64, "Time between two measurements of the clock offset.", range PERIOD;
        TimeUpdateMinProbes = "6", time_update_min_probes: u32, "Answers needed to accept a measurement.", range (1.0, 1000.0);
        TimeProbeCount = "8", time_probe_count: u32, "Probes per measurement.", range (1.0, 1000.0);
        TimeProbeInterval = "0.064", time_probe_interval_secs: f64, "Time between probes.", range PERIOD;
        TimeProbeMaxRTT = "0.128", time_probe_max_rtt_secs: f64, "How long to wait for the answer to the last probe.", range WAIT;
        OutletBufferReserveMs = "5000", outlet_buffer_reserve_ms: u32, "Memory reserved in outlets, in ms of data.", effective false;
        OutletBufferReserveSamples = "128", outlet_buffer_reserve_samples: u32, "Memory reserved in outlets of irregular rate, in samples.", effective false;
        InletBufferReserveMs = "5000", inlet_buffer_reserve_ms: u32, "Memory reserved in inlets, in ms of data.", effective false;
        InletBufferReserveSamples = "128", inlet_buffer_reserve_samples: u32, "Memory reserved in inlets of irregular rate, in samples.", effective false;
        SendSocketBufferSize = "0", send_socket_buffer_bytes: u32, "Send buffer of an outlet's connections in bytes; 0: as the system has it.";
        ReceiveSocketBufferSize = "0", receive_socket_buffer_bytes: u32, "Receive buffer of an outlet's connections in bytes; 0: as the system has it.";
        SmoothingHalftime = "90.0", smoothing_halftime_secs: f32, "Half-time of the dejitter filter.", range WAIT;
        ForceDefaultTimestamps = "0", force_default_timestamps: bool, "Stamp samples when they are pushed, whatever the program says.";
        MaxConsumers = "1000", max_consumers: u32, "Readers that an outlet serves at a time; the last tenth of these places is for hosts without a reader (only lsl-rs).", range (1.0, 1e6);
        InletBufferLimit = "2048", inlet_buffer_limit_mib: u32, "Memory in MiB that samples waiting in an inlet may take; beyond it the oldest are dropped (only lsl-rs).", range (1.0, 1e9);
        SyncSendTimeout = "15.0", sync_send_timeout_secs: f64, "How long a synchronous outlet waits for a stalled reader before it drops it.", range WAIT, since "1.18";
        Resume = "1", resume: bool, "Inlets ask outlets of lsl-rs for the samples that they missed while a connection was broken (only lsl-rs).";
        RetainSeconds = "30.0", retain_secs: f64, "How long an outlet keeps samples in memory for readers of lsl-rs that come back or join late; 0: not at all (only lsl-rs).", range (0.0, 86400.0);
        RetainBytes = "8388608", retain_bytes: u64, "Memory in bytes that an outlet keeps them in (only lsl-rs).", range (65536.0, 1_099_511_627_776.0);
        RetainTotalBytes = "134217728", retain_total_bytes: u64, "The same for all outlets of a program together (only lsl-rs).", range (1_048_576.0, 17_592_186_044_416.0);
        RetainUnread = "0", retain_unread: bool, "Keep samples also while no reader of lsl-rs is or was just there (only lsl-rs).";
    }
    [log] {
        level = "0", level: i32, "From -3 (only fatal errors) over 0 (information) to 9 (everything).";
        file = "", file: String, "File to which the log is written instead of the standard error output.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Origin, ini};

    #[test]
    fn suggestions() {
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(suggest(path).map(Key::path).as_deref(), expected, "{path}");
        };
        check("ports.baseport", Some("ports.BasePort"));
        check("tuning.BasePort", Some("ports.BasePort"));
        check("BasePort", Some("ports.BasePort"));
        check("lab.SesionID", Some("lab.SessionID"));
        check("lab.KnownPeer", Some("lab.KnownPeers"));
        check("tuning.TimeProbeMaxRT", Some("tuning.TimeProbeMaxRTT"));
        check("multicast.ResolveScop", Some("multicast.ResolveScope"));
        check("lab.Colour", None);
        check("", None);
    }

    #[test]
    fn edit_distance() {
        for (a, b, expected) in [
            ("", "", 0),
            ("a", "", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("ab", "ba", 2),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn every_default_is_a_good_value_and_the_effective_one() {
        let config = Config::default();
        for key in KEYS {
            let mut problems = Vec::new();
            let mut values = Values::default();
            (key.read)(&mut values, key.default, key.range, &mut problems).expect(key.name);
            assert_eq!(problems, [""; 0], "{}", key.path());
            assert_eq!(
                (key.show)(&values),
                (key.show)(&config.values),
                "{}",
                key.path()
            );
            assert_eq!((key.show)(&values), key.default, "{}", key.path());
        }
    }

    #[test]
    fn the_sample_file_is_valid_with_and_without_its_comments() {
        let sample = sample_file();
        assert_eq!(ini::parse(&sample), Ok(vec![]));
        // A key whose default is "no text" cannot be written: an empty value is a syntax error.
        let enabled: String = sample
            .lines()
            .map(|line| match line.strip_prefix(';') {
                Some(rest) if !rest.starts_with(' ') && !rest.ends_with("= ") => rest,
                _ => line,
            })
            .flat_map(|line| [line, "\n"])
            .collect();
        let config = Config::from_text(&enabled).unwrap();
        assert_eq!(config.values, Config::default().values);
        let set = config
            .entries()
            .iter()
            .filter(|e| e.origin != Origin::Default)
            .count();
        assert_eq!(
            set,
            KEYS.iter().filter(|key| !key.default.is_empty()).count()
        );
    }
}
