//! Cursors on elements: the pleasant way to read and build metadata. A cursor borrows its document,
//! so its element cannot go away meanwhile.

use std::borrow::Cow;

use super::{Attribute, Document, NodeId, NodeKind};

/// Read-only cursor on an element.
#[derive(Debug, Clone, Copy)]
pub struct ElementRef<'a> {
    document: &'a Document,
    id: NodeId,
}

impl<'a> ElementRef<'a> {
    /// Creates a cursor on the element of this id; `None` if it is gone or no element.
    pub fn new(document: &'a Document, id: NodeId) -> Option<Self> {
        (document.kind(id) == Some(NodeKind::Element)).then_some(Self { document, id })
    }

    /// Returns the id, for the calls of [`Document`].
    pub fn id(self) -> NodeId {
        self.id
    }

    /// Returns the name; invalid UTF-8 shows as U+FFFD.
    pub fn name(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.name_bytes())
    }

    /// Returns the name as it is on the wire.
    pub fn name_bytes(self) -> &'a [u8] {
        self.document.name(self.id)
    }

    /// Returns the first text inside; empty if there is none. Invalid UTF-8 shows as U+FFFD.
    pub fn text(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.text_bytes())
    }

    /// Returns the first text inside, as it is on the wire.
    pub fn text_bytes(self) -> &'a [u8] {
        self.document.child_text(self.id)
    }

    /// Returns the attributes in document order; only documents of foreign origin have any.
    pub fn attributes(self) -> &'a [Attribute] {
        self.document.attributes(self.id)
    }

    /// Returns the first child element of this name.
    pub fn child(self, name: impl AsRef<[u8]>) -> Option<Self> {
        self.document.child(self.id, name).map(|id| Self {
            document: self.document,
            id,
        })
    }

    /// Returns the text of the first child element of this name.
    pub fn get(self, name: impl AsRef<[u8]>) -> Option<Cow<'a, str>> {
        self.child(name).map(Self::text)
    }

    /// Iterates over the child elements in document order.
    pub fn children(self) -> impl Iterator<Item = Self> + 'a {
        let document = self.document;
        document
            .children(self.id)
            .filter_map(move |id| Self::new(document, id))
    }

    /// Iterates over the child elements of this name in document order.
    pub fn children_named<N: AsRef<[u8]> + 'a>(self, name: N) -> impl Iterator<Item = Self> + 'a {
        self.children()
            .filter(move |child| child.name_bytes() == name.as_ref())
    }
}

/// Cursor on an element for changes.
///
/// Names are not validated, as in liblsl: a name with blanks or brackets makes markup that no peer
/// can read past.
#[derive(Debug)]
pub struct ElementMut<'a> {
    document: &'a mut Document,
    id: NodeId,
}

impl<'a> ElementMut<'a> {
    /// Creates a cursor on the element of this id; `None` if it is gone or no element.
    pub fn new(document: &'a mut Document, id: NodeId) -> Option<Self> {
        (document.kind(id) == Some(NodeKind::Element)).then_some(Self { document, id })
    }

    /// Creates a cursor for an id that was just seen to name an element of this document.
    pub(crate) fn of(document: &'a mut Document, id: NodeId) -> Self {
        Self { document, id }
    }

    /// Returns the id, for the calls of [`Document`].
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Returns a read-only cursor on the same element.
    pub fn as_ref(&self) -> ElementRef<'_> {
        ElementRef {
            document: self.document,
            id: self.id,
        }
    }

    /// Returns the first child element of this name, added if there is none.
    pub fn child(&mut self, name: impl AsRef<[u8]>) -> ElementMut<'_> {
        let id = self.find_or_append(name.as_ref());
        ElementMut {
            document: self.document,
            id,
        }
    }

    /// Like [`child`](Self::child), for a cursor that is kept:
    /// `let mut channels = info.desc_mut().into_child("channels");`
    #[must_use]
    pub fn into_child(mut self, name: impl AsRef<[u8]>) -> Self {
        self.id = self.find_or_append(name.as_ref());
        self
    }

    /// Adds a last child element of this name, whether or not there are others.
    pub fn append_child(&mut self, name: impl AsRef<[u8]>) -> ElementMut<'_> {
        let id = self.append(name.as_ref());
        ElementMut {
            document: self.document,
            id,
        }
    }

    /// Sets the text of the first child element of this name, which is added if there is none.
    /// Returns the same element, to set more.
    pub fn set(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.child(name).set_text(value);
        self
    }

    /// Replaces the first text inside, or adds one.
    pub fn set_text(&mut self, value: impl AsRef<[u8]>) -> &mut Self {
        let is_text = |kind| matches!(kind, Some(NodeKind::Text | NodeKind::CData));
        let text = self
            .document
            .children(self.id)
            .find(|&id| is_text(self.document.kind(id)));
        match text {
            Some(text) => {
                self.document.set_text(text, value.as_ref());
            }
            None => {
                self.document.append_text(self.id, value.as_ref());
            }
        }
        self
    }

    /// Removes the first child element of this name with all its descendants; returns false if
    /// there is none.
    pub fn remove_child(&mut self, name: impl AsRef<[u8]>) -> bool {
        match self.document.child(self.id, name) {
            Some(child) => self.document.remove(child),
            None => false,
        }
    }

    fn find_or_append(&mut self, name: &[u8]) -> NodeId {
        match self.document.child(self.id, name) {
            Some(child) => child,
            None => self.append(name),
        }
    }

    /// Appends an element. Only an arena of 2^32 nodes refuses; the edit then falls back to this element.
    fn append(&mut self, name: &[u8]) -> NodeId {
        self.document
            .append_element(self.id, name)
            .unwrap_or(self.id)
    }
}
