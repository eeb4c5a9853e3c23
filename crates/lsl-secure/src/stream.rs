//! The adapter for async byte streams: handshake drivers, and [`SecureStream`], which is the tunnel as
//! an `AsyncRead + AsyncWrite`. Time-outs and closing follow LSS/1 §4.2; policy and admission are
//! the caller's.
//!
//! Each message is read to its last byte and no further, so that a connection may change hands
//! between the handshake and the records.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use lsl_platform::clock::local_clock;
#[cfg(not(test))]
use lsl_platform::fork::PerProcess;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use crate::handshake::{Claim, FailedClaim, FailedOffer, Initiator, Responder};
use crate::handshake::{MAX_M1_LEN, MAX_M2_M3_LEN};
use crate::policy::{REFUSAL_503, REFUSAL_505};
use crate::record::MAX_RECORD_LEN;
use crate::{Cause, Descriptor, Error, Local, OsRandom, PublicKey, Result, Session};

mod refusal;
#[cfg(test)]
mod tests;
mod tunnel;

pub use tunnel::SecureStream;

/// Handshakes as the inlet on a connected stream and sends `request` with M3.
///
/// `decide` judges the outlet's key (a `Cause` refuses it), `check` its DESCRIPTOR. After it returned
/// nothing is read beyond the DESCRIPTOR record. On failure everything the peer must be told has been
/// sent, and the stream only needs [`close`]. Must run on a tokio runtime with time; asymmetric work
/// runs on its blocking pool.
///
/// # Errors
/// [`Error::Refused`] for a textual refusal, [`Cause::PeerNotSecure`] if the
/// peer closed without a word, [`Cause::Timeout`] (10 s for M2, 10 s for DESCRIPTOR), and all others.
pub async fn connect<T: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut T,
    local: Arc<Local>,
    request: &[u8],
    decide: impl FnOnce(PublicKey) -> Result<(), Cause>,
    check: impl FnOnce(&Descriptor) -> Result<(), Cause>,
) -> Result<(Session, Descriptor)> {
    let (initiator, hello) = in_background(|| Initiator::start(local, &mut OsRandom)).await??;
    let deadline = Instant::now() + M2_WAIT;
    let m2 = by(deadline, "no answer to the hello", async {
        send(stream, &hello).await?;
        receive_answer(stream).await
    })
    .await?;
    let verified = match in_background(move || initiator.receive_m2(&m2)).await? {
        Ok(verified) => verified,
        Err(FailedOffer { error, reply }) => {
            say(stream, &reply.unwrap_or_default()).await;
            return Err(error);
        }
    };
    let peer = verified.peer();
    if let Err(cause) = decide(peer) {
        say(stream, &verified.refuse(cause)).await;
        return Err(refused_key("outlet", peer, cause));
    }
    let (mut unconfirmed, mut flight) = in_background(|| verified.accept()).await??;
    unconfirmed
        .sealer()
        .seal_data(request, local_clock(), &mut flight)?;
    let deadline = Instant::now() + DESCRIPTOR_WAIT;
    let mut record = by(deadline, "no DESCRIPTOR", exchange(stream, &flight)).await?;
    let (mut session, descriptor) = match unconfirmed.confirm(&mut record) {
        Ok(confirmed) => confirmed,
        Err(FailedOffer { error, reply }) => {
            say(stream, &reply.unwrap_or_default()).await;
            return Err(error);
        }
    };
    if let Err(cause) = check(&descriptor) {
        let mut alert = Vec::new();
        session.sealer.seal_alert(cause, "", &mut alert)?;
        say(stream, &alert).await;
        return Err(Error::session(
            cause,
            "the outlet's stream is not the one that was resolved",
        ));
    }
    Ok((session, descriptor))
}

/// What an outlet asks its program during a handshake.
pub trait Gate: Send {
    /// Before the asymmetric work of M1: waits for its turn. A turn that does not come within 3 s of
    /// the connection is answered by 503.
    ///
    /// # Errors
    /// Why there is no turn for this one; answered by 503.
    fn admit(&mut self) -> impl Future<Output = Result<(), Cause>> + Send;

    /// Judges the inlet's key. May block as long as a look at the trust file.
    ///
    /// # Errors
    /// Why the inlet is refused; answered by ALERT.
    fn decide(&mut self, peer: PublicKey) -> Result<(), Cause>;
}

/// Handshakes as the outlet. The preamble has been read from `stream`, and nothing else. M1 must
/// come within 3 s, M3 within 5 s. Asymmetric work runs on tokio's blocking pool.
///
/// On failure everything the peer must be told (alert, 503, 505) has been sent, and the stream only
/// needs [`close`].
///
/// # Errors
/// The session's failure, for the audit log. [`Error::Alert`] is the inlet's refusal in place of M3,
/// which anybody can send: `claimed`.
pub async fn accept<T: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut T,
    local: Arc<Local>,
    descriptor: &Descriptor,
    gate: &mut impl Gate,
) -> Result<Session> {
    let deadline = Instant::now() + M1_WAIT;
    let m1 = by(
        deadline,
        "no M1",
        receive(stream, MAX_M1_LEN, Cause::Malformed),
    )
    .await?;
    let admitted = timeout_at(deadline, gate.admit()).await;
    if let Err(cause) = admitted.unwrap_or(Err(Cause::Busy)) {
        say(stream, REFUSAL_503).await;
        return Err(Error::session(cause, "a limit on handshakes"));
    }
    let greeted = in_background(move || Responder::new(local).receive_m1(&m1, &mut OsRandom));
    let (wait, m2) = match greeted.await? {
        Ok(greeted) => greeted,
        Err(error) => {
            if matches!(error.cause(), Cause::Version | Cause::NoCommonSuite) {
                say(stream, REFUSAL_505).await;
            }
            return Err(error);
        }
    };
    let deadline = Instant::now() + M3_WAIT;
    let m3 = by(deadline, "no M3", async {
        send(stream, &m2).await?;
        receive(stream, MAX_M2_M3_LEN, Cause::Malformed).await
    })
    .await?;
    let verified = match in_background(move || wait.receive_m3(&m3)).await? {
        Ok(Claim::Verified(verified)) => verified,
        Ok(Claim::Refused(cause)) => {
            return Err(Error::Alert {
                cause,
                text: "(in place of the inlet's identity, so anybody may have sent it)".to_owned(),
            });
        }
        Err(FailedClaim { error, alert }) => {
            say(stream, &alert.unwrap_or_default()).await;
            return Err(error);
        }
    };
    let peer = verified.peer();
    if let Err(cause) = gate.decide(peer) {
        say(stream, &verified.refuse(cause, "")).await;
        return Err(refused_key("inlet", peer, cause));
    }
    let (session, record) = verified.accept(descriptor)?;
    by(Instant::now() + M3_WAIT, "DESCRIPTOR is not taken", async {
        send(stream, &record).await
    })
    .await?;
    Ok(session)
}

/// Ends a connection so that what was sent last arrives: shuts down writing, reads and discards until
/// the end, at most 1 s and 64 KiB. Spec: LSS/1 §4.2.
///
/// Not in a forked child: its shutdown would end the parent's connection.
pub async fn close<T: AsyncRead + AsyncWrite + Unpin>(stream: &mut T) {
    let linger = async {
        stream.shutdown().await?;
        let mut discarded = [0; 4096];
        let mut left = CLOSE_BYTES;
        while left > 0 {
            let most = left.min(discarded.len());
            match stream.read(&mut discarded[..most]).await? {
                0 => break,
                len => left -= len,
            }
        }
        io::Result::Ok(())
    };
    // Whatever goes wrong here, the connection is over.
    let _ = timeout(CLOSE_WAIT, linger).await;
}

/// The answer to the hello: M2, or the error that a textual refusal is.
async fn receive_answer<T: AsyncRead + Unpin>(stream: &mut T) -> Result<Vec<u8>> {
    let mut len = [0; 2];
    match stream.read(&mut len[..1]).await {
        Ok(0) => return Err(not_secure()),
        Ok(_) => {}
        Err(error) if is_gone(&error) => return Err(not_secure()),
        Err(error) => return Err(Error::io("receiving", error)),
    }
    stream
        .read_exact(&mut len[1..])
        .await
        .map_err(receive_error)?;
    if &len == refusal::START {
        return Err(refusal::receive(stream).await?);
    }
    receive_rest(stream, len, MAX_M2_M3_LEN, Cause::Malformed).await
}

/// One message or record, whole, with its length field, whose value must not exceed `most`.
async fn receive<T: AsyncRead + Unpin>(
    stream: &mut T,
    most: usize,
    too_long: Cause,
) -> Result<Vec<u8>> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).await.map_err(receive_error)?;
    receive_rest(stream, len, most, too_long).await
}

async fn receive_rest<T: AsyncRead + Unpin>(
    stream: &mut T,
    len: [u8; 2],
    most: usize,
    too_long: Cause,
) -> Result<Vec<u8>> {
    let rest = usize::from(u16::from_be_bytes(len));
    if rest > most {
        return Err(Error::session(
            too_long,
            format!("a message of {rest} bytes"),
        ));
    }
    let mut message = len.to_vec();
    message.resize(len.len() + rest, 0);
    stream
        .read_exact(&mut message[len.len()..])
        .await
        .map_err(receive_error)?;
    Ok(message)
}

/// Sends all of `bytes`. A peer that is gone is no error here: what it said last is still to be read.
async fn send<T: AsyncWrite + Unpin>(stream: &mut T, bytes: &[u8]) -> Result<()> {
    let sent = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    match sent.await {
        Err(error) if !is_gone(&error) => Err(Error::io("sending", error)),
        _ => Ok(()),
    }
}

/// Sends all of `flight` and receives one record. Both at once: a long request could otherwise wait
/// for the outlet to read, and the outlet's DESCRIPTOR for us.
async fn exchange<T: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut T,
    flight: &[u8],
) -> Result<Vec<u8>> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut sending = pin!(send(&mut writer, flight));
    let mut receiving = pin!(receive(&mut reader, MAX_RECORD_LEN, Cause::RecordOverflow));
    let (mut sent, mut received) = (false, None);
    poll_fn(|cx| {
        if !sent && let Poll::Ready(result) = sending.as_mut().poll(cx) {
            result?;
            sent = true;
        }
        if received.is_none()
            && let Poll::Ready(result) = receiving.as_mut().poll(cx)
        {
            received = Some(result?);
        }
        match received.take_if(|_| sent) {
            Some(record) => Poll::Ready(Ok(record)),
            None => Poll::Pending,
        }
    })
    .await
}

/// Tells the peer why this is the end, if it listens.
async fn say<T: AsyncWrite + Unpin>(stream: &mut T, bytes: &[u8]) {
    let _ = timeout(CLOSE_WAIT, send(stream, bytes)).await;
}

/// `work` until `deadline`, else [`Cause::Timeout`].
async fn by<R>(
    deadline: Instant,
    what: &'static str,
    work: impl Future<Output = Result<R>>,
) -> Result<R> {
    timeout_at(deadline, work)
        .await
        .unwrap_or_else(|_| Err(Error::session(Cause::Timeout, what)))
}

/// Runs asymmetric work where it delays no samples: on at most two threads of the process, however many
/// peers there are. Spec: LSS/1 §6.2.
async fn in_background<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R> {
    // Nobody closes the semaphore.
    let turn = turns().acquire_owned().await.ok();
    let work = move || {
        let _turn = turn;
        let running = RUNNING.fetch_add(1, Ordering::Relaxed) + 1;
        PEAK.fetch_max(running, Ordering::Relaxed);
        let done = work();
        RUNNING.fetch_sub(1, Ordering::Relaxed);
        done
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Error::session(Cause::Internal, format!("handshake task: {error}")))
}

/// Who does asymmetric work in this process.
#[cfg(not(test))]
fn turns() -> Arc<Semaphore> {
    static TURNS: PerProcess<Turns> = PerProcess::new();
    Arc::clone(&TURNS.get().0)
}

/// A test has turns of its own: a clock that moves while all wait must not wait for another test.
#[cfg(test)]
fn turns() -> Arc<Semaphore> {
    thread_local!(static TURNS: Turns = Turns::default());
    TURNS.with(|turns| Arc::clone(&turns.0))
}

struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ASYMMETRIC_THREADS)))
    }
}

/// The most threads that did asymmetric work at the same time so far: for tests of the limit.
#[doc(hidden)]
pub fn peak_of_asymmetric_work() -> usize {
    PEAK.load(Ordering::Relaxed)
}

static RUNNING: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// §6.2.
const ASYMMETRIC_THREADS: usize = 2;

fn receive_error(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::UnexpectedEof || is_gone(&error) {
        Error::session(Cause::Truncated, "the connection ended in the handshake")
    } else {
        Error::io("receiving", error)
    }
}

/// The peer closed, with or without reading what we sent.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset
    )
}

fn not_secure() -> Error {
    Error::session(Cause::PeerNotSecure, "closed during hello")
}

fn refused_key(role: &str, peer: PublicKey, cause: Cause) -> Error {
    let fingerprint = peer.fingerprint();
    Error::session(cause, format!("refused the {role} with key {fingerprint}"))
}

const M1_WAIT: Duration = Duration::from_secs(3);
const M2_WAIT: Duration = Duration::from_secs(10);
const M3_WAIT: Duration = Duration::from_secs(5);
const DESCRIPTOR_WAIT: Duration = Duration::from_secs(10);
const CLOSE_WAIT: Duration = Duration::from_secs(1);
const CLOSE_BYTES: usize = 64 * 1024;
