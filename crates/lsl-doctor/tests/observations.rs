//! What the labs recorded (`cargo xtask labs --update`), replayed without any network.
//! Spec: doctor Part C
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot run is a failed test"
)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::LazyLock;

use lsl_doctor::observe::Observations;
use lsl_doctor::table::diagnose;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value};

/// One run of the doctor in a lab.
#[derive(Deserialize)]
struct Recorded {
    /// What the lab expects.
    findings: Vec<String>,
    observations: Value,
}

static RECORDED: LazyLock<Vec<(String, Recorded)>> = LazyLock::new(|| {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/observations");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (
            path.display().to_string(),
            serde_json::from_str(&text).unwrap(),
        )
    };
    let all: Vec<_> = files.map(read).collect();
    assert!(all.len() > 15, "{} recordings", all.len());
    all
});

fn observations(value: &Value) -> Observations {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn each_lab_has_its_finding_and_healthy_ones_have_none() {
    for (name, recorded) in RECORDED.iter() {
        let found = diagnose(&observations(&recorded.observations)).findings;
        let found: Vec<String> = found.into_iter().map(|it| it.id).collect();
        assert_eq!(found, recorded.findings, "{name}");
    }
}

/// Makes some fields unknown, but for these.
fn forget<'a>(
    fields: &mut Map<String, Value>,
    kept: &[&str],
    mask: &mut impl Iterator<Item = &'a bool>,
) {
    let fields = fields
        .iter_mut()
        .filter(|(key, _)| !kept.contains(&key.as_str()));
    for ((_, value), _) in fields.zip(mask).filter(|(_, is_unknown)| **is_unknown) {
        *value = Value::Null;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is not known adds no finding: there are fewer causes, or one that was a note is the first.
    #[test]
    fn not_knowing_is_no_evidence(mask in proptest::collection::vec(any::<bool>(), 64)) {
        for (name, recorded) in RECORDED.iter() {
            let all = diagnose(&observations(&recorded.observations));
            let known: BTreeSet<&str> =
                all.findings.iter().chain(&all.notes).map(|it| it.id.as_str()).collect();
            let mut less = recorded.observations.clone();
            let fields = less.as_object_mut().unwrap();
            let mut mask = mask.iter().cycle();
            for peer in fields.get_mut("peers").and_then(Value::as_array_mut).into_iter().flatten() {
                forget(peer.as_object_mut().unwrap(), &["text", "is_named", "address", "on_link"], &mut mask);
            }
            forget(fields, &["asked", "os"], &mut mask);
            let found = diagnose(&observations(&less));
            for finding in found.findings.iter().chain(&found.notes) {
                prop_assert!(known.contains(finding.id.as_str()), "{name}: {} of {known:?}", finding.id);
            }
            if all.findings.is_empty() {
                prop_assert!(found.findings.is_empty(), "{name}: {:?}", found.findings);
            }
        }
    }
}
