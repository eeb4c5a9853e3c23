//! Groups of events as crypto-auditing stores them: a sequence of CBOR items of definite lengths (RFC 8949).
//! Spec: audit §1.4.

use super::context::{Context, Data, Id};
use super::program::Program;

/// Appends the group that begins a file. Times of the others count from `boot_secs`, since 1970.
pub(super) fn put_head(boot_secs: i64, out: &mut Vec<u8>) {
    put_group(Id::default(), 0, 0, 2, out);
    put_data("version", &Data::Word(1), out);
    put_data("boot_time", &Data::Word(boot_secs), out);
}

/// Appends the group of a context within `parent`, without those of its steps.
pub(super) fn put_context(
    context: &Context,
    parent: Id,
    program: &Program,
    boot_secs: i64,
    out: &mut Vec<u8>,
) {
    let boot = boot_secs.saturating_mul(1_000_000_000);
    let since_boot = |at: i64| u64::try_from(at.saturating_sub(boot)).unwrap_or(0);
    let (start, end) = (since_boot(context.start), since_boot(context.end));
    put_group(context.id, start, end, context.data.len() + 2, out);
    put(MAP, 1, out);
    put_text("NewContext", out);
    put(MAP, 3, out);
    put_text("parent", out);
    put_bytes(&parent, out);
    put_text("origin", out);
    put_bytes(&program.origin, out);
    put_text("executable", out);
    put_text(&program.executable, out);
    put_data("name", &Data::Text(context.name.clone().into()), out);
    for (key, data) in &context.data {
        put_data(key, data, out);
    }
}

/// Appends a group up to its events.
fn put_group(id: Id, start: u64, end: u64, events: usize, out: &mut Vec<u8>) {
    put(MAP, 4, out);
    put_text("context", out);
    put_bytes(&id, out);
    put_text("start", out);
    put(WORD, start, out);
    put_text("end", out);
    put(WORD, end, out);
    put_text("events", out);
    put(ARRAY, events as u64, out);
}

fn put_data(key: &str, data: &Data, out: &mut Vec<u8>) {
    put(MAP, 1, out);
    put_text("Data", out);
    put(MAP, 2, out);
    put_text("key", out);
    put_text(key, out);
    put_text("value", out);
    match data {
        Data::Word(number) => match u64::try_from(*number) {
            Ok(number) => put(WORD, number, out),
            Err(_) => put(NEGATIVE, !number.cast_unsigned(), out),
        },
        Data::Text(text) => put_text(text, out),
        Data::Bytes(bytes) => put_bytes(bytes, out),
    }
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    put(TEXT, text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put(BYTES, bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends the head of an item, in the shortest form.
fn put(kind: u8, value: u64, out: &mut Vec<u8>) {
    let be = value.to_be_bytes();
    let (more, from) = match value {
        0..24 => return out.push(kind << 5 | be[7]),
        24..=0xff => (24, 7),
        0x100..=0xffff => (25, 6),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 0),
    };
    out.push(kind << 5 | more);
    out.extend_from_slice(be.get(from..).unwrap_or_default());
}

/// What the group of a line says of its place in the log, and any group of itself.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Group {
    pub(super) context: Id,
    pub(super) name: String,
    pub(super) chain: Option<String>,
    pub(super) seq: Option<u64>,
    pub(super) boot_secs: Option<i64>,
}

/// Takes the first group off `bytes`; `None` if they hold no whole one, or none of ours.
pub(super) fn take_group(bytes: &mut &[u8]) -> Option<Group> {
    let mut rest = *bytes;
    let mut group = Group::default();
    let four = take(&mut rest)? == (MAP, 4) && take_text(&mut rest)? == "context";
    let context = take_bytes(&mut rest).filter(|_| four)?;
    group.context = context.try_into().ok()?;
    for name in ["start", "end"] {
        let is_time = take_text(&mut rest)? == name && take(&mut rest)?.0 == WORD;
        is_time.then_some(())?;
    }
    let (kind, events) = Some(())
        .filter(|()| take_text(&mut rest) == Some("events"))
        .and_then(|()| take(&mut rest))?;
    (kind == ARRAY).then_some(())?;
    for _ in 0..events {
        (take(&mut rest)? == (MAP, 1)).then_some(())?;
        let (what, fields) = (take_text(&mut rest)?, take(&mut rest)?);
        (fields.0 == MAP).then_some(())?;
        let mut key = "";
        for _ in 0..fields.1 {
            let field = take_text(&mut rest)?;
            let value = take_value(&mut rest)?;
            match (what, field, value) {
                ("Data", "key", Taken::Text(text)) => key = text,
                ("Data", "value", value) => group.note(key, &value),
                _ => {}
            }
        }
    }
    *bytes = rest;
    Some(group)
}

enum Taken<'a> {
    Word(u64),
    Text(&'a str),
    Other,
}

impl Group {
    fn note(&mut self, key: &str, value: &Taken<'_>) {
        match (key, value) {
            ("name", Taken::Text(name)) => (*name).clone_into(&mut self.name),
            ("lsl::chain", Taken::Text(chain)) => self.chain = Some((*chain).to_owned()),
            ("lsl::seq", Taken::Word(seq)) => self.seq = Some(*seq),
            ("boot_time", Taken::Word(secs)) => self.boot_secs = i64::try_from(*secs).ok(),
            _ => {}
        }
    }
}

fn take_value<'a>(bytes: &mut &'a [u8]) -> Option<Taken<'a>> {
    let mut rest = *bytes;
    match take(&mut rest)? {
        (WORD, number) => {
            *bytes = rest;
            Some(Taken::Word(number))
        }
        (NEGATIVE, _) => {
            *bytes = rest;
            Some(Taken::Other)
        }
        (TEXT, _) => take_text(bytes).map(Taken::Text),
        _ => take_bytes(bytes).map(|_| Taken::Other),
    }
}

fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take_string(TEXT, bytes)?).ok()
}

fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    take_string(BYTES, bytes)
}

fn take_string<'a>(kind: u8, bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (found, len) = take(bytes)?;
    let (string, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
    *bytes = rest;
    (found == kind).then_some(string)
}

/// Takes the head of an item of definite length.
fn take(bytes: &mut &[u8]) -> Option<(u8, u64)> {
    let (first, mut rest) = bytes.split_first()?;
    let (kind, more) = (first >> 5, first & 31);
    let len = match more {
        0..24 => 0,
        24..=27 => 1_usize << (more - 24),
        _ => return None,
    };
    let mut value = u64::from(more);
    if len > 0 {
        let (number, after) = rest.split_at_checked(len)?;
        rest = after;
        value = number
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    }
    *bytes = rest;
    Some((kind, value))
}

const WORD: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;

#[cfg(test)]
mod tests {
    use ciborium::Value;
    use proptest::prelude::*;

    use super::super::context::{Data, hex, line};
    use super::*;

    fn group_of(line_json: &str) -> Vec<u8> {
        let context = line(&serde_json::from_str(line_json).unwrap());
        let mut out = Vec::new();
        let program = Program {
            origin: vec![1, 2],
            executable: "lsl".into(),
        };
        put_context(&context, [7; 16], &program, 1_700_000_000, &mut out);
        out
    }

    fn data() -> impl Strategy<Value = Data> {
        prop_oneof![
            any::<i64>().prop_map(Data::Word),
            ".{0,300}".prop_map(|text| Data::Text(text.into())),
            prop::collection::vec(any::<u8>(), 0..300).prop_map(Data::Bytes),
        ]
    }

    fn expected(data: &Data) -> Value {
        match data {
            Data::Word(number) => Value::Integer((*number).into()),
            Data::Text(text) => Value::Text(text.to_string()),
            Data::Bytes(bytes) => Value::Bytes(bytes.clone()),
        }
    }

    fn map(entries: Vec<(&str, Value)>) -> Value {
        let entries = entries.into_iter();
        Value::Map(entries.map(|(key, value)| (key.into(), value)).collect())
    }

    #[test]
    fn a_file_begins_with_its_version_and_the_boot_time() {
        let mut out = Vec::new();
        put_head(1_700_000_000, &mut out);
        let text = String::from_utf8_lossy(&out);
        assert!(text.contains("version") && text.contains("boot_time"));
        let expected = "a467636f6e74657874500000000000000000000000000000000065737461727400\
            63656e6400666576656e747382a16444617461a2636b65796776657273696f6e6576616c756501\
            a16444617461a2636b657969626f6f745f74696d656576616c75651a6553f100";
        assert_eq!(hex(&out), expected);
    }

    #[test]
    fn a_line_is_these_bytes() {
        let out = group_of(
            r#"{"ts":"2023-11-14T22:13:21.000000002Z","event":"key_update","chain":"c","seq":3}"#,
        );
        let id = hex(&out[10..26]);
        let expected = format!(
            "a467636f6e7465787450{id}6573746172741a3b9aca0263656e641a3b9aca02666576656e747385\
             a16a4e6577436f6e74657874a366706172656e745007070707070707070707070707070707\
             666f726967696e4201026a65786563757461626c65636c736c\
             a16444617461a2636b6579646e616d656576616c75656a6c736c3a3a72656b6579\
             a16444617461a2636b65796a6c736c3a3a636861696e6576616c75656163\
             a16444617461a2636b65796a6c736c3a3a6576656e746576616c75656a6b65795f757064617465\
             a16444617461a2636b6579686c736c3a3a7365716576616c756503"
        );
        assert_eq!(hex(&out), expected);
        let mut rest = &out[..];
        let group = take_group(&mut rest).unwrap();
        assert_eq!((group.chain.as_deref(), group.seq), (Some("c"), Some(3)));
        assert!(rest.is_empty());
    }

    proptest! {
        #[test]
        fn others_read_what_is_written(
            (id, parent) in any::<(Id, Id)>(),
            (start, took) in (1_700_000_000_000_000_000..i64::MAX / 2, 0..i64::MAX / 4),
            keys in prop::collection::vec((".{0,30}", data()), 0..30),
            name in ".{0,70}",
        ) {
            let keys: Vec<_> = keys.into_iter().map(|(key, data)| (key.into(), data)).collect();
            let end = start + took;
            let context = Context { id, name, start, end, data: keys, steps: Vec::new() };
            let program = Program { origin: id.to_vec(), executable: context.name.clone() };
            let mut out = Vec::new();
            put_context(&context, parent, &program, 1_700_000_000, &mut out);
            let mut read = &out[..];
            let value: Value = ciborium::from_reader(&mut read).unwrap();
            prop_assert!(read.is_empty());
            let since = |at: i64| Value::Integer((at - 1_700_000_000_000_000_000).into());
            let mut events = vec![map(vec![("NewContext", map(vec![
                ("parent", Value::Bytes(parent.to_vec())),
                ("origin", Value::Bytes(id.to_vec())),
                ("executable", Value::Text(context.name.clone())),
            ]))])];
            let name = ("name".into(), Data::Text(context.name.clone().into()));
            for (key, data) in std::iter::once(&name).chain(&context.data) {
                events.push(map(vec![("Data", map(vec![
                    ("key", Value::Text(key.to_string())),
                    ("value", expected(data)),
                ]))]));
            }
            prop_assert_eq!(&value, &map(vec![
                ("context", Value::Bytes(id.to_vec())),
                ("start", since(start)),
                ("end", since(end)),
                ("events", Value::Array(events)),
            ]));
            // In the only form that others write.
            let mut theirs = Vec::new();
            ciborium::into_writer(&value, &mut theirs).unwrap();
            prop_assert_eq!(&theirs, &out);
            let mut rest = &out[..];
            prop_assert_eq!(take_group(&mut rest).map(|it| it.context), Some(id));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>()) {
            let mut rest = &bytes[..];
            let _ = take_group(&mut rest);
            // Nor a whole group that is cut, or changed.
            let mut group = group_of(r#"{"event":"x","chain":"c","seq":3}"#);
            let at = at.index(group.len());
            let mut rest = &group[..at];
            prop_assert_eq!(take_group(&mut rest), None);
            group[at] ^= bytes.first().copied().unwrap_or(1);
            let _ = take_group(&mut &group[..]);
        }
    }
}
