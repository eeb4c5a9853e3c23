//! How connections end that were refused: so that the refusal arrives, and so that programs which try
//! again at once do not spin. Spec: LSS/1 §4.2, §4.4.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_platform::fork::PerProcess;
use lsl_secure::admission::{Held, HeldSockets};
use tokio::sync::Notify;

use crate::byte_stream::{ByteStream, CLOSE_LIMIT};
use crate::drive_outlet::connection::Connection;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::select2::select2;

/// Sends a textual refusal to a stranger, if there is one, and ends the connection. A flood of
/// strangers takes these moments from itself, as it does with [`hold_open`].
pub(crate) async fn refuse(stream: &mut ByteStream, source: IpAddr, text: &[u8]) {
    let slot = RefusedSlot::take(source);
    let ending = async {
        let sending = stream.writer().send_all(text);
        if let Ok(Ok(())) = tokio::time::timeout(CLOSE_LIMIT, sending).await {
            stream.close(CLOSE_LIMIT).await;
        }
    };
    select2(ending, slot.pushed_out.notified()).await;
}

/// Sends the last word of a refused request, if there is one, and keeps the connection for a second:
/// liblsl would ask again at once. Does not wait for any of it.
pub(crate) fn hold_open(mut connection: Connection, text: &'static [u8]) {
    tokio::spawn(async move {
        let peer = connection.link().peer;
        let slot = RefusedSlot::take(peer.ip());
        let stream = &mut connection.stream;
        let holding = async {
            stream.writer().send_all(text).await?;
            stream.discard().await?;
            // Closed for one direction, or more than anybody has to say: the time is not over.
            std::future::pending::<io::Result<()>>().await
        };
        let holding = tokio::time::timeout(HOLD, holding);
        let ended = select2(holding, slot.pushed_out.notified()).await;
        tracing::debug!(%peer, ?ended, "refused peer let go");
    });
}

/// One of the refused connections that the process holds open.
#[derive(Debug)]
struct RefusedSlot {
    held: Held,
    pushed_out: Arc<Notify>,
}

/// All of them.
#[derive(Debug)]
struct RefusedSlots {
    sockets: HeldSockets,
    holders: HashMap<Held, Arc<Notify>>,
}

impl Default for RefusedSlots {
    fn default() -> Self {
        let limit = lsl_platform::privilege::open_file_limit().unwrap_or(u64::MAX) / 8;
        Self {
            sockets: HeldSockets::new(usize::try_from(limit).unwrap_or(MAX_HELD).min(MAX_HELD)),
            holders: HashMap::new(),
        }
    }
}

impl RefusedSlot {
    /// Takes a slot for a peer there, for which an older one may have to go.
    fn take(source: IpAddr) -> Self {
        let pushed_out = Arc::new(Notify::new());
        let (held, victim) = {
            let mut slots = lock_ignoring_poison(slots());
            let (held, victim) = slots.sockets.hold(source);
            slots.holders.insert(held, Arc::clone(&pushed_out));
            (
                held,
                victim.and_then(|victim| slots.holders.remove(&victim)),
            )
        };
        if let Some(victim) = victim {
            victim.notify_one();
        }
        Self { held, pushed_out }
    }
}

impl Drop for RefusedSlot {
    fn drop(&mut self) {
        let mut slots = lock_ignoring_poison(slots());
        slots.holders.remove(&self.held);
        slots.sockets.release(self.held);
    }
}

fn slots() -> &'static Mutex<RefusedSlots> {
    static SLOTS: PerProcess<Mutex<RefusedSlots>> = PerProcess::new();
    SLOTS.get()
}

/// How long a refused connection is held. Spec: LSS/1 §4.4.
const HOLD: Duration = Duration::from_secs(1);
const MAX_HELD: usize = 256;
