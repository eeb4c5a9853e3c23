//! Values of expressions and the sets of nodes they range over. A comparison over node-sets is
//! existential: some pair of values must satisfy it. Spec: lsl-protocol §4.

use std::borrow::Cow;

use super::ast::Operator;
use super::eval::{Evaluator, LIST_WORK, NODE_WORK};
use super::{EvalError, Text, number};
use crate::xml::NodeId;

/// A node, or one attribute of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) node: NodeId,
    /// Index into the node's attributes.
    pub(super) attribute: Option<u32>,
}

/// Set of different nodes, and its order if known.
#[derive(Debug)]
pub(super) struct NodeSet {
    pub(super) items: Vec<Item>,
    pub(super) order: Order,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Document,
    ReverseDocument,
    Unknown,
}

/// Value of an evaluated XPath expression.
#[derive(Debug)]
pub(super) enum Value<'a> {
    Boolean(bool),
    Number(f64),
    Text(Text<'a>),
    Nodes(NodeSet),
}

impl NodeSet {
    pub(super) fn one(item: Item) -> Self {
        Self {
            items: vec![item],
            order: Order::Document,
        }
    }

    pub(super) fn empty() -> Self {
        Self {
            items: Vec::new(),
            order: Order::Document,
        }
    }
}

impl From<NodeId> for Item {
    fn from(node: NodeId) -> Self {
        Self {
            node,
            attribute: None,
        }
    }
}

impl<'a> Value<'a> {
    pub(super) fn to_boolean(&self) -> bool {
        match self {
            Self::Boolean(value) => *value,
            Self::Number(value) => *value != 0.0 && !value.is_nan(),
            Self::Text(text) => !text.is_empty(),
            Self::Nodes(set) => !set.items.is_empty(),
        }
    }

    pub(super) fn into_number(self, evaluator: &mut Evaluator<'a>) -> Result<f64, EvalError> {
        match self {
            Self::Boolean(value) => Ok(f64::from(u8::from(value))),
            Self::Number(value) => Ok(value),
            value => {
                let text = value.into_text(evaluator)?;
                evaluator.number_of_text(&text)
            }
        }
    }

    /// Converts to text; a node-set gives the string value of its first node in document order.
    pub(super) fn into_text(self, evaluator: &mut Evaluator<'a>) -> Result<Text<'a>, EvalError> {
        Ok(match self {
            Self::Boolean(value) => {
                Cow::Borrowed(if value { b"true".as_slice() } else { b"false" })
            }
            Self::Number(value) => {
                evaluator.budget.spend(NUMBER_WORK)?;
                let text = number::write(value).into_bytes();
                evaluator.budget.spend_bytes(text.len())?;
                Cow::Owned(text)
            }
            Self::Text(text) => text,
            Self::Nodes(set) => match evaluator.first(&set)? {
                Some(item) => evaluator.string_value(item)?,
                None => Cow::Borrowed(b""),
            },
        })
    }

    /// Returns the numbers of all nodes of a set, or the one number of any other value.
    fn into_numbers(self, evaluator: &mut Evaluator<'a>) -> Result<Vec<f64>, EvalError> {
        match self {
            Self::Nodes(set) => set
                .items
                .iter()
                .map(|&item| evaluator.number_of(item))
                .collect(),
            value => Ok(vec![value.into_number(evaluator)?]),
        }
    }

    /// Returns the texts of all nodes of a set, or the one text of any other value.
    fn into_texts(self, evaluator: &mut Evaluator<'a>) -> Result<Vec<Text<'a>>, EvalError> {
        match self {
            Self::Nodes(set) => set
                .items
                .iter()
                .map(|&item| evaluator.string_value(item))
                .collect(),
            value => Ok(vec![value.into_text(evaluator)?]),
        }
    }
}

/// Evaluates `left operator right` for the six comparisons.
pub(super) fn compare<'a>(
    left: Value<'a>,
    operator: Operator,
    right: Value<'a>,
    evaluator: &mut Evaluator<'a>,
) -> Result<bool, EvalError> {
    let equality = matches!(operator, Operator::Equal | Operator::NotEqual);
    let either = |is: fn(&Value<'a>) -> bool| is(&left) || is(&right);
    if equality && either(|value| matches!(value, Value::Boolean(_))) {
        return Ok((left.to_boolean() == right.to_boolean()) == (operator == Operator::Equal));
    }
    evaluator.budget.spend(LIST_WORK)?;
    // XPath 1.0 would turn a node-set into a boolean before it is ordered against one; pugixml
    // compares the number of each node, and peers expect its answers.
    if !equality || either(|value| matches!(value, Value::Number(_))) {
        let left = left.into_numbers(evaluator)?;
        let right = right.into_numbers(evaluator)?;
        return compare_numbers(&left, operator, &right, evaluator);
    }
    let left = left.into_texts(evaluator)?;
    let right = right.into_texts(evaluator)?;
    for left in &left {
        for right in &right {
            evaluator.budget.spend(NODE_WORK)?;
            if left.len() == right.len() {
                evaluator.budget.spend_bytes(left.len())?;
            }
            if (left == right) == (operator == Operator::Equal) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[expect(clippy::float_cmp, reason = "XPath compares numbers exactly")]
fn compare_numbers(
    left: &[f64],
    operator: Operator,
    right: &[f64],
    evaluator: &mut Evaluator<'_>,
) -> Result<bool, EvalError> {
    for &left in left {
        for &right in right {
            evaluator.budget.spend(NODE_WORK)?;
            let holds = match operator {
                Operator::Less => left < right,
                Operator::LessOrEqual => left <= right,
                Operator::Greater => left > right,
                Operator::GreaterOrEqual => left >= right,
                Operator::NotEqual => left != right,
                _ => left == right,
            };
            if holds {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Price of writing a number, which takes several lists and a division of long numbers.
const NUMBER_WORK: u64 = 160;
