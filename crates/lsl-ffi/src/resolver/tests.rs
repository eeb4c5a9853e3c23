use std::ffi::CStr;

use lsl_core::{ChannelFormat, Outlet, local_clock};

use super::*;
use crate::common::{lsl_last_error, shown};
use crate::streaminfo::{lsl_destroy_streaminfo, lsl_get_desc, lsl_get_name, lsl_get_uid};
use crate::xml::lsl_first_child;

/// Longest wait in seconds; only a hang reaches it.
const SOON: f64 = 20.0;

fn outlet(name: &str) -> Outlet {
    let mut info = StreamInfo::new(name, "Test", 1, 100.0, ChannelFormat::Int8, "id").unwrap();
    info.desc_mut().set("manufacturer", "Acme");
    Outlet::builder(info).context(&context()).open().unwrap()
}

/// Returns the names found, or the error code.
fn names(slots: &[Handle], count: i32) -> Result<Vec<String>, i32> {
    let Ok(count) = usize::try_from(count) else {
        return Err(count);
    };
    let (found, rest) = slots.split_at(count);
    assert!(
        rest.iter().all(|&slot| slot == UNTOUCHED),
        "only results are written"
    );
    let names = found.iter().map(|&info| {
        let name = shown(lsl_get_name(info));
        assert!(lsl_first_child(lsl_get_desc(info)).is_null());
        assert_eq!(shown(lsl_get_uid(info)).len(), 36);
        lsl_destroy_streaminfo(info);
        name
    });
    Ok(names.collect())
}

const UNTOUCHED: Handle = ptr::without_provenance_mut(0x55);

fn byprop(
    prop: Option<&CStr>,
    value: Option<&CStr>,
    minimum: i32,
    timeout: f64,
) -> Result<Vec<String>, i32> {
    let mut slots = [UNTOUCHED; 16];
    let text = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
    let (prop, value) = (text(prop), text(value));
    // SAFETY: 16 slots; NULL or NUL-terminated texts.
    let count =
        unsafe { lsl_resolve_byprop(slots.as_mut_ptr(), 16, prop, value, minimum, timeout) };
    names(&slots, count)
}

fn bypred(predicate: Option<&CStr>, minimum: i32, timeout: f64) -> Result<Vec<String>, i32> {
    let mut slots = [UNTOUCHED; 16];
    let predicate = predicate.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: 16 slots; NULL or a NUL-terminated text.
    let count = unsafe { lsl_resolve_bypred(slots.as_mut_ptr(), 16, predicate, minimum, timeout) };
    names(&slots, count)
}

fn only(name: &str) -> Vec<String> {
    vec![name.to_owned()]
}

#[test]
fn invalid_queries_are_told_before_anything_is_sent() {
    let session = context().config().lab().session_id.clone();
    let start = local_clock();
    for (predicate, shown_predicate) in [
        (c"type=", "type="),
        (c"", ""),
        (c"a b", "a b"),
        (c"((", "(("),
    ] {
        assert_eq!(bypred(Some(predicate), 0, SOON), Err(-3));
        let query = format!("Invalid query 'session_id='{session}' and {shown_predicate}': ");
        let error = shown(lsl_last_error());
        assert!(error.starts_with(&query), "{error}");
        // SAFETY: a NUL-terminated text.
        let resolver = unsafe { lsl_create_continuous_resolver_bypred(predicate.as_ptr(), 5.0) };
        assert!(resolver.is_null());
    }
    for (prop, value) in [
        (c"", Some(c"x")),
        (c"", None),
        (c"name", Some(c"O'Brien")),
        (c"a b", Some(c"x")),
    ] {
        assert_eq!(byprop(Some(prop), value, 1, SOON), Err(-3), "{prop:?}");
        let value = value.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: NULL or NUL-terminated texts.
        let resolver = unsafe { lsl_create_continuous_resolver_byprop(prop.as_ptr(), value, 5.0) };
        assert!(resolver.is_null());
    }
    assert!(local_clock() - start < SOON / 2.0);
}

#[test]
fn predicates_follow_the_session_without_parentheses() {
    let query = |predicate: &[u8]| {
        let selector = selector(&context(), Some(predicate.to_vec())).unwrap();
        String::from_utf8(selector.to_query("default").unwrap()).unwrap()
    };
    assert_eq!(query(b"a or b"), "session_id='default' and a or b");
    assert_eq!(property(None, Some(b"x")), None);
    assert_eq!(property(Some(b"a"), None), Some(b"a".to_vec()));
    assert_eq!(property(Some(b"a"), Some(b"x")), Some(b"a='x'".to_vec()));
}

#[test]
fn missing_buffers() {
    // SAFETY: no room is claimed.
    assert_eq!(unsafe { lsl_resolve_all(ptr::null_mut(), 0, 0.0) }, 0);
    // SAFETY: NULL is detected.
    assert_eq!(unsafe { lsl_resolve_all(ptr::null_mut(), 4, SOON) }, -3);
    let resolver = lsl_create_continuous_resolver(5.0);
    // SAFETY: no room is claimed.
    let count = unsafe { lsl_resolver_results(resolver, ptr::null_mut(), 0) };
    assert_eq!(count, 0);
    // SAFETY: NULL is detected.
    let count = unsafe { lsl_resolver_results(resolver, ptr::null_mut(), 4) };
    assert_eq!(count, -3);
    lsl_destroy_continuous_resolver(resolver);
}

#[test]
fn streams_are_found_by_property_and_predicate() {
    let _outlet = outlet("found-once");
    let name = Some(c"found-once");
    assert_eq!(byprop(Some(c"name"), name, 1, SOON), Ok(only("found-once")));
    let metadata = c"name='found-once' and desc/manufacturer='Acme'";
    assert_eq!(bypred(Some(metadata), 1, SOON), Ok(only("found-once")));
    // Forever ends with the minimum.
    for forever in [32_000_000.0, f64::INFINITY] {
        assert_eq!(
            byprop(Some(c"name"), name, 1, forever),
            Ok(only("found-once"))
        );
    }
    // NULLs are no condition: other tests may have outlets, too.
    for all in [
        byprop(None, Some(c"ignored"), 1, SOON),
        byprop(Some(c"name"), None, 1, SOON),
        bypred(None, 1, SOON),
    ] {
        assert!(!all.unwrap().is_empty());
    }
    // Fewer slots than streams: only they are written.
    let _second = outlet("found-twice");
    let predicate = c"starts-with(name,'found-')".as_ptr();
    let mut slots = [UNTOUCHED; 2];
    // SAFETY: more than one slot; a NUL-terminated text.
    let count = unsafe { lsl_resolve_bypred(slots.as_mut_ptr(), 1, predicate, 2, SOON) };
    assert_eq!((count, slots[1]), (1, UNTOUCHED));
    lsl_destroy_streaminfo(slots[0]);
}

#[test]
fn timeouts() {
    let waits = |minimum, timeout| {
        let start = local_clock();
        let none = byprop(Some(c"name"), Some(c"nobody"), minimum, timeout);
        assert_eq!(none, Ok(Vec::new()));
        local_clock() - start
    };
    for at_once in [0.0, -0.0, -1.0, -1e300, f64::NEG_INFINITY, f64::NAN] {
        assert!(waits(1, at_once) < SOON / 2.0, "{at_once}");
    }
    for minimum in [1, 0, -5] {
        assert!(waits(minimum, 0.3) >= 0.3, "{minimum}");
    }
    // Without a minimum it takes the whole time, whatever is found.
    let _outlet = outlet("whole-time");
    for minimum in [0, -1] {
        let start = local_clock();
        let names = byprop(Some(c"name"), Some(c"whole-time"), minimum, 0.7);
        assert_eq!(names, Ok(only("whole-time")));
        assert!(local_clock() - start >= 0.7);
    }
    let mut slots = [UNTOUCHED; 64];
    let start = local_clock();
    // SAFETY: 64 slots.
    let count = unsafe { lsl_resolve_all(slots.as_mut_ptr(), 64, 0.7) };
    assert!(local_clock() - start >= 0.7);
    assert!(names(&slots, count).unwrap().contains(&"whole-time".into()));
}

#[test]
fn continuous_resolvers_follow_the_outlets() {
    let predicate = c"name='continuous'".as_ptr();
    // SAFETY: a NUL-terminated text.
    let resolver = unsafe { lsl_create_continuous_resolver_bypred(predicate, 2.5) };
    let results = || {
        let mut slots = [UNTOUCHED; 4];
        // The count that lsl_cpp.h gives: bytes, not slots.
        let bytes = u32::try_from(size_of_val(&slots)).unwrap();
        // SAFETY: one stream is found at the most.
        let count = unsafe { lsl_resolver_results(resolver, slots.as_mut_ptr(), bytes) };
        names(&slots, count).unwrap()
    };
    let wait_for = |expected: usize| {
        let deadline = local_clock() + SOON;
        while results().len() != expected {
            assert!(local_clock() < deadline, "not {expected} streams in time");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    assert!(results().is_empty());
    let outlet = outlet("continuous");
    wait_for(1);
    let mut kept = [UNTOUCHED; 1];
    // SAFETY: one slot.
    let count = unsafe { lsl_resolver_results(resolver, kept.as_mut_ptr(), 1) };
    assert_eq!(count, 1);
    drop(outlet);
    wait_for(0);
    lsl_destroy_continuous_resolver(resolver);
    lsl_destroy_continuous_resolver(resolver);
    // Infos outlive it, results do not.
    assert_eq!(shown(lsl_get_name(kept[0])), "continuous");
    lsl_destroy_streaminfo(kept[0]);
    // SAFETY: the handle is stale; one slot.
    let count = unsafe { lsl_resolver_results(resolver, kept.as_mut_ptr(), 1) };
    assert_eq!(count, -3);
}

#[test]
fn what_is_no_resolver_is_nothing() {
    let mut slots = [UNTOUCHED; 1];
    for none in [ptr::null_mut(), UNTOUCHED] {
        // SAFETY: one slot.
        let count = unsafe { lsl_resolver_results(none, slots.as_mut_ptr(), 1) };
        assert_eq!((count, slots[0]), (-3, UNTOUCHED));
        lsl_destroy_continuous_resolver(none);
    }
}
