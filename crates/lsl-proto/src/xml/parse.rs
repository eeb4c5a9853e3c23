//! Lenient parser with the behaviour LSL peers rely on (pugixml's defaults), under caps that bound
//! time and memory. Broken markup is no error: everything before the fault is the document, because
//! liblsl itself puts broken markup on the wire and reads it this way. Spec: lsl-protocol §2.3;
//! vectors fullinfo-rich-desc, streaminfo-from-xml.

use super::{Attribute, Document, NodeId};

/// Limits on the cost of a document. The defaults hold far more than any real stream info.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest accepted input, in bytes.
    pub bytes: usize,
    /// Deepest nesting, in open elements.
    pub depth: usize,
    /// Elements, texts and attributes together; each costs about 150 bytes besides its text.
    pub nodes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 16 << 20,
            depth: 256,
            nodes: 1 << 19,
        }
    }
}

/// Reason for which a document was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The text is longer than [`Limits::bytes`].
    #[error("XML document longer than {0} bytes")]
    TooLong(usize),
    /// The elements are nested deeper than [`Limits::depth`].
    #[error("XML document nested deeper than {0} elements")]
    TooDeep(usize),
    /// The document has more nodes than [`Limits::nodes`].
    #[error("XML document with more than {0} nodes")]
    TooManyNodes(usize),
}

/// Fault at which reading stopped before the end of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Bytes read before the fault was noticed.
    pub offset: usize,
    /// Description of the mistake, in words.
    pub reason: &'static str,
}

/// Result of parsing: the document, and the fault that cut it short.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// Everything that was read; elements still open at a fault are closed there.
    pub document: Document,
    /// Fault that ended the reading early; `None` if the markup is sound.
    pub fault: Option<Fault>,
}

/// Parses under the default limits. Decodes entities, and reads CR LF and CR as LF. Keeps CDATA
/// sections as such; drops comments, processing instructions, the document type and texts of white
/// space alone. A NUL byte ends the text.
///
/// # Errors
/// Only when a limit is exceeded; broken markup gives the document up to there.
pub fn parse(text: &[u8]) -> Result<Document, ParseError> {
    parse_with(text, &Limits::default()).map(|parsed| parsed.document)
}

/// Parses under limits of the caller's choice and reports broken markup.
///
/// # Errors
/// When a limit is exceeded.
pub fn parse_with(text: &[u8], limits: &Limits) -> Result<Parsed, ParseError> {
    if text.len() > limits.bytes {
        return Err(ParseError::TooLong(limits.bytes));
    }
    let text = until_nul(text);
    let document = Document::new();
    let mut parser = Parser {
        rest: text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text),
        cursor: document.root(),
        document,
        depth: 0,
        nodes: 0,
        limits: *limits,
    };
    let fault = match parser.run() {
        Ok(()) => None,
        Err(Stop::Limit(error)) => return Err(error),
        Err(Stop::Fault(reason)) => Some(Fault {
            offset: text.len() - parser.rest.len(),
            reason,
        }),
    };
    Ok(Parsed {
        document: parser.document,
        fault,
    })
}

/// Cuts a text at its first NUL, since it is a C string to every peer.
pub(super) fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

enum Stop {
    Limit(ParseError),
    Fault(&'static str),
}

type Step<T = ()> = Result<T, Stop>;

fn fault<T>(reason: &'static str) -> Step<T> {
    Err(Stop::Fault(reason))
}

struct Parser<'a> {
    rest: &'a [u8],
    document: Document,
    /// The innermost open element, or the root.
    cursor: NodeId,
    depth: usize,
    nodes: usize,
    limits: Limits,
}

impl<'a> Parser<'a> {
    fn run(&mut self) -> Step {
        loop {
            self.text()?;
            if !self.eat(b"<") {
                break;
            }
            match self.rest.first() {
                Some(b'/') => self.end_tag()?,
                Some(b'?') => self.instruction()?,
                Some(b'!') => self.exclamation()?,
                Some(&byte) if starts_name(byte) => self.start_tag()?,
                _ => return fault("'<' that begins no tag"),
            }
        }
        if self.depth > 0 {
            fault("element without an end")
        } else {
            Ok(())
        }
    }

    /// Reads up to the next tag or the end.
    fn text(&mut self) -> Step {
        let raw = self.take_while(|byte| byte != b'<');
        // Outside the document element no text counts.
        if self.depth == 0 || raw.iter().copied().all(is_space) {
            return Ok(());
        }
        self.count()?;
        let added = self
            .document
            .append_text(self.cursor, decode(raw, Context::Text));
        added.map(drop).ok_or_else(|| self.full())
    }

    fn start_tag(&mut self) -> Step {
        let name = self.take_while(in_name);
        self.count()?;
        let added = self.document.append_element(self.cursor, name);
        let element = added.ok_or_else(|| self.full())?;
        match self.next() {
            Some(b'>') => self.open(element),
            Some(b'/') if self.eat(b">") => Ok(()),
            Some(byte) if is_space(byte) => self.attributes(element),
            _ => fault("broken start tag"),
        }
    }

    fn open(&mut self, element: NodeId) -> Step {
        if self.depth >= self.limits.depth {
            return Err(Stop::Limit(ParseError::TooDeep(self.limits.depth)));
        }
        self.depth += 1;
        self.cursor = element;
        Ok(())
    }

    fn attributes(&mut self, element: NodeId) -> Step {
        loop {
            self.skip_space();
            if self.eat(b">") {
                return self.open(element);
            }
            if self.eat(b"/>") {
                return Ok(());
            }
            if !self.rest.first().copied().is_some_and(starts_name) {
                return fault("broken start tag");
            }
            self.count()?;
            let name = self.take_while(in_name).to_vec();
            // The attribute stays even if its value is broken, as in liblsl.
            let (value, outcome) = self.attribute_value();
            self.document
                .append_attribute(element, Attribute { name, value });
            outcome?;
        }
    }

    fn attribute_value(&mut self) -> (Vec<u8>, Step) {
        self.skip_space();
        if !self.eat(b"=") {
            return (Vec::new(), fault("attribute without a value"));
        }
        self.skip_space();
        let Some(&quote @ (b'"' | b'\'')) = self.rest.first() else {
            return (Vec::new(), fault("attribute value without quotes"));
        };
        self.next();
        let value = decode(self.take_while(|byte| byte != quote), Context::Attribute);
        let outcome = if self.next().is_none() {
            fault("attribute value without an end")
        } else if self.rest.first().copied().is_some_and(starts_name) {
            fault("attributes that touch")
        } else {
            Ok(())
        };
        (value, outcome)
    }

    fn end_tag(&mut self) -> Step {
        self.next();
        let name = self.take_while(in_name);
        let parent = self.document.parent(self.cursor);
        match parent {
            Some(parent) if self.document.name(self.cursor) == name => self.cursor = parent,
            _ => return fault("end tag that ends no element"),
        }
        self.depth = self.depth.saturating_sub(1);
        self.skip_space();
        if self.eat(b">") {
            Ok(())
        } else {
            fault("broken end tag")
        }
    }

    fn instruction(&mut self) -> Step {
        self.next();
        if !self.rest.first().copied().is_some_and(starts_name) {
            return fault("broken processing instruction");
        }
        self.take_past(b"?>").1
    }

    fn exclamation(&mut self) -> Step {
        if self.eat(b"!--") {
            self.take_past(b"-->").1
        } else if self.eat(b"![CDATA[") {
            self.count()?;
            let (raw, outcome) = self.take_past(b"]]>");
            let text = decode(raw, Context::CData);
            let added = self.document.append_cdata(self.cursor, text);
            added.map(drop).ok_or_else(|| self.full())?;
            outcome
        } else if self.depth == 0 && self.eat(b"!DOCTYPE") {
            self.document_type()
        } else {
            fault("unknown markup after '<!'")
        }
    }

    /// Skips to the `>` of the document type, over quoted strings, comments, instructions, ignore
    /// sections and declarations inside it.
    fn document_type(&mut self) -> Step {
        let mut open = 1_usize;
        while open > 0 {
            if self.eat(b"<!--") {
                self.take_past(b"-->").1?;
            } else if self.eat(b"<?") {
                self.take_past(b"?>").1?;
            } else if self.eat(b"<![") {
                self.ignore_section()?;
            } else if self.eat(b"<!") {
                open += 1;
            } else {
                match self.next() {
                    Some(b'>') => open -= 1,
                    Some(b'"') => self.take_past(b"\"").1?,
                    Some(b'\'') => self.take_past(b"'").1?,
                    Some(b'<') | None => return fault("broken document type"),
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    fn ignore_section(&mut self) -> Step {
        let mut open = 1_usize;
        while open > 0 {
            if self.eat(b"<![") {
                open += 1;
            } else if self.eat(b"]]>") {
                open -= 1;
            } else if self.next().is_none() {
                return fault("broken document type");
            }
        }
        Ok(())
    }

    fn count(&mut self) -> Step {
        self.nodes += 1;
        if self.nodes > self.limits.nodes {
            Err(self.full())
        } else {
            Ok(())
        }
    }

    fn full(&self) -> Stop {
        Stop::Limit(ParseError::TooManyNodes(self.limits.nodes))
    }

    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn eat(&mut self, token: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn skip_space(&mut self) {
        self.rest = skip_while(self.rest, is_space);
    }

    fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'a [u8] {
        let (taken, rest) = split_while(self.rest, wanted);
        self.rest = rest;
        taken
    }

    /// Takes the bytes before the token and skips the token; takes everything if there is none.
    fn take_past(&mut self, token: &[u8]) -> (&'a [u8], Step) {
        let at = self
            .rest
            .windows(token.len())
            .position(|window| window == token);
        let (taken, rest) = self.rest.split_at(at.unwrap_or(self.rest.len()));
        self.rest = rest;
        let ended = self.eat(token);
        (
            taken,
            if ended {
                Ok(())
            } else {
                fault("section without an end")
            },
        )
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Text,
    CData,
    Attribute,
}

/// Decodes line ends and entities as the context requires. Never longer than the input.
fn decode(raw: &[u8], context: Context) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    loop {
        let (plain, special) =
            split_while(rest, |byte| !matches!(byte, b'\r' | b'\n' | b'\t' | b'&'));
        out.extend_from_slice(plain);
        let Some((&byte, after)) = special.split_first() else {
            break;
        };
        rest = after;
        match byte {
            b'&' if context != Context::CData => match entity(after) {
                // A reference to NUL ends the text, as a NUL itself would.
                Some((0, _)) => break,
                Some((code, after)) => {
                    push_code(&mut out, code);
                    rest = after;
                }
                None => out.push(b'&'),
            },
            b'\r' => {
                out.push(if context == Context::Attribute {
                    b' '
                } else {
                    b'\n'
                });
                rest = after.strip_prefix(b"\n").unwrap_or(after);
            }
            b'\n' | b'\t' if context == Context::Attribute => out.push(b' '),
            _ => out.push(byte),
        }
    }
    out
}

/// Returns the character a reference names and the text after it; `None` if this is no known reference.
fn entity(after_ampersand: &[u8]) -> Option<(u32, &[u8])> {
    const NAMED: [(&[u8], char); 5] = [
        (b"amp;", '&'),
        (b"lt;", '<'),
        (b"gt;", '>'),
        (b"quot;", '"'),
        (b"apos;", '\''),
    ];
    for (name, character) in NAMED {
        if let Some(rest) = after_ampersand.strip_prefix(name) {
            return Some((u32::from(character), rest));
        }
    }
    let number = after_ampersand.strip_prefix(b"#")?;
    let (radix, number) = match number.strip_prefix(b"x") {
        Some(number) => (16, number),
        None => (10, number),
    };
    let (digits, rest) = split_while(number, |byte| char::from(byte).is_digit(radix));
    if digits.is_empty() {
        return None;
    }
    // Overflow wraps, as in liblsl's parser: only agreement matters.
    let code = digits.iter().fold(0_u32, |code, &digit| {
        code.wrapping_mul(radix)
            .wrapping_add(char::from(digit).to_digit(radix).unwrap_or(0))
    });
    Some((code, rest.strip_prefix(b";")?))
}

/// Encodes as UTF-8 without its rules: surrogates and numbers beyond Unicode are encoded all the same.
fn push_code(out: &mut Vec<u8>, code: u32) {
    let low = |value: u32| value.to_le_bytes()[0];
    let tail = |shift: u32| low(0x80 | ((code >> shift) & 0x3f));
    match code {
        0..0x80 => out.push(low(code)),
        0x80..0x800 => out.extend([low(0xc0 | (code >> 6)), tail(0)]),
        0x800..0x1_0000 => out.extend([low(0xe0 | (code >> 12)), tail(6), tail(0)]),
        _ => out.extend([low(0xf0 | (code >> 18)), tail(12), tail(6), tail(0)]),
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn starts_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b':') || byte >= 0x80
}

fn in_name(byte: u8) -> bool {
    starts_name(byte) || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
}

fn split_while(text: &[u8], wanted: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let at = text
        .iter()
        .position(|&byte| !wanted(byte))
        .unwrap_or(text.len());
    text.split_at(at)
}

fn skip_while(text: &[u8], unwanted: impl Fn(u8) -> bool) -> &[u8] {
    split_while(text, unwanted).1
}
