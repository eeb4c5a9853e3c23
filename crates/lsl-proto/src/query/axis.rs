//! Walks along the axes. Each walk is a loop, so the depth of the document costs no stack, and every
//! node passed is paid for. Spec: lsl-protocol §4.

use std::ops::ControlFlow;

use super::EvalError;
use super::ast::{Axis, NodeTest};
use super::eval::{Budget, NODE_WORK};
use super::value::Item;
use crate::xml::{Document, NodeId, NodeKind};

/// Walk along one axis from one node.
pub(super) struct Walk<'a> {
    pub(super) document: &'a Document,
    pub(super) budget: &'a mut Budget,
    pub(super) test: &'a NodeTest,
    /// Stop at the first node that passes the test.
    pub(super) once: bool,
    pub(super) found: &'a mut Vec<Item>,
}

impl Walk<'_> {
    /// Appends the nodes of the axis that pass the test, in the order of the axis.
    pub(super) fn run(mut self, axis: Axis, from: Item) -> Result<(), EvalError> {
        match from.attribute {
            None => self.run_from_node(axis, from.node),
            Some(_) => self.run_from_attribute(axis, from),
        }
    }

    fn run_from_node(&mut self, axis: Axis, node: NodeId) -> Result<(), EvalError> {
        match axis {
            Axis::Itself => self.offer(node).map(drop),
            Axis::Parent => match self.document.parent(node) {
                Some(parent) => self.offer(parent).map(drop),
                None => Ok(()),
            },
            Axis::Child => self.chain(self.document.first_child(node), Document::next_sibling),
            Axis::FollowingSibling => {
                self.chain(self.document.next_sibling(node), Document::next_sibling)
            }
            Axis::PrecedingSibling => self.chain(
                self.document.previous_sibling(node),
                Document::previous_sibling,
            ),
            Axis::Ancestor => self.chain(self.document.parent(node), Document::parent),
            Axis::AncestorOrSelf => self.chain(Some(node), Document::parent),
            Axis::Descendant => {
                let first = self.document.first_child(node);
                self.preorder(first, Some(node))
            }
            Axis::DescendantOrSelf => self.preorder(Some(node), Some(node)),
            Axis::Following => {
                let first = self.after(node, None)?;
                self.preorder(first, None)
            }
            Axis::Preceding => self.preceding(node),
            Axis::Attribute => self.attributes(node),
            Axis::Namespace => Ok(()),
        }
    }

    /// Walks from an attribute. It has neither children nor siblings. The principal node type of
    /// every axis but its own is the element, so only `node()` selects it.
    fn run_from_attribute(&mut self, axis: Axis, attribute: Item) -> Result<(), EvalError> {
        let parent = attribute.node;
        match axis {
            Axis::Itself | Axis::DescendantOrSelf => self.offer_attribute(attribute).map(drop),
            Axis::Parent => self.offer(parent).map(drop),
            Axis::Ancestor => self.chain(Some(parent), Document::parent),
            Axis::AncestorOrSelf => match self.offer_attribute(attribute)? {
                ControlFlow::Break(()) => Ok(()),
                ControlFlow::Continue(()) => self.chain(Some(parent), Document::parent),
            },
            // Attributes stand between their element and its children.
            Axis::Following => {
                let first = match self.document.first_child(parent) {
                    Some(child) => Some(child),
                    None => self.after(parent, None)?,
                };
                self.preorder(first, None)
            }
            Axis::Preceding => self.preceding(parent),
            Axis::Attribute
            | Axis::Child
            | Axis::Descendant
            | Axis::FollowingSibling
            | Axis::PrecedingSibling
            | Axis::Namespace => Ok(()),
        }
    }

    /// Offers nodes that are linked one to the next.
    fn chain(
        &mut self,
        first: Option<NodeId>,
        next: fn(&Document, NodeId) -> Option<NodeId>,
    ) -> Result<(), EvalError> {
        let mut at = first;
        while let Some(node) = at {
            if self.offer(node)?.is_break() {
                break;
            }
            at = next(self.document, node);
        }
        Ok(())
    }

    /// Offers nodes in document order from `first` on, staying below `top` if there is one.
    fn preorder(&mut self, first: Option<NodeId>, top: Option<NodeId>) -> Result<(), EvalError> {
        let mut at = first;
        while let Some(node) = at {
            if self.offer(node)?.is_break() {
                break;
            }
            at = match self.document.first_child(node) {
                Some(child) => Some(child),
                None => self.after(node, top)?,
            };
        }
        Ok(())
    }

    /// Returns the node that follows `node` and all its descendants; `None` at the end of `top`.
    fn after(&mut self, node: NodeId, top: Option<NodeId>) -> Result<Option<NodeId>, EvalError> {
        let mut at = node;
        loop {
            self.budget.spend(1)?;
            if Some(at) == top {
                return Ok(None);
            }
            if let Some(next) = self.document.next_sibling(at) {
                return Ok(Some(next));
            }
            match self.document.parent(at) {
                Some(parent) => at = parent,
                None => return Ok(None),
            }
        }
    }

    /// Offers all nodes before `node` in reverse document order, without its ancestors.
    fn preceding(&mut self, node: NodeId) -> Result<(), EvalError> {
        let mut at = node;
        // The node itself, then the ancestor of it that was climbed to last.
        let mut lineage = node;
        loop {
            self.budget.spend(1)?;
            if let Some(previous) = self.document.previous_sibling(at) {
                at = previous;
                while let Some(child) = self.document.last_child(at) {
                    self.budget.spend(1)?;
                    at = child;
                }
            } else {
                let Some(parent) = self.document.parent(at) else {
                    return Ok(());
                };
                at = parent;
                if self.document.parent(lineage) == Some(parent) {
                    lineage = parent;
                    continue;
                }
            }
            if self.offer(at)?.is_break() {
                return Ok(());
            }
        }
    }

    fn attributes(&mut self, node: NodeId) -> Result<(), EvalError> {
        for (index, attribute) in (0_u32..).zip(self.document.attributes(node)) {
            self.budget.spend(NODE_WORK)?;
            let name = attribute.name.as_slice();
            let passes = match self.test {
                NodeTest::AnyName | NodeTest::Node => true,
                NodeTest::Name(wanted) => name == wanted,
                NodeTest::Prefix(prefix) => name.starts_with(prefix),
                NodeTest::Text | NodeTest::Never => false,
            };
            if passes && !declares_namespace(name) {
                self.found.push(Item {
                    node,
                    attribute: Some(index),
                });
                // Names are unique in well-formed XML; of duplicates pugixml takes the first.
                if self.once || matches!(self.test, NodeTest::Name(_)) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes a node that passes the test. Breaks when the walk is to stop.
    fn offer(&mut self, node: NodeId) -> Result<ControlFlow<()>, EvalError> {
        self.budget.spend(NODE_WORK)?;
        let kind = self.document.kind(node);
        let is_element = kind == Some(NodeKind::Element);
        let passes = match self.test {
            NodeTest::Node => true,
            NodeTest::AnyName => is_element,
            NodeTest::Name(wanted) => is_element && self.document.name(node) == wanted,
            NodeTest::Prefix(prefix) => is_element && self.document.name(node).starts_with(prefix),
            NodeTest::Text => matches!(kind, Some(NodeKind::Text | NodeKind::CData)),
            NodeTest::Never => false,
        };
        Ok(self.take_if(passes, node.into()))
    }

    fn offer_attribute(&mut self, attribute: Item) -> Result<ControlFlow<()>, EvalError> {
        self.budget.spend(NODE_WORK)?;
        Ok(self.take_if(*self.test == NodeTest::Node, attribute))
    }

    fn take_if(&mut self, passes: bool, item: Item) -> ControlFlow<()> {
        if passes {
            self.found.push(item);
        }
        if passes && self.once {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Returns whether a name is `xmlns` or `xmlns:prefix`, which XPath does not count as attributes.
pub(super) fn declares_namespace(name: &[u8]) -> bool {
    name.strip_prefix(b"xmlns")
        .is_some_and(|rest| matches!(rest.first(), None | Some(b':')))
}
