//! The exports of the crate, against `public-api.txt`: who changes what programs see, changes both.

use std::collections::BTreeSet;

#[test]
fn exports_exactly_what_is_listed() {
    let listed = include_str!("../../public-api.txt").lines();
    let listed: BTreeSet<String> = listed.map(str::to_owned).collect();
    assert_eq!(exported(include_str!("../../src/lib.rs")), listed);
}

/// Names after `pub use` in a crate root, with the public module they are in.
fn exported(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut module = String::new();
    for item in source.split("pub ").skip(1) {
        if let Some(rest) = item.strip_prefix("mod ") {
            let (name, _) = rest.split_once(" {").unwrap();
            module = format!("{name}::");
        } else {
            let (tree, rest) = item.strip_prefix("use ").unwrap().split_once(';').unwrap();
            let list = tree
                .rsplit_once('{')
                .map_or(tree, |(_, list)| list.trim_end_matches('}'));
            for name in list.split(',').map(str::trim).filter(|it| !it.is_empty()) {
                let name = name.rsplit([':', ' ']).next().unwrap();
                names.insert(format!("{module}{name}"));
            }
            if rest.contains("\n}") {
                module.clear();
            }
        }
    }
    names
}
