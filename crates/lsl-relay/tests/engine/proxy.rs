//! A way to a server that loses requests and replies.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// What all threads of a proxy share.
#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    /// Of 1000 pieces so many are cut, and the connection with them.
    cuts: AtomicU64,
    random: AtomicU64,
    cut: AtomicU64,
    has_ended: AtomicBool,
}

/// Proxy that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Proxy {
    pub(crate) fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            cuts: AtomicU64::new(0),
            random: AtomicU64::new(1),
            cut: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.has_ended.load(Ordering::Relaxed) {
                    break;
                }
                let target = *accepting.target.lock().unwrap();
                let Ok(server) = TcpStream::connect(target) else {
                    continue;
                };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let shared = Arc::clone(&accepting);
                    thread::spawn(move || shared.pass(from, to));
                }
            }
        });
        Self { shared, address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Of 1000 pieces, so many are cut.
    pub(crate) fn set_cuts(&self, cuts: u64) {
        self.shared.cuts.store(cuts, Ordering::Relaxed);
    }

    /// Returns how many were cut.
    pub(crate) fn cut(&self) -> u64 {
        self.shared.cut.load(Ordering::Relaxed)
    }

    /// Leads new connections to another server.
    pub(crate) fn set_target(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap() = target;
    }
}

impl Shared {
    fn pass(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(read) = from.read(&mut bytes) {
            if read == 0 {
                break;
            }
            let mut random = self
                .random
                .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            random = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            random ^= random >> 27;
            if random % 1000 < self.cuts.load(Ordering::Relaxed) {
                self.cut.fetch_add(1, Ordering::Relaxed);
                // What came before is done, all the same.
                let part = usize::try_from(random >> 10).unwrap() % read;
                let _ = to.write_all(&bytes[..part]);
                break;
            }
            if to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}
