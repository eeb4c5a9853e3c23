//! Messages of a peer that knows the keys and breaks the rules: every level is filled exactly, and
//! each proof is checked by itself. Spec: LSS/1 §5, §5.7; verification layer 26.

use proptest::prelude::*;

use super::super::auth::AUTH_LEN;
use super::super::messages::{m2_head, m3_head};
use super::super::schedule::{Agreed, Ephemeral};
use super::super::transcript::Transcript;
use super::*;
use crate::kdf::{Secret, expand_label, hmac};
use crate::{AeadKey, Opener, Record, Role, Suite};

/// An AUTH to be made: everything in it can be wrong.
struct Forge {
    kind: u8,
    id_type: u8,
    id_len: u16,
    id: Vec<u8>,
    ext_len: u16,
    ext: Vec<u8>,
    /// Signs for these roles' context.
    context: Role,
    signer: SecretKey,
    change_signature: fn(&mut [u8]),
    change_finished: fn(&mut [u8]),
    after: Vec<u8>,
    /// Bytes taken off the end.
    cut: usize,
}

impl Forge {
    /// Forges nothing: all fields as an honest peer sends them.
    fn honest(key: &SecretKey, role: Role) -> Self {
        Self {
            kind: 1,
            id_type: 1,
            id_len: 32,
            id: key.public().as_bytes().to_vec(),
            ext_len: 0,
            ext: Vec::new(),
            context: role,
            signer: SecretKey::from_seed(&key.seed()),
            change_signature: |_| {},
            change_finished: |_| {},
            after: Vec::new(),
            cut: 0,
        }
    }

    fn id(mut self, id: &[u8]) -> Self {
        self.id = id.to_vec();
        self.id_len = u16::try_from(id.len()).unwrap();
        self
    }

    fn ext(mut self, ext: &[u8]) -> Self {
        self.ext = ext.to_vec();
        self.ext_len = u16::try_from(ext.len()).unwrap();
        self
    }

    fn plain_len(&self) -> usize {
        let all = 1 + 1 + 2 + self.id.len() + 2 + self.ext.len() + 64 + 32 + self.after.len();
        all - self.cut
    }

    /// The message with this head: sealed as an honest peer seals, over a transcript that is right
    /// for what is sent.
    fn message(
        &self,
        mut head: Vec<u8>,
        transcript: &mut Transcript,
        suite: Suite,
        secret: &Secret,
    ) -> Vec<u8> {
        let aad = *transcript.hash();
        let mut text = vec![self.kind, self.id_type];
        text.extend(self.id_len.to_be_bytes());
        text.extend(&self.id);
        text.extend(self.ext_len.to_be_bytes());
        text.extend(&self.ext);
        transcript.add(&[&text]);
        let mut signature = self.signer.sign(&transcript.to_be_signed(self.context));
        (self.change_signature)(&mut signature);
        transcript.add(&[&signature]);
        let mut finished = hmac(&*expand_label(secret, b"fin", b""), transcript.hash());
        (self.change_finished)(&mut finished);
        transcript.add(&[&finished]);
        text.extend(signature);
        text.extend(finished);
        text.extend(&self.after);
        text.truncate(text.len() - self.cut);
        head.extend(seal(suite, secret, &aad, &text));
        head
    }
}

fn seal(suite: Suite, secret: &Secret, aad: &[u8], text: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    let tag = AeadKey::from_secret(suite, secret).seal(0, aad, &mut text);
    text.extend(tag);
    text
}

/// The dishonest outlet of a run: knows its own ephemeral and M1, and stands at `h2`.
fn outlet_at_h2(run: &Run, plain_len: usize) -> (Vec<u8>, Transcript, Agreed, Secret) {
    let ephemeral = Ephemeral::generate(&mut Fixed::new(run.secret("e_r"))).unwrap();
    let head = m2_head(run.suite(), &ephemeral.share(), plain_len);
    let mut transcript = Transcript::new();
    transcript.add(&[&run.bytes("M1")]);
    transcript.add(&[&head]);
    let m1 = run.m1();
    let share = m1[m1.len() - 34..m1.len() - 2].try_into().unwrap();
    let agreed = ephemeral.agree(share, run.outlet().psk.as_ref()).unwrap();
    let secret = agreed.handshake_secret(Role::Outlet, transcript.hash());
    (head, transcript, agreed, secret)
}

fn inlet_on(run: &Run, forge: &Forge) -> Result<VerifiedResponder, HandshakeError> {
    let (head, mut transcript, _, secret) = outlet_at_h2(run, forge.plain_len());
    let m2 = forge.message(head, &mut transcript, run.suite(), &secret);
    run.start().0.receive_m2(&m2)
}

/// The dishonest inlet of a run stands at `h6`; also its `hs_i` and what the session comes from.
fn inlet_at_h6(run: &Run, plain_len: usize) -> (Vec<u8>, Transcript, Agreed, Secret) {
    let head = m3_head(plain_len);
    let mut transcript = Transcript(run.secret("h5"));
    transcript.add(&[&head]);
    let m2 = run.bytes("M2");
    let agreed = Ephemeral::generate(&mut Fixed::new(run.secret("e_i")))
        .unwrap()
        .agree(m2[6..38].try_into().unwrap(), run.inlet().psk.as_ref())
        .unwrap();
    let secret = agreed.handshake_secret(Role::Inlet, &run.secret("h2"));
    (head, transcript, agreed, secret)
}

fn outlet_on(run: &Run, forge: &Forge) -> Result<Claim, HandshakeError> {
    let (head, mut transcript, _, secret) = inlet_at_h6(run, forge.plain_len());
    let m3 = forge.message(head, &mut transcript, run.suite(), &secret);
    run.answer(&run.m1()).unwrap().0.receive_m3(&m3)
}

/// Forges for both sides with the same change; both must fail with `expected`, or with `None`
/// accept. Before authentication the peer gets no answer.
fn check(expected: Option<Cause>, change: impl Fn(Forge) -> Forge) {
    let run = Run::named("with-psk");
    let offer = inlet_on(
        &run,
        &change(Forge::honest(&run.outlet().key, Role::Outlet)),
    );
    let claim = outlet_on(&run, &change(Forge::honest(&run.inlet().key, Role::Inlet)));
    match expected {
        None => {
            assert_eq!(offer.unwrap().peer(), run.outlet().key.public());
            let Ok(Claim::Verified(verified)) = claim else {
                panic!("not verified: {claim:?}");
            };
            assert_eq!(verified.peer(), run.inlet().key.public());
        }
        Some(cause) => {
            let (offer, claim) = (offer.unwrap_err(), claim.unwrap_err());
            assert_eq!(offer.error.cause(), cause, "{}", offer.error);
            assert_eq!(claim.error.cause(), cause, "{}", claim.error);
            let told = cause == Cause::UnsupportedIdentity;
            assert_eq!(
                (offer.last_words.is_empty(), claim.last_words.is_empty()),
                (!told, !told)
            );
        }
    }
}

fn malformed(change: impl Fn(Forge) -> Forge) {
    check(Some(Cause::Malformed), change);
}

#[test]
fn an_honest_forgery_is_accepted() {
    let run = Run::named("with-psk");
    check(None, |forge| forge);
    // It is the reference's M2 and M3, so that the changes below are changes of those.
    let (head, mut transcript, _, secret) = outlet_at_h2(&run, AUTH_LEN);
    let m2 = Forge::honest(&run.outlet().key, Role::Outlet);
    let m2 = m2.message(head, &mut transcript, run.suite(), &secret);
    assert_eq!(m2, run.bytes("M2"));
    let (head, mut transcript, _, secret) = inlet_at_h6(&run, AUTH_LEN);
    let m3 = Forge::honest(&run.inlet().key, Role::Inlet);
    let m3 = m3.message(head, &mut transcript, run.suite(), &secret);
    assert_eq!(m3, run.bytes("M3"));
    assert_eq!(transcript.hash()[..], run.bytes("h9"));
}

#[test]
fn auth_is_filled_exactly() {
    for after in [&[0][..], &[0xff; 2], &[0; 96]] {
        malformed(|forge| Forge {
            after: after.to_vec(),
            ..forge
        });
    }
    for cut in 1..=AUTH_LEN {
        malformed(|forge| Forge { cut, ..forge });
    }
    for kind in (0..=u8::MAX).filter(|kind| ![1, 2].contains(kind)) {
        malformed(|forge| Forge { kind, ..forge });
    }
    // An alert is two bytes, not an identity of another kind.
    malformed(|forge| Forge { kind: 2, ..forge });
}

#[test]
fn a_key_has_32_bytes() {
    for len in [0, 1, 31, 33, 64] {
        malformed(|forge| forge.id(&vec![1; len]));
    }
    // Another length than the bytes that are there: everything after it moves.
    for id_len in [0, 31, 33, 65_535] {
        malformed(|forge| Forge { id_len, ..forge });
    }
}

#[test]
fn extensions_tile_their_list_and_do_not_repeat() {
    let accepted: [&[u8]; 4] = [
        &[0, 0, 0, 0],
        &[0, 1, 0, 1, 0xff],
        &[0, 2, 0, 0, 0, 1, 0, 2, 0, 0],
        &[0xff, 0xff, 0, 0, 0, 0, 0, 0],
    ];
    for ext in accepted {
        check(None, |forge| forge.ext(ext));
        for change in [-1_i32, 1] {
            malformed(|forge| {
                let mut forge = forge.ext(ext);
                forge.ext_len = u16::try_from(i32::from(forge.ext_len) + change).unwrap();
                forge
            });
        }
    }
    let refused: [&[u8]; 7] = [
        &[0],
        &[0, 1, 0],
        &[0, 1, 0, 1],
        &[0, 1, 0, 2, 0xff],
        &[0, 1, 0xff, 0xff],
        &[0, 1, 0, 0, 0, 1, 0, 0],
        &[0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 1, 9],
    ];
    for ext in refused {
        malformed(|forge| forge.ext(ext));
    }
    malformed(|forge| Forge {
        ext_len: u16::MAX,
        ..forge
    });
}

#[test]
fn each_proof_is_checked() {
    check(Some(Cause::BadSignature), |forge| Forge {
        change_signature: |signature| signature[0] ^= 1,
        ..forge
    });
    check(Some(Cause::BadSignature), |forge| Forge {
        change_signature: |signature| signature[63] ^= 0x20,
        ..forge
    });
    // s + order: the same signature to a lax verifier.
    check(Some(Cause::BadSignature), |forge| Forge {
        change_signature: |signature| {
            let order = unhex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
            let mut carry = 0;
            for (byte, add) in signature[32..].iter_mut().zip(order) {
                let sum = u16::from(*byte) + u16::from(add) + carry;
                *byte = sum.to_le_bytes()[0];
                carry = sum >> 8;
            }
        },
        ..forge
    });
    check(Some(Cause::BadSignature), |forge| Forge {
        signer: SecretKey::from_seed(&[9; 32]),
        ..forge
    });
    check(Some(Cause::BadSignature), |forge| Forge {
        context: match forge.context {
            Role::Outlet => Role::Inlet,
            Role::Inlet => Role::Outlet,
        },
        ..forge
    });
    check(Some(Cause::BadFinished), |forge| Forge {
        change_finished: |finished| finished[0] ^= 0x80,
        ..forge
    });
    check(Some(Cause::BadFinished), |forge| Forge {
        change_finished: |finished| finished[31] ^= 1,
        ..forge
    });
    check(Some(Cause::BadFinished), |forge| Forge {
        change_finished: |finished| finished.fill(0),
        ..forge
    });
}

#[test]
fn weak_and_impossible_keys_are_bad_signatures() {
    // With the neutral element as key and R, and s = 0, the equation holds for every message.
    let mut neutral = [0; 32];
    neutral[0] = 1;
    check(Some(Cause::BadSignature), |forge| {
        let mut forge = forge.id(&neutral);
        forge.change_signature = |signature| {
            signature.fill(0);
            signature[0] = 1;
        };
        forge
    });
    let mut no_point = [0; 32];
    no_point[0] = 2;
    check(Some(Cause::BadSignature), |forge| forge.id(&no_point));
}

#[test]
fn an_unknown_kind_of_identity_is_told_so_if_all_else_fits() {
    for id_type in [0, 2, 3, 0xff] {
        for len in [0, 31, 32, 33, 400] {
            check(Some(Cause::UnsupportedIdentity), |forge| {
                let mut forge = forge.id(&vec![7; len]);
                forge.id_type = id_type;
                forge
            });
        }
        malformed(|forge| Forge {
            id_type,
            id_len: 65_535,
            ..forge
        });
        malformed(|forge| Forge {
            id_type,
            after: vec![0],
            ..forge
        });
    }
}

#[test]
fn the_outlet_with_an_unknown_identity_reads_our_refusal() {
    let run = Run::named("with-psk");
    let mut forge = Forge::honest(&run.outlet().key, Role::Outlet).id(&[7; 300]);
    forge.id_type = 2;
    let (head, mut transcript, agreed, secret) = outlet_at_h2(&run, forge.plain_len());
    let h2 = *transcript.hash();
    let m2 = forge.message(head, &mut transcript, run.suite(), &secret);
    let reply = run.start().0.receive_m2(&m2).unwrap_err().last_words;
    // The outlet stands at h5 now.
    let (head, sealed) = reply.split_at(3);
    transcript.add(&[head]);
    let key = AeadKey::from_secret(run.suite(), &agreed.handshake_secret(Role::Inlet, &h2));
    let mut text = sealed.to_vec();
    let text = key.open(0, transcript.hash(), &mut text).unwrap();
    assert_eq!(text, [2, 7]);
}

#[test]
fn the_inlet_with_an_unknown_identity_reads_our_alert() {
    let run = Run::named("aes-negotiated");
    let mut forge = Forge::honest(&run.inlet().key, Role::Inlet).id(&[7; 300]);
    forge.id_type = 2;
    let (head, mut transcript, agreed, secret) = inlet_at_h6(&run, forge.plain_len());
    let m3 = forge.message(head, &mut transcript, run.suite(), &secret);
    let (wait, _) = run.answer(&run.m1()).unwrap();
    let mut alert = wait.receive_m3(&m3).unwrap_err().last_words;
    // The inlet stands at h9 now.
    let traffic = agreed.traffic(transcript.hash());
    let mut opener = Opener::new(run.suite(), &traffic.ap_r, Role::Inlet);
    let mut seen = None;
    let received = opener.receive(&mut alert, 0.0, |record| {
        if let Record::Alert(cause, _) = record {
            seen = Some(cause);
        }
        Ok(())
    });
    assert_eq!(seen, Some(Cause::UnsupportedIdentity));
    assert!(matches!(received, Err(Error::Alert { .. })));
}

#[test]
fn an_alert_has_two_bytes_and_only_the_inlet_sends_it() {
    let run = Run::named("with-psk");
    let outlet_on_text = |text: &[u8]| {
        let (mut m3, transcript, _, secret) = inlet_at_h6(&run, text.len());
        m3.extend(seal(run.suite(), &secret, transcript.hash(), text));
        run.answer(&run.m1()).unwrap().0.receive_m3(&m3)
    };
    for code in 0..=u8::MAX {
        match outlet_on_text(&[2, code]) {
            Ok(Claim::Refused(cause)) => assert_eq!(cause, Cause::from_code(code)),
            other => panic!("{other:?}"),
        }
    }
    for text in [&[][..], &[2], &[2, 8, 0], &[1], &[1, 8], &[0, 8]] {
        let failed = outlet_on_text(text).unwrap_err();
        assert_eq!(failed.error.cause(), Cause::Malformed);
        assert!(failed.last_words.is_empty());
    }
    for text in [&[][..], &[2], &[2, 8], &[2, 8, 0]] {
        let (mut m2, transcript, _, secret) = outlet_at_h2(&run, text.len());
        m2.extend(seal(run.suite(), &secret, transcript.hash(), text));
        let failed = run.start().0.receive_m2(&m2).unwrap_err();
        assert_eq!(failed.error.cause(), Cause::Malformed);
        assert!(failed.last_words.is_empty());
    }
}

/// An M1 from its fields.
fn hello(versions: [u8; 2], role: u8, n_suites: u8, suites: &[u16], ext: &[u8]) -> Vec<u8> {
    let mut body = vec![1, versions[0], versions[1], role, n_suites];
    body.extend(suites.iter().flat_map(|id| id.to_be_bytes()));
    body.extend([9; 32]);
    body.extend(u16::try_from(ext.len()).unwrap().to_be_bytes());
    body.extend(ext);
    let len = u16::try_from(body.len()).unwrap();
    [&len.to_be_bytes()[..], &body].concat()
}

#[test]
fn m1_is_checked_field_by_field() {
    let run = Run::named("aes-negotiated");
    let check = |expected: Result<u16, Cause>, m1: Vec<u8>| {
        let answer = run.answer(&m1);
        let suite = answer
            .map(|(_, m2)| u16::from_be_bytes([m2[4], m2[5]]))
            .map_err(|error| error.cause());
        assert_eq!(suite, expected, "{m1:02x?}");
    };
    let suites = |list: &[u16]| hello([1, 1], 1, u8::try_from(list.len()).unwrap(), list, &[]);
    check(Ok(2), suites(&[2, 1]));
    check(Ok(2), suites(&[1, 2]));
    check(Ok(1), suites(&[1]));
    check(Ok(2), suites(&[2]));
    check(Ok(1), suites(&[0xffff, 3, 4, 5, 6, 7, 8, 1]));
    check(Err(Cause::NoCommonSuite), suites(&[3]));
    check(Err(Cause::NoCommonSuite), suites(&[0, 3, 4, 5, 6, 7, 8, 9]));
    check(Err(Cause::Malformed), suites(&[]));
    check(Err(Cause::Malformed), suites(&[1, 2, 3, 4, 5, 6, 7, 8, 9]));
    check(Err(Cause::Malformed), suites(&[1, 1]));
    check(Err(Cause::Malformed), suites(&[1, 3, 2, 3]));

    let versions = |min, max| hello([min, max], 1, 1, &[1], &[]);
    check(Ok(1), versions(0, 1));
    check(Ok(1), versions(1, 255));
    check(Ok(1), versions(0, 255));
    check(Err(Cause::Version), versions(2, 3));
    check(Err(Cause::Version), versions(0, 0));
    check(Err(Cause::Version), versions(255, 255));
    check(Err(Cause::Malformed), versions(2, 1));
    check(Err(Cause::Malformed), versions(1, 0));

    for role in (0..=u8::MAX).filter(|role| *role != 1) {
        check(Err(Cause::Malformed), hello([1, 1], role, 1, &[1], &[]));
    }
    let with_ext = |ext: &[u8]| hello([1, 1], 1, 1, &[1], ext);
    check(Ok(1), with_ext(&[0, 1, 0, 0, 0, 0, 0, 1, 7]));
    check(Err(Cause::Malformed), with_ext(&[0, 1, 0, 0, 0, 1, 0, 0]));
    check(Err(Cause::Malformed), with_ext(&[0, 1, 0]));
    check(Err(Cause::Malformed), with_ext(&[0, 1, 0, 1]));
    check(Err(Cause::Malformed), with_ext(&[0, 1, 0xff, 0xff, 0]));
    // More or fewer suites than it says: what follows moves.
    for n_suites in [0, 2, 3, 8, 9, 255] {
        check(Err(Cause::Malformed), hello([1, 1], 1, n_suites, &[1], &[]));
    }
    // One byte more or less at the end, with the length that goes with it.
    for change in [-1_i32, 1] {
        let mut m1 = hello([1, 1], 1, 1, &[1], &[]);
        let len = i32::try_from(m1.len()).unwrap() + change;
        m1.resize(usize::try_from(len).unwrap(), 0);
        m1[1] = u8::try_from(len - 2).unwrap();
        check(Err(Cause::Malformed), m1);
    }
}

#[test]
fn the_longest_messages_are_read_and_longer_ones_are_not() {
    let filler = |len: usize| {
        let value = vec![0; len - 4];
        let value_len = u16::try_from(value.len()).unwrap();
        [&[0xab, 0xcd][..], &value_len.to_be_bytes(), &value].concat()
    };
    let run = Run::named("with-psk");
    let m1 = |len: usize| {
        let empty = hello([1, 1], 1, 1, &[1], &[]).len() - 2;
        run.answer(&hello([1, 1], 1, 1, &[1], &filler(len - empty)))
            .map(|_| ())
            .map_err(|error| error.cause())
    };
    assert_eq!(m1(MAX_M1_LEN), Ok(()));
    assert_eq!(m1(MAX_M1_LEN + 1), Err(Cause::Malformed));

    let m2 = |len: usize| {
        let ext = filler(len - (run.bytes("M2").len() - 2));
        let forge = Forge::honest(&run.outlet().key, Role::Outlet).ext(&ext);
        let offer = inlet_on(&run, &forge);
        offer.map(|_| ()).map_err(|failed| failed.error.cause())
    };
    assert_eq!(m2(MAX_M2_M3_LEN), Ok(()));
    assert_eq!(m2(MAX_M2_M3_LEN + 1), Err(Cause::Malformed));

    let m3 = |len: usize| {
        let ext = filler(len - (run.bytes("M3").len() - 2));
        let forge = Forge::honest(&run.inlet().key, Role::Inlet).ext(&ext);
        let claim = outlet_on(&run, &forge);
        claim.map(|_| ()).map_err(|failed| failed.error.cause())
    };
    assert_eq!(m3(MAX_M2_M3_LEN), Ok(()));
    assert_eq!(m3(MAX_M2_M3_LEN + 1), Err(Cause::Malformed));
}

#[test]
fn an_offer_that_was_not_made_is_not_accepted() {
    // The outlet signs correctly over another version or suite than M1 offered.
    let run = Run::named("chacha-only");
    let forge = |at: usize, value: &[u8]| {
        let (mut head, _, agreed, _) = outlet_at_h2(&run, AUTH_LEN);
        head[at..at + value.len()].copy_from_slice(value);
        let mut transcript = Transcript(run.secret("h1"));
        transcript.add(&[&head]);
        let secret = agreed.handshake_secret(Role::Outlet, transcript.hash());
        let suite =
            Suite::from_id(u16::from_be_bytes([head[4], head[5]])).unwrap_or_else(|| run.suite());
        let m2 = Forge::honest(&run.outlet().key, Role::Outlet).message(
            head,
            &mut transcript,
            suite,
            &secret,
        );
        run.start()
            .0
            .receive_m2(&m2)
            .map(|_| ())
            .map_err(|failed| failed.error.cause())
    };
    assert_eq!(forge(3, &[1]), Ok(()));
    assert_eq!(forge(3, &[0]), Err(Cause::Version));
    assert_eq!(forge(3, &[2]), Err(Cause::Version));
    assert_eq!(forge(4, &[0, 2]), Err(Cause::NoCommonSuite));
    assert_eq!(forge(4, &[0, 3]), Err(Cause::NoCommonSuite));
    assert_eq!(forge(4, &[1, 1]), Err(Cause::NoCommonSuite));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Whatever a stranger sends, and whatever a peer seals, ends in a typed error or a state.
    #[test]
    fn arbitrary_bytes_never_panic(
        message_type in 0_u8..4,
        body in prop::collection::vec(any::<u8>(), 0..600),
        text in prop::collection::vec(prop_oneof![3 => 0_u8..4, 1 => any::<u8>()], 0..300),
    ) {
        let run = Run::named("chacha-only");
        let len = u16::try_from(1 + body.len()).unwrap();
        let message = [&len.to_be_bytes()[..], &[message_type], &body].concat();
        let _ = run.answer(&message);
        prop_assert!(run.start().0.receive_m2(&message).is_err());
        let (wait, _) = run.answer(&run.m1()).unwrap();
        prop_assert!(wait.receive_m3(&message).is_err());

        let (mut m2, transcript, _, secret) = outlet_at_h2(&run, text.len());
        m2.extend(seal(run.suite(), &secret, transcript.hash(), &text));
        prop_assert!(run.start().0.receive_m2(&m2).is_err());
        let (mut m3, transcript, _, secret) = inlet_at_h6(&run, text.len());
        m3.extend(seal(run.suite(), &secret, transcript.hash(), &text));
        let (wait, _) = run.answer(&run.m1()).unwrap();
        prop_assert!(!matches!(wait.receive_m3(&m3), Ok(Claim::Verified(_))));
    }
}
