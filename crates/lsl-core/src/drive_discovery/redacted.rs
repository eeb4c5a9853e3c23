//! Asks outlets that show strangers only their shape whether they are what is looked for: inside a
//! session, one short question per outlet and search. Spec: LSS/1 §7.3.
//!
//! Adverts can be forged, so a probe goes only to where the reply came from, few are under way at a
//! time, and an address that disappoints is left alone for a while.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lsl_platform::clock::local_clock;
use lsl_proto::describe::descriptor;
use lsl_proto::discovery::search::Veto;
use lsl_proto::wire::discovery::SHORTINFO_COMMAND;
use lsl_proto::xml::Limits;
use lsl_secure::policy::Discovery;
use lsl_secure::trust::TrustList;
use lsl_secure::{Cause, Policy};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::context::Context;
use crate::drive_discovery::search::{SearchState, take_in};
use crate::drive_inlet::handshake::{self, ExpectedIdentity, Target};
use crate::drive_inlet::peers::Peers;
use crate::net::monitor::{Monitor, lock_ignoring_poison};
use crate::net::sockets::Family;
use crate::{Error, Result, StreamInfo};

/// What one search knows of outlets that hide. Dropping it ends its probes.
#[derive(Debug)]
pub(crate) struct Prober {
    context: Context,
    search: Arc<Monitor<SearchState>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By uid and address.
    outlets: HashMap<(Vec<u8>, SocketAddr), Outlet>,
    /// How many uids an address was said to have, and does not.
    wrong_uids: HashMap<SocketAddr, u32>,
    probes: JoinSet<()>,
}

/// Addresses that all searches of a context leave alone, since programs search again and again.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    state: Mutex<BackoffState>,
}

#[derive(Debug, Default)]
struct BackoffState {
    until: HashMap<SocketAddr, f64>,
    /// Under another list all may be different.
    under: Option<Arc<TrustList>>,
}

impl Backoff {
    /// Whether `target` is to be asked now. Nobody is while there are too many to be left alone.
    fn allow(&self, target: SocketAddr, trust: &Arc<TrustList>, now: f64) -> bool {
        let mut state = lock_ignoring_poison(&self.state);
        if (state.under.as_ref()).is_none_or(|under| !Arc::ptr_eq(under, trust)) {
            state.until.clear();
            state.under = Some(Arc::clone(trust));
        }
        if state.until.len() >= MAX_OUTLETS {
            state.until.retain(|_, until| now < *until);
        }
        let is_paused = state.until.get(&target).is_some_and(|until| now < *until);
        !is_paused && state.until.len() < MAX_OUTLETS
    }

    fn add(&self, target: SocketAddr, until: f64) {
        let mut state = lock_ignoring_poison(&self.state);
        // A few more than the limit, by probes that were under way.
        state.until.insert(target, until);
    }
}

#[derive(Debug)]
enum Outlet {
    Asked,
    /// It is not what is looked for.
    Other,
    /// The short info that it really has.
    PendingQuery(Arc<[u8]>),
    Failed {
        until: f64,
    },
}

impl Prober {
    /// `None` if this context does not look for outlets that hide.
    pub(crate) fn new(context: &Context, search: &Arc<Monitor<SearchState>>) -> Option<Arc<Self>> {
        (query_exposure(context) != QueryExposure::None).then(|| {
            Arc::new(Self {
                context: context.clone(),
                search: Arc::clone(search),
                state: Mutex::default(),
            })
        })
    }

    /// An outlet answered with `xml`; asks it what it is, if it hides that. Called on the runtime.
    /// Says whether it hides.
    pub(crate) fn on_redacted(self: &Arc<Self>, from: SocketAddr, xml: &[u8]) -> bool {
        let Ok(info) = StreamInfo::from_xml_with(xml, &LIMITS) else {
            return false;
        };
        let hides = info.security_advert().is_some_and(|advert| advert.minimal);
        if hides && let Some(target) = data_port(&info, from) {
            self.unveil(info, from, target);
        }
        hides
    }

    fn unveil(self: &Arc<Self>, info: StreamInfo, from: SocketAddr, target: SocketAddr) {
        let now = local_clock();
        let Ok(security) = self.context.security() else {
            return;
        };
        // As in a DESCRIPTOR, where no uid is longer than 1 KiB.
        let key = (descriptor(&info).uid, target);
        let mut state = lock_ignoring_poison(&self.state);
        match state.outlets.get(&key) {
            Some(Outlet::Asked | Outlet::Other) => return,
            Some(Outlet::PendingQuery(xml)) => {
                let xml = Arc::clone(xml);
                drop(state);
                self.found(from, &xml);
                return;
            }
            Some(Outlet::Failed { until }) if now < *until => return,
            Some(Outlet::Failed { .. }) | None => {}
        }
        while state.probes.try_join_next().is_some() {}
        if state.outlets.len() >= MAX_OUTLETS {
            // Thousands of uids are a lie; whoever is real answers the next wave again.
            let asked = |outlet: &Outlet| matches!(outlet, Outlet::Asked);
            state.outlets.retain(|_, outlet| asked(outlet));
            state.wrong_uids.clear();
        }
        let is_allowed = self.context.backoff().allow(target, &security.trust(), now);
        if !is_allowed || state.probes.len() >= MAX_PROBES {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        state.outlets.insert(key.clone(), Outlet::Asked);
        let query = self.search.lock().search.query().to_vec();
        let asking = ask(self.context.clone(), info, target, query);
        let prober = Arc::downgrade(self);
        let probe = async move {
            let answer = asking.await;
            if let Some(prober) = Weak::upgrade(&prober) {
                prober.learn(key, from, answer);
            }
        };
        state.probes.spawn_on(probe, &runtime);
    }

    fn learn(&self, key: (Vec<u8>, SocketAddr), from: SocketAddr, answer: Result<Vec<u8>>) {
        let until = local_clock() + PAUSE_SECS;
        let mut state = lock_ignoring_poison(&self.state);
        let outlet = match answer {
            Ok(xml) if xml.is_empty() => Outlet::Other,
            Ok(xml) => {
                let xml: Arc<[u8]> = xml.into();
                state
                    .outlets
                    .insert(key, Outlet::PendingQuery(Arc::clone(&xml)));
                drop(state);
                self.found(from, &xml);
                return;
            }
            Err(error) => {
                tracing::debug!(address = %key.1, %error, "an outlet does not show itself");
                // Who answered with another uid may be an honest outlet that somebody lies about; but
                // no liar may have us knock there without end.
                let wrong_uids = state.wrong_uids.entry(key.1).or_insert(0);
                *wrong_uids += 1;
                if !matches!(error, Error::Protocol(_)) || *wrong_uids >= MAX_WRONG_UIDS {
                    state.wrong_uids.remove(&key.1);
                    self.context.backoff().add(key.1, until);
                }
                Outlet::Failed { until }
            }
        };
        state.outlets.insert(key, outlet);
    }

    fn found(&self, from: SocketAddr, xml: &[u8]) {
        take_in(&self.search, |search, now| {
            search.on_tcp_reply(now, from, xml)
        });
    }
}

/// What searches of a context keep from the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryExposure {
    /// Nothing: the query goes out as liblsl's does.
    None,
    /// Outlets may hide, the query is sent: outlets of liblsl must find themselves in it.
    Outlets,
    /// Nobody learns what is looked for: whoever could not answer in a session could not be read.
    Everybody,
}

/// How searches of this context go about it.
pub(crate) fn query_exposure(context: &Context) -> QueryExposure {
    let Ok(security) = context.security() else {
        return QueryExposure::None;
    };
    if security.discovery() != Discovery::Minimal || security.local().is_none() {
        return QueryExposure::None;
    }
    match security.policy() {
        Policy::Off => QueryExposure::None,
        Policy::Migrate => QueryExposure::Outlets,
        Policy::Required => QueryExposure::Everybody,
    }
}

/// Leaves out outlets that announce the key of a peer which may not serve such a stream. Who lies about
/// its key is refused by the handshake. Spec: LSS/1 §3.2.
pub(crate) fn veto(context: &Context) -> Veto {
    let security = context.security().ok().cloned();
    let told = Mutex::new(Vec::new());
    Veto(Arc::new(move |info| {
        let fingerprint = info.security_advert().and_then(|advert| advert.fingerprint);
        let (Some(security), Some(fingerprint)) = (&security, fingerprint) else {
            return false;
        };
        let is_disowned = security.disowns(&fingerprint, &descriptor(info));
        let mut told = lock_ignoring_poison(&told);
        if is_disowned && told.len() < MAX_TOLD && !told.iter().any(|uid| uid == info.uid_bytes()) {
            told.push(info.uid_bytes().to_vec());
            tracing::warn!(
                "stream \"{}\" announces the key {}, which is trusted for other streams only (streams \
                 in the trust file); left out",
                lsl_secure::audit::printable(info.name_bytes()),
                lsl_secure::audit::printable(fingerprint.as_bytes())
            );
        }
        is_disowned
    }))
}

/// The outlet's full short info if it matches `query`, else nothing.
async fn ask(
    context: Context,
    info: StreamInfo,
    target: SocketAddr,
    query: Vec<u8>,
) -> Result<Vec<u8>> {
    let security = context.security()?;
    // Other outlets have other keys: no reason for a word about a changed one.
    let peers = Arc::new(Peers::of_strangers());
    let outlet = Target {
        info: &info,
        expected: ExpectedIdentity::Redacted,
        peers: &peers,
    };
    let request = [SHORTINFO_COMMAND, b"\r\n", &query, b"\r\n"].concat();
    let dialling = handshake::secure(security, outlet, target, &request, CONNECT_LIMIT);
    let mut dialled = dialling.await?;
    let said = dialled.tunnel().map(|tunnel| tunnel.descriptor().clone());
    let xml = dialled.read_all(MAX_ANSWER_BYTES, ANSWER_LIMIT).await?;
    if xml.is_empty() {
        return Ok(xml);
    }
    let answer = StreamInfo::from_xml_with(&xml, &LIMITS)?;
    let wrong = said.and_then(|said| descriptor(&answer).differs_from(&said));
    match wrong {
        None => Ok(xml),
        Some(field) => {
            let text = format!("the outlet at {target} shows another {field} than it vouches for");
            handshake::mismatch(security, &info, target, &text);
            peers.failed(Cause::DescriptorMismatch, &text);
            Err(Error::Security(text))
        }
    }
}

/// Where the outlet's data port is, if the reply came from there.
fn data_port(info: &StreamInfo, mut from: SocketAddr) -> Option<SocketAddr> {
    let port = match Family::of(from.ip().to_canonical()) {
        Family::V4 => info.v4_data_port(),
        Family::V6 => info.v6_data_port(),
    };
    from.set_port(port);
    (port != 0).then_some(from)
}

/// Streams that a search reports as left out.
const MAX_TOLD: usize = 16;

/// As for any discovery reply.
const LIMITS: Limits = Limits {
    bytes: 65_536,
    depth: 32,
    nodes: 512,
};

/// Probes under way at the same time. Spec: LSS/1 §7.3.
const MAX_PROBES: usize = 256;

/// Outlets, and addresses, remembered by one search.
const MAX_OUTLETS: usize = 4096;

/// Uids under which an address is asked and has another one, before it is left alone.
const MAX_WRONG_UIDS: u32 = 8;

/// How long an address is left alone after a failure.
const PAUSE_SECS: f64 = 30.0;

const CONNECT_LIMIT: Duration = Duration::from_secs(3);
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const MAX_ANSWER_BYTES: usize = 65_536;
