//! XML documents. Input: the text.

use lsl_proto::xml::{Limits, parse, parse_with};

/// Small, so that inputs of a few bytes reach them.
const LIMITS: Limits = Limits {
    bytes: 4000,
    depth: 16,
    nodes: 100,
};

pub fn check(input: &[u8]) {
    let limited = parse_with(input, &LIMITS);
    let Ok(document) = parse(input) else {
        assert!(limited.is_err(), "smaller limits allow more");
        return;
    };
    if let Ok(limited) = limited {
        assert!(limited.document.len() <= LIMITS.nodes + 1);
        assert!(
            limited
                .fault
                .is_none_or(|fault| fault.offset <= input.len())
        );
        assert_eq!(limited.document.write(), document.write());
    }
    // What was read and written once is written alike from then on. The first time may differ: an
    // empty text, which only `&#0;` makes, is written but not read.
    let rewrite = |text: &[u8]| parse(text).map(|document| document.write());
    if let Ok(once) = rewrite(&document.write())
        && let Ok(twice) = rewrite(&once)
    {
        assert_eq!(
            String::from_utf8_lossy(&twice),
            String::from_utf8_lossy(&once),
            "changed by writing"
        );
    }
}
