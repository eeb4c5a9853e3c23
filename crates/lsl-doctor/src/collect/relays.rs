//! `relay`: each relay of the configuration is asked for all that it knows, as a search asks it.

use std::thread;
use std::time::Duration;

use lsl_core::Error;
use lsl_core::relay::ask_all;

use super::Wishes;
use crate::observe::peers::{RelaySeen, RelayTrouble};

/// Asks all at once. `None` if there is none.
pub(super) fn look(wishes: &Wishes<'_>) -> Option<Vec<RelaySeen>> {
    let limit = Duration::from_secs_f64(LIMIT_SECS * wishes.patience);
    let relays = (0..).zip(wishes.loaded.config.relays());
    let seen: Vec<RelaySeen> = thread::scope(|scope| {
        let ask = |number| scope.spawn(move || ask_all(wishes.context, number, limit));
        let asked: Vec<_> = relays
            .map(|(number, (host, port))| (format!("{host}:{port}"), ask(number)))
            .collect();
        let answers = asked.into_iter().filter_map(|(relay, asking)| {
            let (streams, trouble) = match asking.join().ok()? {
                Ok(streams) => (Some(streams), None),
                Err(error) => (None, Some((kind(&error), error.to_string()))),
            };
            Some(RelaySeen {
                relay,
                streams,
                trouble,
            })
        });
        answers.collect()
    });
    (!seen.is_empty()).then_some(seen)
}

fn kind(error: &Error) -> RelayTrouble {
    match error {
        Error::Security(_) => RelayTrouble::Barred,
        Error::Protocol(_) => RelayTrouble::Foreign,
        _ => RelayTrouble::Unreachable,
    }
}

/// For a dead address of a name with two.
const LIMIT_SECS: f64 = 2.6;
