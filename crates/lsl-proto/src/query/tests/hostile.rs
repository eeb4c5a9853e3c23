//! Queries made to cost time, memory or stack, and random ones.

use std::thread;

use proptest::prelude::*;

use super::super::*;
use super::{SHELF, document, top};

#[test]
fn what_is_too_large_is_refused_when_parsed() {
    let reason = |text: String| Query::parse(text).unwrap_err().reason();
    let parens = |count: usize| format!("{}1{}", "(".repeat(count), ")".repeat(count));
    assert_eq!(reason(parens(10_000)), ParseReason::TooLong);
    assert_eq!(reason(parens(2_000)), ParseReason::TooDeep);
    assert_eq!(reason("(".repeat(4_000)), ParseReason::TooDeep);
    assert_eq!(reason("a[".repeat(2_000)), ParseReason::TooDeep);
    assert_eq!(reason("not(".repeat(1_000)), ParseReason::TooDeep);
    assert_eq!(
        reason(format!("'{}'", "x".repeat(MAX_QUERY_BYTES))),
        ParseReason::TooLong
    );
    assert_eq!(
        reason(format!("a{}", "[1]".repeat(1_300))),
        ParseReason::TooManyParts
    );
    assert_eq!(
        reason(format!("1{}", "+1".repeat(2_047))),
        ParseReason::TooManyParts
    );
    assert!(Query::parse(format!("'{}'", "x".repeat(MAX_QUERY_BYTES - 2))).is_ok());
    assert!(Query::parse(parens(MAX_DEPTH - 1)).is_ok());
    assert_eq!(reason(parens(MAX_DEPTH)), ParseReason::TooDeep);
    // Signs and chains do not nest.
    assert!(Query::parse(format!("{}1", "-".repeat(4_000))).is_ok());
    let any_of = vec!["name='BioSemi'"; 200].join(" or ");
    assert!(Query::parse(any_of).is_ok());
}

#[test]
fn deepest_queries_fit_a_small_stack() {
    // A quarter of the stack that Rust gives a thread.
    let small = thread::Builder::new().stack_size(512 << 10);
    let run = || {
        let document = document(SHELF);
        let wraps = [
            ("(", ")"),
            ("a[", "]"),
            ("not(", ")"),
            ("-(", ")"),
            ("concat('',", ")"),
            ("count(//*[", "])"),
            ("(a[(b)[", "]])"),
            ("1 + 1 * (", ")"),
            ("(a|b[", "])/b"),
        ];
        for (open, close) in wraps {
            let nested = |count| format!("{}1{}", open.repeat(count), close.repeat(count));
            let deepest = (1..=MAX_DEPTH)
                .rev()
                .find_map(|count| Query::parse(nested(count)).ok());
            let query = deepest.expect("some nesting is accepted");
            let _ = query.matches(&document, top(&document));
        }
    };
    small.spawn(run).unwrap().join().unwrap();
}

fn big() -> Document {
    let mut document = Document::new();
    let info = document.append_element(document.root(), "info").unwrap();
    for _ in 0..3_000 {
        let channel = document.append_element(info, "channel").unwrap();
        let label = document.append_element(channel, "label").unwrap();
        document.append_text(label, "a".repeat(100)).unwrap();
    }
    document
}

#[test]
fn expensive_evaluations_end_in_an_error() {
    let document = big();
    let result = |text: &str| {
        Query::parse(text)
            .unwrap()
            .matches(&document, top(&document))
    };
    let nested = format!("{}1=2{}", "//*[".repeat(20), "]".repeat(20));
    let concat = |depth: usize| {
        let wide = vec!["/"; 30].join(",");
        (0..depth).fold(format!("concat({wide})"), |inner, _| {
            format!("concat({inner},{wide})")
        })
    };
    let expensive = [
        nested.as_str(),
        "//*[//*[//*=2]]",
        "count(//*[count(//*) = 0]) = 1",
        "//*/following::*/preceding::*[. = 'b']",
        "//label[. = //channel/following::label] = 'b'",
        "//channel != //channel",
        "//label = //channel[. = 'x'] or //*[string(/) = '']",
        &concat(5),
        "contains(string(/), concat(substring(/, 1, 50000), 'b'))",
        "//*[translate(/, 'a', 'b') = 'x']",
    ];
    for text in expensive {
        assert_eq!(result(text), Err(EvalError::TooExpensive), "{text}");
    }
    let affordable = [
        ("count(//channel) = 3000", true),
        ("//channel[last()]/label = 'b'", false),
        ("//label[contains(., 'aab')]", false),
        ("//*[//*[//*]]", true),
        ("string(//label/..)", true),
        ("string(/)", true),
        ("channel[3000]/label and not(channel[3001])", true),
        ("count(//channel[label]/label/..) = 3000", true),
    ];
    for (text, expected) in affordable {
        assert_eq!(result(text), Ok(expected), "{text}");
    }
}

#[test]
fn deep_documents_cost_no_stack() {
    let mut document = Document::new();
    let mut at = document.root();
    for _ in 0..20_000 {
        at = document.append_element(at, "x").unwrap();
    }
    document.append_text(at, "bottom").unwrap();
    let result = |text: &str, context| Query::parse(text).unwrap().matches(&document, context);
    assert_eq!(result(". = 'bottom'", top(&document)), Ok(true));
    assert_eq!(result("count(//x) = 20000", top(&document)), Ok(true));
    assert_eq!(result("count(ancestor-or-self::x) = 20000", at), Ok(true));
    assert_eq!(result("count(//x[not(x)]/preceding::*) = 0", at), Ok(true));
}

fn soup() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "a",
        "b",
        "n",
        "*",
        "/",
        "//",
        ".",
        "..",
        "@",
        "@id",
        "[",
        "]",
        "(",
        ")",
        ",",
        "|",
        "+",
        "-",
        "=",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "and",
        "or",
        "div",
        "mod",
        "1",
        "2.5",
        "'x'",
        "\"",
        "::",
        "child::",
        "ancestor::",
        "preceding::",
        "following::",
        "text()",
        "node()",
        "count(",
        "concat(",
        "not(",
        "last()",
        "position()",
        "string(",
        "substring(",
        "translate(",
        "id(",
        "lang(",
        "p:*",
        "$v",
        "\u{e4}",
        " ",
    ]);
    prop::collection::vec(words, 0..30).prop_map(|words| words.join(""))
}

/// Well-formed expressions: node-sets and anything else, nested at random.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a",
        "//b",
        "n",
        ".",
        "..",
        "(/)",
        "@id",
        "a/@*",
        "//text()",
        "a[2]/b",
        "1",
        "'x'",
        "-0.5",
        "last()",
        "position()",
        "name()",
        "string-length()",
        "b/following::*",
        "c/preceding::*",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(6, 48, 3, |inner| {
        let pair = (inner.clone(), inner.clone());
        let operators = prop::sample::select(vec![
            " or ", " and ", "=", "!=", " < ", ">=", " + ", " - ", " * ", " div ", " mod ",
        ]);
        prop_oneof![
            (pair.clone(), operators).prop_map(|((a, b), op)| format!("({a}{op}{b})")),
            inner.clone().prop_map(|a| format!("//*[{a}]")),
            inner
                .clone()
                .prop_map(|a| format!("count(ancestor-or-self::node()[{a}])")),
            inner
                .clone()
                .prop_map(|a| format!("(n|//b/preceding::*)[{a}]/..")),
            inner.clone().prop_map(|a| format!("not({a})")),
            pair.clone().prop_map(|(a, b)| format!("concat({a},{b})")),
            pair.clone()
                .prop_map(|(a, b)| format!("substring-after({a},{b})")),
            pair.prop_map(|(a, b)| format!("substring({a},{b},3)")),
            inner.prop_map(|a| format!("translate({a},'ab','b')")),
        ]
    })
}

proptest! {
    #[test]
    fn parsing_any_bytes_ends(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Query::parse(text);
    }

    #[test]
    fn any_soup_that_parses_can_be_evaluated(text in soup()) {
        if let Ok(query) = Query::parse(&text) {
            let document = document(SHELF);
            let answer = query.matches(&document, top(&document));
            // Answers do not depend on what was asked before.
            prop_assert_eq!(answer, query.clone().matches(&document, top(&document)));
        }
    }

    #[test]
    fn well_formed_expressions_parse_and_end(text in expression()) {
        let query = Query::parse(&text).unwrap();
        let document = document(SHELF);
        let negated = Query::parse(format!("not({text})")).unwrap();
        let answer = query.matches(&document, top(&document));
        let opposite = negated.matches(&document, top(&document));
        if let (Ok(answer), Ok(opposite)) = (answer, opposite) {
            prop_assert_ne!(answer, opposite);
        }
    }

    #[test]
    fn any_value_can_be_quoted(value in prop::collection::vec(any::<u8>(), 0..60)) {
        let value: Vec<u8> = value.into_iter().map(|byte| if byte % 3 == 0 { b"'\""[usize::from(byte % 2)] } else { byte }).collect();
        let mut document = Document::new();
        let info = document.append_element(document.root(), "info").unwrap();
        document.append_text(info, value.clone()).unwrap();
        let query = Query::parse([b".=".as_slice(), &quote_bytes(&value)].concat()).unwrap();
        prop_assert_eq!(query.matches(&document, info), Ok(true));
    }
}
