//! Golden vectors, quoting and the cache; helpers of the other test files.

mod conformance;
mod hostile;

use std::collections::HashMap;

use serde::Deserialize;

use super::*;
use crate::xml::{Attribute, NodeKind};

#[derive(Deserialize)]
struct Vectors {
    documents: HashMap<String, VectorDocument>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct VectorDocument {
    xml_utf8: String,
}

#[derive(Deserialize)]
struct Case {
    query: String,
    #[serde(rename = "A")]
    a: bool,
    #[serde(rename = "B")]
    b: bool,
    resolver_accepts_as_predicate: bool,
}

/// Just enough XML for the documents of these tests: tags, attributes, five entities, CDATA; text of
/// white space alone is dropped, as everywhere in LSL.
fn document(xml: &str) -> Document {
    let mut document = Document::new();
    let mut at = document.root();
    let mut rest = xml;
    while let Some(tag_at) = rest.find('<') {
        let text = &rest[..tag_at];
        if !text.trim().is_empty() {
            document.append_text(at, unescaped(text)).unwrap();
        }
        rest = &rest[tag_at..];
        if let Some(cdata) = rest.strip_prefix("<![CDATA[") {
            let (text, tail) = cdata.split_once("]]>").unwrap();
            document.append_cdata(at, text).unwrap();
            rest = tail;
            continue;
        }
        let (tag, tail) = rest[1..].split_once('>').unwrap();
        rest = tail;
        if tag.starts_with('?') {
            continue;
        }
        if tag.starts_with('/') {
            at = document.parent(at).unwrap();
            continue;
        }
        let empty = tag.ends_with('/');
        let tag = tag.trim_end_matches('/').trim();
        let (name, mut attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        let element = document.append_element(at, name).unwrap();
        while let Some((name, value)) = attributes.split_once("=\"") {
            let (value, tail) = value.split_once('"').unwrap();
            let (name, value) = (name.trim().into(), unescaped(value).into());
            assert!(document.append_attribute(element, Attribute { name, value }));
            attributes = tail;
        }
        if !empty {
            at = element;
        }
    }
    assert_eq!(at, document.root(), "unbalanced tags");
    document
}

fn unescaped(text: &str) -> String {
    let pairs = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&amp;", "&"),
    ];
    pairs
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Returns the document element of the tree.
fn top(document: &Document) -> NodeId {
    document.first_child(document.root()).unwrap()
}

#[test]
fn golden_vectors() {
    let vectors: Vectors =
        serde_json::from_str(include_str!("../../tests/vectors/query-match.json")).unwrap();
    let [a, b] = ["A", "B"].map(|name| document(&vectors.documents[name].xml_utf8));
    assert!(vectors.cases.len() >= 150);
    for case in &vectors.cases {
        let matches = |document: &Document| {
            Query::parse(&case.query)
                .is_ok_and(|query| query.matches(document, top(document)).unwrap())
        };
        assert_eq!(
            (matches(&a), matches(&b)),
            (case.a, case.b),
            "{}",
            case.query
        );
        // The vector of the empty predicate was taken from a resolver that adds no term for it.
        let parsed = match case.query.as_str() {
            "" => "session_id='default'".to_owned(),
            query => format!("session_id='default' and {query}"),
        };
        let accepted = Query::parse(parsed).is_ok();
        assert_eq!(
            accepted, case.resolver_accepts_as_predicate,
            "{}",
            case.query
        );
    }
}

/// The work that strangers may spend is far above the needs of real programs: see the margins.
#[test]
fn real_queries_need_little_work() {
    let mut document = Document::new();
    let info = document.append_element(document.root(), "info").unwrap();
    let field = |document: &mut Document, parent, name, text: &str| {
        let node = document.append_element(parent, name).unwrap();
        document.append_text(node, text).unwrap();
    };
    for (name, value) in REAL_FIELDS {
        field(&mut document, info, name, value);
    }
    let without_description = document.clone();
    let desc = document.append_element(info, "desc").unwrap();
    let channels = document.append_element(desc, "channels").unwrap();
    for number in 0..256 {
        let channel = document.append_element(channels, "channel").unwrap();
        let label = format!("C{number}");
        for (name, text) in [("label", &*label), ("unit", "microvolts"), ("type", "EEG")] {
            field(&mut document, channel, name, text);
        }
    }
    let vectors: Vectors =
        serde_json::from_str(include_str!("../../tests/vectors/query-match.json")).unwrap();
    let golden = ["A", "B"].map(|name| self::document(&vectors.documents[name].xml_utf8));
    let work = |text: &str, document: &Document| {
        let mut left = MAX_WORK;
        let matched = Query::parse(text).map(|query| {
            let matched = query.matches_within(document, top(document), &mut left);
            matched.expect(text);
        });
        matched.map_or(0, |()| MAX_WORK - left)
    };
    let most = vectors.cases.iter().flat_map(|case| {
        let works = golden.iter().map(|document| work(&case.query, document));
        works.map(|work| (work, case.query.as_str()))
    });
    let (most, dearest) = most.max().unwrap();
    println!("golden queries: at most {most} units ({dearest}), of {CHEAP_WORK}");
    assert!(most * 3 < CHEAP_WORK, "{dearest} needs {most}");
    // As recorders ask for what was ticked, the last one being there.
    let ticked = format!("{} or name='BioSemi'", ["name='Stream'"; 200].join(" or "));
    for text in REAL {
        let [small, large] = [&without_description, &document].map(|document| work(text, document));
        let allowed = costly_work(document.len());
        println!("{small:4} of {CHEAP_WORK}, {large:6} of {allowed}: {text}");
        assert!(small * 4 < CHEAP_WORK, "{text} needs {small}");
        assert!(large * 2 < allowed, "{text} needs {large}");
    }
    let needs = work(&ticked, &without_description);
    let allowed = costly_work(without_description.len());
    println!("{needs} of {allowed}: 200 names");
    assert!(needs > 0 && needs * 2 < allowed, "200 names need {needs}");
    // The query of an attack.
    let mut left = costly_work(document.len());
    let attack = Query::parse(ATTACK).unwrap();
    let ended = attack.matches_within(&document, top(&document), &mut left);
    assert_eq!((ended, left), (Err(EvalError::TooExpensive), 0));
}

/// Queries that programs in the field send, and that people type.
const REAL: &[&str] = &[
    "session_id='default'",
    "session_id='default' and name='BioSemi'",
    "session_id='default' and uid='33333333-3333-4333-8333-333333333333'",
    "session_id='default' and name='BioSemi' and type='EEG' and source_id='src-42' and \
     channel_count='256' and channel_format='float32' and hostname='lab-pc'",
    "name='BioSemi' and count(//info/desc/channels/channel[type='EEG'])=256",
    "starts-with(name,'Bio') and (type='EEG' or type='Markers') and not(hostname='here')",
    "contains(name,'Bio') and nominal_srate>=100 and channel_count<512",
    "desc/channels/channel[label='C255']",
    "//channel[label='C255' and unit='microvolts']",
    "//label='C255'",
    "desc/channels/channel[last()]/label='C255'",
    "count(desc/channels/channel[type='EEG'])>=2",
];

const REAL_FIELDS: [(&str, &str); 16] = [
    ("name", "BioSemi"),
    ("type", "EEG"),
    ("channel_count", "256"),
    ("channel_format", "float32"),
    ("source_id", "src-42"),
    ("nominal_srate", "512.0000000000000"),
    ("version", "1.100000000000000"),
    ("created_at", "123.4560000000000"),
    ("uid", "33333333-3333-4333-8333-333333333333"),
    ("session_id", "default"),
    ("hostname", "lab-pc"),
    ("v4address", "192.168.1.2"),
    ("v4data_port", "16572"),
    ("v4service_port", "16572"),
    ("v6data_port", "16573"),
    ("v6service_port", "16573"),
];

/// Stalled the I/O thread for 180 ms a stream when a number's text cost as little as its bytes.
const ATTACK: &str = "//*[//*[//*[starts-with(1 div 7,'x') or starts-with(1 div 3,'y')]]]";

const SHELF: &str = r#"<info xml:lang="en-GB" xmlns="urn:d" xmlns:p="urn:p">
<a id="1"><b>1</b><b>2</b><c><b>3</b></c></a>
<a id="2" p:k="v"><b>4</b>x<b>5</b>y</a>
<p:e><p:f>  two   words </p:f><g>h:i</g></p:e>
<n>10</n><n>-0.5</n><n> 7 </n><n>abc</n><n/>
<t>über</t><m>pre<![CDATA[<raw>]]>post</m>
<and>1</and><or>2</or><div>6</div><mod>4</mod><text>t</text>
</info>"#;

#[test]
fn a_stale_context_is_an_error() {
    let mut document = document(SHELF);
    let first = document.first_child(top(&document)).unwrap();
    assert!(document.remove(first));
    for text in ["", "true()", "a"] {
        let query = Query::parse(text).unwrap();
        assert_eq!(
            query.matches(&document, first),
            Err(EvalError::NoContext),
            "{text}"
        );
    }
}

#[test]
fn quoted_values_are_themselves() {
    let values = [
        "",
        "EEG",
        "O'Brien",
        "\"q\"",
        "'",
        "'\"",
        "\"'",
        "a'b\"c'd\"\"''e",
        "ä'ö\"ü",
    ];
    for value in values {
        let mut document = Document::new();
        let info = document.append_element(document.root(), "info").unwrap();
        let name = document.append_element(info, "name").unwrap();
        document.append_text(name, value).unwrap();
        let quoted = quote(value);
        let query = Query::parse(format!("name={quoted} and 1=1")).expect(&quoted);
        assert_eq!(query.matches(&document, info), Ok(true), "{quoted}");
        assert_eq!(quote_bytes(value.as_bytes()), quoted.as_bytes());
    }
    assert_eq!(quote("EEG"), "'EEG'");
    assert_eq!(quote_bytes(b"\xff'"), b"\"\xff'\"");
}

#[test]
fn the_cache_keeps_what_is_used() {
    let mut cache = QueryCache::new(2);
    let first = cache.parse("a").unwrap();
    cache.parse("b").unwrap();
    assert!(Arc::ptr_eq(&first, &cache.parse("a").unwrap()));
    cache.parse("c").unwrap();
    assert_eq!(cache.len(), 2);
    assert!(
        Arc::ptr_eq(&first, &cache.parse("a").unwrap()),
        "the oldest had to go, not this one"
    );
    assert!(cache.parse("a b").is_err());
    assert_eq!(cache.len(), 2, "errors are not remembered");
    let mut none = QueryCache::new(0);
    assert_eq!(none.parse("a").unwrap().text(), b"a");
    assert!(none.is_empty());
}

#[test]
fn the_test_builder_builds() {
    let document = document(SHELF);
    let info = top(&document);
    assert_eq!(document.kind(info), Some(NodeKind::Element));
    assert_eq!(document.attributes(info).len(), 3);
    assert_eq!(document.children(info).count(), 15);
}
