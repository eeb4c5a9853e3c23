//! Handshakes and tunnels over in-memory streams, with a clock that only moves when all wait.

use std::collections::HashSet;
use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{DuplexStream, ReadBuf, duplex};
use tokio::time::sleep;

use super::*;
use crate::handshake::PREAMBLE;
use crate::{Opener, Record, SecretKey, Suites};

mod endings;
mod handshakes;
mod refusals;
mod tunnels;

/// Runs a test on a runtime of its own.
#[expect(
    clippy::disallowed_methods,
    reason = "a test is not inside of another runtime"
)]
fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test);
}

fn local(seed: u8, suites: Suites) -> Arc<Local> {
    Arc::new(Local {
        key: SecretKey::from_seed(&[seed; 32]),
        psk: None,
        suites,
        pad_to: 0,
    })
}

fn inlet() -> Arc<Local> {
    local(3, Suites::ChaCha20Only)
}

fn outlet() -> Arc<Local> {
    local(4, Suites::ChaCha20Only)
}

fn descriptor() -> Descriptor {
    Descriptor {
        uid: b"uid".to_vec(),
        name: b"name".to_vec(),
        stream_type: b"EEG".to_vec(),
        source_id: b"source".to_vec(),
        hostname: b"host".to_vec(),
        session_id: b"default".to_vec(),
        channel_count: 8,
        nominal_srate: 250.0,
        channel_format: 1,
        created_at: 12.5,
    }
}

/// Lets everybody in, at once.
struct Open;

impl Gate for Open {
    async fn admit(&mut self) -> Result<(), Cause> {
        Ok(())
    }

    fn decide(&mut self, _peer: PublicKey) -> Result<(), Cause> {
        Ok(())
    }
}

/// Lets those in whom `keys` names.
struct Keys(HashSet<PublicKey>);

impl Gate for Keys {
    async fn admit(&mut self) -> Result<(), Cause> {
        Ok(())
    }

    fn decide(&mut self, peer: PublicKey) -> Result<(), Cause> {
        if self.0.contains(&peer) {
            Ok(())
        } else {
            Err(Cause::NotAuthorised)
        }
    }
}

/// Has no turn for anybody.
struct Full;

impl Gate for Full {
    async fn admit(&mut self) -> Result<(), Cause> {
        Err(Cause::Busy)
    }

    fn decide(&mut self, _peer: PublicKey) -> Result<(), Cause> {
        panic!("nobody was admitted");
    }
}

/// Reads the preamble as an outlet does, then accepts.
async fn accept_any(stream: &mut DuplexStream, gate: &mut impl Gate) -> Result<Session> {
    read_preamble(stream).await;
    accept(stream, outlet(), &descriptor(), gate).await
}

async fn read_preamble(stream: &mut DuplexStream) {
    let mut preamble = [0; PREAMBLE.len()];
    stream.read_exact(&mut preamble).await.unwrap();
    assert_eq!(&preamble, PREAMBLE);
}

async fn connect_any(stream: &mut DuplexStream) -> Result<(Session, Descriptor)> {
    connect(stream, inlet(), b"request", |_| Ok(()), |_| Ok(())).await
}

/// A session without request over streams that hold `buffer` bytes on the way: the inlet's and the
/// outlet's end.
async fn established(buffer: usize) -> [(DuplexStream, Session); 2] {
    let (mut near, mut far) = duplex(buffer);
    let accepting = tokio::spawn(async move {
        let session = accept_any(&mut far, &mut Open).await.unwrap();
        (far, session)
    });
    let connected = connect(&mut near, inlet(), b"", |_| Ok(()), |_| Ok(()));
    let (session, _) = connected.await.unwrap();
    [(near, session), accepting.await.unwrap()]
}

/// The records that `bytes` hold, printed.
fn records(opener: &mut Opener, bytes: &mut [u8]) -> Vec<String> {
    let mut records = Vec::new();
    let received = opener.receive(bytes, 0.0, |record| {
        records.push(format!("{record:?}"));
        Ok(())
    });
    let alerted = records.last().is_some_and(|last| last.starts_with("Alert"));
    assert_eq!(received.is_err(), alerted, "{received:?}");
    records
}

fn cause<T>(result: Result<T>) -> Cause {
    match result {
        Ok(_) => panic!("it should have failed"),
        Err(error) => error.cause(),
    }
}

/// A connection that was reset, at least for one who reads.
struct Reset;

impl AsyncRead for Reset {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }
}

impl AsyncWrite for Reset {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
