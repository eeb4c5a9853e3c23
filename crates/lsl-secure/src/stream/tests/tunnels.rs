//! [`SecureStream`]: bytes in, the same bytes out, and an end that nobody can forge.

use super::*;
use crate::record::RECORD_OVERHEAD;

/// The inlet's and the outlet's end of a tunnel.
async fn tunnel(buffer: usize) -> (SecureStream<DuplexStream>, SecureStream<DuplexStream>) {
    let [(near, inlet), (far, outlet)] = established(buffer).await;
    (
        SecureStream::from_parts(near, inlet),
        SecureStream::from_parts(far, outlet),
    )
}

fn session_cause(error: &io::Error) -> Cause {
    let inner = error.get_ref().and_then(|error| error.downcast_ref());
    inner.map(Error::cause).expect("an error of ours")
}

fn bytes(len: usize) -> Vec<u8> {
    (0..253).cycle().take(len).collect()
}

#[test]
fn what_is_written_is_read() {
    // Small buffers on the way make every write partial.
    for buffer in [7, 1000, 100_000] {
        run(async move {
            let (mut inlet, mut outlet) = tunnel(buffer).await;
            let outlet = tokio::spawn(async move {
                outlet.write_all(&bytes(300_000)).await.unwrap();
                outlet.shutdown().await.unwrap();
                let mut sent = Vec::new();
                outlet.read_to_end(&mut sent).await.unwrap();
                sent
            });
            let mut received = Vec::new();
            inlet.read_to_end(&mut received).await.unwrap();
            assert!(received == bytes(300_000), "{} bytes", received.len());
            inlet.write_all(&bytes(50_000)).await.unwrap();
            inlet.shutdown().await.unwrap();
            assert!(outlet.await.unwrap() == bytes(50_000));
        });
    }
}

#[test]
fn constructors_do_the_handshake() {
    run(async {
        let (near, mut far) = duplex(4096);
        let accepting = tokio::spawn(async move {
            read_preamble(&mut far).await;
            SecureStream::accept(far, outlet(), &descriptor(), &mut Open).await
        });
        let connected = SecureStream::connect(near, inlet(), b"request", |_| Ok(()), |_| Ok(()));
        let (inlet, received) = connected.await.unwrap();
        let mut outlet = accepting.await.unwrap().unwrap();
        assert_eq!(received, descriptor());
        assert_eq!(inlet.session_id(), outlet.session_id());
        assert_eq!(inlet.peer(), super::outlet().key.public());
        assert_eq!(inlet.suite(), outlet.suite());
        let (mut ours, mut theirs) = ([0; 32], [0; 32]);
        inlet.exporter().export(b"label", b"context", &mut ours);
        outlet.exporter().export(b"label", b"context", &mut theirs);
        assert_eq!(ours, theirs);
        assert_ne!(ours, [0; 32]);
        let mut request = [0; 7];
        outlet.read_exact(&mut request).await.unwrap();
        assert_eq!(&request, b"request");
    });
}

#[test]
fn a_refused_constructor_closes_so_that_the_reason_arrives() {
    run(async {
        let (near, mut far) = duplex(4096);
        let accepting = tokio::spawn(async move {
            read_preamble(&mut far).await;
            SecureStream::accept(far, outlet(), &descriptor(), &mut Full).await
        });
        let connected = SecureStream::connect(near, inlet(), b"request", |_| Ok(()), |_| Ok(()));
        assert!(matches!(
            connected.await,
            Err(Error::Refused { status: 503, .. })
        ));
        assert_eq!(cause(accepting.await.unwrap()), Cause::Busy);
    });
}

#[test]
fn an_end_without_close_is_an_error() {
    run(async {
        let [(near, inlet), (far, mut outlet)] = established(4096).await;
        let mut inlet = SecureStream::from_parts(near, inlet);
        let mut far = far;
        let mut sealed = Vec::new();
        outlet.sealer.seal_data(b"some", 0.0, &mut sealed).unwrap();
        outlet.sealer.seal_data(b"more", 0.0, &mut sealed).unwrap();
        far.write_all(&sealed[..sealed.len() - 1]).await.unwrap();
        far.shutdown().await.unwrap();
        let mut received = Vec::new();
        let error = inlet.read_to_end(&mut received).await.unwrap_err();
        assert_eq!(received, b"some");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(session_cause(&error), Cause::Truncated);
        let again = inlet.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(session_cause(&again), Cause::Truncated);
        // Nothing may be sent in a session that failed.
        assert!(inlet.write(b"x").await.is_err());
    });
}

#[test]
fn close_is_the_end_whatever_follows() {
    run(async {
        let [(near, inlet), (mut far, mut outlet)] = established(4096).await;
        let mut inlet = SecureStream::from_parts(near, inlet);
        let mut sealed = Vec::new();
        outlet.sealer.seal_data(b"all", 0.0, &mut sealed).unwrap();
        outlet.sealer.seal_close(&mut sealed).unwrap();
        sealed.extend_from_slice(b"what an attacker adds");
        far.write_all(&sealed).await.unwrap();
        let mut received = Vec::new();
        inlet.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"all");
    });
}

#[test]
fn a_changed_byte_ends_it_after_what_was_authentic() {
    run(async {
        let [(near, inlet), (mut far, mut outlet)] = established(4096).await;
        let mut inlet = SecureStream::from_parts(near, inlet);
        let mut sealed = Vec::new();
        outlet.sealer.seal_data(b"good", 0.0, &mut sealed).unwrap();
        let good = sealed.len();
        outlet.sealer.seal_data(b"bad", 0.0, &mut sealed).unwrap();
        sealed[good + 5] ^= 1;
        far.write_all(&sealed).await.unwrap();
        let mut received = Vec::new();
        let error = inlet.read_to_end(&mut received).await.unwrap_err();
        assert_eq!(received, b"good");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(session_cause(&error), Cause::RecordAuthFailed);
        let again = inlet.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(session_cause(&again), Cause::RecordAuthFailed);
        // Such a peer is told nothing, not even CLOSE.
        let sent = inlet_sent(inlet, &mut far).await;
        assert!(sent.is_empty(), "{sent:?}");
    });
}

/// Everything the inlet has sent since its M3.
async fn inlet_sent(mut inlet: SecureStream<DuplexStream>, far: &mut DuplexStream) -> Vec<u8> {
    inlet.shutdown().await.unwrap();
    drop(inlet);
    let mut sent = Vec::new();
    far.read_to_end(&mut sent).await.unwrap();
    sent
}

#[test]
fn a_peer_that_breaks_the_rules_is_told() {
    run(async {
        let [(near, inlet), (mut far, mut outlet)] = established(4096).await;
        let mut inlet = SecureStream::from_parts(near, inlet);
        // Seventeen updates at once.
        let mut sealed = Vec::new();
        for _ in 0..17 {
            outlet.sealer.seal_key_update(&mut sealed).unwrap();
        }
        far.write_all(&sealed).await.unwrap();
        let error = inlet.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(session_cause(&error), Cause::UnexpectedRecord);
        let mut sent = inlet_sent(inlet, &mut far).await;
        let records = records(&mut outlet.opener, &mut sent);
        assert_eq!(records.last().unwrap(), "Alert(UnexpectedRecord, \"\")");
    });
}

#[test]
fn an_alert_is_an_error_with_its_text_made_safe() {
    run(async {
        let [(near, inlet), (mut far, mut outlet)] = established(4096).await;
        let mut inlet = SecureStream::from_parts(near, inlet);
        let mut sealed = Vec::new();
        outlet
            .sealer
            .seal_alert(Cause::Revoked, "gone\u{1b}", &mut sealed)
            .unwrap();
        far.write_all(&sealed).await.unwrap();
        let error = inlet.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        // Of two causes with one code the first of the table.
        assert_eq!(session_cause(&error), Cause::Expired);
        let text = error.to_string();
        assert!(
            text.contains("gone") && !text.contains('\u{1b}'),
            "{text:?}"
        );
    });
}

#[test]
fn pings_are_answered_by_a_reader_and_only_the_newest() {
    run(async {
        let [(mut near, mut inlet), (far, outlet)] = established(4096).await;
        let mut outlet = SecureStream::from_parts(far, outlet);
        let mut sealed = Vec::new();
        for t0 in 1..=100_u8 {
            inlet.sealer.seal_ping(f64::from(t0), &mut sealed).unwrap();
        }
        near.write_all(&sealed).await.unwrap();
        let reading = tokio::spawn(async move {
            let _ = outlet.read(&mut [0; 8]).await;
        });
        let mut pong = vec![0; 24 + RECORD_OVERHEAD];
        near.read_exact(&mut pong).await.unwrap();
        let before = local_clock();
        let mut times = Vec::new();
        inlet
            .opener
            .receive(&mut pong, before, |record| {
                if let Record::Pong(pong) = record {
                    times.push(pong);
                }
                Ok(())
            })
            .unwrap();
        let [[t0, t1, t2]] = times[..] else {
            panic!("{times:?}");
        };
        assert!(t1 <= t2 && t2 <= before);
        // What came in one read is answered once.
        assert_eq!(t0.to_bits(), 100_f64.to_bits());
        drop(near);
        reading.await.unwrap();
    });
}

#[test]
fn little_is_sealed_ahead_of_a_slow_reader() {
    run(async {
        let (mut inlet, outlet) = tunnel(64).await;
        let mut taken = 0;
        // Nobody reads at the other end, so that at some point no more is taken.
        let writing = async {
            loop {
                taken += inlet.write(&bytes(16_384)).await.unwrap();
            }
        };
        assert!(timeout(Duration::from_secs(1), writing).await.is_err());
        assert!((16_384..=65_536).contains(&taken), "{taken}");
        drop(outlet);
    });
}

#[test]
fn a_stream_that_breaks_is_an_error_of_every_call() {
    run(async {
        let [(_, inlet), _] = established(4096).await;
        let mut broken = SecureStream::from_parts(Reset, inlet);
        assert!(broken.write(b"x").await.is_err());
        assert!(broken.flush().await.is_err());
        assert!(broken.shutdown().await.is_err());
        let error = broken.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    });
}
