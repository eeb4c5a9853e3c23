//! `relay`: each relay of the configuration is asked for all that it knows, as a search asks it. One that does not
//! tell all of it in time is no trouble: that is not known.

use std::thread;
use std::time::Duration;

use lsl_core::Error;
use lsl_core::relay::ask_all;

use super::Wishes;
use super::budget::Budget;
use crate::observe::peers::{RelaySeen, RelayTrouble};

/// Asks all at once. `None` if there is none.
pub(super) fn look(wishes: &Wishes<'_>, budget: &Budget) -> Option<Vec<RelaySeen>> {
    let limit = Duration::from_secs_f64(LIMIT_SECS * wishes.patience);
    let relays = (0..).zip(wishes.loaded.config.relays());
    let relays = relays.filter(|_| budget.connections(MOST_ADDRESSES) > 0);
    let seen: Vec<RelaySeen> = thread::scope(|scope| {
        let ask = |number| scope.spawn(move || ask_all(wishes.context, number, limit, wishes.stop));
        let asked: Vec<_> = relays
            .map(|(number, (host, port))| (format!("{host}:{port}"), ask(number)))
            .collect();
        let answers = asked.into_iter().filter_map(|(relay, asking)| {
            let (streams, trouble) = match asking.join().ok()? {
                Ok(streams) => (Some(streams), None),
                Err(error) => (None, kind(&error).map(|it| (it, error.to_string()))),
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

/// What an error says of a relay. Only an address that does not answer at all is one that cannot be reached.
fn kind(error: &Error) -> Option<RelayTrouble> {
    match error {
        Error::Timeout { operation } if *operation != "connect" => None,
        Error::Security(_) => Some(RelayTrouble::Barred),
        Error::Protocol(_) => Some(RelayTrouble::Foreign),
        _ => Some(RelayTrouble::Unreachable),
    }
}

/// For a dead address of a name with two, which takes three seconds.
const LIMIT_SECS: f64 = 4.0;
/// Of a name, at most.
const MOST_ADDRESSES: usize = 8;

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn what_was_not_told_in_time_is_no_trouble() {
        let late = |operation| kind(&Error::Timeout { operation });
        assert_eq!(late("watch"), None);
        assert_eq!(late("connect"), Some(RelayTrouble::Unreachable));
        let refused = Error::io("relay amp", io::ErrorKind::ConnectionRefused.into());
        assert_eq!(kind(&refused), Some(RelayTrouble::Unreachable));
        let foreign = Error::Protocol("it is no relay".into());
        assert_eq!(kind(&foreign), Some(RelayTrouble::Foreign));
    }
}
