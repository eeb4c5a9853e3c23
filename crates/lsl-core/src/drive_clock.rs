//! Probing the outlet's clock for `time_correction` and clock synchronisation.
//! Spec: lsl-protocol §5.

pub(crate) mod pings;
pub(crate) mod sealed;

use std::sync::Arc;
use std::time::Duration;

use lsl_platform::arrival::arrived_at;
use lsl_platform::clock::local_clock;
use lsl_proto::clock::{
    Action, ClockOffset, OffsetEstimator, PingAction, PingWaves, TimeCorrection,
};
use lsl_proto::config::Tuning;
use lsl_proto::wire::timedata::{TimeReply, TimeRequest};
use lsl_secure::policy::Way;
use tokio::net::UdpSocket;

use crate::drive_inlet::handshake;
use crate::drive_inlet::recovery::Endpoint;
use crate::drive_inlet::task::InletShared;
use crate::net::race::{Winner, race};
use crate::net::uid;
use crate::{Error, Result};

/// What an inlet knows of its outlet's clock.
#[derive(Debug)]
pub(crate) struct Clock {
    estimator: OffsetEstimator,
    pings: PingWaves,
    /// Why nothing will ever be known again.
    pub(crate) lost: Option<String>,
}

impl Clock {
    pub(crate) fn new(tuning: &Tuning) -> Self {
        Self {
            estimator: OffsetEstimator::new(tuning.into(), uid::random_number()),
            pings: PingWaves::new(tuning.into()),
            lost: None,
        }
    }

    /// The latest estimate.
    pub(crate) fn correction(&self) -> Option<TimeCorrection> {
        self.estimator.estimate()
    }

    /// The latest estimate that the wave it is from does not change any more.
    pub(crate) fn settled_correction(&self) -> Option<TimeCorrection> {
        self.estimator.settled_estimate()
    }

    /// The latest estimate for clock synchronisation, and whether the clock became another one.
    pub(crate) fn offset(&mut self) -> Option<ClockOffset> {
        self.estimator.clock_offset()
    }

    /// What to do at `now`.
    pub(crate) fn poll(&mut self, now: f64) -> Action {
        self.estimator.poll(now)
    }

    /// Takes an answer; false if it does not count.
    pub(crate) fn on_reply(&mut self, now: f64, wave_id: i32, t0: f64, t1: f64, t2: f64) -> bool {
        self.estimator.on_reply(now, wave_id, t0, t1, t2).is_ok()
    }

    /// What to do about PINGs through the session, which are for when nobody answers over UDP. What
    /// was measured counts already.
    pub(crate) fn poll_pings(&mut self, now: f64) -> PingAction {
        let action = self.pings.poll(now, self.estimator.unanswered_from());
        if let PingAction::Measured(correction) = action {
            self.estimator.adopt(correction);
        }
        action
    }

    /// Takes the answer to a PING; false if it does not count.
    pub(crate) fn on_pong(&mut self, now: f64, times: [f64; 3], max_rtt_secs: f64) -> bool {
        self.pings.on_pong(now, times, max_rtt_secs)
    }

    /// Another outlet has another clock, until proven otherwise.
    fn invalidate(&mut self) {
        self.estimator.invalidate();
        self.pings.reset();
    }

    pub(crate) fn take_was_reset(&mut self) -> bool {
        self.estimator.take_was_reset()
    }
}

/// The clock task: probes whatever outlet the inlet is connected with.
///
/// Silence alone never ends an inlet: a firewall may block the clock's UDP port while samples flow.
pub(crate) async fn probe(shared: Arc<InletShared>) {
    loop {
        let (endpoint, generation) = shared.source.endpoint();
        let silent = async {
            let mut error = Error::Protocol("no address of the outlet is known".into());
            if let Some(endpoint) = endpoint {
                error = ask(&shared, endpoint).await;
                tracing::debug!(name = ?shared.info.name(), %error, "no clock");
            }
            if shared.recoverable {
                shared.source.recover(generation).await;
            }
            shared.source.pause(&error).await;
        };
        let changed = race(
            shared.source.changed(generation),
            shared.source.is_hopeless(true),
        );
        if let Winner::Second(Winner::Second(())) = race(silent, changed).await {
            // A socket and probes for each of thousands of streams that were made up.
            shared.source.is_hopeless(false).await;
        }
        if shared.source.generation() != generation {
            shared.clock.update(Clock::invalidate);
            shared.clock_keys.lock().forget_clock();
        }
    }
}

/// Probes one outlet, with or without encryption as its feed. Returns why it cannot go on.
async fn ask(shared: &InletShared, endpoint: Endpoint) -> Error {
    match shared.context.security() {
        Ok(security) => {
            let info = shared.source.info();
            let peers = shared.source.peers();
            match handshake::way(security, peers, &info, endpoint.data).await {
                // Boxed, because every inlet's task would else hold room for it.
                Way::Secure => {
                    return Box::pin(sealed::exchange(shared, endpoint)).await;
                }
                Way::Refuse { cause, text } => return sealed::refused(shared, cause, text),
                Way::Plaintext => {}
            }
        }
        Err(error) => return error,
    }
    exchange(shared, endpoint).await
}

/// Probes one outlet. Returns why it cannot go on: its socket failed, or the outlet has been silent
/// for so long that it may be gone.
async fn exchange(shared: &InletShared, endpoint: Endpoint) -> Error {
    let socket = match connect(endpoint).await {
        Ok(socket) => socket,
        Err(error) => return error,
    };
    let tuning = shared.context.config().tuning();
    // Between two waves nobody is asked, so nobody answers.
    let silence_limit = tuning.watchdog_time_threshold_secs + tuning.time_update_interval_secs;
    let mut last_reply = local_clock();
    let mut buffer = [0; 256];
    loop {
        let now = local_clock();
        let action = shared.clock.lock().estimator.poll(now);
        // An estimate may have become ready.
        shared.clock.wake();
        let wait_until = match action {
            Action::SendProbe { wave_id, t0 } => {
                // A port that nobody listens on reports the previous probe here: not ours to judge.
                let _ = socket.send(&TimeRequest { wave_id, t0 }.to_bytes()).await;
                continue;
            }
            Action::WaitUntil(at) => at,
        };
        if now - last_reply > silence_limit {
            return Error::Protocol("clock probes are not answered".into());
        }
        let pause = Duration::from_secs_f64((wait_until - local_clock()).clamp(0.0, 3600.0));
        match race(socket.recv(&mut buffer), tokio::time::sleep(pause)).await {
            Winner::First(Ok(received)) => {
                let now = arrived_at(&socket).unwrap_or_else(local_clock);
                if let Ok(reply) = TimeReply::parse(&buffer[..received]) {
                    let TimeReply {
                        wave_id,
                        t0,
                        t1,
                        t2,
                    } = reply;
                    let mut clock = shared.clock.lock();
                    if clock.estimator.on_reply(now, wave_id, t0, t1, t2).is_ok() {
                        last_reply = now;
                    }
                }
            }
            Winner::First(Err(_)) => tokio::time::sleep(pause.min(UNREACHABLE_PAUSE)).await,
            Winner::Second(()) => {}
        }
    }
}

/// A socket that takes datagrams from the outlet's service port alone: others cannot bend our clock.
async fn connect(endpoint: Endpoint) -> Result<UdpSocket> {
    let socket = endpoint.service_socket()?;
    let connected = socket.connect(endpoint.service).await;
    connected.map_err(|source| Error::io("clock socket", source))?;
    Ok(socket)
}

/// Pause after the network reported that nobody listens.
pub(crate) const UNREACHABLE_PAUSE: Duration = Duration::from_millis(50);
