//! Evaluation of an expression tree against a document. Recursion follows the expression, never the
//! document; everything that loops spends from one budget. Spec: lsl-protocol §4, §15.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::ast::{Axis, Expr, Kind, Operator, Positions, Start, XPathStep};
use super::axis::Walk;
use super::functions;
use super::value::{Item, NodeSet, Order, Value, compare};
use super::{EvalError, Text, number};
use crate::xml::{Attribute, Document, NodeId, NodeKind};

/// Work that one evaluation may still do.
#[derive(Debug)]
pub(super) struct Budget {
    left: u64,
}

impl Budget {
    pub(super) fn new(work: u64) -> Self {
        Self { left: work }
    }

    pub(super) fn spend(&mut self, work: u64) -> Result<(), EvalError> {
        let left = self.left.checked_sub(work);
        self.left = left.unwrap_or(0);
        left.map(drop).ok_or(EvalError::TooExpensive)
    }

    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Pays for bytes before they are produced or searched.
    pub(super) fn spend_bytes(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.spend(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// Context of an expression: node, position and size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) item: Item,
    pub(super) position: usize,
    pub(super) size: usize,
}

/// Part of a node-set that its user looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Whether there is a node.
    Any,
    /// The first in document order.
    First,
    All,
}

/// One evaluation. Texts are borrowed from the document and the query where possible.
pub(super) struct Evaluator<'a> {
    pub(super) document: &'a Document,
    pub(super) budget: Budget,
    /// Rank of every node in document order, built when a set must be sorted.
    ranks: Option<HashMap<NodeId, u32>>,
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(document: &'a Document, budget: Budget) -> Self {
        Self {
            document,
            budget,
            ranks: None,
        }
    }

    pub(super) fn matches(&mut self, root: &'a Expr, context: NodeId) -> Result<bool, EvalError> {
        self.boolean(
            root,
            Frame {
                item: context.into(),
                position: 1,
                size: 1,
            },
        )
    }

    pub(super) fn boolean(&mut self, expr: &'a Expr, frame: Frame) -> Result<bool, EvalError> {
        match expr {
            Expr::Or(parts) => {
                for part in parts {
                    if self.boolean(part, frame)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Expr::And(parts) => {
                for part in parts {
                    if !self.boolean(part, frame)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ if expr.kind() == Kind::Nodes => {
                Ok(!self.nodes(expr, frame, Want::Any)?.items.is_empty())
            }
            _ => Ok(self.value(expr, frame)?.to_boolean()),
        }
    }

    pub(super) fn number(&mut self, expr: &'a Expr, frame: Frame) -> Result<f64, EvalError> {
        let value = self.value_of_first(expr, frame)?;
        value.into_number(self)
    }

    pub(super) fn text(&mut self, expr: &'a Expr, frame: Frame) -> Result<Text<'a>, EvalError> {
        let value = self.value_of_first(expr, frame)?;
        value.into_text(self)
    }

    /// Evaluates for a user who takes no more than the first node of a set.
    fn value_of_first(&mut self, expr: &'a Expr, frame: Frame) -> Result<Value<'a>, EvalError> {
        if expr.kind() == Kind::Nodes {
            return Ok(Value::Nodes(self.nodes(expr, frame, Want::First)?));
        }
        self.value(expr, frame)
    }

    pub(super) fn value(&mut self, expr: &'a Expr, frame: Frame) -> Result<Value<'a>, EvalError> {
        self.budget.spend(NODE_WORK)?;
        Ok(match expr {
            Expr::Or(_) | Expr::And(_) => Value::Boolean(self.boolean(expr, frame)?),
            Expr::Chain(first, rest) => {
                let mut left = self.value(first, frame)?;
                for (operator, right) in rest {
                    let right = self.value(right, frame)?;
                    left = self.apply(left, *operator, right)?;
                }
                left
            }
            Expr::Negate(operand) => Value::Number(-self.number(operand, frame)?),
            Expr::Literal(text) => Value::Text(Cow::Borrowed(text)),
            Expr::Number(value) => Value::Number(*value),
            Expr::Call(function, arguments) => functions::call(self, *function, arguments, frame)?,
            Expr::Union(_) | Expr::Filter(..) | Expr::Path(..) => {
                Value::Nodes(self.nodes(expr, frame, Want::All)?)
            }
        })
    }

    fn apply(
        &mut self,
        left: Value<'a>,
        operator: Operator,
        right: Value<'a>,
    ) -> Result<Value<'a>, EvalError> {
        let arithmetic: fn(f64, f64) -> f64 = match operator {
            Operator::Add => |left, right| left + right,
            Operator::Subtract => |left, right| left - right,
            Operator::Multiply => |left, right| left * right,
            Operator::Divide => |left, right| left / right,
            // The remainder has the sign of the dividend, as in C's fmod.
            Operator::Modulo => |left, right| left % right,
            _ => return Ok(Value::Boolean(compare(left, operator, right, self)?)),
        };
        let left = left.into_number(self)?;
        Ok(Value::Number(arithmetic(left, right.into_number(self)?)))
    }

    /// Evaluates an expression that the parser found to be a node-set.
    pub(super) fn nodes(
        &mut self,
        expr: &'a Expr,
        frame: Frame,
        want: Want,
    ) -> Result<NodeSet, EvalError> {
        self.budget.spend(NODE_WORK)?;
        match expr {
            Expr::Path(start, steps) => self.path(start, steps, frame, want),
            Expr::Union(parts) => self.union(parts, frame, want),
            Expr::Filter(base, predicates, positions) => {
                let mut set = self.nodes(base, frame, Want::All)?;
                if *positions == Positions::Counted {
                    self.sort(&mut set)?;
                }
                let once = stops_at_first(want, set.order);
                set.items = self.filter(set.items, predicates, once)?;
                Ok(set)
            }
            // Only `id()` is left: without a DTD no attribute is an id.
            _ => match self.value(expr, frame)? {
                Value::Nodes(set) => Ok(set),
                _ => Ok(NodeSet::empty()),
            },
        }
    }

    fn union(&mut self, parts: &'a [Expr], frame: Frame, want: Want) -> Result<NodeSet, EvalError> {
        let mut set = NodeSet {
            items: Vec::new(),
            order: Order::Unknown,
        };
        for part in parts {
            set.items.append(&mut self.nodes(part, frame, want)?.items);
            if want == Want::Any && !set.items.is_empty() {
                return Ok(set);
            }
        }
        self.remove_duplicates(&mut set)?;
        Ok(set)
    }

    fn path(
        &mut self,
        start: &'a Start,
        steps: &'a [XPathStep],
        frame: Frame,
        want: Want,
    ) -> Result<NodeSet, EvalError> {
        self.budget.spend(LIST_WORK)?;
        let mut set = match start {
            Start::Context => NodeSet::one(frame.item),
            Start::Root => NodeSet::one(self.document.root().into()),
            Start::Nodes(base) => self.nodes(base, frame, Want::All)?,
        };
        let mut steps = steps.iter().peekable();
        while let Some(step) = steps.next() {
            let want = if steps.peek().is_some() {
                Want::All
            } else {
                want
            };
            set = self.step(&set, step, want)?;
        }
        Ok(set)
    }

    fn step(
        &mut self,
        from: &NodeSet,
        step: &'a XPathStep,
        want: Want,
    ) -> Result<NodeSet, EvalError> {
        let several = from.items.len() > 1;
        let order = match step.axis {
            Axis::Itself => from.order,
            _ if several => Order::Unknown,
            axis if axis.is_reverse() => Order::ReverseDocument,
            _ => Order::Document,
        };
        let once = stops_at_first(want, order);
        let mut set = NodeSet {
            items: Vec::new(),
            order,
        };
        for &item in &from.items {
            self.budget.spend(LIST_WORK)?;
            let mut found = Vec::new();
            Walk {
                document: self.document,
                budget: &mut self.budget,
                test: &step.test,
                once: once && step.predicates.is_empty(),
                found: &mut found,
            }
            .run(step.axis, item)?;
            set.items
                .append(&mut self.filter(found, &step.predicates, once)?);
            if once && !set.items.is_empty() {
                break;
            }
        }
        if several && step.axis.can_overlap() {
            self.remove_duplicates(&mut set)?;
        }
        Ok(set)
    }

    /// Applies predicates one after the other; positions count along `items`.
    fn filter(
        &mut self,
        items: Vec<Item>,
        predicates: &'a [Expr],
        once: bool,
    ) -> Result<Vec<Item>, EvalError> {
        let mut items = items;
        let mut predicates = predicates.iter().peekable();
        while let Some(predicate) = predicates.next() {
            let once = once && predicates.peek().is_none();
            self.budget.spend(LIST_WORK)?;
            let size = items.len();
            let mut kept = Vec::new();
            for (position, item) in (1..).zip(items) {
                if self.keeps(
                    predicate,
                    Frame {
                        item,
                        position,
                        size,
                    },
                )? {
                    kept.push(item);
                    if once {
                        break;
                    }
                }
            }
            items = kept;
        }
        Ok(items)
    }

    #[expect(clippy::float_cmp, reason = "XPath compares numbers exactly")]
    fn keeps(&mut self, predicate: &'a Expr, frame: Frame) -> Result<bool, EvalError> {
        if predicate.kind() == Kind::Number {
            return Ok(self.number(predicate, frame)? == number::from_count(frame.position));
        }
        self.boolean(predicate, frame)
    }

    /// Returns the first node of a set in document order.
    pub(super) fn first(&mut self, set: &NodeSet) -> Result<Option<Item>, EvalError> {
        Ok(match (set.order, set.items.as_slice()) {
            (_, []) => None,
            (Order::Document, [first, ..]) => Some(*first),
            (Order::ReverseDocument, [.., last]) => Some(*last),
            (Order::Unknown, [only]) => Some(*only),
            (Order::Unknown, items) => {
                self.budget
                    .spend_bytes(items.len().saturating_mul(SORT_WORK))?;
                let ranks = self.ranks()?;
                items.iter().copied().min_by_key(|item| rank(ranks, *item))
            }
        })
    }

    fn sort(&mut self, set: &mut NodeSet) -> Result<(), EvalError> {
        match set.order {
            Order::Document => {}
            Order::ReverseDocument => set.items.reverse(),
            Order::Unknown => {
                self.budget
                    .spend_bytes(set.items.len().saturating_mul(SORT_WORK))?;
                let ranks = self.ranks()?;
                set.items.sort_by_cached_key(|item| rank(ranks, *item));
            }
        }
        set.order = Order::Document;
        Ok(())
    }

    fn remove_duplicates(&mut self, set: &mut NodeSet) -> Result<(), EvalError> {
        self.budget.spend(LIST_WORK)?;
        self.budget
            .spend_bytes(set.items.len().saturating_mul(SORT_WORK))?;
        let mut seen = HashSet::with_capacity(set.items.len());
        set.items.retain(|item| seen.insert(*item));
        Ok(())
    }

    fn ranks(&mut self) -> Result<&HashMap<NodeId, u32>, EvalError> {
        if self.ranks.is_none() {
            self.budget
                .spend_bytes(self.document.len().saturating_mul(SORT_WORK))?;
            let mut below = vec![self.document.root()];
            let mut ranks = HashMap::with_capacity(self.document.len());
            for rank in 0.. {
                let Some(node) = below.pop() else { break };
                ranks.insert(node, rank);
                below.extend(self.document.next_sibling(node));
                below.extend(self.document.first_child(node));
            }
            self.ranks = Some(ranks);
        }
        Ok(self.ranks.get_or_insert_default())
    }

    pub(super) fn attribute(&self, item: Item) -> Option<&'a Attribute> {
        self.document
            .attributes(item.node)
            .get(usize::try_from(item.attribute?).ok()?)
    }

    /// Returns the text of a node and all its descendants, or the value of an attribute.
    pub(super) fn string_value(&mut self, item: Item) -> Result<Text<'a>, EvalError> {
        let document = self.document;
        if let Some(attribute) = self.attribute(item) {
            self.budget.spend(NODE_WORK)?;
            return Ok(Cow::Borrowed(&attribute.value));
        }
        if matches!(
            document.kind(item.node),
            Some(NodeKind::Text | NodeKind::CData)
        ) {
            self.budget.spend(NODE_WORK)?;
            return Ok(Cow::Borrowed(document.text(item.node)));
        }
        self.budget.spend(LIST_WORK)?;
        let mut texts = Vec::new();
        Walk {
            document,
            budget: &mut self.budget,
            test: &super::ast::NodeTest::Text,
            once: false,
            found: &mut texts,
        }
        .run(Axis::Descendant, item)?;
        match texts.as_slice() {
            [] => Ok(Cow::Borrowed(b"")),
            [only] => Ok(Cow::Borrowed(document.text(only.node))),
            several => {
                let mut joined = Vec::new();
                for text in several {
                    let text = document.text(text.node);
                    self.budget.spend_bytes(text.len())?;
                    joined.extend_from_slice(text);
                }
                Ok(Cow::Owned(joined))
            }
        }
    }

    /// Parses the string value of a node as a number.
    pub(super) fn number_of(&mut self, item: Item) -> Result<f64, EvalError> {
        let text = self.string_value(item)?;
        self.number_of_text(&text)
    }

    pub(super) fn number_of_text(&mut self, text: &[u8]) -> Result<f64, EvalError> {
        self.budget.spend(LIST_WORK)?;
        self.budget.spend_bytes(text.len())?;
        Ok(number::parse(text))
    }
}

/// Returns whether the first node found is enough for the user of the set.
fn stops_at_first(want: Want, order: Order) -> bool {
    match want {
        Want::Any => true,
        Want::First => order == Order::Document,
        Want::All => false,
    }
}

/// Returns the rank in document order: attributes come after their element and before its children.
fn rank(ranks: &HashMap<NodeId, u32>, item: Item) -> (u32, u32) {
    let node = ranks.get(&item.node).copied().unwrap_or(u32::MAX);
    (
        node,
        item.attribute.map_or(0, |index| index.saturating_add(1)),
    )
}

/// Price of visiting a node or an expression, in units of one byte of text.
pub(super) const NODE_WORK: u64 = 8;

/// Price of making a list or a text, and of the little that is done with it.
pub(super) const LIST_WORK: u64 = 16;

/// Price per node of hashing or sorting.
const SORT_WORK: usize = 24;
