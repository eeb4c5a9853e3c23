//! Test 15 of relay §14: devices with keys read what they may, while rules are reloaded and keys are revoked.
//! `LSL_TEST_DEVICES` says how many there are.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use lsl_core::relay::dial;
use lsl_core::secure::config::Settings;
use lsl_core::secure::trust::{Peer, TrustedRole};
use lsl_core::secure::{Policy, SecretKey, Security, keyfile};
use lsl_core::{ContinuousResolver, ResolverEvent};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::runtime::Runtime;

use super::*;

const KIND: &str = "devices";

/// A device and a stream.
type Pair = (usize, usize);

/// What devices may read, and what they do.
struct Lab {
    /// Times up to which a device might read a stream; infinite if it may now.
    allowed: Mutex<HashMap<Pair, f64>>,
    /// Times at which the newest sample came of each.
    newest: Mutex<HashMap<Pair, f64>>,
    mistakes: Mutex<Vec<String>>,
    samples: AtomicU64,
    is_over: AtomicBool,
}

/// Ends the threads of devices also if the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Lab {
    /// Takes over who may read what from now on. Returns how many feeds are to end.
    fn change(&self, now: f64, may_read: &BTreeSet<Pair>) -> usize {
        let mut allowed = self.allowed.lock().expect("it");
        for (pair, until) in allowed.iter_mut() {
            if !may_read.contains(pair) {
                *until = until.min(now);
            }
        }
        allowed.extend(may_read.iter().map(|pair| (*pair, f64::INFINITY)));
        let flowing = self.flowing(now);
        flowing.iter().filter(|it| !may_read.contains(it)).count()
    }

    /// Returns the feeds of which samples came within the last second.
    fn flowing(&self, now: f64) -> BTreeSet<Pair> {
        let newest = self.newest.lock().expect("it");
        let flowing = newest.iter().filter(|(_, at)| now - **at < 1.0);
        flowing.map(|(pair, _)| *pair).collect()
    }

    /// Notes what a device must not know: 5 s after it lost the right, or ever, if it had none.
    fn check(&self, pair: Pair, at: f64, what: &str) {
        let allowed = self.allowed.lock().expect("it");
        let until = allowed.get(&pair).copied();
        if until.is_none_or(|until| at > until + END_SECS) {
            let mistake = format!("{what} {pair:?} at {at}, allowed until {until:?}");
            self.mistakes.lock().expect("it").push(mistake);
        }
    }

    /// Reads all that a device is told of, and tries again what it was ever told of.
    fn live(&self, device: usize, context: &Context) {
        let selector = Selector::property("type", own(KIND)).expect("a selector");
        let resolver = ContinuousResolver::in_context(context, &selector, FORGET);
        let resolver = resolver.expect("a search");
        let mut feeds: HashMap<usize, (StreamInfo, Option<Inlet>, f64)> = HashMap::new();
        while !self.is_over.load(Ordering::Relaxed) {
            while let Some(event) = resolver.next_event_blocking(Duration::ZERO) {
                if let ResolverEvent::Appeared(info) | ResolverEvent::Changed(info) = event {
                    let stream = info.name().parse().expect("a number");
                    self.check((device, stream), local_clock(), "announced");
                    feeds.entry(stream).or_insert((info, None, 0.0)).2 = 0.0;
                }
            }
            for (stream, (info, feed, next_try)) in &mut feeds {
                let (pair, now) = ((device, *stream), local_clock());
                if feed.is_none() && now > *next_try {
                    let builder = Inlet::builder(info).context(context).recover(false);
                    *feed = Some(builder.create().expect("an inlet"));
                    *next_try = now + RETRY_SECS;
                }
                if let Some(inlet) = feed
                    && !self.pull(pair, inlet)
                {
                    *feed = None;
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Pulls what is there. False if the feed has ended.
    fn pull(&self, pair: Pair, inlet: &Inlet) -> bool {
        let mut value = [-1];
        loop {
            match inlet.try_pull(&mut value) {
                Ok(Some(pushed)) => {
                    self.check(pair, pushed, "sample");
                    assert_eq!(usize::try_from(value[0]), Ok(pair.1));
                    self.samples.fetch_add(1, Ordering::Relaxed);
                    self.newest.lock().expect("it").insert(pair, local_clock());
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Waits until exactly these pairs flow. Returns after how many seconds none did that must not.
    fn settle(&self, since: f64, may_read: &BTreeSet<Pair>) -> f64 {
        let mut ended = None;
        loop {
            let now = local_clock();
            let (flowing, took) = (self.flowing(now), now - since);
            let over: Vec<_> = flowing.difference(may_read).collect();
            if over.is_empty() {
                ended.get_or_insert(took);
            }
            assert!(ended.is_some() || took < END_SECS + 1.0, "{over:?} go on");
            let missing: Vec<_> = may_read.difference(&flowing).collect();
            if let (Some(ended), true) = (ended, missing.is_empty()) {
                return ended;
            }
            assert!(took < SETTLE_SECS, "no samples come of {missing:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A relay with a key, and the files that say whom it trusts.
struct Hub {
    dir: PathBuf,
    key: SecretKey,
    /// Of its network.
    config: Config,
    relay: Relay,
}

impl Hub {
    fn start(trusted: &[Peer]) -> Self {
        let dir = std::env::temp_dir().join(format!("lsl-relay-devices-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        let key = SecretKey::from_seed(&[200; 32]);
        keyfile::write_new_key(&dir.join("key.pem"), &key, None).expect("a key");
        write_trust(&dir, trusted);
        let settings = "[security]\nname = \"hub\"\npolicy = \"off\"\nkey_file = \"key.pem\"\n\
            trusted_peers = \"peers.toml\"\naudit_file = \"hub.jsonl\"\n";
        fs::write(dir.join("lsl-secure.toml"), settings).expect("written");
        let security = Security::from_file(&dir.join("lsl-secure.toml")).expect("security");
        let config = context().config().clone();
        let context = Context::with_security(config.clone(), Arc::new(security));
        let relay = relay(&context, "[[rule]]\nreaders = []\n");
        Self {
            dir,
            key,
            config,
            relay,
        }
    }

    /// Reloads the configuration: each stream may be read by these devices alone.
    fn set_rules(&mut self, rules: &[BTreeSet<usize>], trusted: &[Peer]) {
        let rules = rules.iter().enumerate().map(|(stream, readers)| {
            let is_trusted = |it: &&usize| trusted.iter().any(|peer| peer.name == name(**it));
            let readers: Vec<_> = readers
                .iter()
                .filter(is_trusted)
                .map(|it| name(*it))
                .collect();
            format!("[[rule]]\nmatch = \"name='{stream}'\"\nreaders = {readers:?}\n")
        });
        let rules = rules.collect::<String>() + "[[rule]]\nreaders = []\n";
        let trust = TrustList::from_peers(trusted.to_vec()).expect("a list");
        let mut config = RelayConfig::parse(&rules, &trust).expect("rules");
        config.listen = self.relay.addresses().to_vec();
        self.relay.reload(&config);
    }

    /// How often auditors were told of this.
    fn audited(&self, event: &str) -> u64 {
        let text = fs::read_to_string(self.dir.join("hub.jsonl")).expect("a file");
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let lines = lines.filter(|line: &Value| line["event"] == event);
        lines
            .map(|line| 1 + line["suppressed"].as_u64().unwrap_or(0))
            .sum()
    }
}

fn write_trust(dir: &Path, trusted: &[Peer]) {
    let text: String = trusted.iter().map(Peer::to_toml).collect();
    fs::write(dir.join("new"), text).expect("written");
    fs::rename(dir.join("new"), dir.join("peers.toml")).expect("renamed");
}

fn name(device: usize) -> String {
    format!("device{device}")
}

fn entry(name: String, key: &SecretKey, role: TrustedRole) -> Peer {
    Peer {
        name,
        key: key.public(),
        role,
        not_after: None,
        from: Vec::new(),
        streams: Vec::new(),
    }
}

/// Asks for a feed as nobody does who was told of nothing. Returns the first line of the answer.
fn ask(runtime: &Runtime, context: &Context, address: String, uid: &str) -> String {
    let request = format!("LSL:streamfeed/110 {uid}\r\nMax-Buffer-Length: 360\r\n\r\n");
    let (context, (done, is_done)) = (context.clone(), mpsc::channel());
    runtime.spawn(async move {
        let dialled = dial(&context, &address, SOON, request.as_bytes()).await;
        let (mut duplex, _) = dialled.expect("a session");
        let mut answer = [0; 21];
        let count = duplex.read(&mut answer).await.expect("an answer");
        let _ = done.send(String::from_utf8_lossy(&answer[..count]).into_owned());
    });
    is_done.recv_timeout(SOON).expect("an answer")
}

#[test]
fn devices_read_what_they_may_while_rules_change_and_keys_are_revoked() {
    let told = std::env::var("LSL_TEST_DEVICES").ok();
    let devices = told.map_or(4, |devices| devices.parse().expect("a number"));
    let (streams, rounds) = (devices * 5 / 2, if devices < 20 { 3 } else { 12 });
    let keys = (0..devices).map(|it| SecretKey::from_seed(&[u8::try_from(it).expect("few"); 32]));
    let keys: Vec<_> = keys.collect();
    let peers = keys.iter().enumerate();
    let peers = peers.map(|(it, key)| entry(name(it), key, TrustedRole::Inlet));
    let peers: Vec<_> = peers.collect();
    let mut hub = Hub::start(&peers);
    let address = hub.relay.addresses()[0].to_string();
    let contexts = keys.into_iter().map(|key| {
        let near = context_with(&[("lab.Relay", &format!("{{{address}}}"))]);
        let trust = vec![entry("hub".into(), &hub.key, TrustedRole::Relay)];
        let trust = TrustList::from_peers(trust).expect("a list");
        let security = Security::from_parts(Settings::new(Policy::Required), key, trust);
        Context::with_security(near.config().clone(), Arc::new(security.expect("security")))
    });
    let contexts: Vec<_> = contexts.collect();
    // The relay is told of no stream before its rules are there.
    let plain = Context::new(hub.config.clone());
    let outlets: Vec<_> = (0..streams)
        .map(|it| outlet(&plain, KIND, &it.to_string()))
        .collect();
    let lab = Lab {
        allowed: Mutex::default(),
        newest: Mutex::default(),
        mistakes: Mutex::default(),
        samples: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    let runtime = Runtime::new().expect("threads");
    let mut dice = Dice(15);
    let (mut ended, mut asked, mut revoked, mut slowest) = (0, 0, 0, 0.0_f64);
    thread::scope(|scope| {
        let _end = EndOnDrop(&lab.is_over);
        for (device, context) in contexts.iter().enumerate() {
            let lab = &lab;
            scope.spawn(move || lab.live(device, context));
        }
        scope.spawn(|| {
            while !lab.is_over.load(Ordering::Relaxed) {
                for (value, outlet) in (0..).zip(&outlets) {
                    outlet.push_at(&[value], local_clock()).expect("pushed");
                }
                thread::sleep(PERIOD);
            }
        });
        let mut rules: Vec<BTreeSet<usize>> = Vec::new();
        let mut trusted = peers.clone();
        for round in 0..rounds {
            let is_revocation = round % 3 == 1;
            if is_revocation {
                trusted.retain(|_| dice.below(4) != 0);
                trusted.truncate(devices - 1);
                revoked += devices - trusted.len();
            } else {
                trusted = peers.clone();
                let mut some = || (0..devices).filter(|_| dice.below(2) == 0).collect();
                rules = (0..streams).map(|_| some()).collect();
            }
            let names: BTreeSet<_> = trusted.iter().map(|peer| &*peer.name).collect();
            let pairs = (0..devices).flat_map(|device| (0..streams).map(move |it| (device, it)));
            let (may, may_not): (BTreeSet<_>, BTreeSet<_>) = pairs.partition(|(device, stream)| {
                names.contains(&*name(*device)) && BTreeSet::contains(&rules[*stream], device)
            });
            let now = local_clock();
            let ends = lab.change(now, &may);
            write_trust(&hub.dir, &trusted);
            if !is_revocation {
                hub.set_rules(&rules, &trusted);
                ended += ends as u64;
            }
            slowest = slowest.max(lab.settle(now, &may));
            for device in (0..devices).filter(|it| names.contains(&*name(*it))) {
                let stream = may_not.iter().find(|it| it.0 == device).expect("one").1;
                let uid = outlets[stream].info().uid().into_owned();
                let answer = ask(&runtime, &contexts[device], address.clone(), &uid);
                assert_eq!(answer, "LSL/110 404 Not found");
                asked += 1;
            }
        }
    });
    assert_eq!(lab.mistakes.into_inner().expect("it"), [""; 0]);
    let until = local_clock() + SOON.as_secs_f64();
    let audited = || ["stream_refused", "revoked"].map(|event| hub.audited(event));
    while audited()[0] < ended + asked || audited()[1] < revoked as u64 {
        assert!(local_clock() < until, "{:?} of {ended}, {asked}", audited());
        thread::sleep(Duration::from_millis(50));
    }
    assert!(ended > 0 && revoked > 0);
    println!(
        "{devices} devices, {streams} streams, {rounds} changes, {revoked} keys revoked: {} samples; \
         {ended} feeds ended by rules and {asked} refused, the last after {slowest:.2} s; audited: {:?}",
        lab.samples.into_inner(),
        audited(),
    );
    fs::remove_dir_all(&hub.dir).expect("removed");
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// How long a feed may go on without the right to read. Spec: relay §10.
const END_SECS: f64 = 5.0;

const SETTLE_SECS: f64 = 60.0;
/// The relay lets one address try only so often, and all devices have the same.
const RETRY_SECS: f64 = 5.0;
const PERIOD: Duration = Duration::from_millis(100);
const FORGET: Duration = Duration::from_mins(10);
