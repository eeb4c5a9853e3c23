//! Handshakes over a stream: input, output and time-outs of a [`Connection`], and the threads of its
//! asymmetric work. What it asks besides is for its callers to answer. Spec: LSS/1 §4.2, §6.2.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_platform::fork::PerProcess;
use lsl_proto::outlet::fanout::Caller;
use lsl_secure::connection::{Answer, Connection, Event, Question, is_gone};
use lsl_secure::{Cause, Error, OsRandom, Result};

use crate::byte_stream::ByteStream;
use crate::net::runtime::BlockingWork;

/// Gives `connection` the answer to its last question, if it has asked one, and goes on to the next
/// question for a caller, or to the session.
///
/// # Errors
/// Why the handshake failed. What the peer must be told has been sent, as far as it took that within
/// a second.
pub(crate) async fn proceed(
    stream: &mut ByteStream,
    connection: &mut Connection,
    answer: Option<Answer>,
) -> Result<Event> {
    let event = advance(stream, connection, answer).await;
    if let Err(error) = &event {
        send_last_words(stream, connection, error).await;
    }
    event
}

/// Does the work of [`proceed`]; after an error [`send_last_words`] is due.
pub(crate) async fn advance(
    stream: &mut ByteStream,
    connection: &mut Connection,
    mut answer: Option<Answer>,
) -> Result<Event> {
    let unusable = |source| Error::io("socket", source);
    stream.register().map_err(unusable)?;
    loop {
        if let Some(answer) = answer.take() {
            connection.handle_answer(answer, local_clock())?;
        }
        let timeout = connection.poll_timeout();
        let transferring = poll_fn(|context| poll_transfer(stream, connection, context));
        let Some(event) = in_time(timeout, transferring).await else {
            // The two clocks may differ by a tick.
            let due = timeout.unwrap_or_default().max(local_clock());
            connection.handle_timeout(due)?;
            continue;
        };
        match event? {
            None => {}
            Some(Event::Question(Question::Work(work))) => {
                // On the heap: a connection that waits for its peer does not hold it.
                let done = Box::pin(in_background(move || work.run(&mut OsRandom)));
                answer = Some(Answer::Work(done.await?));
            }
            Some(event) => return Ok(event),
        }
    }
}

/// Sends what waits. Returns the next event, or `None` after a read of what the connection may have.
fn poll_transfer(
    stream: &mut ByteStream,
    connection: &mut Connection,
    context: &mut Context<'_>,
) -> Poll<Result<Option<Event>>> {
    let flushed = poll_flush(stream, connection, context);
    let is_sent = flushed.is_ready();
    if let Poll::Ready(Err(source)) = flushed {
        return Poll::Ready(Err(Error::io("sending", source)));
    }
    if let Some(event) = connection.poll_event() {
        return Poll::Ready(Ok(Some(event)));
    }
    let mut buffer = [0; 2048];
    let most = connection.max_read().min(buffer.len());
    if most == 0 {
        let open = || Err(Error::session(Cause::Internal, "a question is open"));
        return if is_sent {
            Poll::Ready(open())
        } else {
            Poll::Pending
        };
    }
    let received = match ready!(stream.poll_read(Some(context), &mut buffer[..most])) {
        Ok(received) => received,
        Err(error) if is_gone(&error) => 0,
        Err(source) => return Poll::Ready(Err(Error::io("receiving", source))),
    };
    let handled = connection.handle_input(&mut buffer[..received], local_clock(), |_| Ok(()));
    Poll::Ready(handled.map(|()| None))
}

/// Ends a connection that failed, and sends what it still has to say, as far as the peer takes it in time.
pub(crate) async fn send_last_words(
    stream: &ByteStream,
    connection: &mut Connection,
    error: &Error,
) {
    // The connection does not know those of its socket and of its threads.
    connection.fail(error);
    let deadline = connection.poll_timeout();
    // Whatever goes wrong here, the connection is over.
    in_time(
        deadline,
        poll_fn(|context| poll_flush(stream, connection, context)),
    )
    .await;
}

fn poll_flush(
    stream: &ByteStream,
    connection: &mut Connection,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    let writer = stream.writer();
    writer.poll_flush(context, || {
        connection.flush(local_clock, |bytes| writer.try_write(bytes, Caller::Task))
    })
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
    let done = ASYMMETRIC_WORK.get().run(work).await;
    done.map_err(|error| Error::session(Cause::Internal, format!("handshake task: {error}")))
}

static ASYMMETRIC_WORK: PerProcess<BlockingWork<ASYMMETRIC_THREADS>> = PerProcess::new();

/// Most threads that do asymmetric work at once in this process. Spec: LSS/1 §6.2.
const ASYMMETRIC_THREADS: usize = 2;

#[cfg(test)]
mod tests;
