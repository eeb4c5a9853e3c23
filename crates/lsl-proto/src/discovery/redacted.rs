//! Outlets that show strangers only their shape: which of them a search asks, inside a session, whether they
//! are sought. One short question per outlet and search. Spec: LSS/1 §7.3.
//!
//! Adverts can be forged, so a probe goes only to where the reply came from, few are under way at a
//! time, and an address that disappoints is left alone for a while.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use lsl_secure::Policy;
use lsl_secure::policy::Discovery;
use lsl_secure::trust::TrustList;

use super::reply::REPLY_LIMITS;
use crate::StreamInfo;
use crate::describe::descriptor;

/// Audience that learns the query of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryExposure {
    /// The query goes out as liblsl's does. Outlets that hide are not asked.
    Open,
    /// The query goes out, since outlets of liblsl must find themselves in it; outlets may hide.
    HiddenOutlets,
    /// Nobody learns the query: whoever could not answer in a session could not be read.
    Nobody,
}

impl QueryExposure {
    /// Returns how searches go about it under this configuration. Only who has a key can ask in a session.
    pub fn new(policy: Policy, discovery: Discovery, has_key: bool) -> Self {
        match policy {
            _ if discovery != Discovery::Minimal || !has_key => Self::Open,
            Policy::Off => Self::Open,
            Policy::Migrate => Self::HiddenOutlets,
            Policy::Required => Self::Nobody,
        }
    }
}

/// Addresses that all searches of a context leave alone, since programs search again and again.
#[derive(Debug, Default)]
pub struct Backoff {
    until: HashMap<SocketAddr, f64>,
    /// Under another list all may be different.
    under: Option<Arc<TrustList>>,
}

impl Backoff {
    /// Returns whether `target` may be asked now. Nobody may while too many are to be left alone.
    pub fn allows(&mut self, target: SocketAddr, trust: &Arc<TrustList>, now: f64) -> bool {
        if (self.under.as_ref()).is_none_or(|under| !Arc::ptr_eq(under, trust)) {
            self.until.clear();
            self.under = Some(Arc::clone(trust));
        }
        if self.until.len() >= MAX_OUTLETS {
            self.until.retain(|_, until| now < *until);
        }
        let is_paused = self.until.get(&target).is_some_and(|until| now < *until);
        !is_paused && self.until.len() < MAX_OUTLETS
    }

    /// Leaves an address alone until this time. A few more than the limit may be: probes under way.
    pub fn add(&mut self, target: SocketAddr, until: f64) {
        self.until.insert(target, until);
    }
}

/// An outlet that hides, as it shows itself.
#[derive(Debug)]
pub struct HiddenOutlet {
    /// Stream info as the outlet shows it to strangers.
    pub info: StreamInfo,
    /// Data port at the address that the reply came from; `None` if it has none there.
    pub target: Option<SocketAddr>,
}

impl HiddenOutlet {
    /// Reads a short info that came from `from`. `None` if it does not hide anything.
    pub fn read(from: SocketAddr, xml: &[u8]) -> Option<Self> {
        let info = StreamInfo::from_xml_with(xml, &REPLY_LIMITS).ok()?;
        info.security_advert().filter(|advert| advert.minimal)?;
        let port = if from.ip().to_canonical().is_ipv4() {
            info.v4_data_port()
        } else {
            info.v6_data_port()
        };
        let mut target = from;
        target.set_port(port);
        let target = (port != 0).then_some(target);
        Some(Self { info, target })
    }
}

/// The uid that an outlet announces, and its data port.
pub type OutletKey = (Vec<u8>, SocketAddr);

/// Chooses which hidden outlets one search asks, and remembers their answers.
#[derive(Debug, Default)]
pub struct Prober {
    outlets: HashMap<OutletKey, OutletState>,
    /// Number of uids that an address was said to have, and does not.
    wrong_uids: HashMap<SocketAddr, u32>,
    running: usize,
}

#[derive(Debug)]
enum OutletState {
    Asked,
    /// The outlet is not sought by this search.
    Other,
    /// It is sought: its real short info.
    Sought(Arc<[u8]>),
    Failed {
        until: f64,
    },
}

/// Result of [`Prober::handle_redacted`]: what the search does with the outlet.
#[derive(Debug, PartialEq, Eq)]
pub enum ProbeAction {
    /// Nothing is to be done.
    None,
    /// The outlet is sought and lives: its real short info.
    Found(Arc<[u8]>),
    /// The outlet is to be asked. Its answer goes to [`Prober::handle_answer`].
    Ask(OutletKey),
}

/// Reason for which an outlet did not show itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeFailure {
    /// It has another uid, perhaps because somebody lies about it.
    WrongUid,
    /// Every reason besides a wrong uid.
    Other,
}

/// Result of [`Prober::handle_answer`] for an asked outlet.
#[derive(Debug, PartialEq)]
pub enum Answered {
    /// The outlet is not sought, or may be asked again by this search later.
    No,
    /// The outlet is sought: its real short info.
    Found(Arc<[u8]>),
    /// The address goes into the [`Backoff`] until this time.
    LeaveAlone(f64),
}

impl Prober {
    /// Decides about an outlet that answered. `is_allowed` says whether the [`Backoff`] allows to ask it.
    pub fn handle_redacted(
        &mut self,
        info: &StreamInfo,
        target: SocketAddr,
        is_allowed: impl FnOnce() -> bool,
        now: f64,
    ) -> ProbeAction {
        // As in a DESCRIPTOR, where no uid is longer than 1 KiB.
        let key = (descriptor(info).uid, target);
        match self.outlets.get(&key) {
            Some(OutletState::Asked | OutletState::Other) => return ProbeAction::None,
            Some(OutletState::Sought(xml)) => return ProbeAction::Found(Arc::clone(xml)),
            Some(OutletState::Failed { until }) if now < *until => return ProbeAction::None,
            Some(OutletState::Failed { .. }) | None => {}
        }
        if self.outlets.len() >= MAX_OUTLETS {
            // Thousands of uids are a lie; whoever is real answers the next wave again.
            let asked = |outlet: &OutletState| matches!(outlet, OutletState::Asked);
            self.outlets.retain(|_, outlet| asked(outlet));
            self.wrong_uids.clear();
        }
        if !is_allowed() || self.running >= MAX_PROBES {
            return ProbeAction::None;
        }
        self.running += 1;
        self.outlets.insert(key.clone(), OutletState::Asked);
        ProbeAction::Ask(key)
    }

    /// Takes the answer of an outlet that was asked; an empty one means that it is not sought.
    pub fn handle_answer(
        &mut self,
        key: OutletKey,
        answer: Result<Vec<u8>, ProbeFailure>,
        now: f64,
    ) -> Answered {
        let target = key.1;
        self.running = self.running.saturating_sub(1);
        let (state, answered) = match answer {
            Ok(xml) if xml.is_empty() => (OutletState::Other, Answered::No),
            Ok(xml) => {
                let xml: Arc<[u8]> = xml.into();
                (OutletState::Sought(Arc::clone(&xml)), Answered::Found(xml))
            }
            Err(failure) => {
                let until = now + PAUSE_SECS;
                // Who answered with another uid may be an honest outlet that somebody lies about; but
                // no liar may have us knock there without end.
                let wrong_uids = self.wrong_uids.entry(target).or_insert(0);
                *wrong_uids += 1;
                let is_over = failure != ProbeFailure::WrongUid || *wrong_uids >= MAX_WRONG_UIDS;
                let answered = if is_over {
                    self.wrong_uids.remove(&target);
                    Answered::LeaveAlone(until)
                } else {
                    Answered::No
                };
                (OutletState::Failed { until }, answered)
            }
        };
        self.outlets.insert(key, state);
        answered
    }
}

/// Probes under way at the same time. Spec: LSS/1 §7.3.
const MAX_PROBES: usize = 256;

/// Outlets, and addresses, remembered by one search.
const MAX_OUTLETS: usize = 4096;

/// Uids under which an address is asked and has another one, before it is left alone.
const MAX_WRONG_UIDS: u32 = 8;

/// How long an address is left alone after a failure.
const PAUSE_SECS: f64 = 30.0;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::ChannelFormat;

    fn info(uid: &str) -> StreamInfo {
        let mut info = StreamInfo::new("x", "EEG", 1, 100.0, ChannelFormat::Int8, "s").unwrap();
        info.reset_uid(uid);
        info.set_v4_ports(16_580, 16_572);
        info
    }

    fn target(host: u8) -> SocketAddr {
        (Ipv4Addr::new(10, 0, 0, host), 16_580).into()
    }

    fn ask(prober: &mut Prober, uid: &str, host: u8, now: f64) -> ProbeAction {
        prober.handle_redacted(&info(uid), target(host), || true, now)
    }

    fn asked(prober: &mut Prober, uid: &str, host: u8, now: f64) -> OutletKey {
        match ask(prober, uid, host, now) {
            ProbeAction::Ask(key) => key,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_an_outlet_that_hides_is_asked_and_where_the_reply_came_from() {
        let from = (Ipv4Addr::new(10, 0, 0, 7), 16_572).into();
        let shown = String::from_utf8(info("u").to_shortinfo_xml()).unwrap();
        assert!(HiddenOutlet::read(from, shown.as_bytes()).is_none());
        let advert = "<lsl_secure v=\"1\" mode=\"minimal\"/></info>";
        let hidden = shown.replace("</info>", advert);
        let outlet = HiddenOutlet::read(from, hidden.as_bytes()).unwrap();
        assert_eq!(outlet.target, Some(target(7)));
        // It names no port of this family.
        let from = (std::net::Ipv6Addr::LOCALHOST, 16_572).into();
        let outlet = HiddenOutlet::read(from, hidden.as_bytes()).unwrap();
        assert_eq!(outlet.target, None);
    }

    #[test]
    fn an_outlet_is_asked_once_and_its_answer_remembered() {
        let mut prober = Prober::default();
        let key = asked(&mut prober, "sought", 1, 100.0);
        assert_eq!(ask(&mut prober, "sought", 1, 100.0), ProbeAction::None);
        let xml: Arc<[u8]> = b"<info/>".as_slice().into();
        let answered = prober.handle_answer(key, Ok(xml.to_vec()), 100.1);
        assert_eq!(answered, Answered::Found(Arc::clone(&xml)));
        assert_eq!(
            ask(&mut prober, "sought", 1, 200.0),
            ProbeAction::Found(xml)
        );
        let key = asked(&mut prober, "other", 2, 100.0);
        assert_eq!(
            prober.handle_answer(key, Ok(Vec::new()), 100.1),
            Answered::No
        );
        assert_eq!(ask(&mut prober, "other", 2, 200.0), ProbeAction::None);
        // Not if others found it disappointing.
        let action = prober.handle_redacted(&info("u"), target(3), || false, 100.0);
        assert_eq!(action, ProbeAction::None);
    }

    #[test]
    fn an_address_that_disappoints_is_left_alone() {
        let mut prober = Prober::default();
        let key = asked(&mut prober, "u", 1, 100.0);
        let answered = prober.handle_answer(key, Err(ProbeFailure::Other), 101.0);
        assert_eq!(answered, Answered::LeaveAlone(131.0));
        assert_eq!(ask(&mut prober, "u", 1, 130.0), ProbeAction::None);
        asked(&mut prober, "u", 1, 131.0);
        // Somebody lies about an honest outlet, for a while.
        for lie in 1..=MAX_WRONG_UIDS {
            let key = asked(&mut prober, &lie.to_string(), 2, 100.0);
            let answered = prober.handle_answer(key, Err(ProbeFailure::WrongUid), 101.0);
            let is_over = answered == Answered::LeaveAlone(131.0);
            assert_eq!(is_over, lie == MAX_WRONG_UIDS, "{lie}: {answered:?}");
        }
    }

    #[test]
    fn few_are_asked_at_the_same_time_and_few_remembered() {
        let mut prober = Prober::default();
        let mut keys = Vec::new();
        for n in 0..2 * MAX_PROBES {
            match ask(&mut prober, &n.to_string(), 1, 100.0) {
                ProbeAction::Ask(key) => keys.push(key),
                other => assert_eq!(other, ProbeAction::None),
            }
        }
        assert_eq!(keys.len(), MAX_PROBES);
        for key in keys {
            prober.handle_answer(key, Ok(Vec::new()), 100.0);
        }
        for n in 0..2 * MAX_OUTLETS {
            let key = asked(&mut prober, &format!("u{n}"), 1, 100.0);
            prober.handle_answer(key, Ok(Vec::new()), 100.0);
        }
        assert!(prober.outlets.len() <= MAX_OUTLETS);
    }

    #[test]
    fn a_back_off_ends_with_its_time_and_with_the_trust_file() {
        let mut backoff = Backoff::default();
        let trust = Arc::new(TrustList::default());
        assert!(backoff.allows(target(1), &trust, 100.0));
        backoff.add(target(1), 130.0);
        assert!(!backoff.allows(target(1), &trust, 129.0));
        assert!(backoff.allows(target(2), &trust, 129.0));
        assert!(backoff.allows(target(1), &trust, 130.0));
        backoff.add(target(1), 160.0);
        assert!(backoff.allows(target(1), &Arc::new(TrustList::default()), 131.0));
    }
}
