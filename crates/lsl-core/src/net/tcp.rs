//! Sends and closes a TCP stream in the runtime.

use std::io;
use std::net::Shutdown;
use std::time::Duration;

use tokio::net::TcpStream;

/// Sends all of `bytes`, waiting in the runtime.
pub(crate) async fn send_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Ends a connection such that what was sent last arrives: a close over input that nobody read is a
/// reset, which overtakes it. Takes at most [`CLOSE_LIMIT`].
pub(crate) async fn close(stream: &TcpStream) {
    // Failing means that the peer was faster.
    let _ = socket2::SockRef::from(stream).shutdown(Shutdown::Write);
    // The connection is over however this ends.
    let _ = tokio::time::timeout(CLOSE_LIMIT, discard(stream)).await;
}

/// Reads until the end, or more than a peer has to say.
pub(crate) async fn discard(stream: &TcpStream) -> io::Result<()> {
    let mut buffer = [0; 512];
    let mut total = 0;
    while total < MAX_DISCARDED_BYTES {
        stream.readable().await?;
        match stream.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(received) => total += received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How long a peer may take to hear the end.
pub(crate) const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// Bytes that a peer may send after the end of what it has to say.
const MAX_DISCARDED_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use lsl_platform::clock::local_clock;
    use tokio::net::TcpListener;

    use super::*;
    use crate::net::runtime;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await;
        (near.unwrap(), listener.accept().await.unwrap().0)
    }

    fn on_runtime<R: Send + 'static>(task: impl Future<Output = R> + Send + 'static) -> R {
        let (sender, receiver) = std::sync::mpsc::channel();
        runtime::spawn(async move { sender.send(task.await).unwrap() }).unwrap();
        receiver.recv_timeout(Duration::from_mins(1)).unwrap()
    }

    /// The time that closing took.
    fn closing(bytes: usize, is_closed: bool) -> f64 {
        on_runtime(async move {
            let (near, far) = pair().await;
            send_all(&far, &vec![7; bytes]).await.unwrap();
            if is_closed {
                let _ = socket2::SockRef::from(&far).shutdown(Shutdown::Write);
            }
            let start = local_clock();
            close(&near).await;
            local_clock() - start
        })
    }

    #[test]
    fn a_peer_that_stays_is_let_go_after_a_second() {
        for bytes in [0, MAX_DISCARDED_BYTES - 512] {
            let secs = closing(bytes, false);
            assert!((0.99..20.0).contains(&secs), "{bytes}: {secs}");
        }
    }

    #[test]
    fn a_peer_that_closes_or_goes_on_talking_is_let_go_at_once() {
        for (bytes, is_closed) in [(0, true), (1000, true), (MAX_DISCARDED_BYTES, false)] {
            let secs = closing(bytes, is_closed);
            assert!(secs < 0.99, "{bytes}: {secs}");
        }
    }
}
