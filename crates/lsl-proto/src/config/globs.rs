//! Lists of patterns for names, as `multicast.InterfaceNames` has them. Spec: doctor §2.1.

/// Returns whether a list of patterns allows a name: the first that matches decides. A list without a match allows
/// what it says nothing of, if all that it says is what it denies.
pub fn allows(patterns: &[String], name: &str) -> bool {
    let name: Vec<char> = name.to_lowercase().chars().collect();
    let decides = |pattern: &&String| {
        let pattern: Vec<char> = bare(pattern).to_lowercase().chars().collect();
        matches(&pattern, &name)
    };
    let is_denial = |pattern: &String| bare(pattern) != pattern;
    match patterns.iter().find(decides) {
        Some(first) => !is_denial(first),
        None => patterns.iter().all(is_denial),
    }
}

fn bare(pattern: &str) -> &str {
    pattern.strip_prefix('!').unwrap_or(pattern)
}

/// Matches by steps that do not grow with powers of the text: only the last star is tried again.
fn matches(pattern: &[char], name: &[char]) -> bool {
    let (mut rest, mut left) = (pattern, name);
    let mut star: Option<(&[char], &[char])> = None;
    loop {
        match (rest, left) {
            (['*', after @ ..], _) => {
                star = Some((after, left));
                rest = after;
                continue;
            }
            ([], []) => return true,
            (_, [first, others @ ..]) => {
                if let Some(after) = one(rest, *first) {
                    (rest, left) = (after, others);
                    continue;
                }
            }
            _ => {}
        }
        // One character more for the last star.
        match star {
            Some((after, [_, others @ ..])) => {
                star = Some((after, others));
                (rest, left) = (after, others);
            }
            _ => return false,
        }
    }
}

/// Returns what is left of a pattern behind its part for one character, if that fits.
fn one(pattern: &[char], name: char) -> Option<&[char]> {
    match pattern {
        ['[', set @ ..] if set.contains(&']') => {
            let end = set.iter().position(|it| *it == ']')?;
            let (set, after) = (set.get(..end)?, set.get(end + 1..)?);
            let is_range =
                |it: &[char]| matches!(it, [from, '-', to] if (*from..=*to).contains(&name));
            let fits = set.contains(&name) || set.windows(3).any(is_range);
            fits.then_some(after)
        }
        ['?', after @ ..] => Some(after),
        [literal, after @ ..] if *literal == name => Some(after),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_match_decides() {
        for (list, name, expected) in [
            ("", "eth0", true),
            ("eth*", "eth0", true),
            ("eth*", "wlan0", false),
            ("!tun*", "tun0", false),
            ("!tun*", "eth0", true),
            ("!eth1,eth*", "eth1", false),
            ("!eth1,eth*", "eth10", true),
            ("eth*,!eth1", "eth1", true),
            ("ETH?", "eth0", true),
            ("eth?", "eth10", false),
            ("eth[0-2]", "eth2", true),
            ("eth[0-2]", "eth3", false),
            ("eth[13]", "eth3", true),
            ("eth[", "eth[", true),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybz", false),
            ("*Wi-Fi*", "wi-fi 2", true),
            ("", "", true),
            ("*", "", true),
            ("?", "", false),
        ] {
            let list = list.split(',').filter(|it| !it.is_empty());
            let list: Vec<String> = list.map(str::to_owned).collect();
            assert_eq!(allows(&list, name), expected, "{list:?} {name}");
        }
        let stars = vec!["*a".repeat(200)];
        assert!(!allows(&stars, &"a".repeat(199)));
    }
}
