//! Properties: cuts change nothing, no change goes unnoticed, and no sequence of actions delivers
//! what was not sent.

use proptest::prelude::*;

use super::*;

/// Actions that a peer may take.
#[derive(Debug, Clone)]
enum Action {
    Data(Vec<u8>),
    Update,
    Ping(f64),
    Pong([f64; 3]),
    Descriptor(Vec<u8>),
    Close,
    Alert(Cause, String),
}

fn action() -> impl Strategy<Value = Action> {
    let bytes = prop::collection::vec(any::<u8>(), 0..300);
    prop_oneof![
        8 => bytes.clone().prop_map(Action::Data),
        1 => (16_000_usize..40_000).prop_map(|len| Action::Data(vec![3; len])),
        2 => Just(Action::Update),
        2 => (-1e9..1e9).prop_map(Action::Ping),
        2 => (-1e9..1e9).prop_map(|t| Action::Pong([t, t + 1.0, t + 2.0])),
        2 => bytes.prop_map(Action::Descriptor),
        1 => Just(Action::Close),
        1 => ".{0,300}".prop_map(|text| Action::Alert(Cause::Busy, text)),
    ]
}

fn perform(action: &Action, sealer: &mut Sealer, wire: &mut Vec<u8>) -> Result<()> {
    match action {
        Action::Data(bytes) => sealer.seal_data(bytes, NOW, wire),
        Action::Update => sealer.seal_key_update(wire),
        Action::Ping(t0) => sealer.seal_ping(*t0, wire),
        Action::Pong(times) => sealer.seal_pong(*times, wire),
        Action::Descriptor(payload) => sealer.seal_descriptor(payload, wire),
        Action::Close => sealer.seal_close(wire),
        Action::Alert(cause, text) => sealer.seal_alert(*cause, text, wire),
    }
}

/// The rules of one direction, in the words of LSS/1 §8.1.
struct Model {
    role: Role,
    introduced: bool,
    ended: bool,
}

impl Model {
    fn allows(&self, action: &Action) -> bool {
        let outlet = self.role == Role::Outlet;
        !self.ended
            && match action {
                Action::Descriptor(_) => outlet && !self.introduced,
                Action::Alert(..) => true,
                Action::Ping(_) => !outlet,
                Action::Pong(_) => outlet && self.introduced,
                Action::Data(_) | Action::Update | Action::Close => self.introduced,
            }
    }

    /// Performs the action and returns the events that the other side must see.
    fn perform(&mut self, action: &Action) -> Vec<Event> {
        match action {
            Action::Data(bytes) => bytes
                .chunks(MAX_PAYLOAD)
                .map(|b| Event::Data(b.into()))
                .collect(),
            Action::Update => vec![],
            Action::Ping(t0) => vec![Event::Ping(*t0)],
            Action::Pong(times) => vec![Event::Pong(*times)],
            Action::Descriptor(payload) => {
                self.introduced = true;
                vec![Event::Descriptor(payload.clone())]
            }
            Action::Close => {
                self.ended = true;
                vec![Event::Close]
            }
            Action::Alert(cause, text) => {
                self.ended = true;
                let end = (0..=text.len().min(255))
                    .rev()
                    .find(|&end| text.is_char_boundary(end));
                vec![Event::Alert(*cause, text[..end.unwrap()].to_owned())]
            }
        }
    }
}

fn joined(events: &[Event]) -> Vec<Event> {
    let mut joined: Vec<Event> = Vec::new();
    for event in events {
        match (joined.last_mut(), event) {
            (Some(Event::Data(before)), Event::Data(bytes)) => before.extend_from_slice(bytes),
            _ => joined.push(event.clone()),
        }
    }
    joined
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_actions_follows_the_model(
        outlet in any::<bool>(),
        aes in any::<bool>(),
        pad_to in prop::sample::select(vec![0_u16, 0, 16, 256, 4096]),
        actions in prop::collection::vec(action(), 0..14),
        cuts in prop::collection::vec(1_usize..5000, 0..40),
    ) {
        let role = if outlet { Role::Outlet } else { Role::Inlet };
        let suite = SUITES[usize::from(aes)];
        let (mut sealer, mut opener) = direction(suite, role, pad_to);
        let mut model = Model { role, introduced: !outlet, ended: false };
        let (mut wire, mut expected) = (Vec::new(), Vec::new());
        for action in &actions {
            let before = wire.len();
            let sealed = perform(action, &mut sealer, &mut wire);
            prop_assert_eq!(sealed.is_ok(), model.allows(action), "{:?}", action);
            if sealed.is_ok() {
                expected.extend(model.perform(action));
            } else {
                prop_assert_eq!(wire.len(), before);
            }
        }
        let (events, received) = open_in_pieces(&mut opener, &wire, NOW, &cuts);
        let alerted = matches!(expected.last(), Some(Event::Alert(..)));
        prop_assert_eq!(received.is_err(), alerted);
        prop_assert_eq!(joined(&events), joined(&expected));
        let closed = matches!(expected.last(), Some(Event::Close));
        prop_assert_eq!(opener.end().is_ok(), closed);
        prop_assert_eq!(sealer.totals(), opener.totals());
    }

    #[test]
    fn arbitrary_bytes_never_open(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        cuts in prop::collection::vec(1_usize..200, 0..40),
        outlet in any::<bool>(),
    ) {
        let role = if outlet { Role::Outlet } else { Role::Inlet };
        let (_, mut whole) = direction(Suite::ChaCha20Poly1305, role, 0);
        let (events, at_once) = open(&mut whole, &bytes);
        prop_assert!(events.is_empty());
        let (_, mut cut) = direction(Suite::ChaCha20Poly1305, role, 0);
        let (events, in_pieces) = open_in_pieces(&mut cut, &bytes, NOW, &cuts);
        prop_assert!(events.is_empty());
        prop_assert_eq!(cause_of(at_once), cause_of(in_pieces));
        prop_assert!(whole.end().is_err());
    }

    #[test]
    fn a_change_ends_the_session_after_a_prefix(
        change in change(),
        pick in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
        cut in 1_usize..100,
    ) {
        check_change(&change, pick.index(8), other.index(8), cut);
    }
}

/// Changes that an attacker makes to whole records.
#[derive(Debug, Clone)]
enum Change {
    Duplicate,
    Delete,
    Swap,
    Replay,
    /// A record of the other direction of the same session.
    Reflect,
    /// A record of another session, at the same place.
    Splice,
    /// One record cut short, its length field adapted.
    Shorten,
    /// A bit of any byte.
    Flip(prop::sample::Index, u8),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::Duplicate),
        Just(Change::Delete),
        Just(Change::Swap),
        Just(Change::Replay),
        Just(Change::Reflect),
        Just(Change::Splice),
        Just(Change::Shorten),
        (any::<prop::sample::Index>(), 0_u8..8).prop_map(|(at, bit)| Change::Flip(at, bit)),
    ]
}

/// Eight records under one key, or under two if `updated`.
fn eight_records(seed: u8) -> Vec<Vec<u8>> {
    let mut sealer = Sealer::new(Suite::ChaCha20Poly1305, &secret(seed), Role::Inlet, 0);
    let mut wire = Vec::new();
    for record in 0..8 {
        if record == 5 {
            sealer.seal_key_update(&mut wire).unwrap();
        } else {
            sealer.seal_data(&[record; 20], NOW, &mut wire).unwrap();
        }
    }
    split_records(&wire)
}

fn check_change(change: &Change, pick: usize, other: usize, cut: usize) {
    let sent = eight_records(1);
    let mut records = sent.clone();
    // The first record that is not what comes next.
    let changed = match change {
        Change::Duplicate => {
            records.insert(pick, sent[pick].clone());
            pick + 1
        }
        Change::Delete => {
            records.remove(pick);
            pick
        }
        Change::Swap => {
            records.swap(pick, other);
            pick.min(other)
        }
        Change::Replay => {
            records.insert(pick.max(other), sent[pick.min(other)].clone());
            if pick == other {
                pick + 1
            } else {
                pick.max(other)
            }
        }
        Change::Reflect => {
            records[pick] = eight_records(2)[pick].clone();
            pick
        }
        Change::Splice => {
            records[pick] = eight_records(3)[pick].clone();
            pick
        }
        Change::Shorten => {
            records[pick].pop();
            records[pick][1] -= 1;
            pick
        }
        Change::Flip(at, bit) => {
            let at = at.index(records[pick].len());
            records[pick][at] ^= 1 << bit;
            pick
        }
    };
    let (_, mut opener) = direction(Suite::ChaCha20Poly1305, Role::Inlet, 0);
    let wire = records.concat();
    let (events, received) = open_in_pieces(&mut opener, &wire, NOW, &[cut]);
    let harmless = matches!(change, Change::Swap) && pick == other;
    let last_deleted = matches!(change, Change::Delete) && pick == 7;
    // A longer length makes the opener wait for bytes that never come.
    let waits = matches!(change, Change::Flip(..)) && received.is_ok();
    let all: Vec<_> = (0..8_u8)
        .filter(|&n| n != 5)
        .map(|n| Event::Data(vec![n; 20]))
        .collect();
    if harmless || last_deleted || waits {
        assert!(received.is_ok());
        assert!(opener.end().is_err(), "the end was not authentic");
        assert!(all.starts_with(&events));
        assert_eq!(events.len() == all.len(), harmless);
    } else {
        let cause = cause_of(received).expect("noticed");
        assert!(
            matches!(cause, Cause::RecordAuthFailed | Cause::RecordOverflow),
            "{cause:?}"
        );
        let before = (0..changed.min(8)).filter(|&n| n != 5).count();
        assert_eq!(events, all[..before], "{change:?}");
    }
}

/// Every bit of every byte of a short conversation.
#[test]
fn no_flipped_bit_goes_unnoticed() {
    let sent = eight_records(1);
    let wire = sent.concat();
    let mut noticed = 0;
    for bit in 0..wire.len() * 8 {
        let mut changed = wire.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (_, mut opener) = direction(Suite::ChaCha20Poly1305, Role::Inlet, 0);
        let (events, received) = open(&mut opener, &changed);
        let mut end = 0;
        let intact = sent.iter().position(|record| {
            end += record.len();
            end > bit / 8
        });
        let intact = intact.unwrap();
        assert_eq!(events.len(), intact - usize::from(intact > 5));
        assert!(opener.end().is_err());
        noticed += usize::from(received.is_err());
    }
    // The rest wait for a longer record, which the missing CLOSE gives away.
    assert!(noticed > wire.len() * 7);
}
