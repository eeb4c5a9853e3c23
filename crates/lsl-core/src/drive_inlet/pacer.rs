//! Turns for what all inlets of a process want in the same moment.
//!
//! When 2,000 streams are silent by nature, each of their watchdogs asks whether the outlet is still
//! there. Few do so at once. Many take turns, or their questions would drown the network, and the
//! answers with them.

use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::PerProcess;
use lsl_proto::limits::TokenBucket;
use tokio::sync::Mutex;

/// Lets a burst pass, and after it so many a second, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Pacer {
    bucket: Mutex<TokenBucket>,
}

impl Default for Pacer {
    fn default() -> Self {
        Self {
            bucket: Mutex::new(TokenBucket::new(QUESTIONS_PER_SEC, QUESTION_BURST)),
        }
    }
}

impl Pacer {
    /// Waits for a turn and takes it. Whoever gives up waiting leaves no gap.
    pub(crate) async fn turn(&self) {
        // Queues in order of arrival; only the first in the queue sleeps.
        let mut bucket = self.bucket.lock().await;
        loop {
            let now = local_clock();
            if bucket.take(now) {
                return;
            }
            tokio::time::sleep(Duration::from_secs_f64(bucket.ready_at(now) - now)).await;
        }
    }
}

/// The questions to outlets that are silent whether they are still there.
pub(crate) fn questions() -> &'static Pacer {
    static QUESTIONS: PerProcess<Pacer> = PerProcess::new();
    QUESTIONS.get()
}

/// A question is a datagram, and the answer another.
const QUESTIONS_PER_SEC: f64 = 1000.0;
/// A receive buffer of usual size holds as many.
const QUESTION_BURST: f64 = 64.0;
