//! Replays what fuzzing has found interesting: the targets of `fuzz/` on the inputs kept there.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

#[path = "../fuzz/src/lib.rs"]
#[expect(
    unreachable_pub,
    reason = "the fuzz binaries see this file as a library"
)]
mod targets;

#[test]
fn holds_for_everything_fuzzing_has_found() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut failed = Vec::new();
    for (name, check) in targets::TARGETS {
        let mut inputs = 0;
        for file in fs::read_dir(corpus.join(name)).expect(name) {
            let path = file.expect(name).path();
            let input = fs::read(&path).expect(name);
            inputs += 1;
            if catch_unwind(|| check(&input)).is_err() {
                failed.push(path);
            }
        }
        assert!(inputs > 0, "no input for {name}");
    }
    assert!(failed.is_empty(), "the panics above are of {failed:#?}");
}

/// A target that is missing from the list would be fuzzed but never replayed.
#[test]
fn lists_every_target() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let names = |dir: &str| -> BTreeSet<String> {
        fs::read_dir(fuzz.join(dir))
            .expect(dir)
            .map(|file| {
                let path = file.expect(dir).path();
                path.file_stem().unwrap().to_str().unwrap().to_owned()
            })
            .collect()
    };
    let listed = targets::TARGETS.map(|(name, _)| name.to_owned());
    let listed = BTreeSet::from(listed);
    assert_eq!(listed, names("fuzz_targets"));
    assert_eq!(listed, names("corpus"));
}
