//! What a flood of hostile discovery queries does to the streams of a process: latency, clock offset and
//! discovery, quiet and under 1,000 datagrams a second from one source and from 254.
//!
//! `cargo run --release -p lsl-benches --bin flood [SERVER…]`, three minutes. Each SERVER is this program
//! as built from some state of the workspace, which has the outlets; they take turns. Loopback only.
#![expect(clippy::print_stdout, reason = "a command that prints a table")]

use std::error::Error;
use std::io::{BufRead, BufReader, Read, stdin};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lsl_core::config::Config;
use lsl_core::secure::config::Settings;
use lsl_core::secure::trust::{Peer, TrustList, TrustedRole};
use lsl_core::secure::{Policy, SecretKey, Security};
use lsl_core::{ChannelFormat, Context, Inlet, Outlet, Selector, StreamInfo, local_clock};

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const ROUNDS: usize = 3;
const STREAMS: usize = 16;
/// More than the pushing thread sends to: the thread that is attacked sends to the others.
const READERS: usize = 8;
const SECS: f64 = 5.0;
const ATTACKERS: [u8; 3] = [0, 1, 254];
const BASE_PORT: u16 = 24_000;
const SOON: Duration = Duration::from_secs(20);

fn main() -> Result {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, serve, policy] = arguments.as_slice()
        && serve == "serve"
    {
        return run_outlets(policy);
    }
    let own = std::env::current_exe()?.display().to_string();
    let servers = match arguments.get(1..) {
        Some(given) if !given.is_empty() => given.to_vec(),
        _ => vec![own],
    };
    println!(
        "server policy attackers | p50 us  p99 us  max us | worst offset ms | resolved, slowest s"
    );
    for _ in 0..ROUNDS {
        for policy in ["off", "required"] {
            for (number, server) in servers.iter().enumerate() {
                for attackers in ATTACKERS {
                    let row = measure(server, policy, attackers)?;
                    println!("{number:6} {policy:8} {attackers:7} | {row}");
                }
            }
        }
    }
    Ok(())
}

fn context(policy: &str) -> Result<Context> {
    let mut config = Config::loopback();
    config.set_ports(BASE_PORT, 40);
    config.set_session_id("flood")?;
    config.set("tuning.TimeUpdateInterval", "0.6")?;
    let security = if policy == "off" {
        Security::off(Vec::new())?
    } else {
        let key = SecretKey::from_seed(&[7; 32]);
        let itself = Peer {
            name: "lab".to_owned(),
            key: key.public(),
            role: TrustedRole::Both,
            not_after: None,
            from: Vec::new(),
            streams: Vec::new(),
        };
        let trust = TrustList::from_peers(vec![itself])?;
        Security::from_parts(Settings::new(Policy::Required), key, trust)?
    };
    Ok(Context::with_security(config, Arc::new(security)))
}

/// The process that is attacked: until its standard input ends.
fn run_outlets(policy: &str) -> Result {
    let context = context(policy)?;
    let mut outlets = Vec::new();
    for number in 0..STREAMS {
        let (name, source) = (format!("stream-{number}"), format!("source-{number}"));
        let format = ChannelFormat::Double64;
        let mut info = StreamInfo::new(name, "EEG", 1, 250.0, format, source)?;
        let mut channels = info.desc_mut().into_child("channels");
        for label in 0..64 {
            let mut channel = channels.append_child("channel");
            channel.set("label", format!("C{label}"));
            channel.set("unit", "microvolts");
        }
        outlets.push(Outlet::builder(info).context(&context).open()?);
    }
    if let Some(outlet) = outlets.first() {
        println!("{}", outlet.info().v4_service_port());
    }
    thread::spawn(move || {
        loop {
            for outlet in &outlets {
                // Nobody is told of a reader that left.
                let _ = outlet.push(&[local_clock()]);
            }
            thread::sleep(Duration::from_millis(4));
        }
    });
    stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

struct Served {
    child: Child,
    port: u16,
}

impl Served {
    fn start(server: &str, policy: &str) -> Result<Self> {
        let mut child = Command::new(server)
            .args(["serve", policy])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or("no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let port = line.trim().parse()?;
        Ok(Self { child, port })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn measure(server: &str, policy: &str, attackers: u8) -> Result<String> {
    let served = Served::start(server, policy)?;
    let context = context(policy)?;
    let selector = Selector::property("name", "stream-0")?;
    let found = context.resolve_blocking(&selector, 1, SOON)?;
    let info = found.first().ok_or("the stream was not found")?;
    let mut inlets = Vec::new();
    for _ in 0..READERS {
        let inlet = Inlet::builder(info).context(&context).create()?;
        inlet.blocking().open(SOON)?;
        inlets.push(Arc::new(inlet));
    }
    let clock = Arc::clone(inlets.first().ok_or("no inlet")?);
    clock.blocking().time_correction(SOON)?;

    let stop = Arc::new(AtomicBool::new(false));
    let attack = {
        let (stop, port) = (Arc::clone(&stop), served.port);
        thread::spawn(move || attack(attackers, port, &stop))
    };
    // Until the attack has its effect.
    thread::sleep(Duration::from_millis(500));
    let readers = inlets.into_iter().map(|inlet| {
        let stop = Arc::clone(&stop);
        thread::spawn(move || latencies(&inlet, &stop))
    });
    let readers: Vec<_> = readers.collect();
    let end = local_clock() + SECS;
    let (mut worst, mut resolves, mut prompt, mut slowest) = (0.0_f64, 0, 0, 0.0_f64);
    while local_clock() < end {
        let selector = Selector::property("name", format!("stream-{}", resolves % STREAMS))?;
        let begin = local_clock();
        let found = context.resolve_blocking(&selector, 1, Duration::from_secs(2))?;
        let took = local_clock() - begin;
        resolves += 1;
        prompt += usize::from(took <= 0.5 && !found.is_empty());
        slowest = slowest.max(took);
        if let Ok(correction) = clock.blocking().time_correction(Duration::from_millis(1)) {
            worst = worst.max(correction.offset_secs.abs());
        }
        thread::sleep(Duration::from_millis(100));
    }
    stop.store(true, Ordering::Release);
    let mut all = Vec::new();
    for reader in readers {
        all.extend(reader.join().map_err(|_| "a reader failed")?);
    }
    attack.join().map_err(|_| "the attack failed")??;
    all.sort_by(f64::total_cmp);
    let micros = |part: usize| {
        all.get(all.len() * part / 1000)
            .or_else(|| all.last())
            .map_or(f64::NAN, |l| l * 1e6)
    };
    Ok(format!(
        "{:6.0} {:7.0} {:7.0} | {:15.3} | {prompt}/{resolves}, {slowest:.3} ({} samples)",
        micros(500),
        micros(990),
        micros(1000),
        worst * 1e3,
        all.len()
    ))
}

fn latencies(inlet: &Inlet, stop: &AtomicBool) -> Vec<f64> {
    let mut latencies = Vec::new();
    let mut value = [0.0_f64];
    while !stop.load(Ordering::Acquire) {
        if let Ok(Some(_)) = inlet
            .blocking()
            .pull(&mut value, Duration::from_millis(200))
        {
            latencies.push(local_clock() - value[0]);
        }
    }
    // What had waited for the attack to begin.
    latencies.drain(..latencies.len().min(200));
    latencies
}

/// 1,000 datagrams a second, each another query, from so many addresses of this host.
fn attack(attackers: u8, port: u16, stop: &AtomicBool) -> Result {
    let sockets = (0..attackers)
        .map(|n| UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2 + n % 253), 0)))
        .collect::<Result<Vec<_>, _>>()?;
    let begin = local_clock();
    for (number, socket) in (1_u32..).zip(sockets.iter().cycle()) {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let datagram = format!(
            "LSL:shortinfo\r\n//*[//*[//*[starts-with({number} div 7,'x') or starts-with(1 div 3,'y')]]]\
             \r\n{} {number}\r\n",
            socket.local_addr()?.port()
        );
        // A full buffer is what a flood is about.
        let _ = socket.send_to(datagram.as_bytes(), (Ipv4Addr::LOCALHOST, port));
        let due = begin + f64::from(number) / 1000.0;
        if let Ok(early) = Duration::try_from_secs_f64(due - local_clock()) {
            thread::sleep(early);
        }
    }
    Ok(())
}
