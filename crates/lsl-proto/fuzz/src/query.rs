//! Discovery queries, parsed and evaluated on one document. Input: the query.

use std::sync::LazyLock;

use lsl_proto::query::{Query, quote_bytes};
use lsl_proto::xml::{Document, NodeId};

static DOCUMENT: LazyLock<(Document, NodeId)> = LazyLock::new(|| {
    let text = include_bytes!("document.xml");
    let document = lsl_proto::xml::parse(text).expect("a small document");
    let info = document
        .child(document.root(), "info")
        .expect("the document element");
    (document, info)
});

pub fn check(input: &[u8]) {
    let (document, info) = &*DOCUMENT;
    if let Ok(query) = Query::parse(input) {
        let matched = query.matches(document, *info);
        assert_eq!(query.matches(document, *info), matched, "changes its mind");
        // What a resolver makes of it: the conjunction can match only what both parts match.
        let joined = [b"session_id='default' and (", input, b"\n)"].concat();
        if let (Ok(matched), Ok(joined)) = (matched, Query::parse(&joined))
            && !input.trim_ascii().is_empty()
            && let Ok(both) = joined.matches(document, *info)
        {
            assert_eq!(both, matched);
        }
    }
    let literal = quote_bytes(&input[..input.len().min(500)]);
    let same = [literal.as_slice(), b"=", &literal].concat();
    if let Ok(query) = Query::parse(&same) {
        assert_eq!(query.matches(document, *info), Ok(true), "quotes lose text");
    }
}
