use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use lsl_secure::handshake::{Initiator, PREAMBLE};
use lsl_secure::{Descriptor, Local, SecretKey, Suites};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::byte_stream::CLOSE_LIMIT;
use crate::net::runtime;

fn on_runtime<R: Send + 'static>(task: impl Future<Output = R> + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    runtime::spawn(async move { sender.send(task.await).unwrap() }).unwrap();
    receiver.recv_timeout(Duration::from_mins(1)).unwrap()
}

#[test]
fn asymmetric_work_runs_on_two_threads_however_many_peers_there_are() {
    static NOW: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let done = on_runtime(async {
        let mut peers = tokio::task::JoinSet::new();
        for _ in 0..64 {
            peers.spawn(in_background(|| {
                let now = NOW.fetch_add(1, Ordering::SeqCst) + 1;
                MOST.fetch_max(now, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(2));
                NOW.fetch_sub(1, Ordering::SeqCst);
            }));
        }
        peers.join_all().await.len()
    });
    assert_eq!((done, MOST.load(Ordering::SeqCst)), (64, 2));
}

/// Both ends of a connection: a peer by hand, and the driver's.
async fn streams() -> (TcpStream, ByteStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await;
    let far = ByteStream::tcp(listener.accept().await.unwrap().0);
    (near.unwrap(), far.unwrap())
}

fn local() -> Arc<Local> {
    Arc::new(Local {
        key: SecretKey::from_seed(&[7; 32]),
        psk: None,
        suites: Suites::ChaCha20Only,
        pad_to: 0,
    })
}

fn inlet(request: &[u8]) -> Connection {
    Connection::initiator(local(), request, local_clock(), &mut OsRandom).unwrap()
}

fn outlet() -> Connection {
    Connection::responder(local(), Arc::default(), local_clock())
}

fn hello() -> Vec<u8> {
    let (_, hello) = Initiator::start(local(), &mut OsRandom).unwrap();
    hello[PREAMBLE.len()..].to_vec()
}

#[test]
fn a_turn_that_does_not_come_is_late_and_the_reason_arrives() {
    let (cause, answer) = on_runtime(async move {
        let (mut near, mut far) = streams().await;
        near.write_all(&hello()).await.unwrap();
        // Two of its three seconds are over.
        let started = local_clock() - 2.0;
        let mut outlet = Connection::responder(local(), Arc::default(), started);
        let asked = proceed(&mut far, &mut outlet, None).await;
        assert!(matches!(asked, Ok(Event::Question(Question::Turn))));
        let never = std::future::pending::<()>();
        assert!(in_time(outlet.poll_timeout(), never).await.is_none());
        let answer = Answer::Turn(Err(Cause::Busy));
        let ended = proceed(&mut far, &mut outlet, Some(answer)).await;
        far.close(CLOSE_LIMIT).await;
        drop(far);
        let mut answer = Vec::new();
        near.read_to_end(&mut answer).await.unwrap();
        (ended.map(drop).map_err(|error| error.cause()), answer)
    });
    assert_eq!(cause, Err(Cause::Busy));
    assert_eq!(answer, lsl_secure::policy::REFUSAL_503);
}

#[test]
fn a_connection_that_waits_costs_little() {
    let size = on_runtime(async {
        let (_near, mut far) = streams().await;
        size_of_val(&proceed(&mut far, &mut outlet(), None))
    });
    assert!(size <= 1024, "{size} bytes");
}

#[test]
fn a_reset_instead_of_an_answer_is_an_outlet_that_is_not_secure() {
    let cause = on_runtime(async {
        let (far, mut near) = streams().await;
        let mut inlet = inlet(b"?");
        tokio::spawn(async move {
            // Closing over what nobody reads is what an outlet of liblsl does.
            far.readable().await.unwrap();
            drop(far);
        });
        let ended = proceed(&mut near, &mut inlet, None).await;
        ended.map(drop).map_err(|error| error.cause())
    });
    assert_eq!(cause, Err(Cause::PeerNotSecure));
}

#[test]
fn a_long_request_and_the_descriptor_pass_each_other() {
    // More than the two sockets hold.
    const REQUEST: usize = 16 << 20;
    let said = Descriptor {
        name: vec![b'n'; 1000],
        channel_count: 1,
        channel_format: 1,
        ..Descriptor::default()
    };
    let expected = said.clone();
    let received = on_runtime(async move {
        let (mut peer, mut near) = streams().await;
        let (introduced, introduction) = tokio::sync::oneshot::channel();
        let mut introduced = Some(introduced);
        let asking = async {
            let mut inlet = inlet(&vec![7; REQUEST]);
            let mut answer = None;
            loop {
                answer = Some(
                    match proceed(&mut near, &mut inlet, answer).await.unwrap() {
                        Event::Question(Question::PeerKey(_)) => Answer::PeerKey(Ok(String::new())),
                        Event::Question(Question::Descriptor(heard)) => {
                            assert_eq!(heard, expected);
                            introduced.take().unwrap().send(()).unwrap();
                            Answer::Descriptor(Ok(()))
                        }
                        Event::Established(_) => return inlet,
                        other => panic!("{other:?}"),
                    },
                );
            }
        };
        let answering = tokio::spawn(async move {
            peer.read_exact(&mut [0; PREAMBLE.len()]).await.unwrap();
            let mut far = ByteStream::tcp(peer).unwrap();
            let mut outlet = Connection::responder(local(), Arc::new(said), local_clock());
            let mut answer = None;
            loop {
                answer = Some(
                    match proceed(&mut far, &mut outlet, answer).await.unwrap() {
                        Event::Question(Question::Turn) => Answer::Turn(Ok(())),
                        Event::Question(Question::PeerKey(_)) => Answer::PeerKey(Ok(String::new())),
                        Event::Established(_) => break,
                        other => panic!("{other:?}"),
                    },
                );
            }
            // Reads nothing of the request before the inlet has the DESCRIPTOR.
            introduction.await.unwrap();
            let (mut received, mut buffer) = (0, vec![0; 1 << 16]);
            while received < REQUEST {
                let length = far.read(&mut buffer).await.unwrap();
                let opened = outlet.handle_input(&mut buffer[..length], local_clock(), |data| {
                    received += data.len();
                    Ok(())
                });
                opened.unwrap();
            }
            received
        });
        drop(asking.await);
        answering.await.unwrap()
    });
    assert_eq!(received, REQUEST);
}

#[test]
fn last_words_do_not_wait_for_a_peer_that_does_not_read() {
    let (cause, secs) = on_runtime(async {
        let (mut near, mut far) = streams().await;
        let mut hello = hello();
        (hello[3], hello[4]) = (9, 9);
        near.write_all(&hello).await.unwrap();
        let patience = Duration::from_millis(200);
        far.register().unwrap();
        let writer = far.writer();
        while tokio::time::timeout(patience, writer.writable())
            .await
            .is_ok()
        {
            let _ = writer.try_write(&[0; 1 << 13], Caller::Task);
        }
        let started = local_clock();
        let ended = proceed(&mut far, &mut outlet(), None).await;
        let cause = ended.map(drop).map_err(|error| error.cause());
        (cause, local_clock() - started)
    });
    assert_eq!(cause, Err(Cause::Version));
    assert!((0.9..30.0).contains(&secs), "{secs} s");
}
