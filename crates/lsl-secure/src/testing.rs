//! Helpers that the tests of this crate share.

/// Bytes from hexadecimal digits; blanks and line ends do not count.
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    assert_eq!(digits.len() % 2, 0, "half a byte in {text}");
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Decodes hex into an array whose length the test knows.
pub(crate) fn unhex_array<const N: usize>(text: &str) -> [u8; N] {
    unhex(text).try_into().unwrap()
}
