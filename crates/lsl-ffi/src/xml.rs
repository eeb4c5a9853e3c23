//! `lsl/xml.h`: the document of an info. Spec: c-abi §6.

use std::fmt;
use std::sync::{Arc, Weak};

use lsl_core::xml::NodeId;

use crate::streaminfo::InfoObject;

/// A node of an info's document that C holds. It does not keep its info alive.
pub(crate) struct NodeObject {
    info: Weak<InfoObject>,
    id: NodeId,
}

impl NodeObject {
    pub(crate) fn new(info: &Arc<InfoObject>, id: NodeId) -> Self {
        Self {
            info: Arc::downgrade(info),
            id,
        }
    }
}

impl fmt::Debug for NodeObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeObject").field(&self.id).finish()
    }
}
