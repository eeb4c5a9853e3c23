//! One TCP connection of an outlet. The bytes go through as they are, or through the session of the
//! connection; nobody else touches its stream, so nobody else has to know which.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lsl_platform::poll::wait_writable;
use lsl_platform::socket::send_nonblocking;
use lsl_proto::outlet::fanout::Transmit;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::drive_outlet::tunnel::{Heard, Tunnel};
use crate::net::tcp::send_all;
use crate::stats::Encryption;

/// A connection and the means to wake the task that serves it.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    peer: SocketAddr,
    work: Notify,
    /// The session, without which everything is plaintext.
    tunnel: Option<Box<Tunnel>>,
    /// Keeps a plaintext connection enrolled that must end with the migration.
    enrolled: std::sync::OnceLock<lsl_secure::Enrolled>,
}

impl Link {
    pub(crate) fn new(stream: TcpStream, peer: SocketAddr) -> Self {
        Self {
            stream,
            peer,
            work: Notify::new(),
            tunnel: None,
            enrolled: std::sync::OnceLock::new(),
        }
    }

    /// Goes on in plaintext for as long as this allows it.
    pub(crate) fn keep(&self, enrolled: lsl_secure::Enrolled) {
        // A connection asks for one feed.
        let _ = self.enrolled.set(enrolled);
    }

    /// A connection with a session.
    pub(crate) fn sealed(stream: TcpStream, peer: SocketAddr, tunnel: Tunnel) -> Self {
        Self {
            tunnel: Some(Box::new(tunnel)),
            ..Self::new(stream, peer)
        }
    }

    /// The session, if there is one.
    pub(crate) fn tunnel(&self) -> Option<&Tunnel> {
        self.tunnel.as_deref()
    }

    /// Whether bytes go through a session.
    pub(crate) fn is_sealed(&self) -> bool {
        self.tunnel.is_some()
    }

    /// With whom and how the connection is encrypted.
    pub(crate) fn encryption(&self) -> Option<Encryption> {
        self.tunnel().map(Tunnel::encryption)
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sends all of `bytes`, waiting in the runtime.
    pub(crate) async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        if let Some(tunnel) = self.tunnel() {
            return tunnel.send(&self.stream, bytes).await;
        }
        send_all(&self.stream, bytes).await
    }

    /// Waits until the socket has taken everything that was sent so far: a session may hold some of
    /// it back, sealed.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        match self.tunnel() {
            Some(tunnel) => tunnel.flush(&self.stream).await,
            None => Ok(()),
        }
    }

    /// Whether something sent is held back, see [`flush`](Self::flush).
    pub(crate) fn has_unsent(&self) -> bool {
        self.tunnel().is_some_and(Tunnel::has_unsent)
    }

    /// Sends all of `bytes` on the calling thread, waiting for room until `deadline`
    /// (`local_clock`). A deadline that passes leaves the stream out of frame: close it.
    pub(crate) fn send_blocking(&self, mut bytes: &[u8], deadline: f64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.send_now(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_writable(deadline)?;
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(tunnel) = self.tunnel() {
            while !tunnel.try_flush(&self.stream)? {
                self.wait_writable(deadline)?;
            }
        }
        Ok(())
    }

    fn wait_writable(&self, deadline: f64) -> io::Result<()> {
        if wait_writable(&self.stream, deadline)? {
            Ok(())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(tunnel) = self.tunnel() {
            let sent = tunnel.try_send(&self.stream, bytes)?;
            if !sent.all {
                // What is sealed is committed: the task sends the rest, though the lane be idle.
                self.work.notify_one();
            }
            return Ok(sent.sealed);
        }
        send_nonblocking(&self.stream, bytes)
    }

    /// Reads at least one byte; 0 at the end of the stream.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(tunnel) = self.tunnel() {
            loop {
                let taken = tunnel.take_inbox(buffer);
                if taken > 0 || tunnel.hear(&self.stream, &self.work).await? == Heard::Close {
                    return Ok(taken);
                }
            }
        }
        loop {
            self.stream.readable().await?;
            match self.stream.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
    }

    /// Waits until the peer has closed its side. What it sends before is discarded, up to a limit:
    /// no peer has anything to say after its request.
    pub(crate) async fn closed_by_peer(&self) -> io::Result<()> {
        if let Some(tunnel) = self.tunnel() {
            return self.session_closed_by_peer(tunnel).await;
        }
        let mut discarded = [0; 256];
        let mut total = 0;
        while total < MAX_CHATTER_BYTES {
            match self.receive(&mut discarded).await? {
                0 => return Ok(()),
                received => total += received,
            }
        }
        Err(keeps_sending())
    }

    /// The same in a session, where PINGs and key updates are no chatter.
    async fn session_closed_by_peer(&self, tunnel: &Tunnel) -> io::Result<()> {
        let mut total = tunnel.discard_inbox();
        while total < MAX_CHATTER_BYTES {
            if tunnel.hear(&self.stream, &self.work).await? == Heard::Close {
                return Ok(());
            }
            total += tunnel.discard_inbox();
        }
        Err(keeps_sending())
    }

    /// Serves a session that only lends its keys, until its peer closes it or sends no record for
    /// that long. Spec: LSS/1 §9.2.
    pub(crate) async fn lend_keys(&self, tunnel: &Tunnel, limit: Duration) -> io::Result<()> {
        let mut total = 0;
        while total < MAX_CHATTER_BYTES {
            let record = async {
                loop {
                    match tunnel.hear(&self.stream, &self.work).await? {
                        Heard::Nothing => {}
                        heard => break tunnel.flush(&self.stream).await.map(|()| heard),
                    }
                }
            };
            match tokio::time::timeout(limit, record).await {
                Ok(Ok(Heard::Close)) => return Ok(()),
                Ok(Ok(_)) => total += tunnel.discard_inbox(),
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        Err(keeps_sending())
    }

    /// Ends the session of this connection, if it has one, in bounded time and in the way that its
    /// end arrives.
    pub(crate) async fn close_session(&self) {
        if let Some(tunnel) = self.tunnel() {
            tunnel.close(&self.stream).await;
        }
    }

    /// Ends the session because of what this side knows; its task closes the connection.
    pub(crate) fn end_session(&self, cause: lsl_secure::Cause) {
        if let Some(tunnel) = self.tunnel() {
            tunnel.end(&self.stream, cause);
        }
    }

    /// The raw stream, for a connection that is held open after its last word.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Waits until somebody calls `wake`.
    pub(crate) async fn woken(&self) {
        self.work.notified().await;
    }

    /// Ends both directions at once; a task or thread that waits on the socket returns.
    pub(crate) fn shut_down(&self) {
        if let Some(tunnel) = self.tunnel() {
            if !tunnel.is_ours() {
                // The connection is the parent's.
                return;
            }
            tunnel.say_goodbye(&self.stream);
        }
        // Failing means that the peer was faster.
        let _ = socket2::SockRef::from(&self.stream).shutdown(std::net::Shutdown::Both);
    }

    /// Says that nothing more will be sent, after what was.
    pub(crate) fn finish_sending(&self) {
        if let Some(tunnel) = self.tunnel()
            && !tunnel.say_goodbye(&self.stream)
        {
            // There is more to send, for the task, or it is not ours to say.
            if tunnel.is_ours() {
                self.work.notify_one();
            }
            return;
        }
        let _ = socket2::SockRef::from(&self.stream).shutdown(std::net::Shutdown::Write);
    }
}

impl Transmit for Link {
    fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.send_now(bytes)
    }

    fn wake(&self) {
        self.work.notify_one();
    }

    fn say_goodbye(&self) {
        if let Some(tunnel) = self.tunnel() {
            tunnel.say_goodbye(&self.stream);
        }
    }
}

fn keeps_sending() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the peer keeps sending")
}

/// Bytes that a peer may send after its request.
const MAX_CHATTER_BYTES: usize = 64 * 1024;
