//! Description of a stream: typed fields beside one XML document. The getters read the fields;
//! queries, the description and the full XML read the document. Editing the document does not
//! change the fields, as in liblsl. Nothing here resolves, connects or knows a host's addresses.
//! Spec: lsl-protocol §2, c-abi §5.
#![deny(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod advert;
mod assign;
mod endpoint;
mod fullinfo;
mod relay;
mod shortinfo;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use self::advert::SecurityAdvert;
pub use self::endpoint::Endpoint;
use self::endpoint::Family;
pub use self::relay::RelayAdvert;
use crate::query::Query;
use crate::xml::{Document, ElementMut, ElementRef, NodeId};
use crate::{ChannelFormat, Error, Result};

/// Version of the protocol that a new stream info announces: 1.10.
const VERSION: u32 = 110;

/// Description of a stream: the user's metadata, and the identity and addresses of its outlet.
///
/// Text may hold any bytes; the plain getters show invalid UTF-8 as U+FFFD, the `_bytes` getters
/// return the bytes of the wire. Cloning copies the document too.
///
/// ```
/// # use lsl_proto as lsl_core;
/// use lsl_core::{ChannelFormat, StreamInfo};
///
/// let mut info = StreamInfo::new("Cap", "EEG", 2, 250.0, ChannelFormat::Float32, "cap-0041")?;
/// let mut channels = info.desc_mut().into_child("channels");
/// for label in ["C3", "C4"] {
///     channels.append_child("channel").set("label", label).set("unit", "microvolts");
/// }
/// let labels: Vec<_> = info
///     .desc_ref()
///     .and_then(|desc| desc.child("channels"))
///     .into_iter()
///     .flat_map(|channels| channels.children_named("channel"))
///     .filter_map(|channel| channel.get("label"))
///     .collect();
/// assert_eq!(labels, ["C3", "C4"]);
/// # Ok::<(), lsl_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct StreamInfo {
    fields: Fields,
    document: Document,
}

/// Typed values of the elements of `<info>`.
#[derive(Debug, Clone)]
struct Fields {
    name: Vec<u8>,
    stream_type: Vec<u8>,
    channel_count: u32,
    channel_format: ChannelFormat,
    source_id: Vec<u8>,
    nominal_srate: f64,
    version: u32,
    created_at: f64,
    uid: Vec<u8>,
    session_id: Vec<u8>,
    hostname: Vec<u8>,
    v4: Family,
    v6: Family,
}

impl Fields {
    fn blank() -> Self {
        Self {
            name: Vec::new(),
            stream_type: Vec::new(),
            channel_count: 0,
            channel_format: ChannelFormat::Undefined,
            source_id: Vec::new(),
            nominal_srate: 0.0,
            version: 0,
            created_at: 0.0,
            uid: Vec::new(),
            session_id: Vec::new(),
            hostname: Vec::new(),
            v4: Family::default(),
            v6: Family::default(),
        }
    }
}

impl StreamInfo {
    /// Describes a stream that an outlet is to serve.
    ///
    /// `nominal_srate` is in samples per second, [`IRREGULAR_RATE`](crate::IRREGULAR_RATE) if samples
    /// come at no fixed interval. `source_id` should name the device or the program uniquely and
    /// stay the same over restarts: receivers find a restarted stream by it; empty means that they
    /// cannot. No channels and the format `Undefined` are legal here.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty name, a negative rate or more than 2^31 - 1 channels.
    /// Spec: c-abi §5.1.
    pub fn new(
        name: impl Into<Vec<u8>>,
        stream_type: impl Into<Vec<u8>>,
        channel_count: u32,
        nominal_srate: f64,
        channel_format: ChannelFormat,
        source_id: impl Into<Vec<u8>>,
    ) -> Result<Self> {
        let refuse = |text: &str| Err(Error::Argument(text.to_owned()));
        let fields = Fields {
            name: name.into(),
            stream_type: stream_type.into(),
            channel_count,
            channel_format,
            source_id: source_id.into(),
            nominal_srate,
            version: VERSION,
            ..Fields::blank()
        };
        if fields.name.is_empty() {
            return refuse("The name of a stream must be non-empty.");
        }
        // The count is a C `int` to every peer.
        if i32::try_from(channel_count).is_err() {
            return refuse("The channel_count of a stream must be nonnegative.");
        }
        if nominal_srate < 0.0 {
            return refuse("The nominal sampling rate of a stream must be nonnegative.");
        }
        Ok(Self {
            document: shortinfo::document(&fields),
            fields,
        })
    }

    /// Returns the blank info that the C ABI hands out for XML that describes no stream. Its name
    /// is `(invalid: REASON)`; all else is empty, as is the name in its document. Spec: c-abi §5.4.
    pub fn invalid(reason: &str) -> Self {
        let mut fields = Fields::blank();
        let document = shortinfo::document(&fields);
        fields.name = format!("(invalid: {reason})").into_bytes();
        Self { fields, document }
    }

    /// Returns the name of the stream.
    pub fn name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.fields.name)
    }

    /// Returns the name of the stream, as on the wire.
    pub fn name_bytes(&self) -> &[u8] {
        &self.fields.name
    }

    /// Returns the content type, such as `EEG` or `Markers`; may be empty.
    pub fn stream_type(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.fields.stream_type)
    }

    /// Returns the content type, as on the wire.
    pub fn stream_type_bytes(&self) -> &[u8] {
        &self.fields.stream_type
    }

    /// Returns the number of values per sample.
    pub fn channel_count(&self) -> u32 {
        self.fields.channel_count
    }

    /// Returns the samples per second; 0 if they come at no fixed interval.
    pub fn nominal_srate(&self) -> f64 {
        self.fields.nominal_srate
    }

    /// Returns the type of one value.
    pub fn channel_format(&self) -> ChannelFormat {
        self.fields.channel_format
    }

    /// Returns the name of the source that outlives restarts; may be empty.
    pub fn source_id(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.fields.source_id)
    }

    /// Returns the name of the source, as on the wire.
    pub fn source_id_bytes(&self) -> &[u8] {
        &self.fields.source_id
    }

    /// Returns the protocol version times 100, such as 110; 0 in an invalid info.
    pub fn version(&self) -> u32 {
        self.fields.version
    }

    /// Returns the creation time of the outlet, in seconds of its host's `local_clock`, or 0.
    pub fn created_at(&self) -> f64 {
        self.fields.created_at
    }

    /// Returns the identity of the outlet: a UUID, new for each; empty before there is one.
    pub fn uid(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.fields.uid)
    }

    /// Returns the identity of the outlet, as on the wire; compared byte for byte.
    pub fn uid_bytes(&self) -> &[u8] {
        &self.fields.uid
    }

    /// Returns the session of the serving host; by default, only streams of one's own are found.
    pub fn session_id(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.fields.session_id)
    }

    /// Returns the session of the serving host, as on the wire.
    pub fn session_id_bytes(&self) -> &[u8] {
        &self.fields.session_id
    }

    /// Returns the name of the serving host.
    pub fn hostname(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.fields.hostname)
    }

    /// Returns the name of the serving host, as on the wire.
    pub fn hostname_bytes(&self) -> &[u8] {
        &self.fields.hostname
    }

    /// Returns the document, which contains everything the sender announced.
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// Returns the document for changes. The getters of this type do not follow.
    pub fn document_mut(&mut self) -> &mut Document {
        &mut self.document
    }

    /// Returns whether a query selects this stream. It sees the whole document, metadata included,
    /// with the `<info>` element as its context. Spec: lsl-protocol §4.
    ///
    /// # Errors
    /// [`Error::Query`] if evaluating it would take too much work.
    pub fn matches(&self, query: &Query) -> Result<bool> {
        let document = &self.document;
        let Some(info) = document.child(document.root(), "info") else {
            return Ok(false);
        };
        Ok(query.matches(document, info)?)
    }

    /// Returns the `<desc>` element; `None` if the document has none.
    pub fn desc(&self) -> Option<NodeId> {
        let document = &self.document;
        document.child(document.child(document.root(), "info")?, "desc")
    }

    /// Returns the description for reading; `None` if the document has none.
    pub fn desc_ref(&self) -> Option<ElementRef<'_>> {
        ElementRef::new(&self.document, self.desc()?)
    }

    /// Returns the description for changes; adds one if the document has none. An outlet announces
    /// the content at the time it was opened, nothing that is added later.
    pub fn desc_mut(&mut self) -> ElementMut<'_> {
        let document = &mut self.document;
        let mut at = document.root();
        for name in ["info", "desc"] {
            let child = document
                .child(at, name)
                .or_else(|| document.append_element(at, name));
            at = child.unwrap_or(at);
        }
        ElementMut::of(document, at)
    }
}
