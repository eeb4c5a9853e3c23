//! Tokens to expression tree, with every check pugixml makes while parsing: arity, and node-sets
//! where only node-sets will do. Recursion is bounded by `MAX_DEPTH`. Spec: lsl-protocol §4, §15.

use super::ast::{
    Axis, Expr, Kind, NodeTest, Operator, Positions, Start, UNION_PRECEDENCE, XPathStep,
};
use super::functions::Function;
use super::lex::{self, Token, TokenKind};
use super::{MAX_DEPTH, MAX_PARTS, MAX_QUERY_BYTES, ParseReason, number};

/// Byte offset and reason at which parsing stopped.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) offset: usize,
    pub(super) reason: ParseReason,
}

/// Parses a whole query; `None` for an empty one. Blanks alone are no query, as in liblsl; on the wire
/// they are cut off before.
pub(super) fn parse(text: &[u8]) -> Result<Option<Expr>, Fault> {
    if text.len() > MAX_QUERY_BYTES {
        return Err(Fault {
            offset: MAX_QUERY_BYTES,
            reason: ParseReason::TooLong,
        });
    }
    if text.is_empty() {
        return Ok(None);
    }
    let tokens = lex::tokens(text)?;
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        end: text.len(),
        depth: 0,
        parts: 0,
    };
    let root = parser.expression(0)?;
    match parser.peek() {
        None => Ok(Some(root)),
        Some(_) => Err(parser.syntax("unexpected text after the query")),
    }
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    end: usize,
    depth: usize,
    parts: usize,
}

impl<'a> Parser<'a> {
    /// Parses operands joined by operators that bind at least as tightly as `limit`.
    fn expression(&mut self, limit: u8) -> Result<Expr, Fault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.fault(ParseReason::TooDeep));
        }
        let mut left = self.unary()?;
        while let Some(operator) = self.operator()
            && operator.precedence() >= limit
        {
            self.at += 1;
            let right = self.expression(operator.precedence() + 1)?;
            left = self.join(left, operator, right)?;
        }
        self.depth -= 1;
        Ok(left)
    }

    /// Joins two operands, appending to a chain where there is one. Parentheses on the left change
    /// nothing, since the left side is complete either way.
    fn join(&mut self, left: Expr, operator: Operator, right: Expr) -> Result<Expr, Fault> {
        self.part()?;
        Ok(match (operator, left) {
            (Operator::Or, Expr::Or(parts)) => Expr::Or(pushed(parts, right)),
            (Operator::Or, left) => Expr::Or(vec![left, right]),
            (Operator::And, Expr::And(parts)) => Expr::And(pushed(parts, right)),
            (Operator::And, left) => Expr::And(vec![left, right]),
            (Operator::Union, left) => {
                if left.kind() != Kind::Nodes || right.kind() != Kind::Nodes {
                    return Err(self.syntax("'|' joins node-sets only"));
                }
                match left {
                    Expr::Union(parts) => Expr::Union(pushed(parts, right)),
                    left => Expr::Union(vec![left, right]),
                }
            }
            (_, Expr::Chain(first, rest)) => Expr::Chain(first, pushed(rest, (operator, right))),
            (_, left) => Expr::Chain(Box::new(left), vec![(operator, right)]),
        })
    }

    /// Reads an operator: after an operand, `and`, `or`, `div`, `mod` and `*` are operators.
    fn operator(&self) -> Option<Operator> {
        Some(match self.peek()? {
            TokenKind::Name(b"or") => Operator::Or,
            TokenKind::Name(b"and") => Operator::And,
            TokenKind::Name(b"div") => Operator::Divide,
            TokenKind::Name(b"mod") => Operator::Modulo,
            TokenKind::Equal => Operator::Equal,
            TokenKind::NotEqual => Operator::NotEqual,
            TokenKind::Less => Operator::Less,
            TokenKind::LessOrEqual => Operator::LessOrEqual,
            TokenKind::Greater => Operator::Greater,
            TokenKind::GreaterOrEqual => Operator::GreaterOrEqual,
            TokenKind::Plus => Operator::Add,
            TokenKind::Minus => Operator::Subtract,
            TokenKind::Star => Operator::Multiply,
            TokenKind::Pipe => Operator::Union,
            _ => return None,
        })
    }

    fn unary(&mut self) -> Result<Expr, Fault> {
        let mut signs = 0_usize;
        while self.take(TokenKind::Minus) {
            signs += 1;
        }
        if signs == 0 {
            return self.operand();
        }
        let negated = Expr::Negate(Box::new(self.expression(UNION_PRECEDENCE)?));
        // An even number of signs still converts the operand to a number.
        Ok(if signs.is_multiple_of(2) {
            Expr::Negate(Box::new(negated))
        } else {
            negated
        })
    }

    fn operand(&mut self) -> Result<Expr, Fault> {
        self.part()?;
        match self.peek() {
            Some(TokenKind::Open | TokenKind::Literal(_) | TokenKind::Number(_)) => self.filter(),
            Some(TokenKind::Name(name))
                if self.peek_second() == Some(TokenKind::Open) && node_type(name).is_none() =>
            {
                self.filter()
            }
            _ => self.location_path(),
        }
    }

    /// Parses a primary expression with predicates, and the path that may start from it.
    fn filter(&mut self) -> Result<Expr, Fault> {
        let mut base = self.primary()?;
        if self.peek() == Some(TokenKind::OpenSquare) {
            if base.kind() != Kind::Nodes {
                return Err(self.syntax("a predicate applies to a node-set only"));
            }
            let predicates = self.predicates()?;
            let positions = positions(&predicates);
            base = Expr::Filter(Box::new(base), predicates, positions);
        }
        if !matches!(self.peek(), Some(TokenKind::Slash | TokenKind::DoubleSlash)) {
            return Ok(base);
        }
        if base.kind() != Kind::Nodes {
            return Err(self.syntax("a path starts from a node-set only"));
        }
        let mut steps = Vec::new();
        self.more_steps(&mut steps)?;
        Ok(Expr::Path(Start::Nodes(Box::new(base)), steps))
    }

    fn primary(&mut self) -> Result<Expr, Fault> {
        match self.next() {
            Some(TokenKind::Open) => {
                let inner = self.expression(0)?;
                self.expect(TokenKind::Close, "expected ')'")?;
                Ok(inner)
            }
            Some(TokenKind::Literal(text)) => Ok(Expr::Literal(text.to_vec())),
            Some(TokenKind::Number(text)) => Ok(Expr::Number(number::parse(text))),
            Some(TokenKind::Name(name)) => self.call(name),
            _ => Err(self.syntax("expected an expression")),
        }
    }

    fn call(&mut self, name: &[u8]) -> Result<Expr, Fault> {
        self.expect(TokenKind::Open, "expected '('")?;
        let mut arguments = Vec::new();
        while !self.take(TokenKind::Close) {
            if !arguments.is_empty() {
                self.expect(TokenKind::Comma, "expected ',' or ')'")?;
            }
            arguments.push(self.expression(0)?);
        }
        let Some(function) = Function::find(name, arguments.len()) else {
            return Err(self.syntax("unknown function or wrong number of arguments"));
        };
        if function.wants_nodes() && arguments.iter().any(|given| given.kind() != Kind::Nodes) {
            return Err(self.syntax("the function applies to a node-set only"));
        }
        Ok(Expr::Call(function, arguments))
    }

    fn location_path(&mut self) -> Result<Expr, Fault> {
        let mut steps = Vec::new();
        let start = match self.peek() {
            Some(TokenKind::Slash) => {
                let begins_step = matches!(
                    self.peek_second(),
                    Some(
                        TokenKind::Name(_)
                            | TokenKind::At
                            | TokenKind::Dot
                            | TokenKind::DoubleDot
                            | TokenKind::Star
                    )
                );
                if !begins_step {
                    self.at += 1;
                    return Ok(Expr::Path(Start::Root, steps));
                }
                Start::Root
            }
            Some(TokenKind::DoubleSlash) => Start::Root,
            _ => {
                steps.push(self.step()?);
                Start::Context
            }
        };
        self.more_steps(&mut steps)?;
        Ok(Expr::Path(start, steps))
    }

    /// Parses every `/step` and `//step` that follows.
    fn more_steps(&mut self, steps: &mut Vec<XPathStep>) -> Result<(), Fault> {
        loop {
            let anywhere_below = match self.peek() {
                Some(TokenKind::Slash) => false,
                Some(TokenKind::DoubleSlash) => true,
                _ => return Ok(()),
            };
            self.at += 1;
            self.part()?;
            let mut step = self.step()?;
            if anywhere_below && !fold_double_slash(&mut step) {
                steps.push(XPathStep {
                    axis: Axis::DescendantOrSelf,
                    test: NodeTest::Node,
                    predicates: Vec::new(),
                });
            }
            steps.push(step);
        }
    }

    fn step(&mut self) -> Result<XPathStep, Fault> {
        let abbreviated = match self.peek() {
            Some(TokenKind::Dot) => Some(Axis::Itself),
            Some(TokenKind::DoubleDot) => Some(Axis::Parent),
            _ => None,
        };
        if let Some(axis) = abbreviated {
            self.at += 1;
            if self.peek() == Some(TokenKind::OpenSquare) {
                return Err(self.syntax("'.' and '..' take no predicates"));
            }
            return Ok(XPathStep {
                axis,
                test: NodeTest::Node,
                predicates: Vec::new(),
            });
        }
        let axis = self.axis()?;
        let test = self.node_test()?;
        Ok(XPathStep {
            axis,
            test,
            predicates: self.predicates()?,
        })
    }

    fn axis(&mut self) -> Result<Axis, Fault> {
        let at_sign = self.take(TokenKind::At);
        let (Some(TokenKind::Name(name)), Some(TokenKind::DoubleColon)) =
            (self.peek(), self.peek_second())
        else {
            return Ok(if at_sign {
                Axis::Attribute
            } else {
                Axis::Child
            });
        };
        if at_sign {
            return Err(self.syntax("two axes in one step"));
        }
        let Some(&(_, axis)) = AXES.iter().find(|(known, _)| known.as_bytes() == name) else {
            return Err(self.syntax("unknown axis"));
        };
        self.at += 2;
        Ok(axis)
    }

    fn node_test(&mut self) -> Result<NodeTest, Fault> {
        if self.take(TokenKind::Star) {
            return Ok(NodeTest::AnyName);
        }
        let Some(TokenKind::Name(name)) = self.peek() else {
            return Err(self.syntax("expected a name or another node test"));
        };
        self.at += 1;
        if !self.take(TokenKind::Open) {
            return Ok(match name.strip_suffix(b"*") {
                Some(prefix) => NodeTest::Prefix(prefix.to_vec()),
                None => NodeTest::Name(name.to_vec()),
            });
        }
        if name == b"processing-instruction" && matches!(self.peek(), Some(TokenKind::Literal(_))) {
            self.at += 1;
        }
        self.expect(TokenKind::Close, "expected ')' after the node type")?;
        node_type(name).ok_or_else(|| self.syntax("unknown node type"))
    }

    fn predicates(&mut self) -> Result<Vec<Expr>, Fault> {
        let mut predicates = Vec::new();
        while self.take(TokenKind::OpenSquare) {
            self.part()?;
            predicates.push(self.expression(0)?);
            self.expect(TokenKind::CloseSquare, "expected ']'")?;
        }
        Ok(predicates)
    }

    fn part(&mut self) -> Result<(), Fault> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(self.fault(ParseReason::TooManyParts));
        }
        Ok(())
    }

    fn peek(&self) -> Option<TokenKind<'a>> {
        self.tokens.get(self.at).map(|token| token.kind)
    }

    fn peek_second(&self) -> Option<TokenKind<'a>> {
        self.tokens.get(self.at + 1).map(|token| token.kind)
    }

    fn next(&mut self) -> Option<TokenKind<'a>> {
        let kind = self.peek();
        self.at += 1;
        kind
    }

    fn take(&mut self, wanted: TokenKind<'_>) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, wanted: TokenKind<'_>, otherwise: &'static str) -> Result<(), Fault> {
        if self.take(wanted) {
            Ok(())
        } else {
            Err(self.syntax(otherwise))
        }
    }

    fn syntax(&self, reason: &'static str) -> Fault {
        self.fault(ParseReason::Syntax(reason))
    }

    fn fault(&self, reason: ParseReason) -> Fault {
        let offset = self
            .tokens
            .get(self.at)
            .map_or(self.end, |token| token.offset);
        Fault { offset, reason }
    }
}

/// Decides once whether positions count: a look through a predicate at each node costs its length.
fn positions(predicates: &[Expr]) -> Positions {
    if predicates.iter().any(Expr::is_positional_predicate) {
        Positions::Counted
    } else {
        Positions::Ignored
    }
}

fn pushed<T>(mut list: Vec<T>, last: T) -> Vec<T> {
    list.push(last);
    list
}

/// Folds `//x`, which is `/descendant-or-self::node()/x`, into one walk that does not collect every node
/// of the document first. Returns false where the axis or a predicate that counts positions forbids it.
fn fold_double_slash(step: &mut XPathStep) -> bool {
    let folded = match step.axis {
        Axis::Child | Axis::Descendant => Axis::Descendant,
        Axis::Itself | Axis::DescendantOrSelf => Axis::DescendantOrSelf,
        _ => return false,
    };
    if positions(&step.predicates) == Positions::Counted {
        return false;
    }
    step.axis = folded;
    true
}

fn node_type(name: &[u8]) -> Option<NodeTest> {
    match name {
        b"node" => Some(NodeTest::Node),
        b"text" => Some(NodeTest::Text),
        b"comment" | b"processing-instruction" => Some(NodeTest::Never),
        _ => None,
    }
}

const AXES: [(&str, Axis); 13] = [
    ("ancestor", Axis::Ancestor),
    ("ancestor-or-self", Axis::AncestorOrSelf),
    ("attribute", Axis::Attribute),
    ("child", Axis::Child),
    ("descendant", Axis::Descendant),
    ("descendant-or-self", Axis::DescendantOrSelf),
    ("following", Axis::Following),
    ("following-sibling", Axis::FollowingSibling),
    ("namespace", Axis::Namespace),
    ("parent", Axis::Parent),
    ("preceding", Axis::Preceding),
    ("preceding-sibling", Axis::PrecedingSibling),
    ("self", Axis::Itself),
];
