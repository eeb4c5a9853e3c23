//! Connected streams of bytes, of outlets and of inlets, and the one place where a new transport goes:
//! a variant of [`Carrier`]. Any thread may read and write without blocking. The reactor watches a stream
//! only while somebody wants that: a watched socket wakes it for every segment, though nobody awaits it.

#[cfg(test)]
pub(crate) mod pipe;
pub(crate) mod substream;
#[cfg_attr(windows, path = "byte_stream/tcp_windows.rs")]
#[cfg_attr(not(windows), path = "byte_stream/tcp_unix.rs")]
mod tcp;

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lsl_platform::socket::{receive_nonblocking, send_nonblocking};
#[cfg(not(lsl_loom))]
use lsl_platform::wait::{Interrupt, Woken, wait_readable_or, wait_writable};
use lsl_proto::outlet::fanout::Caller;
use lsl_secure::connection::Unsent;
use socket2::{SockRef, TcpKeepalive};

use self::substream::Substream;
use self::tcp::{Socket, Tcp};

/// Reads from a connected stream, and has the handle that writes to it.
#[derive(Debug)]
pub(crate) struct ByteStream {
    writer: Writer,
    is_registered: bool,
}

/// Writes to a connected stream, from any thread and without SIGPIPE. A clone writes through the reactor if
/// the stream was registered when it was made.
#[derive(Debug, Clone)]
pub(crate) struct Writer(Carrier);

/// Blocks a thread until a socket is ready. Never reads or writes.
#[derive(Debug)]
pub(crate) struct Waiter(
    #[cfg(not(lsl_loom))] Arc<Socket>,
    #[cfg(lsl_loom)] pipe::Pipe,
);

/// Carries the bytes of a stream. Clones are handles to the same one.
///
/// What a write took has left this process's hands: a carrier that frames bytes takes none while a frame of its own
/// is unsent. A read of 0 is the end of the stream, never an empty frame. Outlets accept streams in
/// `drive_outlet/listen.rs` and `Port::serve`; inlets are connected by `sockets::tcp_connect` and `Source::open`.
#[derive(Debug, Clone)]
enum Carrier {
    Tcp(Tcp),
    /// Of a link between relays; in tests also a pipe in memory.
    Substream(Arc<dyn Substream>),
}

impl ByteStream {
    /// Takes a connected socket over from tokio. It is not registered with the reactor.
    pub(crate) fn tcp(stream: tokio::net::TcpStream) -> io::Result<Self> {
        Ok(Self::new(Carrier::Tcp(Tcp::new(stream)?)))
    }

    /// Takes a substream of a link over.
    pub(crate) fn substream(substream: Arc<dyn Substream>) -> Self {
        Self::new(Carrier::Substream(substream))
    }

    fn new(carrier: Carrier) -> Self {
        Self {
            writer: Writer(carrier),
            is_registered: false,
        }
    }

    #[inline]
    pub(crate) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Whether the stream lies inside an authenticated one, so that plain bytes need no other protection: outlets
    /// serve them then whatever their policy. `true` for nothing that a stranger can open.
    pub(crate) fn is_protected(&self) -> bool {
        match &self.writer.0 {
            Carrier::Tcp(_) => false,
            Carrier::Substream(_) => true,
        }
    }

    /// Returns the address of this end; a substream has none.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.writer.0 {
            Carrier::Tcp(tcp) => tcp.socket().local_addr(),
            Carrier::Substream(_) => Ok(NO_ADDRESS),
        }
    }

    /// Has the system ask the other end now and then whether it is there.
    pub(crate) fn set_keepalive(&self, keepalive: &TcpKeepalive) -> io::Result<()> {
        match &self.writer.0 {
            Carrier::Tcp(tcp) => SockRef::from(&**tcp.socket()).set_tcp_keepalive(keepalive),
            Carrier::Substream(_) => Ok(()),
        }
    }

    /// Whether the socket sends at once (TCP_NODELAY).
    #[cfg(test)]
    pub(crate) fn has_no_delay(&self) -> bool {
        match &self.writer.0 {
            Carrier::Tcp(tcp) => SockRef::from(&**tcp.socket()).tcp_nodelay().unwrap(),
            Carrier::Substream(_) => true,
        }
    }

    /// Whether the reactor wakes tasks that await the stream.
    pub(crate) fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// Registers the stream with the reactor, so that tasks are woken. Call it in the runtime.
    pub(crate) fn register(&mut self) -> io::Result<()> {
        match &mut self.writer.0 {
            Carrier::Tcp(_) if self.is_registered => return Ok(()),
            Carrier::Tcp(tcp) => tcp.register()?,
            Carrier::Substream(_) => {}
        }
        self.is_registered = true;
        Ok(())
    }

    /// Takes the registration back. No task is woken any more.
    pub(crate) fn unregister(&mut self) {
        match &mut self.writer.0 {
            Carrier::Tcp(tcp) => tcp.unregister(),
            #[cfg(lsl_loom)]
            Carrier::Substream(substream) => substream.pipe().unregister(),
            // Woken once in vain at most.
            #[cfg(not(lsl_loom))]
            Carrier::Substream(_) => {}
        }
        self.is_registered = false;
    }

    /// Reads what is there; 0 is the end of the stream. With a context its task is woken when there is
    /// more (in the runtime only), without one this only looks.
    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        context: Option<&mut Context<'_>>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if context.is_some() && !self.is_registered {
            self.register()?;
        }
        match &self.writer.0 {
            Carrier::Tcp(tcp) => match context {
                Some(context) => tcp.poll_receive(context, buffer),
                None => or_pending(receive_nonblocking(&**tcp.socket(), buffer)),
            },
            Carrier::Substream(substream) => substream.poll_read(context, buffer),
        }
    }

    /// Reads what comes next; 0 is the end of the stream.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read(Some(context), buffer)).await
    }

    /// Reads until the end, or more than a peer has to say.
    pub(crate) async fn discard(&mut self) -> io::Result<()> {
        let mut buffer = [0; 512];
        let mut total = 0;
        while total < MAX_DISCARDED_BYTES {
            match self.read(&mut buffer).await? {
                0 => return Ok(()),
                received => total += received,
            }
        }
        Ok(())
    }

    /// Ends the stream such that what was sent last arrives: a close over input that nobody read is a
    /// reset, which overtakes it. Takes at most `limit`.
    pub(crate) async fn close(&mut self, limit: Duration) {
        self.writer.shut_down(Shutdown::Write);
        // The stream is over however this ends.
        let _ = tokio::time::timeout(limit, self.discard()).await;
    }
}

impl Writer {
    /// Writes as many bytes as fit now, and returns their number.
    ///
    /// # Errors
    /// `WouldBlock` if none does. [`Caller::Task`] may await [`poll_writable`](Self::poll_writable) then.
    #[inline]
    pub(crate) fn try_write(&self, bytes: &[u8], by: Caller) -> io::Result<usize> {
        match &self.0 {
            Carrier::Tcp(tcp) => match by {
                Caller::Push => send_nonblocking(&**tcp.socket(), bytes),
                Caller::Task => tcp.try_send(bytes),
            },
            Carrier::Substream(substream) => substream.try_write(bytes),
        }
    }

    /// Waits until there may be room. The task of `context` is woken only if the stream was registered
    /// when this handle was made; one task at a time may wait.
    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.0 {
            Carrier::Tcp(tcp) => tcp.poll_writable(context),
            Carrier::Substream(substream) => substream.poll_writable(context),
        }
    }

    /// Waits until bytes can be written again.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        poll_fn(|context| self.poll_writable(context)).await
    }

    /// Calls `flush`, which writes here as a task, until it returns true, and waits in between.
    pub(crate) fn poll_flush(
        &self,
        context: &mut Context<'_>,
        mut flush: impl FnMut() -> io::Result<bool>,
    ) -> Poll<io::Result<()>> {
        while !flush()? {
            ready!(self.poll_writable(context))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends all of `bytes`, and waits while the socket is full.
    pub(crate) async fn send_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut unsent = Unsent::default();
        unsent.push(bytes);
        let mut flush = || unsent.write_to(&mut |bytes| self.try_write(bytes, Caller::Task));
        poll_fn(|context| self.poll_flush(context, &mut flush)).await
    }

    /// Notes whether what is written is of the past, which a link sends after what is live.
    pub(crate) fn set_history(&self, is_history: bool) {
        if let Carrier::Substream(substream) = &self.0 {
            substream.set_history(is_history);
        }
    }

    /// Ends a direction, or both; a task that awaits the stream returns.
    pub(crate) fn shut_down(&self, how: Shutdown) {
        match &self.0 {
            Carrier::Tcp(tcp) => end(tcp.socket(), how),
            Carrier::Substream(substream) => substream.shut_down(how),
        }
    }

    /// Returns a handle for a thread that waits itself; `None` if only the reactor can wait.
    #[inline]
    pub(crate) fn waiter(&self) -> Option<Waiter> {
        match &self.0 {
            #[cfg(not(lsl_loom))]
            Carrier::Tcp(tcp) => Some(Waiter(Arc::clone(tcp.socket()))),
            #[cfg(not(lsl_loom))]
            Carrier::Substream(_) => None,
            #[cfg(lsl_loom)]
            Carrier::Tcp(_) => None,
            #[cfg(lsl_loom)]
            Carrier::Substream(substream) => Some(Waiter(substream.pipe().clone())),
        }
    }

    /// Returns a function that ends both directions of the stream if it still exists.
    pub(crate) fn closer(&self) -> Box<dyn Fn() + Send + Sync> {
        match &self.0 {
            Carrier::Tcp(tcp) => {
                let socket = Arc::downgrade(tcp.socket());
                Box::new(move || {
                    if let Some(socket) = socket.upgrade() {
                        end(&socket, Shutdown::Both);
                    }
                })
            }
            Carrier::Substream(substream) => {
                let substream = Arc::downgrade(substream);
                Box::new(move || {
                    if let Some(substream) = substream.upgrade() {
                        substream.shut_down(Shutdown::Both);
                    }
                })
            }
        }
    }
}

#[cfg(not(lsl_loom))]
impl Waiter {
    /// Waits until the stream is readable, `interrupt` is raised or the deadline passes.
    pub(crate) fn wait_readable_or(
        &self,
        interrupt: &Interrupt,
        deadline: f64,
    ) -> io::Result<Woken> {
        wait_readable_or(&*self.0, interrupt, deadline)
    }

    /// Waits until there may be room. Returns false at `deadline` (seconds of `local_clock`). Pushes of
    /// signal handlers are refused meanwhile, so the caller may hold locks.
    pub(crate) fn wait_writable(&self, deadline: f64) -> bool {
        // A socket that cannot be waited for counts as stalled.
        wait_writable(&*self.0, deadline).unwrap_or(false)
    }
}

fn end(socket: &Arc<Socket>, how: Shutdown) {
    // Failing means that the peer was faster.
    let _ = SockRef::from(&**socket).shutdown(how);
}

fn or_pending(result: io::Result<usize>) -> Poll<io::Result<usize>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        other => Poll::Ready(other),
    }
}

/// Address of both ends of a substream.
pub(crate) const NO_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// How long a peer may take to hear the end.
pub(crate) const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// Bytes that a peer may send after the end of what it has to say.
const MAX_DISCARDED_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use lsl_platform::clock::local_clock;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::net::runtime;

    async fn pair() -> (ByteStream, ByteStream) {
        let (mut near, mut far) = unregistered_pair().await;
        near.register().unwrap();
        far.register().unwrap();
        (near, far)
    }

    async fn unregistered_pair() -> (ByteStream, ByteStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await;
        let far = listener.accept().await.unwrap().0;
        let stream = |stream| ByteStream::tcp(stream).unwrap();
        (stream(near.unwrap()), stream(far))
    }

    fn on_runtime<R: Send + 'static>(task: impl Future<Output = R> + Send + 'static) -> R {
        let (sender, receiver) = std::sync::mpsc::channel();
        runtime::spawn(async move { sender.send(task.await).unwrap() }).unwrap();
        receiver.recv_timeout(Duration::from_mins(1)).unwrap()
    }

    /// The time that closing took, of a stream that is registered or not.
    fn closing(bytes: usize, is_closed: bool, is_registered: bool) -> f64 {
        on_runtime(async move {
            let (mut near, mut far) = unregistered_pair().await;
            far.register().unwrap();
            if is_registered {
                near.register().unwrap();
            }
            far.writer().send_all(&vec![7; bytes]).await.unwrap();
            if is_closed {
                far.writer().shut_down(Shutdown::Write);
            }
            let start = local_clock();
            near.close(CLOSE_LIMIT).await;
            local_clock() - start
        })
    }

    #[test]
    fn a_peer_that_stays_is_let_go_after_a_second() {
        for bytes in [0, MAX_DISCARDED_BYTES - 512] {
            let secs = closing(bytes, false, true);
            assert!((0.99..20.0).contains(&secs), "{bytes}: {secs}");
        }
    }

    #[test]
    fn a_peer_that_closes_or_goes_on_talking_is_let_go_at_once() {
        for is_registered in [true, false] {
            for (bytes, is_closed) in [(0, true), (1000, true), (MAX_DISCARDED_BYTES, false)] {
                let secs = closing(bytes, is_closed, is_registered);
                assert!(secs < 0.99, "{bytes}: {secs}");
            }
        }
    }

    /// A task that waits for room after a full socket sleeps until the peer reads, and then goes on.
    #[test]
    fn a_task_before_a_full_socket_is_woken_by_a_peer_that_reads() {
        const BYTES: usize = 1 << 24;
        let received = on_runtime(async {
            let (near, mut far) = pair().await;
            let writer = near.writer();
            writer.writable().await.unwrap();
            let (mut sent, bytes) = (0, vec![7; 1 << 16]);
            // The system may find more room a moment later.
            let mut tries = 0..100;
            let waiting = loop {
                assert!(tries.next().is_some(), "a full socket counts as writable");
                let full = loop {
                    match writer.try_write(&bytes, Caller::Task) {
                        Ok(written) => sent += written,
                        Err(error) => break error.kind(),
                    }
                };
                assert_eq!(full, io::ErrorKind::WouldBlock);
                let mut waiting = Box::pin(writer.writable());
                let looking = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context)));
                if looking.await.is_pending() {
                    break waiting;
                }
            };
            let (mut total, mut buffer) = (0, vec![0; 1 << 16]);
            while total < sent {
                total += far.read(&mut buffer).await.unwrap();
            }
            waiting.await.unwrap();

            let sending =
                tokio::spawn(async move { near.writer().send_all(&vec![7; BYTES]).await });
            while let length @ 1.. = far.read(&mut buffer).await.unwrap() {
                total += length;
            }
            sending.await.unwrap().unwrap();
            total - sent
        });
        assert_eq!(received, BYTES);
    }
}
