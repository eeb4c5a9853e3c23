//! Answers requests of HTTP at a listener. Spec: relay §13.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lsl_core::{Error, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::http::{Request, RequestParser, Response};

/// Listens at an address. Returns also where that is. To be called in a runtime.
pub(super) fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let listening = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    let failed = |source| Error::io(format!("cannot listen at {address}"), source);
    listening().map_err(failed)
}

/// Answers requests until it is dropped. Those that are too many wait for their turn.
pub(super) async fn serve(
    listener: TcpListener,
    answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
) {
    let (answer, places) = (Arc::new(answer), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let answer = Arc::clone(&answer);
                tokio::spawn(async move {
                    let answered = answer_one(stream, &*answer).await;
                    tracing::debug!(%peer, ?answered, "request of HTTP");
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("HTTP: {error}");
                // There may be descriptors again.
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn answer_one(
    mut stream: TcpStream,
    answer: &(impl Fn(&Request) -> Response + Sync),
) -> io::Result<()> {
    let request = timeout(REQUEST_LIMIT, read(&mut stream)).await??;
    let bytes = match request {
        Some(Ok(request)) => answer(&request).to_bytes(request.wants_body),
        Some(Err(refusal)) => refusal.to_bytes(true),
        None => return Ok(()),
    };
    timeout(ANSWER_LIMIT, stream.write_all(&bytes)).await??;
    stream.shutdown().await?;
    // What comes unread at the end would have the system take back the answer.
    let draining = async {
        while stream.read(&mut [0; 1024]).await? > 0 {}
        Ok(())
    };
    timeout(DRAIN_LIMIT, draining).await?
}

/// Reads a request, or makes the answer to what is none; `None` if the peer leaves before its end.
async fn read(stream: &mut TcpStream) -> io::Result<Option<Result<Request, Response>>> {
    let (mut parser, mut buffer) = (RequestParser::default(), [0; 1024]);
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(None);
        }
        match parser.feed(buffer.get(..count).unwrap_or_default()) {
            Ok(None) => {}
            Ok(Some(request)) => return Ok(Some(Ok(request))),
            Err(status) => return Ok(Some(Err(Response::refusal(status)))),
        }
    }
}

const MOST_CONNECTIONS: usize = 16;

/// How long a request may take to come, its answer to go, and the peer to close then.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

const RETRY: Duration = Duration::from_secs(1);
