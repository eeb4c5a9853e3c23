//! Syntax tree of a parsed query. Chains are flat lists, so the tree is no deeper than the
//! recursion of the parser, and walking it recurses no deeper either.

use super::functions::Function;

/// An expression. Its type is known from its form alone, as XPath has no untyped values.
#[derive(Debug, Clone)]
pub(super) enum Expr {
    /// Operands of `or`, at least two.
    Or(Vec<Self>),
    /// Operands of `and`, at least two.
    And(Vec<Self>),
    /// Operators applied from left to right; precedence was settled by the parser.
    Chain(Box<Self>, Vec<(Operator, Self)>),
    /// Operand of a unary minus.
    Negate(Box<Self>),
    /// Operands of `|`, at least two, all node-sets.
    Union(Vec<Self>),
    /// A node-set narrowed by predicates, and whether they count positions, which is in document order.
    Filter(Box<Self>, Vec<Self>, Positions),
    /// Location path: start and steps.
    Path(Start, Vec<XPathStep>),
    /// String constant, without its quotes.
    Literal(Vec<u8>),
    /// Number constant; a sign is `Negate`.
    Number(f64),
    /// A function call whose arity the parser checked.
    Call(Function, Vec<Self>),
}

/// Whether a predicate depends on the position of its node among its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Positions {
    Counted,
    Ignored,
}

/// Start of a location path.
#[derive(Debug, Clone)]
pub(super) enum Start {
    /// The context node of the evaluation.
    Context,
    /// The root of the document.
    Root,
    /// Every node of a node-set expression.
    Nodes(Box<Expr>),
}

/// One step of a location path.
#[derive(Debug, Clone)]
pub(super) struct XPathStep {
    pub(super) axis: Axis,
    pub(super) test: NodeTest,
    pub(super) predicates: Vec<Expr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Axis {
    Ancestor,
    AncestorOrSelf,
    Attribute,
    Child,
    Descendant,
    DescendantOrSelf,
    Following,
    FollowingSibling,
    /// Always empty, as in pugixml.
    Namespace,
    Parent,
    Preceding,
    PrecedingSibling,
    Itself,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeTest {
    /// `*`: every element, or every attribute.
    AnyName,
    /// A full name, prefix included: pugixml resolves no namespaces.
    Name(Vec<u8>),
    /// `prefix:*`, stored with the colon.
    Prefix(Vec<u8>),
    /// `node()`: every node of any kind.
    Node,
    /// `text()`: character data, CDATA included.
    Text,
    /// `comment()` and `processing-instruction()`: the XML parser keeps neither.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Union,
}

/// The type of an expression's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Boolean,
    Number,
    Text,
    Nodes,
}

impl Expr {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Or(_) | Self::And(_) => Kind::Boolean,
            Self::Chain(first, rest) => rest
                .last()
                .map_or_else(|| first.kind(), |(operator, _)| operator.kind()),
            Self::Negate(_) | Self::Number(_) => Kind::Number,
            Self::Union(_) | Self::Filter(..) | Self::Path(..) => Kind::Nodes,
            Self::Literal(_) => Kind::Text,
            Self::Call(function, _) => function.kind(),
        }
    }

    /// Returns whether this expression, as a predicate, depends on the position of its node.
    pub(super) fn is_positional_predicate(&self) -> bool {
        self.kind() == Kind::Number || self.uses_position()
    }

    fn uses_position(&self) -> bool {
        match self {
            Self::Or(parts) | Self::And(parts) => parts.iter().any(Self::uses_position),
            Self::Chain(first, rest) => {
                first.uses_position() || rest.iter().any(|(_, operand)| operand.uses_position())
            }
            Self::Negate(operand) => operand.uses_position(),
            Self::Call(Function::Position | Function::Last, _) => true,
            Self::Call(_, arguments) => arguments.iter().any(Self::uses_position),
            // Predicates inside a node-set have positions of their own.
            Self::Union(_)
            | Self::Filter(..)
            | Self::Path(..)
            | Self::Literal(_)
            | Self::Number(_) => false,
        }
    }
}

impl Operator {
    /// Returns the binding strength; higher binds tighter, equal binds to the left.
    pub(super) fn precedence(self) -> u8 {
        match self {
            Self::Or => 1,
            Self::And => 2,
            Self::Equal | Self::NotEqual => 3,
            Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual => 4,
            Self::Add | Self::Subtract => 5,
            Self::Multiply | Self::Divide | Self::Modulo => 6,
            Self::Union => UNION_PRECEDENCE,
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Add | Self::Subtract | Self::Multiply | Self::Divide | Self::Modulo => {
                Kind::Number
            }
            Self::Union => Kind::Nodes,
            _ => Kind::Boolean,
        }
    }
}

impl Axis {
    /// Returns whether the axis runs against document order; positions count along the axis.
    pub(super) fn is_reverse(self) -> bool {
        matches!(
            self,
            Self::Ancestor | Self::AncestorOrSelf | Self::Preceding | Self::PrecedingSibling
        )
    }

    /// Returns whether two different nodes may reach the same node.
    pub(super) fn can_overlap(self) -> bool {
        !matches!(self, Self::Child | Self::Attribute | Self::Itself)
    }
}

/// The operand of unary minus reaches over `|` and nothing looser.
pub(super) const UNION_PRECEDENCE: u8 = 7;
