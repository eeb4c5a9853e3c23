//! Analysis of queries: whether a short info is enough to evaluate one.

use std::collections::BTreeSet;

use super::Query;
use super::ast::{Axis, Expr, NodeTest, Start};
use super::functions::Function;

impl Query {
    /// Returns the names of the children of the context node whose texts alone decide about the
    /// query. `None` if it looks at anything else, or for blanks, which parsers of documents drop.
    pub fn named_children(&self) -> Option<BTreeSet<&[u8]>> {
        let mut names = BTreeSet::new();
        if let Some(root) = &self.root {
            collect(root, &mut names)?;
        }
        Some(names)
    }
}

/// Collects the names; recurses no deeper than the parser did.
fn collect<'a>(expr: &'a Expr, names: &mut BTreeSet<&'a [u8]>) -> Option<()> {
    match expr {
        Expr::Or(parts) | Expr::And(parts) | Expr::Union(parts) => {
            parts.iter().try_for_each(|part| collect(part, names))
        }
        Expr::Chain(first, rest) => {
            collect(first, names)?;
            (rest.iter()).try_for_each(|(_, operand)| collect(operand, names))
        }
        Expr::Negate(operand) => collect(operand, names),
        Expr::Path(Start::Context, steps) => {
            let [step] = steps.as_slice() else {
                return None;
            };
            let NodeTest::Name(name) = &step.test else {
                return None;
            };
            let is_plain = step.axis == Axis::Child && step.predicates.is_empty();
            is_plain.then(|| {
                names.insert(name);
            })
        }
        Expr::Path(..) | Expr::Filter(..) | Expr::Call(Function::Id | Function::Lang, _) => None,
        Expr::Literal(text) => {
            let is_blank = text.trim_ascii().is_empty() && !text.is_empty();
            (!is_blank && !text.contains(&b'\r')).then_some(())
        }
        Expr::Number(_) | Expr::Call(Function::True | Function::False, _) => Some(()),
        // Without arguments it is about the context node itself.
        Expr::Call(_, arguments) if arguments.is_empty() => None,
        Expr::Call(_, arguments) => {
            (arguments.iter()).try_for_each(|argument| collect(argument, names))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_which_children_decide() {
        let check = |query: &str, expected: Option<&[&str]>| {
            let query = Query::parse(query).unwrap();
            let names = query.named_children().map(|names| {
                let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
                names.into_iter().map(text).collect::<Vec<_>>()
            });
            let expected =
                expected.map(|names| names.iter().map(|&name| name.to_owned()).collect());
            assert_eq!(names, expected, "{query:?}");
        };
        check("", Some(&[]));
        check("1", Some(&[]));
        check(
            "name='a' and (type='b' or not(starts-with(name,'c')))",
            Some(&["name", "type"]),
        );
        check(
            "nominal_srate - 1 > channel_count * 2",
            Some(&["channel_count", "nominal_srate"]),
        );
        check("desc/manufacturer='a'", None);
        check("//channel", None);
        check("/info/name='a'", None);
        check("*='a'", None);
        check("name[1]='a'", None);
        check("@x='a'", None);
        check(".='a'", None);
        check("string()='a'", None);
        check("position()=1", None);
        check("lang('en')", None);
        // Reading a document changes blanks and line ends.
        check("name=' '", None);
        check("name='a\rb'", None);
    }
}
