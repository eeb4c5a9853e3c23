//! Replays what fuzzing has found interesting: the targets of `fuzz/` on the inputs kept there.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

#[path = "../../fuzz/src/lib.rs"]
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

/// A little of what fuzzing does, without its tools: inputs near those of the corpus.
#[test]
fn holds_for_changed_inputs_too() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut state = 2026_u64;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap_or_default() % below.max(1)
    };
    for (name, check) in targets::TARGETS {
        let mut inputs: Vec<_> = fs::read_dir(corpus.join(name))
            .expect(name)
            .map(|file| fs::read(file.expect(name).path()).expect(name))
            .collect();
        inputs.sort();
        for _ in 0..CHANGES {
            let mut input = inputs[random(inputs.len())].clone();
            for _ in 0..=random(4) {
                let at = random(input.len() + 1);
                match random(5) {
                    0 => input.truncate(at),
                    1 => input.insert(at, random(256).to_le_bytes()[0]),
                    2 => {
                        let other = &inputs[random(inputs.len())];
                        input.extend_from_slice(&other[random(other.len())..]);
                    }
                    3 if at < input.len() => input[at] ^= 1 << random(8),
                    _ if at < input.len() => input[at] = random(256).to_le_bytes()[0],
                    _ => {}
                }
            }
            let held = catch_unwind(|| check(&input)).is_ok();
            assert!(held, "the panic above is of {name} with {input:?}");
        }
    }
}

/// Per target; a handshake takes milliseconds without optimisation.
const CHANGES: usize = 100;
