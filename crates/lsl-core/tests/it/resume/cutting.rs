//! Streams whose connection is cut at random moments, by RST and FIN by turns.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lsl_core::{ChannelFormat, DEDUCED_TIMESTAMP, Pushthrough, Stamps, StreamInfo, local_clock};
use socket2::SockRef;

use super::{Ends, info, survives};

/// Forwards connections to an outlet, and cuts each after a random time.
pub struct Cutter {
    port: u16,
    state: Arc<State>,
}

struct State {
    outlet: SocketAddr,
    /// Connections cut so far.
    cuts: AtomicU64,
    /// Whether connections last.
    rests: AtomicBool,
    /// Whether nothing is read of what the outlet sends.
    stalls: AtomicBool,
    /// Cuts of connections that would have lasted.
    asked_cuts: AtomicU64,
    /// Whether connections are refused.
    is_closed: AtomicBool,
    /// Whether the next connection is closed at once; the present one is cut for it.
    turns_away: AtomicBool,
    stopped: AtomicBool,
    seed: AtomicU64,
    /// Bytes of the outlet after which the time of a connection begins: those of a handshake, however long it takes.
    least_bytes: usize,
}

impl Cutter {
    /// Stands before the outlet that `info` describes.
    pub fn start(info: &StreamInfo, seed: u64, least_bytes: usize) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            outlet: (Ipv4Addr::LOCALHOST, info.v4_data_port()).into(),
            cuts: AtomicU64::new(0),
            rests: AtomicBool::new(false),
            stalls: AtomicBool::new(false),
            asked_cuts: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            turns_away: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            seed: AtomicU64::new(seed),
            least_bytes,
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for inlet in listener.incoming().flatten() {
                if shared.stopped.load(Ordering::Acquire) {
                    return;
                }
                let state = Arc::clone(&shared);
                std::thread::spawn(move || state.forward(inlet));
            }
        });
        Self { port, state }
    }

    /// The same outlet, at our address.
    pub fn in_place_of(&self, info: &StreamInfo) -> StreamInfo {
        let port = |port: u16| format!("<v4data_port>{port}</v4data_port>");
        let text = |xml| String::from_utf8(xml).unwrap();
        let (short, all) = (text(info.to_shortinfo_xml()), text(info.to_xml()));
        // The short document that discovery sends has the advert of encryption, which ours leaves out.
        let advert = all.find("<lsl_secure").map(|at| &all[at..]);
        let advert = advert.and_then(|rest| rest.split_inclusive("/>").next());
        let end = format!("{}</info>", advert.unwrap_or_default());
        let here = short.replace(&port(info.v4_data_port()), &port(self.port));
        assert_ne!(short, here);
        let here = here.replace("</info>", &end);
        StreamInfo::from_xml(here.as_bytes()).unwrap()
    }

    pub fn cuts(&self) -> u64 {
        self.state.cuts.load(Ordering::Relaxed)
    }

    /// Lets connections last, or cuts them again.
    pub fn rest(&self, rests: bool) {
        self.state.rests.store(rests, Ordering::Relaxed);
    }

    /// Forwards nothing more from the outlet, or all of it again.
    pub fn stall(&self, stalls: bool) {
        self.state.stalls.store(stalls, Ordering::Relaxed);
    }

    /// Cuts the present connection.
    pub fn cut(&self) {
        self.state.asked_cuts.fetch_add(1, Ordering::Relaxed);
    }

    /// Cuts the present connection, and closes the next one at once.
    pub fn turn_away(&self) {
        self.state.turns_away.store(true, Ordering::Relaxed);
    }

    /// Cuts the present connection, and refuses others until told otherwise.
    pub fn close(&self, is_closed: bool) {
        self.state.is_closed.store(is_closed, Ordering::Relaxed);
    }
}

impl State {
    fn random(&self) -> u64 {
        let seed = self.seed.load(Ordering::Relaxed);
        let next = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.seed.store(next, Ordering::Relaxed);
        next >> 33
    }

    fn forward(&self, mut inlet: TcpStream) {
        let is_turned_away = self.turns_away.swap(false, Ordering::Relaxed);
        if is_turned_away || self.is_closed.load(Ordering::Relaxed) {
            return;
        }
        let mut outlet = TcpStream::connect(self.outlet).unwrap();
        // One thread for both ways: Windows does not end a read of one thread for the shutdown of another.
        inlet.set_nonblocking(true).unwrap();
        outlet.set_nonblocking(true).unwrap();
        let lasts = Duration::from_millis(self.random() % 250).as_secs_f64();
        let (mut sent, mut until) = (0, None);
        let asked_cuts = self.asked_cuts.load(Ordering::Relaxed);
        let mut buffer = [0; 1500];
        loop {
            if sent >= self.least_bytes {
                until.get_or_insert_with(|| local_clock() + lasts);
            }
            let is_due = until.is_some_and(|until| local_clock() > until);
            let is_over = self.is_closed.load(Ordering::Relaxed)
                || self.turns_away.load(Ordering::Relaxed)
                || self.asked_cuts.load(Ordering::Relaxed) != asked_cuts
                || (is_due && !self.rests.load(Ordering::Relaxed));
            let asked = match inlet.read(&mut buffer) {
                Ok(length @ 1..) => write(&mut outlet, &buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => true,
                Ok(_) | Err(_) => false,
            };
            if !asked {
                return;
            }
            let received = if self.stalls.load(Ordering::Relaxed) {
                Err(ErrorKind::WouldBlock.into())
            } else {
                outlet.read(&mut buffer)
            };
            match received {
                Ok(length @ 1..) => {
                    // Often in the middle of a sample.
                    let forwarded = match usize::try_from(self.random()) {
                        Ok(random) if is_over => random % length,
                        _ => length,
                    };
                    if !write(&mut inlet, &buffer[..forwarded]) {
                        return;
                    }
                    sent += forwarded;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_micros(200));
                }
                Ok(_) | Err(_) => return,
            }
            if is_over {
                break;
            }
        }
        let is_reset = (self.cuts.fetch_add(1, Ordering::Relaxed)).is_multiple_of(2);
        if is_reset {
            SockRef::from(&inlet)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
        }
    }
}

/// Writes all of `bytes`. False if the connection is over.
fn write(to: &mut TcpStream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(length @ 1..) => bytes = &bytes[length..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_micros(200));
            }
            Ok(_) | Err(_) => return false,
        }
    }
    true
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Release);
        self.close(true);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

#[test]
fn nothing_is_lost_or_twice_of_single_samples() {
    survives(
        &Ends::plain(),
        info("cut-64", 64, 1000.0, ChannelFormat::Float32),
        |outlet, first| {
            let number = f32::from(u16::try_from(first % 60_000).unwrap());
            let values: Vec<_> = (0_u16..64)
                .map(|channel| number + 0.01 * f32::from(channel))
                .collect();
            outlet
                .push_at(&values, 100.0 + 0.0011 * f64::from(number))
                .unwrap();
            1
        },
    );
}

#[test]
fn nothing_is_lost_or_twice_of_chunks_with_deduced_stamps() {
    survives(
        &Ends::plain(),
        info("cut-chunks", 2, 333.0, ChannelFormat::Int32),
        |outlet, first| {
            let values: Vec<_> = (0..64).map(|value| (2 * first + value) as i32).collect();
            outlet.push_chunk(&values).unwrap();
            32
        },
    );
}

#[test]
fn nothing_is_lost_or_twice_of_texts_of_any_length() {
    survives(
        &Ends::plain(),
        info("cut-texts", 1, 0.0, ChannelFormat::String),
        |outlet, first| {
            let length = [0, 3, 300, 2_000, 30_000][usize::try_from(first % 5).unwrap()];
            outlet
                .push(&[format!("{first} {}", "x".repeat(length))])
                .unwrap();
            1
        },
    );
}

#[test]
fn nothing_is_lost_or_twice_without_any_stamps() {
    survives(
        &Ends::plain(),
        info("cut-bytes", 3, 0.0, ChannelFormat::Int8),
        |outlet, first| {
            let values: Vec<_> = (0..300).map(|value| (first + value) as i8).collect();
            let stamps = Stamps::Each(&[DEDUCED_TIMESTAMP; 100]);
            outlet
                .push_chunk_with(&values, stamps, Pushthrough::Flush)
                .unwrap();
            100
        },
    );
}

#[test]
fn nothing_is_lost_or_twice_with_encryption() {
    survives(
        &Ends::encrypted(),
        info("cut-secret", 8, 500.0, ChannelFormat::Double64),
        |outlet, first| {
            let first = f64::from(u32::try_from(first).unwrap());
            let values: Vec<_> = (0_u16..64)
                .map(|value| first * 8.0 + f64::from(value))
                .collect();
            outlet.push_chunk(&values).unwrap();
            8
        },
    );
}
