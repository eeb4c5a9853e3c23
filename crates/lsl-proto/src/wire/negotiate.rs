//! Negotiation of a feed by the outlet: a pure decision, by the table of lsl-protocol §7.3.

use crate::wire::request::{FIRST_VERSION_WITH_HEADERS, FeedParams};
use crate::wire::response::{DataProtocol, FeedResponse, Refusal};
use crate::wire::sequence::ReplayFrom;
use crate::{ByteOrder, ChannelFormat};

/// Figure that stands for our speed of swapping bytes. liblsl measures swaps in 10 ms: 1e6 to 6e6
/// on current machines. We swap while copying at no measurable cost, so every measured figure is
/// below ours and the inlet gets the order it asks for. A figure above it still forces our order.
const ENDIAN_PERFORMANCE: f64 = 1e9;

/// Properties of an outlet on which a feed depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutletSide<'a> {
    /// Protocol version of the outlet: 110, or less by configuration.
    pub version: u32,
    /// Uid of the outlet, as announced.
    pub uid: &'a [u8],
    /// Value format of the stream.
    pub format: ChannelFormat,
    /// Byte order of the host.
    pub byte_order: ByteOrder,
    /// Way in which samples reach the inlets.
    pub writing: Writing,
    /// Whether samples are retained at all (`RetainSeconds` > 0).
    pub retains: bool,
}

/// Way in which an outlet sends its samples to the inlets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Writing {
    /// Through a queue per inlet; any data protocol will do.
    Queued,
    /// The pushing thread writes to all of them at once, in data protocol 1.10 only.
    Synchronous,
}

/// A feed that the outlet grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    /// Encoding and byte order of the samples.
    pub feed: FeedResponse,
    /// Whether [`FeedResponse::to_bytes`] is sent before the samples. Inlets older than 1.10 want none.
    pub preface: Preface,
    /// Queue length in samples; `None` closes the feed after the test patterns.
    pub max_buffer_samples: Option<usize>,
    /// Samples per chunk the inlet prefers; 0 for no preference.
    pub max_chunk_samples: usize,
    /// Beginning that was asked for, if the feed is a granted one. Whoever admits the reader then puts the
    /// numbers into [`FeedResponse::granted`] before it writes the preface. Spec: resume §2.3.
    pub replay_from: Option<ReplayFrom>,
}

/// Header that precedes the samples of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Preface {
    /// No header, as before 1.10.
    None,
    /// Status line and response headers.
    Response,
}

/// Decides on a request `LSL:streamfeed/version uid`.
///
/// # Errors
/// [`Refusal`] with the bytes to send before closing.
pub fn negotiate(
    outlet: &OutletSide<'_>,
    version: u32,
    uid: &[u8],
    params: &FeedParams,
) -> Result<Negotiated, Refusal> {
    if version / 100 > outlet.version / 100 {
        return Err(Refusal::Version);
    }
    if !uid.is_empty() && uid != outlet.uid {
        return Err(Refusal::NotFound);
    }
    if version < FIRST_VERSION_WITH_HEADERS {
        return negotiate_100(outlet, params.max_buffer_length, params.max_chunk_length);
    }
    let data_protocol = data_protocol(outlet, version, params);
    if data_protocol == DataProtocol::V100 && outlet.writing == Writing::Synchronous {
        return Err(Refusal::SynchronousNeeds110);
    }
    let framed = data_protocol == DataProtocol::V110;
    let (buffer, chunk) = (params.max_buffer_length, params.max_chunk_length);
    // A feed that is closed after the test patterns has no samples to number.
    let grants = framed && outlet.writing == Writing::Queued && outlet.retains && buffer > 0;
    let replay_from = params.replay_from.filter(|_| grants);
    let feed = FeedResponse {
        // One retained log serves all granted feeds, in the order in which it was written.
        byte_order: if framed && replay_from.is_none() {
            byte_order(outlet, params)
        } else {
            outlet.byte_order
        },
        suppress_subnormals: framed && outlet.format.is_float() && !params.supports_subnormals,
        data_protocol,
        granted: None,
    };
    let negotiated = Negotiated::new(feed, Preface::Response, buffer, chunk);
    Ok(Negotiated {
        replay_from,
        ..negotiated
    })
}

/// Decides on a request in protocol 1.00; lengths in samples.
///
/// # Errors
/// [`Refusal::Silent`] by a synchronous outlet.
pub fn negotiate_100(
    outlet: &OutletSide<'_>,
    max_buffer: i32,
    max_chunk: i32,
) -> Result<Negotiated, Refusal> {
    if outlet.writing == Writing::Synchronous {
        return Err(Refusal::Silent);
    }
    let feed = FeedResponse {
        byte_order: outlet.byte_order,
        suppress_subnormals: false,
        data_protocol: DataProtocol::V100,
        granted: None,
    };
    Ok(Negotiated::new(feed, Preface::None, max_buffer, max_chunk))
}

impl Negotiated {
    fn new(feed: FeedResponse, preface: Preface, max_buffer: i32, max_chunk: i32) -> Self {
        let samples = |length: i32| usize::try_from(length).unwrap_or(0);
        Self {
            feed,
            preface,
            max_buffer_samples: Some(samples(max_buffer)).filter(|&samples| samples > 0),
            max_chunk_samples: samples(max_chunk),
            replay_from: None,
        }
    }

    /// Returns the bytes to send before the samples.
    pub fn preface_bytes(&self, outlet: &OutletSide<'_>) -> Vec<u8> {
        match self.preface {
            Preface::None => Vec::new(),
            Preface::Response => self.feed.to_bytes(outlet.version, outlet.uid),
        }
    }
}

fn data_protocol(outlet: &OutletSide<'_>, version: u32, params: &FeedParams) -> DataProtocol {
    let size_fits = outlet.format == ChannelFormat::String
        || params
            .value_size
            .is_none_or(|size| Ok(outlet.format.value_size()) == size.try_into());
    if !size_fits || !params.has_ieee754_floats {
        return DataProtocol::V100;
    }
    // A negative number is no version of ours either.
    let wanted = params
        .protocol_version
        .map_or(version, |wanted| wanted.try_into().unwrap_or(0));
    DataProtocol::from_version(wanted.min(outlet.version))
}

fn byte_order(outlet: &OutletSide<'_>, params: &FeedParams) -> ByteOrder {
    // Streams of single bytes keep the outlet's order, timestamps included. Spec: lsl-protocol §14 Q10.
    let swappable = match params.value_size {
        Some(size) => size > 1,
        None => outlet.format.value_size() > 1,
    };
    match ByteOrder::from_code(params.native_byte_order) {
        Some(order) if swappable && ENDIAN_PERFORMANCE > params.endian_performance => order,
        _ => outlet.byte_order,
    }
}

#[cfg(test)]
mod tests;
