//! Somebody between an inlet and a trusted outlet: who changes, cuts, mixes or answers by himself can
//! deny service, and nothing else. Spec: LSS/1 §1.2 (T2, T5), §4.2.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_core::ErrorKind;
use lsl_core::secure::Policy;

use super::fake::{Claim, Fake, Running, sample};
use super::people::{Place, Side};
use crate::lab::{self, SOON};

/// What an attacker does to bytes: gets them with their position in their direction.
type Touch = dyn Fn(Way, usize, &mut Vec<u8>) -> Verdict + Send + Sync;

/// Takes down what an inlet says.
type Hear = dyn Fn(&[u8]) + Send;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToOutlet,
    ToInlet,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Cut,
}

/// Forwards connections to one address until dropped.
pub struct Proxy {
    pub port: u16,
    stopped: Arc<AtomicBool>,
    /// Everything that came from inlets, one text per connection.
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Proxy {
    pub fn start(
        to: SocketAddr,
        touch: impl Fn(Way, usize, &mut Vec<u8>) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        let touch: Arc<Touch> = Arc::new(touch);
        Self::serve(move |inlet, heard| {
            let outlet = TcpStream::connect(to).unwrap();
            let back = {
                let (from, into) = (outlet.try_clone().unwrap(), inlet.try_clone().unwrap());
                let touch = Arc::clone(&touch);
                std::thread::spawn(move || forward(Way::ToInlet, from, into, &*touch, None))
            };
            forward(Way::ToOutlet, inlet, outlet, &*touch, Some(&*heard));
            let _ = back.join();
        })
    }

    /// Answers by itself.
    fn answering(answer: &'static [u8]) -> Self {
        Self::serve(move |mut inlet, heard| {
            let mut buffer = [0; 4096];
            let mut answered = false;
            while let Ok(length @ 1..) = inlet.read(&mut buffer) {
                heard(&buffer[..length]);
                if !std::mem::replace(&mut answered, true) {
                    let _ = inlet.write_all(answer);
                    let _ = inlet.shutdown(Shutdown::Write);
                }
            }
        })
    }

    fn serve(serve: impl Fn(TcpStream, Box<Hear>) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let stopped = Arc::new(AtomicBool::new(false));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (stop, all) = (Arc::clone(&stopped), Arc::clone(&heard));
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            for inlet in listener.incoming().flatten() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                let number = {
                    let mut all = all.lock().unwrap();
                    all.push(Vec::new());
                    all.len() - 1
                };
                let (serve, all) = (Arc::clone(&serve), Arc::clone(&all));
                let hear = move |bytes: &[u8]| all.lock().unwrap()[number].extend_from_slice(bytes);
                std::thread::spawn(move || serve(inlet, Box::new(hear)));
            }
        });
        Self {
            port,
            stopped,
            heard,
        }
    }

    /// Whatever happened, the inlet never said a word that is not encrypted.
    fn assert_no_plaintext(&self) {
        for heard in self.heard.lock().unwrap().iter() {
            let hello = b"LSL:secure/1\r\n";
            let length = heard.len().min(hello.len());
            assert_eq!(heard[..length], hello[..length]);
            let rest = String::from_utf8_lossy(&heard[length..]);
            assert!(!rest.contains("LSL:"), "{rest}");
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn forward(
    way: Way,
    mut from: TcpStream,
    mut into: TcpStream,
    touch: &Touch,
    heard: Option<&Hear>,
) {
    let mut buffer = [0; 4096];
    let mut position = 0;
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let mut bytes = buffer[..length].to_vec();
        if let Some(heard) = heard {
            heard(&bytes);
        }
        let verdict = touch(way, position, &mut bytes);
        position += length;
        if into.write_all(&bytes).is_err() || verdict == Verdict::Cut {
            break;
        }
    }
    let _ = into.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// A trusted outlet with samples.
fn outlet(name: &str) -> (Running, Claim) {
    let claim = Claim::of(name);
    let samples = sample(1.0, 1.0);
    let outlet = Fake::honest("amp", &claim, claim.descriptor(), samples).run();
    (outlet, claim)
}

/// The inlet gets nothing but an error.
fn assert_denied(rec: &Side, claim: &Claim, what: &str) -> String {
    let inlet = rec.inlet_for(&claim.info());
    let error = inlet.blocking().open(SOON).expect_err(what);
    assert_eq!(error.kind(), ErrorKind::Lost, "{what}: {error}");
    assert_eq!(inlet.stats().samples, 0, "{what}");
    assert!(inlet.encryption().is_none(), "{what}");
    error.to_string()
}

#[test]
fn an_honest_way_in_between_is_no_hindrance() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let (outlet, claim) = outlet("through");
    let proxy = Proxy::start(outlet.address(), |_, _, _| Verdict::Pass);
    let inlet = rec.inlet_for(
        &Claim {
            port: proxy.port,
            ..claim
        }
        .info(),
    );
    let mut pulled = [0.0_f32; 3];
    assert_eq!(inlet.blocking().pull(&mut pulled, SOON).unwrap(), Some(1.0));
    proxy.assert_no_plaintext();
}

/// The answers of one session in another: both are of the same outlet and genuine.
#[test]
fn answers_of_another_session_are_worth_nothing() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let (outlet, claim) = outlet("spliced");
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let tape = Arc::clone(&recorded);
    let recorder = Proxy::start(outlet.address(), move |going, _, bytes| {
        if going == Way::ToInlet {
            tape.lock().unwrap().extend_from_slice(bytes);
        }
        Verdict::Pass
    });
    let claim_at = |port| Claim {
        port,
        ..claim.clone()
    };
    let inlet = rec.inlet_for(&claim_at(recorder.port).info());
    inlet.blocking().open(SOON).unwrap();
    drop(inlet);
    let tape: &'static [u8] = recorded.lock().unwrap().clone().leak();
    let player = Proxy::answering(tape);
    assert_denied(&rec, &claim_at(player.port), "replayed");
    player.assert_no_plaintext();
    // From the records on.
    let splicer = Proxy::start(outlet.address(), move |going, position, bytes| {
        for (offset, byte) in bytes.iter_mut().enumerate() {
            if going == Way::ToInlet && position + offset >= 190 {
                *byte = *tape.get(position + offset).unwrap_or(byte);
            }
        }
        Verdict::Pass
    });
    assert_denied(&rec, &claim_at(splicer.port), "spliced");
}

/// Whoever answers in plaintext, whatever he offers, gets no request in plaintext.
#[test]
fn plaintext_answers_never_lead_to_plaintext() {
    let place = Place::new();
    let policies = [(Policy::Required, "rec"), (Policy::Migrate, "rec2")];
    for (policy, who) in policies {
        let rec = place.side(who, policy, &["amp"]);
        let check = |answer: &'static [u8], words: &str| {
            let proxy = Proxy::answering(answer);
            let claim = Claim {
                port: proxy.port,
                ..Claim::of("plain")
            };
            let text = assert_denied(&rec, &claim, words);
            assert!(text.contains(words), "{text}");
            // There is no second try in another way.
            assert_eq!(proxy.heard.lock().unwrap().len(), 1);
            proxy.assert_no_plaintext();
        };
        check(b"LSL/110 200 OK\r\nUID: u\r\n\r\n", "LSL/110 200 OK");
        check(b"LSL/110 403 Encryption \x1b[2Jrequired\r\n\r\n", "403");
        check(
            b"LSL/110 501 Secure sessions are not enabled\r\n\r\n",
            "501",
        );
        check(b"LSL/110 404 Not found", "404");
        check(b"", "closed during hello");
        check(b"HTTP/1.1 200 OK\r\n\r\n", "malformed");
    }
}

/// 503 is the one refusal that says "later", and the inlet does come back by itself.
#[test]
fn an_outlet_without_a_place_is_asked_again() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let (outlet, claim) = outlet("busy");
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let address = outlet.address();
    let proxy = Proxy::serve(move |mut inlet, _| {
        if counted.fetch_add(1, Ordering::AcqRel) < 2 {
            let mut buffer = [0; 4096];
            let _ = inlet.read(&mut buffer);
            let _ = inlet.write_all(lsl_core::secure::policy::REFUSAL_503);
            let _ = inlet.shutdown(Shutdown::Write);
            while let Ok(1..) = inlet.read(&mut buffer) {}
            return;
        }
        let outlet = TcpStream::connect(address).unwrap();
        let (from, into) = (outlet.try_clone().unwrap(), inlet.try_clone().unwrap());
        std::thread::spawn(move || {
            forward(Way::ToInlet, from, into, &|_, _, _| Verdict::Pass, None);
        });
        forward(Way::ToOutlet, inlet, outlet, &|_, _, _| Verdict::Pass, None);
    });
    let claim = Claim {
        port: proxy.port,
        ..claim
    };
    let inlet = rec.inlet_for(&claim.info());
    inlet.blocking().open(SOON).unwrap();
    assert_eq!(tries.load(Ordering::Acquire), 3);
    assert!(inlet.last_security_error().is_none());
    assert_eq!(rec.audited("handshake_failed").len(), 2);
}

/// An advert that somebody removed makes an inlet refuse, and not go without encryption.
#[test]
fn a_stripped_advert_is_a_refusal() {
    let place = Place::new();
    let rec = place.side("rec", Policy::Required, &["amp"]);
    let (outlet, claim) = outlet("stripped");
    let stripped = Claim {
        advert: String::new(),
        port: outlet.port,
        ..claim.clone()
    };
    let text = assert_denied(&rec, &stripped, "stripped");
    let expected = format!(
        "stream \"stripped\" at {} does not offer encryption and security.policy is \"required\"",
        outlet.address()
    );
    assert!(text.contains(&expected), "{text}");
    rec.await_audit("policy_refused", |event| event["code"] == 18);
    // Under `migrate` it may be a legacy stream, unless it was encrypted before.
    let rec = place.side("rec3", Policy::Migrate, &["amp"]);
    let honest = Claim {
        port: outlet.port,
        ..claim
    };
    let inlet = rec.inlet_for(&honest.info());
    inlet.blocking().open(SOON).unwrap();
    let text = assert_denied(&rec, &stripped, "stripped later");
    assert!(text.contains("was encrypted before"), "{text}");
    assert_eq!(outlet.connections(), 1, "nobody even connected");
    lab::until("the refusal is logged", || {
        !rec.audited("downgrade_refused").is_empty()
    });
    // The clock is asked as little as the stream.
    let inlet = rec.inlet_for(&stripped.info());
    let error = inlet
        .blocking()
        .time_correction(Duration::from_millis(300))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    lab::until("the reason is known", || {
        inlet.last_security_error().is_some()
    });
    assert_eq!(outlet.connections(), 1);
}
