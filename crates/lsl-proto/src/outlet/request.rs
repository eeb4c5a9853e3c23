//! Requests of connections: which of them the policy allows in plaintext, and how an outlet answers them.
//! Spec: lsl-protocol §6, §7; LSS/1 §4.3, §4.4.

use lsl_secure::Policy;
use lsl_secure::policy::REFUSAL_403;

use crate::outlet::encoder::Variant;
use crate::outlet::fanout::FeedLimits;
use crate::outlet::retention::Retain;
use crate::wire::archive100::Encoder100;
use crate::wire::negotiate::{Negotiated, OutletSide, Writing, negotiate, negotiate_100};
use crate::wire::request::{FIRST_VERSION_WITH_HEADERS, Request};
use crate::wire::response::{DataProtocol, Refusal};
use crate::wire::sample110::Encoder110;
use crate::wire::sequence::{Granted, ReplayFrom};
use crate::{ByteOrder, Error, Result, StreamInfo};

/// Decision of the policy about a request in plaintext.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// The request may be answered in plaintext.
    Granted,
    /// Answer it as long as the migration lasts, and refuse it otherwise.
    Migrating(Refused),
    /// The request is refused in any case.
    Denied(Refused),
}

/// A request that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Method of the request, for the audit log.
    pub method: &'static str,
    /// Text of the refusal for the peer; may be empty.
    pub text: &'static [u8],
}

/// Returns the decision of `policy` about a request in plaintext. Queries are discovery
/// and may always be. Spec: LSS/1 §4.3, §4.4.
pub fn plaintext_permission(policy: Policy, request: &Request) -> Permission {
    let (method, text): (_, &[u8]) = match request {
        Request::ShortInfo { .. } | Request::Unknown | Request::Port(_) => {
            return Permission::Granted;
        }
        Request::FullInfo => ("LSL:fullinfo", b""),
        Request::StreamFeed { version, .. } if *version >= FIRST_VERSION_WITH_HEADERS => {
            ("LSL:streamfeed/110", REFUSAL_403)
        }
        Request::StreamFeed { .. } | Request::StreamFeed100 { .. } => ("LSL:streamfeed", b""),
    };
    let refused = Refused { method, text };
    match policy {
        Policy::Off => Permission::Granted,
        Policy::Migrate => Permission::Migrating(refused),
        Policy::Required => Permission::Denied(refused),
    }
}

/// How an outlet treats its readers.
#[derive(Debug, Clone, Copy)]
pub struct OutletOptions {
    /// Samples a reader may lag.
    pub capacity_samples: usize,
    /// Samples sent together when pushes hold and the reader has no wish.
    pub chunk_samples: usize,
    /// Whether pushes wait for every reader.
    pub synchronous: bool,
    /// What is kept for readers that come back.
    pub retain: Retain,
}

impl OutletOptions {
    /// Returns what a feed of this outlet depends on.
    pub fn side<'a>(&self, info: &'a StreamInfo) -> OutletSide<'a> {
        OutletSide {
            version: info.version(),
            uid: info.uid_bytes(),
            format: info.channel_format(),
            byte_order: ByteOrder::NATIVE,
            writing: if self.synchronous {
                Writing::Synchronous
            } else {
                Writing::Queued
            },
            retains: self.retain.seconds > 0.0,
        }
    }
}

/// A feed as it was negotiated.
#[derive(Debug)]
pub struct Feed {
    /// Wire format of the samples of this feed.
    pub variant: Variant,
    /// What was agreed on.
    pub negotiated: Negotiated,
    /// Bytes between the response and the first sample.
    pub patterns: Vec<u8>,
    /// Limits of the feed.
    pub limits: FeedLimits,
}

impl Feed {
    /// Returns the bytes that precede the first sample. `granted` has the numbers of a granted feed.
    pub fn preamble(&self, outlet: &OutletSide<'_>, granted: Option<Granted>) -> Vec<u8> {
        let mut negotiated = self.negotiated;
        negotiated.feed.granted = granted;
        let mut bytes = negotiated.preface_bytes(outlet);
        bytes.extend_from_slice(&self.patterns);
        bytes
    }
}

/// An outlet, as the answers to its requests depend on it.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    /// The stream.
    pub info: &'a StreamInfo,
    /// Its short form, for those who may see all of it.
    pub shortinfo: &'a [u8],
    /// How the outlet treats its readers.
    pub options: &'a OutletOptions,
    /// As in [`FeedLimits`].
    pub coalesces: bool,
}

/// Answer to a request.
#[derive(Debug)]
pub enum Reply {
    /// The connection ends after these bytes.
    Bytes(Vec<u8>),
    /// The connection ends after the bytes of this refusal.
    Refusal(Refusal),
    /// The connection becomes a consumer.
    Feed(Box<Feed>),
}

impl Offer<'_> {
    /// Answers a request; `shortinfo` is what this peer is told in answer to a query, and `numbers` gives those of a
    /// feed that would begin there, for who asks without becoming a reader; `None` if no feed is granted.
    ///
    /// # Errors
    /// [`Error::Protocol`] for an unknown request; those of `shortinfo`.
    pub fn reply<'s>(
        &self,
        request: &Request,
        shortinfo: impl FnOnce(&[u8]) -> Result<&'s [u8]>,
        numbers: impl FnOnce(&ReplayFrom) -> Option<Granted>,
    ) -> Result<Reply> {
        let side = self.options.side(self.info);
        let negotiated = match request {
            Request::ShortInfo { query } => return Ok(Reply::Bytes(shortinfo(query)?.to_vec())),
            Request::FullInfo => return Ok(Reply::Bytes(self.info.to_xml())),
            Request::StreamFeed100 {
                max_buffer,
                max_chunk,
            } => negotiate_100(&side, *max_buffer, *max_chunk),
            Request::StreamFeed {
                version,
                uid,
                headers,
            } => negotiate(&side, *version, uid, headers),
            Request::Unknown | Request::Port(_) => {
                return Err(Error::Protocol("unknown request".into()));
            }
        };
        let mut negotiated = match negotiated {
            Ok(negotiated) => negotiated,
            Err(refusal) => return Ok(Reply::Refusal(refusal)),
        };
        if let Request::StreamFeed { headers, .. } = request
            && negotiated.max_buffer_samples.is_none()
            && negotiated.feed.data_protocol == DataProtocol::V110
        {
            negotiated.feed.granted = headers.replay_from.as_ref().and_then(numbers);
        }
        Ok(self.feed(&negotiated))
    }

    fn feed(&self, negotiated: &Negotiated) -> Reply {
        let Self {
            info,
            shortinfo,
            options,
            coalesces,
        } = *self;
        let (format, channels) = (info.channel_format(), info.channel_count());
        let mut patterns = Vec::new();
        let variant = match negotiated.feed.data_protocol {
            DataProtocol::V110 => {
                let order = negotiated.feed.byte_order;
                Encoder110::new(format, channels, order).encode_test_patterns(&mut patterns);
                Variant::V110(order)
            }
            DataProtocol::V100 => {
                Encoder100::new(format, channels).encode_preamble(&mut patterns, shortinfo);
                Variant::V100
            }
        };
        let Some(capacity) = negotiated.max_buffer_samples else {
            let mut preamble = negotiated.preface_bytes(&options.side(info));
            preamble.extend_from_slice(&patterns);
            return Reply::Bytes(preamble);
        };
        let limits = FeedLimits {
            // Synchronous pushes wait, and drop nothing.
            capacity: if options.synchronous {
                usize::MAX
            } else {
                capacity.min(options.capacity_samples)
            },
            chunk: match negotiated.max_chunk_samples {
                0 => options.chunk_samples,
                samples => samples,
            },
            coalesces,
            // Known when it joins.
            is_granted: false,
        };
        Reply::Feed(Box::new(Feed {
            variant,
            negotiated: *negotiated,
            patterns,
            limits,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::request::RequestParser;

    #[test]
    fn plaintext_is_for_the_policy_to_allow() {
        let feed = |text: &[u8]| RequestParser::new().feed(text).unwrap().unwrap();
        let cases: [(Request, Option<&[u8]>); 5] = [
            (Request::Unknown, None),
            (feed(b"LSL:shortinfo\r\nname='x'\r\n"), None),
            (Request::FullInfo, Some(b"")),
            (feed(b"LSL:streamfeed\r\n1 0\r\n"), Some(b"")),
            (
                feed(b"LSL:streamfeed/110 x\r\nA: b\r\n\r\n"),
                Some(REFUSAL_403),
            ),
        ];
        for (request, refusal) in cases {
            let ask = |policy| plaintext_permission(policy, &request);
            assert_eq!(ask(Policy::Off), Permission::Granted);
            let (migrating, denied) = (ask(Policy::Migrate), ask(Policy::Required));
            match refusal {
                None => assert_eq!([migrating, denied], [Permission::Granted; 2]),
                Some(text) => {
                    let Permission::Denied(refused) = denied else {
                        panic!("{request:?}");
                    };
                    assert_eq!(refused.text, text);
                    assert_eq!(migrating, Permission::Migrating(refused));
                }
            }
        }
    }
}
