//! What a directory has its driver do.

use std::sync::Arc;

use super::{FaceId, Reason, Refusal, Uid, WatcherId, Way};

/// Something that the driver must do, or know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BookEvent {
    /// Read the stream by this way, from the position that was reached, instead of any other.
    Subscribe {
        /// Origin of the stream.
        uid: Uid,
        /// Way to read by.
        way: Way,
    },
    /// Stop reading the stream.
    Unsubscribe(Uid),
    /// Another way is in use, for clocks.
    WayChanged {
        /// Origin of the stream.
        uid: Uid,
        /// Way; `None` for the time being.
        way: Option<Way>,
    },
    /// Tell a watcher of a stream that is new or changed.
    Announce {
        /// Number of the watcher.
        watcher: WatcherId,
        /// Origin of the stream.
        uid: Uid,
        /// Full info with the path, this relay last.
        xml: Arc<[u8]>,
    },
    /// Tell a watcher that a stream is gone.
    Withdraw {
        /// Number of the watcher.
        watcher: WatcherId,
        /// Origin of the stream.
        uid: Uid,
        /// Reason to tell.
        reason: Reason,
    },
    /// Tell a watcher that all known streams were said.
    Synced(WatcherId),
    /// Offer the stream on a face as an outlet with a new uid, or change what its outlet says.
    Offer {
        /// Face to offer on.
        face: FaceId,
        /// Origin of the stream.
        uid: Uid,
    },
    /// Close the outlet of the stream on a face.
    Unoffer {
        /// Face of the outlet.
        face: FaceId,
        /// Origin of the stream.
        uid: Uid,
    },
    /// The stream is forgotten: its outlet closes, history and engine are told the end.
    Gone {
        /// Origin of the stream.
        uid: Uid,
        /// Reason of the end.
        reason: Reason,
    },
    /// Have this stream kept, by history and engine, or no more. They are told its end by `Gone` alone.
    Keep {
        /// Origin of the stream.
        uid: Uid,
        /// Whether by which.
        by: [bool; 2],
    },
    /// The document of a stream is another one, and with it perhaps who may read it.
    Changed(Uid),
    /// A stream, or a way to it, was not taken over.
    Refused {
        /// Origin of the stream.
        uid: Uid,
        /// Way that is not used.
        way: Way,
        /// What is wrong with it.
        why: Refusal,
    },
    /// Ask again for a stream that was not taken over: there may be room now. What a link says then is for
    /// [`announced_again`](super::Book::announced_again).
    Ask {
        /// Origin of the stream.
        uid: Uid,
        /// Way to ask by.
        way: Way,
    },
}
