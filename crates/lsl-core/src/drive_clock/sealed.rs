//! Probing the clock of an outlet with which there is a secure session: with its keys, over UDP, and
//! by PINGs through the session as long as nobody answers that. A session for the clock alone is
//! opened while there is no feed. Spec: LSS/1 §9.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lsl_platform::arrival::arrived_at;
use lsl_platform::clock::local_clock;
use lsl_proto::clock::{Action, PingAction, TimeAlarm, TimeCorrection, TimeWatch};
use lsl_proto::security::SessionEvents;
use lsl_secure::audit::EventKind;
use lsl_secure::{Cause, Security, TimeProber};
use tokio::net::UdpSocket;

use crate::drive_clock::UNREACHABLE_PAUSE;
use crate::drive_clock::pings::Pings;
use crate::drive_inlet::connection::{Batch, Dialled};
use crate::drive_inlet::recovery::Endpoint;
use crate::drive_inlet::task::InletShared;
use crate::net::monitor::Monitor;
use crate::net::race::{Winner, race};
use crate::{Error, Result};

/// The keys for the clock of the present outlet, lent by whichever session lives.
#[derive(Debug, Default)]
pub(crate) struct ClockKeys {
    lent: Option<Lent>,
    next_ticket: u64,
    /// What was seen of the outlet's clock. Outlives sessions, which anybody on the way can end.
    watch: Option<TimeWatch>,
}

impl ClockKeys {
    /// The way to ask through the session that the samples come by.
    pub(crate) fn pings_of_feed(&self) -> Option<Arc<Pings>> {
        let lent = self.lent.as_ref().filter(|lent| lent.is_of_feed)?;
        Some(Arc::clone(&lent.pings))
    }

    /// From now on it is another outlet's clock.
    pub(crate) fn forget_clock(&mut self) {
        self.watch = None;
    }
}

#[derive(Debug)]
struct Lent {
    ticket: u64,
    is_of_feed: bool,
    prober: TimeProber,
    pings: Arc<Pings>,
    events: (SessionEvents, Arc<Security>),
}

/// Takes the keys back when the session ends.
#[derive(Debug)]
pub(crate) struct Lease<'a> {
    keys: &'a Monitor<ClockKeys>,
    ticket: u64,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.keys.update(|keys| {
            keys.lent.take_if(|lent| lent.ticket == self.ticket);
        });
    }
}

/// Lends the keys of a feed's session to the clock; `None` for a connection without encryption.
pub(crate) fn lend_of_feed<'a>(
    keys: &'a Monitor<ClockKeys>,
    dialled: &mut Dialled,
) -> Option<Lease<'a>> {
    lend(keys, dialled, true)
}

fn lend<'a>(
    keys: &'a Monitor<ClockKeys>,
    dialled: &mut Dialled,
    is_of_feed: bool,
) -> Option<Lease<'a>> {
    let tunnel = dialled.tunnel()?;
    let (prober, events) = (tunnel.take_prober()?, tunnel.events());
    let pings = tunnel.pings();
    let ticket = keys.update(|keys| {
        if !is_of_feed && keys.lent.is_some() {
            // The feed was faster.
            return None;
        }
        let ticket = keys.next_ticket;
        keys.next_ticket += 1;
        keys.lent = Some(Lent {
            ticket,
            is_of_feed,
            prober,
            pings,
            events,
        });
        Some(ticket)
    })?;
    Some(Lease { keys, ticket })
}

/// Probes one outlet's clock. Returns why it cannot go on.
pub(crate) async fn exchange(shared: &InletShared, endpoint: Endpoint) -> Error {
    // Unconnected: on hosts with several networks, and behind address translation, answers come from
    // elsewhere. What is true the keys decide.
    let socket = match endpoint.service_socket() {
        Ok(socket) => socket,
        Err(error) => return error,
    };
    let keeping = keep_keys(shared, endpoint.data);
    let probing = probe(shared, &socket, endpoint.service);
    match race(keeping, probing).await {
        Winner::First(error) | Winner::Second(error) => error,
    }
}

/// Opens a session for the clock whenever no feed lends its keys.
async fn keep_keys(shared: &InletShared, address: SocketAddr) -> Error {
    let keys = &shared.clock_keys;
    loop {
        if shared.is_receiving() {
            // The feed will have a session any moment.
            let lent = |keys: &mut ClockKeys| keys.lent.is_some().then_some(());
            keys.wait(local_clock() + FEED_GRACE_SECS, lent).await;
        }
        if keys.lock().lent.is_none()
            && let Err(error) = hold_session(shared, address).await
        {
            return error;
        }
        let none = |keys: &mut ClockKeys| keys.lent.is_none().then_some(());
        keys.wait(f64::INFINITY, none).await;
    }
}

/// A session for its keys alone, until a feed has one or it fails.
async fn hold_session(shared: &InletShared, address: SocketAddr) -> Result<()> {
    let keys = &shared.clock_keys;
    let info = shared.source.info();
    let dialling = shared
        .source
        .dial(&info, address, TIMEKEYS_REQUEST, CONNECT_LIMIT);
    let mut dialled = dialling.await?;
    let Some(_lease) = lend(keys, &mut dialled, false) else {
        if keys.lock().lent.is_some() {
            // The feed was faster.
            return Ok(());
        }
        return Err(Error::Security(
            "the outlet's clock needs encryption".into(),
        ));
    };
    let of_feed = |keys: &mut ClockKeys| {
        let lent = keys.lent.as_ref();
        lent.is_some_and(|lent| lent.is_of_feed).then_some(())
    };
    let reading = async {
        loop {
            let surprise = |_: &[u8]| Err(Error::Protocol("an answer to timekeys".into()));
            if dialled.read(surprise).await? == Batch::End {
                return Err(Error::Protocol("the outlet closed the connection".into()));
            }
        }
    };
    match race(reading, keys.wait(f64::INFINITY, of_feed)).await {
        Winner::First(ended) => ended,
        Winner::Second(_) => Ok(()),
    }
}

async fn probe(shared: &InletShared, socket: &UdpSocket, service: SocketAddr) -> Error {
    let tuning = shared.context.config().tuning();
    let silence_limit = tuning.watchdog_time_threshold_secs + tuning.time_update_interval_secs;
    let (max_rtt_secs, warn_secs) = shared.time_limits();
    let mut latest: Option<TimeCorrection> = shared.clock.lock().settled_correction();
    let mut last_reply = local_clock();
    let mut wave = 0;
    let mut buffer = [0; 256];
    let keys = &shared.clock_keys;
    loop {
        if keys.lock().lent.is_none() {
            let lent = |keys: &mut ClockKeys| keys.lent.is_some().then_some(());
            keys.wait(f64::INFINITY, lent).await;
            last_reply = local_clock();
        }
        let now = local_clock();
        let action = shared.clock.lock().poll(now);
        shared.clock.wake();
        watch(shared, warn_secs, now, &mut latest);
        let udp_until = match action {
            Action::SendProbe { wave_id, t0 } => {
                wave = wave_id;
                let packet = match &mut keys.lock().lent {
                    Some(lent) => lent.prober.probe(t0),
                    None => continue,
                };
                match packet {
                    // An unreachable port is not ours to judge.
                    Ok(packet) => drop(socket.send_to(&packet, service).await),
                    Err(error) => return Error::Protocol(format!("no clock probes: {error}")),
                }
                continue;
            }
            Action::WaitUntil(at) => at,
        };
        let Some(pings) = keys.lock().lent.as_ref().map(|it| Arc::clone(&it.pings)) else {
            continue;
        };
        // UDP is asked all the while: as soon as anybody answers there, PINGs are not needed.
        let ping = shared.clock.lock().poll_pings(local_clock());
        let wait_until = match ping {
            PingAction::Send { t0 } => {
                pings.ask(t0);
                continue;
            }
            PingAction::Measured(_) => continue,
            PingAction::WaitUntil(at) => udp_until.min(at),
        };
        if now - last_reply > silence_limit {
            return Error::Protocol("clock probes are not answered".into());
        }
        let pause = Duration::from_secs_f64((wait_until - local_clock()).clamp(0.0, 3600.0));
        let answer = race(pings.answer(), socket.recv_from(&mut buffer));
        match race(answer, tokio::time::sleep(pause)).await {
            Winner::First(Winner::First(pong)) => {
                let mut clock = shared.clock.lock();
                if clock.on_pong(pong.opened_at, pong.times, max_rtt_secs) {
                    last_reply = pong.opened_at;
                }
            }
            Winner::First(Winner::Second(Ok((received, _)))) => {
                let now = arrived_at(socket).unwrap_or_else(local_clock);
                let packet = buffer.get(..received).unwrap_or_default();
                let reply = match &mut keys.lock().lent {
                    Some(lent) => lent.prober.receive(packet, now, max_rtt_secs),
                    None => None,
                };
                if let Some(reply) = reply {
                    let mut clock = shared.clock.lock();
                    if clock.on_reply(now, wave, reply.t0, reply.t1, reply.t2) {
                        last_reply = now;
                    }
                }
            }
            Winner::First(Winner::Second(Err(_))) => {
                tokio::time::sleep(pause.min(UNREACHABLE_PAUSE)).await;
            }
            Winner::Second(()) => {}
        }
    }
}

/// Looks at what is known of the clock, once a wave: what is watched is how waves differ. `latest` is what
/// was looked at last.
fn watch(shared: &InletShared, warn_secs: f64, now: f64, latest: &mut Option<TimeCorrection>) {
    let clock = shared.clock.lock();
    let (estimate, settled) = (clock.correction(), clock.settled_correction());
    drop(clock);
    let mut keys = shared.clock_keys.lock();
    let fresh = || TimeWatch::new(warn_secs);
    let alarms = match (estimate, settled) {
        (_, Some(settled)) if *latest != Some(settled) => {
            *latest = Some(settled);
            let watch = keys.watch.get_or_insert_with(fresh);
            watch.observe(now, settled)
        }
        (Some(early), None) => {
            let watch = keys.watch.get_or_insert_with(fresh);
            watch.begin(now, early);
            return;
        }
        _ => return,
    };
    drop(keys);
    if let Some(settled) = settled {
        report(shared, settled, &alarms);
    }
}

fn report(shared: &InletShared, estimate: TimeCorrection, alarms: &[TimeAlarm]) {
    let keys = shared.clock_keys.lock();
    let Some(lent) = &keys.lent else {
        return;
    };
    for alarm in alarms {
        let milliseconds = |secs: f64| secs * 1000.0;
        let (kind, mut detail) = match *alarm {
            TimeAlarm::Step {
                change_secs,
                possible_secs,
            } => (
                EventKind::TimeStep,
                format!(
                    "the clock offset changed by {:.3} ms, at most {:.3} ms are possible",
                    milliseconds(change_secs),
                    milliseconds(possible_secs)
                ),
            ),
            TimeAlarm::RttRise {
                before_secs,
                now_secs,
            } => (
                EventKind::TimeRttRise,
                format!(
                    "the shortest round trip grew from {:.3} ms to {:.3} ms",
                    milliseconds(before_secs),
                    milliseconds(now_secs)
                ),
            ),
            TimeAlarm::Uncertain { error_secs } => (
                EventKind::TimeUncertain,
                format!(
                    "the clock offset may be wrong by {:.3} ms",
                    milliseconds(error_secs)
                ),
            ),
        };
        if estimate.is_low_quality() {
            detail.push_str("; measured over the data connection, as nobody answers over UDP");
        }
        let (events, security) = &lent.events;
        let event = events.event(kind).detail(detail);
        security.audit().record(event);
    }
}

/// The clock of an outlet that policy forbids to ask.
pub(crate) fn refused(shared: &InletShared, cause: Cause, text: String) -> Error {
    shared.source.peers().failed(cause, &text);
    Error::Security(text)
}

/// Asks for nothing but a session. Spec: LSS/1 §9.2.
const TIMEKEYS_REQUEST: &[u8] = b"LSL:timekeys/1\r\n";

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long the clock waits for the session of a feed that is being opened.
const FEED_GRACE_SECS: f64 = 2.0;
