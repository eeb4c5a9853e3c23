//! What a real `fork` does to a security log: parent and child write chains of their own, and no line of the other's.
//! Spec: audit §7, test 6.
//!
//! A test binary of its own, because the child of a threaded process may do next to nothing.
#![cfg(unix)]
#![expect(unsafe_code, reason = "fork, waitpid and _exit have no safe form")]

#[path = "../../lsl-platform/tests/forked/mod.rs"]
mod forked;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use lsl_secure::audit::{Audit, Event, EventKind, Verifier};
use serde_json::Value;

use forked::in_child;

#[test]
fn parent_and_child_have_chains_of_their_own() {
    let directory = std::env::temp_dir().join(format!("lsl-fork-audit-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let file = directory.join("audit.jsonl");
    let audit = Audit::open(&file, 0).unwrap();
    let record = |who: &str, lines: u32| {
        for _ in 0..lines {
            audit.record(Event::new(EventKind::KeyUpdate).detail(who));
        }
    };
    record("parent", 10);
    assert!(audit.flush(Duration::from_secs(20)));
    // These still wait in the parent, whose they are.
    record("parent", 10);
    assert!(in_child(|| {
        record("child", 100);
        audit.flush(Duration::from_secs(15)) && audit.dropped() == 0
    }));
    record("parent", 10);
    drop(audit);

    let mut verifier = Verifier::default();
    let mut chains: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in fs::read_to_string(&file).unwrap().lines() {
        verifier.line(line.as_bytes()).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        let chain = line["chain"].as_str().unwrap().to_owned();
        chains.entry(chain).or_default().push(line);
    }
    let mut found = Vec::new();
    for lines in chains.values() {
        assert_eq!(lines[0]["event"], "log_opened");
        let who = lines[1]["detail"].as_str().unwrap();
        assert!(lines[1..].iter().all(|line| line["detail"] == who));
        found.push((who, lines.len(), lines[0]["pid"] == std::process::id()));
    }
    found.sort_unstable();
    assert_eq!(found, [("child", 101, false), ("parent", 31, true)]);
    fs::remove_dir_all(&directory).unwrap();
}
