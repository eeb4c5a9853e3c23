//! What an inlet does when its outlet is gone: which query finds a successor, and what the answers
//! mean. Spec: lsl-protocol §3.5 (recovery row), §10.

use crate::StreamInfo;
use crate::query::quote;

/// The query that finds an outlet of the same stream. It names no session: liblsl does not either.
pub fn recovery_query(info: &StreamInfo) -> String {
    let mut terms = vec![format!("channel_count='{}'", info.channel_count())];
    let texts = [
        ("name", info.name()),
        ("type", info.stream_type()),
        ("source_id", info.source_id()),
    ];
    let texts = texts.iter().filter(|(_, value)| !value.is_empty());
    terms.extend(texts.map(|(key, value)| format!("{key}={}", quote(value))));
    terms.push(format!("channel_format='{}'", info.channel_format()));
    terms.join(" and ")
}

/// What the answers to a recovery query mean.
#[derive(Debug)]
pub enum Verdict {
    /// The outlet we know still lives; reconnect to it. The info carries its present addresses.
    Same(Box<StreamInfo>),
    /// Exactly one other outlet of the stream lives: it is the successor.
    Adopt(Box<StreamInfo>),
    /// Nobody answered, or several did and none is the one we know: ask again.
    AskAgain {
        /// How many answered.
        candidates: usize,
    },
}

/// Judges the answers to a recovery query for the outlet with uid `current`.
pub fn judge(current: &[u8], mut answers: Vec<StreamInfo>) -> Verdict {
    if let Some(index) = answers.iter().position(|info| info.uid_bytes() == current) {
        return Verdict::Same(Box::new(answers.swap_remove(index)));
    }
    match answers.len() {
        1 => Verdict::Adopt(Box::new(answers.swap_remove(0))),
        candidates => Verdict::AskAgain { candidates },
    }
}
