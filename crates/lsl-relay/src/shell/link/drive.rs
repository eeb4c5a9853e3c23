//! Carries the frames of a link over its connection: reading never waits for writing. Spec: relay §4.2, §4.3.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use lsl_core::local_clock;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Sleep;

use super::Link;
use crate::link::LinkEnd;
use crate::mux::{ClosedBy, Code, GATHER_LEN, Gathered};

/// Event of a link that concerns more than one substream.
#[derive(Debug, PartialEq)]
pub(in crate::shell) enum LinkNews {
    /// The peer opened a substream with this request.
    Opened { id: u32, request: Vec<u8> },
    /// A PING was answered: `[t0, t1, t2, t3]`.
    Pong([f64; 4]),
    /// The link ends.
    Closed {
        code: Code,
        text: String,
        by: ClosedBy,
    },
}

/// Carries frames until the link ends, and tells what else comes of them. Returns the reason of the end, and a
/// text for logs.
pub(in crate::shell) async fn drive<S: AsyncRead + AsyncWrite + Unpin>(
    link: &Link,
    stream: &mut S,
    early: &[u8],
    mut tell: impl FnMut(LinkNews),
) -> (LinkEnd, String) {
    let mut carrier = Carrier {
        link,
        stream,
        input: vec![0; GATHER_LEN].into(),
        news: Vec::new(),
        out: Gathered::default(),
        sent: 0,
        timeout: None,
    };
    link.step(|mux, now| mux.handle_input(early, now), &mut carrier.news);
    let mut work = pin!(link.0.work.notified());
    let mut sleep = pin!(tokio::time::sleep(Duration::ZERO));
    let end = poll_fn(|context| {
        for _ in 0..MOST_TURNS {
            for news in carrier.news.drain(..) {
                if let LinkNews::Closed { code, text, by } = news {
                    return Poll::Ready(Ok((code, text, by)));
                }
                tell(news);
            }
            let (has_read, has_sent) = match (carrier.read(context), carrier.send(context)) {
                (Ok(has_read), Ok(has_sent)) => (has_read, has_sent),
                // A peer that said why it ends reads nothing any more.
                (Ok(true), Err(_)) if carrier.is_closed() => (true, false),
                (Err(error), _) | (_, Err(error)) => return Poll::Ready(Err(error)),
            };
            let is_told = work.as_mut().poll(context).is_ready();
            if is_told {
                work.set(link.0.work.notified());
                // What it is told of may be an end, which no socket has to take.
                link.step(|_, _| {}, &mut carrier.news);
            }
            let is_late = carrier.is_late(sleep.as_mut(), context);
            if !has_read && !has_sent && !is_told && !is_late && carrier.news.is_empty() {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    });
    let end = match end.await {
        Ok((code, text, by)) => (
            match by {
                ClosedBy::Us | ClosedBy::Peer => LinkEnd::Bye(code),
                ClosedBy::Silence => LinkEnd::Lost,
            },
            text,
        ),
        Err(error) => (LinkEnd::Lost, error.to_string()),
    };
    // Whoever holds a substream learns of the end; a BYE that is due is sent.
    link.close(Code::DONE, &end.1);
    link.step(|_, _| {}, &mut Vec::new());
    if let LinkEnd::Bye(_) = end.0 {
        let _ = tokio::time::timeout(CLOSE_LIMIT, carrier.send_rest()).await;
    }
    end
}

/// State of a driver.
struct Carrier<'a, S> {
    link: &'a Link,
    stream: &'a mut S,
    input: Box<[u8]>,
    news: Vec<LinkNews>,
    out: Gathered,
    /// Bytes of `out` that were sent.
    sent: usize,
    /// Time at which the multiplexer has something to do.
    timeout: Option<f64>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Carrier<'_, S> {
    /// Reads once. False if nothing has come.
    fn read(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let mut buffer = ReadBuf::new(&mut self.input);
        let Poll::Ready(read) = Pin::new(&mut *self.stream).poll_read(context, &mut buffer) else {
            return Ok(false);
        };
        read?;
        let bytes = buffer.filled();
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.link.count([bytes.len(), 0]);
        (self.link).step(|mux, now| mux.handle_input(bytes, now), &mut self.news);
        Ok(true)
    }

    /// Sends once. False if nothing is due, or there is no room.
    fn send(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let Some(record) = self.next_record() else {
            if let Poll::Ready(flushed) = Pin::new(&mut *self.stream).poll_flush(context) {
                flushed?;
            }
            return Ok(false);
        };
        let rest = self.out.bytes().get(record).unwrap_or_default();
        match Pin::new(&mut *self.stream).poll_write(context, rest) {
            Poll::Ready(sent) => {
                let sent = sent?;
                self.link.count([0, sent]);
                self.sent += sent;
            }
            Poll::Pending => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the end of the link is among the news.
    fn is_closed(&self) -> bool {
        let mut news = self.news.iter();
        news.any(|news| matches!(news, LinkNews::Closed { .. }))
    }

    /// Returns the part of `out` that is sent next, at most one record. Gathers anew once all is sent.
    fn next_record(&mut self) -> Option<std::ops::Range<usize>> {
        if self.sent == self.out.bytes().len() {
            self.sent = 0;
            let (is_due, timeout) = self.link.gather(&mut self.out, &mut self.news);
            self.timeout = timeout;
            if !is_due {
                return None;
            }
        }
        let mut end = 0;
        let mut records = self.out.records();
        while end <= self.sent {
            end += records.next()?.len();
        }
        Some(self.sent..end)
    }

    /// Lets the multiplexer do what is due. False if nothing is, and `context` is woken when it is.
    fn is_late(&mut self, mut sleep: Pin<&mut Sleep>, context: &mut Context<'_>) -> bool {
        let Some(timeout) = self.timeout else {
            return false;
        };
        let wait = timeout - local_clock();
        if wait <= 0.0 {
            self.timeout = (self.link).step(
                |mux, now| {
                    mux.handle_timeout(now);
                    mux.poll_timeout()
                },
                &mut self.news,
            );
            return true;
        }
        let at = tokio::time::Instant::now() + Duration::from_secs_f64(wait.min(MOST_WAIT_SECS));
        // The same time, give or take what passed meanwhile, needs no other timer.
        if sleep.deadline().max(at) - sleep.deadline().min(at) > TIMER_STEP || sleep.is_elapsed() {
            sleep.as_mut().reset(at);
        }
        sleep.poll(context).is_ready()
    }

    /// Sends what was gathered, then what is due.
    async fn send_rest(&mut self) -> io::Result<()> {
        while let Some(record) = self.next_record() {
            let rest = self.out.bytes().get(record).unwrap_or_default();
            self.stream.write_all(rest).await?;
            self.sent += rest.len();
        }
        self.stream.flush().await
    }
}

/// Reads and writes before other tasks have their turn.
const MOST_TURNS: usize = 32;

const MOST_WAIT_SECS: f64 = 60.0;

const TIMER_STEP: Duration = Duration::from_millis(1);

/// How long BYE may take to be sent.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
