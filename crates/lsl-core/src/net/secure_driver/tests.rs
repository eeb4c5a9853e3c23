use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use tokio::net::TcpListener;

use super::*;
use crate::net::{runtime, tcp};

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

/// Both ends of a connection.
async fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap());
    (near.await.unwrap(), listener.accept().await.unwrap().0)
}

#[test]
fn a_turn_that_does_not_come_is_late_and_the_reason_arrives() {
    use lsl_secure::handshake::{Initiator, PREAMBLE};
    use lsl_secure::{Descriptor, Local, SecretKey, Suites};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let local = || {
        Arc::new(Local {
            key: SecretKey::from_seed(&[7; 32]),
            psk: None,
            suites: Suites::ChaCha20Only,
            pad_to: 0,
        })
    };
    let (cause, answer) = on_runtime(async move {
        let (mut near, far) = streams().await;
        let (_, hello) = Initiator::start(local(), &mut OsRandom).unwrap();
        near.write_all(&hello[PREAMBLE.len()..]).await.unwrap();
        // Two of its three seconds are over.
        let started = local_clock() - 2.0;
        let mut outlet = Connection::responder(local(), Descriptor::default(), started);
        let asked = proceed(&far, &mut outlet, None).await;
        assert!(matches!(asked, Ok(Event::Question(Question::Turn))));
        let never = std::future::pending::<()>();
        assert!(in_time(outlet.poll_timeout(), never).await.is_none());
        let answer = Answer::Turn(Err(Cause::Busy));
        let ended = proceed(&far, &mut outlet, Some(answer)).await;
        tcp::close(&far).await;
        drop(far);
        let mut answer = Vec::new();
        near.read_to_end(&mut answer).await.unwrap();
        (ended.map(drop).map_err(|error| error.cause()), answer)
    });
    assert_eq!(cause, Err(Cause::Busy));
    assert_eq!(answer, lsl_secure::policy::REFUSAL_503);
}
