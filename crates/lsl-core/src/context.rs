//! A [`Context`] is what outlets, inlets and resolvers of one configuration share. Most programs need
//! only the global one and never name it.

use std::collections::HashSet;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, OnceLock};

use lsl_platform::fork::PerProcess;
use lsl_proto::config::{self, Bind, Config, Overrides, ResolveScope, Severity};
use lsl_proto::discovery::redacted::Backoff;
use lsl_proto::discovery::registry::SourcePolicy;
use lsl_proto::outlet::retention::Share;
use lsl_secure::Security;

use crate::StreamInfo;
use crate::config_files::SystemFiles;
use crate::drive_discovery::known_hosts::KnownHosts;
use crate::drive_discovery::lingering::Lingering;
use crate::drive_discovery::network_config::NetworkConfig;
use crate::drive_discovery::relays::Relays;
use crate::drive_discovery::serve::Service;
use crate::drive_inlet::lost::Lost;
use crate::drive_outlet::retaining::Retaining;
use crate::net::monitor::lock_ignoring_poison;
use crate::stats::{DiscoveryCounters, DiscoveryStats};

/// A configuration and the sockets that go with it: one multicast responder and one UDP service for
/// all outlets made in it. Clones share both. Safe to use from any thread.
///
/// ```
/// use lsl_core::{Context, config::Config};
///
/// // Reaches nothing but this host: for tests and demonstrations.
/// let context = Context::new(Config::loopback());
/// assert_eq!(context.config().lab().session_id, "default");
/// ```
#[derive(Clone)]
pub struct Context {
    shared: Arc<ContextShared>,
}

struct ContextShared {
    config: Config,
    network: Arc<NetworkConfig>,
    service: Service,
    known_hosts: PerProcess<KnownHosts>,
    /// A forked child has none of its parent's searches.
    lingering: PerProcess<Lingering>,
    lost: PerProcess<Lost>,
    relays: PerProcess<Relays>,
    /// What outlets retain together, and those that do.
    retained: Arc<Share>,
    retaining: PerProcess<Arc<Retaining>>,
    /// Why nothing may stream, if the security configuration cannot be used.
    security: LoadedSecurity,
    /// Outlets that hide what they are and did not show themselves.
    backoff: Mutex<Backoff>,
    discovery: Arc<DiscoveryCounters>,
    /// Hashes of what streams have in common of which it was told that there are two: strangers choose how long it is.
    conflicts: Mutex<HashSet<u64>>,
}

impl Context {
    /// The context of everything that is not given one. Made on first use from `lsl_api.cfg` (Spec:
    /// lsl-protocol §12), which reads files and may block for that long once.
    pub fn global() -> Self {
        static GLOBAL: OnceLock<Context> = OnceLock::new();
        GLOBAL
            .get_or_init(|| {
                let overrides = lock_ignoring_poison(&OVERRIDES).clone();
                let loaded = config::load(&SystemFiles, &overrides);
                tracing::info!("configuration: {}", loaded.source);
                for diagnostic in &loaded.diagnostics {
                    if diagnostic.severity == Severity::Note {
                        tracing::info!("{diagnostic}");
                    } else {
                        tracing::warn!("{diagnostic}");
                    }
                }
                let context = Self::new(loaded.config);
                // Programs that only look for streams would never hear of it.
                if let Err(reason) = &context.shared.security {
                    tracing::warn!("{reason}");
                }
                context
            })
            .clone()
    }

    /// Says where the global context takes its configuration from, ahead of the usual places. Only
    /// before its first use; later calls change nothing, as in liblsl. The last call wins.
    pub fn configure_global(overrides: Overrides) {
        *lock_ignoring_poison(&OVERRIDES) = overrides;
    }

    /// A context of its own, with the security configuration of the process (read on first use; Spec:
    /// LSS/1 §11). Opens no socket yet.
    pub fn new(config: Config) -> Self {
        let security = unless_asked_to_encrypt(&config, process_security());
        Self::assemble(config, security)
    }

    /// A context with a security configuration of its own instead of that of the process.
    pub fn with_security(config: Config, security: Arc<Security>) -> Self {
        Self::assemble(config, Ok(security))
    }

    /// The security configuration of this process, read on first use, for those who want to tell of
    /// it before there is a context. May block for reading files once.
    ///
    /// # Errors
    /// As [`security`](Self::security).
    pub fn security_of_process() -> crate::Result<Arc<Security>> {
        // No `lsl_api.cfg` is read for this, since one may still be named.
        unless_asked_to_encrypt(&Config::default(), process_security())
            .map_err(crate::Error::Security)
    }

    /// What a forked child uses in place of a context of its parent: the same configuration, sockets
    /// of its own, and a security configuration that is read anew, since locks of the inherited one may
    /// be in the hands of threads that only the parent has. Spec: LSS/1 §8.6.
    #[must_use]
    pub fn for_forked_child(&self) -> Self {
        let security = unless_asked_to_encrypt(self.config(), read_security());
        Self::assemble(self.config().clone(), security)
    }

    /// Who this side is, whom it trusts and what it lets through.
    ///
    /// # Errors
    /// [`Error::Security`](crate::Error::Security) if the security configuration exists but cannot be
    /// used: then nothing may stream, least of all in plaintext.
    pub fn security(&self) -> crate::Result<&Arc<Security>> {
        let security = self.shared.security.as_ref();
        security.map_err(|reason| crate::Error::Security(reason.clone()))
    }

    /// Whom searches leave alone for a while.
    pub(crate) fn backoff(&self) -> &Mutex<Backoff> {
        &self.shared.backoff
    }

    fn assemble(config: Config, security: LoadedSecurity) -> Self {
        // Fail closed: who may serve what cannot be told then.
        let security = security.and_then(|security| {
            let queries = lsl_proto::describe::stream_queries();
            let checked = security.set_stream_queries(queries);
            checked.map_err(|error| error.to_string())?;
            Ok(security)
        });
        lsl_platform::power::set_timer_resolution(config.tuning().timer_resolution_ms);
        let network = Arc::new(NetworkConfig::new(&config));
        let policy = SourcePolicy {
            allow_all: config.multicast().resolve_scope >= ResolveScope::Organization,
            peers: (config.unicast_peers().iter())
                .filter_map(|peer| peer.host.parse().ok())
                .collect(),
            networks: config.peer_networks(),
            only_subnets: network.face.is_some(),
        };
        let queries = config.tuning().max_cached_queries as usize;
        let enforced = security.as_ref().ok().cloned();
        let retained = usize::try_from(config.tuning().retain_total_bytes);
        let discovery = Arc::new(DiscoveryCounters::default());
        let counters = Arc::clone(&discovery);
        let service = Service::new(Arc::clone(&network), queries, policy, enforced, counters);
        Self {
            shared: Arc::new(ContextShared {
                config,
                network,
                service,
                known_hosts: PerProcess::new(),
                lingering: PerProcess::new(),
                lost: PerProcess::new(),
                relays: PerProcess::new(),
                retained: Arc::new(Share::new(retained.unwrap_or(usize::MAX))),
                retaining: PerProcess::new(),
                security,
                backoff: Mutex::default(),
                discovery,
                conflicts: Mutex::default(),
            }),
        }
    }

    /// The configuration, which never changes.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Where this context's outlets announce themselves.
    pub(crate) fn service(&self) -> &Service {
        &self.shared.service
    }

    /// Who is asked by unicast.
    pub(crate) fn known_hosts(&self) -> &KnownHosts {
        let known_hosts = &self.shared.known_hosts;
        known_hosts.get_or_init(|| KnownHosts::new(self.config()))
    }

    /// Searches of calls that do not wait.
    pub(crate) fn lingering(&self) -> &Lingering {
        self.shared.lingering.get()
    }

    /// The streams that inlets look for.
    pub(crate) fn lost(&self) -> &Lost {
        self.shared.lost.get()
    }

    /// Has searches of this context ask one more host or network directly, those that run included: what
    /// `lab.KnownPeers` takes, such as `amp-pc`, `10.1.0.7:16575` or `10.1.2.0/24`. Its outlets answer the addresses
    /// and networks also from beyond the networks of this host; names are only asked. At most 1,024 are added. A
    /// process that forks leaves it to its child to add them again.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if the text is none of these, or there are too many.
    pub fn add_known_peer(&self, peer: &str) -> crate::Result<()> {
        let known_hosts = self.known_hosts();
        known_hosts.add(self.config(), peer)?;
        known_hosts.answer(self);
        Ok(())
    }

    /// Has searches find also streams that are over and of which only a relay has something, and inlets read through
    /// relays first, as those may have more of the past than outlets. Call it before the first search. Spec: relay §9.
    pub fn include_past(&self) {
        self.relays().include_past();
    }

    /// What relays tell of.
    pub(crate) fn relays(&self) -> &Relays {
        self.shared.relays.get()
    }

    /// What outlets may retain together.
    pub(crate) fn retained(&self) -> &Arc<Share> {
        &self.shared.retained
    }

    /// The outlets that retain something.
    pub(crate) fn retaining(&self) -> &Arc<Retaining> {
        self.shared.retaining.get()
    }

    /// Returns what searches of this context did so far.
    pub fn discovery(&self) -> DiscoveryStats {
        self.shared.discovery.read()
    }

    /// What searches count.
    pub(crate) fn discovery_counters(&self) -> &DiscoveryCounters {
        &self.shared.discovery
    }

    /// Says that two streams cannot be told apart, once. Spec: doctor §2.4.
    pub(crate) fn tell_conflict(&self, one: &StreamInfo, other: &StreamInfo) {
        let mut told = lock_ignoring_poison(&self.shared.conflicts);
        let is_clone = one.uid_bytes() == other.uid_bytes();
        let uid = is_clone.then(|| one.uid_bytes());
        let names = [one.source_id_bytes(), one.name_bytes()];
        let identity = (!is_clone).then(|| (names, one.stream_type_bytes()));
        let key = told.hasher().hash_one((uid, identity));
        if told.len() >= MOST_CONFLICTS || !told.insert(key) {
            return;
        }
        drop(told);
        self.shared.discovery.conflicts.add(1);
        if is_clone {
            tracing::warn!(
                "stream {:?} with uid {} is on two hosts, {:?} and {:?}, as if a machine was copied while it ran: \
                 inlets take one for the other. Start the program on one of them again, with a source id of its own",
                one.name(),
                one.uid(),
                one.hostname(),
                other.hostname()
            );
            return;
        }
        tracing::warn!(
            "two streams {:?} with source id {:?} are there, on {:?} and {:?}: an inlet that loses one waits until \
             only one is left. End one, or give it a source id of its own",
            one.name(),
            one.source_id(),
            one.hostname(),
            other.hostname()
        );
    }

    /// What the configuration means for sockets.
    pub(crate) fn network(&self) -> &Arc<NetworkConfig> {
        &self.shared.network
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("bind", &self.config().bind())
            .finish_non_exhaustive()
    }
}

/// A security configuration, or why it cannot be used.
type LoadedSecurity = Result<Arc<Security>, String>;

/// More are not told of.
const MOST_CONFLICTS: usize = 1024;

/// Overrides given to the last [`Context::configure_global`].
static OVERRIDES: Mutex<Overrides> = Mutex::new(Overrides {
    content: None,
    file: None,
});

/// The security configuration that every context shares unless it is given one. Read once per process:
/// a forked child reads it anew, because its parent's sessions, locks and audit chain are not its own.
fn process_security() -> LoadedSecurity {
    static SECURITY: PerProcess<OnceLock<LoadedSecurity>> = PerProcess::new();
    SECURITY.get().get_or_init(read_security).clone()
}

fn read_security() -> LoadedSecurity {
    let security = if cfg!(test) {
        // What lies in the home of whoever runs the tests must not change them.
        Security::off(Vec::new())
    } else {
        Security::search()
    };
    security.map(Arc::new).map_err(|error| error.to_string())
}

/// Refuses to stream where encryption is configured in a way that only another library understands: what is
/// meant to be encrypted must not leave in plaintext. A `lsl-secure.toml` decides by itself, and nothing
/// leaves a loopback context. Spec: audit §5.
fn unless_asked_to_encrypt(config: &Config, security: LoadedSecurity) -> LoadedSecurity {
    let security = security?;
    if security.file().is_some() || config.bind() == Bind::Loopback {
        return Ok(security);
    }
    let in_home = || {
        // Not the home of whoever runs the tests.
        (!cfg!(test)).then(|| config::encryption_request_in_home(&SystemFiles))?
    };
    match config.encryption_request().cloned().or_else(in_home) {
        Some(request) => Err(request.to_string()),
        None => Ok(security),
    }
}
