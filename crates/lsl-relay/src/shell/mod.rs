//! The running relay: sockets, tasks and the clock around the machines of this crate. Spec: relay §2, §3.

mod audit;
mod clocks;
mod desk;
mod engine;
mod faces;
mod history;
mod http;
mod limits;
mod link;
mod links;
mod metrics;
mod offers;
mod pace;
mod past;
mod reload;
mod rivers;
mod source;
mod state;
mod status;
mod tap;
mod tasks;
mod totals;
mod visit;
mod watch;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lsl_core::config::{Bind, Config as LslConfig};
use lsl_core::relay::{Port, PortOptions, runtime};
use lsl_core::{Context, Error, Result, local_clock};
use tokio::sync::mpsc::unbounded_channel;

use crate::book::{Book, FaceId};
use crate::config::Config;
use crate::id::RelayId;
use crate::link::Links;
#[cfg(feature = "nats")]
pub use engine::nats_engine;
pub use engine::{RiverClient, RiverSample, RiverStream, check_engine};
pub use visit::{Linked, Visit, VisitError};

use desk::Desk;
use history::History;
use state::{Shared, State};
use tap::Keeper;
use tasks::Tasks;

/// Reason for which a relay does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its ports, its configuration, or encryption.
    #[error(transparent)]
    Relay(#[from] Error),
    /// Where samples are to be kept; in words for people.
    #[error("{0}")]
    Store(String),
}

/// A relay that runs until it is dropped: it looks for streams, and gives them to whoever may read them at its port.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    /// Settings in use.
    config: Config,
    addresses: Vec<SocketAddr>,
    metrics: Option<SocketAddr>,
}

impl Relay {
    /// Starts a relay that people know by `name`; at the addresses in `insecure`, plaintext is answered from anywhere.
    ///
    /// # Errors
    /// [`StartError::Store`] if history cannot be kept, or files of an engine cannot be read; [`Error::Io`] if a port, or the address of a face, cannot be
    /// bound; [`Error::Config`] if that of metrics cannot; [`Error::Security`] beyond loopback without a device key, for insecure addresses where the policy is `required`,
    /// and if the security configuration cannot be used.
    pub fn start(
        context: &Context,
        config: &Config,
        name: &str,
        insecure: Vec<SocketAddr>,
    ) -> Result<Self, StartError> {
        let context = &own_context(context)?;
        let faces = match &*config.between {
            [] => vec![context.clone()],
            addresses => {
                (addresses.iter().map(|address| face(context, *address))).collect::<Result<_>>()?
            }
        };
        Self::start_between(context, faces, config, name, insecure)
    }

    /// Does the same with these contexts as faces.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_between(
        context: &Context,
        faces: Vec<Context>,
        config: &Config,
        name: &str,
        insecure: Vec<SocketAddr>,
    ) -> Result<Self, StartError> {
        let id = identity(context)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // That of the sockets: another one would have threads wake each other several times per sample.
        let tasks = Tasks::on(runtime(cores.min(MOST_WORKERS))?);
        let links = Links::new(id, config.limits.links, seed()?);
        let mut book = Book::new(id, reload::settings(config, faces.len()));
        book.set_wave_secs(faces.iter().map(faces::wave_secs).fold(0.0, f64::max));
        let (changes, changed) = unbounded_channel();
        let history = config.history.as_ref().map(History::open).transpose();
        let history = history.map_err(StartError::Store)?;
        let shared = Arc::new(Shared::new(
            (context.clone(), faces),
            (id, name.to_owned()),
            (book, links),
            config.limits.streams,
            (tasks, changes.clone()),
            history,
        ));
        reload::follow_trust(&shared, &mut None);
        if let Some(config) = &config.engine {
            let engine = engine::start(&shared, config);
            let engine = engine.map_err(|error| StartError::Store(error.text))?;
            let _ = shared.engine.set(engine);
            if config.river.is_some() {
                let search = rivers::search(Arc::clone(&shared), config.clone());
                shared.tasks.spawn(search);
            }
        }
        let options = PortOptions {
            listen: config.listen.clone(),
            insecure,
            id: id.to_string(),
            name: name.to_owned(),
            most_connections: config.limits.clients,
        };
        let port = Port::open(context, &options, Desk(Arc::clone(&shared)))?;
        let addresses = port.addresses().to_vec();
        let metrics = config.metrics.map(|address| {
            let _runtime = shared.tasks.enter();
            let started = metrics::start(&shared, address, config.metrics_labels);
            started.map_err(|error| Error::Config(format!("[metrics] {error}")))
        });
        let metrics = metrics.transpose()?;
        shared.set_port(Some(Arc::new(port)));
        audit::insecure(context, &options.insecure);
        let tasks = &shared.tasks;
        for face in (0..shared.faces.len()).map(FaceId) {
            tasks.spawn(faces::search(Arc::clone(&shared), face));
        }
        if let Some(history) = &shared.history {
            let news = shared.act(|state, _| state.keepers.add(Keeper::History));
            let (shared, history) = (Arc::clone(&shared), Arc::clone(history));
            tasks.spawn(history::collect(shared, history, news));
        }
        tasks.spawn(offers::keep(Arc::clone(&shared), changes, changed));
        tasks.spawn(drive(Arc::clone(&shared)));
        let shared_too = Arc::clone(&shared);
        tasks.spawn(async move { shared_too.pace.keep().await });
        shared.act(|state, now| state.links.set_targets(&config.connect, now));
        Ok(Self {
            shared,
            config: config.clone(),
            addresses,
            metrics,
        })
    }

    /// Returns the addresses of the port: those of the configuration, then the insecure ones.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the address where metrics are served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Returns the identity of the relay.
    pub fn id(&self) -> RelayId {
        self.shared.id
    }

    /// Returns what the relay does, as a JSON object. Spec: relay §13.
    pub fn status(&self) -> serde_json::Value {
        status::of(&self.shared)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.act(State::close_links);
        let until = local_clock() + END_LIMIT.as_secs_f64();
        while local_clock() < until && self.shared.look(|state| !state.connections.is_empty()) {
            std::thread::sleep(LOOK_AT_END);
        }
        drop(self.shared.set_port(None));
        let engine = self.shared.engine.get();
        if let Some(engine) = engine {
            engine.leave();
        }
        if let Some(history) = &self.shared.history {
            history.end();
        }
        if let Some(engine) = engine {
            engine.finish(FINISH_LIMIT);
        }
        self.shared.tasks.end();
        let until = local_clock() + END_LIMIT.as_secs_f64();
        while local_clock() < until && !self.shared.tasks.are_over() {
            std::thread::sleep(LOOK_AT_END);
        }
        // Whoever still holds the state for a moment holds no outlet open.
        let flows = self.shared.act(|state, _| std::mem::take(&mut state.flows));
        drop(flows);
    }
}

/// Returns a context that looks for no streams at relays: by the directory of another one, or its own, a relay would
/// never learn that a stream ended, and it could be the way to itself. And with more room for the past than
/// programs have. Spec: relay §2, §5.2.
fn own_context(context: &Context) -> Result<Context> {
    let mut config = context.config().clone();
    let security = context.security()?;
    config.set("lab.Relay", "{}")?;
    if config.tuning().retain_total_bytes == LslConfig::default().tuning().retain_total_bytes {
        config.set("tuning.RetainTotalBytes", RETAINED_IN_ALL)?;
    }
    Ok(Context::with_security(config, Arc::clone(security)))
}

/// Returns the context of what is reached from an address of this machine.
fn face(context: &Context, address: IpAddr) -> Result<Context> {
    // Later is too late to say so. Wine binds UDP sockets to any address.
    TcpListener::bind((address, 0))
        .map_err(|source| Error::io(format!("{address} is no address of this machine"), source))?;
    let mut config = context.config().clone();
    config.set_bind(Bind::Address(address));
    let security = Arc::clone(context.security()?);
    Ok(Context::with_security(config, security))
}

fn identity(context: &Context) -> Result<RelayId> {
    match context.security()?.local() {
        Some(local) => Ok(RelayId::of_key(&local.key.public())),
        None => random_id(),
    }
}

fn random_id() -> Result<RelayId> {
    let random = lsl_core::random_uid()?.replace('-', "");
    let id = random.get(..16).and_then(|digits| digits.parse().ok());
    id.ok_or_else(|| Error::Argument("a random identity has 16 digits".into()))
}

/// Returns what the random part of waits begins with.
fn seed() -> Result<u32> {
    let RelayId(random) = random_id()?;
    Ok((random >> 32) as u32)
}

/// Does what is due in the directory.
async fn drive(shared: Arc<Shared>) {
    let mut looked_at = local_clock();
    let mut trust = None;
    let mut read = 0;
    loop {
        let due = shared.due().unwrap_or(f64::INFINITY) - local_clock();
        let wait = Duration::from_secs_f64(due.clamp(0.0, LOOK_SECS));
        let _ = tokio::time::timeout(wait, shared.changed.notified()).await;
        let now = local_clock();
        if now - looked_at >= LOOK_SECS {
            let before = read;
            read = shared.totals.came.received.load(Ordering::Relaxed);
            shared.act(|state, now| {
                state.count_readers(now);
                state.clocks.renew(now);
            });
            let samples = u32::try_from(read.saturating_sub(before)).unwrap_or(u32::MAX);
            shared.pace.set(f64::from(samples) / (now - looked_at));
            looked_at = now;
            reload::follow_trust(&shared, &mut trust);
            reload::end_feeds(&shared);
        }
        shared.act(|state, now| {
            state.book.handle_timeout(now);
            state.links.handle_timeout(now);
            state.notice_questions(now);
            state.clocks.machine.handle_timeout(now);
        });
    }
}

/// Bytes of the past of all streams. Spec: relay §2.
const RETAINED_IN_ALL: &str = "536870912";

/// Threads beyond which a relay gains nothing. Spec: relay §8.
const MOST_WORKERS: usize = 4;

/// Time between looks at the readers, in seconds.
const LOOK_SECS: f64 = 1.0;

/// How long an engine may take to store what waits. Spec: relay §13.
const FINISH_LIMIT: Duration = Duration::from_secs(5);

/// How long links and tasks may take to end.
const END_LIMIT: Duration = Duration::from_secs(1);

const LOOK_AT_END: Duration = Duration::from_millis(5);
