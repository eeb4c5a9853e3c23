//! Takes names out of a report before it is sent to somebody: the same name is the same `host-3` all over, and what
//! it was stands nowhere. Spec: doctor §3.5
//!
//! Addresses stay: without them nothing can be told. Those that contain a MAC lose it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use serde_json::Value;

use crate::observe::{Observations, StreamSeen, host_and_port};

/// Names, and what stands in their place.
#[derive(Debug, Default)]
pub struct Names {
    by_text: BTreeMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
}

impl Names {
    /// Collects what observations name: hosts, streams, sources, sessions.
    pub fn of(seen: &Observations) -> Self {
        let mut names = Self::default();
        let wave = seen.wave.iter().flat_map(|it| &it.streams);
        let found = seen.found.iter().chain(&seen.own_streams).flatten();
        for stream in wave.chain(found) {
            names.stream(stream);
        }
        for stream in seen.probed.iter().flatten() {
            names.add("host", &stream.hostname);
            names.add("stream", &stream.name);
            names.add("uid", &stream.uid);
        }
        for host in &seen.asked.hosts {
            if !host.is_network() {
                names.add("host", host_and_port(&host.text).0);
            }
        }
        match seen.asked.stream.as_ref().map(|it| (&it.field, &it.text)) {
            Some((Some((_, value)), _)) => names.add("stream", value),
            Some((None, text)) => names.add("predicate", text),
            None => {}
        }
        names.add("session", &seen.asked.session);
        names
    }

    fn stream(&mut self, stream: &StreamSeen) {
        self.add("host", &stream.hostname);
        self.add("stream", &stream.name);
        self.add("source", &stream.source_id);
        self.add("session", &stream.session);
        self.add("uid", &stream.uid);
    }

    /// Adds a name of a kind: `host`, `user`.
    pub fn add(&mut self, kind: &'static str, text: &str) {
        let is_telling = !text.is_empty() && text != "default" && text.parse::<IpAddr>().is_err();
        if is_telling && !self.by_text.contains_key(text) {
            let token = self.token(kind);
            self.by_text.insert(text.to_owned(), token);
        }
    }

    fn token(&mut self, kind: &'static str) -> String {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        format!("{kind}-{count}")
    }

    /// Replaces names in all texts of a document; its members keep theirs.
    pub fn redact(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|it| self.redact(it)),
            Value::Object(members) => members.values_mut().for_each(|it| self.redact(it)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Replaces names where they stand as words, the longest first, then keys and MACs.
    fn text(&mut self, text: &str) -> String {
        let mut names: Vec<(&String, &String)> = self.by_text.iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut before = None;
        while let Some(next) = rest.chars().next() {
            let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
            let stands = |name: &str| {
                let behind = rest.strip_prefix(name)?;
                if is_number(name) && !stands_alone(name, before, behind) {
                    return None;
                }
                let first = name.chars().next();
                let last = name.chars().next_back();
                let begins = !is_word(before) || !is_word(first);
                let ends = !is_word(behind.chars().next()) || !is_word(last);
                (begins && ends).then_some(behind)
            };
            let found = names
                .iter()
                .find_map(|(name, token)| Some((stands(name)?, *token)));
            if let Some((behind, token)) = found {
                out.push_str(token);
                rest = behind;
                before = Some('0');
            } else {
                out.push(next);
                before = Some(next);
                rest = rest.get(next.len_utf8()..).unwrap_or_default();
            }
        }
        self.words(&out)
    }

    /// Replaces words that tell by their form what they are.
    fn words(&mut self, text: &str) -> String {
        let is_part =
            |c: char| c.is_alphanumeric() || matches!(c, ':' | '-' | '+' | '/' | '=' | '%');
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(length);
            out.push_str(&self.word(word));
            let mut others = behind.chars();
            out.extend(others.next());
            rest = others.as_str();
        }
        out
    }

    fn word(&mut self, word: &str) -> String {
        if let Some(token) = self.by_text.get(word).filter(|_| !is_number(word)) {
            return token.clone();
        }
        let is_key = ["lsl-ed25519:", "SHA256:"]
            .iter()
            .any(|it| word.starts_with(it));
        let parts: Vec<&str> = word.split([':', '-']).collect();
        let is_byte =
            |part: &&str| part.len() == 2 && part.bytes().all(|it| it.is_ascii_hexdigit());
        let kind = if is_key {
            "key"
        } else if parts.len() == 6 && parts.iter().all(is_byte) {
            "mac"
        } else {
            return without_mac(word).unwrap_or_else(|| word.to_owned());
        };
        self.add(kind, word);
        self.by_text.get(word).cloned().unwrap_or_default()
    }
}

fn is_number(name: &str) -> bool {
    name.bytes().all(|it| it.is_ascii_digit() || it == b'.')
}

/// Whether a number is a name where it stands: as all there is or in quotes, a longer one also as a word. Others mean
/// too much else.
fn stands_alone(number: &str, before: Option<char>, behind: &str) -> bool {
    let mut after = behind.chars();
    let (next, then) = (after.next(), after.next());
    let joins = |c: Option<char>| c.is_some_and(|c| ".:/-%".contains(c));
    let is_part = joins(before) || joins(next) && then.is_some_and(char::is_alphanumeric);
    before == next && before.is_none_or(|c| c == '"' || c == '\'')
        || number.len() >= LONG_NUMBER && !is_part
}

/// As long as a number of a patient may be; counts and times of the doctor are shorter.
const LONG_NUMBER: usize = 4;

/// An IPv6 address that was made from a MAC, without it.
fn without_mac(word: &str) -> Option<String> {
    let (address, zone) = word.split_once('%').unwrap_or((word, ""));
    let mut octets = address.parse::<Ipv6Addr>().ok()?.octets();
    if octets.get(11..13)? != [0xff, 0xfe] {
        return None;
    }
    octets.get_mut(8..)?.fill(0);
    let zone = if zone.is_empty() {
        String::new()
    } else {
        format!("%{zone}")
    };
    Some(format!("{}{zone}", Ipv6Addr::from(octets)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::observe::HostAsked;

    #[test]
    fn no_name_is_left() {
        let found = vec![StreamSeen {
            uid: "6f2c-uid".into(),
            name: "Patient Meyer".into(),
            source_id: "amp-4711".into(),
            hostname: "ward3-pc".into(),
            session: "icu".into(),
            ..StreamSeen::default()
        }];
        let seen = Observations {
            found: Some(found),
            ..Observations::default()
        };
        let mut names = Names::of(&seen);
        names.add("user", "meyer");
        let mut value = json!({
            "host": "ward3-pc",
            "text": "\"Patient Meyer\" on ward3-pc.local, session icu; not ward3-pcx",
            "path": "/lab/meyer/lsl_api/lsl_api.cfg",
            "list": ["amp-4711", "6f2c-uid", "02:11:22:aa:bb:cc", "lsl trust add x lsl-ed25519:AbC+/="],
            "key": "SHA256:abc ",
            "address": ["fe80::11:22ff:feaa:bbcc%eth0", "10.50.0.1:16572", "fe80::1"],
            "number": 7,
        });
        names.redact(&mut value);
        let text = value.to_string();
        for secret in [
            "Patient", "Meyer", "meyer", "amp-4711", "6f2c", "icu", "aa:bb", "AbC", "SHA256",
            "aabb", "bbcc",
        ] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        assert_eq!(value["host"], "host-1");
        assert_eq!(
            value["text"],
            "\"stream-1\" on host-1.local, session session-1; not ward3-pcx"
        );
        assert_eq!(value["path"], "/lab/user-1/lsl_api/lsl_api.cfg");
        assert_eq!(
            value["address"],
            json!(["fe80::%eth0", "10.50.0.1:16572", "fe80::1"])
        );
    }

    #[test]
    fn addresses_that_were_named_stay_without_their_mac() {
        let mut seen = Observations::default();
        for text in ["fe80::1", "[fd50::2]:16572", "ward3:16572", "10.1.2.0/24"] {
            seen.asked.hosts.push(HostAsked {
                text: text.into(),
                addresses: Vec::new(),
            });
        }
        let mut value = json!([
            "fe80::1",
            "fe80::11:22ff:feaa:bbcc",
            "fd50::2",
            "ward3",
            "10.1.2.0/24"
        ]);
        Names::of(&seen).redact(&mut value);
        assert_eq!(
            value,
            json!(["fe80::1", "fe80::", "fd50::2", "host-1", "10.1.2.0/24"])
        );
    }

    #[test]
    fn numbers_are_names_where_they_stand_alone() {
        let mut names = Names::default();
        names.add("session", "7");
        names.add("stream", "4711");
        names.add("host", "10.50.0.1");
        for (text, expected) in [
            ("7", "session-1"),
            (
                "in session \"7\", not 7 of 17",
                "in session \"session-1\", not 7 of 17",
            ),
            (
                "4711 on pc, name='4711'.",
                "stream-1 on pc, name='stream-1'.",
            ),
            ("see 4711. 10.50.0.1:4711", "see stream-1. 10.50.0.1:4711"),
            ("TCP 4711-4720, 47110", "TCP 4711-4720, 47110"),
        ] {
            let mut value = json!(text);
            names.redact(&mut value);
            assert_eq!(value, expected);
        }
    }
}
