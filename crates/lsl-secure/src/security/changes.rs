//! Changes of a trust list, as an auditor reads them. Spec: audit §1.2.

use crate::audit::{Event, EventKind};
use crate::trust::{Peer, TrustList};

/// Returns an event for each entry that was added, removed or changed: at most 16, the last of which counts the
/// others.
pub fn trust_changes(before: &TrustList, after: &TrustList) -> Vec<Event> {
    let gone = before.peers().iter();
    let gone = gone.filter(|peer| after.find(&peer.key).is_none());
    let new = after.peers().iter().filter_map(|peer| {
        let was = before.find(&peer.key);
        let action = was.map_or("added", |_| "changed");
        (was != Some(peer)).then_some((action, peer))
    });
    let changes: Vec<_> = gone.map(|peer| ("removed", peer)).chain(new).collect();
    let others = changes.len().saturating_sub(MAX_EVENTS) as u64;
    let told = changes.into_iter().take(MAX_EVENTS);
    let mut events: Vec<Event> = told.map(|(action, peer)| event(action, peer)).collect();
    if others > 0
        && let Some(last) = events.pop()
    {
        events.push(last.with("others", others));
    }
    events
}

fn event(action: &str, peer: &Peer) -> Event {
    let event = Event::new(EventKind::TrustChanged)
        .peer(peer.key.fingerprint())
        .peer_name(peer.name.as_str())
        .with("action", action)
        .with("trust_role", peer.role.name());
    let event = match peer.not_after {
        Some(day) => event.with("not_after", day.to_string().as_str()),
        None => event,
    };
    if peer.from.is_empty() {
        return event;
    }
    let from = peer.from.iter().take(MAX_NETWORKS);
    event.with("from", from.map(ToString::to_string).collect::<Vec<_>>())
}

/// So many entries have an event each.
const MAX_EVENTS: usize = 16;
/// So many networks of an entry are told.
const MAX_NETWORKS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SecretKey;
    use crate::trust::TrustedRole;

    fn list(names: &[(u8, TrustedRole)]) -> TrustList {
        let peers = names.iter().map(|(number, role)| Peer {
            name: format!("amp{number}"),
            key: SecretKey::from_seed(&[*number; 32]).public(),
            role: *role,
            not_after: None,
            from: Vec::new(),
            streams: Vec::new(),
        });
        TrustList::from_peers(peers.collect()).unwrap()
    }

    #[test]
    fn what_is_new_gone_or_other_is_told_and_the_rest_counted() {
        let (both, inlet) = (TrustedRole::Both, TrustedRole::Inlet);
        let before = list(&[(1, both), (2, both), (3, both)]);
        let after = list(&[(1, both), (2, inlet), (4, both)]);
        let told = |before: &TrustList, after: &TrustList| -> Vec<String> {
            let events = trust_changes(before, after);
            events
                .iter()
                .map(|it| format!("{:?} {:?}", it.peer_name, it.more))
                .collect()
        };
        let lines = told(&before, &after);
        assert_eq!(lines.len(), 3, "{lines:?}");
        for (line, words) in lines.iter().zip([
            ["amp3", "removed", "both"],
            ["amp2", "changed", "inlet"],
            ["amp4", "added", "both"],
        ]) {
            assert!(words.iter().all(|word| line.contains(word)), "{line}");
        }
        assert!(told(&after, &after).is_empty());
        let many: Vec<_> = (10..40).map(|number| (number, both)).collect();
        let lines = told(&list(&[]), &list(&many));
        assert_eq!(lines.len(), 16);
        assert!(lines[15].contains("(\"others\", Number(14))"), "{lines:?}");
    }
}
