//! Handshakes over TCP: input, output and time-outs of a [`Connection`], and the threads of its
//! asymmetric work. What it asks besides is for its callers to answer. Spec: LSS/1 §4.2, §6.2.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::PerProcess;
use lsl_secure::connection::{Answer, Connection, Event, Question, is_gone};
use lsl_secure::{Cause, Error, OsRandom, Result};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Gives `connection` the answer to its last question, if it has asked one, and goes on to the next
/// question for a caller, or to the session.
///
/// # Errors
/// Why the handshake failed. What the peer must be told has been sent, as far as it took that within
/// a second.
pub(crate) async fn proceed(
    stream: &TcpStream,
    connection: &mut Connection,
    answer: Option<Answer>,
) -> Result<Event> {
    let event = advance(stream, connection, answer).await;
    if let Err(error) = &event {
        // The connection does not know those of its socket and of its threads.
        connection.fail(error);
        send_last_words(stream, connection).await;
    }
    event
}

async fn advance(
    stream: &TcpStream,
    connection: &mut Connection,
    mut answer: Option<Answer>,
) -> Result<Event> {
    loop {
        if let Some(answer) = answer.take() {
            connection.handle_answer(answer, local_clock())?;
        }
        let sent = connection
            .flush(local_clock, |bytes| stream.try_write(bytes))
            .map_err(|source| Error::io("sending", source))?;
        match connection.poll_event() {
            Some(Event::Question(Question::Work(work))) => {
                let done = in_background(move || work.run(&mut OsRandom)).await?;
                answer = Some(Answer::Work(done));
            }
            Some(event) => return Ok(event),
            None => {
                let timeout = connection.poll_timeout();
                let transferring = transfer(stream, connection, sent);
                if let Some(transferred) = in_time(timeout, transferring).await {
                    transferred?;
                } else {
                    // The two clocks may differ by a tick.
                    let due = timeout.unwrap_or_default().max(local_clock());
                    connection.handle_timeout(due)?;
                }
            }
        }
    }
}

/// Waits for the socket and reads what the connection may have.
async fn transfer(stream: &TcpStream, connection: &mut Connection, sent: bool) -> Result<()> {
    let failed = |source| Error::io("receiving", source);
    let most = connection.max_read();
    let interest = match (most > 0, sent) {
        (true, true) => Interest::READABLE,
        (true, false) => Interest::READABLE | Interest::WRITABLE,
        (false, false) => Interest::WRITABLE,
        (false, true) => return Err(Error::session(Cause::Internal, "a question is open")),
    };
    let ready = stream.ready(interest).await.map_err(failed)?;
    if most == 0 || !ready.is_readable() {
        return Ok(());
    }
    // Below the last await, so that a connection that waits does not hold it.
    let mut buffer = [0; 2048];
    let most = most.min(buffer.len());
    let received = match stream.try_read(&mut buffer[..most]) {
        Ok(received) => received,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        Err(error) if is_gone(&error) => 0,
        Err(source) => return Err(failed(source)),
    };
    connection.handle_input(&mut buffer[..received], local_clock(), |_| Ok(()))
}

/// Sends what a connection that failed still has to say, as far as the peer takes it in time.
async fn send_last_words(stream: &TcpStream, connection: &mut Connection) {
    let deadline = connection.poll_timeout();
    let sending = async {
        // Whatever goes wrong here, the connection is over.
        while let Ok(false) = connection.flush(local_clock, |bytes| stream.try_write(bytes)) {
            if stream.writable().await.is_err() {
                return;
            }
        }
    };
    in_time(deadline, sending).await;
}

/// The output of `work`, unless the deadline (`local_clock`) passes before.
pub(crate) async fn in_time<R>(deadline: Option<f64>, work: impl Future<Output = R>) -> Option<R> {
    let Some(deadline) = deadline else {
        return Some(work.await);
    };
    let left = Duration::from_secs_f64((deadline - local_clock()).max(0.0));
    tokio::time::timeout(left, work).await.ok()
}

/// Runs asymmetric work where it delays no samples: on at most two threads of the process, however many
/// peers there are. Spec: LSS/1 §6.2.
pub(crate) async fn in_background<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R> {
    // Nobody closes the semaphore.
    let turn = Arc::clone(&TURNS.get().0).acquire_owned().await.ok();
    let work = move || {
        let _turn = turn;
        work()
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Error::session(Cause::Internal, format!("handshake task: {error}")))
}

/// Who does asymmetric work in this process.
static TURNS: PerProcess<Turns> = PerProcess::new();

struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ASYMMETRIC_THREADS)))
    }
}

/// Most threads that do asymmetric work at once in this process. Spec: LSS/1 §6.2.
const ASYMMETRIC_THREADS: usize = 2;

#[cfg(test)]
mod tests;
