use std::ffi::CStr;
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::common::{lsl_destroy_string, shown};
use crate::streaminfo::{
    lsl_create_streaminfo, lsl_destroy_streaminfo, lsl_get_desc, lsl_get_name, lsl_get_xml,
    lsl_streaminfo_from_xml,
};

/// An info with the calls of a C program; the unsafe ones are in one place.
struct Info(Handle);

impl Info {
    fn new() -> Self {
        let text = c"x".as_ptr();
        // SAFETY: NUL-terminated texts.
        Self(unsafe { lsl_create_streaminfo(text, text, 1, 1.0, 1, text) })
    }

    fn desc(&self) -> Handle {
        lsl_get_desc(self.0)
    }

    /// Returns the content of `<desc>`, without the indentation.
    fn inside(&self) -> String {
        let text = lsl_get_xml(self.0);
        let xml = shown(text);
        // SAFETY: given by the library just now.
        unsafe { lsl_destroy_string(text) };
        if xml.contains("<desc />") {
            return String::new();
        }
        let (_, rest) = xml.split_once("<desc>").unwrap();
        let (inside, _) = rest.rsplit_once("</desc>").unwrap();
        inside.replace(['\n', '\t'], "")
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        lsl_destroy_streaminfo(self.0);
    }
}

fn child(e: Handle, name: &CStr) -> Handle {
    // SAFETY: a NUL-terminated text.
    unsafe { lsl_child(e, name.as_ptr()) }
}

fn append(e: Handle, name: &CStr) -> Handle {
    // SAFETY: a NUL-terminated text.
    unsafe { lsl_append_child(e, name.as_ptr()) }
}

fn append_value(e: Handle, name: &CStr, value: &CStr) -> Handle {
    // SAFETY: NUL-terminated texts.
    unsafe { lsl_append_child_value(e, name.as_ptr(), value.as_ptr()) }
}

fn prepend_value(e: Handle, name: &CStr, value: &CStr) -> Handle {
    // SAFETY: NUL-terminated texts.
    unsafe { lsl_prepend_child_value(e, name.as_ptr(), value.as_ptr()) }
}

fn set_value(e: Handle, value: &CStr) -> i32 {
    // SAFETY: a NUL-terminated text.
    unsafe { lsl_set_value(e, value.as_ptr()) }
}

fn set_name(e: Handle, name: &CStr) -> i32 {
    // SAFETY: a NUL-terminated text.
    unsafe { lsl_set_name(e, name.as_ptr()) }
}

fn set_child_value(e: Handle, name: &CStr, value: &CStr) -> i32 {
    // SAFETY: NUL-terminated texts.
    unsafe { lsl_set_child_value(e, name.as_ptr(), value.as_ptr()) }
}

fn child_value(e: Handle, name: &CStr) -> String {
    // SAFETY: a NUL-terminated text.
    shown(unsafe { lsl_child_value_n(e, name.as_ptr()) })
}

fn remove(e: Handle, name: &CStr) {
    // SAFETY: a NUL-terminated text.
    unsafe { lsl_remove_child_n(e, name.as_ptr()) };
}

#[test]
fn additions_and_what_they_return() {
    let info = Info::new();
    let desc = info.desc();
    assert_eq!(append_value(desc, c"a", c"1"), desc, "the parent, to chain");
    assert_eq!(prepend_value(desc, c"b", c""), desc);
    let c = append(desc, c"c");
    assert_eq!(shown(lsl_name(c)), "c");
    // SAFETY: a NUL-terminated text.
    let d = unsafe { lsl_prepend_child(desc, c"d".as_ptr()) };
    assert_eq!(lsl_first_child(desc), d);
    append(desc, c"");
    append(desc, c"a b<");
    append_value(desc, c"e", c"<&>\"'");
    assert_eq!(
        info.inside(),
        "<d /><b></b><a>1</a><c /><:anonymous /><a b< /><e>&lt;&amp;&gt;\"'</e>"
    );
    assert_eq!(child_value(desc, c"e"), "<&>\"'");
}

#[test]
fn steps_count_texts_and_end_with_null() {
    let info = Info::new();
    let desc = info.desc();
    append_value(append_value(desc, c"a", c"1"), c"b", c"2");
    append_value(desc, c"a", c"3");
    let (a, b) = (child(desc, c"a"), child(desc, c"b"));
    let last = lsl_last_child(desc);
    assert_eq!((lsl_first_child(desc), lsl_next_sibling(a)), (a, b));
    assert_eq!((lsl_previous_sibling(b), lsl_next_sibling(b)), (a, last));
    assert!(lsl_previous_sibling(a).is_null() && lsl_next_sibling(last).is_null());
    for (from, name, next, previous) in [
        (a, c"a", last, ptr::null_mut()),
        (a, c"b", b, ptr::null_mut()),
        (b, c"a", last, a),
        (last, c"a", ptr::null_mut(), a),
        (last, c"x", ptr::null_mut(), ptr::null_mut()),
    ] {
        // SAFETY: a NUL-terminated text.
        assert_eq!(unsafe { lsl_next_sibling_n(from, name.as_ptr()) }, next);
        // SAFETY: a NUL-terminated text.
        let found = unsafe { lsl_previous_sibling_n(from, name.as_ptr()) };
        assert_eq!(found, previous);
    }
    let text = lsl_first_child(a);
    assert_eq!((lsl_is_text(text), lsl_is_text(a)), (1, 0));
    assert_eq!(
        (shown(lsl_name(text)), shown(lsl_value(text))),
        (String::new(), "1".into())
    );
    assert_eq!(
        (shown(lsl_name(a)), shown(lsl_value(a))),
        ("a".into(), String::new())
    );
    assert!(lsl_first_child(text).is_null());
    assert_eq!(lsl_parent(text), a);
    assert_eq!(shown(lsl_child_value(a)), "1");
    assert_eq!(shown(lsl_child_value(desc)), "");
    assert_eq!(child_value(desc, c"a"), "1");
    assert_eq!(child_value(desc, c"x"), "");
    let root = lsl_parent(desc);
    assert_eq!(shown(lsl_name(root)), "info");
    let document = lsl_parent(root);
    assert!(!document.is_null() && shown(lsl_name(document)).is_empty());
    assert!(lsl_parent(document).is_null());
    assert_eq!((lsl_empty(document), lsl_empty(a)), (0, 0));
    assert_eq!(child_value(root, c"name"), "x");
}

#[test]
fn changes_and_their_results() {
    let info = Info::new();
    let desc = info.desc();
    append_value(desc, c"a", c"1");
    let a = child(desc, c"a");
    let empty = append(desc, c"empty");
    assert_eq!(set_child_value(desc, c"a", c"2"), 1);
    assert_eq!(set_child_value(desc, c"empty", c"2"), 0);
    assert_eq!(set_child_value(desc, c"missing", c"2"), 0);
    assert_eq!(set_value(a, c"3"), 0);
    assert_eq!(set_value(lsl_first_child(a), c"4"), 1);
    assert_eq!(set_name(lsl_first_child(a), c"n"), 0);
    assert_eq!(set_name(empty, c"full"), 1);
    assert_eq!(info.inside(), "<a>4</a><full />");
    // Only the first child node counts, an element here.
    let mixed = append(desc, c"mixed");
    append(mixed, c"element");
    assert_eq!(set_child_value(desc, c"mixed", c"5"), 0);
    // The document may say another name than the getter.
    assert_eq!(set_child_value(lsl_parent(desc), c"name", c"y"), 1);
    assert_eq!(shown(lsl_get_name(info.0)), "x");
    assert_eq!(child_value(lsl_parent(desc), c"name"), "y");
}

#[test]
fn texts_live_as_long_as_the_info() {
    let info = Info::new();
    let desc = info.desc();
    append_value(desc, c"a", c"first");
    let text = lsl_first_child(child(desc, c"a"));
    let pointer = lsl_value(text);
    set_value(text, c"second");
    assert_eq!(shown(pointer), "first");
    // A text of the library may be given back to it.
    let name = lsl_name(desc);
    // SAFETY: NUL-terminated, and alive with the info.
    assert_eq!(unsafe { lsl_set_value(text, name) }, 1);
    remove(desc, c"a");
    assert_eq!(shown(pointer), "first");
    assert_eq!(shown(lsl_value(text)), "desc");
}

#[test]
fn removal_ends_what_nobody_holds() {
    let info = Info::new();
    let desc = info.desc();
    append_value(append_value(desc, c"a", c"1"), c"a", c"2");
    let first = child(desc, c"a");
    let text = lsl_first_child(first);
    remove(desc, c"missing");
    remove(desc, c"a");
    assert_eq!(info.inside(), "<a>2</a>");
    assert_eq!(
        (shown(lsl_name(first)), lsl_parent(text)),
        ("a".into(), first)
    );
    let second = child(desc, c"a");
    let other = Info::new();
    lsl_remove_child(other.desc(), second);
    lsl_remove_child(lsl_parent(desc), second);
    lsl_remove_child(second, second);
    lsl_remove_child(desc, desc);
    lsl_remove_child(desc, first);
    assert_eq!(info.inside(), "<a>2</a>");
    lsl_remove_child(desc, second);
    assert_eq!(info.inside(), "");
    // A new node in the place of an old one has a handle of its own.
    assert_ne!(append(desc, c"a"), second);
}

#[test]
fn a_removed_node_stays_readable_and_editable() {
    let info = Info::new();
    let desc = info.desc();
    let channels = append(desc, c"channels");
    for label in [c"C3", c"C4", c"Cz"] {
        append_value(append(channels, c"channel"), c"label", label);
    }
    let middle = lsl_next_sibling(lsl_first_child(channels));
    let label = child(middle, c"label");
    lsl_remove_child(channels, middle);
    // It stands alone, as in liblsl.
    assert_eq!(
        (lsl_empty(middle), shown(lsl_name(middle))),
        (0, "channel".into())
    );
    assert_eq!(child_value(middle, c"label"), "C4");
    assert_eq!(
        (lsl_parent(label), shown(lsl_child_value(label))),
        (middle, "C4".into())
    );
    assert!(lsl_parent(middle).is_null());
    assert!(lsl_next_sibling(middle).is_null() && lsl_previous_sibling(middle).is_null());
    append_value(middle, c"unit", c"uV");
    assert_eq!(set_child_value(middle, c"label", c"C5"), 1);
    // Removed once more, inside the removed node.
    let inner = lsl_first_child(label);
    lsl_remove_child(middle, label);
    assert_eq!(
        (shown(lsl_value(inner)), lsl_parent(inner)),
        ("C5".into(), label)
    );
    assert!(lsl_parent(label).is_null() && child(middle, c"label").is_null());
    let copy = lsl_append_copy(desc, middle);
    append_value(copy, c"more", c"");
    assert_eq!(
        info.inside(),
        "<channels><channel><label>C3</label></channel><channel><label>Cz</label></channel>\
         </channels><channel><unit>uV</unit><more></more></channel>"
    );
    // Its info may go, too.
    drop(info);
    assert_eq!(child_value(middle, c"unit"), "uV");
}

#[test]
fn documents_of_temporaries_stay_readable_and_editable() {
    fn desc_of_a_temporary() -> Handle {
        let info = Info::new();
        let channels = append(info.desc(), c"channels");
        for label in [c"C3", c"C4"] {
            append_value(append(channels, c"channel"), c"label", label);
        }
        info.desc()
    }
    let desc = desc_of_a_temporary();
    let channel = child(child(desc, c"channels"), c"channel");
    assert_eq!(child_value(channel, c"label"), "C3");
    let next = lsl_next_sibling(channel);
    assert_eq!(child_value(next, c"label"), "C4");
    assert!(lsl_next_sibling(next).is_null());
    assert_eq!(child_value(lsl_parent(desc), c"name"), "x");
    append_value(desc, c"maker", c"nobody");
    assert_eq!(child_value(desc, c"maker"), "nobody");
    remove(desc, c"maker");
    assert!(child(desc, c"maker").is_null());
    let info = Info::new();
    lsl_append_copy(info.desc(), channel);
    assert_eq!(info.inside(), "<channel><label>C3</label></channel>");
}

#[test]
fn a_read_of_a_dropped_document_is_counted() {
    let info = Info::new();
    let desc = info.desc();
    let handle = info.0;
    drop(info);
    assert_eq!(shown(lsl_name(desc)), "desc");
    kept::forget(handle);
    let before = crate::ext::lslx_dropped_reads();
    assert_eq!(shown(lsl_name(desc)), "");
    assert_eq!(shown(lsl_get_name(handle)), "");
    assert!(append(desc, c"a").is_null());
    // Other tests may add to it.
    assert!(crate::ext::lslx_dropped_reads() >= before + 3);
}

#[test]
fn handles_end_with_the_document() {
    let info = Info::new();
    let desc = info.desc();
    let nodes = [
        desc,
        append(desc, c"a"),
        lsl_parent(desc),
        lsl_parent(lsl_parent(desc)),
    ];
    assert!(nodes.iter().all(|&node| handle::node(node).is_some()));
    let handle = info.0;
    drop(info);
    assert!(nodes.iter().all(|&node| handle::node(node).is_some()));
    kept::forget(handle);
    assert!(nodes.iter().all(|&node| handle::get(node).is_none()));
    assert!(nodes.iter().all(|&node| append(node, c"a").is_null()));
}

#[test]
fn copies_are_deep() {
    let (one, two) = (Info::new(), Info::new());
    let source = append(one.desc(), c"a");
    append_value(append_value(source, c"b", c"1"), c"c", c"2");
    let copy = lsl_append_copy(two.desc(), source);
    append_value(copy, c"d", c"3");
    let first = lsl_prepend_copy(two.desc(), lsl_first_child(source));
    assert_eq!(lsl_first_child(two.desc()), first);
    assert_eq!(one.inside(), "<a><b>1</b><c>2</c></a>");
    assert_eq!(two.inside(), "<b>1</b><a><b>1</b><c>2</c><d>3</d></a>");
    // Within one info, and even into itself.
    let inner = lsl_append_copy(source, source);
    assert_eq!(lsl_parent(inner), source);
    assert_eq!(
        one.inside(),
        "<a><b>1</b><c>2</c><a><b>1</b><c>2</c></a></a>"
    );
    let null = ptr::null_mut();
    let document = lsl_parent(lsl_parent(one.desc()));
    for (e, source) in [
        (null, source),
        (source, null),
        (null, null),
        (source, document),
    ] {
        assert!(lsl_append_copy(e, source).is_null());
        assert!(lsl_prepend_copy(e, source).is_null());
    }
}

#[test]
fn copies_in_opposite_directions_do_not_deadlock() {
    let (one, two) = (Info::new(), Info::new());
    let (a, b) = (
        append(one.desc(), c"a").addr(),
        append(two.desc(), c"b").addr(),
    );
    let copy = |to: usize, from: usize| {
        std::thread::spawn(move || {
            let (to, from) = (
                ptr::without_provenance_mut(to),
                ptr::without_provenance_mut(from),
            );
            for _ in 0..200 {
                lsl_remove_child(to, lsl_append_copy(to, from));
            }
        })
    };
    let threads = [copy(a, b), copy(b, a)];
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(
        (one.inside(), two.inside()),
        ("<a />".into(), "<b />".into())
    );
}

#[test]
fn the_empty_node_is_legal_everywhere() {
    let info = Info::new();
    let stranger = info.0;
    for none in [ptr::null_mut(), stranger, ptr::without_provenance_mut(7)] {
        for step in [
            lsl_first_child,
            lsl_last_child,
            lsl_next_sibling,
            lsl_previous_sibling,
            lsl_parent,
        ] {
            assert!(step(none).is_null());
        }
        for text in [lsl_name, lsl_value, lsl_child_value] {
            assert_eq!(shown(text(none)), "");
        }
        assert_eq!((lsl_empty(none), lsl_is_text(none)), (1, 1));
        assert_eq!(child_value(none, c"a"), "");
        assert!(child(none, c"a").is_null() && append(none, c"a").is_null());
        assert!(append_value(none, c"a", c"b").is_null());
        assert!(prepend_value(none, c"a", c"b").is_null());
        assert_eq!((set_name(none, c"a"), set_value(none, c"a")), (0, 0));
        assert_eq!(set_child_value(none, c"a", c"b"), 0);
        remove(none, c"a");
        lsl_remove_child(none, info.desc());
        lsl_remove_child(info.desc(), none);
    }
    assert_eq!(info.inside(), "");
}

#[test]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "a list of calls")]
fn null_texts_change_nothing() {
    let info = Info::new();
    let desc = info.desc();
    append_value(desc, c"a", c"1");
    let (null, a) = (ptr::null(), c"a".as_ptr());
    // SAFETY: NULL is allowed.
    unsafe {
        assert!(lsl_child(desc, null).is_null());
        assert!(lsl_next_sibling_n(child(desc, c"a"), null).is_null());
        assert!(lsl_previous_sibling_n(child(desc, c"a"), null).is_null());
        assert_eq!(shown(lsl_child_value_n(desc, null)), "");
        assert!(lsl_append_child(desc, null).is_null());
        assert!(lsl_prepend_child(desc, null).is_null());
        assert_eq!(lsl_append_child_value(desc, null, a), desc);
        assert_eq!(lsl_append_child_value(desc, a, null), desc);
        assert_eq!(lsl_prepend_child_value(desc, null, null), desc);
        assert_eq!(lsl_set_child_value(desc, null, a), 0);
        assert_eq!(lsl_set_child_value(desc, a, null), 0);
        assert_eq!(lsl_set_name(desc, null), 0);
        assert_eq!(lsl_set_value(lsl_first_child(child(desc, c"a")), null), 0);
        lsl_remove_child_n(desc, null);
    }
    assert_eq!(info.inside(), "<a>1</a>");
}

#[test]
fn cdata_is_text() {
    let xml = c"<info><name>n</name><channel_count>1</channel_count><channel_format>int8</channel_format>\
        <nominal_srate>1</nominal_srate><version>1.1</version><created_at>1</created_at><uid>u</uid>\
        <v4data_port>0</v4data_port><v4service_port>0</v4service_port><v6data_port>0</v6data_port>\
        <v6service_port>0</v6service_port><desc><c><![CDATA[<raw>]]></c></desc></info>";
    // SAFETY: a NUL-terminated text.
    let info = Info(unsafe { lsl_streaminfo_from_xml(xml.as_ptr()) });
    let c = child(info.desc(), c"c");
    assert_eq!(lsl_is_text(lsl_first_child(c)), 1);
    assert_eq!(child_value(info.desc(), c"c"), "<raw>");
    assert_eq!(set_child_value(info.desc(), c"c", c"x"), 1);
    assert_eq!(shown(lsl_child_value(c)), "x");
}

/// The log message about an ended handle goes to the host's callback, which may use the info.
#[test]
fn a_child_to_remove_is_looked_up_before_its_info_is_locked() {
    const PATIENCE: Duration = Duration::from_secs(30);
    let info = Info::new();
    let desc = info.desc().addr();
    let gone = Info::new();
    let ended = gone.0.addr();
    drop(gone);
    let object = handle::info(info.0).unwrap();
    let locked = object.lock();
    let (tell, returned) = mpsc::channel();
    let removing = std::thread::spawn(move || {
        lsl_remove_child(
            ptr::without_provenance_mut(desc),
            ptr::without_provenance_mut(ended),
        );
        let _ = tell.send(());
    });
    let has_returned = returned.recv_timeout(PATIENCE).is_ok();
    drop(locked);
    removing.join().unwrap();
    assert!(has_returned, "it waits for the info");
}
