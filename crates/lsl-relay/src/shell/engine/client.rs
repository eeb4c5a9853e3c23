//! Streams of River for commands, which block. Spec: relay §12.2.

use std::sync::{Arc, mpsc};

use lsl_core::local_clock;
use tokio::runtime::Runtime;

use super::follow::{Follow, names, server_ahead, trim};
use super::redis::Redis;
use crate::config::EngineConfig;
use crate::engine::resp::{Commands, Reply};
use crate::engine::river::{EntryId, Metadata, Seek, Turn};
use crate::engine::{EngineError, ErrorKind, Result};

/// Client of a server with streams of River. Its calls block.
#[derive(Debug)]
pub struct RiverClient {
    redis: Arc<Redis>,
    runtime: Runtime,
}

/// A stream that is read, with a connection of its own.
#[derive(Debug)]
pub struct RiverStream {
    /// Away while it is asked; lost with a call that failed.
    follow: Option<Follow>,
    metadata: Metadata,
}

/// A sample as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RiverSample {
    /// Place in its key.
    pub id: EntryId,
    /// Sequence number.
    pub index: u64,
    /// Values, as the schema says.
    pub val: Vec<u8>,
}

impl RiverClient {
    /// Prepares a client.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] if a file of the settings cannot be used, [`ErrorKind::Retry`] if there is no thread.
    pub fn new(config: &EngineConfig) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("lsl-river")
            .enable_all()
            .build()
            .map_err(|error| EngineError::new(ErrorKind::Retry, format!("no thread: {error}")))?;
        Ok(Self {
            redis: Arc::new(Redis::new(config)?),
            runtime,
        })
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (done, is_done) = mpsc::channel();
        self.runtime.spawn(async move { done.send(work.await) });
        let ended = |_| EngineError::new(ErrorKind::Retry, "the client was ended");
        is_done.recv().map_err(ended)?
    }

    /// Returns the names of all streams, in their order.
    ///
    /// # Errors
    /// [`EngineError`]
    pub fn names(&self) -> Result<Vec<String>> {
        let redis = Arc::clone(&self.redis);
        self.run(async move { names(&redis).await })
    }

    /// Returns the time of the server, as Unix seconds.
    ///
    /// # Errors
    /// [`EngineError`]
    pub fn now(&self) -> Result<f64> {
        let redis = Arc::clone(&self.redis);
        self.run(async move {
            let (ahead, ..) = server_ahead(&redis).await?;
            Ok(ahead + local_clock())
        })
    }

    /// Opens a stream, to be read behind the sample with this place and index, or from its oldest one on; `None` if there
    /// is none of this name.
    ///
    /// # Errors
    /// [`EngineError`]
    pub fn open(&self, name: &str, after: Option<(EntryId, u64)>) -> Result<Option<RiverStream>> {
        let (redis, name) = (self.redis.another(), name.to_owned());
        self.run(async move {
            let Some(mut follow) = Follow::open(Arc::new(redis), &name).await? else {
                return Ok(None);
            };
            if let Some((id, index)) = after {
                follow.seek(Seek::Behind(id, index)).await?;
            }
            Ok(Some(RiverStream {
                metadata: follow.metadata().clone(),
                follow: Some(follow),
            }))
        })
    }

    /// Appends the next samples to `samples`. `Wait` if none is there; does not wait for any.
    ///
    /// # Errors
    /// [`EngineError`]; the stream is to be opened again then.
    pub fn read(&self, stream: &mut RiverStream, samples: &mut Vec<RiverSample>) -> Result<Turn> {
        let lost = || EngineError::new(ErrorKind::Retry, "the stream is to be opened again");
        let mut follow = stream.follow.take().ok_or_else(lost)?;
        let (turn, mut found, follow) = self.run(async move {
            let mut found = Vec::new();
            let sink = |id, index, val: &[u8]| {
                let val = val.to_vec();
                found.push(RiverSample { id, index, val });
                Ok(())
            };
            let turn = follow.next(0, sink).await?;
            Ok((turn, found, follow))
        })?;
        stream.follow = Some(follow);
        samples.append(&mut found);
        Ok(turn)
    }

    /// Removes the keys that ended before this entry was written and have no sample behind `kept`, and a stream that
    /// ended so. Returns whether all is removed.
    ///
    /// # Errors
    /// [`EngineError`]
    pub fn trim(&self, name: &str, until: EntryId, kept: u64) -> Result<bool> {
        let (redis, name) = (Arc::clone(&self.redis), name.to_owned());
        self.run(async move { trim(&redis, &name, until, Some(kept)).await })
    }

    /// Ends a stream whose last sample has this index, if nobody holds it to write it, and nothing came to its key since.
    ///
    /// # Errors
    /// [`EngineError`]
    pub fn end(&self, stream: &RiverStream, name: &str, last: &RiverSample) -> Result<()> {
        let Some(key) = stream.follow.as_ref().map(|it| it.key().to_vec()) else {
            return Ok(());
        };
        // On a connection of its own, as it watches the key there.
        let (redis, name, last) = (self.redis.another(), name.to_owned(), last.clone());
        self.run(async move {
            let mut look = Commands::default();
            look.add(&[&"WATCH", &key]);
            look.add(&[&"XREVRANGE", &key, &"+", &"-", &"COUNT", &"1"]);
            let writer = crate::engine::river::generation_of_lsl(&name);
            let writer = writer.map_or_else(String::new, |it| format!("lsl:{{{it}}}:w"));
            look.add(&[&"EXISTS", &writer]);
            let (replies, connection) = super::redis::Server::run(&redis, None, look).await?;
            crate::engine::packed::fail(&replies)?;
            let newest = replies
                .get(1)
                .and_then(|it| it.list()?.first()?.list()?.first()?.text());
            let is_last = newest.and_then(EntryId::parse) == Some(last.id);
            if !is_last || replies.get(2) != Some(&Reply::Integer(0)) {
                return Ok(());
            }
            let mut end = Commands::default();
            end.add(&[&"MULTI"]);
            let index = last.index.to_string();
            end.add(&[&"XADD", &key, &"*", &"eof", &"1", &"sample_index", &index]);
            end.add(&[&"EXEC"]);
            let (replies, _) = super::redis::Server::run(&redis, Some(connection), end).await?;
            crate::engine::packed::fail(&replies)
        })
    }
}

impl RiverStream {
    /// Returns what is said of the stream.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}
