//! Probing the outlet's clock for `time_correction` and clock synchronisation: the sockets of `Clock`.
//! Spec: lsl-protocol §5, LSS/1 §9.

pub(crate) mod keys;
pub(crate) mod pings;
pub(crate) mod session;

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use lsl_platform::arrival::arrived_at;
use lsl_platform::clock::local_clock;
use lsl_platform::socket::is_noise;
use lsl_proto::clock::{Clock, ClockEvent, ClockLimits, Probe};
use lsl_proto::inlet::Exchange;
use lsl_proto::inlet::recovery::{Attempt, Endpoint, Input, Purpose};
use lsl_secure::policy;
use tokio::net::UdpSocket;

use crate::drive_clock::keys::keep_keys;
use crate::drive_clock::session::ClockSession;
use crate::drive_discovery::relays::RelayWay;
use crate::drive_inlet::reach::Way;
use crate::drive_inlet::shared::{Facts, InletShared};
use crate::drive_inlet::{handshake, recovery};
use crate::net::select2::{Either, select2};
use crate::net::{sockets, uid};
use crate::{Error, Result, StreamInfo};

/// The clock task: probes whatever outlet the inlet is connected with.
///
/// Silence alone never ends an inlet: a firewall may block the clock's UDP port while samples flow.
pub(crate) async fn probe(shared: Arc<InletShared>) {
    let tuning = shared.context.config().tuning();
    let mut clock = Clock::new(tuning, limits(&shared), uid::random_number());
    let mut moves = shared.source.moves();
    shared.tell(Input::Wanted(Purpose::Clock));
    loop {
        let attempt = shared.next_attempt(Purpose::Clock).await;
        if attempt.moves != moves {
            moves = attempt.moves;
            clock.invalidate();
            tell(&shared, &mut clock, None);
        }
        let asking = ask(&shared, &mut clock, &attempt);
        if let Some(error) = shared.attempt(attempt.id, asking).await {
            shared.failed(&attempt, &error);
        }
    }
}

/// Returns what counts as an answer, and as a clock that is too uncertain.
fn limits(shared: &InletShared) -> ClockLimits {
    let security = shared.context.security().ok();
    let settings = security.and_then(|security| security.settings());
    let secs = |milliseconds: u32| f64::from(milliseconds) / 1000.0;
    settings.map_or(
        ClockLimits {
            max_rtt_secs: 0.128,
            warn_secs: 0.005,
        },
        |settings| ClockLimits {
            max_rtt_secs: secs(settings.max_rtt_ms),
            warn_secs: secs(settings.time_warn_ms),
        },
    )
}

/// Probes one outlet by the way that its samples take. Returns why it cannot go on.
async fn ask(shared: &InletShared, clock: &mut Clock, attempt: &Attempt) -> Error {
    if shared.source.is_linked() {
        // The link measures it, with PINGs of its own.
        return pending().await;
    }
    if !shared.has_relays() {
        return ask_outlet(shared, clock, attempt).await;
    }
    loop {
        let way = match shared.clock_way(attempt) {
            Ok(way) => way,
            Err(error) => return error,
        };
        // Boxed, because every inlet's task would else hold room for it.
        let asking = Box::pin(async {
            match &way {
                Way::Outlet(_) => ask_outlet(shared, clock, attempt).await,
                Way::Relay(relay) => ask_relay(shared, clock, attempt, relay).await,
                Way::Link => pending().await,
            }
        });
        let is_other = |facts: &mut Facts| {
            let present = facts.way.as_ref();
            present.is_some_and(|present| *present != way).then_some(())
        };
        match select2(asking, shared.facts.wait(f64::INFINITY, is_other)).await {
            Either::First(error) => return error,
            Either::Second(_) => {}
        }
    }
}

/// Probes the clock of a stream that comes through a relay, by PINGs in a session with it. Returns why it cannot go
/// on. Without encryption nobody answers, and the clock is not known. Spec: relay §7.
async fn ask_relay(
    shared: &InletShared,
    clock: &mut Clock,
    attempt: &Attempt,
    relay: &RelayWay,
) -> Error {
    if relay.key.is_none() {
        return pending().await;
    }
    let dial = || {
        let exchange = Exchange::relayed_time_keys(attempt.info.uid_bytes());
        (shared.source).dial_relay(&attempt.info, relay, exchange, keys::CONNECT_LIMIT)
    };
    let probing = Box::pin(exchange_pings(shared, clock));
    match select2(Box::pin(keep_keys(shared, dial)), probing).await {
        Either::First(error) | Either::Second(error) => error,
    }
}

/// Probes by PINGs alone through whichever session lends its keys. Returns why it cannot go on.
async fn exchange_pings(shared: &InletShared, clock: &mut Clock) -> Error {
    clock.begin_relayed(local_clock());
    let mut session = None;
    loop {
        let probe = {
            let mut facts = shared.facts.lock();
            let keys = ClockSession::follow(&mut session, facts.keys.as_mut(), clock);
            clock.poll_transmit(local_clock(), keys)
        };
        let Some(present) = &session else {
            let known = |facts: &mut Facts| facts.has_keys().then_some(());
            shared.facts.wait(f64::INFINITY, known).await;
            continue;
        };
        if let Some(Probe::Ping(t0)) = probe {
            present.pings.ask(t0);
            continue;
        }
        if let Some(error) = tell(shared, clock, Some(present)) {
            return error;
        }
        let pause = (clock.poll_timeout() - local_clock()).clamp(0.0, 3600.0);
        let pause = tokio::time::sleep(Duration::from_secs_f64(pause));
        if let Either::First(pong) = select2(present.pings.answer(), pause).await {
            clock.handle_pong(pong.times, pong.opened_at);
        }
    }
}

/// Probes one outlet, with or without encryption as its feed. Returns why it cannot go on.
async fn ask_outlet(shared: &InletShared, clock: &mut Clock, attempt: &Attempt) -> Error {
    let (security, endpoint) = match (shared.context.security(), attempt.address()) {
        (Ok(security), Ok(endpoint)) => (security, endpoint),
        (Err(error), _) | (_, Err(error)) => return error,
    };
    let peers = shared.source.peers();
    // Boxed, because every inlet's task would else hold room for several of them.
    match handshake::way(security, peers, &attempt.info, endpoint.data).await {
        policy::Way::Plaintext => {
            let probing = exchange(shared, clock, &attempt.info, false, endpoint);
            Box::pin(probing).await
        }
        policy::Way::Secure => {
            let probing = exchange(shared, clock, &attempt.info, true, endpoint);
            let probing = Box::pin(probing);
            let dial = || {
                let time_keys = || Exchange::TimeKeys;
                let (purpose, info) = (attempt.purpose, &attempt.info);
                let (peer, limit) = (endpoint.data, keys::CONNECT_LIMIT);
                shared.source.dial(purpose, info, peer, time_keys, limit)
            };
            match select2(Box::pin(keep_keys(shared, dial)), probing).await {
                Either::First(error) | Either::Second(error) => error,
            }
        }
        policy::Way::Refuse { cause, text } => {
            peers.failed(cause, &text);
            Error::Security(text)
        }
    }
}

/// Probes one outlet. Returns why it cannot go on: its socket failed, or the outlet has been silent for so
/// long that it may be gone.
async fn exchange(
    shared: &InletShared,
    clock: &mut Clock,
    info: &StreamInfo,
    is_sealed: bool,
    endpoint: Endpoint,
) -> Error {
    let mut socket = match service_socket(endpoint, is_sealed).await {
        Ok(socket) => socket,
        Err(error) => return error,
    };
    clock.begin(is_sealed, local_clock());
    clock.set_for_another(info.relay_advert().is_some());
    let mut session = None;
    let mut buffer = [0; 256];
    loop {
        let (has_keys, probe) = {
            let mut facts = shared.facts.lock();
            let lent = facts.keys.as_mut().filter(|_| is_sealed);
            let keys = ClockSession::follow(&mut session, lent, clock);
            (keys.is_some(), clock.poll_transmit(local_clock(), keys))
        };
        if is_sealed && !has_keys {
            let known = |facts: &mut Facts| facts.has_keys().then_some(());
            shared.facts.wait(f64::INFINITY, known).await;
            continue;
        }
        let present = session.as_ref();
        if let Some(probe) = probe {
            match (probe, present) {
                // A port that nobody listens on is not ours to judge.
                (Probe::Udp(packet), None) => drop(socket.send(&packet).await),
                (Probe::Udp(packet), Some(_)) => {
                    drop(socket.send_to(&packet, endpoint.service).await);
                }
                (Probe::Ping(t0), Some(present)) => present.pings.ask(t0),
                (Probe::Ping(_), None) => {}
            }
            continue;
        }
        if let Some(error) = tell(shared, clock, present) {
            return error;
        }
        let pause = (clock.poll_timeout() - local_clock()).clamp(0.0, 3600.0);
        let pause = Duration::from_secs_f64(pause);
        let pong = async {
            match present {
                Some(present) => present.pings.answer().await,
                None => pending().await,
            }
        };
        let answer = select2(pong, sockets::receive(&socket, &mut buffer));
        match select2(answer, tokio::time::sleep(pause)).await {
            Either::First(Either::First(pong)) => clock.handle_pong(pong.times, pong.opened_at),
            Either::First(Either::Second(Ok(received))) => {
                let now = arrived_at(&socket).unwrap_or_else(local_clock);
                let datagram = buffer.get(..received).unwrap_or_default();
                let mut facts = shared.facts.lock();
                let lent = facts.keys.as_mut().filter(|_| is_sealed);
                let keys = ClockSession::follow(&mut session, lent, clock);
                clock.handle_datagram(datagram, now, keys);
            }
            Either::First(Either::Second(Err(error))) => {
                let longest = if is_noise(&error) {
                    NOISE_PAUSE
                } else {
                    UNREACHABLE_PAUSE
                };
                tokio::time::sleep(pause.min(longest)).await;
                if error.kind() == io::ErrorKind::ConnectionReset {
                    socket = match service_socket(endpoint, is_sealed).await {
                        Ok(socket) => socket,
                        Err(error) => return error,
                    };
                }
            }
            Either::Second(()) => {}
        }
    }
}

/// Opens a socket that takes datagrams from the outlet's service port alone: others cannot bend our clock.
/// That of a session is not connected: on hosts with several networks, and behind address translation,
/// answers come from elsewhere. What is true the keys decide.
async fn service_socket(endpoint: Endpoint, is_sealed: bool) -> Result<UdpSocket> {
    let socket = recovery::service_socket(endpoint)?;
    if !is_sealed {
        let connected = socket.connect(endpoint.service).await;
        connected.map_err(|source| Error::io("clock socket", source))?;
    }
    Ok(socket)
}

/// Hands on what became known. Returns why the clock cannot go on.
fn tell(shared: &InletShared, clock: &mut Clock, session: Option<&ClockSession>) -> Option<Error> {
    while let Some(event) = clock.poll_event() {
        match event {
            ClockEvent::Estimate(correction) => {
                shared.publish_clock(correction, clock.take_was_reset());
            }
            ClockEvent::Alarm(alarm, estimate) => {
                if let Some(session) = session {
                    session.report(alarm, estimate);
                }
            }
            ClockEvent::Silent => {
                return Some(Error::Protocol("clock probes are not answered".into()));
            }
            ClockEvent::Exhausted(text) => return Some(Error::Protocol(text)),
        }
    }
    None
}

/// Pause after an error that is about one datagram alone, in case the system repeats it.
const NOISE_PAUSE: Duration = Duration::from_millis(1);

/// Pause after the network reported that nobody listens.
const UNREACHABLE_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_an_inlet_costs_little() {
        fn size<F>(_: impl Fn(Arc<InletShared>) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(probe);
        assert!(size <= 6 * 1024, "{size} bytes");
    }
}
