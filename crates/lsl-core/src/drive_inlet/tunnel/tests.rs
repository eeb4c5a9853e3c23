use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::sync::mpsc;

use lsl_secure::config::Settings;
use lsl_secure::connection::{Answer, Event as Happening, Question};
use lsl_secure::trust::TrustList;
use lsl_secure::{Live, Local, OsRandom, Policy, SecretKey, Suites};
use tokio::net::TcpListener;

use super::*;
use crate::drive_inlet::connection::{Batch, Dialled};
use crate::net::secure_driver::proceed;

fn local() -> Arc<Local> {
    Arc::new(Local {
        key: SecretKey::from_seed(&[7; 32]),
        psk: None,
        suites: Suites::ChaCha20Only,
        pad_to: 0,
    })
}

fn descriptor() -> Descriptor {
    Descriptor {
        uid: b"u".to_vec(),
        name: b"n".to_vec(),
        stream_type: Vec::new(),
        source_id: Vec::new(),
        hostname: Vec::new(),
        session_id: Vec::new(),
        channel_count: 1,
        nominal_srate: 0.0,
        channel_format: 1,
        created_at: 1.0,
    }
}

/// Handshakes, trusting everybody.
async fn shake_hands(stream: &TcpStream, connection: &mut Connection) -> Arc<SessionInfo> {
    let mut answer = None;
    loop {
        answer = Some(match proceed(stream, connection, answer).await.unwrap() {
            Happening::Question(Question::Turn) => Answer::Turn(Ok(())),
            Happening::Question(Question::PeerKey(_)) => Answer::PeerKey(Ok("peer".to_owned())),
            Happening::Question(Question::Descriptor(_)) => Answer::Descriptor(Ok(())),
            Happening::Established(info) => return info,
            other => panic!("{other:?}"),
        });
    }
}

/// A tunnel that pings after this time, and the outlet's end of it.
async fn pair(ping_after: Duration) -> (Dialled, TcpStream, Connection) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let outlet = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut preamble = [0; 14];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut preamble)
            .await
            .unwrap();
        let mut connection = Connection::responder(local(), descriptor().into(), local_clock());
        shake_hands(&stream, &mut connection).await;
        (stream, connection)
    });
    let stream = TcpStream::connect(address).await.unwrap();
    let started = Connection::initiator(local(), b"hello", local_clock(), &mut OsRandom);
    let mut connection = started.unwrap();
    let info = shake_hands(&stream, &mut connection).await;
    let receiver = connection.receiver().unwrap();
    receiver.ping_after(ping_after.as_secs_f64(), local_clock());
    let settings = Settings::new(Policy::Required);
    let key = SecretKey::from_seed(&[7; 32]);
    let security = Security::from_parts(settings, key, TrustList::default()).unwrap();
    let security = Arc::new(security);
    let live = Live {
        peer: info.peer,
        role: Role::Outlet,
        remote: address.ip(),
        local: address.ip(),
        stream: Descriptor {
            uid: b"u".to_vec(),
            ..Descriptor::default()
        },
    };
    let about = About {
        _enrolled: security.enrol(live, |_| {}).unwrap(),
        security,
        peers: Arc::default(),
        ending: Arc::default(),
        peer: address,
    };
    let stream = ByteStream::new(stream).unwrap();
    let tunnel = Tunnel::new(stream, connection, info, descriptor(), about);
    let (stream, connection) = outlet.await.unwrap();
    (Dialled::secure(address, tunnel), stream, connection)
}

/// Reads as an outlet does, and answers PINGs. Returns how the session ended.
async fn attend(stream: &TcpStream, connection: &mut Connection) -> lsl_secure::Result<()> {
    let mut buffer = [0; 512];
    loop {
        stream.readable().await.unwrap();
        let Ok(received) = stream.try_read(&mut buffer) else {
            continue;
        };
        connection.handle_input(&mut buffer[..received], local_clock(), |_| Ok(()))?;
        while let Some(event) = connection.poll_event() {
            match event {
                Happening::Ping { t0, t1 } => connection.sender().unwrap().pong(t0, t1),
                Happening::Closed => return Ok(()),
                _ => {}
            }
        }
        let _ = connection.flush(local_clock, |bytes| stream.try_write(bytes));
    }
}

/// The session itself.
fn inner(dialled: &mut Dialled) -> &mut Tunnel {
    dialled.tunnel().unwrap()
}

fn sent_records(dialled: &mut Dialled) -> u64 {
    let sender = inner(dialled).connection.sender().unwrap();
    sender.totals().records
}

fn on_runtime<R: Send + 'static>(task: impl Future<Output = R> + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    runtime::spawn(async move { sender.send(task.await).unwrap() }).unwrap();
    receiver.recv_timeout(Duration::from_mins(1)).unwrap()
}

#[test]
fn an_outlet_that_is_silent_but_alive_is_pinged_and_kept() {
    let ended = on_runtime(async {
        let (mut tunnel, stream, mut session) = pair(Duration::from_millis(20)).await;
        let reading = tokio::spawn(async move { attend(&stream, &mut session).await });
        let silence = Duration::from_millis(400);
        let read = tokio::time::timeout(silence, async {
            loop {
                // PONGs are no news for the reader.
                let batch = tunnel.read(|_| Ok(())).await;
                if !matches!(batch, Ok(Batch::Some)) {
                    return batch;
                }
            }
        });
        let outcome = read.await;
        let sent = sent_records(&mut tunnel);
        drop(tunnel);
        reading.await.unwrap().unwrap();
        (outcome.is_err(), sent)
    });
    assert!(ended.0, "the session ended");
    // The request, and several pings: more than go unanswered before the end.
    assert!(ended.1 > 5, "{} records", ended.1);
}

#[test]
fn an_outlet_that_is_gone_without_a_word_is_given_up() {
    let error = on_runtime(async {
        let (mut tunnel, stream, _session) = pair(Duration::from_millis(20)).await;
        let error = tunnel.read(|_| Ok(())).await.unwrap_err();
        drop(stream);
        (error, sent_records(&mut tunnel))
    });
    assert_eq!(error.1, 1 + 3, "the request and the PINGs");
    assert!(
        error.0.to_string().contains("does not answer"),
        "{}",
        error.0
    );
}

#[test]
fn bytes_that_never_become_a_record_are_no_sign_of_life() {
    let error = on_runtime(async {
        let (mut tunnel, mut stream, _session) = pair(Duration::from_millis(20)).await;
        let dripping = tokio::spawn(async move {
            use tokio::io::AsyncWriteExt;

            // The longest record there is.
            let mut sent = stream.write_all(&16_401_u16.to_be_bytes()).await;
            while sent.is_ok() {
                tokio::time::sleep(Duration::from_millis(2)).await;
                sent = stream.write_all(&[0]).await;
            }
        });
        let error = loop {
            if let Err(error) = tunnel.read(|_| Ok(())).await {
                break error;
            }
        };
        dripping.abort();
        error
    });
    assert!(error.to_string().contains("does not answer"), "{error}");
}

#[test]
fn who_loses_trust_is_told_and_ends() {
    let (error, alert) = on_runtime(async {
        let (mut tunnel, stream, mut session) = pair(Duration::from_secs(30)).await;
        inner(&mut tunnel).about.ending.end(Cause::Revoked);
        let error = tunnel.read(|_| Ok(())).await.unwrap_err();
        drop(tunnel);
        let alert = attend(&stream, &mut session).await.unwrap_err().to_string();
        (error, alert)
    });
    assert!(matches!(error, Error::Security(_)), "{error}");
    assert!(error.to_string().contains("revoked"), "{error}");
    // Two causes have the code 10; the first of them is what is understood.
    assert!(alert.contains("code 10"), "{alert}");
}

#[test]
fn the_clock_has_its_pings_sent_and_their_answers() {
    let answers = on_runtime(async {
        let (mut tunnel, stream, mut session) = pair(Duration::from_secs(30)).await;
        let reading = tokio::spawn(async move { attend(&stream, &mut session).await });
        let pings = inner(&mut tunnel).pings();
        let asking = async {
            let mut answers = Vec::new();
            for _ in 0..3 {
                // The reader sleeps by then, or not: both ways it is sent.
                tokio::task::yield_now().await;
                let t0 = local_clock();
                pings.ask(t0);
                answers.push((t0, pings.answer().await));
            }
            answers
        };
        let read = async { while let Ok(Batch::Some) = tunnel.read(|_| Ok(())).await {} };
        let answers = match crate::net::race::race(asking, read).await {
            crate::net::race::Winner::First(answers) => answers,
            crate::net::race::Winner::Second(()) => panic!("the session ended"),
        };
        drop(tunnel);
        reading.await.unwrap().unwrap();
        answers
    });
    assert_eq!(answers.len(), 3);
    for (asked, pong) in answers {
        let [t0, t1, t2] = pong.times;
        assert_eq!(t0.to_bits(), asked.to_bits());
        // Both ends have the same clock here.
        assert!(t0 <= t1 && t1 <= t2 && t2 <= pong.opened_at, "{pong:?}");
    }
}

/// An outlet that sends and never reads costs no memory for questions.
#[test]
fn pings_do_not_pile_up_before_an_outlet_that_does_not_read() {
    let most = on_runtime(async {
        let (mut tunnel, _stream, _session) = pair(Duration::from_secs(30)).await;
        // Nothing more goes out.
        let full = vec![0; 1 << 16];
        let stream = inner(&mut tunnel).stream.as_ref().unwrap();
        while stream.try_send(&full).is_ok() {}
        let pings = inner(&mut tunnel).pings();
        let mut most = 0;
        for number in 0..1000 {
            pings.ask(f64::from(number));
            let poll = poll_fn(|context| Poll::Ready(tunnel.poll_signals(context)));
            assert!(poll.await.is_ok());
            let poll = poll_fn(|context| Poll::Ready(tunnel.poll_alarm(context)));
            assert!(poll.await.is_ok());
            let sender = inner(&mut tunnel).connection.sender().unwrap();
            most = most.max(sender.unsent());
        }
        most
    });
    assert!((1..100).contains(&most), "{most} bytes wait");
}
