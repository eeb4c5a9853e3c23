//! Streams that keys are bound to by `streams` in the trust file. Spec: LSS/1 §3.2; relay §3.1.

use std::collections::HashMap;

use lsl_proto::StreamInfo;
use lsl_proto::query::Query;
use lsl_secure::trust::TrustList;
use lsl_secure::{Fingerprint, PublicKey};

use super::{Reader, selects};

/// Predicates of the keys that are bound to streams.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bounds(HashMap<Fingerprint, Vec<Query>>);

impl Bounds {
    /// Reads the predicates of a trust list. Our own key has all streams, whatever an entry says.
    pub fn of(trust: &TrustList, own: Option<PublicKey>) -> Self {
        let bound = trust.peers().iter();
        let bound = bound.filter(|peer| !peer.streams.is_empty() && own != Some(peer.key));
        let bound = bound.map(|peer| {
            // One that cannot be parsed selects nothing.
            let queries = peer.streams.iter();
            let queries = queries.filter_map(|text| Query::parse(text).ok());
            (peer.key.fingerprint(), queries.collect())
        });
        Self(bound.collect())
    }

    /// Whether somebody may have a stream; `shape` has the fields of its DESCRIPTOR and nothing else.
    pub fn cover<'a>(
        &self,
        reader: Reader,
        shape: impl FnOnce() -> Option<&'a StreamInfo>,
    ) -> bool {
        let Reader::Key(key) = reader else {
            return true;
        };
        let Some(queries) = self.0.get(&key) else {
            return true;
        };
        shape().is_some_and(|shape| queries.iter().any(|query| selects(Some(query), shape)))
    }

    /// Whether a key is bound to the same streams by others.
    pub fn is_alike(&self, other: &Self, key: Fingerprint) -> bool {
        self.0.get(&key) == other.0.get(&key)
    }
}
