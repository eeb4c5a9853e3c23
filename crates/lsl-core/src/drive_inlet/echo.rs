//! Asking the outlet of an inlet for a sign of life now: whoever ends wants to know whether samples are
//! still on their way. Spec: LSS/1 §9.5, lsl-protocol §4.

use std::sync::Arc;
use std::time::Duration;

use lsl_platform::clock::local_clock;

use crate::drive_clock::session::LentKeys;
use crate::drive_inlet::shared::InletShared;

/// Path by which an outlet answered a request for a sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Echo {
    /// Through the encrypted connection that the samples come by: TCP keeps their order, so that all the
    /// outlet had sent before its answer is here.
    InBand,
    /// By UDP, as plaintext connections have no way to ask. It shows that the outlet lives and that the
    /// way is open, and nothing of the TCP connection: a lost segment of that is sent again later.
    Beside {
        /// Whether the outlet is on this machine, where nothing is lost on the way.
        is_local: bool,
    },
}

/// Asks until there is an answer.
pub(crate) async fn ask(shared: Arc<InletShared>) -> Echo {
    loop {
        let pings = (shared.facts.lock().keys.as_ref()).and_then(LentKeys::pings_of_feed);
        if let Some(pings) = pings {
            pings.ask_echo(local_clock());
            // An outlet keeps one question; that of the clock may have taken its place.
            if tokio::time::timeout(ASK_AGAIN, pings.echo()).await.is_ok() {
                return Echo::InBand;
            }
            continue;
        }
        if let Some(is_local) = shared.source.asked_in_place().await {
            return Echo::Beside { is_local };
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

const ASK_AGAIN: Duration = Duration::from_millis(250);
