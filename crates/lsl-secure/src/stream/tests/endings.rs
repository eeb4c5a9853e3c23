//! Peers that say nothing, too little or too much, and how connections are closed.

use super::*;

/// How `connect` ends if the outlet sends `answer` after the hello, and then closes or stays silent.
fn connect_ends(answer: &[u8], closes: bool, expected: Cause, after: u64) {
    let answer = answer.to_vec();
    run(async move {
        let (mut near, mut far) = duplex(4096);
        far.write_all(&answer).await.unwrap();
        if closes {
            far.shutdown().await.unwrap();
        }
        let start = Instant::now();
        assert_eq!(cause(connect_any(&mut near).await), expected, "{answer:?}");
        assert_eq!(start.elapsed().as_secs(), after);
        drop(far);
    });
}

#[test]
fn an_outlet_that_closes_or_hangs() {
    connect_ends(b"", true, Cause::PeerNotSecure, 0);
    connect_ends(b"\0", true, Cause::Truncated, 0);
    connect_ends(b"\0\x20abc", true, Cause::Truncated, 0);
    connect_ends(b"", false, Cause::Timeout, 10);
    connect_ends(b"\0", false, Cause::Timeout, 10);
    connect_ends(b"\0\x20abc", false, Cause::Timeout, 10);
    connect_ends(b"\x08\x01", false, Cause::Malformed, 0);
    connect_ends(b"\xff\xff", false, Cause::Malformed, 0);
    connect_ends(b"\0\0", false, Cause::Malformed, 0);
}

#[test]
fn a_reset_instead_of_an_answer() {
    run(async {
        let connected = connect(&mut Reset, inlet(), b"", |_| Ok(()), |_| Ok(())).await;
        assert_eq!(cause(connected), Cause::PeerNotSecure);
        let accepted = accept(&mut Reset, outlet(), &descriptor(), &mut Open).await;
        assert_eq!(cause(accepted), Cause::Truncated);
        close(&mut Reset).await;
    });
}

/// How `accept` ends if the inlet sends `bytes` behind the preamble.
fn accept_ends(bytes: &[u8], closes: bool, expected: Cause, after: u64) {
    let bytes = bytes.to_vec();
    run(async move {
        let (mut near, mut far) = duplex(4096);
        near.write_all(&bytes).await.unwrap();
        if closes {
            near.shutdown().await.unwrap();
        }
        let start = Instant::now();
        let accepted = accept(&mut far, outlet(), &descriptor(), &mut Open).await;
        assert_eq!(cause(accepted), expected, "{bytes:?}");
        assert_eq!(start.elapsed().as_secs(), after);
        drop(near);
    });
}

#[test]
fn an_inlet_that_closes_or_hangs() {
    let (_, flight) = Initiator::start(inlet(), &mut OsRandom).unwrap();
    let m1 = &flight[PREAMBLE.len()..];
    accept_ends(b"", true, Cause::Truncated, 0);
    accept_ends(b"", false, Cause::Timeout, 3);
    accept_ends(&m1[..m1.len() - 1], true, Cause::Truncated, 0);
    accept_ends(&m1[..m1.len() - 1], false, Cause::Timeout, 3);
    accept_ends(m1, true, Cause::Truncated, 0);
    accept_ends(m1, false, Cause::Timeout, 5);
    accept_ends(&[2, 1], false, Cause::Malformed, 0);
    accept_ends(b"LSL:secure/1\r\n", false, Cause::Malformed, 0);
    let with = |rest: &[u8]| [m1, rest].concat();
    accept_ends(&with(&[0, 1]), true, Cause::Truncated, 0);
    accept_ends(&with(&[8, 1]), false, Cause::Malformed, 0);
    accept_ends(&with(&[0, 0]), false, Cause::Malformed, 0);
    accept_ends(
        &with(&[
            0, 20, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ]),
        false,
        Cause::DecryptFailed,
        0,
    );
}

#[test]
fn one_byte_a_second_is_too_slow() {
    run(async {
        let (mut near, mut far) = duplex(4096);
        let (_, flight) = Initiator::start(inlet(), &mut OsRandom).unwrap();
        let loris = tokio::spawn(async move {
            for byte in &flight[PREAMBLE.len()..] {
                near.write_all(&[*byte]).await.unwrap();
                sleep(Duration::from_secs(1)).await;
            }
        });
        let start = Instant::now();
        let accepted = accept(&mut far, outlet(), &descriptor(), &mut Open).await;
        assert_eq!(cause(accepted), Cause::Timeout);
        assert_eq!(start.elapsed().as_secs(), 3);
        loris.abort();
    });
}

/// An outlet that answers M1 and M3 with anything in place of DESCRIPTOR.
fn instead_of_descriptor(bytes: &[u8], closes: bool, expected: Cause, after: u64) {
    let bytes = bytes.to_vec();
    run(async move {
        let (mut near, mut far) = duplex(4096);
        let accepting = tokio::spawn(async move {
            read_preamble(&mut far).await;
            let m1 = receive(&mut far, MAX_M1_LEN, Cause::Malformed)
                .await
                .unwrap();
            let responder = Responder::new(outlet());
            let (wait, m2) = responder.receive_m1(&m1, &mut OsRandom).unwrap();
            far.write_all(&m2).await.unwrap();
            let m3 = receive(&mut far, MAX_M2_M3_LEN, Cause::Malformed).await;
            assert!(matches!(
                wait.receive_m3(&m3.unwrap()),
                Ok(Claim::Verified(_))
            ));
            far.write_all(&bytes).await.unwrap();
            if closes {
                far.shutdown().await.unwrap();
            }
            far
        });
        let start = Instant::now();
        assert_eq!(cause(connect_any(&mut near).await), expected);
        assert_eq!(start.elapsed().as_secs(), after);
        accepting.await.unwrap();
    });
}

#[test]
fn anything_but_a_descriptor() {
    instead_of_descriptor(b"", true, Cause::Truncated, 0);
    instead_of_descriptor(b"\0", true, Cause::Truncated, 0);
    instead_of_descriptor(b"", false, Cause::Timeout, 10);
    instead_of_descriptor(b"\0\x40abc", false, Cause::Timeout, 10);
    instead_of_descriptor(b"\x40\x12", false, Cause::RecordOverflow, 0);
    instead_of_descriptor(b"\0\x10", true, Cause::Truncated, 0);
    instead_of_descriptor(
        &[[0, 20].as_slice(), &[7; 20]].concat(),
        true,
        Cause::RecordAuthFailed,
        0,
    );
    // No second chance for a textual refusal, nor for plaintext.
    instead_of_descriptor(b"LSL/110 200 OK\r\n", true, Cause::RecordOverflow, 0);
}

#[test]
fn closing_reads_what_is_still_coming() {
    run(async {
        let (mut near, mut far) = duplex(256);
        let sending = tokio::spawn(async move {
            // More than fits on the way, sent before the answer is read.
            far.write_all(&vec![7; 60_000]).await.unwrap();
            far.shutdown().await.unwrap();
            let mut answer = Vec::new();
            far.read_to_end(&mut answer).await.unwrap();
            answer
        });
        near.write_all(b"the reason").await.unwrap();
        close(&mut near).await;
        drop(near);
        assert_eq!(sending.await.unwrap(), b"the reason");
    });
}

#[test]
fn closing_has_limits() {
    run(async {
        // One who never stops.
        let (mut near, mut far) = duplex(1024);
        let sending = tokio::spawn(async move {
            let mut sent = 0;
            while let Ok(len) = far.write(&[0; 1024]).await {
                sent += len;
            }
            sent
        });
        close(&mut near).await;
        drop(near);
        let sent = sending.await.unwrap();
        assert!((65_536..=65_536 + 1024).contains(&sent), "{sent}");

        // One who says nothing and does not close.
        let (mut near, far) = duplex(1024);
        let start = Instant::now();
        close(&mut near).await;
        assert_eq!(start.elapsed().as_millis(), 1000);
        drop(far);
    });
}

#[test]
fn a_peer_that_reads_nothing_holds_nobody() {
    run(async {
        let (mut near, far) = duplex(8);
        let start = Instant::now();
        assert_eq!(cause(connect_any(&mut near).await), Cause::Timeout);
        assert_eq!(start.elapsed().as_secs(), 10);
        drop(far);

        let (_, flight) = Initiator::start(inlet(), &mut OsRandom).unwrap();
        let (mut near, mut far) = duplex(8);
        let writing = tokio::spawn(async move {
            near.write_all(&flight[PREAMBLE.len()..]).await.unwrap();
            near
        });
        let start = Instant::now();
        let accepted = accept(&mut far, outlet(), &descriptor(), &mut Open).await;
        assert_eq!(cause(accepted), Cause::Timeout);
        assert_eq!(start.elapsed().as_secs(), 5);
        writing.await.unwrap();
    });
}
