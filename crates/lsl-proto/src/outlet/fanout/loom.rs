//! The hand-over between push, flush task and the task of a connection under every interleaving:
//! `cargo xtask loom`.
//!
//! `Fanout` and `Batch` are the real ones. Around them is what `drive_outlet` does, step by step, on
//! loom's locks. There are no timeouts, so a lost wake-up is a deadlock, which loom reports; and two
//! threads that write to a socket at a time are caught by the socket.

use ::loom::sync::{Arc, Condvar, Mutex};
use ::loom::thread;

use super::*;
use crate::transport::Tx;

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
    fn with<R>(&self, body: impl FnOnce(&mut (Vec<u8>, usize)) -> R) -> R {
        let mut state = self.state.try_lock().expect("one writer at a time");
        body(&mut state)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
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
}

struct Sender {
    socket: Arc<Socket>,
    tx: Tx,
}

impl Transmit for Sender {
    type Info = ();

    fn send(&mut self, bytes: &[u8], _: Caller) -> io::Result<usize> {
        let socket = &self.socket;
        self.tx.send(bytes, || 0.0, |bytes| socket.write(bytes))
    }

    fn queue(&mut self, bytes: &[u8]) {
        self.tx.queue(bytes);
    }

    fn flush(&mut self, _: Caller) -> io::Result<bool> {
        let socket = &self.socket;
        self.tx.flush(|| 0.0, |bytes| socket.write(bytes))
    }

    fn has_unsent(&self) -> bool {
        self.tx.unsent() > 0
    }

    fn queued_bytes(&self) -> usize {
        self.tx.unsent()
    }

    fn control(&mut self, control: Control) {
        if let Control::Pong { .. } = control {
            self.tx.queue(b"!");
        }
    }

    fn wake(&self) {
        self.socket.work.give();
    }
}

struct Shared {
    fanout: Mutex<Fanout<Sender>>,
    flusher: Permit,
}

impl Shared {
    fn push(&self, text: &str) {
        let mut piece = Piece {
            bytes: text.as_bytes().to_vec(),
            ends: (1..=text.len() / 2).map(|n| n * 2).collect(),
        };
        let mut fanout = self.fanout.lock().unwrap();
        let at = Position {
            variant: Variant::V100,
            first: fanout.logs[Variant::V100.index()].end(),
        };
        let published = fanout.publish(&mut piece, at, Pushthrough::Flush, Inline::Always, 0.0);
        drop(fanout);
        if published.wake_flusher {
            self.flusher.give();
        }
    }

    fn close(&self) {
        self.fanout.lock().unwrap().close();
        self.flusher.give();
    }

    fn run_flusher(&self) {
        let mut batch = Batch::default();
        loop {
            let is_over = {
                let mut fanout = self.fanout.lock().unwrap();
                fanout.finish(&mut batch);
                fanout.fill(4, &mut batch);
                fanout.is_closing() && fanout.is_empty()
            };
            while batch.send_next().is_some() {}
            if batch.is_empty() {
                if is_over {
                    return;
                }
                self.flusher.wait();
            }
        }
    }

    /// What the task of the connection does; the socket gets room while it waits for that.
    fn serve(&self, id: ConsumerId, socket: &Socket, asks: bool) {
        if asks {
            let pong = Control::Pong {
                t0: 0.0,
                t1: 0.0,
                t2_shift_secs: 0.0,
            };
            if self.fanout.lock().unwrap().control(id, pong) {
                self.flusher.give();
            }
        }
        loop {
            let status = self.fanout.lock().unwrap().status(id);
            match status {
                Status::Feeding => socket.work.wait(),
                Status::Blocked => {
                    socket.with(|(_, room)| *room = usize::MAX);
                    self.fanout.lock().unwrap().unblock(id);
                    self.flusher.give();
                }
                Status::Ended => break,
            }
        }
        while self.fanout.lock().unwrap().leave(id).is_pending() {
            socket.work.wait();
        }
        self.flusher.give();
    }
}

/// Every sample arrives, in order, and everybody ends, whoever has the sender when.
fn check(room: usize, coalesces: bool, asks: bool, pushes: &'static [&'static str]) {
    let mut model = ::loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let socket = Arc::new(Socket {
            state: Mutex::new((Vec::new(), room)),
            work: Permit::default(),
        });
        let sender = Sender {
            socket: Arc::clone(&socket),
            tx: Tx::plain(),
        };
        let limits = FeedLimits {
            capacity: 100,
            chunk: 100,
            coalesces,
            is_granted: false,
        };
        let mut fanout = Fanout::default();
        let id = fanout.join(sender, (), Variant::V100, limits, 0..0);
        let shared = Arc::new(Shared {
            fanout: Mutex::new(fanout),
            flusher: Permit::default(),
        });
        let (flusher, task) = (Arc::clone(&shared), Arc::clone(&shared));
        let reader = Arc::clone(&socket);
        let flusher = thread::spawn(move || flusher.run_flusher());
        let task = thread::spawn(move || task.serve(id, &reader, asks));
        for text in pushes {
            shared.push(text);
        }
        shared.close();
        flusher.join().unwrap();
        task.join().unwrap();
        let expected: String = pushes.concat();
        socket.with(|(received, _)| {
            let pongs = received.iter().filter(|byte| **byte == b'!').count();
            assert_eq!(pongs, usize::from(asks));
            received.retain(|byte| *byte != b'!');
            assert_eq!(received.as_slice(), expected.as_bytes());
        });
    });
}

#[test]
fn the_flush_task_hands_back_what_the_push_then_sends() {
    check(usize::MAX, true, false, &["a1", "b1"]);
}

#[test]
fn a_full_socket_goes_from_the_flush_task_to_the_connection_and_back() {
    check(1, true, false, &["a1", "b1"]);
}

#[test]
fn a_full_socket_goes_from_the_push_to_the_flush_task() {
    check(1, false, false, &["a1", "b1"]);
}

#[test]
fn a_pong_goes_between_samples_whoever_has_the_sender() {
    check(usize::MAX, true, true, &["a1"]);
    check(1, false, true, &["a1"]);
}
