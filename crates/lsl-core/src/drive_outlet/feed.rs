//! The task of a connection that has become a consumer. It only reads until the sender comes back: what its
//! peer must be told goes through the fan-out, which has it.

use std::future::pending;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Poll;

use lsl_platform::clock::local_clock;
use lsl_proto::limits::{Host, has_place};
use lsl_proto::outlet::connection::Event;
use lsl_proto::outlet::encoder::Variant;
use lsl_proto::outlet::fanout::{ConsumerId, Fanout, FeedLimits, Live, Status, Transmit};
use lsl_proto::outlet::request::Feed;
use lsl_proto::transport::Control;
use lsl_proto::wire::response::Refusal;
use lsl_proto::wire::sequence::{Granted, ReplayFrom};

use crate::drive_outlet::connection::Connection;
use crate::drive_outlet::link::{Feeding, Sender};
use crate::drive_outlet::past::Past;
use crate::drive_outlet::push::OutletShared;
use crate::net::select2::{Either, select2};
use crate::net::sync::{local_clock as clock_of_pushes, spawn};
use crate::{Error, Result, StreamInfo};

impl OutletShared {
    /// Makes a connection a consumer and serves it until it leaves or the outlet closes. Whatever
    /// is pushed after this call reaches it. `info` is that of the outlet which was asked; `past` is what is kept of
    /// the stream elsewhere.
    ///
    /// # Errors
    /// The connection, and what its peer must be told, if there is no room.
    pub(crate) fn join(
        self: &Arc<Self>,
        mut connection: Connection,
        feed: &Feed,
        info: &StreamInfo,
        past: Option<Past>,
    ) -> Result<(), (Box<Connection>, Refusal)> {
        let Feed {
            variant, limits, ..
        } = *feed;
        let link = Arc::clone(connection.link());
        let most = self.identity.context.config().tuning().max_consumers;
        let host = Host::from(link.peer.ip());
        let mut fanout = self.fanout.lock();
        if fanout.is_closing() && past.is_none() {
            drop(fanout);
            spawn(async move { connection.close().await });
            return Ok(());
        }
        let hosts: Vec<_> = fanout
            .consumers()
            .map(|(_, link, _)| Host::from(link.peer.ip()))
            .collect();
        if !has_place(hosts.into_iter(), host, most as usize) {
            drop(fanout);
            if !self.is_full.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    name = %self.identity.info.name(), peer = %link.peer,
                    "reader refused: the outlet has no place left for this host (tuning.MaxConsumers is {most})"
                );
            }
            let refusal = match variant {
                Variant::V110(_) => Refusal::TooManyReaders,
                Variant::V100 => Refusal::Silent,
            };
            return Err((Box::new(connection), refusal));
        }
        self.is_full.store(false, Ordering::Relaxed);
        let Some(tx) = connection.machine.take_sender() else {
            return Ok(());
        };
        let mut sender = Sender::new(Arc::clone(&link), tx);
        // Before the peer can know that it is a reader: what is pushed from then on reaches it.
        let (edge, was_read) = self.numbers.expect_reader(variant);
        if !was_read {
            fanout.begin(variant, edge);
        }
        let (mut replay, mut from_past) = (edge..edge, None);
        let granted = feed.negotiated.replay_from.zip(self.generation);
        let granted = granted.map(|(from, generation)| {
            let live = Live {
                edge,
                generation: &generation,
                nominal_srate: self.nominal_srate,
            };
            // Its silence went on while it shook hands.
            let now = clock_of_pushes();
            let from = from.later(now - connection.begun);
            let kept = past.as_ref().and_then(|past| past.first_of(&from, live));
            from_past = kept.filter(|kept| is_before(&fanout, *kept, &from, live));
            if from_past.is_none() {
                replay = fanout.replay(&from, live, host, now);
            }
            self.resumed.add(u64::from(live.resumes(&from, &replay)));
            Granted {
                generation,
                begin: from_past.unwrap_or(replay.start),
                live: edge,
                end: fanout.is_closing().then_some(edge),
            }
        });
        let side = self.options.side(info);
        sender.queue(&feed.preamble(&side, granted));
        let limits = FeedLimits {
            is_granted: granted.is_some(),
            ..limits
        };
        let id = fanout.join(sender, Arc::clone(&link), variant, limits, replay);
        // It becomes one once.
        let outlet: Weak<Self> = Arc::downgrade(self);
        let _ = link.consumer.set((outlet, id));
        if let Some(cause) = link.ended() {
            // Before it could be told which consumer that is.
            let _ = fanout.control(id, Control::Alert(cause));
        }
        self.note_read(&fanout);
        self.consumers_seen.add(1);
        let past = from_past.zip(past).and_then(|(next, past)| {
            let sender = fanout.lend(id)?;
            Some(((id, sender, next), past))
        });
        drop(fanout);
        self.fanout.wake();
        if granted.is_some() {
            self.identity.context.retaining().add(self);
            // There may be something to send again.
            self.flusher.notify_one();
        }
        if !self.has_flusher.swap(true, Ordering::Relaxed) {
            spawn(Arc::clone(self).run_flusher());
        }
        spawn(Arc::clone(self).serve(id, connection, past));
        Ok(())
    }

    /// Returns the numbers of a feed that would begin at `from` now; `None` if the outlet grants none. Spec: resume
    /// §2.2.
    pub(crate) fn retained(&self, from: &ReplayFrom, past: Option<&Past>) -> Option<Granted> {
        let generation = self.generation.filter(|_| !self.options.synchronous)?;
        let fanout = self.fanout.lock();
        let live = Live {
            edge: self.numbers.count(),
            generation: &generation,
            nominal_srate: self.nominal_srate,
        };
        (self.options.retain.seconds > 0.0).then(|| {
            let begin = fanout.first_of(from, live, local_clock());
            let kept = past.and_then(|past| past.first_of(from, live));
            let kept = kept.filter(|kept| is_before(&fanout, *kept, from, live));
            Granted {
                generation,
                begin: kept.unwrap_or(begin),
                live: live.edge,
                end: fanout.is_closing().then_some(live.edge),
            }
        })
    }

    /// Returns the number that the next sample gets.
    pub(crate) fn live_edge(&self) -> u64 {
        self.numbers.count()
    }

    /// Whether all that a reader who asks for this can have is retained: nothing that is kept elsewhere comes before it.
    pub(crate) fn has_all(&self, from: &ReplayFrom) -> bool {
        let Some(generation) = &self.generation else {
            return true;
        };
        let fanout = self.fanout.lock();
        let live = Live {
            edge: self.numbers.count(),
            generation,
            nominal_srate: self.nominal_srate,
        };
        let now = clock_of_pushes();
        let begin = fanout.first_of(from, live, now);
        match *from {
            ReplayFrom::At(position, _) if live.has(&position) => begin <= position.next,
            ReplayFrom::Live | ReplayFrom::At(..) => true,
            _ => begin > fanout.first_of(&ReplayFrom::Oldest, live, now),
        }
    }

    async fn serve(
        self: Arc<Self>,
        id: ConsumerId,
        mut connection: Connection,
        past: Option<((ConsumerId, Sender, u64), Past)>,
    ) {
        let link = Arc::clone(connection.link());
        let host = Host::from(link.peer.ip());
        let caught_up = match past {
            Some((reader, past)) => self.serve_past(reader, past, &mut connection).await,
            None => Ok(()),
        };
        let ended = match caught_up {
            Ok(()) => self.attend(id, &mut connection).await,
            failed => failed,
        };
        tracing::debug!(peer = %link.peer, ?ended, "reader gone");
        let sender = loop {
            match self.remove(id, host) {
                Poll::Ready(sender) => break sender,
                Poll::Pending => link.work.notified().await,
            }
        };
        if let Some(mut sender) = sender {
            connection.machine.return_sender(sender.take_tx());
        }
        let is_late = matches!(ended, Err(Error::Timeout { .. }));
        if !is_late {
            connection.close().await;
        }
    }

    /// Reads, and waits for the socket where the flush task found it full, until the feed is over.
    async fn attend(&self, id: ConsumerId, connection: &mut Connection) -> Result<()> {
        let link = Arc::clone(connection.link());
        loop {
            let (status, is_closing) = {
                let fanout = self.fanout.lock();
                (fanout.status(id), fanout.is_closing())
            };
            if status == Status::Ended || connection.machine.is_closed() {
                return Ok(());
            }
            if is_closing {
                connection.machine.linger(local_clock());
            }
            let room = async {
                match status {
                    Status::Blocked => link.writer.writable().await,
                    _ => pending().await,
                }
            };
            match select2(connection.step(), room).await {
                Either::First(stepped) => {
                    stepped?;
                    if let Some(Event::Control(pong)) = connection.machine.poll_event()
                        && let Some(pong) = self.in_source_clock(pong)
                    {
                        let wake_flusher = self.fanout.lock().control(id, pong);
                        if wake_flusher {
                            self.flusher.notify_one();
                        }
                    }
                }
                Either::Second(ready) => {
                    ready.map_err(|source| Error::io("connection", source))?;
                    self.fanout.lock().unblock(id);
                    self.flusher.notify_one();
                }
            }
        }
    }

    /// Returns the answer to a PING in the clock of the samples, if that is known.
    pub(super) fn in_source_clock(&self, pong: Control) -> Option<Control> {
        match &self.clock {
            None => Some(pong),
            Some(clock) => clock.answer(pong),
        }
    }

    /// As [`Fanout::leave`](lsl_proto::outlet::fanout::Fanout::leave), for a reader on this host.
    pub(super) fn remove(&self, id: ConsumerId, host: Host) -> Poll<Option<Sender>> {
        let mut fanout = self.fanout.lock();
        fanout.refund_replay(id, host, clock_of_pushes());
        let sender = fanout.leave(id);
        self.note_read(&fanout);
        drop(fanout);
        self.fanout.wake();
        // It ends with the last of a closed outlet.
        self.flusher.notify_one();
        sender
    }

    /// Keeps a session that only lends its keys, until it or the outlet ends. It is no consumer.
    pub(super) fn serve_time_keys(self: &Arc<Self>, mut connection: Connection) {
        let shared = Arc::clone(self);
        spawn(async move {
            let closed = async {
                // Before it looks: it is told of what comes after this.
                let closed = shared.closed.notified();
                if !shared.fanout.lock().is_closing() {
                    closed.await;
                }
            };
            let serving = async {
                while !connection.machine.is_closed() {
                    connection.step().await?;
                }
                Ok::<_, Error>(())
            };
            let ended = select2(serving, closed).await;
            tracing::debug!(peer = %connection.link().peer, ?ended, "time keys gone");
            connection.close().await;
        });
    }
}

/// Whether a sample that is kept elsewhere is before the first that a reader who asks for this gets from here, because
/// no older one is retained.
fn is_before(fanout: &Fanout<Sender>, kept: u64, from: &ReplayFrom, live: Live<'_>) -> bool {
    let now = clock_of_pushes();
    let begin = fanout.first_of(from, live, now);
    kept < begin && begin == fanout.first_of(&ReplayFrom::Oldest, live, now)
}

impl Feeding for OutletShared {
    fn end(&self, id: ConsumerId, last_word: Control) {
        // It ends the consumer, which leaves the flush task nothing to do.
        let _ = (self.fanout).update(|fanout| fanout.control(id, last_word));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::byte_stream::pipe;
    use crate::net::runtime;
    use crate::{ChannelFormat, Context};
    use lsl_proto::config::Config;
    use lsl_proto::outlet::connection as proto;
    use lsl_proto::outlet::request::OutletOptions;
    use lsl_proto::outlet::retention::Retain;

    #[test]
    fn who_lends_keys_waits_for_the_end_of_the_outlet_and_for_no_other_change() {
        let security = Arc::new(lsl_secure::Security::off(Vec::new()).unwrap());
        let context = Context::with_security(Config::loopback(), security);
        let info = StreamInfo::new("keys", "", 1, 0.0, ChannelFormat::Int8, "keys").unwrap();
        let options = OutletOptions {
            capacity_samples: 1,
            chunk_samples: 1,
            synchronous: false,
            retain: Retain::NOTHING,
        };
        let (told, is_told) = std::sync::mpsc::channel();
        let lending = async move {
            let shared = Arc::new(OutletShared::new(context, info, options).unwrap());
            let (mut peer, mut stream) = pipe::pair();
            stream.register().unwrap();
            let machine = proto::Connection::new(false, local_clock());
            let address = ([127, 0, 0, 1], 1).into();
            shared.serve_time_keys(Connection::new(stream, address, machine, None));
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(shared.fanout.waiters(), 0);
            shared.close();
            told.send(peer.read(&mut [0]).await.unwrap()).unwrap();
        };
        runtime::spawn(lending).unwrap();
        assert_eq!(is_told.recv_timeout(Duration::from_secs(20)), Ok(0));
    }
}
