//! Repair. Input: a file.

use lsl_xdf::load;
use lsl_xdf::repair::survey;

pub fn check(input: &[u8]) {
    let Ok(found) = survey(input) else {
        return;
    };
    assert_eq!(found.len, input.len() as u64);
    let mut repaired = Vec::new();
    let written = found.write_repaired(input, &mut repaired);
    written.expect("memory takes everything");
    assert_eq!(found.repaired_len(), repaired.len() as u64);
    if found.is_whole() {
        assert_eq!(repaired, input);
    }
    if let Some((keep, tail)) = found.tail() {
        let in_place = [&input[..usize::try_from(keep).expect("small")], &tail].concat();
        assert_eq!(in_place, repaired);
    }
    let again = survey(&repaired[..]).expect("own file");
    assert!(again.is_whole(), "{:?}", again.findings);
    assert_eq!(again.dropped_bytes, 0);
    for (id, stream) in &found.streams {
        let kept = again.streams.get(id).expect("a stream goes missing");
        assert_eq!(kept.tally.samples, stream.tally.samples);
        assert_eq!(kept.tally.offset_count, stream.tally.offset_count);
        assert!(kept.has_footer);
    }
    let loaded = load(&repaired[..]).expect("own file");
    for problem in &loaded.problems {
        let is_kept = matches!(problem.kind, lsl_xdf::ProblemKind::TooLong { .. });
        assert!(problem.kind.is_harmless() || is_kept, "{problem}");
    }
}
