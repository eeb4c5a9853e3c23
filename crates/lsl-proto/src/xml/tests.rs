use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

fn text(document: &Document) -> String {
    let written = String::from_utf8(document.write()).unwrap();
    written
        .strip_prefix("<?xml version=\"1.0\"?>\n")
        .unwrap()
        .to_owned()
}

fn reread(input: &str) -> String {
    text(&parse(input.as_bytes()).unwrap())
}

#[track_caller]
fn check(input: &str, expected: &str) {
    assert_eq!(reread(input), expected, "{input}");
}

#[test]
fn sound_markup() {
    check("<a/>", "<a />\n");
    check("<a></a>", "<a />\n");
    check("<a> \t\r\n</a>", "<a />\n");
    check("<a> x </a>", "<a> x </a>\n");
    check("<a>x\r\ny\rz</a>", "<a>x\ny\nz</a>\n");
    check("<a><b/> <c>1</c></a>", "<a>\n\t<b />\n\t<c>1</c>\n</a>\n");
    check("<a>t<b/></a>", "<a>t<b />\n</a>\n");
    check("<a>x<!-- c -->y<?p i?>z</a>", "<a>xyz</a>\n");
    check("<a><![CDATA[<&]]></a>", "<a><![CDATA[<&]]></a>\n");
    check(
        "<a>&lt;&gt;&amp;&quot;&apos;&#65;&#x41;</a>",
        "<a>&lt;&gt;&amp;\"'AA</a>\n",
    );
    check(
        "<a>&nbsp;&;&#;&#x;&#xZ;&amp</a>",
        "<a>&amp;nbsp;&amp;;&amp;#;&amp;#x;&amp;#xZ;&amp;amp</a>\n",
    );
    check("<a b='1\n2' c=\"&#10;\"/>", "<a b=\"1 2\" c=\"&#10;\" />\n");
    check(
        "<!DOCTYPE a [<!ENTITY x '>'>]> <a/> text <b/>",
        "<a />\n<b />\n",
    );
    check("<a>1</a>\0<b/>", "<a>1</a>\n");
    check("<a>1&#0;2</a>", "<a>1</a>\n");
}

/// Input, document read, offset of the fault.
#[test]
fn broken_markup_keeps_what_came_before() {
    for (input, expected, offset) in [
        ("<a><b>1</b><1/></a>", "<a>\n\t<b>1</b>\n</a>\n", 12),
        ("<a><k=\"v\">x</k></a>", "<a>\n\t<k />\n</a>\n", 6),
        ("<a><b>x</a>", "<a>\n\t<b>x</b>\n</a>\n", 10),
        ("<a>x", "<a>x</a>\n", 4),
        ("<a b", "<a b=\"\" />\n", 4),
        ("<a b=\"1&lt;", "<a b=\"1&lt;\" />\n", 11),
        ("<a b='1'c='2'/>", "<a b=\"1\" />\n", 8),
        ("<a><![CDATA[x", "<a><![CDATA[x]]></a>\n", 13),
        ("<a>1<!-- ", "<a>1</a>\n", 9),
        ("<a><!DOCTYPE b></a>", "<a />\n", 4),
        ("<!DOCTYPE a", "", 11),
        ("</a>", "", 3),
        ("<", "", 1),
    ] {
        let parsed = parse_with(input.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(text(&parsed.document), expected, "{input}");
        assert_eq!(parsed.fault.unwrap().offset, offset, "{input}");
    }
    let sound = parse_with(b" <a b=\"1\">x</a > ", &Limits::default()).unwrap();
    assert_eq!(sound.fault, None);
}

#[test]
fn limits() {
    let limits = Limits {
        bytes: 40,
        depth: 3,
        nodes: 4,
    };
    let check = |input: &str, expected: Result<(), ParseError>| {
        assert_eq!(
            parse_with(input.as_bytes(), &limits).map(drop),
            expected,
            "{input}"
        );
    };
    check("<a><a><a/><a/></a></a>", Ok(()));
    check(&"x".repeat(41), Err(ParseError::TooLong(40)));
    check("<a><a><a><a/>", Ok(()));
    check("<a><a><a><a>", Err(ParseError::TooDeep(3)));
    check("<a><b/><c/><d/><e/></a>", Err(ParseError::TooManyNodes(4)));
    check("<a b='' c='' d='' e=''/>", Err(ParseError::TooManyNodes(4)));
    check("<a>1<b/>2<c/></a>", Err(ParseError::TooManyNodes(4)));
    check(
        "<a><![CDATA[]]><b/>2<c/></a>",
        Err(ParseError::TooManyNodes(4)),
    );
}

#[test]
fn hostile_documents_stay_within_the_default_limits() {
    let limits = Limits::default();
    let deep = "<a>".repeat(1 << 20);
    assert_eq!(
        parse(deep.as_bytes()).unwrap_err(),
        ParseError::TooDeep(limits.depth)
    );
    let wide = "<a/>".repeat(1 << 20);
    assert_eq!(
        parse(wide.as_bytes()).unwrap_err(),
        ParseError::TooManyNodes(limits.nodes)
    );
    let mut attributes = "<a".to_owned();
    for number in 0..1 << 20 {
        let _ = write!(attributes, " a{number}=''");
    }
    assert_eq!(
        parse(attributes.as_bytes()).unwrap_err(),
        ParseError::TooManyNodes(limits.nodes)
    );
    // Each reference is read twice at most: this ends at once or never.
    let entities = format!("<a>{}</a>", "&#1".repeat(1 << 20));
    let document = parse(entities.as_bytes()).unwrap();
    let root = document.child(document.root(), "a").unwrap();
    assert_eq!(document.child_text(root).len(), 3 << 20);
}

/// An application may build what no parser would accept; writing and dropping must not recurse.
#[test]
fn trees_of_any_depth_are_written() {
    let mut document = Document::new();
    let mut at = document.root();
    for _ in 0..100_000 {
        // Text on both sides keeps the writer from indenting, which would cost depth squared.
        document.append_text(at, "x");
        let inner = document.append_element(at, "a").unwrap();
        document.append_text(at, "y");
        at = inner;
    }
    let first = document.child(document.root(), "a").unwrap();
    let written = document.write_node(first);
    assert!(written.starts_with(b"<a>x<a>x<a>x"));
    assert!(written.ends_with(b"</a>y</a>y</a>\n"));
    assert!(document.remove(first));
}

#[test]
fn writing_what_the_api_allows() {
    let mut document = Document::new();
    let top = document.append_element(document.root(), "top").unwrap();
    let anonymous = document.append_element(top, "").unwrap();
    let verbatim = document.append_element(top, "a b<").unwrap();
    document.append_text(verbatim, "").unwrap();
    let marks = document.append_element(top, "marks").unwrap();
    document.append_cdata(marks, "a]]>b").unwrap();
    document
        .append_text(marks, "1\x01\x1f\t\n\r\x7f\0cut")
        .unwrap();
    assert_eq!(
        text(&document),
        "<top>\n\t<:anonymous />\n\t<a b<></a b<>\n\
         \t<marks><![CDATA[a]]]]><![CDATA[>b]]>1&#01;&#31;\t\n\r\x7f</marks>\n</top>\n"
    );
    assert_eq!(document.write_node(anonymous), b"<:anonymous />\n");
    assert_eq!(document.write_node(verbatim), b"<a b<></a b<>\n");
    assert!(document.remove(verbatim));
    assert_eq!(document.write_node(verbatim), b"");
    assert_eq!(Document::new().write(), b"<?xml version=\"1.0\"?>\n");
}

#[test]
fn a_removed_node_is_gone_for_good() {
    let mut document = parse(b"<a><b><c/></b><d/></a>").unwrap();
    let a = document.child(document.root(), "a").unwrap();
    let b = document.child(a, "b").unwrap();
    let c = document.child(b, "c").unwrap();
    assert!(document.remove(b));
    assert_eq!(text(&document), "<a>\n\t<d />\n</a>\n");
    document.append_element(a, "e").unwrap();
    document.prepend_element(a, "f").unwrap();
    assert!(!document.contains(b) && !document.contains(c));
    assert!(!document.remove(b) && !document.set_name(c, "x"));
    assert_eq!(document.append_element(c, "x"), None);
    assert_eq!(text(&document), "<a>\n\t<f />\n\t<d />\n\t<e />\n</a>\n");
    assert_eq!(document.len(), 5);
    assert!(!document.remove(document.root()));
}

#[test]
fn copies_are_deep_and_ordered() {
    let mut document = parse(b"<a><b x='1'>t<c/>u</b></a>").unwrap();
    let a = document.child(document.root(), "a").unwrap();
    let b = document.child(a, "b").unwrap();
    let inside = document.append_copy_within(b, a).unwrap();
    let copied = "<a>\n\t<b x=\"1\">t<c />u</b>\n</a>\n";
    assert_eq!(
        String::from_utf8(document.write_node(inside)).unwrap(),
        copied
    );
    let mut other = Document::new();
    let copy = other.prepend_copy(other.root(), &document, inside).unwrap();
    assert_eq!(text(&other), copied);
    assert_eq!(other.append_copy_within(copy, other.root()), None);
    assert_eq!(
        other
            .prepend_copy_within(copy, copy)
            .map(|top| other.name(top).to_vec()),
        Some(b"a".to_vec())
    );
}

#[test]
fn cursors() {
    let mut document = Document::new();
    let id = document.append_element(document.root(), "desc").unwrap();
    let mut desc = ElementMut::new(&mut document, id).unwrap();
    desc.set("maker", "A").set("maker", "B").set("model", "");
    desc.child("channels")
        .append_child("channel")
        .set("label", "C3");
    desc.child("channels")
        .append_child("channel")
        .set_text("x")
        .set("label", "C4");
    assert!(desc.remove_child("model") && !desc.remove_child("model"));
    let desc = desc.as_ref();
    assert_eq!(desc.get("maker").unwrap(), "B");
    assert_eq!(desc.get("model"), None);
    let channels = desc.child("channels").unwrap();
    assert_eq!(channels.children().count(), 2);
    let labels = channels
        .children_named("channel")
        .filter_map(|channel| channel.get("label"));
    assert_eq!(labels.collect::<Vec<_>>(), ["C3", "C4"]);
    assert_eq!(channels.children().last().unwrap().text(), "x");
    assert!(ElementRef::new(&document, document.root()).is_none());
}

/// One step of building a tree: where (modulo the elements so far), what, and its text.
fn steps() -> impl Strategy<Value = Vec<(usize, u8, String)>> {
    let text = proptest::string::string_regex("[ \t\n\ra-c<>&\"';#\\]\u{1}\u{1f}é]{0,6}").unwrap();
    prop::collection::vec((any::<usize>(), 0..5_u8, text), 0..40)
}

fn build(steps: &[(usize, u8, String)]) -> Document {
    let mut document = Document::new();
    let mut elements = vec![document.append_element(document.root(), "info").unwrap()];
    for (at, what, text) in steps {
        let at = elements[at % elements.len()];
        match what {
            0 => drop(document.append_text(at, text.as_str())),
            1 => drop(document.append_cdata(at, text.as_str())),
            2 => {
                let value = text.clone().into_bytes();
                document.append_attribute(
                    at,
                    Attribute {
                        name: b"k".to_vec(),
                        value,
                    },
                );
            }
            _ => elements.push(document.append_element(at, "e").unwrap()),
        }
    }
    document
}

#[test]
fn the_size_follows_every_change() {
    let mut document = Document::new();
    let root = document.append_element(document.root(), "info").unwrap();
    let before = document.size();
    let child = document.append_element(root, "channel").unwrap();
    document.append_text(child, "x".repeat(1_000));
    let value = b"v".repeat(500);
    let attribute = Attribute {
        name: b"k".to_vec(),
        value,
    };
    assert!(document.append_attribute(child, attribute));
    let full = document.size();
    assert!(full > before + 1_500, "{full} after {before}");
    let copy = document.append_copy_within(root, child).unwrap();
    assert!(document.size() > full + 1_500);
    assert!(document.remove(copy));
    assert!(document.set_name(child, "y".repeat(3_000)));
    assert!(document.size() > full + 2_500);
    assert!(document.remove(child));
    // Only places of nodes are left, which are used again.
    assert!(document.size() < before + 2_000, "{}", document.size());
}

proptest! {
    #[test]
    fn written_trees_are_read_to_the_end_and_settle(steps in steps()) {
        let first = build(&steps).write();
        let parsed = parse_with(&first, &Limits::default()).unwrap();
        prop_assert_eq!(parsed.fault, None);
        // A parse may merge and normalise texts; after that nothing changes any more.
        let second = parse(&parsed.document.write()).unwrap().write();
        let third = parse(&second).unwrap().write();
        prop_assert_eq!(String::from_utf8(second), String::from_utf8(third));
    }

    #[test]
    fn any_bytes_are_read(input in prop::collection::vec(any::<u8>(), 0..200)) {
        let document = parse(&input).unwrap();
        prop_assert!(document.len() <= input.len() + 1);
    }

    #[test]
    fn any_markup_is_read_and_written(input in "[<>/!?\\[\\]\\-&;#x=\"'a \r\nCDATOYPE]{0,80}") {
        let document = parse(input.as_bytes()).unwrap();
        prop_assert!(document.write().len() < 40 * (input.len() + 1));
    }
}
