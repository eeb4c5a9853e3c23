//! Hostile outlets and responders against our inlet and resolver.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use lsl_core::{ChannelFormat, Context, ErrorKind, Inlet, ProcessingOptions, Selector};
use lsl_proto::ByteOrder;
use lsl_proto::wire::response::DataProtocol;
use lsl_proto::wire::sample110::Encoder110;

use super::responder::{Claim, EvilOutlet, EvilResponder, Victim};
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

/// Whatever comes instead of samples, the inlet says that the stream is lost and why.
#[test]
fn feeds_that_break_the_protocol_are_lost() {
    let context = lab::context();
    let check = |what: &str, claim: &Claim, parts: &[&[u8]], reason: &str| {
        let bytes = parts.concat();
        let (claim, _outlet) = serve(claim.clone(), move |_, victim| {
            victim.send(&bytes)?;
            victim.wait_for_its_end()
        });
        let inlet = inlet(&context, &claim);
        let mut pulled = [0.0_f32; 3];
        let slots = &mut pulled[..inlet.info().channel_count() as usize];
        let error = inlet.blocking().pull(slots, SOON).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Lost, "{what}: {error}");
        assert!(error.to_string().contains(reason), "{what}: {error}");
    };
    let float = &Claim::of("float");
    let text = &text_claim("text");

    let check_response = |what, parts: &[&[u8]], reason| check(what, float, parts, reason);
    let ok: &[u8] = b"LSL/110 200 OK\r\n";
    check_response("404", &[b"LSL/110 404 Not found\r\n"], "another one");
    check_response("505", &[b"LSL/110 505 Version\r\n"], "versions");
    check_response("302", &[b"LSL/110 302 Found there\r\n"], "redirects");
    check_response("http", &[b"HTTP/1.1 200 OK\r\n\r\n"], "malformed");
    check_response("zeroes", &[&vec![0; 100_000]], "too long");
    check_response("newer", &[b"LSL/999 200 OK\r\n\r\n"], "versions");
    check_response("order", &[ok, b"Byte-Order: 2134\r\n"], "byte order");
    check_response(
        "protocol",
        &[ok, b"Data-Protocol-Version: 999\r\n"],
        "versions",
    );
    check_response(
        "foreign uid",
        &[ok, b"UID: somebody-else\r\n"],
        "another one",
    );
    check_response(
        "endless line",
        &[ok, b"A: ", &vec![b'b'; 1 << 20]],
        "too long",
    );
    check_response(
        "endless headers",
        &[ok, &b"A: b\r\n".repeat(1 << 16)],
        "too long",
    );

    let check_patterns = |what, encoder: Encoder110| {
        let mut patterns = Vec::new();
        encoder.encode_test_patterns(&mut patterns);
        let response = float.response(DataProtocol::V110);
        check(
            what,
            float,
            &[&response, &patterns, &[2; 42]],
            "test patterns",
        );
    };
    let shape = |format, channels, order| Encoder110::new(format, channels, order);
    check_patterns(
        "no patterns",
        shape(ChannelFormat::Float32, 0, ByteOrder::NATIVE),
    );
    check_patterns(
        "other shape",
        shape(ChannelFormat::Int16, 6, ByteOrder::NATIVE),
    );
    check_patterns("swapped", shape(ChannelFormat::Float32, 3, ByteOrder::Big));

    let check_string = |what, sample: &[u8], reason| {
        check(what, text, &[&text.preamble(), sample], reason);
    };
    check_string("odd width", &[1, 3, 0, 0, 0], "string length");
    check_string("no width", &[1, 0], "string length");
    check_string(
        "giant",
        &[1, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        "larger than",
    );
    check_string("big", &[1, 4, 0xff, 0xff, 0xff, 0xff], "larger than");

    let check_archive = |what, archive: &[&[u8]], reason| {
        let response = float.response(DataProtocol::V100);
        check(what, float, &[&response, &archive.concat()], reason);
    };
    check_archive("no archive", &[b"samples"], "archive");
    check_archive("new archive", &[&[0x7f, 1, 18]], "version");
    check_archive("huge info", &[&[0x7f, 1, 9, 8], &[1; 8]], "larger than");
    check_archive("negative info", &[&[0x7f, 1, 9, 0xff, 0]], "archive item");
    check_archive("no info", &[&[0x7f, 1, 9, 1, 3], b"<a>"], "stream info");
    let bomb = b"<a>".repeat(1 << 16);
    let len = (3_u32 << 16).to_le_bytes();
    check_archive("info bomb", &[&[0x7f, 1, 9, 4], &len, &bomb], "nested");
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

/// Whoever answers the search for a lost stream must offer samples of the same shape.
#[test]
fn a_successor_of_another_shape_is_not_adopted() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("shape"));
    let inlet = lab::inlet(&context, "shape");
    assert_delivers(&outlet, &inlet);
    let wide = Claim {
        channels: "6".to_owned(),
        format: ChannelFormat::Int16,
        ..Claim::of("shape")
    };
    let (claim, impostor) = serve(wide, |claim, victim| {
        let mut bytes = claim.preamble();
        Encoder110::new(claim.format, 6, ByteOrder::NATIVE)
            .encode_sample(&mut bytes, 1.0, &[1_i16; 6])
            .expect("one sample");
        victim.send(&bytes)?;
        victim.wait_for_its_end()
    });
    drop(outlet);
    let responder = EvilResponder::open(&context, vec![claim.xml().into_bytes()]);
    let mut pulled = [0.0_f32; 3];
    let nothing = inlet.blocking().pull(&mut pulled, Duration::from_secs(2));
    assert!(matches!(nothing, Ok(None)), "{nothing:?}");
    assert_eq!(impostor.served(), 0);
    drop(responder);
    let outlet = lab::outlet(&context, info("shape"));
    lab::until("the real one is back", || outlet.have_consumers());
    assert_delivers(&outlet, &inlet);
}

/// Answers that describe no stream are no results, and do not hide the one that is.
#[test]
fn replies_that_describe_no_stream_are_dropped() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("found"));
    let claim = |uid: &str| Claim {
        uid: uid.to_owned(),
        ..Claim::of("found")
    };
    let rate = |srate: &str| Claim {
        srate: srate.to_owned(),
        ..claim(&format!("rate-{srate}"))
    };
    let channels = |count: &str| Claim {
        channels: count.to_owned(),
        ..claim(&format!("channels-{count}"))
    };
    let claims = [
        claim(""),
        rate("nan"),
        rate("-1"),
        rate("inf"),
        rate("1e999"),
        rate(""),
        channels("-1"),
        channels("99999999999"),
        channels(""),
        Claim {
            version: "nan".to_owned(),
            ..claim("version")
        },
        Claim {
            name: String::new(),
            ..claim("nameless")
        },
    ];
    let mut replies: Vec<Vec<u8>> = claims.map(|claim| claim.xml().into_bytes()).into();
    replies.extend([
        Vec::new(),
        vec![0; 1000],
        b"<".repeat(30_000),
        b"<a>".repeat(20_000),
        b"<a b='c'/>".repeat(5000),
        format!("<!DOCTYPE {}", "[<!".repeat(10_000)).into_bytes(),
        format!("<info><name>{}", "&lt;".repeat(15_000)).into_bytes(),
    ]);
    let _responder = EvilResponder::open(&context, replies);
    let found = context
        .resolve_blocking(&Selector::all(), 0, Duration::from_secs(2))
        .unwrap();
    let uids: Vec<_> = found.iter().map(|info| info.uid()).collect();
    assert_eq!(uids, [outlet.info().uid()]);
}

/// A stream that claims to be enormous is accepted, but nothing is allocated for the claim.
#[test]
fn claims_of_size_cost_nothing() {
    let context = lab::context();
    for (name, channels, srate) in [
        ("wide", "2147483647", "100.0"),
        ("broad", "100000000", "100.0"),
        ("fast", "3", "2147483647.0"),
        ("faster", "3", "1e300"),
    ] {
        let claim = Claim {
            channels: channels.to_owned(),
            srate: srate.to_owned(),
            ..Claim::of(name)
        };
        let (claim, _outlet) = serve(claim, |claim, victim| {
            victim.send(&claim.response(DataProtocol::V110))?;
            victim.send(&[2; 1000])?;
            victim.wait_for_its_end()
        });
        let inlet = inlet(&context, &claim);
        let error = inlet
            .blocking()
            .open(Duration::from_millis(200))
            .unwrap_err();
        // The widest is refused at once, the others wait for the rest of their test patterns.
        assert!(
            matches!(error.kind(), ErrorKind::Lost | ErrorKind::Timeout),
            "{name}: {error}"
        );
    }
}

/// A service that lies about the time gives no time rather than a wrong one.
#[test]
fn a_lying_clock_is_not_believed() {
    let context = lab::context();
    let (claim, _outlet) = serve(Claim::of("clock"), |claim, victim| {
        victim.send(&claim.preamble())?;
        victim.wait_for_its_end()
    });
    // The claim names one port for both; UDP and TCP have it side by side.
    let service = UdpSocket::bind((Ipv4Addr::LOCALHOST, claim.port)).unwrap();
    service
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let inlet = Inlet::builder(&claim.info())
        .context(&context)
        .recover(false)
        .processing(ProcessingOptions::ALL)
        .create()
        .unwrap();
    inlet.blocking().open(SOON).unwrap();
    std::thread::scope(|scope| {
        let liar = scope.spawn(|| {
            let mut buffer = [0; 2048];
            let mut asked = 0;
            lab::until("the clock is asked", || {
                if let Ok((length, from)) = service.recv_from(&mut buffer) {
                    let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    let wave = text.split_whitespace().nth(1).unwrap_or_default();
                    let t0 = text.split_whitespace().nth(2).unwrap_or_default();
                    for reply in [
                        format!(" {wave} {t0} nan nan"),
                        format!(" {wave} {t0} inf -inf"),
                        format!(" {wave} 1e999 1 1"),
                        format!(" {wave} {t0}"),
                        format!(" 7{wave} {t0} 5 5"),
                        " 1 1 1 1".to_owned(),
                        String::new(),
                    ] {
                        let _ = service.send_to(reply.as_bytes(), from);
                    }
                    asked += 1;
                }
                asked >= 8
            });
        });
        let corrected = inlet.blocking().time_correction(Duration::from_secs(1));
        assert_eq!(corrected.unwrap_err().kind(), ErrorKind::Timeout);
        liar.join().unwrap();
    });
    // An honest outlet in the same process is not affected.
    let outlet = lab::outlet(&context, info("honest"));
    let honest = lab::inlet(&context, "honest");
    honest.blocking().time_correction(SOON).unwrap();
    assert_delivers(&outlet, &honest);
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
