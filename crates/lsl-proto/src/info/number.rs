//! Parsers of numbers as liblsl reads them from XML: the longest valid prefix, junk after it
//! ignored. Spec: lsl-protocol §2.3; vector streaminfo-from-xml.

/// Parses as C++ `stoi`: white space, a sign, decimal digits. `None` without digits or beyond an `int`.
pub(super) fn parse_int(text: &[u8]) -> Option<i32> {
    let mut prefix = Prefix::new(text);
    prefix.sign();
    if prefix.digits() == 0 {
        return None;
    }
    prefix.text()?.parse().ok()
}

/// Parses as C++ stream extraction of a `double`: white space, a sign, digits with or without a
/// point, an exponent. An exponent without digits voids the number; so does overflow; `nan`, `inf`
/// and hex are no numbers.
pub(super) fn parse_double(text: &[u8]) -> Option<f64> {
    let mut prefix = Prefix::new(text);
    prefix.sign();
    let mut digits = prefix.digits();
    if prefix.eat(b".") {
        digits += prefix.digits();
    }
    if digits == 0 {
        return None;
    }
    if prefix.eat(b"eE") {
        prefix.sign();
        if prefix.digits() == 0 {
            return None;
        }
    }
    prefix
        .text()?
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
}

/// Cursor over a text, whose prefix grows with the characters accepted.
struct Prefix<'a> {
    text: &'a [u8],
    len: usize,
}

impl<'a> Prefix<'a> {
    fn new(text: &'a [u8]) -> Self {
        let space = |&byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
        let at = text
            .iter()
            .position(|byte| !space(byte))
            .unwrap_or(text.len());
        Self {
            text: text.split_at(at).1,
            len: 0,
        }
    }

    fn eat(&mut self, any_of: &[u8]) -> bool {
        let found = self
            .text
            .get(self.len)
            .is_some_and(|byte| any_of.contains(byte));
        self.len += usize::from(found);
        found
    }

    fn sign(&mut self) {
        self.eat(b"+-");
    }

    fn digits(&mut self) -> usize {
        let start = self.len;
        while self.eat(b"0123456789") {}
        self.len - start
    }

    fn text(&self) -> Option<&'a str> {
        std::str::from_utf8(self.text.get(..self.len)?).ok()
    }
}
