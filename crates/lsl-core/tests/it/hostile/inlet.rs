//! Hostile outlets and responders against our inlet and resolver.

use std::io;
use std::time::Duration;

use lsl_core::{ChannelFormat, Context, ErrorKind, Inlet};
use lsl_proto::wire::response::DataProtocol;

use super::responder::{Claim, EvilOutlet, Victim};
use super::{assert_delivers, info};
use crate::lab::{self, SOON};

/// An inlet for a claim, that does not look elsewhere when it is disappointed.
fn inlet(context: &Context, claim: &Claim) -> Inlet {
    Inlet::builder(&claim.info())
        .context(context)
        .recover(false)
        .create()
        .expect("inlet is made")
}

/// A claim with a script behind it.
fn serve(
    claim: Claim,
    script: impl Fn(&Claim, &mut Victim) -> io::Result<()> + Send + 'static,
) -> (Claim, EvilOutlet) {
    let scripted = claim.clone();
    let outlet = EvilOutlet::open(move |victim| script(&scripted, victim));
    let port = outlet.port();
    (Claim { port, ..claim }, outlet)
}

fn text_claim(name: &str) -> Claim {
    Claim {
        format: ChannelFormat::String,
        channels: "1".to_owned(),
        ..Claim::of(name)
    }
}

/// Outlets that never come to a point cost the caller no more than its timeout.
#[test]
fn feeds_that_drip_only_time_out() {
    let context = lab::context();
    let check = |claim: Claim, opens: bool, head: fn(&Claim) -> Vec<u8>, drip: &'static [u8]| {
        let (claim, outlet) = serve(claim, move |claim, victim| {
            victim.send(&head(claim))?;
            if drip.is_empty() {
                victim.wait_for_its_end()
            } else {
                victim.send_for_ever(drip)
            }
        });
        let inlet = inlet(&context, &claim);
        if opens {
            inlet.blocking().open(SOON).expect(&claim.name);
        }
        let mut pulled = [String::new()];
        let nothing = inlet
            .blocking()
            .pull(&mut pulled, Duration::from_millis(100));
        assert!(matches!(nothing, Ok(None)), "{}: {nothing:?}", claim.name);
        // Closing tells the other side, which then stops.
        drop(inlet);
        lab::until("the connection ends", || outlet.served() > 0);
    };
    check(text_claim("silent"), false, |_| Vec::new(), b"");
    check(
        text_claim("half-line"),
        false,
        |_| b"LSL/110 200 ".to_vec(),
        b"",
    );
    check(
        text_claim("half-patterns"),
        false,
        |claim| claim.response(DataProtocol::V110),
        b"",
    );
    // A string whose end does not come, one byte at a time and in bulk.
    let long = |claim: &Claim| [claim.preamble(), vec![1, 4, 0, 0, 0, 15]].concat();
    check(text_claim("drip"), true, long, b"x");
}

/// An inlet that recovers leaves the impostor for the real outlet once there is one.
#[test]
fn an_inlet_recovers_from_a_hostile_outlet() {
    let context = lab::context();
    let (claim, impostor) = serve(Claim::of("impostor"), |_, victim| {
        victim.send(b"go away\r\n")
    });
    let inlet = Inlet::builder(&claim.info())
        .context(&context)
        .create()
        .unwrap();
    let waited = inlet.blocking().open(Duration::from_millis(50));
    assert_eq!(waited.unwrap_err().kind(), ErrorKind::Timeout);
    lab::until("the impostor was tried", || impostor.served() > 0);
    let outlet = lab::outlet(&context, info("impostor"));
    inlet.blocking().open(SOON).unwrap();
    assert_delivers(&outlet, &inlet);
}

/// An outlet that accepts and then says nothing must not be waited for for ever.
#[test]
fn an_inlet_recovers_from_a_silent_outlet() {
    let context = lab::context_with(&[
        ("tuning.WatchdogCheckInterval", "0.2"),
        ("tuning.WatchdogTimeThreshold", "0.5"),
    ]);
    let (claim, _impostor) = serve(Claim::of("silent"), |_, victim| victim.wait_for_its_end());
    let outlet = lab::outlet(&context, info("silent"));
    let inlet = Inlet::builder(&claim.info())
        .context(&context)
        .create()
        .unwrap();
    inlet.blocking().open(SOON).unwrap();
    assert_delivers(&outlet, &inlet);
}

/// The stream info of the other side, when it is asked for, may be anything too.
#[test]
fn a_full_info_without_end_is_given_up() {
    let context = lab::context();
    let (claim, _outlet) = serve(Claim::of("info"), |_, victim| {
        victim.send_for_ever(&b"<a>".repeat(20_000))
    });
    let inlet = inlet(&context, &claim);
    let error = inlet.blocking().full_info(SOON).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(error.to_string().contains("larger than"), "{error}");
}
