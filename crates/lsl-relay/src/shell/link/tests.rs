//! Two ends of a link over a pipe with little room.

use std::future::poll_fn;
use std::net::Shutdown;
use std::sync::mpsc;
use std::time::Duration;

use tokio::io::{DuplexStream, duplex};
use tokio::runtime::Runtime;

use super::*;
use crate::link::LinkEnd;

const LIMITS: Limits = Limits {
    window: 16_384,
    streams: 100,
};

const SOON: Duration = Duration::from_secs(20);

/// One end whose opened substreams are handed out.
struct End {
    link: Link,
    opened: tokio::sync::mpsc::UnboundedReceiver<Arc<dyn Substream>>,
    ended: tokio::task::JoinHandle<LinkEnd>,
}

fn end(side: Side, mut pipe: DuplexStream) -> End {
    let link = Link::new(side, LIMITS, LIMITS);
    let (tell, opened) = tokio::sync::mpsc::unbounded_channel();
    let driven = link.clone();
    let ended = tokio::spawn(async move {
        let told = |news| {
            if let LinkNews::Opened { id, .. } = news {
                let _ = tell.send(driven.opened(id));
            }
        };
        drive(&driven, &mut pipe, b"", told).await.0
    });
    End {
        link,
        opened,
        ended,
    }
}

/// Runs a test over both ends of a link.
fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(End, End) -> F + Send + 'static) {
    let runtime = Runtime::new().expect("threads");
    let (done, is_done) = mpsc::channel();
    runtime.spawn(async move {
        let (one, other) = duplex(4096);
        test(end(Side::Dialler, one), end(Side::Acceptor, other)).await;
        done.send(()).expect("somebody waits");
    });
    is_done.recv_timeout(SOON).expect("it ends");
}

async fn write_all(substream: &dyn Substream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match substream.try_write(bytes) {
            Ok(taken) => bytes = &bytes[taken..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|context| substream.poll_writable(context)).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn read(substream: &dyn Substream, buffer: &mut [u8]) -> io::Result<usize> {
    poll_fn(|context| substream.poll_read(Some(context), buffer)).await
}

async fn read_all(substream: &dyn Substream) -> io::Result<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), [0; 1000]);
    while let count @ 1.. = read(substream, &mut buffer).await? {
        all.extend_from_slice(&buffer[..count]);
    }
    Ok(all)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

#[test]
fn both_ends_send_at_once_while_one_substream_is_not_read() {
    run(|one, mut other| async move {
        let slow = one.link.open(b"slow".to_vec()).expect("open");
        let stuck = other.opened.recv().await.expect("opened");
        let filling = tokio::spawn(async move { write_all(&*stuck, &pattern(100_000)).await });
        let mut answered = Vec::new();
        for _ in 0..8 {
            let near = one.link.open(b"echo".to_vec()).expect("open");
            let far = other.opened.recv().await.expect("opened");
            for (from, to) in [(&near, &far), (&far, &near)] {
                let (from, to) = (Arc::clone(from), Arc::clone(to));
                let writing = tokio::spawn(async move {
                    write_all(&*from, &pattern(100_000)).await?;
                    from.shut_down(Shutdown::Write);
                    Ok::<_, io::Error>(())
                });
                let reading = tokio::spawn(async move { read_all(&*to).await });
                answered.push((writing, reading));
            }
        }
        for (writing, reading) in answered {
            writing.await.expect("a task").expect("written");
            let read = reading.await.expect("a task").expect("read");
            assert!(read == pattern(100_000));
        }
        // All but the one that nobody reads are gone, and it holds a window.
        assert_eq!(one.link.substreams(), 1);
        assert!(!filling.is_finished());
        drop(slow);
        let failed = filling.await.expect("a task").expect_err("reset");
        assert_eq!(failed.kind(), io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn what_was_said_before_an_end_arrives_although_the_handle_is_gone() {
    run(|one, mut other| async move {
        let near = one.link.open(b"ask".to_vec()).expect("open");
        let far = other.opened.recv().await.expect("opened");
        assert_eq!(far.try_write(&pattern(5000)).expect("room"), 5000);
        far.shut_down(Shutdown::Both);
        drop(far);
        assert!(near.try_write(b"is dropped").is_ok());
        assert_eq!(read_all(&*near).await.expect("read"), pattern(5000));
        drop(near);
        while one.link.substreams() + other.link.substreams() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(one.link.lock().ends.is_empty() && other.link.lock().ends.is_empty());
    });
}

#[test]
fn substreams_fail_with_their_link() {
    run(|one, mut other| async move {
        let near = one.link.open(b"wait".to_vec()).expect("open");
        let far = other.opened.recv().await.expect("opened");
        let waiting = tokio::spawn(async move { read(&*near, &mut [0; 8]).await });
        other.link.close(Code::SHUTDOWN, "over");
        let failed = waiting.await.expect("a task").expect_err("no link");
        assert_eq!(failed.kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(
            far.try_write(b"x").expect_err("no link").kind(),
            failed.kind()
        );
        let ends = (one.ended.await, other.ended.await);
        let bye = LinkEnd::Bye(Code::SHUTDOWN);
        assert!(matches!(ends, (Ok(one), Ok(other)) if (one, other) == (bye, bye)));
        assert!(one.link.open(b"late".to_vec()).is_err());
    });
}
