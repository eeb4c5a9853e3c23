//! Whatever an outlet says in place of M2. Input: how to cut, then the bytes, after which it closes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use lsl_secure::stream::connect;
use lsl_secure::{Cause, Error};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Controls, INLET, local, pieces};

pub fn check(input: &[u8]) {
    let mut controls = Controls { rest: input };
    let seed = controls.byte();
    let bytes = controls.rest;
    let mut outlet = Script {
        pieces: pieces(seed, bytes)
            .into_iter()
            .map(<[u8]>::to_vec)
            .rev()
            .collect(),
        taken: 0,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    #[expect(clippy::disallowed_methods, reason = "no runtime runs this")]
    let connected = runtime.block_on(connect(
        &mut outlet,
        local(INLET),
        b"LSL:fullinfo\r\n",
        |_| panic!("nobody has proved anything"),
        |_| panic!("nobody has proved anything"),
    ));
    let error = connected.expect_err("no AEAD is forged");
    match (&error, bytes) {
        (Error::Refused { status, text }, [b'L', b'S', ..]) => {
            assert!(matches!(status, 0 | 403 | 404 | 501 | 503 | 505));
            assert!(text.len() <= 256);
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
        (Error::Refused { .. }, _) | (_, [b'L', b'S', ..]) => panic!("{error}"),
        (_, []) => assert_eq!(error.cause(), Cause::PeerNotSecure),
        _ => assert_ne!(error.cause(), Cause::PeerNotSecure),
    }
    assert!(outlet.taken <= bytes.len().min(2 + 2048));
}

/// An outlet that has said everything already.
struct Script {
    /// The next one last.
    pieces: Vec<Vec<u8>>,
    taken: usize,
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.pieces.last().is_some_and(Vec::is_empty) {
            self.pieces.pop();
        }
        if let Some(piece) = self.pieces.last_mut() {
            let len = piece.len().min(buf.remaining());
            let rest = piece.split_off(len);
            buf.put_slice(piece);
            *piece = rest;
            self.taken += len;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
