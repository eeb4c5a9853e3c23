//! Arena of nodes with stable ids. A removed node's id never names another node, so a stale id is
//! simply "no such node". The tree knows nothing of stream infos, parsing or text escaping.

/// Identity of a node of one `Document`. Ids stay valid while the node exists, across any other edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId {
    index: u32,
    generation: u32,
}

/// Kind of a node in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// The nameless root above the document element.
    Document,
    /// `<name>`, with attributes and children.
    Element,
    /// Character data outside CDATA sections.
    Text,
    /// A `<![CDATA[` section; text in every respect but how it is written.
    CData,
}

/// An attribute of a parsed element; LSL itself never writes any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Name as parsed, not validated.
    pub name: Vec<u8>,
    /// Value as parsed, entities decoded.
    pub value: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Node {
    generation: u32,
    kind: NodeKind,
    /// Name of an element, content of a text node.
    text: Vec<u8>,
    attributes: Vec<Attribute>,
    parent: Option<u32>,
    first_child: Option<u32>,
    last_child: Option<u32>,
    previous: Option<u32>,
    next: Option<u32>,
    live: bool,
}

/// A tree of elements and text. Cloning copies it whole; ids of the original name the same nodes in
/// the clone.
#[derive(Debug, Clone)]
pub struct Document {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// Sum of [`Node::text_size`] over all nodes.
    texts_size: usize,
}

const ROOT: u32 = 0;

/// Bytes that an allocation costs beside its content.
const ALLOCATION_BYTES: usize = 16;

impl Default for Document {
    fn default() -> Self {
        Self::new()
    }
}

impl Document {
    /// Creates a document that holds nothing but its root.
    pub fn new() -> Self {
        let root = Node::new(NodeKind::Document, Vec::new(), 0);
        Self {
            nodes: vec![root],
            free: Vec::new(),
            texts_size: 0,
        }
    }

    /// Returns the nameless node above the document element.
    pub fn root(&self) -> NodeId {
        NodeId {
            index: ROOT,
            generation: 0,
        }
    }

    /// Returns the number of nodes, the root included.
    pub fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Returns the memory that the document takes, in bytes, roughly; known without a look at the nodes.
    pub fn size(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.texts_size
    }

    /// Returns whether there is nothing but the root.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// Returns whether the id names a node that still exists.
    pub fn contains(&self, id: NodeId) -> bool {
        self.node(id).is_some()
    }

    /// Returns the kind of the node.
    pub fn kind(&self, id: NodeId) -> Option<NodeKind> {
        self.node(id).map(|node| node.kind)
    }

    /// Returns the name of an element; empty for everything else.
    pub fn name(&self, id: NodeId) -> &[u8] {
        match self.node(id) {
            Some(node) if node.kind == NodeKind::Element => &node.text,
            _ => b"",
        }
    }

    /// Returns the content of a text node; empty for everything else.
    pub fn text(&self, id: NodeId) -> &[u8] {
        match self.node(id) {
            Some(node) if matches!(node.kind, NodeKind::Text | NodeKind::CData) => &node.text,
            _ => b"",
        }
    }

    /// Returns the attributes of an element, in document order.
    pub fn attributes(&self, id: NodeId) -> &[Attribute] {
        self.node(id).map_or(&[], |node| &node.attributes)
    }

    /// Returns the parent, or `None` for the root.
    pub fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.link(self.node(id)?.parent)
    }

    /// Returns the first child of any kind.
    pub fn first_child(&self, id: NodeId) -> Option<NodeId> {
        self.link(self.node(id)?.first_child)
    }

    /// Returns the last child of any kind.
    pub fn last_child(&self, id: NodeId) -> Option<NodeId> {
        self.link(self.node(id)?.last_child)
    }

    /// Returns the following sibling of any kind.
    pub fn next_sibling(&self, id: NodeId) -> Option<NodeId> {
        self.link(self.node(id)?.next)
    }

    /// Returns the preceding sibling of any kind.
    pub fn previous_sibling(&self, id: NodeId) -> Option<NodeId> {
        self.link(self.node(id)?.previous)
    }

    /// Iterates over the children of any kind, in document order.
    pub fn children(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(self.first_child(id), |&child| self.next_sibling(child))
    }

    /// Returns the first child element of this name.
    pub fn child(&self, id: NodeId, name: impl AsRef<[u8]>) -> Option<NodeId> {
        let name = name.as_ref();
        self.children(id)
            .find(|&child| self.kind(child) == Some(NodeKind::Element) && self.name(child) == name)
    }

    /// Returns the content of the first text child; empty if there is none.
    pub fn child_text(&self, id: NodeId) -> &[u8] {
        self.children(id)
            .find(|&child| self.kind(child) != Some(NodeKind::Element))
            .map_or(b"", |child| self.text(child))
    }

    /// Adds an element as the last child. `None` if `parent` cannot have children.
    pub fn append_element(&mut self, parent: NodeId, name: impl Into<Vec<u8>>) -> Option<NodeId> {
        self.insert(parent, End::Last, NodeKind::Element, name.into())
    }

    /// Adds an element as the first child. `None` if `parent` cannot have children.
    pub fn prepend_element(&mut self, parent: NodeId, name: impl Into<Vec<u8>>) -> Option<NodeId> {
        self.insert(parent, End::First, NodeKind::Element, name.into())
    }

    /// Adds a text node as the last child. An empty text is a node too (`<a></a>`, not `<a />`).
    pub fn append_text(&mut self, parent: NodeId, text: impl Into<Vec<u8>>) -> Option<NodeId> {
        self.insert(parent, End::Last, NodeKind::Text, text.into())
    }

    /// Adds a CDATA section as the last child.
    pub fn append_cdata(&mut self, parent: NodeId, text: impl Into<Vec<u8>>) -> Option<NodeId> {
        self.insert(parent, End::Last, NodeKind::CData, text.into())
    }

    /// Adds an attribute to an element; returns false if the node is not one.
    pub fn append_attribute(&mut self, id: NodeId, attribute: Attribute) -> bool {
        let size = attribute.size();
        match self.node_mut(id) {
            Some(node) if node.kind == NodeKind::Element => {
                node.attributes.push(attribute);
                self.texts_size += size;
                true
            }
            _ => false,
        }
    }

    /// Renames an element; returns false if the node is not one.
    pub fn set_name(&mut self, id: NodeId, name: impl Into<Vec<u8>>) -> bool {
        self.replace_text(id, &[NodeKind::Element], name.into())
    }

    /// Replaces the content of a text node; returns false if the node is not one.
    pub fn set_text(&mut self, id: NodeId, text: impl Into<Vec<u8>>) -> bool {
        self.replace_text(id, &[NodeKind::Text, NodeKind::CData], text.into())
    }

    /// Copies a node of another document, deeply, as the last child of `parent`. `None` if either
    /// id names nothing, `source` is a root or `parent` cannot have children.
    pub fn append_copy(&mut self, parent: NodeId, from: &Self, source: NodeId) -> Option<NodeId> {
        self.copy(parent, End::Last, from, source)
    }

    /// Copies a node of another document, deeply, as the first child of `parent`.
    pub fn prepend_copy(&mut self, parent: NodeId, from: &Self, source: NodeId) -> Option<NodeId> {
        self.copy(parent, End::First, from, source)
    }

    /// Copies a node of this document, deeply, as the last child of `parent`, which may lie inside
    /// the copied node.
    pub fn append_copy_within(&mut self, parent: NodeId, source: NodeId) -> Option<NodeId> {
        let (copy, top) = self.extract(source)?;
        self.copy(parent, End::Last, &copy, top)
    }

    /// Copies a node of this document, deeply, as the first child of `parent`.
    pub fn prepend_copy_within(&mut self, parent: NodeId, source: NodeId) -> Option<NodeId> {
        let (copy, top) = self.extract(source)?;
        self.copy(parent, End::First, &copy, top)
    }

    /// Removes a node with all its descendants; returns false for the root and for unknown ids.
    pub fn remove(&mut self, id: NodeId) -> bool {
        if id.index == ROOT || !self.contains(id) {
            return false;
        }
        let (parent, previous, next) = {
            let node = self.at(id.index);
            (node.parent, node.previous, node.next)
        };
        match previous {
            Some(previous) => self.at_mut(previous).next = next,
            None => {
                if let Some(parent) = parent {
                    self.at_mut(parent).first_child = next;
                }
            }
        }
        match next {
            Some(next) => self.at_mut(next).previous = previous,
            None => {
                if let Some(parent) = parent {
                    self.at_mut(parent).last_child = previous;
                }
            }
        }
        let mut doomed = vec![id.index];
        while let Some(index) = doomed.pop() {
            let mut child = self.at(index).first_child;
            while let Some(at) = child {
                doomed.push(at);
                child = self.at(at).next;
            }
            self.texts_size -= self.at(index).text_size();
            let generation = self.at(index).generation.wrapping_add(1);
            *self.at_mut(index) = Node::new(NodeKind::Text, Vec::new(), generation);
            self.at_mut(index).live = false;
            self.free.push(index);
        }
        true
    }

    fn copy(&mut self, parent: NodeId, end: End, from: &Self, source: NodeId) -> Option<NodeId> {
        let mut todo = vec![(parent, end, source)];
        let mut top = None;
        while let Some((parent, end, source)) = todo.pop() {
            let node = from.node(source)?.clone();
            if node.kind == NodeKind::Document {
                return None;
            }
            let copy = self.insert(parent, end, node.kind, node.text)?;
            for attribute in node.attributes {
                self.append_attribute(copy, attribute);
            }
            top.get_or_insert(copy);
            // A stack reverses, so children are prepended from the last to the first.
            todo.extend(from.children(source).map(|child| (copy, End::First, child)));
        }
        top
    }

    /// Copies a subtree into a document of its own, so that it stands still while this one grows.
    fn extract(&self, source: NodeId) -> Option<(Self, NodeId)> {
        let mut copy = Self::new();
        let top = copy.copy(copy.root(), End::Last, self, source)?;
        Some((copy, top))
    }

    fn insert(
        &mut self,
        parent: NodeId,
        end: End,
        kind: NodeKind,
        text: Vec<u8>,
    ) -> Option<NodeId> {
        let holder = self.node(parent)?;
        if !matches!(holder.kind, NodeKind::Document | NodeKind::Element) {
            return None;
        }
        let (first, last) = (holder.first_child, holder.last_child);
        let index = if let Some(index) = self.free.pop() {
            let generation = self.at(index).generation;
            *self.at_mut(index) = Node::new(kind, text, generation);
            index
        } else {
            let index = u32::try_from(self.nodes.len()).ok()?;
            self.nodes.push(Node::new(kind, text, 0));
            index
        };
        self.texts_size += self.at(index).text_size();
        self.at_mut(index).parent = Some(parent.index);
        match end {
            End::Last => {
                self.at_mut(index).previous = last;
                self.at_mut(parent.index).last_child = Some(index);
                match last {
                    Some(last) => self.at_mut(last).next = Some(index),
                    None => self.at_mut(parent.index).first_child = Some(index),
                }
            }
            End::First => {
                self.at_mut(index).next = first;
                self.at_mut(parent.index).first_child = Some(index);
                match first {
                    Some(first) => self.at_mut(first).previous = Some(index),
                    None => self.at_mut(parent.index).last_child = Some(index),
                }
            }
        }
        self.link(Some(index))
    }

    fn replace_text(&mut self, id: NodeId, kinds: &[NodeKind], text: Vec<u8>) -> bool {
        let after = text.len();
        match self.node_mut(id) {
            Some(node) if kinds.contains(&node.kind) => {
                let before = node.text.len();
                node.text = text;
                self.texts_size = self.texts_size - before + after;
                true
            }
            _ => false,
        }
    }

    fn link(&self, index: Option<u32>) -> Option<NodeId> {
        let index = index?;
        Some(NodeId {
            index,
            generation: self.at(index).generation,
        })
    }

    /// Returns the node of an index of this arena: links and ids seen by [`node`](Self::node) are such.
    #[expect(
        clippy::indexing_slicing,
        reason = "nodes are never taken out of the arena"
    )]
    fn at(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "nodes are never taken out of the arena"
    )]
    fn at_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes
            .get(id.index as usize)
            .filter(|n| n.live && n.generation == id.generation)
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes
            .get_mut(id.index as usize)
            .filter(|n| n.live && n.generation == id.generation)
    }
}

#[derive(Debug, Clone, Copy)]
enum End {
    First,
    Last,
}

impl Attribute {
    fn size(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.value.len() + 3 * ALLOCATION_BYTES
    }
}

impl Node {
    /// Returns the heap bytes of name, content and attributes, with what an allocation costs.
    fn text_size(&self) -> usize {
        let attributes: usize = self.attributes.iter().map(Attribute::size).sum();
        self.text.len() + ALLOCATION_BYTES + attributes
    }

    fn new(kind: NodeKind, text: Vec<u8>, generation: u32) -> Self {
        Self {
            generation,
            kind,
            text,
            attributes: Vec::new(),
            parent: None,
            first_child: None,
            last_child: None,
            previous: None,
            next: None,
            live: true,
        }
    }
}
