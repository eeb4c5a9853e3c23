//! Ways of an inlet to its stream: the outlet itself, and relays that know it. The outlet comes first, a relay only
//! if that takes long; the other way round where the past is wanted. Spec: relay §5.2, §9.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::inlet::Exchange;
use lsl_proto::inlet::recovery::Attempt;

use crate::byte_stream::NO_ADDRESS;
use crate::drive_discovery::relays::RelayWay;
use crate::drive_inlet::connection::Connection;
use crate::drive_inlet::shared::InletShared;
use crate::net::select2::{Either, select2};
use crate::{Error, Result};

/// One way to the stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Way {
    /// To its outlet, at this address.
    Outlet(SocketAddr),
    /// Through a relay.
    Relay(RelayWay),
    /// Through a link of this relay.
    Link,
}

impl Way {
    /// Returns the address to connect with.
    pub(crate) fn peer(&self) -> SocketAddr {
        match self {
            Self::Outlet(peer) => *peer,
            Self::Relay(way) => way.peer,
            Self::Link => NO_ADDRESS,
        }
    }
}

impl InletShared {
    /// Returns whether there are relays at all that may know a way.
    pub(crate) fn has_relays(&self) -> bool {
        !self.context.network().relays.is_empty()
    }

    /// Returns the ways of an attempt, best first.
    ///
    /// # Errors
    /// [`Error::Protocol`] if there is none.
    pub(super) fn ways(&self, attempt: &Attempt) -> Result<Vec<Way>> {
        if self.source.is_linked() {
            return Ok(vec![Way::Link]);
        }
        let direct = attempt.address().map(|endpoint| Way::Outlet(endpoint.data));
        if !self.has_relays() {
            return direct.map(|way| vec![way]);
        }
        let relays = self.context.relays().ways_to(attempt.info.uid_bytes());
        let relays = relays.into_iter().map(Way::Relay);
        match direct {
            // The outlet has less of the past.
            Ok(direct) if self.context.relays().want_past() => Ok(relays.chain([direct]).collect()),
            Ok(direct) => Ok(std::iter::once(direct).chain(relays).collect()),
            Err(error) => {
                let ways: Vec<_> = relays.collect();
                if ways.is_empty() {
                    Err(error)
                } else {
                    Ok(ways)
                }
            }
        }
    }

    /// Connects by the first of `ways` that lets us. Returns its number, too.
    ///
    /// # Errors
    /// That of the first way, if all failed.
    pub(super) async fn reach(
        &self,
        attempt: &Attempt,
        ways: &[Way],
        exchange: impl Fn(&Way) -> Exchange,
        limit: Duration,
    ) -> Result<(Connection, usize)> {
        let (purpose, info, exchange) = (attempt.purpose, &attempt.info, &exchange);
        let dial = |way: &Way| {
            let way = way.clone();
            // Boxed, because every inlet's tasks would else hold room for it.
            Box::pin(async move {
                match &way {
                    Way::Outlet(peer) => {
                        let exchange = || exchange(&way);
                        let source = &self.source;
                        source.dial(purpose, info, *peer, exchange, limit).await
                    }
                    Way::Relay(relay) => {
                        let exchange = exchange(&way);
                        self.source.dial_relay(info, relay, exchange, limit).await
                    }
                    Way::Link => self.source.open(exchange(&way)),
                }
            })
        };
        if let [way] = ways {
            return Ok((dial(way).await?, 0));
        }
        let dialled = ways.iter().map(dial).collect();
        first_of(dialled, || self.patience(ways)).await
    }

    /// Waits for as long as a way has alone. An outlet that answers by UDP is worth more of it.
    async fn patience(&self, ways: &[Way]) {
        let begun = local_clock();
        let is_there = match ways.first() {
            Some(Way::Outlet(_)) => self.source.asked_in_place().await.is_some(),
            _ => false,
        };
        let patience_secs = if is_there {
            LONG_PATIENCE_SECS
        } else {
            PATIENCE_SECS
        };
        let left_secs = (begun + patience_secs - local_clock()).max(0.0);
        tokio::time::sleep(Duration::from_secs_f64(left_secs)).await;
    }

    /// Returns whether the stream comes through a relay at present.
    pub(crate) fn is_relayed(&self) -> bool {
        matches!(self.facts.lock().way, Some(Way::Relay(_)))
    }

    /// Returns the way of the clock: that of the samples, or the one that they would come by.
    pub(crate) fn clock_way(&self, attempt: &Attempt) -> Result<Way> {
        let present = self.facts.lock().way.clone();
        if let Some(way) = present {
            return Ok(way);
        }
        let first = self.ways(attempt)?.into_iter().next();
        first.ok_or_else(|| Error::Protocol("no way to the outlet is known".into()))
    }
}

/// Runs tries one after the other, the next one after `patience` or a failure, until one succeeds. Returns its
/// number, too.
///
/// # Errors
/// That of the first try, if all failed.
async fn first_of<T, F, P>(tries: Vec<F>, patience: impl Fn() -> P) -> Result<(T, usize)>
where
    F: Future<Output = Result<T>> + Unpin,
    P: Future<Output = ()>,
{
    let mut waiting = tries.into_iter().enumerate();
    let mut running: Vec<(usize, F)> = Vec::new();
    let mut failure: Option<(usize, Error)> = None;
    loop {
        let next = waiting.next();
        let is_last = next.is_none();
        running.extend(next);
        if running.is_empty() {
            let nowhere = || Error::Protocol("no way to the outlet is known".into());
            return Err(failure.map_or_else(nowhere, |(_, error)| error));
        }
        let any = poll_fn(|context| {
            for index in 0..running.len() {
                let (number, trying) = &mut running[index];
                match Pin::new(trying).poll(context) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(done)) => return Poll::Ready(Some((done, *number))),
                    Poll::Ready(Err(error)) => {
                        let number = *number;
                        running.remove(index);
                        if failure.as_ref().is_none_or(|(first, _)| number < *first) {
                            failure = Some((number, error));
                        }
                        return Poll::Ready(None);
                    }
                }
            }
            Poll::Pending
        });
        let outcome = if is_last {
            any.await
        } else {
            match select2(any, patience()).await {
                Either::First(outcome) => outcome,
                Either::Second(()) => None,
            }
        };
        if let Some(done) = outcome {
            return Ok(done);
        }
    }
}

/// How long a way has before the next one is tried, too.
const PATIENCE_SECS: f64 = 1.0;

/// The same for an outlet that answers by UDP.
const LONG_PATIENCE_SECS: f64 = 5.0;

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;
    use crate::net::runtime;

    type Try = Pin<Box<dyn Future<Output = Result<&'static str>> + Send>>;

    fn fails(text: &'static str) -> Try {
        Box::pin(async move { Err(Error::Protocol(text.into())) })
    }

    fn check(tries: Vec<Try>, expected: &str) {
        let (done, seen) = std::sync::mpsc::channel();
        runtime::spawn(async move {
            let patience = || tokio::time::sleep(Duration::from_millis(5));
            let _ = done.send(first_of(tries, patience).await);
        })
        .unwrap();
        let outcome = seen.recv_timeout(Duration::from_secs(20)).unwrap();
        let text = match outcome {
            Ok((name, number)) => format!("{name} {number}"),
            Err(error) => error.to_string(),
        };
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn ways_are_tried_in_turn_until_one_leads() {
        check(
            vec![Box::pin(ready(Ok("a"))), Box::pin(ready(Ok("b")))],
            "a 0",
        );
        check(vec![fails("x"), Box::pin(ready(Ok("b")))], "b 1");
        check(
            vec![Box::pin(pending()), fails("y"), Box::pin(ready(Ok("c")))],
            "c 2",
        );
        check(vec![fails("x"), fails("y")], ": x");
        check(vec![], "is known");
        let slow: Try = Box::pin(async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok("slow")
        });
        check(vec![slow, fails("y")], "slow 0");
    }
}
