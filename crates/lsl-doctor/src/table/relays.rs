//! Relays that tell of no streams. Spec: relay §13

use super::Cause;
use crate::observe::peers::RelayTrouble;
use crate::observe::{Observations, Place};
use crate::remedy::Remedy;

pub(super) fn off(seen: &Observations) -> Option<Cause> {
    let advice = "`lsl relay` has to run there, and TCP to its port to be let in; else take it out of lab.Relay here";
    cause(seen, RelayTrouble::Unreachable, |relay, text| {
        let says = format!("The relay {relay} cannot be reached: {text}.");
        (says, there(seen, advice))
    })
}

pub(super) fn foreign(seen: &Observations) -> Option<Cause> {
    let advice = "correct lab.Relay of the configuration, or update the relay: `lsl relay` says its port when it starts";
    cause(seen, RelayTrouble::Foreign, |relay, text| {
        let says = format!("{relay} answers, and not as a relay: {text}.");
        (says, Remedy::advice(seen, advice))
    })
}

pub(super) fn barred(seen: &Observations) -> Option<Cause> {
    const INIT: &str = "lsl key init";
    cause(seen, RelayTrouble::Barred, |relay, text| {
        let says = format!("Encryption keeps this machine from the relay {relay}: {text}.");
        // Other words may be the relay's: no command is made of them.
        let remedy = if text.ends_with(INIT) {
            Remedy::command(seen, INIT.to_owned())
        } else {
            Remedy::advice(
                seen,
                "both have to trust each other: `lsl key show` on each says what to type on the other",
            )
        };
        (says, remedy)
    })
}

/// The first relay with this trouble, and how many more have it.
fn cause(
    seen: &Observations,
    trouble: RelayTrouble,
    says: impl Fn(&str, &str) -> (String, Remedy),
) -> Option<Cause> {
    let all = seen.relays.iter().flatten();
    let troubled = all.filter_map(|it| {
        let (_, text) = it.trouble.as_ref().filter(|(kind, _)| *kind == trouble)?;
        Some((&*it.relay, &**text))
    });
    let all: Vec<(&str, &str)> = troubled.collect();
    let (relay, text) = all.first()?;
    let (says, remedy) = says(relay, text);
    let more = all
        .iter()
        .skip(1)
        .map(|(relay, text)| format!("{relay}: {text}"));
    Some(Cause {
        subject: (*relay).to_owned(),
        text: says,
        seen: more.collect(),
        remedies: vec![remedy],
        ..Cause::default()
    })
}

fn there(seen: &Observations, advice: &str) -> Remedy {
    Remedy {
        place: Place::There,
        ..Remedy::advice(seen, advice)
    }
}
