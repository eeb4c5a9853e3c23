//! Sessions between outlets and inlets: who gets in, what is seen on the way, and how they end.

use lsl_proto::discovery::advert;
use lsl_proto::{StreamInfo, describe};
use lsl_secure::Policy;
use lsl_secure::policy::{REFUSAL_403, REFUSAL_501};

use crate::dice::seeds;
use crate::peers::{Identity, own_security};
use crate::programs::scripts::Script;
use crate::programs::{InletId, OutletId};
use crate::tcp::{Fault, FaultKind, Side};
use crate::world::World;

fn amp() -> Identity {
    Identity::new("amp", Policy::Required, &["rec", "spare"])
}

fn rec() -> Identity {
    Identity::new("rec", Policy::Required, &["amp"])
}

/// An encrypted outlet, in a network of any speed.
fn outlet(world: &mut World) -> OutletId {
    world.network.window = 1 << (9 + world.dice.below(9));
    world.network.tcp_delay = (20e-6, 10_f64.powf(-4.0 + 3.0 * world.dice.share()));
    let host = world.add_host();
    world.open_outlet(host, "secret", amp(), 1 << 20)
}

/// An inlet for it, which gives up when something goes wrong.
fn inlet(world: &mut World, outlet: OutletId, identity: Identity) -> InletId {
    let host = world.add_host();
    world.recovers = false;
    world.open_inlet(host, outlet, identity)
}

/// Waits until the inlet gives up. Returns the reason.
fn denied(world: &mut World, inlet: InletId) -> String {
    let deadline = world.now + 60.0;
    assert!(world.run_until(deadline, |it| it.inlet(inlet).is_lost()));
    let connects = world.connects;
    world.run_for(20.0);
    assert_eq!(world.connects, connects, "there is no second try");
    world.inlet(inlet).errors.last().unwrap().to_string()
}

#[test]
fn everything_arrives_through_a_session_and_nothing_is_seen_of_it() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world);
        let readers = ["rec", "spare"].map(|name| {
            let identity = Identity::new(name, Policy::Required, &["amp"]);
            inlet(&mut world, outlet, identity)
        });
        for reader in readers {
            world.await_open(reader);
        }
        for _ in 0..20 {
            let samples = 1 + u32::try_from(world.dice.below(100)).unwrap();
            world.push(outlet, samples);
            let pause = world.dice.share() * 0.01;
            world.run_for(pause);
        }
        for reader in readers {
            world.await_samples(reader, outlet);
        }
        world.close_outlet(outlet);
        for reader in readers {
            let reason = denied(&mut world, reader);
            assert!(
                reason.contains("the outlet closed the connection"),
                "{reason}"
            );
            let pushed = world.outlet(outlet).pushed as usize;
            assert_eq!(world.inlet(reader).pulled.len(), pushed);
        }
        assert!(world.outlet(outlet).errors.is_empty());
    });
}

#[test]
fn a_bit_that_was_flipped_anywhere_ends_the_session_and_what_came_before_is_genuine() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world);
        let inlet = inlet(&mut world, outlet, rec());
        let to = if world.dice.happens(0.5) {
            Side::Outlet
        } else {
            Side::Inlet
        };
        // In the handshake, and behind it.
        let most = if to == Side::Outlet || seed % 2 == 0 {
            320
        } else {
            3000
        };
        let at = usize::try_from(world.dice.below(most)).unwrap();
        let kind = FaultKind::Flip;
        world.inlets[inlet].fault = Some(Fault { to, at, kind });
        world.run_for(2.0);
        for _ in 0..200 {
            world.push(outlet, 1);
            world.run_for(0.01);
        }
        let reason = denied(&mut world, inlet);
        // The samples that came were checked one by one, and none is missing before the last.
        let pulled = &world.inlet(inlet).pulled;
        let first = pulled.first().copied().unwrap_or(0);
        assert!(
            pulled.iter().copied().eq((first..).take(pulled.len())),
            "{reason}"
        );
        assert!(pulled.len() < 200, "{to:?} {at}: {reason}");
        assert!(world.outlet(outlet).fanout.is_empty(), "{to:?} {at}");
    });
}

#[test]
fn a_connection_that_was_cut_anywhere_is_no_proper_end() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world);
        let inlet = inlet(&mut world, outlet, rec());
        // In the handshake, and behind it.
        let most = if seed % 2 == 0 { 320 } else { 3000 };
        let at = usize::try_from(world.dice.below(most)).unwrap();
        let kind = if world.dice.happens(0.5) {
            FaultKind::Cut
        } else {
            FaultKind::Reset
        };
        let to = Side::Inlet;
        world.inlets[inlet].fault = Some(Fault { to, at, kind });
        world.run_for(2.0);
        for _ in 0..200 {
            world.push(outlet, 1);
            world.run_for(0.01);
        }
        let reason = denied(&mut world, inlet);
        let words = [
            "was cut off",
            "closed during hello",
            "truncated",
            "receiving",
        ];
        assert!(
            words.iter().any(|word| reason.contains(word)),
            "{at}: {reason}"
        );
        assert!(world.outlet(outlet).fanout.is_empty());
    });
}

/// Whoever answers in plaintext, whatever he offers, gets no request in plaintext.
#[test]
fn plaintext_answers_never_lead_to_plaintext() {
    let cases: [(&[u8], &str); 6] = [
        (b"LSL/110 200 OK\r\nUID: u\r\n\r\n", "LSL/110 200 OK"),
        (REFUSAL_403, "403"),
        (REFUSAL_501, "501"),
        (b"LSL/110 404 Not found", "404"),
        (b"", "closed during hello"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "malformed"),
    ];
    for (answer, words) in cases {
        seeds(|seed| {
            let mut world = World::new(seed);
            let outlet = outlet(&mut world);
            let policy = if seed % 2 == 0 {
                Policy::Required
            } else {
                Policy::Migrate
            };
            let inlet = inlet(&mut world, outlet, Identity::new("rec", policy, &["amp"]));
            // Somebody else is at its address from now on.
            world.outlets[outlet].is_closed = true;
            let to = world.address_of(outlet);
            let script = Script {
                answer: answer.to_vec(),
                then_closes: true,
            };
            world.scripts.insert(to, script);
            let reason = denied(&mut world, inlet);
            assert!(reason.contains(words), "{words}: {reason}");
            let heard = &world.peers[0].received;
            assert!(heard.starts_with(b"LSL:secure/1\r\n"));
            assert_eq!(heard.windows(4).filter(|it| it == b"LSL:").count(), 1);
        });
    }
}

#[test]
fn who_is_not_trusted_gets_no_session_on_either_side() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world);
        let cases = [
            // The outlet does not know it.
            (
                Identity::new("eve", Policy::Required, &["amp"]),
                "not_authorised",
            ),
            // It does not know the outlet.
            (
                Identity::new("rec", Policy::Required, &["another"]),
                "not_authorised",
            ),
        ];
        for (identity, words) in cases {
            let inlet = inlet(&mut world, outlet, identity);
            let reason = denied(&mut world, inlet);
            assert!(reason.contains(words), "{reason}");
            assert!(world.inlet(inlet).pulled.is_empty());
        }
        assert_eq!(world.outlet(outlet).consumers_seen, 0);
        let good = inlet(&mut world, outlet, rec());
        world.await_open(good);
    });
}

#[test]
fn plaintext_is_refused_where_encryption_is_required() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world);
        // The outlet says what it wants, and a program without a key does not even connect.
        let plain = inlet(&mut world, outlet, Identity::off());
        let reason = denied(&mut world, plain);
        assert!(
            reason.contains("is encrypted and this program has no key"),
            "{reason}"
        );
        // Whoever asks all the same is told, and gets nothing.
        let host = world.add_host();
        let requests: [(&[u8], &[u8]); 3] = [
            (b"LSL:streamfeed/110\r\nA: b\r\n\r\n", REFUSAL_403),
            (b"LSL:streamfeed\r\n0 0\r\n", b""),
            (b"LSL:fullinfo\r\n", b""),
        ];
        for (request, answer) in requests {
            let peer = world.dial(host, outlet);
            let connection = &world.connections[&world.connects];
            // Its own request is its own affair.
            connection.link.allow_plaintext();
            world.say(peer, request);
            world.run_for(20.0);
            assert_eq!(world.peers[peer].received, answer);
            assert!(world.peers[peer].is_over);
        }
        assert_eq!(world.outlet(outlet).consumers_seen, 0);
    });
}

#[test]
fn policies_meet_as_the_table_says() {
    use Policy::{Migrate, Off, Required};
    // Of outlet and inlet: whether there is a feed, and whether it is encrypted.
    let cases = [
        (Off, Off, Some(false)),
        (Off, Migrate, Some(false)),
        (Off, Required, None),
        (Migrate, Migrate, Some(true)),
        (Migrate, Required, Some(true)),
        (Required, Migrate, Some(true)),
        (Required, Required, Some(true)),
        (Required, Off, None),
    ];
    seeds(|seed| {
        for (ours, theirs, expected) in cases {
            let mut world = World::new(seed);
            let host = world.add_host();
            let identity = Identity::new("amp", ours, &["rec"]);
            let outlet = world.open_outlet(host, "secret", identity, 100);
            let identity = Identity::new("rec", theirs, &["amp"]);
            let inlet = inlet(&mut world, outlet, identity);
            world.run_for(3.0);
            world.push(outlet, 5);
            world.run_for(1.0);
            let received = world.inlet(inlet).pulled.len();
            assert_eq!(received, expected.map_or(0, |_| 5), "{ours:?} {theirs:?}");
            let is_encrypted = !world.outlet(outlet).responders.is_empty();
            assert_eq!(is_encrypted, expected == Some(true), "{ours:?} {theirs:?}");
        }
    });
}

#[test]
fn a_peer_that_is_trusted_no_more_is_told_and_the_others_stay() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world);
        let leaving = inlet(&mut world, outlet, rec());
        let spare = Identity::new("spare", Policy::Required, &["amp"]);
        let staying = inlet(&mut world, outlet, spare);
        for inlet in [leaving, staying] {
            world.await_open(inlet);
        }
        let lived = world.dice.share();
        world.run_for(lived);
        // In the middle of everything.
        world.push(outlet, 500);
        let now = world.now;
        world.outlet(outlet).revoke("rec", now);
        world.drive_outlet(outlet);
        let reason = denied(&mut world, leaving);
        assert!(reason.contains("expired"), "{reason}");
        let again = inlet(&mut world, outlet, rec());
        let reason = denied(&mut world, again);
        assert!(reason.contains("not_authorised"), "{reason}");
        world.push(outlet, 5);
        world.await_samples(staying, outlet);
        assert_eq!(world.outlet(outlet).fanout.len(), 1);
    });
}

/// Discovery is not authentic: what it says of a stream must be what the session says.
#[test]
fn a_stream_that_was_swapped_on_the_way_is_refused() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world);
        let text = String::from_utf8(world.outlet(outlet).info.to_xml()).unwrap();
        let changes = [
            ("<name>secret</name>", "<name>other</name>"),
            ("<type>Test</type>", "<type>EEG</type>"),
            (
                "<source_id>secret</source_id>",
                "<source_id>other</source_id>",
            ),
            (
                "<session_id>default</session_id>",
                "<session_id>other</session_id>",
            ),
        ];
        let (old, new) = changes[usize::try_from(seed % 4).unwrap()];
        assert!(text.contains(old), "{text}");
        let forged = StreamInfo::from_xml(text.replace(old, new).as_bytes()).unwrap();
        let host = world.outlets[outlet].host;
        world.withdraw(host, &format!("uid-{outlet}"));
        let announced = advert::announced(&forged, &own_security(&amp()));
        let outlets = &mut world.hosts[host].outlets;
        let key = outlets.registry.add(announced);
        outlets.streams.insert("forged".to_owned(), key);
        let inlet = inlet(&mut world, outlet, rec());
        let reason = denied(&mut world, inlet);
        assert!(reason.contains("descriptor_mismatch"), "{reason}");
        assert!(world.outlet(outlet).fanout.is_empty());
    });
}

/// A lie about the chosen outlet stays one after the inlet looked for it again by itself: the program
/// may have chosen by just that field.
#[test]
fn recovery_does_not_wash_off_a_lie_about_the_chosen_outlet() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world);
        let to = world.address_of(outlet);
        let mut lie = describe::as_received(&world.outlet(outlet).info);
        lie.set_hostname("other-amp");
        lie.fill_v4_address(to.ip().to_string());
        // Reached at once; looked for because nobody is where it says, or because it does not say where.
        lie.set_v4_ports([to.port(), 1, 0][usize::try_from(seed % 3).unwrap()], 0);
        let host = world.add_host();
        let inlet = world.open_inlet_for(host, &lie, rec());
        for _ in 0..20 {
            world.push(outlet, 5);
            world.run_for(1.0);
        }
        let inlet = world.inlet(inlet);
        let reason = inlet.errors.last().unwrap().to_string();
        assert!(reason.contains("descriptor_mismatch"), "{reason}");
        assert!(inlet.recovery.info().hostname().is_empty(), "not found");
        assert!(!inlet.is_lost());
        assert!(inlet.pulled.is_empty());
    });
}

#[test]
fn a_session_outlives_silence_and_notices_that_its_outlet_is_gone() {
    seeds(|seed| {
        let mut world = World::new(seed);
        let outlet = outlet(&mut world);
        let inlet = inlet(&mut world, outlet, rec());
        world.await_open(inlet);
        world.run_for(300.0);
        assert!(world.inlet(inlet).is_open(), "PINGs are answered");
        world.push(outlet, 5);
        world.await_samples(inlet, outlet);
        let host = world.outlets[outlet].host;
        let address = world.hosts[host].address;
        world.network.set_cut(address, true);
        let begin = world.now;
        let deadline = begin + 300.0;
        assert!(world.run_until(deadline, |it| it.inlet(inlet).is_lost()));
        assert!((90.0..=150.0).contains(&(world.now - begin)));
    });
}
