//! State of a stream while it is recorded, for displays and for the session.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lsl_core::{ChannelFormat, StreamInfo, local_clock};
use tokio::time::sleep;

use crate::queue::Slot;
use crate::strangers::{Candidates, TURN_SECS};

/// Properties by which a stream is recognised when it comes back: all that stay when its program is
/// started again. Without a source id, that is this very outlet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Identity {
    texts: [Vec<u8>; 6],
    channels: u32,
    format: ChannelFormat,
    srate: f64,
}

impl Identity {
    pub(crate) fn of(info: &StreamInfo) -> Self {
        let instance = if info.source_id_bytes().is_empty() {
            info.uid_bytes()
        } else {
            b""
        };
        Self {
            texts: [
                info.name_bytes(),
                info.stream_type_bytes(),
                info.source_id_bytes(),
                info.hostname_bytes(),
                info.session_id_bytes(),
                instance,
            ]
            .map(<[u8]>::to_vec),
            channels: info.channel_count(),
            format: info.channel_format(),
            srate: info.nominal_srate(),
        }
    }

    /// Whether an outlet says to be this one. Copies nothing: thousands may do so.
    pub(crate) fn is_of(&self, info: &StreamInfo) -> bool {
        let [name, kind, source_id, hostname, session_id, instance] = &self.texts;
        self.channels == info.channel_count()
            && self.format == info.channel_format()
            && self.srate.to_bits() == info.nominal_srate().to_bits()
            && name == info.name_bytes()
            && kind == info.stream_type_bytes()
            && source_id == info.source_id_bytes()
            && hostname == info.hostname_bytes()
            && session_id == info.session_id_bytes()
            && (!source_id.is_empty() || instance == info.uid_bytes())
    }
}

/// State of a stream as displays show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamState {
    /// Not connected to an outlet yet.
    Connecting,
    /// Encryption, or its absence, keeps us out.
    Refused(String),
    /// It is connected and its samples are recorded.
    Recording,
    /// Its connection is lost; the recorder looks for it.
    Lost,
    /// The recording of this stream has ended.
    Done,
}

impl StreamState {
    /// Returns it in a word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Refused(_) => "refused",
            Self::Recording => "recording",
            Self::Lost => "lost",
            Self::Done => "done",
        }
    }
}

/// Treatment of timestamps on their way into the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamps {
    /// Timestamps stay as they came, with the clock offsets beside them: readers of the file align
    /// them, with all offsets at hand.
    Raw,
    /// Timestamps are mapped to our clock, and smoothed, with the offsets known so far. No offsets
    /// are recorded then, so that they are not aligned twice; the header says `<synced>`.
    Synced,
}

/// Counters and state of one stream.
#[derive(Debug, Clone)]
pub struct StreamStatus {
    /// Present state, and the reason of a refusal.
    pub state: StreamState,
    /// The outlet in use, or the last one.
    pub info: StreamInfo,
    /// Samples that were taken from the inlet.
    pub samples: u64,
    /// Seconds since something came, at the last look.
    pub idle_secs: Option<f64>,
    /// Seconds to add to its timestamps to get our time.
    pub offset_secs: Option<f64>,
    /// Uncertainty of `offset_secs`, from the lowest to the highest value that it may have.
    pub uncertainty_secs: Option<f64>,
    /// Clock offsets that were recorded.
    pub offsets: u64,
    /// Clock offsets that were due and could not be measured.
    pub failed_offsets: u64,
    /// Number of interruptions of its samples.
    pub gaps: u64,
    /// Samples that came and could not be taken, or not be recorded.
    pub missing: u64,
    /// Samples that were lost before they came here, as far as the stream's outlet numbers them.
    pub lost: u64,
    /// Number of interruptions of which nobody knows how many samples were lost.
    pub unknown_losses: u64,
    /// Number of times that it came back.
    pub reconnects: u64,
    /// Name of the device with which it is encrypted.
    pub encryption: Option<String>,
    /// Whether it is known well enough to stand in the file.
    pub(crate) has_header: bool,
    /// Treatment of timestamps that the header states.
    pub(crate) stamps: Stamps,
    /// Whether it flowed when the recording ended, or is not supposed to any more.
    pub(crate) is_lost: bool,
    pub(crate) last_stamp: Option<f64>,
    /// When samples were first taken, by our clock, and how many were there by then.
    pub(crate) began: Option<(f64, u64)>,
    /// Connections that did not come about, one after another.
    pub(crate) failures: u64,
    /// Whether the outlet neither sends nor answers, though its connection is not closed.
    pub(crate) is_away: bool,
    /// Time of our clock at which its recording ended.
    pub(crate) ended_at: Option<f64>,
}

/// A stream of the recording.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) slot: Slot,
    pub(crate) identity: Identity,
    pub(crate) required: bool,
    /// When it was taken in, by our clock.
    pub(crate) since: f64,
    /// Whether that is to be said once it flows.
    pub(crate) is_late: bool,
    /// Which wishes for more than everything it fulfilled when it was taken in.
    pub(crate) named: Vec<usize>,
    status: Mutex<StreamStatus>,
    /// Whether its outlet is to be given up for another one.
    is_replaced: AtomicBool,
    /// Whether the session gave it up before it had a header; changes under the lock of `status`.
    is_given_up: AtomicBool,
    /// The outlets by which it may go on, for its task.
    candidates: Mutex<Candidates>,
}

impl Live {
    pub(crate) fn new(slot: Slot, info: &StreamInfo, required: bool, is_late: bool) -> Self {
        Self {
            slot,
            identity: Identity::of(info),
            required,
            since: local_clock(),
            is_late,
            named: Vec::new(),
            status: Mutex::new(StreamStatus {
                state: StreamState::Connecting,
                info: info.clone(),
                has_header: false,
                stamps: Stamps::Raw,
                is_lost: false,
                samples: 0,
                last_stamp: None,
                idle_secs: None,
                began: None,
                offset_secs: None,
                uncertainty_secs: None,
                offsets: 0,
                failed_offsets: 0,
                gaps: 0,
                missing: 0,
                lost: 0,
                unknown_losses: 0,
                reconnects: 0,
                failures: 0,
                encryption: None,
                is_away: false,
                ended_at: None,
            }),
            is_replaced: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            candidates: Mutex::default(),
        }
    }

    /// Tells its task to give up the outlet in use.
    pub(crate) fn replace(&self) {
        self.is_replaced.store(true, Ordering::Relaxed);
    }

    /// Whether that was said; once.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced.swap(false, Ordering::Relaxed)
    }

    /// The outlets by which it may go on.
    pub(crate) fn candidates(&self) -> MutexGuard<'_, Candidates> {
        let candidates = self.candidates.lock();
        candidates.unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends once this outlet had its time to answer, and there is another one by which to go on.
    pub(crate) async fn overtaken(&self, uid: &[u8]) {
        let mut pause = TURN_SECS;
        loop {
            sleep(Duration::from_secs_f64(pause)).await;
            if self.candidates().has_other(uid) {
                return;
            }
            pause = LOOK_SECS;
        }
    }

    /// Gives it a place in the file; false if the session was faster and has given it up.
    pub(crate) fn prove(&self) -> bool {
        let mut status = self.lock();
        status.has_header = !self.is_given_up.load(Ordering::Relaxed);
        status.has_header
    }

    /// Gives it up; false if its task was faster and it has a place in the file.
    pub(crate) fn give_up(&self) -> bool {
        let status = self.lock();
        self.is_given_up
            .store(!status.has_header, Ordering::Relaxed);
        !status.has_header
    }

    /// Returns true for a stream known from adverts alone: it never was connected.
    pub(crate) fn is_unproven(&self) -> bool {
        !self.lock().has_header
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, StreamStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn status(&self) -> StreamStatus {
        self.lock().clone()
    }

    pub(crate) fn state(&self) -> StreamState {
        self.lock().state.clone()
    }

    pub(crate) fn name(&self) -> String {
        self.lock().info.name().into_owned()
    }
}

impl StreamStatus {
    /// Returns the samples a second since the first were taken, if that was a second ago. Samples
    /// queued before do not count.
    pub fn rate(&self, now: f64) -> Option<f64> {
        let (at, before) = self.began?;
        let secs = self.ended_at.unwrap_or(now) - at;
        (secs >= 1.0).then(|| (self.samples - before) as f64 / secs)
    }

    /// Returns the seconds to add to timestamps to get our time, once they are known.
    pub(crate) fn to_ours(&self) -> Option<f64> {
        match self.stamps {
            Stamps::Raw => self.offset_secs,
            Stamps::Synced => Some(0.0),
        }
    }

    /// Returns the seconds from when the last sample was stamped until now, on our clock.
    pub fn lag(&self, now: f64) -> Option<f64> {
        Some(self.ended_at.unwrap_or(now) - (self.last_stamp? + self.to_ours()?))
    }
}

/// Approximate interval at which the session looks for other outlets.
const LOOK_SECS: f64 = 0.3;

#[cfg(test)]
mod tests {
    use lsl_core::StreamInfo;
    use tokio::time::timeout;

    use super::*;
    use crate::strangers::Advert;

    fn advert(uid: &str, source_id: &str) -> Advert {
        let format = ChannelFormat::Int8;
        let mut info = StreamInfo::new("Amp", "EEG", 2, 100.0, format, source_id).unwrap();
        info.reset_uid(uid);
        Advert { info, sender: None }
    }

    #[test]
    fn a_stream_that_has_just_connected_is_not_given_up() {
        let live = || Live::new(0, &advert("a", "").info, false, false);
        let connected = live();
        assert!(connected.prove());
        assert!(!connected.give_up());
        assert!(!connected.is_unproven());
        let forgotten = live();
        assert!(forgotten.give_up());
        assert!(!forgotten.prove(), "and nothing of it gets into the file");
        assert!(forgotten.is_unproven());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test waits for its task")]
    fn a_silent_outlet_is_left_for_another_one_and_only_for_that() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let live = Live::new(0, &advert("a", "s").info, false, false);
        let is_overtaken_by = |uids: &[&str]| {
            let adverts: Vec<_> = uids.iter().map(|uid| advert(uid, "s")).collect();
            let offered = adverts.iter().map(|advert| (advert, false)).collect();
            live.candidates().offer(offered);
            let limit = Duration::from_secs_f64(TURN_SECS + 2.0 * LOOK_SECS);
            let overtaken = async { timeout(limit, live.overtaken(b"a")).await };
            runtime.block_on(overtaken).is_ok()
        };
        assert!(!is_overtaken_by(&[]));
        assert!(!is_overtaken_by(&["a"]));
        assert!(is_overtaken_by(&["a", "b"]));
    }

    #[test]
    fn an_outlet_without_a_source_id_has_no_successor() {
        for (source_id, expected) in [("s", true), ("", false)] {
            let identity = Identity::of(&advert("a", source_id).info);
            assert!(identity.is_of(&advert("a", source_id).info));
            assert_eq!(identity.is_of(&advert("b", source_id).info), expected);
            assert!(!identity.is_of(&advert("a", "other").info));
        }
    }
}
