//! The core function library: names, numbers of arguments, evaluation. Texts are bytes as in
//! pugixml, so `string-length('ä')` is 2. Spec: lsl-protocol §4.

use std::borrow::Cow;
use std::ops::Range;

use super::ast::{Expr, Kind};
use super::eval::{Budget, Evaluator, Frame, LIST_WORK, NODE_WORK, Want};
use super::lex::is_space;
use super::value::{Item, NodeSet, Value};
use super::{EvalError, Text, number};

/// Makes [`Function`] and the table of its names, numbers of arguments and types.
macro_rules! functions {
    ($($function:ident = $name:literal, $least:literal..=$most:expr, $kind:ident;)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Function {
            $($function,)+
        }

        /// Name, fewest and most arguments.
        const FUNCTIONS: &[(&str, usize, usize, Function)] = &[
            $(($name, $least, $most, Function::$function),)+
        ];

        impl Function {
            pub(super) fn kind(self) -> Kind {
                match self {
                    $(Self::$function => Kind::$kind,)+
                }
            }
        }
    };
}

functions! {
    Boolean = "boolean", 1..=1, Boolean;
    Ceiling = "ceiling", 1..=1, Number;
    Concat = "concat", 2..=usize::MAX, Text;
    Contains = "contains", 2..=2, Boolean;
    Count = "count", 1..=1, Number;
    False = "false", 0..=0, Boolean;
    Floor = "floor", 1..=1, Number;
    Id = "id", 1..=1, Nodes;
    Lang = "lang", 1..=1, Boolean;
    Last = "last", 0..=0, Number;
    LocalName = "local-name", 0..=1, Text;
    Name = "name", 0..=1, Text;
    NamespaceUri = "namespace-uri", 0..=1, Text;
    NormalizeSpace = "normalize-space", 0..=1, Text;
    Not = "not", 1..=1, Boolean;
    Number = "number", 0..=1, Number;
    Position = "position", 0..=0, Number;
    Round = "round", 1..=1, Number;
    StartsWith = "starts-with", 2..=2, Boolean;
    String = "string", 0..=1, Text;
    StringLength = "string-length", 0..=1, Number;
    Substring = "substring", 2..=3, Text;
    SubstringAfter = "substring-after", 2..=2, Text;
    SubstringBefore = "substring-before", 2..=2, Text;
    Sum = "sum", 1..=1, Number;
    Translate = "translate", 3..=3, Text;
    True = "true", 0..=0, Boolean;
}

impl Function {
    pub(super) fn find(name: &[u8], arguments: usize) -> Option<Self> {
        FUNCTIONS
            .iter()
            .find(|(known, least, most, _)| {
                known.as_bytes() == name && (*least..=*most).contains(&arguments)
            })
            .map(|&(.., function)| function)
    }

    pub(super) fn wants_nodes(self) -> bool {
        matches!(
            self,
            Self::Count | Self::Sum | Self::Name | Self::LocalName | Self::NamespaceUri
        )
    }
}

/// Calls a function. The parser checked the arity.
pub(super) fn call<'a>(
    evaluator: &mut Evaluator<'a>,
    function: Function,
    arguments: &'a [Expr],
    frame: Frame,
) -> Result<Value<'a>, EvalError> {
    match function.kind() {
        Kind::Boolean => boolean(evaluator, function, arguments, frame).map(Value::Boolean),
        Kind::Number => number_call(evaluator, function, arguments, frame).map(Value::Number),
        Kind::Text => text(evaluator, function, arguments, frame).map(Value::Text),
        Kind::Nodes => Ok(Value::Nodes(NodeSet::empty())),
    }
}

fn boolean<'a>(
    evaluator: &mut Evaluator<'a>,
    function: Function,
    arguments: &'a [Expr],
    frame: Frame,
) -> Result<bool, EvalError> {
    Ok(match (function, arguments) {
        (Function::True, _) => true,
        (Function::Boolean, [given]) => evaluator.boolean(given, frame)?,
        (Function::Not, [given]) => !evaluator.boolean(given, frame)?,
        (Function::StartsWith, [text, head]) => {
            let text = evaluator.text(text, frame)?;
            let head = evaluator.text(head, frame)?;
            evaluator.budget.spend_bytes(head.len())?;
            text.starts_with(&head)
        }
        (Function::Contains, [text, part]) => {
            let text = evaluator.text(text, frame)?;
            let part = evaluator.text(part, frame)?;
            find(&text, &part, &mut evaluator.budget)?.is_some()
        }
        (Function::Lang, [wanted]) => {
            let wanted = evaluator.text(wanted, frame)?;
            lang(evaluator, frame.item, &wanted)?
        }
        _ => false,
    })
}

fn number_call<'a>(
    evaluator: &mut Evaluator<'a>,
    function: Function,
    arguments: &'a [Expr],
    frame: Frame,
) -> Result<f64, EvalError> {
    Ok(match (function, arguments) {
        (Function::Last, _) => number::from_count(frame.size),
        (Function::Position, _) => number::from_count(frame.position),
        (Function::Count, [set]) => {
            number::from_count(evaluator.nodes(set, frame, Want::All)?.items.len())
        }
        (Function::Sum, [set]) => {
            let mut sum = 0.0;
            for item in evaluator.nodes(set, frame, Want::All)?.items {
                sum += evaluator.number_of(item)?;
            }
            sum
        }
        (Function::Number, []) => evaluator.number_of(frame.item)?,
        (Function::Number, [given]) => evaluator.number(given, frame)?,
        (Function::StringLength, arguments) => {
            let text = text_or_context(evaluator, arguments, frame)?;
            number::from_count(text.len())
        }
        (Function::Floor, [given]) => evaluator.number(given, frame)?.floor(),
        (Function::Ceiling, [given]) => evaluator.number(given, frame)?.ceil(),
        (Function::Round, [given]) => number::round(evaluator.number(given, frame)?),
        _ => f64::NAN,
    })
}

fn text<'a>(
    evaluator: &mut Evaluator<'a>,
    function: Function,
    arguments: &'a [Expr],
    frame: Frame,
) -> Result<Text<'a>, EvalError> {
    match (function, arguments) {
        (Function::String, arguments) => text_or_context(evaluator, arguments, frame),
        (Function::NormalizeSpace, arguments) => {
            let text = text_or_context(evaluator, arguments, frame)?;
            // Each byte is looked at and most are copied.
            evaluator.budget.spend(LIST_WORK)?;
            evaluator.budget.spend_bytes(text.len().saturating_mul(2))?;
            Ok(Cow::Owned(normalize_space(&text)))
        }
        (Function::Name | Function::LocalName | Function::NamespaceUri, arguments) => {
            let item = match arguments {
                [set] => {
                    let set = evaluator.nodes(set, frame, Want::First)?;
                    evaluator.first(&set)?
                }
                _ => Some(frame.item),
            };
            match item {
                Some(item) => name_part(evaluator, function, item),
                None => Ok(Cow::Borrowed(b"")),
            }
        }
        (Function::Concat, parts) => {
            evaluator.budget.spend(LIST_WORK)?;
            let mut joined = Vec::new();
            for part in parts {
                let part = evaluator.text(part, frame)?;
                evaluator.budget.spend_bytes(part.len())?;
                joined.extend_from_slice(&part);
            }
            Ok(Cow::Owned(joined))
        }
        (Function::SubstringBefore, [text, part]) => {
            let text = evaluator.text(text, frame)?;
            let part = evaluator.text(part, frame)?;
            let found = find(&text, &part, &mut evaluator.budget)?;
            slice(text, 0..found.unwrap_or(0), &mut evaluator.budget)
        }
        (Function::SubstringAfter, [text, part]) => {
            let text = evaluator.text(text, frame)?;
            let part = evaluator.text(part, frame)?;
            let found = find(&text, &part, &mut evaluator.budget)?;
            let from = found.map_or(text.len(), |found| found + part.len());
            let to = text.len();
            slice(text, from..to, &mut evaluator.budget)
        }
        (Function::Substring, [text, first, rest @ ..]) => {
            let text = evaluator.text(text, frame)?;
            let first = evaluator.number(first, frame)?;
            let count = match rest.first() {
                Some(count) => Some(evaluator.number(count, frame)?),
                None => None,
            };
            let range = substring(text.len(), first, count);
            slice(text, range, &mut evaluator.budget)
        }
        (Function::Translate, [text, from, to]) => {
            let text = evaluator.text(text, frame)?;
            let from = evaluator.text(from, frame)?;
            let to = evaluator.text(to, frame)?;
            evaluator.budget.spend(TRANSLATE_WORK)?;
            evaluator.budget.spend_bytes(text.len())?;
            evaluator.budget.spend_bytes(from.len())?;
            Ok(Cow::Owned(translate(&text, &from, &to)))
        }
        _ => Ok(Cow::Borrowed(b"")),
    }
}

/// Returns the text of the only argument, or of the context node without one.
fn text_or_context<'a>(
    evaluator: &mut Evaluator<'a>,
    arguments: &'a [Expr],
    frame: Frame,
) -> Result<Text<'a>, EvalError> {
    match arguments.first() {
        Some(given) => evaluator.text(given, frame),
        None => evaluator.string_value(frame.item),
    }
}

fn name_part<'a>(
    evaluator: &mut Evaluator<'a>,
    function: Function,
    item: Item,
) -> Result<Text<'a>, EvalError> {
    let document = evaluator.document;
    let name = match evaluator.attribute(item) {
        Some(attribute) => attribute.name.as_slice(),
        None => document.name(item.node),
    };
    evaluator.budget.spend_bytes(name.len())?;
    let colon = name.iter().position(|&byte| byte == b':');
    match function {
        Function::LocalName => {
            let from = colon.map_or(0, |at| at + 1);
            Ok(Cow::Borrowed(name.get(from..).unwrap_or_default()))
        }
        Function::NamespaceUri => {
            let prefix = colon.and_then(|at| name.get(..at));
            namespace_uri(evaluator, item, prefix)
        }
        _ => Ok(Cow::Borrowed(name)),
    }
}

/// Returns the value of the nearest declaration of the prefix. Attributes have no default namespace.
fn namespace_uri<'a>(
    evaluator: &mut Evaluator<'a>,
    item: Item,
    prefix: Option<&[u8]>,
) -> Result<Text<'a>, EvalError> {
    if prefix.is_none() && item.attribute.is_some() {
        return Ok(Cow::Borrowed(b""));
    }
    let document = evaluator.document;
    let mut at = Some(item.node);
    while let Some(node) = at {
        for attribute in document.attributes(node) {
            evaluator.budget.spend(NODE_WORK)?;
            let declared = attribute
                .name
                .strip_prefix(b"xmlns")
                .is_some_and(|rest| match prefix {
                    None => rest.is_empty(),
                    Some(prefix) => rest.strip_prefix(b":") == Some(prefix),
                });
            if declared {
                return Ok(Cow::Borrowed(&attribute.value));
            }
        }
        evaluator.budget.spend(NODE_WORK)?;
        at = document.parent(node);
    }
    Ok(Cow::Borrowed(b""))
}

/// Returns whether the nearest `xml:lang` is the wanted language or a dialect of it.
fn lang(evaluator: &mut Evaluator<'_>, item: Item, wanted: &[u8]) -> Result<bool, EvalError> {
    if item.attribute.is_some() {
        return Ok(false);
    }
    let document = evaluator.document;
    let mut at = Some(item.node);
    while let Some(node) = at {
        for attribute in document.attributes(node) {
            evaluator.budget.spend(NODE_WORK)?;
            if attribute.name == b"xml:lang" {
                evaluator.budget.spend_bytes(wanted.len())?;
                let Some((head, rest)) = attribute.value.split_at_checked(wanted.len()) else {
                    return Ok(false);
                };
                let dialect = matches!(rest.first(), None | Some(b'-'));
                return Ok(dialect && head.eq_ignore_ascii_case(wanted));
            }
        }
        evaluator.budget.spend(NODE_WORK)?;
        at = document.parent(node);
    }
    Ok(false)
}

/// Returns the offset of the first `part` in `text`. Pays for each byte compared, since repetitive
/// texts cost the product of the lengths.
fn find(text: &[u8], part: &[u8], budget: &mut Budget) -> Result<Option<usize>, EvalError> {
    if part.is_empty() {
        return Ok(Some(0));
    }
    budget.spend_bytes(text.len())?;
    for (at, window) in text.windows(part.len()).enumerate() {
        let common = window
            .iter()
            .zip(part)
            .take_while(|(left, right)| left == right)
            .count();
        budget.spend_bytes(common)?;
        if common == part.len() {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Returns a part of a text, borrowed if the text is.
fn slice<'a>(
    text: Text<'a>,
    range: Range<usize>,
    budget: &mut Budget,
) -> Result<Text<'a>, EvalError> {
    Ok(match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.get(range).unwrap_or_default()),
        Cow::Owned(text) => {
            let part = text.get(range).unwrap_or_default();
            budget.spend(LIST_WORK)?;
            budget.spend_bytes(part.len())?;
            Cow::Owned(part.to_vec())
        }
    })
}

/// Returns the range of `substring()`: both numbers round, the end is their sum, NaN selects nothing.
fn substring(len: usize, first: f64, count: Option<f64>) -> Range<usize> {
    let past_end = number::from_count(len) + 1.0;
    let first = number::round_half_up(first);
    let end = count.map_or(past_end, |count| first + number::round_half_up(count));
    if first.is_nan() || end.is_nan() || first >= past_end || first >= end || end < 1.0 {
        return 0..0;
    }
    let index = |position: f64| -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to a whole number from 1 to len + 1"
        )]
        let position = position.clamp(1.0, past_end) as usize;
        position - 1
    };
    index(first)..index(end)
}

fn normalize_space(text: &[u8]) -> Vec<u8> {
    let mut normal = Vec::with_capacity(text.len());
    for word in text
        .split(|&byte| is_space(byte))
        .filter(|word| !word.is_empty())
    {
        if !normal.is_empty() {
            normal.push(b' ');
        }
        normal.extend_from_slice(word);
    }
    normal
}

/// Replaces byte by byte; a byte of `from` without a counterpart in `to` is removed.
fn translate(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut table: [Option<u8>; 256] = std::array::from_fn(|byte| u8::try_from(byte).ok());
    // Of a byte named twice the first counts, hence backwards.
    for (at, &byte) in from.iter().enumerate().rev() {
        if let Some(entry) = table.get_mut(usize::from(byte)) {
            *entry = to.get(at).copied();
        }
    }
    text.iter()
        .filter_map(|&byte| table.get(usize::from(byte)).copied().flatten())
        .collect()
}

/// Price of the table by which `translate()` replaces bytes.
const TRANSLATE_WORK: u64 = 160;
