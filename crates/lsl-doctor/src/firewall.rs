//! Rules of packet filters, as the commands of the system print them: which chains drop something. They give
//! remedies their words; that a filter drops LSL is never concluded from them.

pub mod windows;

use serde_json::Value;

use crate::observe::{Chain, Hook, Manager};

/// Returns the base chains of `nft -j list ruleset` that drop something; `None` if it is no such text.
pub fn nft_chains(text: &str) -> Option<Vec<Chain>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let entries = value.get("nftables")?.as_array()?;
    let rules: Vec<&Value> = entries
        .iter()
        .filter_map(|entry| entry.get("rule"))
        .collect();
    let base = entries.iter().filter_map(|entry| {
        let chain = entry.get("chain")?;
        let family = text_of(chain, "family");
        let hook = match text_of(chain, "hook") {
            "input" => Hook::Input,
            "output" => Hook::Output,
            _ => return None,
        };
        let (table, name) = (text_of(chain, "table"), text_of(chain, "name"));
        let drops_by_policy = text_of(chain, "policy") == "drop";
        let is_ip = matches!(family, "inet" | "ip" | "ip6");
        let drops = drops_by_policy || drops(&rules, (family, table), name, DEEPEST);
        (is_ip && drops && [table, name].iter().all(|name| is_name(name))).then(|| Chain {
            family: family.to_owned(),
            table: table.to_owned(),
            name: name.to_owned(),
            hook,
            drops_by_policy,
        })
    });
    Some(base.collect())
}

/// Returns who made these chains, if nobody else is known to.
pub fn manager_of(chains: &[Chain]) -> Manager {
    let is_iptables =
        |chain: &Chain| chain.table == "filter" && matches!(&*chain.name, "INPUT" | "OUTPUT");
    if !chains.is_empty() && chains.iter().all(is_iptables) {
        Manager::Iptables
    } else {
        Manager::Nftables
    }
}

/// Returns whether `/etc/ufw/ufw.conf` switches ufw on.
pub fn ufw_is_enabled(text: &str) -> bool {
    let value = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("ENABLED="));
    value.is_some_and(|value| {
        value
            .trim_matches(['"', '\'', ' '])
            .eq_ignore_ascii_case("yes")
    })
}

/// Returns the chains of `iptables-save` whose policy is to drop.
pub fn iptables_chains(text: &str, family: &str) -> Vec<Chain> {
    let mut table = "";
    let mut chains = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name.trim();
        }
        for (prefix, hook) in [(":INPUT ", Hook::Input), (":OUTPUT ", Hook::Output)] {
            if table == "filter"
                && line
                    .strip_prefix(prefix)
                    .is_some_and(|rest| rest.starts_with("DROP"))
            {
                chains.push(Chain {
                    family: family.to_owned(),
                    table: table.to_owned(),
                    name: prefix.trim_matches([':', ' ']).to_owned(),
                    hook,
                    drops_by_policy: true,
                });
            }
        }
    }
    chains
}

/// Returns whether a chain, or one that it leads to, drops or rejects something.
fn drops(rules: &[&Value], table: (&str, &str), chain: &str, depth: u32) -> bool {
    let is_of_chain = |rule: &&&Value| {
        (text_of(rule, "family"), text_of(rule, "table")) == table
            && text_of(rule, "chain") == chain
    };
    let mut of_chain = rules.iter().filter(is_of_chain);
    of_chain.any(|rule| {
        let Some(expressions) = rule.get("expr") else {
            return false;
        };
        let mut targets = Vec::new();
        verdicts(expressions, &mut targets)
            || depth > 0
                && targets
                    .iter()
                    .any(|target| drops(rules, table, target, depth - 1))
    })
}

/// Returns whether there is a verdict to drop, and adds the chains that are jumped to.
fn verdicts<'a>(value: &'a Value, targets: &mut Vec<&'a str>) -> bool {
    match value {
        Value::Array(items) => items
            .iter()
            .fold(false, |found, item| verdicts(item, targets) | found),
        Value::Object(fields) => {
            fields
                .iter()
                .fold(false, |found, (name, value)| match name.as_str() {
                    "drop" | "reject" => true,
                    "jump" | "goto" => {
                        targets.extend(value.get("target").and_then(Value::as_str));
                        found
                    }
                    _ => verdicts(value, targets) | found,
                })
        }
        _ => false,
    }
}

fn text_of<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a name can stand in a command as it is.
fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain)
}

/// Chains that lead to chains: no more are followed.
const DEEPEST: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn nft(entries: &str) -> Vec<String> {
        let text = format!(r#"{{"nftables": [{{"metainfo": {{}}}}, {entries}]}}"#);
        let chains = nft_chains(&text).unwrap();
        chains
            .iter()
            .map(|it| format!("{} {} {}", it.family, it.table, it.name))
            .collect()
    }

    const INPUT: &str = r#"{"chain": {"family": "inet", "table": "t", "name": "in", "hook": "input", "policy": "POLICY"}}"#;

    fn rule(chain: &str, expression: &str) -> String {
        format!(
            r#"{{"rule": {{"family": "inet", "table": "t", "chain": "{chain}", "expr": [{expression}]}}}}"#
        )
    }

    #[test]
    fn chains_that_drop() {
        let check = |entries: &[&str], policy: &str, expected: &[&str]| {
            let entries = format!(
                "{}, {}",
                INPUT.replace("POLICY", policy),
                entries.join(", ")
            );
            assert_eq!(nft(entries.trim_end_matches(", ")), expected, "{entries}");
        };
        check(&[], "drop", &["inet t in"]);
        check(&[], "accept", &[]);
        check(&[&rule("in", r#"{"accept": null}"#)], "accept", &[]);
        check(
            &[&rule("in", r#"{"match": {}}, {"drop": null}"#)],
            "accept",
            &["inet t in"],
        );
        check(&[&rule("other", r#"{"drop": null}"#)], "accept", &[]);
        let jump = rule("in", r#"{"jump": {"target": "other"}}"#);
        check(
            &[&jump, &rule("other", r#"{"reject": null}"#)],
            "accept",
            &["inet t in"],
        );
        check(
            &[&jump, &rule("other", r#"{"jump": {"target": "in"}}"#)],
            "accept",
            &[],
        );
        let map = r#"{"vmap": {"key": {}, "data": {"set": [[22, {"accept": null}], [23, {"drop": null}]]}}}"#;
        check(&[&rule("in", map)], "accept", &["inet t in"]);
        assert!(nft_chains("{}").is_none() && nft_chains("Operation not permitted").is_none());
        let odd = INPUT
            .replace("POLICY", "drop")
            .replace("\"in\"", "\"in; rm\"");
        assert_eq!(nft(&odd), [""; 0]);
    }

    #[test]
    fn other_managers() {
        assert!(ufw_is_enabled("# x\nENABLED=yes\n") && !ufw_is_enabled("ENABLED=no\n"));
        let text = "*nat\n:INPUT DROP [0:0]\nCOMMIT\n*filter\n:INPUT DROP [1:2]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n";
        let chains = iptables_chains(text, "ip");
        assert_eq!(chains.len(), 1);
        assert_eq!(manager_of(&chains), Manager::Iptables);
        assert_eq!(manager_of(&[]), Manager::Nftables);
    }
}
