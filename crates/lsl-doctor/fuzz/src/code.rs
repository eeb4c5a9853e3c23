//! What people type as the code of the other machine.

use lsl_doctor::code::{decode, encode};

/// What is accepted is said by one code alone.
pub fn check(input: &[u8]) {
    let Ok(typed) = std::str::from_utf8(input) else {
        return;
    };
    if let Ok(side) = decode(typed) {
        assert_eq!(decode(&encode(&side)), Ok(side.clone()));
        let typed = typed.to_ascii_uppercase().replace('O', "0");
        let typed = typed.replace(['I', 'L'], "1");
        let plain = |text: &str| text.replace(|c: char| c == '-' || c.is_whitespace(), "");
        assert_eq!(plain(&encode(&side)), plain(&typed));
    }
}
