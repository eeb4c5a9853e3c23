//! The flush task of an outlet: sends to consumers that lag, as far as their sockets have room.

use std::pin::pin;
use std::sync::Arc;

use lsl_proto::outlet::fanout::Batch;

use crate::drive_outlet::link::Sender;
use crate::drive_outlet::push::OutletShared;
use crate::net::select2::{Either, select2};

impl OutletShared {
    /// Serves all consumers that lag, until the outlet is closed and they have left.
    pub(super) async fn run_flusher(self: Arc<Self>) {
        let mut batch = Batch::default();
        while self.next_batch(&mut batch) {
            if batch.is_empty() {
                // Flushes that wait look again.
                self.fanout.wake();
                batch.shrink(2 * BATCH_BYTES);
                self.flusher.notified().await;
                self.coalesce().await;
                continue;
            }
            let (mut bytes, mut calls) = (0, 0);
            while let Some(sent) = batch.send_next() {
                bytes += sent;
                calls += 1;
                // Readers that are far behind must not delay a clock probe.
                if bytes >= BATCH_BYTES || calls >= CALLS_IN_A_ROW {
                    tokio::task::yield_now().await;
                    (bytes, calls) = (0, 0);
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Brings the senders of a sent batch back and takes out the next. Returns false once that is over.
    fn next_batch(&self, batch: &mut Batch<Sender>) -> bool {
        let mut fanout = self.fanout.lock();
        fanout.finish(batch);
        fanout.fill(BATCH_BYTES, batch);
        while self.options.synchronous && !batch.is_empty() {
            // Under the lock: a push that waits must find every sender, whatever else keeps this thread.
            while batch.send_next().is_some() {}
            fanout.finish(batch);
            fanout.fill(BATCH_BYTES, batch);
        }
        !(fanout.is_closing() && fanout.is_empty())
    }

    /// Lets small records wait for more. Ends early for consumers that do not wait, and for what was sent
    /// in part.
    async fn coalesce(&self) {
        if self.coalesce.is_zero() {
            return;
        }
        let mut pause = pin!(tokio::time::sleep(self.coalesce));
        while !self.fanout.lock().is_urgent() {
            if let Either::First(()) = select2(pause.as_mut(), self.flusher.notified()).await {
                return;
            }
        }
    }
}

/// Sockets that are written to before others run.
const CALLS_IN_A_ROW: usize = 8;

/// Bytes handed to a socket at a time when catching up.
const BATCH_BYTES: usize = 64 * 1024;
