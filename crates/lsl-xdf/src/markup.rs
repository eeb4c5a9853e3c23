//! XML for strict readers. The XML of LSL is freer than XML 1.0: element names with blanks, control
//! characters, bytes that are no UTF-8. One such header makes pyxdf refuse the whole file. So XML is
//! cleaned when written, and judged when read.

use std::collections::HashSet;
use std::fmt::Write as _;

use lsl_proto::xml::{Document, Limits, NodeId, NodeKind, Parsed, parse_with};

/// Longest XML that is read or written, in bytes.
pub const MAX_XML_BYTES: usize = 16 << 20;

/// Largest depth of elements; readers walk them by recursion.
pub const MAX_XML_DEPTH: usize = 200;

/// Most attributes of one element that are written; headers come from the network.
const MAX_ATTRIBUTES: usize = 1000;

const LIMITS: Limits = Limits {
    bytes: MAX_XML_BYTES,
    depth: MAX_XML_DEPTH,
    nodes: 1 << 19,
};

/// Reads leniently, within the limits.
pub(crate) fn read(text: &[u8]) -> Result<Parsed, String> {
    parse_with(text, &LIMITS).map_err(|error| error.to_string())
}

/// Returns the first fault for which a strict reader refuses the text. May find fault where there is none
/// (an `&` in a comment), because then the text is only written anew.
pub(crate) fn flaw(text: &[u8], parsed: &Parsed) -> Option<&'static str> {
    if let Some(fault) = &parsed.fault {
        return Some(fault.reason);
    }
    let Ok(text) = std::str::from_utf8(text) else {
        return Some("it is not UTF-8");
    };
    if text.chars().any(|c| !is_allowed(c)) {
        return Some("it holds control characters");
    }
    if text.split('&').skip(1).any(|after| !begins_entity(after)) {
        return Some("it holds an & that begins no entity");
    }
    let document = &parsed.document;
    let mut roots = document
        .children(document.root())
        .filter(|&id| document.kind(id) == Some(NodeKind::Element));
    if roots.next().is_none() {
        return Some("it has no element");
    }
    if roots.next().is_some() {
        return Some("it has more than one outermost element");
    }
    let mut stack = vec![document.root()];
    while let Some(id) = stack.pop() {
        stack.extend(document.children(id));
        if document.kind(id) != Some(NodeKind::Element) {
            continue;
        }
        let attributes = document.attributes(id).iter().map(|a| &a.name[..]);
        if std::iter::once(document.name(id))
            .chain(attributes)
            .any(|name| clean_name(name).as_bytes() != name)
        {
            return Some("a name is not one of XML");
        }
    }
    None
}

/// Returns whether XML 1.0 allows this character.
fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{FFFD}' | '\u{10000}'..)
}

fn begins_entity(text: &str) -> bool {
    let Some((name, _)) = text.split_once(';') else {
        return false;
    };
    let code = name.strip_prefix('#').map(|digits| {
        match digits.strip_prefix('x') {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => digits.parse(),
        }
        .ok()
        .and_then(char::from_u32)
    });
    match code {
        Some(code) => code.is_some_and(is_allowed),
        None => matches!(name, "amp" | "lt" | "gt" | "quot" | "apos"),
    }
}

/// Returns whether every reader accepts this first character of a name. XML 1.0 allows nearly all letters
/// since its fifth edition; pyxdf reads with expat, which knows the fourth. These are the letters of both.
fn begins_name(c: char) -> bool {
    matches!(c,
        '_' | 'a'..='z' | 'A'..='Z'
        // Latin
        | '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{131}' | '\u{134}'..='\u{13E}'
        | '\u{141}'..='\u{148}' | '\u{14A}'..='\u{17E}'
        // Greek, Cyrillic, Hebrew, Arabic
        | '\u{38E}'..='\u{3A1}' | '\u{3A3}'..='\u{3CE}' | '\u{401}'..='\u{40C}' | '\u{40E}'..='\u{44F}'
        | '\u{451}'..='\u{45C}' | '\u{45E}'..='\u{481}' | '\u{5D0}'..='\u{5EA}'
        | '\u{621}'..='\u{63A}' | '\u{641}'..='\u{64A}'
        // Devanagari, Thai, Kana, Han, Hangul
        | '\u{905}'..='\u{939}' | '\u{E01}'..='\u{E2E}' | '\u{3041}'..='\u{3094}'
        | '\u{30A1}'..='\u{30FA}' | '\u{4E00}'..='\u{9FA5}' | '\u{AC00}'..='\u{D7A3}')
}

/// Returns a name without name space that every reader accepts.
fn clean_name(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let mut clean = String::with_capacity(name.len());
    for c in name.chars() {
        let may_begin = begins_name(c);
        if clean.is_empty() && !may_begin {
            clean.push('_');
            // A digit may follow, so that `1st` stays legible.
        }
        let may_follow = may_begin || c.is_ascii_digit() || matches!(c, '-' | '.');
        if may_follow {
            clean.push(c);
        } else if !clean.ends_with('_') || clean.len() > 1 {
            clean.push('_');
        }
    }
    if clean.is_empty() {
        clean.push('_');
    }
    clean
}

/// Writes a document for strict readers. Names are made valid; control characters and bytes that are no
/// UTF-8 become U+FFFD; attributes of name spaces and too deep elements are left out. `None` if that is
/// longer than [`MAX_XML_BYTES`].
pub(crate) fn write(document: &Document) -> Option<Vec<u8>> {
    let mut out = String::from("<?xml version=\"1.0\"?>\n");
    let top = document
        .children(document.root())
        .find(|&id| document.kind(id) == Some(NodeKind::Element));
    match top {
        Some(top) => write_element(document, top, 1, &mut out)?,
        None => out.push_str("<info />"),
    }
    out.push('\n');
    (out.len() <= MAX_XML_BYTES).then(|| out.into_bytes())
}

/// Writes an element by recursion, whose depth is limited.
fn write_element(document: &Document, id: NodeId, depth: usize, out: &mut String) -> Option<()> {
    if out.len() > MAX_XML_BYTES {
        return None;
    }
    let name = clean_name(document.name(id));
    out.push('<');
    out.push_str(&name);
    let mut seen = HashSet::new();
    for attribute in document.attributes(id).iter().take(MAX_ATTRIBUTES) {
        let name = clean_name(&attribute.name);
        if attribute.name.starts_with(b"xmlns") || seen.contains(&name) {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = write!(out, " {name}=\"");
        write_text(&attribute.value, out);
        out.push('"');
        seen.insert(name);
    }
    if document.first_child(id).is_none() || depth > MAX_XML_DEPTH {
        out.push_str(" />");
        return Some(());
    }
    out.push('>');
    for child in document.children(id) {
        match document.kind(child) {
            Some(NodeKind::Text | NodeKind::CData) => write_text(document.text(child), out),
            Some(NodeKind::Element) if depth < MAX_XML_DEPTH => {
                write_element(document, child, depth + 1, out)?;
            }
            _ => {}
        }
    }
    out.push_str("</");
    out.push_str(&name);
    out.push('>');
    Some(())
}

fn write_text(text: &[u8], out: &mut String) {
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // A reader would turn it into a line feed.
            '\r' => out.push_str("&#13;"),
            c if is_allowed(c) => out.push(c),
            _ => out.push(char::REPLACEMENT_CHARACTER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(text: &str) -> String {
        let parsed = read(text.as_bytes()).unwrap();
        String::from_utf8(write(&parsed.document).unwrap()).unwrap()
    }

    #[test]
    fn what_is_written_has_no_flaw() {
        for text in [
            "<info><name>a</name></info>",
            "<info><name>a\u{1}b&#2;</name></info>",
            "<info xmlns=\"x\" a=\"1\" a=\"2\"><eeg:ref>x &amp; y</eeg:ref></info>",
            "<info><a>1 & 2</a>",
            "<info><a></b></info>",
            "",
            "<info/><info/>",
        ] {
            let clean = cleaned(text);
            let parsed = read(clean.as_bytes()).unwrap();
            assert_eq!(flaw(clean.as_bytes(), &parsed), None, "{text} -> {clean}");
        }
    }

    #[test]
    fn flaws_are_found() {
        for text in [
            "<info><a>",
            "<info>\u{1}</info>",
            "<info>&#1;</info>",
            "<info>&nbsp;</info>",
            "<info/><info/>",
            "<a:b/>",
            "",
        ] {
            let parsed = read(text.as_bytes()).unwrap();
            assert!(flaw(text.as_bytes(), &parsed).is_some(), "{text}");
        }
        let text = b"<info>\xff</info>";
        assert!(flaw(text, &read(text).unwrap()).is_some());
    }

    #[test]
    fn names_become_legal_and_stay_legible() {
        for (name, expected) in [
            ("channel", "channel"),
            ("my channel", "my_channel"),
            ("1st", "_1st"),
            ("eeg:ref", "eeg_ref"),
            ("", "_"),
            (":anonymous", "_anonymous"),
            ("naïve", "naïve"),
            ("漢字", "漢字"),
            ("канал 1", "канал_1"),
            ("チャンネル", "チャンネル"),
            ("😀x", "_x"),
            ("a<b", "a_b"),
        ] {
            assert_eq!(clean_name(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn depth_and_length_are_limited() {
        let mut document = Document::new();
        let mut id = document.append_element(document.root(), "info").unwrap();
        for _ in 0..10_000 {
            id = document.append_element(id, "a").unwrap();
        }
        let text = write(&document).unwrap();
        assert!(text.len() < 10 * MAX_XML_DEPTH);
        assert_eq!(flaw(&text, &read(&text).unwrap()), None);
        let top = document.root();
        document.append_text(
            document.child(top, "info").unwrap(),
            vec![b'x'; MAX_XML_BYTES],
        );
        assert_eq!(write(&document), None);
    }

    #[test]
    fn the_attributes_of_an_element_are_limited() {
        let mut text = "<info".to_owned();
        for n in 0..100_000 {
            let _ = write!(text, " a{n}=\"\"");
        }
        text.push_str(" a1=\"again\"/>");
        let clean = cleaned(&text);
        assert_eq!(clean.matches('=').count(), 1 + MAX_ATTRIBUTES);
        assert!(!clean.contains("again"));
    }
}
