//! The DESCRIPTOR payload. Input: the payload.

use lsl_secure::Descriptor;

pub fn check(input: &[u8]) {
    let Ok(descriptor) = Descriptor::parse(input) else {
        return;
    };
    // What is known comes first; types of later versions may follow.
    let bytes = descriptor.to_bytes();
    assert!(input.starts_with(&bytes));
    let again = Descriptor::parse(&bytes).expect("its own bytes");
    assert_eq!(again.differs_from(&descriptor), None);
    assert_eq!(descriptor.differs_from(&again), None);
    assert_eq!(again.to_bytes(), bytes);
    assert_eq!(descriptor.is_other_stream_than(&again), None);
    let canonical = descriptor.clone().canonical();
    let twice = canonical.clone().canonical();
    assert_eq!(twice.differs_from(&canonical), None);
    assert!(canonical.to_bytes().len() <= 6 * (4 + 1024) + 4 * 4 + 4 + 8 + 1 + 8);
}
