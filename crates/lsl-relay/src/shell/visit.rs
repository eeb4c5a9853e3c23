//! Visits other relays for a moment, without being one: what commands ask and check. Spec: relay §13.

use std::io::ErrorKind;
use std::sync::mpsc;
use std::time::Duration;

use lsl_core::relay::dial;
use lsl_core::{Context, Error, Result};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::hello::{Hello, Refusal};
use crate::link::LinkEnd;
use crate::mux::{Code, Limits};
use crate::shell::identity;
use crate::shell::link::drive;
use crate::shell::links::{WINDOW, greet};

/// Visitor of relays. Its calls block.
#[derive(Debug)]
pub struct Visit {
    context: Context,
    runtime: Runtime,
}

/// Reason for which a relay does not say what it does, in words for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VisitError {
    /// Nobody is there, or no relay.
    #[error("{0}")]
    NotThere(String),
    /// Somebody is there, and one of the two refuses the other.
    #[error("{0}")]
    Refused(String),
}

/// A relay that lets itself be linked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Linked {
    /// By what it calls itself.
    With {
        /// Name, for people.
        name: String,
        /// Relay id.
        id: String,
    },
    /// It is linked with this identity, and keeps that link.
    Already,
}

impl Visit {
    /// Prepares visits.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no thread for them.
    pub fn new(context: &Context) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("lsl-visit")
            .enable_time()
            .build()
            .map_err(|source| Error::io("no thread for visits", source))?;
        let context = context.clone();
        Ok(Self { context, runtime })
    }

    /// Asks the relay at `HOST:PORT` what it does.
    ///
    /// # Errors
    /// [`VisitError`]
    pub fn status(&self, target: &str) -> Result<Value, VisitError> {
        let (context, target) = (self.context.clone(), target.to_owned());
        let asking = async move {
            let asked = timeout(STATUS_LIMIT, status(&context, &target)).await;
            let late = |_| Err(VisitError::NotThere(format!("{target} does not answer")));
            asked.unwrap_or_else(late)
        };
        let ended = |_| VisitError::NotThere(ENDED.to_owned());
        self.spawn(asking).recv().map_err(ended)?
    }

    /// Opens a link to each relay at `HOST:PORT`, and ends it. Returns what was found there, or why there is no link,
    /// in the same order. `name` is what this one is called.
    ///
    /// # Errors
    /// [`Error::Security`] if the security configuration cannot be used.
    pub fn link(&self, targets: &[String], name: &str) -> Result<Vec<Result<Linked, String>>> {
        let limits = Limits {
            window: WINDOW,
            streams: 1,
        };
        let own = Hello {
            id: identity(&self.context)?,
            name: name.to_owned(),
            limits,
        };
        let visits = targets.iter().map(|target| {
            let (context, own, target) = (self.context.clone(), own.clone(), target.clone());
            self.spawn(async move {
                let linked = timeout(LINK_LIMIT, link(&context, &own, &target)).await;
                linked.unwrap_or_else(|_| Err(format!("{target} does not answer")))
            })
        });
        let visits: Vec<_> = visits.collect();
        let linked = visits.iter().map(mpsc::Receiver::recv);
        let linked = linked.map(|it| it.unwrap_or_else(|_| Err(ENDED.to_owned())));
        Ok(linked.collect())
    }

    fn spawn<T: Send + 'static>(
        &self,
        visit: impl Future<Output = T> + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (done, is_done) = mpsc::channel();
        self.runtime.spawn(async move { done.send(visit.await) });
        is_done
    }
}

async fn status(context: &Context, target: &str) -> Result<Value, VisitError> {
    let not_there = |text: String| VisitError::NotThere(text);
    let dialled = dial(context, target, STATUS_LIMIT, b"LSL:relay-status/1\r\n").await;
    let (duplex, peer) = dialled.map_err(|error| match error {
        Error::Security(text) => VisitError::Refused(text),
        error => not_there(format!("no relay answers at {target}: {error}")),
    })?;
    let mut text = Vec::new();
    let read = duplex.take(MOST_BYTES).read_to_end(&mut text).await;
    if text.starts_with(b"LSL/110 403") {
        let name = peer.trusted.map_or_else(|| target.to_owned(), |it| it.1);
        return Err(VisitError::Refused(format!(
            "{name} does not tell us what it does: ask there for --role relay"
        )));
    }
    match read {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => {
            return Err(not_there(format!("{target}: {error}")));
        }
        _ => {}
    }
    let closed = |_| not_there(format!("{target} is no relay (it closed the connection)"));
    serde_json::from_slice(&text).map_err(closed)
}

async fn link(context: &Context, own: &Hello, target: &str) -> Result<Linked, String> {
    let (link, hello, _, mut duplex, early) = match greet(context, own, target).await {
        Ok(greeted) => greeted,
        // Only one that is linked with this identity says so.
        Err((LinkEnd::Refused(Refusal::Duplicate), _)) => return Ok(Linked::Already),
        Err((_, text)) => return Err(text),
    };
    link.close(Code::DONE, "this was a check");
    let _ = drive(&link, &mut duplex, &early, |_| {}).await;
    duplex.close(None).await;
    Ok(Linked::With {
        name: hello.name,
        id: hello.id.to_string(),
    })
}

/// How long a relay may take to say what it does, and to link.
const STATUS_LIMIT: Duration = Duration::from_secs(20);
const LINK_LIMIT: Duration = Duration::from_secs(12);

/// Bytes of the longest status.
const MOST_BYTES: u64 = 64 << 20;

const ENDED: &str = "the visit was ended";
