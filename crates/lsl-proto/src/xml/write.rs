//! The writer: liblsl's layout, byte for byte. Spec: lsl-protocol §2.2, c-abi §5.3.

use std::io::Write as _;

use super::parse::until_nul;
use super::{Document, NodeId, NodeKind};

impl Document {
    /// Writes the whole document with its declaration: one tab per level, LF line ends, a final line end.
    /// Element names are written verbatim, whatever they contain; an empty name is `:anonymous`.
    /// Names and texts end at their first NUL.
    pub fn write(&self) -> Vec<u8> {
        let mut out = b"<?xml version=\"1.0\"?>\n".to_vec();
        self.write_below(&mut out, self.root());
        out
    }

    /// Writes one node with all its descendants, laid out as if it were a document of its own but
    /// without a declaration. Empty for an id that names nothing.
    pub fn write_node(&self, id: NodeId) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_below(&mut out, id);
        out
    }

    /// Walks by links, not by recursion: a tree made by the application may have any depth.
    fn write_below(&self, out: &mut Vec<u8>, top: NodeId) {
        // A text takes the line break and the indentation from whatever follows it.
        let mut layout = Layout::INDENT;
        let mut depth = 0_usize;
        let mut node = top;
        loop {
            let first = self.first_child(node);
            match self.kind(node) {
                None => return,
                Some(NodeKind::Text) => {
                    write_escaped(out, self.text(node), Escape::Text);
                    layout = Layout::INLINE;
                }
                Some(NodeKind::CData) => {
                    write_cdata(out, self.text(node));
                    layout = Layout::INLINE;
                }
                Some(NodeKind::Document) => layout = Layout::INDENT,
                Some(NodeKind::Element) => {
                    layout.apply(out, depth);
                    self.write_start(out, node);
                    out.extend_from_slice(if first.is_some() { b">" } else { b" />" });
                    layout = Layout::NEW_LINE;
                    depth += usize::from(first.is_some());
                }
            }
            if let Some(first) = first {
                node = first;
                continue;
            }
            // Go on to the next sibling, closing the elements that end here.
            while node != top {
                if let Some(next) = self.next_sibling(node) {
                    node = next;
                    break;
                }
                let Some(parent) = self.parent(node) else {
                    return;
                };
                node = parent;
                if self.kind(node) == Some(NodeKind::Element) {
                    depth = depth.saturating_sub(1);
                    layout.apply(out, depth);
                    out.extend_from_slice(b"</");
                    out.extend_from_slice(printed_name(self.name(node)));
                    out.push(b'>');
                    layout = Layout::NEW_LINE;
                }
            }
            if node == top {
                break;
            }
        }
        if layout.line {
            out.push(b'\n');
        }
    }

    fn write_start(&self, out: &mut Vec<u8>, element: NodeId) {
        out.push(b'<');
        out.extend_from_slice(printed_name(self.name(element)));
        for attribute in self.attributes(element) {
            out.push(b' ');
            out.extend_from_slice(printed_name(&attribute.name));
            out.extend_from_slice(b"=\"");
            write_escaped(out, &attribute.value, Escape::Attribute);
            out.push(b'"');
        }
    }
}

#[derive(Clone, Copy)]
struct Layout {
    line: bool,
    indent: bool,
}

impl Layout {
    const INLINE: Self = Self {
        line: false,
        indent: false,
    };
    const INDENT: Self = Self {
        line: false,
        indent: true,
    };
    const NEW_LINE: Self = Self {
        line: true,
        indent: true,
    };

    fn apply(self, out: &mut Vec<u8>, depth: usize) {
        if self.line {
            out.push(b'\n');
        }
        if self.indent {
            out.resize(out.len() + depth, b'\t');
        }
    }
}

fn printed_name(name: &[u8]) -> &[u8] {
    match until_nul(name) {
        b"" => b":anonymous",
        name => name,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Escape {
    Text,
    Attribute,
}

fn write_escaped(out: &mut Vec<u8>, text: &[u8], escape: Escape) {
    for &byte in until_nul(text) {
        match byte {
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' if escape == Escape::Text => out.extend_from_slice(b"&gt;"),
            b'"' if escape == Escape::Attribute => out.extend_from_slice(b"&quot;"),
            b'\t' | b'\n' | b'\r' if escape == Escape::Text => out.push(byte),
            0..0x20 => {
                // Writing to a vector cannot fail.
                let _ = write!(out, "&#{byte:02};");
            }
            _ => out.push(byte),
        }
    }
}

/// Writes a CDATA section, split in two where its end mark occurs: a section cannot hold its own.
fn write_cdata(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = until_nul(text);
    loop {
        let end = rest.windows(3).position(|window| window == b"]]>");
        let (section, after) = rest.split_at(end.map_or(rest.len(), |at| at + 2));
        out.extend_from_slice(b"<![CDATA[");
        out.extend_from_slice(section);
        out.extend_from_slice(b"]]>");
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
}
