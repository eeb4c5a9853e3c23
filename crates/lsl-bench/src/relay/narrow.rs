//! A way to a relay that carries 1 MB/s in each direction, and holds little back itself.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use lsl_cli::failure::Outcome;
use lsl_core::local_clock;

/// Takes connections for the relay at another port of this machine, for as long as this program runs. Returns its own
/// port.
pub(super) fn open(to: u16) -> Outcome<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let far = TcpStream::connect(("127.0.0.1", to));
            let ends = far.and_then(|far| Ok((near.try_clone()?, near, far.try_clone()?, far)));
            if let Ok((near, near_too, far, far_too)) = ends {
                thread::spawn(move || carry(near, far));
                thread::spawn(move || carry(far_too, near_too));
            }
        }
    });
    Ok(port)
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let _ = to.set_nodelay(true);
    let mut piece = [0; 4096];
    // Time up to which the line is taken.
    let mut free_at = 0.0_f64;
    while let Ok(count @ 1..) = from.read(&mut piece) {
        let now = local_clock();
        free_at = free_at.max(now) + count as f64 / BYTES_PER_S;
        if free_at > now + SHORTEST_SLEEP {
            thread::sleep(Duration::from_secs_f64(free_at - now));
        }
        if to
            .write_all(piece.get(..count).unwrap_or_default())
            .is_err()
        {
            break;
        }
    }
    for end in [&from, &to] {
        let _ = end.shutdown(Shutdown::Both);
    }
}

const BYTES_PER_S: f64 = 1e6;

/// Sleeps take longer than asked for.
const SHORTEST_SLEEP: f64 = 1e-3;
