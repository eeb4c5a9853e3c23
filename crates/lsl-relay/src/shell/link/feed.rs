//! Reads the past of a stream from the relay at the other end of a link. Spec: relay §9.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use lsl_core::relay::{ReplayFrom, Run, Substream};
use lsl_core::{Error, Result, StreamInfo, local_clock};
use lsl_proto::clock::PostProcessor;
use lsl_proto::inlet::{Connection, Disconnect, Exchange, Feed, FeedDecoder, SampleRing};
use lsl_proto::inlet::{FeedOptions, Read};
use lsl_proto::wire::request::PROTOCOL_VERSION;
use lsl_proto::wire::sequence::Granted;

use super::Link;

/// Feed of what came before it began. Little of it waits here: the other end is held back.
#[derive(Debug)]
pub(in crate::shell) struct PastFeed {
    granted: Granted,
    receiving: Receiving,
}

#[derive(Debug)]
struct Receiving {
    substream: Arc<dyn Substream>,
    connection: Connection,
    feed: Feed,
    buffer: Vec<u8>,
}

impl PastFeed {
    /// Asks for a stream from `from` on, and waits for the answer.
    ///
    /// # Errors
    /// That of the link, or why there is no such feed.
    pub(in crate::shell) async fn open(
        link: &Link,
        info: &StreamInfo,
        from: ReplayFrom,
    ) -> Result<Self> {
        let options = FeedOptions {
            version: PROTOCOL_VERSION,
            max_buffer_samples: MOST_SAMPLES,
            max_chunk_samples: 0,
        };
        let decoder = FeedDecoder::asking(info, options, Some(from.into()));
        let request = as_past(decoder.request());
        let substream = link.open_past(&request).map_err(failed)?;
        let exchange = Exchange::Feed(Box::new(decoder));
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let shape = (info.channel_count() as usize, info.channel_format());
        let ring = SampleRing::new(MOST_SAMPLES as usize, RING_BYTES);
        let processing = PostProcessor::new(info.nominal_srate(), 0.0);
        let mut receiving = Receiving {
            substream,
            connection: Connection::requested(nobody, exchange),
            feed: Feed::new(ring, processing, shape, true),
            buffer: vec![0; READ_BYTES],
        };
        while !receiving.connection.is_opened() {
            receiving.receive().await?;
        }
        let decoder = receiving.connection.feed();
        let granted = decoder.and_then(FeedDecoder::granted).copied();
        let ungranted = || Error::Protocol("the other relay numbers no samples".into());
        Ok(Self {
            granted: granted.ok_or_else(ungranted)?,
            receiving,
        })
    }

    /// Returns the numbers of the feed.
    pub(in crate::shell) fn granted(&self) -> &Granted {
        &self.granted
    }

    /// Returns the number of the next sample, as far as it is known.
    pub(in crate::shell) fn next(&self) -> Option<u64> {
        Some(self.receiving.feed.first_of_ring()?.next)
    }

    /// Replaces `run` by the next samples, as many as are here, but for those that came after the feed began. False if
    /// there are no others.
    ///
    /// # Errors
    /// That of the link, or a mistake of the other end.
    pub(in crate::shell) async fn read(&mut self, run: &mut Run) -> Result<bool> {
        loop {
            let receiving = &mut self.receiving;
            if receiving.feed.take_run(usize::MAX, run)? {
                return Ok(true);
            }
            if (receiving.feed.position()).is_none_or(|at| at.next >= self.granted.live) {
                return Ok(false);
            }
            receiving.receive().await?;
        }
    }
}

impl Receiving {
    /// Waits for bytes, or takes those for which there was no room.
    async fn receive(&mut self) -> Result<()> {
        let (feed, connection) = (&mut self.feed, &mut self.connection);
        let waits = connection.feed().is_some_and(FeedDecoder::has_held);
        let received: (Read, _) = if waits && feed.ring.room() > 0 {
            feed.refill(connection, local_clock)
        } else {
            let (substream, buffer) = (&self.substream, &mut self.buffer);
            let reading = poll_fn(|context| substream.poll_read(Some(context), buffer));
            let count = reading.await.map_err(failed)?;
            if count == 0 {
                return Err(self.connection.closed());
            }
            let bytes = self.buffer.get_mut(..count).unwrap_or_default();
            feed.handle_input(connection, bytes, local_clock)
        };
        received.1.map_err(|disconnect| match disconnect {
            Disconnect::Failed(error) => error,
            Disconnect::Closed | Disconnect::Session(_) => {
                Error::Protocol("the other relay ended it".into())
            }
        })
    }
}

/// Returns a request that says to be for the past.
fn as_past(request: &[u8]) -> Vec<u8> {
    let request = request.strip_suffix(b"\r\n").unwrap_or(request);
    [request, MARK, b"\r\n\r\n"].concat()
}

/// Whether a request says that all that is sent for it gives way to what is live. Spec: relay §4.2.
pub(super) fn is_for_past(request: &[u8]) -> bool {
    request.windows(MARK.len() + 2).any(|it| {
        it.strip_suffix(b"\r\n")
            .is_some_and(|it| it.eq_ignore_ascii_case(MARK))
    })
}

fn failed(source: io::Error) -> Error {
    Error::Io {
        context: "link".into(),
        source,
    }
}

const MARK: &[u8] = b"Lslx-Past: 1";

const READ_BYTES: usize = 16 << 10;

/// Samples and bytes that wait here; one larger sample does, too.
const MOST_SAMPLES: u32 = 8192;
const RING_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_the_past_says_so() {
        let request = b"LSL:streamfeed/110 u1\r\nMax-Buffer-Length: 9\r\n\r\n";
        let marked = as_past(request);
        assert_eq!(
            marked,
            b"LSL:streamfeed/110 u1\r\nMax-Buffer-Length: 9\r\nLslx-Past: 1\r\n\r\n"
        );
        assert_eq!((is_for_past(request), is_for_past(&marked)), (false, true));
    }
}
