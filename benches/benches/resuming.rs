//! What a cut costs an inlet, and how fast the past comes, over loopback and within one process:
//! `cargo bench -p lsl-benches --bench resuming`. Some seconds. Spec: resume §9.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lsl_core::config::Config;
use lsl_core::secure::Security;
use lsl_core::{
    BufferLength, ChannelFormat, Context, History, Inlet, Outlet, Retain, Selector, StreamInfo,
    local_clock,
};

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const CHANNELS: usize = 64;

/// Samples of 8 MiB, with timestamps that are transmitted.
const PAST: u32 = (8 << 20) / (9 + 4 * 64);

/// Far more than anything here takes.
const SOON: Duration = Duration::from_secs(20);

fn main() -> Result {
    // `cargo test` runs it once, so that it does not rot.
    let is_measured = std::env::args().any(|it| it == "--bench");
    let rounds = |measured| if is_measured { measured } else { 2 };
    // Far more than is asked for.
    let (context, outlet) = offer(96 << 20)?;
    let cuts = cuts(&context, &outlet, rounds(200))?;
    report("cut to the next sample", 1e3, "ms", cuts);
    let (replays, copies) = replays(&context, &outlet, rounds(30))?;
    report("8 MiB of the past", 1e3, "ms", replays.clone());
    let disturbed = disturbed(rounds(20))?;
    report(
        "p99 beside a greedy reader, as a multiple of that without",
        1.0,
        "",
        disturbed,
    );
    let ratios = replays
        .iter()
        .zip(&copies)
        .map(|(replay, copy)| replay / copy);
    report(
        "the same, as a multiple of 8 MiB through a socket",
        1.0,
        "",
        ratios.collect(),
    );
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a bench talks to its user")]
fn report(what: &str, scale: f64, unit: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    let [p50, p90, max] = [50, 90, 100].map(|percent| {
        let last = values.len() - 1;
        scale * values[last * percent / 100]
    });
    let rounds = values.len();
    println!("{what}: p50 {p50:.2} {unit}, p90 {p90:.2}, max {max:.2}, of {rounds}");
}

/// An outlet in a context of its own, which retains so many bytes.
fn offer(bytes: usize) -> Result<(Context, Outlet)> {
    let mut config = Config::loopback();
    let process = u16::try_from(std::process::id() % 37).unwrap_or_default();
    config.set_ports(17_000 + process * 40 + u16::from(bytes > LITTLE) * 20, 20);
    config.set_session_id(&format!("bench-{}-{bytes}", std::process::id()))?;
    config.set("ports.IPv6", "disable")?;
    let security = Security::off(Vec::new())?;
    let context = Context::with_security(config, Arc::new(security));
    let channels = u32::try_from(CHANNELS)?;
    let info = StreamInfo::new(
        "past",
        "Bench",
        channels,
        1000.0,
        ChannelFormat::Float32,
        "past",
    )?;
    let retain = Retain {
        seconds: 3600.0,
        bytes,
        unread: false,
    };
    let outlet = Outlet::builder(info)
        .context(&context)
        .retain(retain)
        .open()?;
    Ok((context, outlet))
}

fn find(context: &Context) -> Result<StreamInfo> {
    let found = context.resolve_blocking(&Selector::property("name", "past")?, 1, SOON)?;
    Ok(found.first().ok_or("the outlet was not found")?.clone())
}

/// Seconds from each cut of the connection to the next sample, which was pushed meanwhile.
fn cuts(context: &Context, outlet: &Outlet, rounds: usize) -> Result<Vec<f64>> {
    let info = find(context)?;
    let proxy = Proxy::start(info.v4_data_port())?;
    let port = |port: u16| format!("<v4data_port>{port}</v4data_port>");
    let text = String::from_utf8(info.to_shortinfo_xml())?;
    let text = text.replace(&port(info.v4_data_port()), &port(proxy.port));
    let inlet = Inlet::builder(&StreamInfo::from_xml(text.as_bytes())?)
        .context(context)
        .create()?;
    inlet.blocking().open(SOON)?;
    let mut taken = Vec::new();
    let mut values = [0.0_f32; CHANNELS];
    let mut number = 0.0_f32;
    let mut exchange = || -> Result {
        number += 1.0;
        outlet.push(&[number; CHANNELS])?;
        let stamp = inlet.blocking().pull(&mut values, SOON)?;
        if stamp.is_none() || values[0].to_bits() != number.to_bits() {
            return Err(format!("{} instead of {number}", values[0]).into());
        }
        Ok(())
    };
    for _ in 0..rounds {
        // A connection that broke within 100 ms of the one before it would wait for the rest of them.
        for _ in 0..20 {
            exchange()?;
            thread::sleep(Duration::from_millis(6));
        }
        let start = local_clock();
        proxy.cut();
        exchange()?;
        taken.push(local_clock() - start);
    }
    let stats = inlet.stats();
    if stats.resumed != rounds as u64 || stats.lost_unknown > 0 {
        return Err(format!("not all went on: {stats:?}").into());
    }
    Ok(taken)
}

/// Seconds from the opening of an inlet until it has pulled 8 MiB of the past, and those that as many bytes take
/// through a socket.
fn replays(context: &Context, outlet: &Outlet, rounds: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    for number in 0..PAST {
        outlet.push_at(&[1.5_f32; CHANNELS], 1.0 + f64::from(number))?;
    }
    let info = find(context)?;
    let (mut replays, mut copies) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let inlet = Inlet::builder(&info)
            .context(context)
            .buffer(BufferLength::Samples(2 * PAST as usize))
            .history(History::Samples(PAST.into()))
            .create()?;
        let mut values = vec![0.0_f32; 256 * CHANNELS];
        let start = local_clock();
        inlet.blocking().open(SOON)?;
        let mut left = PAST as usize;
        while left > 0 {
            let room = &mut values[..left.min(256) * CHANNELS];
            let pulled = inlet.blocking().pull_chunk(room, None, SOON)?;
            if pulled == 0 {
                return Err(format!("{left} samples are missing: {:?}", inlet.stats()).into());
            }
            left -= pulled;
        }
        replays.push(local_clock() - start);
        copies.push(copy()?);
        drop(inlet);
        // For the budget of this host.
        thread::sleep(Duration::from_millis(180));
    }
    Ok((replays, copies))
}

/// Bytes that outlets retain by default.
const LITTLE: usize = 8 << 20;

/// The 99th percentiles of the latency of a live reader at 1 kHz while another one asks for all of the past a hundred
/// times a second, each as a multiple of that without.
fn disturbed(rounds: usize) -> Result<Vec<f64>> {
    let (context, outlet) = offer(LITTLE)?;
    for number in 0..2 * PAST {
        outlet.push_at(&[1.5_f32; CHANNELS], 1.0 + f64::from(number))?;
    }
    let inlet = Inlet::builder(&find(&context)?)
        .context(&context)
        .create()?;
    inlet.blocking().open(SOON)?;
    let address = (Ipv4Addr::LOCALHOST, outlet.info().v4_data_port());
    let ask = || -> Result {
        let mut reader = TcpStream::connect(address)?;
        reader.write_all(
            b"LSL:streamfeed/110\r\nMax-Buffer-Length: 1000000\r\nLslx-Sequence: 1 oldest\r\n\r\n",
        )?;
        // What has come by then, and what is still to come is its own loss.
        reader.set_read_timeout(Some(Duration::from_millis(9)))?;
        while reader
            .read(&mut vec![0; 256 << 10])
            .is_ok_and(|length| length > 100_000)
        {}
        thread::sleep(Duration::from_millis(1));
        Ok(())
    };
    let measure = || -> Result<f64> {
        thread::scope(|scope| {
            let pushing = scope.spawn(|| -> Result {
                for _ in 0..500 {
                    thread::sleep(Duration::from_millis(1));
                    outlet.push_at(&[0.0_f32; CHANNELS], local_clock())?;
                }
                Ok(())
            });
            let mut latencies = Vec::new();
            for _ in 0..500 {
                let stamp = inlet.blocking().pull(&mut [0.0_f32; CHANNELS], SOON)?;
                latencies.push(local_clock() - stamp.ok_or("no sample")?);
            }
            pushing.join().map_err(|_| "the pusher failed")??;
            latencies.sort_by(f64::total_cmp);
            Ok(latencies[latencies.len() * 99 / 100])
        })
    };
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let alone = measure()?;
        let is_over = AtomicBool::new(false);
        let beside = thread::scope(|scope| {
            let greedy = scope.spawn(|| -> Result {
                while !is_over.load(Ordering::Relaxed) {
                    ask()?;
                }
                Ok(())
            });
            let beside = measure();
            is_over.store(true, Ordering::Relaxed);
            greedy.join().map_err(|_| "the greedy reader failed")??;
            beside
        })?;
        ratios.push(beside / alone);
    }
    Ok(ratios)
}

/// Seconds that 8 MiB take from one thread to another.
fn copy() -> Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let start = local_clock();
    let sending = thread::spawn(move || sender.write_all(&vec![1; 8 << 20]));
    let mut buffer = vec![0; 64 << 10];
    while receiver.read(&mut buffer)? > 0 {}
    sending.join().map_err(|_| "the sender failed")??;
    Ok(local_clock() - start)
}

/// Forwards connections to an outlet, and ends them when it is told to.
struct Proxy {
    port: u16,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn start(outlet: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let sockets = Arc::<Mutex<Vec<TcpStream>>>::default();
        let state = Arc::clone(&sockets);
        thread::spawn(move || -> Result {
            for inlet in listener.incoming() {
                let inlet = inlet?;
                let outlet = TcpStream::connect((Ipv4Addr::LOCALHOST, outlet))?;
                for socket in [&inlet, &outlet] {
                    socket.set_nodelay(true)?;
                    state
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(socket.try_clone()?);
                }
                for (mut from, mut to) in
                    [(inlet.try_clone()?, outlet.try_clone()?), (outlet, inlet)]
                {
                    thread::spawn(move || std::io::copy(&mut from, &mut to));
                }
            }
            Ok(())
        });
        Ok(Self { port, sockets })
    }

    fn cut(&self) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        for socket in sockets.drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}
