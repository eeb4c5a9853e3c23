//! Places at which a debugger or a BPF program can look at a running program: USDT probes with semaphores, on Linux
//! for x86-64 and aarch64, with the feature `probes`. Elsewhere nothing is compiled. Spec: audit §2.
//!
//! While nobody looks, a probe is a word in memory that is 0, and its arguments are not even made. Each is one place
//! in a file: its function is neither generic nor inlined. The array of `crypto_auditing` is that of
//! crypto-auditing's `dist/crau/macros.h`.

pub use sites::{data, new_context_with_data, pull, push, send};

/// Returns the word by which probes name an object: where it is.
pub fn word_of<T>(object: &T) -> u64 {
    std::ptr::from_ref(object).addr() as u64
}

/// What a probe of `crypto_auditing` says of a context: at most 15 keys with values, of at most 63 bytes each.
#[derive(Debug, Default)]
pub struct Elements {
    elements: Vec<Element>,
    /// Texts that they point to.
    kept: Vec<Box<[u8]>>,
}

/// `struct crypto_auditing_data`: words are in place of the pointer to a value.
#[derive(Debug)]
#[repr(C)]
struct Element {
    key: usize,
    value: usize,
    size: u64,
}

impl Elements {
    /// Adds a number.
    pub fn word(&mut self, key: &str, value: u64) {
        // As long as a pointer, on all systems that have probes.
        self.add(key, usize::try_from(value).unwrap_or(usize::MAX), WORD);
    }

    /// Adds a text, which ends at its first NUL.
    pub fn text(&mut self, key: &str, value: &str) {
        let value = self.keep(cut(value), b"\0");
        self.add(key, value, TEXT);
    }

    /// Adds bytes.
    pub fn bytes(&mut self, key: &str, value: &[u8]) {
        let value = value.get(..MAX_LEN).unwrap_or(value);
        let place = self.keep(value, b"");
        self.add(key, place, value.len() as u64);
    }

    fn add(&mut self, key: &str, value: usize, size: u64) {
        if self.elements.len() < MAX_ELEMENTS {
            let key = self.keep(cut(key), b"\0");
            self.elements.push(Element { key, value, size });
        }
    }

    /// Returns where a copy of `bytes` with `end` lies.
    fn keep(&mut self, bytes: &[u8], end: &[u8]) -> usize {
        let copy: Box<[u8]> = [bytes, end].concat().into();
        let place = copy.as_ptr().expose_provenance();
        self.kept.push(copy);
        place
    }
}

/// Returns a text as far as it has room, in whole characters.
fn cut(text: &str) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(MAX_LEN)]
}

const MAX_ELEMENTS: usize = 15;
const MAX_LEN: usize = 63;
/// `size` of a word, and of a text that ends with NUL.
const WORD: u64 = u64::MAX - 1;
const TEXT: u64 = u64::MAX;

#[cfg(all(
    feature = "probes",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod sites {
    //! Arguments are made within the branch that the semaphore guards: a local above it would be cleared each time.

    use probe::probe_lazy;

    use super::Elements;

    /// Fires `crypto_auditing:new_context_with_data`: the operation `context` begins within `parent`.
    /// `describe` returns both, and is called only if somebody looks, as in all of these functions.
    #[inline(never)]
    pub fn new_context_with_data(describe: &mut dyn FnMut(&mut Elements) -> [u64; 2]) {
        let mut made;
        let context;
        probe_lazy!(
            crypto_auditing,
            new_context_with_data,
            {
                made = Elements::default();
                context = describe(&mut made);
                context[0]
            },
            context[1],
            made.elements.as_ptr(),
            made.elements.len()
        );
    }

    /// Fires `crypto_auditing:data`: what came of an operation, which `describe` returns.
    #[inline(never)]
    pub fn data(describe: &mut dyn FnMut(&mut Elements) -> u64) {
        let mut made;
        probe_lazy!(
            crypto_auditing,
            data,
            {
                made = Elements::default();
                describe(&mut made)
            },
            made.elements.as_ptr(),
            made.elements.len()
        );
    }

    /// Fires `lsl:push`: outlet, number of the first sample, samples, bytes.
    #[inline(never)]
    pub fn push(arguments: &dyn Fn() -> [u64; 4]) {
        let made;
        probe_lazy!(
            lsl,
            push,
            {
                made = arguments();
                made[0]
            },
            made[1],
            made[2],
            made[3]
        );
    }

    /// Fires `lsl:send`: outlet, number of the first sample, samples, bytes, readers.
    #[inline(never)]
    pub fn send(arguments: &dyn Fn() -> [u64; 5]) {
        let made;
        probe_lazy!(
            lsl,
            send,
            {
                made = arguments();
                made[0]
            },
            made[1],
            made[2],
            made[3],
            made[4]
        );
    }

    /// Fires `lsl:pull`: inlet, number of the first sample, samples, bytes.
    #[inline(never)]
    pub fn pull(arguments: &dyn Fn() -> [u64; 4]) {
        let made;
        probe_lazy!(
            lsl,
            pull,
            {
                made = arguments();
                made[0]
            },
            made[1],
            made[2],
            made[3]
        );
    }
}

#[cfg(not(all(
    feature = "probes",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod sites {
    #![expect(missing_docs, reason = "as above, and nothing is done")]

    use super::Elements;

    #[inline]
    pub fn new_context_with_data(_: &mut dyn FnMut(&mut Elements) -> [u64; 2]) {}
    #[inline]
    pub fn data(_: &mut dyn FnMut(&mut Elements) -> u64) {}
    #[inline]
    pub fn push(_: &dyn Fn() -> [u64; 4]) {}
    #[inline]
    pub fn send(_: &dyn Fn() -> [u64; 5]) {}
    #[inline]
    pub fn pull(_: &dyn Fn() -> [u64; 4]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_cut_at_characters_and_at_fifteen() {
        let mut made = Elements::default();
        made.text("name", &"\u{e9}".repeat(40));
        made.word("lsl::code", 7);
        made.bytes("lsl::session_id", &[1; 16]);
        let sizes: Vec<_> = made.elements.iter().map(|it| it.size).collect();
        assert_eq!(sizes, [u64::MAX, u64::MAX - 1, 16]);
        assert_eq!(made.elements[1].value, 7);
        let text = made.kept[0].to_vec();
        assert_eq!(String::from_utf8(text).unwrap(), "\u{e9}".repeat(31) + "\0");
        assert_eq!(*made.kept[1], *b"name\0");
        assert_eq!(made.elements[0].value, made.kept[0].as_ptr().addr());
        (0..20).for_each(|number| made.word("lsl::more", number));
        assert_eq!(made.elements.len(), 15);
    }
}
