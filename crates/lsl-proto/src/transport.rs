//! The two directions of an established connection, plain or inside an LSS/1 session. The only file
//! that knows which of the two carries the bytes. Spec: LSS/1 §2, §8.
//!
//! Callers own the socket: what is to be written is lent to their `write` callback, as rustls does it.

use std::io;

use lsl_secure::connection::{Event, ReceiveHalf, SendHalf, Unsent};
use lsl_secure::{Cause, Error, Result, Totals};

/// Sends bytes to the peer of a connection.
#[derive(Debug)]
pub enum Tx {
    /// Holds the bytes that go before everything else.
    Plain(Unsent),
    /// Seals the bytes, after those that go before everything else.
    Secure(Unsent, Box<SendHalf>),
}

/// Receives the bytes of the peer of a connection.
#[derive(Debug)]
pub enum Rx {
    /// Passes the received bytes on unchanged.
    Plain {
        /// The peer has ended its direction.
        is_closed: bool,
    },
    /// Opens the records of a session.
    Secure(Box<ReceiveHalf>),
}

/// Tells the peer of a session something besides the bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Control {
    /// Answers the PING that carried `t0` and arrived at `t1`.
    Pong {
        /// Time of the peer's clock that its PING carried.
        t0: f64,
        /// Time when the PING arrived, in seconds of `local_clock` or of the clock that is told instead.
        t1: f64,
        /// Seconds by which that clock is ahead of ours when the answer leaves; 0 if it is ours.
        t2_shift_secs: f64,
    },
    /// Ends the session because of an error.
    Alert(Cause),
    /// Ends the session properly, after everything that is committed.
    Close,
}

impl Tx {
    /// Creates the sending direction of a plaintext connection.
    pub fn plain() -> Self {
        Self::Plain(Unsent::default())
    }

    /// Creates the sending direction of a session.
    pub fn secure(half: SendHalf) -> Self {
        Self::Secure(Unsent::default(), Box::new(half))
    }

    /// Queues `bytes` to be sent before everything that [`send`](Self::send) is given later.
    pub fn queue(&mut self, bytes: &[u8]) {
        let (Self::Plain(queued) | Self::Secure(queued, _)) = self;
        queued.push(bytes);
    }

    /// Writes what `write` takes, after everything that waits. Returns how many of `bytes` are
    /// committed: written, or sealed and certain to follow.
    ///
    /// # Errors
    /// `WouldBlock` if nothing of `bytes` is committed because the socket is full; those of `write`; in
    /// a session also those of [`SendHalf::send`].
    #[inline]
    pub fn send(
        &mut self,
        bytes: &[u8],
        now: impl Fn() -> f64,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        match self {
            Self::Plain(queued) => {
                if !queued.is_empty() && !queued.write_to(&mut write)? {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                write(bytes)
            }
            Self::Secure(queued, half) => {
                if !queued.is_empty() && !send_queued(queued, half, &now, &mut write)? {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                half.send(bytes, now, write)
            }
        }
    }

    /// Writes what waits. Returns true once nothing is left.
    ///
    /// # Errors
    /// Those of `write`; in a session also those of [`SendHalf::flush`].
    pub fn flush(
        &mut self,
        now: impl Fn() -> f64,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        match self {
            Self::Plain(queued) => queued.write_to(&mut write),
            Self::Secure(queued, half) => {
                Ok(send_queued(queued, half, &now, &mut write)? && half.flush(now, write)?)
            }
        }
    }

    /// Returns the number of bytes that wait for the socket.
    pub fn unsent(&self) -> usize {
        match self {
            Self::Plain(queued) => queued.len(),
            Self::Secure(queued, half) => queued.len() + half.unsent(),
        }
    }

    /// Returns the number of queued bytes that are not committed.
    pub fn queued(&self) -> usize {
        let (Self::Plain(queued) | Self::Secure(queued, _)) = self;
        queued.len()
    }

    /// Prepares what `control` says for the next [`flush`](Self::flush). Does nothing in plaintext.
    /// ALERT and CLOSE drop the bytes that are queued and not sealed.
    pub fn control(&mut self, control: Control) {
        let Self::Secure(queued, half) = self else {
            return;
        };
        match control {
            Control::Pong {
                t0,
                t1,
                t2_shift_secs,
            } => return half.pong_shifted(t0, t1, t2_shift_secs),
            Control::Alert(cause) => half.alert(cause),
            Control::Close => half.close(),
        }
        queued.clear();
    }

    /// Ends a session because of `error`, as [`SendHalf::fail`] does.
    pub fn fail(&mut self, error: &Error) {
        if let Self::Secure(queued, half) = self {
            half.fail(error);
            queued.clear();
        }
    }

    /// Returns the sending half of the session, if there is one.
    pub fn session(&self) -> Option<&SendHalf> {
        match self {
            Self::Plain(_) => None,
            Self::Secure(_, half) => Some(half),
        }
    }

    /// Returns the number of key changes since the last call.
    pub fn take_key_updates(&mut self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            Self::Secure(_, half) => half.take_key_updates(),
        }
    }
}

/// Seals queued bytes. Returns true once all of them are sealed, if not written.
fn send_queued(
    queued: &mut Unsent,
    half: &mut SendHalf,
    now: &impl Fn() -> f64,
    write: &mut impl FnMut(&[u8]) -> io::Result<usize>,
) -> io::Result<bool> {
    queued.write_to(&mut |bytes| half.send(bytes, now, &mut *write))
}

impl Rx {
    /// Creates the receiving direction of a plaintext connection.
    pub fn plain() -> Self {
        Self::Plain { is_closed: false }
    }

    /// Creates the receiving direction of a session.
    pub fn secure(half: ReceiveHalf) -> Self {
        Self::Secure(Box::new(half))
    }

    /// Takes bytes from the socket, none at the end of the stream, and hands those of the peer to
    /// `data`. Afterwards `bytes` holds nothing of use.
    ///
    /// # Errors
    /// Those of `data`; why the session ends, for [`SendHalf::fail`].
    pub fn handle_input(
        &mut self,
        bytes: &mut [u8],
        now: f64,
        mut data: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Plain { is_closed } if bytes.is_empty() => {
                *is_closed = true;
                Ok(())
            }
            Self::Plain { .. } => data(bytes),
            Self::Secure(half) => half.handle_input(bytes, now, data),
        }
    }

    /// Returns what happened next in a session, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Plain { .. } => None,
            Self::Secure(half) => half.poll_event(),
        }
    }

    /// Whether the peer has ended its direction; in a session that is authentic.
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Plain { is_closed } => *is_closed,
            Self::Secure(half) => half.is_closed(),
        }
    }

    /// Returns what came in records so far.
    pub fn totals(&self) -> Totals {
        match self {
            Self::Plain { .. } => Totals::default(),
            Self::Secure(half) => half.totals(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket with room for so many bytes.
    fn socket<'a>(
        received: &'a mut Vec<u8>,
        room: &'a mut usize,
    ) -> impl FnMut(&[u8]) -> io::Result<usize> + 'a {
        move |bytes| {
            let taken = bytes.len().min(*room);
            if taken == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            *room -= taken;
            received.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }
    }

    #[test]
    fn queued_bytes_go_first_and_nothing_is_committed_before() {
        let mut tx = Tx::plain();
        let (mut received, now) = (Vec::new(), || 0.0);
        tx.queue(b"abcd");
        let blocked = tx.send(b"ef", now, socket(&mut received, &mut 3));
        assert_eq!(blocked.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(tx.unsent(), 1);
        tx.queue(b"!");
        assert!(!tx.flush(now, socket(&mut received, &mut 1)).unwrap());
        let sent = tx.send(b"ef", now, socket(&mut received, &mut 2));
        assert_eq!((sent.unwrap(), tx.unsent()), (1, 0));
        assert!(tx.flush(now, socket(&mut received, &mut 0)).unwrap());
        assert_eq!(received, b"abcd!e");
    }

    #[test]
    fn plain_bytes_pass_and_the_end_is_told() {
        let (mut rx, mut received) = (Rx::plain(), Vec::new());
        for mut bytes in [b"abc".to_vec(), Vec::new()] {
            assert!(!rx.is_closed());
            let take = |bytes: &[u8]| {
                received.extend_from_slice(bytes);
                Ok(())
            };
            rx.handle_input(&mut bytes, 0.0, take).unwrap();
        }
        assert!(rx.is_closed());
        assert_eq!(received, b"abc");
    }
}
