//! `lsl/xml.h`: the document of an info. Spec: c-abi §6.
//!
//! A node's handle is the same each time. It outlives the info, and the node's removal, as long as `kept`
//! keeps them. NULL, and any handle that is no node or no longer, is the empty node.

use std::ffi::c_char;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Weak};

use lsl_core::xml::{Document, NodeId, NodeKind};

use crate::guard::guard;
use crate::handle::{self, Handle};
use crate::kept;
use crate::streaminfo::{InfoObject, InfoState};
use crate::strings;

/// Node for which C has a handle. It does not keep the document alive.
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

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident = $step:ident;)*) => {$(
        $(#[$doc])*
        /// Texts count as nodes. NULL if there is none, and for NULL. Spec: c-abi §6.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(e: Handle) -> Handle {
            step(e, Document::$step)
        }
    )*};
}

steps! {
    /// Returns the first child of a node.
    lsl_first_child = first_child;
    /// Returns the last child of a node.
    lsl_last_child = last_child;
    /// Returns the following sibling of a node.
    lsl_next_sibling = next_sibling;
    /// Returns the preceding sibling of a node.
    lsl_previous_sibling = previous_sibling;
    /// Returns the parent; that of `<info>` is a nameless node without parent.
    lsl_parent = parent;
}

macro_rules! named_steps {
    ($($(#[$doc:meta])* $function:ident = $find:expr;)*) => {$(
        $(#[$doc])*
        /// NULL if there is none, and for NULL. Spec: c-abi §6.
        ///
        /// # Safety
        /// `name` is NULL or a NUL-terminated text.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(e: Handle, name: *const c_char) -> Handle {
            // SAFETY: the caller vouches for it.
            let name = unsafe { strings::bytes(name) };
            step(e, |document, id| $find(document, id, name?))
        }
    )*};
}

named_steps! {
    /// Returns the first child element of this name.
    lsl_child = |document: &Document, id, name: &[u8]| document.child(id, name);
    /// Returns the next sibling element of this name.
    lsl_next_sibling_n = |document: &Document, id, name| {
        sibling(document, id, name, Document::next_sibling)
    };
    /// Returns the closest preceding sibling element of this name.
    lsl_previous_sibling_n = |document: &Document, id, name| {
        sibling(document, id, name, Document::previous_sibling)
    };
}

fn sibling(
    document: &Document,
    id: NodeId,
    name: &[u8],
    step: fn(&Document, NodeId) -> Option<NodeId>,
) -> Option<NodeId> {
    let mut siblings = std::iter::successors(step(document, id), |&at| step(document, at));
    siblings.find(|&at| is_element(document, at) && document.name(at) == name)
}

/// Returns 1 for the empty node only: an element without children is not empty. Spec: c-abi §6.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_empty(e: Handle) -> i32 {
    on(e, 1, |_, _, _| 0)
}

/// Returns 0 for elements, 1 for everything else, the empty node included. Spec: c-abi §6.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_is_text(e: Handle) -> i32 {
    on(e, 1, |state, _, id| {
        i32::from(!is_element(state.info.document(), id))
    })
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $text:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// Never NULL; lives as long as the info and a while longer. Spec: c-abi §5.6, §6.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(e: Handle) -> *const c_char {
            on(e, c"".as_ptr(), |InfoState { info, texts, .. }, _, id| {
                texts.intern(info.document().$text(id))
            })
        }
    )*};
}

texts! {
    /// Returns the name of an element, empty for everything else.
    lsl_name = name;
    /// Returns the content of a text, empty for everything else.
    lsl_value = text;
    /// Returns the content of the first text among the children, empty if there is none.
    lsl_child_value = child_text;
}

/// Returns [`lsl_child_value`] of the first child element of this name; empty if there is none.
///
/// Never NULL; lives as long as the info and a while longer. Spec: c-abi §5.6, §6.
///
/// # Safety
/// `name` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_child_value_n(e: Handle, name: *const c_char) -> *const c_char {
    // SAFETY: the caller vouches for it.
    let name = unsafe { strings::bytes(name) };
    on(e, c"".as_ptr(), |InfoState { info, texts, .. }, _, id| {
        let document = info.document();
        match name.and_then(|name| document.child(id, name)) {
            Some(child) => texts.intern(document.child_text(child)),
            None => c"".as_ptr(),
        }
    })
}

/// Renames an element. Returns 1, or 0 if the node is no element. Names are not validated. Spec: c-abi §6.
///
/// # Safety
/// `name` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_set_name(e: Handle, name: *const c_char) -> i32 {
    // SAFETY: the caller vouches for it.
    let name = unsafe { strings::bytes(name) };
    edit(e, |document, id| {
        name.is_some_and(|name| document.set_name(id, name))
    })
}

/// Replaces the content of a text. Returns 1, or 0 without any effect if the node is no text. Spec: c-abi §6.
///
/// # Safety
/// `value` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_set_value(e: Handle, value: *const c_char) -> i32 {
    // SAFETY: the caller vouches for it.
    let value = unsafe { strings::bytes(value) };
    edit(e, |document, id| {
        value.is_some_and(|value| document.set_text(id, value))
    })
}

/// Replaces the text at the start of the first child element of this name. Returns 1, or 0 without any
/// effect if there is no such text. Spec: c-abi §6.
///
/// # Safety
/// `name` and `value` are NULL or NUL-terminated texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_set_child_value(
    e: Handle,
    name: *const c_char,
    value: *const c_char,
) -> i32 {
    // SAFETY: the caller vouches for it.
    let name = unsafe { strings::bytes(name) };
    // SAFETY: the caller vouches for it.
    let value = unsafe { strings::bytes(value) };
    edit(e, |document, id| {
        let (Some(name), Some(value)) = (name, value) else {
            return false;
        };
        let child = document.child(id, name);
        match child.and_then(|child| document.first_child(child)) {
            Some(text) => document.set_text(text, value),
            None => false,
        }
    })
}

macro_rules! additions {
    ($($place:literal: $child:ident, $child_value:ident = $element:ident;
        $copy:ident = $copy_node:ident;)*) => {$(
        #[doc = concat!("Adds an element as the ", $place, " child and returns it.")]
        /// NULL without any effect if a parameter is NULL or the node no element. Names are not validated.
        /// Spec: c-abi §6.
        ///
        /// # Safety
        /// `name` is NULL or a NUL-terminated text.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $child(e: Handle, name: *const c_char) -> Handle {
            // SAFETY: the caller vouches for it.
            let name = unsafe { strings::bytes(name) };
            on(e, ptr::null_mut(), |state, info, id| {
                let document = state.info.document_mut();
                let child = name.and_then(|name| document.$element(id, name));
                state.node_handle(info, child)
            })
        }

        #[doc = concat!("Adds an element with a text as the ", $place, " child.")]
        /// Returns `e` itself, for chains of calls; NULL for NULL. A NULL text adds nothing.
        /// Spec: c-abi §6.
        ///
        /// # Safety
        /// `name` and `value` are NULL or NUL-terminated texts.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $child_value(
            e: Handle,
            name: *const c_char,
            value: *const c_char,
        ) -> Handle {
            // SAFETY: the caller vouches for it.
            let name = unsafe { strings::bytes(name) };
            // SAFETY: the caller vouches for it.
            let value = unsafe { strings::bytes(value) };
            on(e, ptr::null_mut(), |state, _, id| {
                if let (Some(name), Some(value)) = (name, value) {
                    let document = state.info.document_mut();
                    if let Some(child) = document.$element(id, name) {
                        document.append_text(child, value);
                    }
                }
                e
            })
        }

        #[doc = concat!("Adds a deep copy of a node of any info as the ", $place, " child.")]
        /// Returns the copy; NULL without any effect if a parameter is the empty node or `e` no element.
        /// Spec: c-abi §6.
        #[unsafe(no_mangle)]
        pub extern "C" fn $copy(e: Handle, source: Handle) -> Handle {
            guard(ptr::null_mut(), || {
                // One lock at a time: both nodes may belong to the same info, and two calls in
                // opposite directions must not wait for each other.
                let Some((copy, top)) = extract(source) else {
                    return ptr::null_mut();
                };
                on(e, ptr::null_mut(), |state, info, id| {
                    let added = state.info.document_mut().$copy_node(id, &copy, top);
                    state.node_handle(info, added)
                })
            })
        }
    )*};
}

additions! {
    "last": lsl_append_child, lsl_append_child_value = append_element;
        lsl_append_copy = append_copy;
    "first": lsl_prepend_child, lsl_prepend_child_value = prepend_element;
        lsl_prepend_copy = prepend_copy;
}

/// Copies the subtree into a document of its own.
fn extract(source: Handle) -> Option<(Document, NodeId)> {
    let (info, id) = find(source)?;
    let mut copy = Document::new();
    let state = info.lock();
    let top = copy.append_copy(copy.root(), state.info.document(), id)?;
    Some((copy, top))
}

/// Removes a child with everything below it; anything but a child of `e` is ignored. Handles of removed
/// nodes work on for a while. Spec: c-abi §5.6, §6.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_remove_child(e: Handle, child: Handle) {
    guard((), || {
        // Not under the lock: the log message about an ended handle goes to foreign code, which may need
        // the info.
        let Some((owner, child)) = find(child) else {
            return;
        };
        on(e, (), |state, info, id| {
            if Arc::ptr_eq(&owner, info) && state.info.document().parent(child) == Some(id) {
                state.remove_node(child);
            }
        });
    });
}

/// Removes the first child element of this name, if there is one, with everything below it. Spec: c-abi §6.
///
/// # Safety
/// `name` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_remove_child_n(e: Handle, name: *const c_char) {
    // SAFETY: the caller vouches for it.
    let name = unsafe { strings::bytes(name) };
    on(e, (), |state, _, id| {
        let child = name.and_then(|name| state.info.document().child(id, name));
        if let Some(child) = child {
            state.remove_node(child);
        }
    });
}

fn is_element(document: &Document, id: NodeId) -> bool {
    document.kind(id) == Some(NodeKind::Element)
}

/// Returns the info and the node behind a handle. The node may be gone when the info is locked.
fn find(e: Handle) -> Option<(Arc<InfoObject>, NodeId)> {
    let found = handle::node(e).and_then(|node| Some((node.info.upgrade()?, node.id)));
    if found.is_none() {
        kept::found_nothing(e);
    }
    found
}

/// Runs a call on a node. Returns `none` for the empty one.
fn on<R: Copy>(
    e: Handle,
    none: R,
    body: impl FnOnce(&mut InfoState, &Arc<InfoObject>, NodeId) -> R,
) -> R {
    guard(none, || {
        let Some((info, id)) = find(e) else {
            return none;
        };
        info.with(|state| {
            if !state.info.document().contains(id) {
                return none;
            }
            body(state, &info, id)
        })
    })
}

fn step(e: Handle, step: impl FnOnce(&Document, NodeId) -> Option<NodeId>) -> Handle {
    on(e, ptr::null_mut(), |state, info, id| {
        let found = step(state.info.document(), id);
        state.node_handle(info, found)
    })
}

fn edit(e: Handle, change: impl FnOnce(&mut Document, NodeId) -> bool) -> i32 {
    on(e, 0, |state, _, id| {
        i32::from(change(state.info.document_mut(), id))
    })
}

#[cfg(test)]
mod tests;
