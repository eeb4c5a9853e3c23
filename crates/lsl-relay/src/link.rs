//! Life of the links of a relay: whom to dial when, and which of two links to one relay stays.
//! Spec: relay §4.1, §4.3.
//!
//! Drain [`Links::poll_event`] after each call.

use std::collections::{BTreeMap, VecDeque};

use crate::hello::{HELLO_SECS, Hello, Refusal};
use crate::id::RelayId;
use crate::mux::{Code, Side};

/// Number of a connection that is, or becomes, a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Something that the driver must do, or know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// Connect to an address and send a hello, within [`HELLO_SECS`]; then call [`Links::replied`] or
    /// [`Links::ended`].
    Dial {
        /// Number of the connection.
        link: LinkId,
        /// Address as configured.
        address: String,
    },
    /// The link carries frames from now on.
    Up {
        /// Number of the connection.
        link: LinkId,
        /// Relay at the other end.
        peer: RelayId,
        /// Whether we dialled.
        side: Side,
    },
    /// Send BYE if the link is up, and close; then call [`Links::ended`].
    Close {
        /// Number of the connection.
        link: LinkId,
        /// Reason of the BYE.
        code: Code,
    },
}

/// Cause of the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEnd {
    /// No connection, no session, a malformed hello, or an end without BYE.
    Lost,
    /// The acceptor refused the hello.
    Refused(Refusal),
    /// BYE, of either side.
    Bye(Code),
}

/// All links of a relay.
#[derive(Debug)]
pub struct Links {
    own: RelayId,
    most: usize,
    targets: Vec<Target>,
    /// Established links; one for each relay.
    up: BTreeMap<RelayId, Link>,
    last: u64,
    dice: u32,
    events: VecDeque<LinkEvent>,
}

#[derive(Debug)]
struct Link {
    id: LinkId,
    side: Side,
    since: f64,
}

/// An address to dial.
#[derive(Debug)]
struct Target {
    address: String,
    state: TargetState,
    /// Attempts since a link last held.
    failures: u32,
    /// Relay that was found there last.
    peer: Option<RelayId>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum TargetState {
    /// It is dialled at this time.
    Down(f64),
    /// It was dialled; its hello must be there by this time.
    Hello(LinkId, f64),
    Up(LinkId),
    /// The same relay is linked by another connection.
    Linked,
}

impl TargetState {
    fn link(self) -> Option<LinkId> {
        match self {
            Self::Hello(link, _) | Self::Up(link) => Some(link),
            Self::Down(_) | Self::Linked => None,
        }
    }
}

impl Links {
    /// Creates the links of the relay `own`, at most `most` of them at a time. `seed` decides the random part
    /// of waits.
    pub fn new(own: RelayId, most: usize, seed: u32) -> Self {
        Self {
            own,
            most,
            targets: Vec::new(),
            up: BTreeMap::new(),
            last: 0,
            dice: seed | 1,
            events: VecDeque::new(),
        }
    }

    /// Sets what is dialled, at once where it is new or down. Links to what is left out are closed.
    pub fn set_targets(&mut self, addresses: &[String], now: f64) {
        for target in std::mem::take(&mut self.targets) {
            if addresses.contains(&target.address) {
                self.targets.push(target);
            } else if let Some(link) = target.state.link() {
                self.close(link, Code::DONE);
            }
        }
        for address in addresses {
            if !self.targets.iter().any(|it| it.address == *address) {
                self.targets.push(Target {
                    address: address.clone(),
                    state: TargetState::Down(now),
                    failures: 0,
                    peer: None,
                });
            }
        }
        self.retry(now);
    }

    /// Sets how many links there may be at a time. Those that are too many by then stay.
    pub fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Dials everything that is down at once: trust or configuration changed.
    pub fn retry(&mut self, now: f64) {
        for target in &mut self.targets {
            if let TargetState::Down(until) = &mut target.state {
                *until = now;
                target.failures = 0;
            }
        }
        self.handle_timeout(now);
    }

    /// Returns the link to a relay, if it is up.
    pub fn of(&self, peer: RelayId) -> Option<LinkId> {
        self.up.get(&peer).map(|link| link.id)
    }

    /// Returns the addresses to dial, each with the relay that was found there last, and whether that is linked.
    pub fn targets(&self) -> impl Iterator<Item = (&str, Option<RelayId>, bool)> {
        self.targets.iter().map(|target| {
            let is_up = matches!(target.state, TargetState::Up(_) | TargetState::Linked);
            (&*target.address, target.peer, is_up)
        })
    }

    /// Returns what happened next; drain it after each call.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// Returns when to call [`Links::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<f64> {
        let times = self.targets.iter().filter_map(|target| match target.state {
            TargetState::Down(until) | TargetState::Hello(_, until) => Some(until),
            TargetState::Up(_) | TargetState::Linked => None,
        });
        times.reduce(f64::min)
    }

    /// Dials what is due, and gives up what takes too long.
    pub fn handle_timeout(&mut self, now: f64) {
        for target in &mut self.targets {
            match target.state {
                TargetState::Down(until) if now >= until => {
                    self.last += 1;
                    let link = LinkId(self.last);
                    target.state = TargetState::Hello(link, now + HELLO_SECS);
                    let address = target.address.clone();
                    self.events.push_back(LinkEvent::Dial { link, address });
                }
                TargetState::Hello(link, until) if now >= until => {
                    target.failures += 1;
                    let wait = redial_secs(target.failures, &mut self.dice);
                    target.state = TargetState::Down(now + wait);
                    let code = Code::DONE;
                    self.events.push_back(LinkEvent::Close { link, code });
                }
                _ => {}
            }
        }
    }

    /// Decides about the hello of a dialler; `may_link` says whether it is trusted as a relay. Send
    /// [`Hello::reply`] or the refusal.
    ///
    /// # Errors
    /// The answer, after which the connection is closed.
    pub fn accept(&mut self, hello: &Hello, may_link: bool, now: f64) -> Result<LinkId, Refusal> {
        let peer = hello.id;
        if peer == self.own {
            return Err(Refusal::OwnId);
        }
        if !may_link {
            return Err(Refusal::NotARelay);
        }
        let is_linked = self.up.contains_key(&peer);
        if is_linked && peer > self.own {
            return Err(Refusal::Duplicate);
        }
        if !is_linked && self.up.len() >= self.most {
            return Err(Refusal::Busy);
        }
        self.last += 1;
        let link = LinkId(self.last);
        self.establish(link, peer, Side::Acceptor, now);
        Ok(link)
    }

    /// Takes the acceptor's hello. No frame may be sent before [`LinkEvent::Up`].
    pub fn replied(&mut self, link: LinkId, hello: &Hello, now: f64) {
        let peer = hello.id;
        if peer == self.own {
            self.events.push_back(LinkEvent::Close {
                link,
                code: Code::DUPLICATE,
            });
            return self.ended(link, LinkEnd::Refused(Refusal::OwnId), now);
        }
        let Some(target) = self.target_of(link) else {
            // It came too late, or is wanted no more.
            return self.close(link, Code::DONE);
        };
        target.peer = Some(peer);
        let existing = self.up.get(&peer);
        if self.own > peer && existing.is_some_and(|it| it.side == Side::Acceptor) {
            self.close(link, Code::DUPLICATE);
            return self.ended(link, LinkEnd::Bye(Code::DUPLICATE), now);
        }
        if existing.is_none() && self.up.len() >= self.most {
            self.close(link, Code::LIMIT);
            return self.ended(link, LinkEnd::Refused(Refusal::Busy), now);
        }
        if let Some(target) = self.target_of(link) {
            target.state = TargetState::Up(link);
        }
        self.establish(link, peer, Side::Dialler, now);
    }

    /// Takes the end of a connection, whatever its state. Unknown numbers are ignored.
    pub fn ended(&mut self, link: LinkId, end: LinkEnd, now: f64) {
        let was_up = self.up.iter().find(|(_, it)| it.id == link);
        let was_up = was_up.map(|(peer, it)| (*peer, it.since));
        if let Some((peer, _)) = was_up {
            self.up.remove(&peer);
        }
        let is_steady = was_up.is_some_and(|(_, since)| now - since >= STEADY_SECS);
        let (up, dice) = (&self.up, &mut self.dice);
        for target in &mut self.targets {
            let is_own = target.state.link() == Some(link);
            let is_freed = target.state == TargetState::Linked
                && target.peer.is_none_or(|peer| !up.contains_key(&peer));
            if is_freed || is_own && is_steady {
                target.failures = 0;
            }
            if is_own && target.peer.is_some_and(|peer| up.contains_key(&peer)) {
                target.state = TargetState::Linked;
            } else if is_own || is_freed {
                target.failures += 1;
                let wait = match end {
                    LinkEnd::Refused(Refusal::NotARelay | Refusal::OwnId) if is_own => REFUSED_SECS,
                    _ => redial_secs(target.failures, dice),
                };
                target.state = TargetState::Down(now + wait);
            }
        }
    }

    fn target_of(&mut self, link: LinkId) -> Option<&mut Target> {
        let mut targets = self.targets.iter_mut();
        targets.find(|target| target.state.link() == Some(link))
    }

    fn establish(&mut self, id: LinkId, peer: RelayId, side: Side, now: f64) {
        let since = now;
        if let Some(old) = self.up.insert(peer, Link { id, side, since }) {
            self.close(old.id, Code::DUPLICATE);
        }
        let link = id;
        self.events.push_back(LinkEvent::Up { link, peer, side });
    }

    fn close(&mut self, link: LinkId, code: Code) {
        self.events.push_back(LinkEvent::Close { link, code });
    }
}

/// Returns how long to wait after so many failures, a random quarter more or less.
fn redial_secs(failures: u32, dice: &mut u32) -> f64 {
    *dice ^= *dice << 13;
    *dice ^= *dice >> 17;
    *dice ^= *dice << 5;
    let doublings = i32::try_from(failures.saturating_sub(1).min(10)).unwrap_or(0);
    let wait = (0.5 * 2_f64.powi(doublings)).min(10.0);
    wait * (0.75 + 0.5 * f64::from(*dice) / f64::from(u32::MAX))
}

/// Wait in seconds after a refusal that only people can change.
const REFUSED_SECS: f64 = 60.0;

/// Time in seconds after which a link that ends was no failure.
const STEADY_SECS: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mux::Limits;

    const SMALL: RelayId = RelayId(1);
    const LARGE: RelayId = RelayId(2);

    fn hello(id: RelayId) -> Hello {
        Hello {
            id,
            name: String::new(),
            limits: Limits {
                window: 65_536,
                streams: 10,
            },
        }
    }

    fn links(own: RelayId, targets: &[&str]) -> Links {
        let mut links = Links::new(own, 3, 7);
        let targets: Vec<_> = targets.iter().map(|it| (*it).to_owned()).collect();
        links.set_targets(&targets, 0.0);
        links
    }

    fn events(links: &mut Links) -> Vec<LinkEvent> {
        std::iter::from_fn(|| links.poll_event()).collect()
    }

    /// Number of the only connection that is to be dialled.
    fn dialled(links: &mut Links) -> LinkId {
        match events(links)[..] {
            [LinkEvent::Dial { link, .. }] => link,
            ref other => panic!("{other:?}"),
        }
    }

    #[test]
    fn redials_sooner_and_then_later() {
        let mut links = links(SMALL, &["a"]);
        let mut now = 0.0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            let link = dialled(&mut links);
            now += 1.0;
            links.ended(link, LinkEnd::Lost, now);
            let at = links.poll_timeout().expect("a time");
            waits.push(at - now);
            links.handle_timeout(at - 0.01);
            assert_eq!(events(&mut links), []);
            now = at;
            links.handle_timeout(now);
        }
        for (wait, expected) in waits
            .iter()
            .zip([0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0])
        {
            assert!(
                (expected * 0.75..=expected * 1.25).contains(wait),
                "{waits:?}"
            );
        }
        // A link that held starts anew; one that did not, does not.
        let link = dialled(&mut links);
        links.replied(link, &hello(LARGE), now);
        links.ended(link, LinkEnd::Bye(Code::SHUTDOWN), now + 20.0);
        let wait = links.poll_timeout().expect("a time") - now - 20.0;
        assert!(wait < 0.7, "{wait}");
    }

    #[test]
    fn refusals_that_people_must_change_wait_a_minute_or_a_change() {
        for refusal in [Refusal::NotARelay, Refusal::OwnId] {
            let mut links = links(SMALL, &["a"]);
            let link = dialled(&mut links);
            links.ended(link, LinkEnd::Refused(refusal), 1.0);
            assert_eq!(links.poll_timeout(), Some(61.0));
            links.retry(2.0);
            dialled(&mut links);
        }
        let mut links = links(SMALL, &["a"]);
        let link = dialled(&mut links);
        links.replied(link, &hello(SMALL), 1.0);
        let close = LinkEvent::Close {
            link,
            code: Code::DUPLICATE,
        };
        assert_eq!(
            (events(&mut links), links.poll_timeout()),
            (vec![close], Some(61.0))
        );
    }

    #[test]
    fn a_hello_takes_ten_seconds_at_most() {
        let mut links = links(SMALL, &["a"]);
        let link = dialled(&mut links);
        assert_eq!(links.poll_timeout(), Some(10.0));
        links.handle_timeout(10.0);
        let close = LinkEvent::Close {
            link,
            code: Code::DONE,
        };
        assert_eq!(events(&mut links), vec![close.clone()]);
        // Its end is no second failure, and its hello no link.
        let at = links.poll_timeout();
        links.replied(link, &hello(LARGE), 10.1);
        links.ended(link, LinkEnd::Lost, 10.1);
        assert_eq!(
            (links.poll_timeout(), events(&mut links)),
            (at, vec![close])
        );
    }

    #[test]
    fn answers_follow_the_table() {
        let mut links = Links::new(RelayId(5), 2, 7);
        let answer =
            |links: &mut Links, id, may| links.accept(&hello(RelayId(id)), may, 0.0).map(drop);
        assert_eq!(answer(&mut links, 5, true), Err(Refusal::OwnId));
        assert_eq!(answer(&mut links, 4, false), Err(Refusal::NotARelay));
        assert_eq!(answer(&mut links, 4, true), Ok(()));
        assert_eq!(answer(&mut links, 6, true), Ok(()));
        assert_eq!(answer(&mut links, 7, true), Err(Refusal::Busy));
        assert_eq!(answer(&mut links, 6, true), Err(Refusal::Duplicate));
        events(&mut links);
        let old = links.of(RelayId(4)).expect("a link");
        assert_eq!(answer(&mut links, 4, true), Ok(()));
        let close = LinkEvent::Close {
            link: old,
            code: Code::DUPLICATE,
        };
        assert_eq!(events(&mut links).first(), Some(&close));
        links.ended(old, LinkEnd::Bye(Code::DUPLICATE), 1.0);
        assert!(links.of(RelayId(4)).is_some_and(|link| link != old));
    }

    /// Both dial each other at once, in every order of what arrives: one link stays, the same for both.
    #[test]
    fn of_two_links_that_of_the_smaller_id_stays() {
        for order in 0..16_u32 {
            let (mut small, mut large) = (links(SMALL, &["large"]), links(LARGE, &["small"]));
            let (from_small, from_large) = (dialled(&mut small), dialled(&mut large));
            let mut steps = [false; 4];
            let mut answers = [None, None];
            // Each number of `order` takes the next step of one of the two dials.
            for step in 0..4 {
                let mut whose = usize::from(order >> step & 1 == 1);
                if steps[whose] && steps[whose + 2] {
                    whose = 1 - whose;
                }
                let is_reply = steps[whose];
                steps[whose + if is_reply { 2 } else { 0 }] = true;
                let (dialler, acceptor, id, other, link) = if whose == 0 {
                    (&mut small, &mut large, SMALL, LARGE, from_small)
                } else {
                    (&mut large, &mut small, LARGE, SMALL, from_large)
                };
                if !is_reply {
                    answers[whose] = Some(acceptor.accept(&hello(id), true, 1.0));
                } else if let Some(Err(refusal)) = answers[whose] {
                    dialler.ended(link, LinkEnd::Refused(refusal), 1.0);
                } else {
                    dialler.replied(link, &hello(other), 1.0);
                }
            }
            let side = |links: &Links, peer| links.up.get(&peer).map(|link| link.side);
            let sides = (side(&small, LARGE), side(&large, SMALL));
            let expected = (Some(Side::Dialler), Some(Side::Acceptor));
            assert_eq!(sides, expected, "order {order:04b}");
        }
    }

    #[test]
    fn a_relay_that_is_linked_otherwise_is_not_dialled_until_that_ends() {
        let mut links = links(SMALL, &["a", "b"]);
        let all = events(&mut links);
        let [
            LinkEvent::Dial { link: a, .. },
            LinkEvent::Dial { link: b, .. },
        ] = all[..]
        else {
            panic!("{all:?}");
        };
        links.replied(a, &hello(LARGE), 1.0);
        links.replied(b, &hello(LARGE), 1.0);
        links.ended(a, LinkEnd::Bye(Code::DUPLICATE), 1.0);
        assert_eq!((links.of(LARGE), links.poll_timeout()), (Some(b), None));
        links.ended(b, LinkEnd::Lost, 30.0);
        events(&mut links);
        links.handle_timeout(31.0);
        assert_eq!(events(&mut links).len(), 2);
        links.set_targets(&[], 32.0);
        assert_eq!((events(&mut links).len(), links.poll_timeout()), (2, None));
    }
}
