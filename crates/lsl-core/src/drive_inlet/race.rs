//! Connects with an outlet by whichever of its ways is established first. The others are closed before they have
//! said a word, so that an outlet counts no reader more. Spec: doctor §2.3.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::inlet::recovery::{Endpoint, Purpose};
use lsl_proto::inlet::ways::{Race, Step};

use crate::byte_stream::ByteStream;
use crate::drive_inlet::handshake::Connected;
use crate::drive_inlet::recovery::Source;
use crate::net::select2::{Either, select2};
use crate::net::sockets;
use crate::{Error, Result, StreamInfo};

/// A connection that is under way.
struct Connecting {
    number: usize,
    endpoint: Endpoint,
    outcome: Pin<Box<dyn Future<Output = Result<ByteStream>> + Send>>,
}

impl Source {
    /// Connects with the outlet that `info` describes: at `peer`, at another address of the info or, for a `purpose`,
    /// where it answered searches. Each connection has so much time.
    ///
    /// # Errors
    /// That of the first connection, if all failed.
    pub(super) async fn race(
        &self,
        purpose: Option<Purpose>,
        info: &StreamInfo,
        peer: SocketAddr,
        limit: Duration,
    ) -> Result<Connected> {
        let known = self.context.known_hosts();
        let stray = purpose.and_then(|purpose| self.recovery.lock().stray(purpose));
        let may_take = purpose.is_some() && stray.is_none();
        if let Some(stray) = stray {
            // It answers searches if the outlet is there after all.
            known.forget(info.uid_bytes(), |way| way.host.ip() == stray.ip());
        }
        let ways = known.ways_to(info.uid_bytes());
        let hosts = ways.iter().filter(|_| may_take).map(|way| way.host);
        let hosts: Vec<_> = hosts.collect();
        let endpoints = self.recovery.lock().endpoints(info, peer, &hosts);
        let mut race = Race::new(endpoints, local_clock());
        let mut running: Vec<Connecting> = Vec::new();
        let mut begun = 0;
        let mut failure: Option<(usize, Error)> = None;
        loop {
            let now = local_clock();
            let due = match race.poll(now) {
                Step::Connect(endpoint) => {
                    let connecting = sockets::tcp_connect(endpoint.data, endpoint.device, limit);
                    running.push(Connecting {
                        number: begun,
                        endpoint,
                        outcome: Box::pin(connecting),
                    });
                    begun += 1;
                    continue;
                }
                Step::FindDevices => {
                    race.bind(|to| self.context.network().device_towards(to), now);
                    continue;
                }
                Step::WaitUntil(due) => due,
                Step::Failed => {
                    known.forget(info.uid_bytes(), |way| {
                        let mut silent = running.iter().map(|it| it.endpoint.data.ip());
                        silent.any(|ip| ip == way.host.ip())
                    });
                    let nowhere = || Error::Protocol("no address of the outlet is known".into());
                    return Err(failure.map_or_else(nowhere, |(_, error)| error));
                }
            };
            let pause = Duration::from_secs_f64((due - now).clamp(0.0, LONGEST_PAUSE_SECS));
            let ended = poll_fn(|context| next(&mut running, context));
            match select2(ended, tokio::time::sleep(pause)).await {
                Either::First((Connecting { endpoint, .. }, Ok(stream))) => {
                    let is_news = self.recovery.lock().reached(info, endpoint, purpose);
                    if is_news {
                        self.recovery.wake();
                    }
                    return Ok((stream, endpoint.data));
                }
                Either::First((failed, Err(error))) => {
                    let (peer, device) = (failed.endpoint.data, failed.endpoint.device);
                    tracing::debug!(%peer, device, %error, "a way to the outlet leads nowhere");
                    race.failed(failed.endpoint, &error, local_clock());
                    let number = failed.number;
                    if failure.as_ref().is_none_or(|(first, _)| number < *first) {
                        failure = Some((number, error));
                    }
                }
                Either::Second(()) => {}
            }
        }
    }
}

/// Polls all connections for the next that ends.
fn next(
    running: &mut Vec<Connecting>,
    context: &mut Context<'_>,
) -> Poll<(Connecting, Result<ByteStream>)> {
    let mut polled = running.iter_mut().enumerate();
    let ended = polled.find_map(|(index, it)| match it.outcome.as_mut().poll(context) {
        Poll::Ready(outcome) => Some((index, outcome)),
        Poll::Pending => None,
    });
    match ended {
        Some((index, outcome)) => Poll::Ready((running.remove(index), outcome)),
        None => Poll::Pending,
    }
}

/// As good as for ever: the connections have a limit.
const LONGEST_PAUSE_SECS: f64 = 3600.0;
