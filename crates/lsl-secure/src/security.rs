//! Everything a program needs to decide about sessions, in one place: own key, trust list, policy,
//! audit, live sessions. Read once per process; only the trust file is watched. Spec: LSS/1 §3.2, §11.
//!
//! Locks, in order: `watch` (the trust file), then `live` (trust list and sessions), then the others,
//! each alone. No lock is held while a session's `end` runs. All of them are in `running`, which a
//! forked child has of its own.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use lsl_platform::fork::PerProcess;

use crate::admission::Admission;
use crate::audit::{Audit, Event, EventKind, printable};
use crate::config::{Found, Places, Settings};
use crate::known::Known;
use crate::policy::{Candidate, Discovery, Policy, Way, not_trusted_text, way_of_inlet};
use crate::trust::{Date, StreamQueries, TrustList, today};
use crate::{Cause, Descriptor, Error, Local, Psk, PublicKey, Result, Role, SecretKey, Suites};

mod changes;
mod clock;
mod live;
mod load;
mod running;
#[cfg(test)]
mod tests;
mod watch;

pub use changes::trust_changes;
pub use live::{SessionEntry, SessionGuard};

use clock::Clock;
use running::{Origin, Running};
use watch::{Look, Watch};

/// The security of one process (or of one test). Safe to use from any thread.
#[derive(Debug)]
pub struct Security {
    settings: Option<Settings>,
    file: Option<PathBuf>,
    /// Places of a configuration, named in text E4.
    searched: Vec<PathBuf>,
    own: Option<Own>,
    /// `known_secure` failed: `migrate` acts as `required` until the process ends.
    known_failed: AtomicBool,
    running: PerProcess<Running>,
    /// State with which a forked child begins.
    origin: Origin,
    queries: OnceLock<StreamQueries>,
    audit: Audit,
    clock: Clock,
}

/// Our own key, and the one that comes next.
#[derive(Debug)]
struct Own {
    local: Arc<Local>,
    key: PublicKey,
    next: Option<PublicKey>,
}

impl Security {
    /// Creates the state without a configuration: plaintext, exactly as before. `searched` are the
    /// places looked at.
    ///
    /// # Errors
    /// [`Error::File`] if the system's file asks for encryption, which no program may switch off, or cannot
    /// be used.
    pub fn off(searched: Vec<PathBuf>) -> Result<Self> {
        Self::off_in(&Places::of_this_process(), searched)
    }

    fn off_in(places: &Places, searched: Vec<PathBuf>) -> Result<Self> {
        let floor = places.with_floor(Settings::new(Policy::Off))?.policy;
        if floor != Policy::Off {
            let reason = format!(
                "sets policy {:?} for this machine, so that no program can switch encryption off; change \
                 the policy there, or give this program a key",
                floor.name()
            );
            return Err(Error::file(&places.system, reason));
        }
        Ok(load::Parts {
            searched,
            ..load::Parts::default()
        }
        .assemble())
    }

    /// Loads the configuration from the usual places (LSS/1 §11).
    ///
    /// # Errors
    /// [`Error::File`]: nothing may stream then.
    pub fn search() -> Result<Self> {
        Self::search_in(&Places::of_this_process(), Clock::system())
    }

    fn search_in(places: &Places, clock: Clock) -> Result<Self> {
        match places.search()? {
            Found::Nothing { searched } => Ok(load::Parts {
                searched,
                clock,
                ..load::Parts::default()
            }
            .assemble()),
            Found::Settings { settings, file } => load::from_settings(*settings, file, None, clock),
        }
    }

    /// Loads the configuration from a file that the program names.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub fn from_file(file: &Path) -> Result<Self> {
        Self::from_file_with_passphrase(file, None)
    }

    /// Loads the configuration from a file that the program names, with the passphrase of its key
    /// if the program asked a person for it. The library never does.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub fn from_file_with_passphrase(file: &Path, passphrase: Option<&str>) -> Result<Self> {
        let file = std::path::absolute(file)
            .map_err(|error| Error::file(file, format!("is no path: {error}; name a file")))?;
        let settings = Places::of_this_process().read(&file)?;
        load::from_settings(settings, file, passphrase, Clock::system())
    }

    /// Creates the state from a key and a list that the program made, without files: for tests and
    /// programs with their own key store. Files named by `settings` are not read, except
    /// `audit_file`. The system's file, if there is one, is a floor for the policy here too.
    ///
    /// # Errors
    /// If the audit file cannot be opened, or the system's file not read.
    pub fn from_parts(settings: Settings, key: SecretKey, trust: TrustList) -> Result<Self> {
        let settings = Places::of_this_process().with_floor(settings)?;
        load::from_parts(settings, key, trust, Clock::system())
    }

    /// [`from_parts`](Self::from_parts) with a clock of its own, UTC since 1970: for tests of what happens
    /// on a day.
    ///
    /// # Errors
    /// As [`from_parts`](Self::from_parts).
    #[doc(hidden)]
    pub fn from_parts_with_clock(
        settings: Settings,
        key: SecretKey,
        trust: TrustList,
        utc: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Result<Self> {
        let settings = Places::of_this_process().with_floor(settings)?;
        let local = lsl_platform::clock::local_clock;
        load::from_parts(settings, key, trust, Clock::fake(utc, local))
    }

    /// The policy that holds today: `migrate` becomes `required` after its last day, or when
    /// `known_secure` cannot be used.
    pub fn policy(&self) -> Policy {
        match &self.settings {
            None => Policy::Off,
            Some(settings) if settings.policy == Policy::Migrate => {
                if self.is_migration_over() || self.known_failed.load(Ordering::Relaxed) {
                    Policy::Required
                } else {
                    Policy::Migrate
                }
            }
            Some(settings) => settings.policy,
        }
    }

    /// Whether `migrate` has had its last day.
    fn is_migration_over(&self) -> bool {
        self.settings.as_ref().is_some_and(|settings| {
            let last = settings.migrate_until;
            settings.policy == Policy::Migrate && last.is_none_or(|last| last < self.today())
        })
    }

    /// Returns the keys and options that this side brings into handshakes; `None` with
    /// [`Security::off`] and policy `off` without a key.
    pub fn local(&self) -> Option<&Arc<Local>> {
        self.own.as_ref().map(|own| &own.local)
    }

    /// The settings; `None` with [`Security::off`].
    pub fn settings(&self) -> Option<&Settings> {
        self.settings.as_ref()
    }

    /// Returns the path of the configuration in use.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the amount of information that discovery shows.
    pub fn discovery(&self) -> Discovery {
        let settings = self.settings.as_ref();
        settings.map_or(Discovery::Open, |settings| settings.discovery)
    }

    /// Decides whether the owner of `key` may be `role` in a connection between these addresses.
    /// Returns its name. Includes the rules for our own key. IPv4-mapped addresses are IPv4.
    ///
    /// # Errors
    /// [`Cause::NotAuthorised`], [`Cause::RoleNotAllowed`], [`Cause::Expired`], [`Cause::SelfKey`].
    pub fn authorise(
        &self,
        key: &PublicKey,
        role: Role,
        remote: IpAddr,
        local: IpAddr,
    ) -> Result<String, Cause> {
        let today = self.today();
        let trust = self.trust();
        match self.own_rule(&trust, key, remote, local)? {
            Rule::Welcome(name) => Ok(name),
            Rule::Listed => {
                let peer = trust.decide(key, role, remote, today)?;
                let told = lock(&self.running().told).insert(*key, today);
                if told != Some(today) {
                    load::warn_of_the_end(peer, today);
                }
                Ok(peer.name.clone())
            }
        }
    }

    /// Says what `streams` of trusted peers mean. Until then an entry that has some covers no stream.
    ///
    /// # Errors
    /// If a predicate of the trust list is none: nothing may stream then. The same in a later version of
    /// the file keeps the last good list.
    pub fn set_stream_queries(&self, queries: StreamQueries) -> Result<()> {
        let queries = self.queries.get_or_init(|| queries);
        let settings = self.settings.as_ref();
        let path = settings.and_then(|settings| settings.trusted_peers.as_deref());
        let path = path.unwrap_or_else(|| Path::new("the list of trusted peers"));
        self.trust().check_streams(path, queries)
    }

    /// Decides whether the owner of `key` may serve, or read, this stream in a connection between
    /// these addresses. For keys that [`authorise`](Self::authorise) let pass.
    ///
    /// # Errors
    /// [`Cause::RoleNotAllowed`] if its entry is for other streams.
    pub fn admits_stream(
        &self,
        key: &PublicKey,
        remote: IpAddr,
        local: IpAddr,
        stream: &Descriptor,
    ) -> Result<(), Cause> {
        let trust = self.trust();
        match self.own_rule(&trust, key, remote, local)? {
            Rule::Welcome(_) => Ok(()),
            Rule::Listed => self.covers(&trust, key, stream),
        }
    }

    /// Whether a trusted peer, whose fingerprint an outlet announces, may not serve the stream that this
    /// outlet describes. Nothing is proved by that, and nothing allowed.
    pub fn disowns(&self, fingerprint: &str, stream: &Descriptor) -> bool {
        let own = self.own.as_ref().map(|own| own.key);
        let trust = self.trust();
        let mut bound = trust.peers().iter().filter(|peer| {
            let is_bound = !peer.streams.is_empty() && own != Some(peer.key);
            is_bound && peer.key.fingerprint().to_string() == fingerprint
        });
        bound.any(|peer| !peer.covers(stream, self.queries.get()))
    }

    fn covers(&self, trust: &TrustList, key: &PublicKey, stream: &Descriptor) -> Result<(), Cause> {
        let peer = trust.find(key).ok_or(Cause::NotAuthorised)?;
        let covers = peer.covers(stream, self.queries.get());
        covers.then_some(()).ok_or(Cause::RoleNotAllowed)
    }

    /// Which rule decides about a key: our own one has its own rule.
    fn own_rule(
        &self,
        trust: &TrustList,
        key: &PublicKey,
        remote: IpAddr,
        local: IpAddr,
    ) -> Result<Rule, Cause> {
        let (Some(own), Some(settings)) = (&self.own, &self.settings) else {
            return Ok(Rule::Listed);
        };
        if own.key != *key {
            return Ok(Rule::Listed);
        }
        let (remote, local) = (remote.to_canonical(), local.to_canonical());
        if remote.is_loopback() || remote == local {
            Ok(Rule::Welcome(settings.name.clone()))
        } else if !settings.allow_shared_key {
            Err(Cause::SelfKey)
        } else if trust.find(key).is_some() {
            // An entry for the shared key, perhaps to narrow it, is on purpose.
            Ok(Rule::Listed)
        } else {
            Ok(Rule::Welcome(settings.name.clone()))
        }
    }

    /// Whether a session that was authorised may go on. Dates count at handshakes only.
    fn still_fits(&self, trust: &TrustList, session: &SessionEntry) -> Result<(), Cause> {
        match self.own_rule(trust, &session.peer, session.remote, session.local)? {
            Rule::Welcome(_) => Ok(()),
            Rule::Listed => {
                let peer = trust.find(&session.peer).ok_or(Cause::NotAuthorised)?;
                peer.fits(session.role, session.remote)?;
                self.covers(trust, &session.peer, &session.stream)
            }
        }
    }

    /// Decides how an inlet connects with an outlet. All byte fields as resolved.
    pub fn way_of_inlet(
        &self,
        name: &[u8],
        stream_type: &[u8],
        source_id: &[u8],
        address: &str,
        advert: Option<&str>,
    ) -> Way {
        let known = self.known_key(name, stream_type, source_id);
        let known = known.map(|key| key.fingerprint().to_string());
        let allowed = self.is_plaintext_allowed(source_id);
        let candidate = Candidate {
            name: &printable(name),
            address,
            advert,
            known_secure: known.as_deref(),
            plaintext_allowed: allowed,
        };
        way_of_inlet(self.policy(), &candidate, &self.searched_text())
    }

    /// Returns the key under which a stream is in `known_secure`. If the list fails, `migrate` acts
    /// as `required` from then on.
    fn known_key(&self, name: &[u8], stream_type: &[u8], source_id: &[u8]) -> Option<PublicKey> {
        let known = self.running().known.as_ref()?;
        known
            .find(name, stream_type, source_id)
            .unwrap_or_else(|error| {
                self.known_fails(&error);
                None
            })
    }

    fn known_fails(&self, error: &Error) {
        if !self.known_failed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "{error}; until this program starts again, \"migrate\" acts as \"required\""
            );
        }
    }

    /// Says that a relay cannot be read without a key: E6 of relay §13. The name may come from anywhere.
    pub fn no_key_text(&self, relay: &str) -> String {
        format!(
            "relay {} asks for encryption and this program has no key; searched {}; run: lsl key init",
            printable(relay.as_bytes()),
            self.searched_text()
        )
    }

    fn searched_text(&self) -> String {
        let places = self
            .searched
            .iter()
            .map(PathBuf::as_path)
            .chain(self.file());
        let places: Vec<_> = places.map(|place| place.display().to_string()).collect();
        places.join(", ")
    }

    /// A DESCRIPTOR of `peer` was accepted by an inlet: remembers it in `known_secure` under `migrate`.
    /// Writes a file when the stream is new.
    pub fn note_secure(&self, descriptor: &Descriptor, peer: &PublicKey) {
        if let Some(known) = &self.running().known
            && let Err(error) = known.note(descriptor, peer)
        {
            self.known_fails(&error);
        }
    }

    /// The attributes of our outlets' advert in order (`v policy fp fp_next mode`), or `None` if they
    /// announce none. Spec: LSS/1 §7.1, §7.3.
    pub fn advert(&self) -> Option<Vec<(&'static str, String)>> {
        let policy = self.policy();
        let own = self.own.as_ref().filter(|_| policy != Policy::Off)?;
        let mut attributes = vec![("v", "1".to_owned()), ("policy", policy.name().to_owned())];
        match self.discovery() {
            Discovery::Open => {
                attributes.push(("fp", own.key.fingerprint().to_string()));
                attributes.extend(
                    own.next
                        .map(|next| ("fp_next", next.fingerprint().to_string())),
                );
            }
            Discovery::Minimal => attributes.push(("mode", "minimal".to_owned())),
        }
        Some(attributes)
    }

    /// E5 of §4.4: what to do when the outlet of `peer` does not trust this device.
    pub fn not_trusted_text(&self, peer: &PublicKey) -> String {
        let trust = self.trust();
        let own_name = self.settings.as_ref().map_or("", |settings| &settings.name);
        let own_key = self.own.as_ref().map(|own| own.key);
        let peer_name = match trust.find(peer) {
            Some(peer) => &peer.name,
            None if own_key == Some(*peer) => own_name,
            None => "unknown",
        };
        not_trusted_text(
            peer_name,
            &peer.fingerprint().to_string(),
            own_name,
            &own_key.map(|key| key.to_string()).unwrap_or_default(),
        )
    }

    /// Returns the log that receives security events.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Returns the limits on handshakes of this process; locked only for moments.
    pub fn admission(&self) -> &Mutex<Admission> {
        &self.running().admission
    }

    /// The trust list as it is now.
    pub fn trust(&self) -> Arc<TrustList> {
        lock(&self.running().live).trust()
    }

    /// Registers a live session: `end` is called (from [`refresh`](Self::refresh), without any lock held)
    /// when its peer is no longer trusted. At the limit per peer key and stream: `Cause::Busy`.
    ///
    /// # Errors
    /// [`Cause::Busy`]; what [`authorise`](Self::authorise) says if trust went away since its check.
    pub fn register(
        self: &Arc<Self>,
        session: SessionEntry,
        end: impl Fn(Cause) + Send + Sync + 'static,
    ) -> Result<SessionGuard, Cause> {
        let running = self.running();
        let mut live = lock(&running.live);
        // Under the lock, so that a list which came between the handshake's check and now is seen
        // either here or by the reload that brought it.
        self.still_fits(&live.trust(), &session)?;
        let id = live.add(session, Arc::new(end))?;
        Ok(SessionGuard::new(Arc::downgrade(self), running.owner, id))
    }

    /// Registers a connection in plaintext that only `migrate` allows: `end` is called (as in
    /// [`register`](Self::register)) when its last day is over.
    ///
    /// # Errors
    /// [`Cause::PlaintextRefused`] if it is over by now.
    pub fn register_plaintext(
        self: &Arc<Self>,
        end: impl Fn() + Send + Sync + 'static,
    ) -> Result<SessionGuard, Cause> {
        let running = self.running();
        let mut live = lock(&running.live);
        if self.is_migration_over() {
            return Err(Cause::PlaintextRefused);
        }
        let id = live.add_plain(Arc::new(end));
        Ok(SessionGuard::new(Arc::downgrade(self), running.owner, id))
    }

    /// Ends the sessions still in plaintext after the last day of `migrate`.
    fn end_migration(&self) {
        if self.is_migration_over() {
            let ended = lock(&self.running().live).take_plain();
            for end in ended {
                end();
            }
        }
    }

    /// Whether `[[plaintext_allow]]` names a source id, whatever the policy.
    pub fn is_plaintext_allowed(&self, source_id: &[u8]) -> bool {
        self.settings.as_ref().is_some_and(|settings| {
            let mut allowed = settings.plaintext_allow.iter();
            !source_id.is_empty() && allowed.any(|allowed| allowed.as_bytes() == source_id)
        })
    }

    /// Looks at the trust file and, if it changed, reloads it and ends the sessions that no longer
    /// fit. Ends plaintext when `migrate` is over. To be called every 2 s while there are sessions ([`has_live_sessions`](Self::has_live_sessions))
    /// and before each handshake. Returns true when the list changed. Blocks for a `stat`.
    pub fn refresh(&self) -> bool {
        self.end_migration();
        let Some(watch) = &self.running().watch else {
            return false;
        };
        self.refresh_with(lock(watch))
    }

    /// Calls [`refresh`](Self::refresh) unless another thread is doing so; then it returns at once.
    /// On a network share that hangs, reading can take for ever, and a recording must go on with
    /// the last good list.
    pub fn refresh_if_idle(&self) -> bool {
        self.end_migration();
        let Some(watch) = &self.running().watch else {
            return false;
        };
        match watch.try_lock() {
            Ok(watch) => self.refresh_with(watch),
            Err(TryLockError::Poisoned(watch)) => self.refresh_with(watch.into_inner()),
            Err(TryLockError::WouldBlock) => false,
        }
    }

    fn refresh_with(&self, mut watch: MutexGuard<'_, Watch>) -> bool {
        let queries = self.queries.get();
        match watch.look(self.clock.utc(), self.clock.local(), queries) {
            Look::Same => false,
            Look::Failed(reason) => {
                if let Some(reason) = reason {
                    let kind = EventKind::TrustReloadFailed;
                    self.audit.record(Event::new(kind).detail(reason));
                }
                false
            }
            Look::Read { list, recovered } => {
                *lock(&self.running().modified) = Some(watch.modified());
                let changed = *self.trust() != list;
                if changed || recovered {
                    let peers = list.peers().len();
                    let detail = format!("{} peers in {}", peers, watch.path().display());
                    self.audit
                        .record(Event::new(EventKind::TrustReloaded).detail(detail));
                    load::warn_of_ends(&list, self.today());
                }
                for event in trust_changes(&self.trust(), &list) {
                    self.audit.record(event);
                }
                let ended = changed.then(|| {
                    let mut live = lock(&self.running().live);
                    live.replace_trust(list, |trust, session| self.still_fits(trust, session))
                });
                drop(watch);
                for ended in ended.into_iter().flatten() {
                    self.revoke(ended);
                }
                changed
            }
        }
    }

    fn revoke(&self, ended: live::Ended) {
        let session = ended.session;
        let mut event = Event::new(EventKind::Revoked)
            .span(session.span)
            .peer(session.peer.fingerprint())
            .peer_addr(SocketAddr::new(session.remote, 0))
            .role(match session.role {
                Role::Outlet => Role::Inlet,
                Role::Inlet => Role::Outlet,
            })
            .stream_uid(String::from_utf8_lossy(&session.stream.uid))
            .cause(Cause::Revoked)
            .detail(match ended.cause {
                Cause::RoleNotAllowed => "its entry no longer allows this role or stream",
                Cause::SelfKey => "it has our own key",
                _ => "its entry is gone or no longer allows this address",
            });
        if let Some(name) = ended.name {
            event = event.peer_name(name);
        }
        self.audit.record(event);
        (ended.end)(Cause::Revoked);
    }

    /// Returns true while any session or plaintext connection is registered.
    pub fn has_live_sessions(&self) -> bool {
        !lock(&self.running().live).is_empty()
    }

    /// The state of this process. A forked child reads its files anew and has no sessions.
    fn running(&self) -> &Running {
        let open = |path| match Known::open(path) {
            Ok(known) => Some(known),
            Err(error) => {
                self.known_fails(&error);
                None
            }
        };
        let make = || Running::of_child(&self.origin, open, &self.clock);
        self.running.get_or_init(make)
    }

    /// Returns the day by §3.2: the latest of clock, trust file and build.
    fn today(&self) -> Date {
        today(self.clock.utc(), *lock(&self.running().modified))
    }
}

/// Outcome of the rules that precede the trust list.
enum Rule {
    /// Trusted without an entry, under this name.
    Welcome(String),
    /// The peer's entry in the list decides.
    Listed,
}

/// Locks, ignoring poison: each change is one step, so that a panic leaves the value whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
