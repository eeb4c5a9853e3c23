//! Two ends of a link over a pipe with little room.

use std::future::poll_fn;
use std::net::{Ipv4Addr, Shutdown};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, duplex};
use tokio::net::{TcpSocket, TcpStream};
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
    /// PINGs that were answered.
    pongs: Arc<AtomicU64>,
    ended: tokio::task::JoinHandle<LinkEnd>,
}

fn end(side: Side, mut pipe: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> End {
    let link = Link::new(side, LIMITS, LIMITS);
    let (tell, opened) = tokio::sync::mpsc::unbounded_channel();
    let (driven, pongs) = (link.clone(), Arc::<AtomicU64>::default());
    let answered = Arc::clone(&pongs);
    let ended = tokio::spawn(async move {
        let told = |news| match news {
            LinkNews::Opened { id, request } => {
                drop(tell.send(driven.opened(id, &request)));
            }
            LinkNews::Pong(_) => drop(answered.fetch_add(1, Ordering::Relaxed)),
            LinkNews::Closed { .. } => {}
        };
        drive(&driven, &mut pipe, b"", told).await.0
    });
    End {
        link,
        opened,
        pongs,
        ended,
    }
}

/// Runs a test over both ends of a link.
fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(End, End) -> F + Send + 'static) {
    within(SOON, async move {
        let (one, other) = duplex(4096);
        test(end(Side::Dialler, one), end(Side::Acceptor, other)).await;
    });
}

fn within(limit: Duration, test: impl Future<Output = ()> + Send + 'static) {
    let runtime = Runtime::new().expect("threads");
    let (done, is_done) = mpsc::channel();
    runtime.spawn(async move {
        test.await;
        done.send(()).expect("somebody waits");
    });
    is_done.recv_timeout(limit).expect("it ends");
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

/// A TCP connection whose buffers hold 4 KiB.
async fn small_sockets() -> io::Result<(TcpStream, TcpStream)> {
    let small = || {
        let socket = TcpSocket::new_v4()?;
        socket.set_send_buffer_size(4096)?;
        socket.set_recv_buffer_size(4096)?;
        socket.set_nodelay(true)?;
        Ok::<_, io::Error>(socket)
    };
    let listening = small()?;
    listening.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let listener = listening.listen(1)?;
    let dialled = small()?.connect(listener.local_addr()?).await?;
    let (accepted, _) = listener.accept().await?;
    accepted.set_nodelay(true)?;
    Ok((dialled, accepted))
}

/// One way of a substream, whose bytes tell it from the others.
#[derive(Clone, Default)]
struct Way {
    salt: usize,
    written: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
}

impl Way {
    fn new(salt: usize) -> Self {
        Self {
            salt,
            ..Self::default()
        }
    }

    fn pattern<'a>(&self, table: &'a [u8], done: &AtomicU64) -> &'a [u8] {
        let done = usize::try_from(done.load(Ordering::Relaxed)).expect("fits");
        &table[(self.salt + done) % 251..]
    }

    /// Writes as fast as it is taken, until it is over.
    async fn write(self, to: Arc<dyn Substream>, is_over: Arc<AtomicBool>) -> io::Result<()> {
        let table = pattern(20_251);
        while !is_over.load(Ordering::Relaxed) {
            let piece = &self.pattern(&table, &self.written)[..20_000];
            write_all(&*to, piece).await?;
            self.written.fetch_add(20_000, Ordering::Relaxed);
        }
        to.shut_down(Shutdown::Write);
        Ok(())
    }

    /// Reads to the end.
    async fn read(self, from: Arc<dyn Substream>) -> io::Result<()> {
        let (table, mut buffer) = (pattern(10_251), [0; 10_000]);
        while let count @ 1.. = read(&*from, &mut buffer).await? {
            assert!(
                self.pattern(&table, &self.read)
                    .starts_with(&buffer[..count])
            );
            self.read.fetch_add(count as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Test 8 of relay §14, for `LSL_TEST_SECONDS`: nothing that moves stands still for longer than a busy machine has
/// no time for it.
#[test]
fn full_speed_both_ways_through_small_socket_buffers_never_stalls() {
    let told = std::env::var("LSL_TEST_SECONDS").ok();
    let secs = told.map_or(3, |secs| secs.parse().expect("seconds"));
    within(Duration::from_secs(secs) + 2 * SOON, async move {
        let (one, other) = small_sockets().await.expect("sockets");
        let (one, mut other) = (end(Side::Dialler, one), end(Side::Acceptor, other));
        let is_over = Arc::<AtomicBool>::default();
        let (mut ways, mut tasks) = (Vec::new(), Vec::new());
        for number in 0..64 {
            let near = one.link.open(b"busy".to_vec()).expect("open");
            let far = other.opened.recv().await.expect("opened");
            for (salt, from, to) in [(number, &near, &far), (number + 64, &far, &near)] {
                let way = Way::new(salt);
                let (from, to) = (Arc::clone(from), Arc::clone(to));
                tasks.push(tokio::spawn(way.clone().write(from, Arc::clone(&is_over))));
                tasks.push(tokio::spawn(way.clone().read(to)));
                ways.push(way);
            }
        }
        for end in [&one, &other] {
            end.link.set_ping_secs(0.01);
        }
        // What moves, and when each was last seen to.
        let moving = ways.iter().map(|way| &way.read);
        let moving: Vec<_> = moving.chain([&one.pongs, &other.pongs]).collect();
        let mut seen = vec![(0, local_clock()); moving.len()];
        let (began, mut longest) = (local_clock(), 0.0_f64);
        while local_clock() < began + Duration::from_secs(secs).as_secs_f64() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let now = local_clock();
            for (moved, (before, since)) in moving.iter().zip(&mut seen) {
                let moved = moved.load(Ordering::Relaxed);
                longest = longest.max(now - *since);
                if moved != *before {
                    (*before, *since) = (moved, now);
                }
            }
            assert!(longest < STALL_SECS, "{seen:?} at {now}");
        }
        is_over.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.expect("a task").expect("a substream");
        }
        let total = |count: fn(&Way) -> &AtomicU64| -> u64 {
            let counts = ways.iter().map(|way| count(way).load(Ordering::Relaxed));
            counts.sum()
        };
        let (written, read) = (total(|it| &it.written), total(|it| &it.read));
        assert_eq!((read, one.link.substreams()), (written, 0));
        let pongs = [&one, &other].map(|end| end.pongs.load(Ordering::Relaxed));
        println!("{secs} s: {read} bytes, {pongs:?} PONGs, nothing stood still for {longest:.2} s");
    });
}

const STALL_SECS: f64 = 5.0;
