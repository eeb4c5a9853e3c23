//! `peer.ping` and `peer.mtu`: how the path to a machine carries what gets through at all.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use lsl_core::local_clock;
use lsl_platform::routes::path_mtu;
use lsl_platform::socket::forbid_fragments;
use lsl_proto::wire::discovery::QueryDatagram;
use lsl_proto::wire::timedata::{TimeReply, TimeRequest};

use super::socket::{drain, open};
use crate::observe::peers::{Mtu, Ping};
use crate::waves::Ids;

/// Probes the clock at a port a hundred times a second, and on where some are lost: two of thirty happen by chance.
/// `None` where no clock answers.
pub(super) fn ping(
    to: SocketAddr,
    left: usize,
    patience: f64,
    stop: &dyn Fn() -> bool,
) -> Option<Ping> {
    let socket = UdpSocket::from(open(to.is_ipv4(), 0, false).ok()?);
    socket.connect(to).ok()?;
    socket.set_read_timeout(Some(NAP)).ok()?;
    let mut trips: Vec<Option<f64>> = Vec::new();
    for count in [FEW, MANY] {
        let lost = trips.iter().filter(|it| it.is_none()).count();
        if !trips.is_empty() && (lost < 2 || lost == trips.len()) {
            break;
        }
        while trips.len() < count.min(left) && !stop() {
            let wave_id = i32::try_from(trips.len()).ok()?;
            let request = TimeRequest {
                wave_id,
                t0: local_clock(),
            };
            trips.push(None);
            // Refused, or no way: it is lost.
            let _ = socket.send(&request.to_bytes());
            let next = request.t0 + PAUSE_SECS;
            while local_clock() < next {
                hear(&socket, &mut trips);
            }
        }
        let deadline = local_clock() + LATE_SECS * patience;
        while local_clock() < deadline && trips.iter().any(Option::is_none) {
            hear(&socket, &mut trips);
        }
    }
    let sent = trips.len();
    let mut all: Vec<f64> = trips.into_iter().flatten().collect();
    all.sort_by(f64::total_cmp);
    let part = |hundredth: usize| {
        let at = (all.len() * hundredth / 100).min(all.len().saturating_sub(1));
        all.get(at).copied().unwrap_or_default() * 1000.0
    };
    (!all.is_empty()).then(|| Ping {
        sent: u32::try_from(sent).unwrap_or(u32::MAX),
        lost: u32::try_from(sent - all.len()).unwrap_or(u32::MAX),
        p50_ms: part(50),
        p75_ms: part(75),
        p95_ms: part(95),
    })
}

fn hear(socket: &UdpSocket, trips: &mut [Option<f64>]) {
    drain(socket, |datagram, _| {
        let now = local_clock();
        let Ok(reply) = TimeReply::parse(datagram) else {
            return;
        };
        let trip = usize::try_from(reply.wave_id)
            .ok()
            .and_then(|at| trips.get_mut(at));
        if let Some(trip) = trip {
            // Without the time that the other program took.
            trip.get_or_insert((now - reply.t0 - (reply.t2 - reply.t1)).max(0.0));
        }
    });
}

/// Asks a port of IPv4 with questions of several lengths that may not be taken apart: outlets answer all of them in
/// few bytes. `query` matches one stream.
pub(super) fn lengths(
    to: SocketAddr,
    query: &[u8],
    patience: f64,
    stop: &dyn Fn() -> bool,
) -> Option<Mtu> {
    if !to.is_ipv4() {
        return None;
    }
    let socket = UdpSocket::from(open(true, 0, false).ok()?);
    socket.set_read_timeout(Some(NAP)).ok()?;
    forbid_fragments(&socket).ok()?;
    let port = socket.local_addr().ok()?.port();
    let ids = Ids::new(super::wave::random()?);
    let mut answered = [None; LENGTHS.len()];
    for _ in 0..TIMES {
        for (at, (length, answered)) in LENGTHS.iter().zip(&mut answered).enumerate() {
            if *answered != Some(true)
                && socket
                    .send_to(&padded(ids, query, at, port, *length), to)
                    .is_ok()
            {
                // Longer than the own interface takes is not sent: it stays unknown.
                answered.get_or_insert(false);
            }
        }
        let deadline = local_clock() + ANSWER_SECS * patience;
        while answered.contains(&Some(false)) && local_clock() < deadline && !stop() {
            drain(&socket, |datagram, _| {
                if let Some((at, _)) = ids.answer(datagram)
                    && let Some(answered) = answered.get_mut(at)
                {
                    *answered = Some(true);
                }
            });
        }
    }
    let which = |wanted: bool| {
        let all = LENGTHS.iter().zip(answered);
        let all = all.filter(move |(_, answered)| *answered == Some(wanted));
        all.filter_map(|(length, _)| u16::try_from(length + HEADERS).ok())
    };
    let passes = which(true).max()?;
    let vanishes = which(false).filter(|it| *it > passes).min();
    let told = path_mtu(to.ip()).ok();
    Some(Mtu {
        passes: Some(passes),
        vanishes,
        is_told: vanishes.is_some_and(|it| told.is_some_and(|told| told < it.into())),
        stalls: None,
    })
}

/// A question of so many bytes: blanks behind it mean nothing.
fn padded(ids: Ids, query: &[u8], at: usize, port: u16, length: usize) -> Vec<u8> {
    let bare = ids.question_for(query, at, port);
    let Ok(parsed) = QueryDatagram::parse(&bare) else {
        return bare;
    };
    let mut query = query.to_vec();
    query.resize(query.len() + length.saturating_sub(bare.len()), b' ');
    let padded = QueryDatagram {
        query: &query,
        ..parsed
    };
    padded.to_bytes()
}

const NAP: Duration = Duration::from_millis(5);
const FEW: usize = 30;
pub(super) const MANY: usize = 100;
const PAUSE_SECS: f64 = 0.01;
const LATE_SECS: f64 = 0.4;
/// Bytes of questions: a packet of Ethernet, of tunnels, of IPv6's least, and shorter.
pub(super) const LENGTHS: [usize; 5] = [548, 1072, 1252, 1392, 1472];
/// Of UDP and IPv4.
const HEADERS: usize = 28;
pub(super) const TIMES: usize = 3;
const ANSWER_SECS: f64 = 0.25;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn questions_have_the_length_that_is_asked_for() {
        let ids = Ids::new(7);
        for length in LENGTHS {
            let question = padded(ids, b"uid='x'", 3, 16572, length);
            assert_eq!(question.len(), length);
            let parsed = QueryDatagram::parse(&question).unwrap();
            assert_eq!((parsed.query, parsed.return_port), (&b"uid='x'"[..], 16572));
        }
    }

    #[test]
    fn round_trips_are_measured_until_enough_came_back() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let answers = thread::spawn(move || {
            let mut buffer = [0; 256];
            // The first four get lost.
            for number in 0.. {
                let (length, from) = server.recv_from(&mut buffer).unwrap();
                let Ok(request) = TimeRequest::parse(&buffer[..length]) else {
                    break;
                };
                if number >= 4 {
                    server
                        .send_to(&request.reply(1.0, 1.0).to_bytes(), from)
                        .unwrap();
                }
            }
        });
        let found = ping(to, MANY, 1.0, &|| false).unwrap();
        assert_eq!((found.sent, found.lost), (100, 4));
        UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .send_to(b"end", to)
            .unwrap();
        answers.join().unwrap();
    }
}
