//! Streams of which nothing is known but an advert, which anybody on the network can make up: how many of
//! them are tried at a time, whose turn it is, and how much is said of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use lsl_core::StreamInfo;

use crate::event::{Event, Events};

/// An outlet as a datagram announces it.
#[derive(Debug, Clone)]
pub(crate) struct Advert {
    pub(crate) info: StreamInfo,
    /// Address that sent it first. Everything else in an advert can be made up.
    pub(crate) sender: Option<IpAddr>,
}

impl Advert {
    pub(crate) fn uid(&self) -> &[u8] {
        self.info.uid_bytes()
    }

    /// Returns the sender and port under which its host takes connections.
    fn place(&self) -> HostPort {
        let port = match self.info.v4_data_port() {
            0 => self.info.v6_data_port(),
            port => port,
        };
        (self.sender, port)
    }
}

type HostPort = (Option<IpAddr>, u16);

/// An advert, and whether the stream is required.
pub(crate) type Waiting<'a> = (&'a Advert, bool);

/// Order in which adverts are connected. Hosts take turns, so that one which makes up thousands of
/// streams does not delay others. Within a host the port tried least comes first, then the longest
/// wait.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Places in the queue by uid. New adverts and those just tried go to its end.
    queue: HashMap<Vec<u8>, u64>,
    end: u64,
    /// Round in which a host has its next turn.
    rounds: HashMap<Option<IpAddr>, u64>,
    round: u64,
    tried: HashMap<HostPort, u32>,
}

impl Turns {
    /// Turns that begin with this one.
    fn after(advert: &Advert) -> Self {
        Self {
            queue: HashMap::from([(advert.uid().to_vec(), 0)]),
            rounds: HashMap::from([(advert.sender, 0)]),
            ..Self::default()
        }
    }

    /// Puts adverts into the order in which to try them, and forgets all others.
    pub(crate) fn sort<'a>(&mut self, mut adverts: Vec<Waiting<'a>>) -> Vec<Waiting<'a>> {
        let mut before = std::mem::take(&mut self.queue);
        for (advert, _) in &adverts {
            let known = before.remove_entry(advert.uid());
            let (uid, at) = known.unwrap_or_else(|| (advert.uid().to_vec(), self.take_end()));
            self.queue.insert(uid, at);
        }
        let at = |advert: &Advert| self.queue.get(advert.uid()).copied();
        adverts.sort_by_cached_key(|(advert, is_required)| {
            let tried = self.tried.get(&advert.place()).copied();
            (!is_required, tried.unwrap_or(0), at(advert))
        });
        let before = std::mem::take(&mut self.rounds);
        let mut next = HashMap::new();
        let mut in_rounds = Vec::with_capacity(adverts.len());
        for waiting in adverts {
            let host = waiting.0.sender;
            // New hosts come behind those that wait for this round.
            let first = *before.get(&host).unwrap_or(&(self.round + 1));
            self.rounds.insert(host, first);
            let round = next.entry(host).or_insert(first);
            in_rounds.push((*round, at(waiting.0), waiting));
            *round += 1;
        }
        in_rounds.sort_by_key(|(round, at, _)| (*round, *at));
        in_rounds.into_iter().map(|it| it.2).collect()
    }

    /// Notes that an advert is tried now.
    pub(crate) fn note_tried(&mut self, advert: &Advert) {
        let end = self.take_end();
        self.queue.insert(advert.uid().to_vec(), end);
        let next = (self.rounds).entry(advert.sender).or_insert(self.round + 1);
        self.round = self.round.max(*next);
        *next += 1;
        if self.tried.len() >= MOST_PLACES {
            self.tried.clear();
        }
        *self.tried.entry(advert.place()).or_default() += 1;
    }

    fn take_end(&mut self) -> u64 {
        self.end += 1;
        self.end
    }
}

/// The outlets that say to be a stream which was lost.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    turns: Turns,
    /// Adverts whose turn comes next.
    offered: Vec<Advert>,
}

impl Candidates {
    /// The outlet of a stream that flows is the first to be tried when that is lost.
    pub(crate) fn after(advert: &Advert) -> Self {
        Self {
            turns: Turns::after(advert),
            offered: Vec::new(),
        }
    }

    /// Names those that are there now.
    pub(crate) fn offer(&mut self, found: Vec<Waiting<'_>>) {
        let sorted = self.turns.sort(found).into_iter();
        self.offered = sorted.take(MOST_OFFERED).map(|it| it.0.clone()).collect();
    }

    /// The first that may be taken; it has its turn now.
    pub(crate) fn take(&mut self, is_free: impl Fn(&Advert) -> bool) -> Option<Advert> {
        let advert = self.offered.drain(..).find(is_free)?;
        self.turns.note_tried(&advert);
        Some(advert)
    }

    /// Whether any other one waits.
    pub(crate) fn has_other(&self, uid: &[u8]) -> bool {
        self.offered.iter().any(|advert| advert.uid() != uid)
    }
}

/// Events of strangers: a bounded number, as they decide how many there are.
#[derive(Debug)]
pub(crate) struct StrangerEvents {
    events: Events,
    count: AtomicU32,
}

impl StrangerEvents {
    pub(crate) fn new(events: &Events) -> Self {
        Self {
            events: events.clone(),
            count: AtomicU32::new(0),
        }
    }

    pub(crate) fn push(&self, event: Event) {
        match self.count.fetch_add(1, Ordering::Relaxed) {
            ..MAX_EVENTS => self.events.push(event),
            MAX_EVENTS => self.events.push(Event::TooManyStrangers),
            // Does not come round to the first event.
            _ => self.count.store(MAX_EVENTS + 1, Ordering::Relaxed),
        }
    }
}

/// Streams that may be tried at a time. Each takes a few descriptors and some 100 KB.
pub(crate) const MOST_TRIED: usize = 64;
/// Longest attempt while other adverts wait.
pub(crate) const TURN_SECS: f64 = 3.0;
const MOST_PLACES: usize = 4096;
/// Outlets of which one may be the next of a stream; others that were lost may be faster with the first.
const MOST_OFFERED: usize = 8;
const MAX_EVENTS: u32 = 20;

#[cfg(test)]
mod tests {
    use lsl_core::ChannelFormat;

    use super::*;

    /// Named `name`, at this port of the host with this number.
    fn advert(host: u8, name: &str, port: u16) -> Advert {
        let info = StreamInfo::new(name, "", 1, 0.0, ChannelFormat::Int8, name).unwrap();
        let xml = String::from_utf8(info.to_shortinfo_xml()).unwrap();
        let xml = xml
            .replace("<v4data_port>0<", &format!("<v4data_port>{port}<"))
            .replace("<uid></uid>", &format!("<uid>{name}</uid>"))
            .replace("<uid />", &format!("<uid>{name}</uid>"));
        Advert {
            info: StreamInfo::from_xml(xml.as_bytes()).unwrap(),
            sender: Some([192, 168, 1, host].into()),
        }
    }

    /// The names of those that have their turn now.
    fn choose(turns: &mut Turns, adverts: &[Advert], room: usize) -> Vec<String> {
        let waiting = adverts.iter().map(|advert| (advert, false)).collect();
        let mut chosen = turns.sort(waiting);
        chosen.truncate(room);
        for (advert, _) in &chosen {
            turns.note_tried(advert);
        }
        let name = |(advert, _): &Waiting<'_>| advert.info.name().into_owned();
        chosen.iter().map(name).collect()
    }

    /// How many rounds a stream waits that comes to others, of which there are new ones in each round.
    fn rounds_of(turns: &mut Turns, others: impl Fn(u16) -> Vec<Advert>) -> Option<u16> {
        let mut waiting = Vec::new();
        (0..1000).find(|&round| {
            waiting.extend(others(round));
            // From the third round on.
            if round == 2 {
                waiting.push(advert(1, "real", 16572));
            }
            let chosen = choose(turns, &waiting, 8);
            waiting.retain(|one| !chosen.contains(&one.info.name().into_owned()));
            chosen.contains(&"real".to_owned())
        })
    }

    #[test]
    fn fresh_adverts_at_fresh_ports_do_not_keep_another_host_waiting() {
        let flood = |round: u16| {
            let fresh = |n: u16| advert(66, &format!("{round}-{n}"), 1000 + 20 * round + n);
            (0..20).map(fresh).collect()
        };
        assert_eq!(rounds_of(&mut Turns::default(), flood), Some(2));
    }

    #[test]
    fn fresh_adverts_of_ever_new_hosts_do_not_keep_another_one_waiting_for_ever() {
        let flood = |round: u16| {
            let host = |n: u16| u8::try_from((round * 9 + n) % 200 + 20).unwrap();
            let fresh = |n: u16| advert(host(n), &format!("{round}-{n}"), 1000 + round);
            (0..9).map(fresh).collect()
        };
        let rounds = rounds_of(&mut Turns::default(), flood);
        assert!(rounds.is_some_and(|rounds| rounds < 10), "{rounds:?}");
    }

    #[test]
    fn of_one_host_the_port_comes_first_where_least_was_tried() {
        let mut turns = Turns::default();
        let mut adverts: Vec<_> = (0..50).map(|n| advert(1, &format!("f{n}"), 7)).collect();
        assert_eq!(choose(&mut turns, &adverts, 8).len(), 8);
        adverts.push(advert(1, "real", 8));
        assert_eq!(choose(&mut turns, &adverts, 1), ["real"]);
        // Whoever is gone leaves nothing behind.
        turns.sort(vec![(&adverts[0], false)]);
        assert_eq!((turns.queue.len(), turns.rounds.len()), (1, 1));
    }

    #[test]
    fn what_is_required_comes_first_of_its_host() {
        let adverts = ["a", "b", "c"].map(|name| advert(1, name, 7));
        let sorted =
            Turns::default().sort(adverts.iter().map(|it| (it, it.uid() == b"c")).collect());
        let names: Vec<_> = sorted.iter().map(|(advert, _)| advert.uid()).collect();
        assert_eq!(names, [b"c", b"a", b"b"]);
    }

    /// The name of the one that is tried first.
    fn take(candidates: &mut Candidates, offered: &[Advert]) -> String {
        candidates.offer(offered.iter().map(|advert| (advert, false)).collect());
        let taken = candidates.take(|_| true).unwrap();
        taken.info.name().into_owned()
    }

    #[test]
    fn silent_forged_adverts_do_not_keep_a_lost_stream_from_its_successor() {
        // One host, where nobody can tell them apart: the one that flowed is first, then all in turn.
        let mut offered: Vec<_> = (0..19).map(|n| advert(1, &format!("f{n}"), 7)).collect();
        offered.push(advert(1, "own", 7));
        offered.push(advert(1, "real", 7));
        let mut candidates = Candidates::after(&offered[19]);
        let mut taken: Vec<_> = (0..21).map(|_| take(&mut candidates, &offered)).collect();
        assert_eq!(taken[0], "own");
        taken.sort();
        taken.dedup();
        assert_eq!(taken.len(), 21, "each had its turn");
        // Another host, and new ones with each look: the first host has every other turn.
        let flood =
            |turn: u16| (0..9).map(move |n| advert(66, &format!("{turn}-{n}"), 99 * turn + n));
        let own = advert(1, "own", 8);
        let mut candidates = Candidates::after(&own);
        let taken = (0..9).map(|turn| {
            let offered: Vec<_> = flood(turn).chain([own.clone()]).collect();
            take(&mut candidates, &offered)
        });
        let taken: Vec<_> = taken.collect();
        assert!(
            taken.windows(2).all(|two| two.contains(&"own".to_owned())),
            "{taken:?}"
        );
        assert!(candidates.offered.len() <= MOST_OFFERED);
    }

    #[test]
    fn of_a_lost_stream_only_what_is_free_is_tried() {
        let offered = [advert(1, "own", 7), advert(1, "other", 8)];
        let mut candidates = Candidates::after(&offered[0]);
        candidates.offer(offered.iter().map(|advert| (advert, false)).collect());
        assert!(candidates.has_other(b"own"));
        let taken = candidates.take(|advert| advert.uid() != b"own").unwrap();
        assert_eq!(taken.uid(), b"other");
        assert!(candidates.take(|_| true).is_none(), "offered once");
    }
}
