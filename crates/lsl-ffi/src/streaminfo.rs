//! `lsl/streaminfo.h`: descriptions of streams. Spec: c-abi §5.
//!
//! An info is a [`StreamInfo`] under a lock, with the texts and node handles that C has pointers to. They
//! stay as they are until the info is destroyed, and afterwards as long as [`kept`] keeps it.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, c_char};
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lsl_core::xml::{Document, NodeId};
use lsl_core::{ChannelFormat, Error, Result, StreamInfo, random_uid};
use lsl_proto::query::Query;

use crate::context::context;
use crate::guard::{fail, guard};
use crate::handle::{self, Handle, Object};
use crate::kept::{self, Share};
use crate::strings;
use crate::xml::NodeObject;

/// Creates the description of a stream. `channel_format` is a number from 0 (none) to 7; zero channels are
/// legal. The texts may hold any bytes and are copied. Reads the configuration if nothing did before.
///
/// NULL, with the reason in `lsl_last_error`, for a NULL text, an empty name, a negative count or rate
/// or an unknown format. The caller destroys the info. Spec: c-abi §5.1.
///
/// # Safety
/// The texts are NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_create_streaminfo(
    name: *const c_char,
    stream_type: *const c_char,
    channel_count: i32,
    nominal_srate: f64,
    channel_format: i32,
    source_id: *const c_char,
) -> Handle {
    guard(ptr::null_mut(), || {
        context();
        // SAFETY: the caller vouches for it.
        let name = unsafe { strings::bytes(name) };
        // SAFETY: the caller vouches for it.
        let stream_type = unsafe { strings::bytes(stream_type) };
        // SAFETY: the caller vouches for it.
        let source_id = unsafe { strings::bytes(source_id) };
        let info = create(
            [name, stream_type, source_id],
            channel_count,
            nominal_srate,
            channel_format,
        );
        handed_out(info)
    })
}

fn create(
    texts: [Option<&[u8]>; 3],
    channel_count: i32,
    nominal_srate: f64,
    channel_format: i32,
) -> Result<StreamInfo> {
    let [Some(name), Some(stream_type), Some(source_id)] = texts else {
        let text = "The name, type and source_id of a stream must not be NULL.";
        return Err(Error::Argument(text.to_owned()));
    };
    // A negative count fails like one that is too large.
    let count = u32::try_from(channel_count).unwrap_or(u32::MAX);
    let format = format(channel_format);
    let known = format.unwrap_or(ChannelFormat::Undefined);
    let info = StreamInfo::new(name, stream_type, count, nominal_srate, known, source_id)?;
    match format {
        Some(_) => Ok(info),
        None => Err(Error::Argument(format!(
            "The stream info was created with an unknown channel format {channel_format}"
        ))),
    }
}

fn format(number: i32) -> Option<ChannelFormat> {
    let mut formats = ChannelFormat::STREAMABLE
        .into_iter()
        .chain([ChannelFormat::Undefined]);
    formats.find(|&format| format as i32 == number)
}

/// Returns a deep copy, which the caller destroys; NULL, with `lsl_last_error`, if `info` is none.
/// Spec: c-abi §5.1.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_copy_streaminfo(info: Handle) -> Handle {
    guard(ptr::null_mut(), || match handle::info(info) {
        Some(info) => hand_out(info.snapshot()),
        None => handed_out(Err(Error::Argument("This is no stream info.".to_owned()))),
    })
}

/// Destroys an info. Its texts, nodes and getters work on for a while, because bindings use results of
/// temporaries. NULL and anything but an info are ignored. Spec: c-abi §3.4, §5.6.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_destroy_streaminfo(info: Handle) {
    guard((), || {
        if let Some(object) = handle::retire(info) {
            kept::keep(&object, Some(info));
        }
    });
}

/// Reads an info from XML, as peers and recordings have it; the caller destroys it. NULL only for NULL. XML
/// that describes no stream gives a blank info named `(invalid: REASON)` and leaves `lsl_last_error` as it
/// was. Spec: c-abi §5.4.
///
/// # Safety
/// `xml` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_streaminfo_from_xml(xml: *const c_char) -> Handle {
    guard(ptr::null_mut(), || {
        // SAFETY: the caller vouches for it.
        let Some(xml) = (unsafe { strings::bytes(xml) }) else {
            return ptr::null_mut();
        };
        hand_out(StreamInfo::from_xml(xml).unwrap_or_else(|error| {
            StreamInfo::invalid(&match error {
                Error::InvalidInfo(reason) => reason,
                other => other.to_string(),
            })
        }))
    })
}

/// Returns the whole document as text, which the caller releases with `free` or `lsl_destroy_string`. Empty
/// if `info` is none, NULL without memory. Spec: c-abi §5.3.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_get_xml(info: Handle) -> *mut c_char {
    guard(ptr::null_mut(), || {
        let info = handle::info(info);
        let xml = info.map_or(Vec::new(), |info| info.lock().info.to_xml());
        strings::allocate(&xml)
    })
}

/// Returns the `<desc>` element, which belongs to the info; the same handle each time. NULL if it was
/// removed, or `info` is none. Spec: c-abi §5.2.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_get_desc(info: Handle) -> Handle {
    read(info, ptr::null_mut(), |state, object| {
        let desc = state.info.desc();
        state.node_handle(object, desc)
    })
}

/// Returns 1 if an XPath 1.0 predicate is empty or holds at the `<info>` element of the info. Returns 0
/// otherwise, also for NULL or an invalid query. Spec: c-abi §5.5.
///
/// # Safety
/// `query` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_stream_info_matches_query(info: Handle, query: *const c_char) -> i32 {
    guard(0, || {
        // SAFETY: the caller vouches for it.
        let query = unsafe { strings::bytes(query) };
        let (Some(info), Some(query)) = (handle::info(info), query) else {
            return 0;
        };
        let Ok(query) = Query::parse(query) else {
            return 0;
        };
        i32::from(info.lock().info.matches(&query).unwrap_or(false))
    })
}

/// Assigns a new random uid to the info and returns it, as [`lsl_get_uid`] does. Empty if `info` is none,
/// or, with `lsl_last_error`, without random numbers. Spec: c-abi §5.1.
#[unsafe(no_mangle)]
pub extern "C" fn lsl_reset_uid(info: Handle) -> *const c_char {
    read(
        info,
        c"".as_ptr(),
        |InfoState { info, texts, .. }, _| match random_uid() {
            Ok(uid) => {
                info.reset_uid(&uid);
                texts.intern(info.uid_bytes())
            }
            Err(error) => {
                fail(&error);
                c"".as_ptr()
            }
        },
    )
}

macro_rules! text_getters {
    ($($(#[$doc:meta])* $name:ident = $field:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// Never NULL; lives as long as the info and a while longer; empty if `info` is none.
        /// Spec: c-abi §5.2, §5.6.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(info: Handle) -> *const c_char {
            get(info, c"".as_ptr(), |InfoState { info, texts, .. }| texts.intern(info.$field()))
        }
    )*};
}

text_getters! {
    /// Returns the name of the stream.
    lsl_get_name = name_bytes;
    /// Returns the content type of the stream.
    lsl_get_type = stream_type_bytes;
    /// Returns the identifier of the source, which survives restarts.
    lsl_get_source_id = source_id_bytes;
    /// Returns the identity of the outlet; empty before there is one.
    lsl_get_uid = uid_bytes;
    /// Returns the session of the serving host.
    lsl_get_session_id = session_id_bytes;
    /// Returns the name of the serving host.
    lsl_get_hostname = hostname_bytes;
}

macro_rules! number_getters {
    ($($(#[$doc:meta])* $name:ident -> $type:ty = $value:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// 0 if `info` is none. Spec: c-abi §5.2.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(info: Handle) -> $type {
            get(info, <$type>::default(), |state| $value(&state.info))
        }
    )*};
}

number_getters! {
    /// Returns the number of values per sample.
    lsl_get_channel_count -> i32 = |info: &StreamInfo| to_int(info.channel_count());
    /// Returns the samples per second; 0 if they come at no fixed interval.
    lsl_get_nominal_srate -> f64 = StreamInfo::nominal_srate;
    /// Returns the number of the channel format, 0 to 7.
    lsl_get_channel_format -> i32 = |info: &StreamInfo| info.channel_format() as i32;
    /// Returns the protocol version times 100.
    lsl_get_version -> i32 = |info: &StreamInfo| to_int(info.version());
    /// Returns the time when the outlet was made, in seconds of its host's clock.
    lsl_get_created_at -> f64 = StreamInfo::created_at;
    /// Returns the bytes of a value; 0 for strings and `cft_undefined`.
    lsl_get_channel_bytes -> i32 = |info: &StreamInfo| {
        to_int(info.channel_format().value_size())
    };
    /// Returns the bytes of a sample; 0 for strings and `cft_undefined`. At most 2^31 - 1.
    lsl_get_sample_bytes -> i32 = |info: &StreamInfo| {
        let channels = i32::try_from(info.channel_count()).unwrap_or(i32::MAX);
        to_int(info.channel_format().value_size()).saturating_mul(channels)
    };
}

fn to_int(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

/// Runs a call on an info. Returns `none` if the handle is not one.
fn read<R: Copy>(
    info: Handle,
    none: R,
    body: impl FnOnce(&mut InfoState, &Arc<InfoObject>) -> R,
) -> R {
    guard(none, || match handle::info(info) {
        Some(info) => body(&mut info.lock(), &info),
        None => none,
    })
}

/// Runs a call as [`read`] does, also on a destroyed info as long as it is kept.
fn get<R: Copy>(info: Handle, none: R, body: impl FnOnce(&mut InfoState) -> R) -> R {
    guard(none, || {
        let found = handle::info(info).or_else(|| handle::past_info(info));
        let Some(found) = found else {
            kept::found_nothing(info);
            return none;
        };
        found.with(body)
    })
}

/// Returns the handle of a new info. For an error it is NULL, and the error's text becomes the last error.
pub(crate) fn handed_out(info: Result<StreamInfo>) -> Handle {
    match info {
        Ok(info) => hand_out(info),
        Err(error) => {
            fail(&error);
            ptr::null_mut()
        }
    }
}

/// Stream info for which C has a handle.
pub(crate) struct InfoObject {
    state: Mutex<InfoState>,
    pub(crate) kept: Share,
}

/// Data under the lock of an info. Order of locks: an info's, that of a node removed from it, then the
/// table of handles or the list of kept documents.
pub(crate) struct InfoState {
    pub(crate) info: StreamInfo,
    pub(crate) texts: Texts,
    /// Handles of the nodes that C has seen, as numbers.
    nodes: HashMap<NodeId, usize>,
    /// Whether the document is a removed node, which has no parent and describes no stream.
    is_removed_node: bool,
}

impl InfoObject {
    pub(crate) fn new(info: StreamInfo) -> Self {
        Self {
            state: Mutex::new(InfoState {
                info,
                texts: Texts::default(),
                nodes: HashMap::new(),
                is_removed_node: false,
            }),
            kept: Share::default(),
        }
    }

    /// Runs `body` on the state and updates the size of a kept document.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&mut InfoState) -> R) -> R {
        let mut state = self.lock();
        let result = body(&mut state);
        let dropped = kept::resize(self, || state.size());
        drop(state);
        drop(dropped);
        result
    }

    /// Returns a copy of the current info, its document included.
    pub(crate) fn snapshot(&self) -> StreamInfo {
        self.lock().info.clone()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, InfoState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives an info to C under a new handle, which C destroys.
pub(crate) fn hand_out(info: StreamInfo) -> Handle {
    handle::insert(Object::Info(Arc::new(InfoObject::new(info))))
}

impl InfoState {
    /// Returns the handle of a node, the same each time; NULL for `None`.
    pub(crate) fn node_handle(&mut self, owner: &Arc<InfoObject>, id: Option<NodeId>) -> Handle {
        let document = self.info.document();
        let is_seen = |&id: &NodeId| {
            document.contains(id) && !(self.is_removed_node && id == document.root())
        };
        let Some(id) = id.filter(is_seen) else {
            return ptr::null_mut();
        };
        let bits = self.nodes.entry(id).or_insert_with(|| {
            let node = NodeObject::new(owner, id);
            handle::insert(Object::Node(Arc::new(node))).addr()
        });
        ptr::without_provenance_mut(*bits)
    }

    /// Removes a node with everything below it. Handles of C in there move to a copy, which is kept.
    pub(crate) fn remove_node(&mut self, id: NodeId) {
        let removed = subtree(self.info.document(), id);
        if removed.iter().any(|id| self.nodes.contains_key(id)) {
            self.keep_removed(&removed);
        }
        self.info.document_mut().remove(id);
    }

    /// Copies a subtree and moves its handles to the copy.
    fn keep_removed(&mut self, removed: &[NodeId]) {
        let mut document = Document::new();
        let root = document.root();
        let top = removed
            .first()
            .and_then(|&top| document.append_copy(root, self.info.document(), top));
        // The nameless root is never removed.
        let Some(top) = top else {
            return;
        };
        let copies = subtree(&document, top);
        let mut info = StreamInfo::invalid("");
        *info.document_mut() = document;
        let owner = Arc::new(InfoObject::new(info));
        {
            let mut state = owner.lock();
            state.is_removed_node = true;
            for (id, copy) in removed.iter().zip(copies) {
                if let Some(bits) = self.nodes.remove(id) {
                    let node = Arc::new(NodeObject::new(&owner, copy));
                    handle::rebind(ptr::without_provenance_mut(bits), Object::Node(node));
                    state.nodes.insert(copy, bits);
                }
            }
        }
        kept::keep(&owner, None);
    }

    /// Whether C has no pointer into it.
    pub(crate) fn is_unread(&self) -> bool {
        self.nodes.is_empty() && self.texts.bytes == 0
    }

    /// Returns the memory of the info in bytes, roughly.
    pub(crate) fn size(&self) -> usize {
        let handles = self.nodes.len() * NODE_HANDLE_BYTES;
        INFO_BYTES + self.info.document().size() + self.texts.bytes + handles
    }
}

/// Lists a node and everything below it, in the same order for equal trees.
fn subtree(document: &Document, top: NodeId) -> Vec<NodeId> {
    let mut nodes = vec![top];
    let mut next = 0;
    while let Some(&id) = nodes.get(next) {
        nodes.extend(document.children(id));
        next += 1;
    }
    nodes
}

/// Texts that C has pointers to. Grows with each different text requested.
#[derive(Default)]
pub(crate) struct Texts {
    texts: HashSet<CString>,
    bytes: usize,
}

impl Texts {
    /// Stores a text for C, up to its first NUL. It lives as long as the info, or as it is kept.
    pub(crate) fn intern(&mut self, text: &[u8]) -> *const c_char {
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        // No NUL is left, which `new` would refuse.
        let text = CString::new(text).unwrap_or_default();
        if !self.texts.contains(&text) {
            self.bytes += text.count_bytes() + TEXT_BYTES;
            self.texts.insert(text.clone());
        }
        let text = self.texts.get(&text);
        text.map_or(c"".as_ptr(), |text| text.as_ptr())
    }
}

/// Node handles end with their info.
impl Drop for InfoState {
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

/// Bytes of an info without its document: the object and its fields.
const INFO_BYTES: usize = 1024;

/// Bytes of a node's handle in the table, the map and the heap.
const NODE_HANDLE_BYTES: usize = 160;

/// Bytes of a text beyond its content.
const TEXT_BYTES: usize = 48;

#[cfg(test)]
mod tests;
