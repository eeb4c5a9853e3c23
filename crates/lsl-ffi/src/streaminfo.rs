//! `lsl/streaminfo.h`: descriptions of streams. Spec: c-abi §5.
//!
//! An info that C holds is a [`StreamInfo`] under a lock, beside what C was given pointers to: texts
//! and handles of nodes. Both stay as they are until the info is destroyed.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, c_char};
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lsl_core::query::Query;
use lsl_core::xml::NodeId;
use lsl_core::{ChannelFormat, Error, StreamInfo, random_uid};

use crate::common::context;
use crate::guard::{fail, guard, set_last_error};
use crate::handle::{self, Handle, Object};
use crate::strings;
use crate::xml::NodeObject;

/// A stream info that C holds.
pub(crate) struct InfoObject {
    state: Mutex<State>,
}

/// What the lock of an info protects. Order of locks: an info's, then the table of handles.
pub(crate) struct State {
    pub(crate) info: StreamInfo,
    /// Every text that C has a pointer to. Grows with the different texts that were asked for.
    texts: HashSet<CString>,
    /// Handles of the nodes that C has seen, as numbers.
    nodes: HashMap<NodeId, usize>,
}

impl InfoObject {
    pub(crate) fn new(info: StreamInfo) -> Self {
        Self {
            state: Mutex::new(State {
                info,
                texts: HashSet::new(),
                nodes: HashMap::new(),
            }),
        }
    }

    /// A copy as the info is now, its document included.
    pub(crate) fn snapshot(&self) -> StreamInfo {
        self.lock().info.clone()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives an info to C: a new handle, which C destroys.
pub(crate) fn hand_out(info: StreamInfo) -> Handle {
    handle::insert(Object::Info(Arc::new(InfoObject::new(info))))
}

impl State {
    /// A text for C that lives as long as the info. It ends at its first NUL.
    pub(crate) fn intern(&mut self, text: &[u8]) -> *const c_char {
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        // Nothing is left that `new` could refuse.
        let text = CString::new(text).unwrap_or_default();
        if !self.texts.contains(&text) {
            self.texts.insert(text.clone());
        }
        self.texts
            .get(&text)
            .map_or(c"".as_ptr(), |text| text.as_ptr())
    }

    /// The handle of a node, the same each time; NULL for none.
    pub(crate) fn node_handle(&mut self, owner: &Arc<InfoObject>, id: Option<NodeId>) -> Handle {
        let Some(id) = id.filter(|&id| self.info.document().contains(id)) else {
            return ptr::null_mut();
        };
        let bits = self.nodes.entry(id).or_insert_with(|| {
            let node = NodeObject::new(owner, id);
            handle::insert(Object::Node(Arc::new(node))).addr()
        });
        ptr::without_provenance_mut(*bits)
    }

    /// Removes a node with everything below it, and their handles.
    pub(crate) fn remove_node(&mut self, id: NodeId) {
        let document = self.info.document();
        let mut doomed = vec![id];
        let mut next = 0;
        while let Some(&id) = doomed.get(next) {
            doomed.extend(document.children(id));
            next += 1;
        }
        if !self.info.document_mut().remove(id) {
            return;
        }
        for id in doomed {
            if let Some(bits) = self.nodes.remove(&id) {
                handle::remove(ptr::without_provenance_mut(bits));
            }
        }
    }
}

/// Node handles end with their info.
impl Drop for State {
    fn drop(&mut self) {
        for &bits in self.nodes.values() {
            handle::remove(ptr::without_provenance_mut(bits));
        }
    }
}

impl fmt::Debug for InfoObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InfoObject").finish_non_exhaustive()
    }
}
