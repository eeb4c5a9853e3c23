//! The hand-over between pusher, flusher and a reader's task under every interleaving:
//! `RUSTFLAGS="--cfg lsl_loom" cargo test -p lsl-proto --lib loom --release
//! --target-dir target/loom`.
//!
//! `Fanout` and `Batch` are the real ones. Around them is what `net::consumer` does, step by step, on
//! loom's locks. There are no timeouts, so a lost wake-up is a deadlock, which loom reports; and two
//! threads that write to a socket at a time are caught by the socket.

use ::loom::sync::{Arc, Condvar, Mutex};
use ::loom::thread;

use super::*;

/// What tokio's `Notify` is for one waiter: a permit.
#[derive(Debug, Default)]
struct Permit {
    given: Mutex<bool>,
    changed: Condvar,
}

impl Permit {
    fn give(&self) {
        *self.given.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut given = self.given.lock().unwrap();
        while !std::mem::take(&mut *given) {
            given = self.changed.wait(given).unwrap();
        }
    }
}

/// A socket that has room for so many bytes until its reader has read, once.
#[derive(Debug)]
struct Socket {
    state: Mutex<(Vec<u8>, usize)>,
    work: Permit,
}

impl Socket {
    fn new(room: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new((Vec::new(), room)),
            work: Permit::default(),
        })
    }

    /// What the reader's task does: waits for the socket as long as it takes.
    fn send_all(&self, bytes: &[u8]) {
        self.with(|(received, room)| {
            received.extend_from_slice(bytes);
            *room = usize::MAX;
        });
    }

    fn with<R>(&self, body: impl FnOnce(&mut (Vec<u8>, usize)) -> R) -> R {
        let mut state = self.state.try_lock().expect("one writer at a time");
        body(&mut state)
    }
}

impl Transmit for Arc<Socket> {
    fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|(received, room)| {
            let taken = bytes.len().min(*room);
            if taken == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            *room -= taken;
            received.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        })
    }

    fn wake(&self) {
        self.work.give();
    }
}

struct Shared {
    /// The fanout, and whether the outlet is closed.
    fan: Mutex<(Fanout<Arc<Socket>>, bool)>,
    flusher: Permit,
}

impl Shared {
    fn push(&self, text: &str, by: SendBy) {
        let mut encoded = text.as_bytes().to_vec();
        let mut ends = (1..=text.len() / 2).map(|n| n * 2).collect();
        let mut fan = self.fan.lock().unwrap();
        let published = fan
            .0
            .publish(&mut encoded, &mut ends, Pushthrough::Flush, by);
        drop(fan);
        if published.flusher {
            self.flusher.give();
        }
    }

    fn close(&self) {
        let mut fan = self.fan.lock().unwrap();
        fan.1 = true;
        let _ = fan.0.close();
        self.flusher.give();
    }

    fn run_flusher(&self) {
        let mut batch = Batch::default();
        loop {
            let closed = {
                let mut fan = self.fan.lock().unwrap();
                fan.0.finish(&mut batch);
                fan.0.fill(4, &mut batch);
                fan.1
            };
            if batch.is_empty() {
                if closed {
                    return;
                }
                self.flusher.wait();
                continue;
            }
            while batch.send_next().is_some() {}
        }
    }

    fn serve(&self, id: ConsumerId, socket: &Socket) {
        let mut out = Vec::new();
        loop {
            out.clear();
            let next = self.fan.lock().unwrap().0.drain(id, 4, &mut out);
            match next {
                Drain::Send => socket.send_all(&out),
                Drain::Idle => socket.work.wait(),
                Drain::Finished => return,
            }
        }
    }
}

const LIMITS: FeedLimits = FeedLimits {
    capacity: 100,
    chunk: 100,
};

/// Every sample arrives, in order, and everybody ends, whoever has the socket when.
fn check(room: usize, pushes: &'static [(&'static str, SendBy)]) {
    let mut model = ::loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let id = ConsumerId(1);
        let socket = Socket::new(room);
        let mut fanout = Fanout::default();
        fanout.register(id, Arc::clone(&socket), LIMITS, Vec::new());
        assert_eq!(fanout.drain(id, 4, &mut Vec::new()), Drain::Idle);
        let shared = Arc::new(Shared {
            fan: Mutex::new((fanout, false)),
            flusher: Permit::default(),
        });
        let (flusher, task) = (Arc::clone(&shared), Arc::clone(&shared));
        let reader = Arc::clone(&socket);
        let flusher = thread::spawn(move || flusher.run_flusher());
        let task = thread::spawn(move || task.serve(id, &reader));
        for (text, by) in pushes {
            shared.push(text, *by);
        }
        shared.close();
        flusher.join().unwrap();
        task.join().unwrap();
        let expected: String = pushes.iter().map(|(text, _)| *text).collect();
        socket.with(|(received, _)| assert_eq!(received.as_slice(), expected.as_bytes()));
    });
}

#[test]
fn the_courier_hands_back_what_the_pusher_then_sends() {
    check(
        usize::MAX,
        &[("a1", SendBy::Flusher), ("b1", SendBy::Pusher)],
    );
}

#[test]
fn a_full_socket_goes_from_the_courier_to_the_task() {
    check(1, &[("a1", SendBy::Flusher), ("b1", SendBy::Flusher)]);
}

#[test]
fn a_full_socket_goes_from_the_pusher_to_the_task() {
    check(1, &[("a1", SendBy::Pusher), ("b1", SendBy::Flusher)]);
}
