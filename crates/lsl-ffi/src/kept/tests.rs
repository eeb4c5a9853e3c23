use lsl_core::StreamInfo;

use super::*;

const MIB: usize = 1 << 20;

fn object() -> Arc<InfoObject> {
    Arc::new(InfoObject::new(StreamInfo::invalid("")))
}

fn empty() -> Kept {
    Kept {
        entries: VecDeque::new(),
        bytes: 0,
        unread: VecDeque::new(),
    }
}

#[test]
fn documents_within_the_ample_limits_never_go() {
    let mut kept = empty();
    let mut now = 0.0;
    for n in 0..AMPLE.documents {
        // Decades apart.
        now += 1e9;
        let gone = kept.push(object(), None, AMPLE.bytes / AMPLE.documents, now);
        assert!(gone.is_empty(), "{n}");
    }
    assert_eq!(
        (kept.entries.len(), kept.bytes),
        (AMPLE.documents, AMPLE.bytes)
    );
}

#[test]
fn beyond_the_ample_limits_the_oldest_go_when_they_are_old() {
    let mut kept = empty();
    let first = object();
    kept.push(Arc::clone(&first), None, 1, 0.0);
    for _ in 0..AMPLE.documents {
        assert!(kept.push(object(), None, 1, 1.0).is_empty());
    }
    assert!(
        kept.push(object(), None, 1, AGE_SECS).is_empty(),
        "a minute"
    );
    let gone = kept.push(object(), None, 1, AGE_SECS + 0.1);
    assert_eq!(gone.len(), 1, "the others are younger");
    assert!(Arc::ptr_eq(&gone[0].object, &first));
    assert!(!first.kept.is_in());
    // Never many at a time, and never below the limits.
    let mut left = kept.entries.len() - AMPLE.documents;
    assert_eq!(left, 2);
    for n in 0..AT_ONCE * 2 {
        assert!(kept.push(object(), None, 1, 2.0).is_empty());
        left += 1;
        assert_eq!(kept.entries.len(), AMPLE.documents + left, "{n}");
    }
    assert_eq!(kept.push(object(), None, 1, 1e9).len(), AT_ONCE);
    assert_eq!(kept.push(object(), None, 1, 1e9).len(), AT_ONCE);
    while kept.entries.len() > AMPLE.documents {
        kept.push(object(), None, 1, 1e9);
    }
    assert_eq!(kept.push(object(), None, 1, 1e9).len(), 1);
    assert_eq!(kept.entries.len(), AMPLE.documents);
}

#[test]
fn the_most_is_not_exceeded_at_any_age() {
    let mut kept = empty();
    for _ in 0..3 * MOST.documents {
        kept.push(object(), None, 1, 0.0);
        assert!(kept.entries.len() <= MOST.documents);
    }
    assert_eq!(kept.entries.len(), MOST.documents);
    for _ in 0..1_000 {
        kept.push(object(), None, MIB, 0.0);
        assert!(kept.bytes <= MOST.bytes);
    }
    assert_eq!(kept.bytes, MOST.bytes);
    let counted: usize = kept
        .entries
        .iter()
        .map(|entry| entry.object.kept.0.load(Ordering::Relaxed))
        .sum();
    assert_eq!(counted, kept.bytes);
}

#[test]
fn the_newest_stay_however_large() {
    let mut kept = empty();
    let large = object();
    kept.push(Arc::clone(&large), None, 2 * MOST.bytes, 0.0);
    for n in 1..NEWEST {
        assert!(kept.push(object(), None, MOST.bytes, 1e9).is_empty(), "{n}");
    }
    let gone = kept.push(object(), None, MOST.bytes, 1e9);
    assert_eq!(gone.len(), 1, "the sixteenth after it");
    assert!(Arc::ptr_eq(&gone[0].object, &large));
    assert_eq!(kept.entries.len(), NEWEST);
}

#[test]
fn a_document_is_kept_once_and_with_its_size_of_today() {
    let mut kept = empty();
    let one = object();
    kept.push(Arc::clone(&one), None, 100, 0.0);
    kept.push(Arc::clone(&one), None, 100, 0.0);
    assert_eq!((kept.entries.len(), kept.bytes), (1, 100));
    assert!(kept.resize(&one, 5_000, 0.0).is_empty());
    assert_eq!(kept.bytes, 5_000);
    assert!(kept.resize(&object(), 7, 0.0).is_empty());
    assert_eq!(kept.bytes, 5_000, "only what is kept counts");
}

#[test]
fn edits_make_old_documents_go_and_never_the_edited_one() {
    let mut kept = empty();
    let edited = object();
    kept.push(Arc::clone(&edited), None, MIB, 0.0);
    for _ in 0..100 {
        kept.push(object(), None, MIB, 0.0);
    }
    let mut gone = 0;
    for size in 2..=200 {
        let dropped = kept.resize(&edited, size * MIB, 1.0);
        assert!(
            !dropped
                .iter()
                .any(|entry| Arc::ptr_eq(&entry.object, &edited))
        );
        gone += dropped.len();
        let is_least = kept.entries.len() == NEWEST;
        assert!(kept.bytes <= MOST.bytes || is_least, "{} bytes", kept.bytes);
    }
    assert_eq!((gone, kept.entries.len()), (101 - NEWEST, NEWEST));
    assert!(edited.kept.is_in());
    // A document that shrank keeps its place.
    assert!(kept.resize(&edited, 1, 1e9).is_empty());
}

/// Churn of edits: each document grows a little after it was destroyed.
#[test]
fn documents_that_grow_in_turns_stay_within_the_most() {
    let mut kept = empty();
    let all: Vec<_> = (0..1_000).map(|_| object()).collect();
    for object in &all {
        kept.push(Arc::clone(object), None, 1, 0.0);
    }
    for size in 1..=100_usize {
        for object in &all {
            kept.resize(object, size * MIB / 100, 1.0);
            assert!(kept.bytes <= MOST.bytes, "{} bytes", kept.bytes);
        }
    }
    assert!(kept.entries.len() < all.len());
}

#[test]
fn infos_that_c_has_no_pointer_into_take_nobody_s_place() {
    let mut kept = empty();
    kept.push(object(), None, 1, 0.0);
    let first = object();
    kept.push_unread(Arc::clone(&first), None);
    for _ in 1..MOST_UNREAD {
        assert!(kept.push_unread(object(), None).is_empty());
    }
    let gone = kept.push_unread(object(), None);
    assert!(gone.len() == 1 && Arc::ptr_eq(&gone[0].object, &first));
    assert_eq!((kept.entries.len(), kept.unread.len()), (1, MOST_UNREAD));
}
