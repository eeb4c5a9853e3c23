//! Changes to a trust file as text: the user's comments and order stay as they are. Blocks are
//! found by their header lines. The caller compares the parsed result with the expected one, so a
//! file that this simple view gets wrong is left alone.

/// Returns the file with one more block at its end.
pub(super) fn append(text: &str, block: &str) -> String {
    let gap = match text {
        "" => "",
        _ if text.ends_with("\n\n") => "",
        _ if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    format!("{text}{gap}{block}")
}

/// Returns the file without its block number `index`; `None` if there is no such block.
///
/// A block is its header, the lines up to its last setting, and comments directly below that.
/// Comments above it stay: they may be the file's own.
pub(super) fn remove(text: &str, index: usize) -> Option<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_header = |line: &&str| header(line) == Some(TableHeader::Peer);
    let start = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| is_header(line))
        .nth(index)?
        .0;
    let body = &lines[start + 1..];
    let next_header = body.iter().position(|line| header(line).is_some());
    let body = &body[..next_header.unwrap_or(body.len())];
    let last_setting = body
        .iter()
        .rposition(|line| !is_blank(line) && !is_comment(line));
    let mut end = last_setting.map_or(0, |at| at + 1);
    // Comments glued to the last setting go with it, unless they are glued to the next header.
    let comments = body[end..]
        .iter()
        .take_while(|line| is_comment(line))
        .count();
    if end + comments < body.len() || next_header.is_none() {
        end += comments;
    }
    let mut end = start + 1 + end;
    // One of the blank lines around it goes too.
    if lines.get(end).is_some_and(|line| is_blank(line)) {
        end += 1;
    }
    let mut rest = [&lines[..start], &lines[end..]].concat();
    if end == lines.len() {
        while rest.last().is_some_and(|line| is_blank(line)) {
            rest.pop();
        }
    }
    Some(rest.concat())
}

/// Returns the file with another role in its block number `index`; `None` if there is no such block.
pub(super) fn set_role(text: &str, index: usize, role: &str) -> Option<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let headers = lines.iter().enumerate();
    let mut headers = headers.filter(|(_, line)| header(line) == Some(TableHeader::Peer));
    let start = headers.nth(index)?.0 + 1;
    let (before, body) = lines.split_at(start);
    let is_role = |line: &&str| {
        let value = line.trim_start().strip_prefix("role");
        value.is_some_and(|value| value.trim_start().starts_with('='))
    };
    let block = body
        .iter()
        .take_while(|line| header(line).is_none())
        .count();
    let (block, after) = body.split_at(block);
    let role = format!("role = \"{role}\"\n");
    let at = block.iter().position(is_role);
    let (first, rest) = block.split_at(at.unwrap_or(0));
    let rest = rest.get(usize::from(at.is_some())..).unwrap_or_default();
    Some([before, first, &[&role], rest, after].concat().concat())
}

#[derive(Debug, PartialEq, Eq)]
enum TableHeader {
    Peer,
    Other,
}

/// Returns the kind of header that a line is, if any. Values in a trust file are short: a line that
/// starts with a bracket inside a list or a long string is possible, and then the comparison fails.
fn header(line: &str) -> Option<TableHeader> {
    let inner = line.trim_start().strip_prefix('[')?;
    let Some(inner) = inner.strip_prefix('[') else {
        return Some(TableHeader::Other);
    };
    let (name, rest) = inner.split_once("]]")?;
    let rest = rest.trim();
    let is_peer = matches!(name.trim(), "peer" | "\"peer\"" | "'peer'");
    let ends = rest.is_empty() || rest.starts_with('#');
    Some(if is_peer && ends {
        TableHeader::Peer
    } else {
        TableHeader::Other
    })
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty()
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = "[[peer]]\nname = \"x\"\nkey = \"k\"\nrole = \"both\"\n";
    const FILE: &str = "\
# The lab's devices.

# the old amplifier
[[peer]]
name = \"amp\"
key = \"a\"   # from its sticker
# from = [\"10.0.0.0/8\"]

[[ peer ]] # recorder
name = \"rec\"
key = \"b\"

# in the basement
  [[peer]]
key = \"c\"
name = \"c\"
";

    #[test]
    fn a_block_is_appended_below_a_blank_line() {
        for (before, gap) in [("", ""), ("# x", "\n\n"), ("# x\n", "\n"), ("# x\n\n", "")] {
            assert_eq!(append(before, BLOCK), format!("{before}{gap}{BLOCK}"));
        }
    }

    #[test]
    fn a_block_is_cut_out_and_comments_above_it_stay() {
        let check = |index, gone: &str| {
            let expected = FILE.replacen(gone, "", 1);
            assert_ne!(expected, FILE);
            assert_eq!(remove(FILE, index).unwrap(), expected, "{index}");
        };
        check(
            0,
            "[[peer]]\nname = \"amp\"\nkey = \"a\"   # from its sticker\n# from = [\"10.0.0.0/8\"]\n\n",
        );
        check(1, "[[ peer ]] # recorder\nname = \"rec\"\nkey = \"b\"\n\n");
        check(2, "  [[peer]]\nkey = \"c\"\nname = \"c\"\n");
        assert_eq!(remove(FILE, 3), None);
        assert_eq!(remove("", 0), None);
    }

    #[test]
    fn a_role_is_changed_where_it_is_or_set_below_the_header() {
        let file = append(FILE, BLOCK);
        let check = |index, before: &str, after: &str| {
            let expected = file.replacen(before, after, 1);
            assert_ne!(expected, file);
            assert_eq!(
                set_role(&file, index, "relay").unwrap(),
                expected,
                "{index}"
            );
        };
        check(3, "role = \"both\"", "role = \"relay\"");
        check(1, "name = \"rec\"", "role = \"relay\"\nname = \"rec\"");
        assert_eq!(set_role(&file, 4, "relay"), None);
    }

    #[test]
    fn what_was_appended_can_be_removed() {
        for before in ["# head\n", FILE] {
            let count = before.lines().filter(|line| line.contains("[[")).count();
            let after = append(before, BLOCK);
            assert_eq!(remove(&after, count).as_deref(), Some(before));
        }
    }

    #[test]
    fn comments_glued_to_the_next_header_belong_to_it() {
        let file = "[[peer]]\nkey = 1\n# next\n[[peer]]\nkey = 2\n";
        assert_eq!(remove(file, 0).unwrap(), "# next\n[[peer]]\nkey = 2\n");
        assert_eq!(remove("[[peer]]\nkey = 1", 0).unwrap(), "");
    }

    #[test]
    fn headers() {
        for (line, expected) in [
            ("[[peer]]", Some(TableHeader::Peer)),
            (" [[ 'peer' ]] # x\n", Some(TableHeader::Peer)),
            ("[[peers]]", Some(TableHeader::Other)),
            ("[[peer.sub]]", Some(TableHeader::Other)),
            ("[table]", Some(TableHeader::Other)),
            ("# [[peer]]", None),
            ("key = \"[[peer]]\"", None),
        ] {
            assert_eq!(header(line), expected, "{line}");
        }
    }
}
