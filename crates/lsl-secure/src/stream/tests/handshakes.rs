//! Handshakes that succeed, and those that one side ends.

use super::*;

#[test]
fn one_byte_at_a_time() {
    run(async {
        let (mut near, mut far) = duplex(1);
        let accepting = tokio::spawn(async move {
            let mut session = accept_any(&mut far, &mut Open).await.unwrap();
            // Not a byte of the request behind M3 has been read, and now comes all of it.
            let mut request = vec![0; b"request".len() + 19];
            far.read_exact(&mut request).await.unwrap();
            let request = records(&mut session.opener, &mut request);
            assert_eq!(request, ["Data([114, 101, 113, 117, 101, 115, 116])"]);
            let mut sealed = Vec::new();
            session
                .sealer
                .seal_data(b"answer", 0.0, &mut sealed)
                .unwrap();
            far.write_all(&sealed).await.unwrap();
            session
        });
        let (mut inlet, _) = connect_any(&mut near).await.unwrap();
        // Nor a byte of the answer behind DESCRIPTOR.
        let mut answer = vec![0; b"answer".len() + 19];
        near.read_exact(&mut answer).await.unwrap();
        let answer = records(&mut inlet.opener, &mut answer);
        assert_eq!(answer, ["Data([97, 110, 115, 119, 101, 114])"]);
        let outlet = accepting.await.unwrap();
        assert_eq!(inlet.id, outlet.id);
        assert_eq!(inlet.peer, super::outlet().key.public());
        assert_eq!(outlet.peer, super::inlet().key.public());
    });
}

/// A request that fills the way, towards an outlet that is still busy with its DESCRIPTOR.
#[test]
fn a_long_request_and_a_long_descriptor_pass_each_other() {
    run(async {
        let (mut near, mut far) = duplex(16);
        let accepting = tokio::spawn(async move {
            accept_any(&mut far, &mut Open).await.unwrap();
            far.read_to_end(&mut Vec::new()).await.unwrap()
        });
        let request = vec![b'x'; 20_000];
        let connected = connect(&mut near, inlet(), &request, |_| Ok(()), |_| Ok(()));
        connected.await.unwrap();
        drop(near);
        assert_eq!(accepting.await.unwrap(), 20_000 + 2 * 19);
    });
}

#[test]
fn the_descriptor_arrives_as_it_was_given() {
    run(async {
        let (mut near, mut far) = duplex(4096);
        let accepting = tokio::spawn(async move { accept_any(&mut far, &mut Open).await });
        let mut checked = None;
        let connected = connect(
            &mut near,
            inlet(),
            b"",
            |_| Ok(()),
            |descriptor| {
                checked = Some(descriptor.clone());
                Ok(())
            },
        );
        let (session, received) = connected.await.unwrap();
        assert_eq!(received, descriptor());
        assert_eq!(checked, Some(descriptor()));
        // An empty request is no record.
        assert_eq!(session.sealer.totals().records, 0);
        accepting.await.unwrap().unwrap();
    });
}

#[test]
fn the_suite_is_the_best_of_both() {
    for (ours, theirs, name) in [
        (Suites::Both, Suites::Both, "AES-256-GCM"),
        (Suites::Both, Suites::ChaCha20Only, "ChaCha20-Poly1305"),
        (Suites::ChaCha20Only, Suites::Both, "ChaCha20-Poly1305"),
    ] {
        run(async move {
            let (mut near, mut far) = duplex(4096);
            let accepting = tokio::spawn(async move {
                read_preamble(&mut far).await;
                accept(&mut far, local(4, theirs), &descriptor(), &mut Open).await
            });
            let connected = connect(&mut near, local(3, ours), b"", |_| Ok(()), |_| Ok(()));
            assert_eq!(connected.await.unwrap().0.suite.name(), name);
            assert_eq!(accepting.await.unwrap().unwrap().suite.name(), name);
        });
    }
}

#[test]
fn an_inlet_that_refuses_says_why_and_not_who_it_is() {
    run(async {
        let (mut near, mut far) = duplex(4096);
        let accepting = tokio::spawn(async move { accept_any(&mut far, &mut Open).await });
        let mut seen = None;
        let connected = connect(
            &mut near,
            inlet(),
            b"request",
            |peer| {
                seen = Some(peer);
                Err(Cause::RoleNotAllowed)
            },
            |_| panic!("no DESCRIPTOR for one who refuses"),
        );
        assert_eq!(cause(connected.await), Cause::RoleNotAllowed);
        assert_eq!(seen, Some(outlet().key.public()));
        let refused = accepting.await.unwrap();
        assert!(matches!(
            refused,
            Err(Error::Alert {
                cause: Cause::RoleNotAllowed,
                ..
            })
        ));
    });
}

#[test]
fn an_outlet_that_refuses_says_why() {
    run(async {
        let (mut near, mut far) = duplex(4096);
        let accepting = tokio::spawn(async move {
            let others = HashSet::from([outlet().key.public()]);
            accept_any(&mut far, &mut Keys(others)).await
        });
        let connected = connect_any(&mut near).await;
        assert!(matches!(
            connected,
            Err(Error::Alert {
                cause: Cause::NotAuthorised,
                ..
            })
        ));
        let refused = accepting.await.unwrap().unwrap_err();
        assert_eq!(refused.cause(), Cause::NotAuthorised);
        let fingerprint = inlet().key.public().fingerprint().to_string();
        assert!(refused.to_string().contains(&fingerprint), "{refused}");
    });
}

#[test]
fn a_stream_that_was_not_resolved_is_refused() {
    run(async {
        let (mut near, mut far) = duplex(4096);
        let accepting = tokio::spawn(async move {
            let session = accept_any(&mut far, &mut Open).await.unwrap();
            (far, session)
        });
        let connected = connect(
            &mut near,
            inlet(),
            b"request",
            |_| Ok(()),
            |descriptor| {
                assert_eq!(descriptor.name, b"name");
                Err(Cause::DescriptorMismatch)
            },
        );
        assert_eq!(cause(connected.await), Cause::DescriptorMismatch);
        drop(near);
        let (mut far, mut session) = accepting.await.unwrap();
        let mut rest = Vec::new();
        far.read_to_end(&mut rest).await.unwrap();
        let records = records(&mut session.opener, &mut rest);
        assert_eq!(records.last().unwrap(), "Alert(DescriptorMismatch, \"\")");
    });
}

#[test]
fn another_psk_is_a_silent_end() {
    run(async {
        let (mut near, mut far) = duplex(4096);
        let with_psk = Arc::new(Local {
            psk: Some(crate::Psk::from_bytes([9; 32]).unwrap()),
            ..Arc::into_inner(inlet()).unwrap()
        });
        let accepting = tokio::spawn(async move {
            let accepted = accept_any(&mut far, &mut Open).await;
            let mut rest = Vec::new();
            far.read_to_end(&mut rest).await.unwrap();
            (accepted, rest)
        });
        let connected = connect(&mut near, with_psk, b"request", |_| Ok(()), |_| Ok(()));
        assert_eq!(cause(connected.await), Cause::DecryptFailed);
        drop(near);
        let (accepted, rest) = accepting.await.unwrap();
        assert_eq!(cause(accepted), Cause::Truncated);
        assert!(rest.is_empty());
    });
}

#[test]
fn an_outlet_that_does_not_introduce_itself_is_told() {
    run(async {
        let (mut near, mut far) = duplex(4096);
        let accepting = tokio::spawn(async move {
            read_preamble(&mut far).await;
            let m1 = receive(&mut far, MAX_M1_LEN, Cause::Malformed).await;
            let responder = Responder::new(outlet());
            let (wait, m2) = responder.receive_m1(&m1.unwrap(), &mut OsRandom).unwrap();
            far.write_all(&m2).await.unwrap();
            let m3 = receive(&mut far, MAX_M2_M3_LEN, Cause::Malformed).await;
            let Ok(Claim::Verified(verified)) = wait.receive_m3(&m3.unwrap()) else {
                panic!("M3 is good");
            };
            let (mut session, _) = verified.accept(&descriptor()).unwrap();
            session.sealer.skip_descriptor();
            let mut sealed = Vec::new();
            session.sealer.seal_data(b"x", 0.0, &mut sealed).unwrap();
            far.write_all(&sealed).await.unwrap();
            let mut rest = Vec::new();
            far.read_to_end(&mut rest).await.unwrap();
            records(&mut session.opener, &mut rest)
        });
        assert_eq!(cause(connect_any(&mut near).await), Cause::UnexpectedRecord);
        drop(near);
        let told = accepting.await.unwrap();
        assert_eq!(told.last().unwrap(), "Alert(UnexpectedRecord, \"\")");
    });
}

#[test]
fn asymmetric_work_runs_on_two_threads_however_many_peers_there_are() {
    use std::sync::atomic::AtomicUsize;

    static NOW: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    run(async {
        let mut peers = tokio::task::JoinSet::new();
        for _ in 0..64 {
            peers.spawn(in_background(|| {
                let now = NOW.fetch_add(1, Ordering::SeqCst) + 1;
                MOST.fetch_max(now, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(2));
                NOW.fetch_sub(1, Ordering::SeqCst);
            }));
        }
        assert_eq!(peers.join_all().await.len(), 64);
    });
    assert_eq!(MOST.load(Ordering::SeqCst), 2);
}
