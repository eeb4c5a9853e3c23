//! Logs that tell nobody who was there: what names a person, a machine or a file becomes a hash. Equal texts
//! of one export stay equal. Spec: audit §1.4.

use std::rc::Rc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::filter::Fields;
use super::program::Program;
use crate::failure::{Failure, Outcome};

/// Key of the hashes of one export. It is never written, so that nobody can try names out.
pub(super) struct Pseudonyms([u8; 32]);

impl Pseudonyms {
    pub(super) fn new() -> Outcome<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)
            .map_err(|error| Failure::Runtime(format!("no randomness: {error}")))?;
        Ok(Self(key))
    }

    /// Replaces all texts of a line but those that can only be words of ours.
    pub(super) fn apply(&self, line: &mut Fields) {
        for (key, value) in line {
            if !KEPT.contains(&key.as_str()) {
                self.replace(value);
            }
        }
    }

    /// Returns the program without its name: its build id tells which release it is, not whose.
    pub(super) fn program(&self, program: &Program) -> Rc<Program> {
        let mut program = program.clone();
        if !program.executable.is_empty() {
            program.executable = self.of(&program.executable);
        }
        Rc::new(program)
    }

    fn replace(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.of(text),
            Value::Array(values) => values.iter_mut().for_each(|it| self.replace(it)),
            Value::Object(fields) => fields.values_mut().for_each(|it| self.replace(it)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn of(&self, text: &str) -> String {
        // Connections come from other ports each time.
        let address = text.parse::<std::net::SocketAddr>();
        let text =
            address.map_or_else(|_| text.to_owned(), |it| it.ip().to_canonical().to_string());
        // A key of one block before the text and after it: nothing can be appended.
        let inner = Sha256::new().chain_update(self.0).chain_update(text);
        let hash = Sha256::new()
            .chain_update(self.0)
            .chain_update(inner.finalize());
        let hash = hash.finalize();
        format!(
            "h:{}",
            super::context::hex(hash.get(..8).unwrap_or_default())
        )
    }
}

/// Fields whose texts are ours: they tell what happened, not to whom.
const KEPT: [&str; 21] = [
    "ts",
    "event",
    "span",
    "sid",
    "role",
    "suite",
    "policy",
    "cause",
    "steps",
    "chain",
    "prev",
    "cipher",
    "format",
    "action",
    "operation",
    "trust_role",
    "build_id",
    "lsl_version",
    "state",
    "scheme",
    "vouched",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_there_is_not_told_and_what_happened_is() {
        let line = r#"{"event":"handshake_failed","cause":"timeout","peer_addr":"10.1.0.7:5000","peer_name":"amp1",
            "peer_fp":"SHA256:abc","stream_uid":"u","detail":"amp1 did not answer","seq":4,
            "steps":[["sign",1,2]],"recipients":["age1xyz"],"later_field":"amp1"}"#;
        let read = |changed: &dyn Fn(&str) -> String| -> Fields {
            serde_json::from_str(&changed(line)).unwrap()
        };
        let pseudonyms = Pseudonyms::new().unwrap();
        let hidden = |mut line: Fields| {
            pseudonyms.apply(&mut line);
            line
        };
        let one = hidden(read(&str::to_owned));
        let text = serde_json::to_string(&one).unwrap();
        for secret in ["amp1", "10.1", "5000", "abc", "\"u\"", "age1", "answer"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        for kept in ["handshake_failed", "timeout", "[\"sign\",1,2]", "\"seq\":4"] {
            assert!(text.contains(kept), "{kept} in {text}");
        }
        assert_eq!(one["peer_name"], one["later_field"]);
        assert_eq!(one["peer_name"].as_str().unwrap().len(), 18);
        // The same machine from another port; another export.
        let other = hidden(read(&|line| line.replace(":5000", ":5001")));
        assert_eq!(one["peer_addr"], other["peer_addr"]);
        let mut again = read(&str::to_owned);
        Pseudonyms::new().unwrap().apply(&mut again);
        assert_ne!(one["peer_name"], again["peer_name"]);
    }
}
