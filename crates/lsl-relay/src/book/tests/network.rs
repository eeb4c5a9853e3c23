//! Books joined by virtual links in virtual time: test 3 of relay §14.

use std::collections::BTreeSet;

use super::*;

/// Small generator of numbers: a failure repeats with its seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

enum Message {
    Announce(Uid, Arc<[u8]>),
    Withdraw(Uid, Reason),
    /// The reader of a stream joins or leaves.
    Join(Uid),
    Leave(Uid),
    Granted(Uid),
    Refused(Uid),
}

struct Network {
    now: f64,
    books: BTreeMap<RelayId, Book>,
    /// Link from one to another relay.
    links: BTreeSet<(RelayId, RelayId)>,
    /// Messages on the way, in the order of their arrival.
    wire: BTreeMap<(u64, u64), (RelayId, RelayId, Message)>,
    sent: u64,
    /// Streams that exist, with the relay that sees them.
    origins: BTreeMap<Uid, RelayId>,
    /// Feed that each relay reads of each stream.
    feeds: BTreeMap<(RelayId, Uid), Way>,
    announcements: usize,
    has_cuts: bool,
}

impl Network {
    fn new(ids: &[u64], links: &[(u64, u64)]) -> Self {
        let book = |id: &u64| (RelayId(*id), Book::new(RelayId(*id), settings()));
        let mut network = Self {
            now: 0.0,
            books: ids.iter().map(book).collect(),
            links: BTreeSet::new(),
            wire: BTreeMap::new(),
            sent: 0,
            origins: BTreeMap::new(),
            feeds: BTreeMap::new(),
            announcements: 0,
            has_cuts: false,
        };
        for (one, other) in links {
            network.connect(RelayId(*one), RelayId(*other));
        }
        network
    }

    fn book(&mut self, id: RelayId) -> &mut Book {
        self.books.get_mut(&id).expect("a relay")
    }

    fn connect(&mut self, one: RelayId, other: RelayId) {
        for (own, peer) in [(one, other), (other, one)] {
            self.links.insert((own, peer));
            let now = self.now;
            let book = self.book(own);
            book.link_up(peer, None, now);
            let asker = Asker {
                reader: Reader::Local,
                link: Some(peer),
            };
            let watch = Watch { asker, query: None };
            book.watch(WatcherId(peer.0), watch);
            self.drain(own);
        }
    }

    fn cut(&mut self, one: RelayId, other: RelayId) {
        self.wire
            .retain(|_, (from, to, _)| ![(one, other), (other, one)].contains(&(*from, *to)));
        for (own, peer) in [(one, other), (other, one)] {
            self.links.remove(&(own, peer));
            let now = self.now;
            // Its substreams end with the link.
            let lost = self
                .feeds
                .iter()
                .filter(|((at, _), way)| *at == peer && **way == Way::Link(own));
            let lost: Vec<_> = lost.map(|((_, uid), _)| uid.clone()).collect();
            for uid in &lost {
                self.book(own).reader_left(uid, now);
            }
            self.book(own).link_down(peer, now);
        }
        for id in [one, other] {
            self.drain(id);
        }
    }

    fn send(&mut self, from: RelayId, to: RelayId, message: Message) {
        if self.links.contains(&(from, to)) {
            self.sent += 1;
            // 20 ms, or 40 the other way round.
            let delay = if from < to { 0.02 } else { 0.04 };
            let at = (self.now + delay).to_bits();
            self.wire.insert((at, self.sent), (from, to, message));
        }
    }

    /// Does what a book asks for.
    fn drain(&mut self, id: RelayId) {
        while let Some(event) = self.book(id).poll_event() {
            match event {
                BookEvent::Announce { watcher, uid, xml } => {
                    self.announcements += 1;
                    self.send(id, RelayId(watcher.0), Message::Announce(uid, xml));
                }
                BookEvent::Withdraw {
                    watcher,
                    uid,
                    reason,
                } => {
                    self.send(id, RelayId(watcher.0), Message::Withdraw(uid, reason));
                }
                BookEvent::Subscribe { uid, way } => {
                    self.stop(id, &uid);
                    self.feeds.insert((id, uid.clone()), way);
                    match way {
                        Way::Link(peer) => self.send(id, peer, Message::Join(uid)),
                        Way::Direct(_) | Way::River => {
                            let now = self.now;
                            self.book(id).feed_up(&uid, way, now);
                        }
                    }
                }
                BookEvent::Unsubscribe(uid) => self.stop(id, &uid),
                _ => {}
            }
        }
        let streams = &self.books[&id].streams;
        assert!(
            streams.values().all(|stream| !stream.path().contains(&id)),
            "{id} has itself on a path"
        );
    }

    fn stop(&mut self, id: RelayId, uid: &Uid) {
        if let Some(Way::Link(peer)) = self.feeds.remove(&(id, uid.clone())) {
            self.send(id, peer, Message::Leave(uid.clone()));
        }
    }

    fn receive(&mut self, from: RelayId, to: RelayId, message: Message) {
        let now = self.now;
        let book = self.book(to);
        match message {
            Message::Announce(uid, xml) => {
                let info = StreamInfo::from_xml(&xml).expect("an info");
                book.announced(from, &uid, info, now);
            }
            Message::Withdraw(uid, reason) => book.withdrawn(from, &uid, reason, now),
            Message::Join(uid) => {
                let is_known = book.info(&uid).is_some();
                if is_known {
                    book.reader_joined(&uid, now);
                }
                let answer = if is_known {
                    Message::Granted(uid)
                } else {
                    Message::Refused(uid)
                };
                self.send(to, from, answer);
            }
            Message::Leave(uid) => book.reader_left(&uid, now),
            Message::Granted(uid) => book.feed_up(&uid, Way::Link(from), now),
            Message::Refused(uid) => book.feed_lost(&uid, Way::Link(from), now),
        }
        self.drain(to);
    }

    fn pass(&mut self, secs: f64) {
        let until = self.now + secs;
        loop {
            let message = self
                .wire
                .first_key_value()
                .map(|((at, _), _)| f64::from_bits(*at));
            let timers = self.books.values().filter_map(Book::poll_timeout);
            let next = timers.chain(message).fold(until, f64::min);
            self.now = next.max(self.now);
            if message.is_some_and(|at| at <= self.now) {
                let (_, (from, to, message)) = self.wire.pop_first().expect("a message");
                self.receive(from, to, message);
                continue;
            }
            if next >= until {
                break;
            }
            for id in self.books.keys().copied().collect::<Vec<_>>() {
                let now = self.now;
                self.book(id).handle_timeout(now);
                self.drain(id);
            }
        }
    }

    fn come(&mut self, uid: &str, at: RelayId) {
        let now = self.now;
        self.origins.insert(uid.into(), at);
        self.book(at).seen(FACE, info(uid), now);
        self.drain(at);
    }

    fn go(&mut self, uid: &str) {
        let at = self.origins.remove(uid).expect("a stream");
        let now = self.now;
        let book = self.book(at);
        book.feed_lost(uid, Way::Direct(FACE), now);
        book.unseen(FACE, uid, now);
        self.drain(at);
    }

    /// Whether every directory is complete, every way leads to the origin, and each stream is read once.
    fn check(&self, what: &str) {
        let all: BTreeSet<&Uid> = self.origins.keys().collect();
        for (id, book) in &self.books {
            let known = book
                .streams()
                .filter(|(_, _, way)| way.is_some())
                .map(|(uid, _, _)| uid);
            assert_eq!(
                known.collect::<BTreeSet<_>>(),
                all,
                "{what}: directory of {id}"
            );
            for (uid, origin) in &self.origins {
                let mut passed = vec![*id];
                let mut at = *id;
                while let Some(Way::Link(next)) = self.books[&at].way(uid) {
                    assert!(
                        !passed.contains(&next),
                        "{what}: {uid} runs in a loop: {passed:?}"
                    );
                    passed.push(next);
                    at = next;
                }
                assert_eq!(at, *origin, "{what}: {uid} of {id} by {passed:?}");
                assert_eq!(
                    book.hops(uid),
                    passed.len() - 1,
                    "{what}: hops of {uid} at {id}"
                );
                if let Some(way) = self.feeds.get(&(*id, uid.clone())) {
                    assert_eq!(Some(*way), book.way(uid), "{what}: feed of {uid} at {id}");
                }
            }
        }
        for (id, uid) in self.feeds.keys().filter(|(_, uid)| !all.contains(uid)) {
            // It was lost with a link, and may come back: nobody could say that it ended.
            let waits = self.has_cuts && self.books[id].info(uid).is_some();
            assert!(waits, "{what}: {id} reads {uid}, which is gone");
        }
    }
}

/// Streams come and go 500 times, readers too, and links break; within 2 s after any change all is in order.
fn come_and_go(ids: &[u64], links: &[(u64, u64)], seed: u64) {
    let has_cuts = seed % 2 == 1;
    let mut dice = Dice(seed);
    let mut network = Network::new(ids, links);
    network.has_cuts = has_cuts;
    let mut next = 0;
    let mut cut = None;
    for change in 0..500 {
        let relay = RelayId(ids[usize::try_from(dice.below(ids.len() as u64)).expect("small")]);
        let count = network.origins.len() as u64;
        if count < 20 && (count == 0 || dice.below(2) == 0) {
            next += 1;
            network.come(&format!("s{next}"), relay);
        } else {
            let nth = usize::try_from(dice.below(count)).expect("small");
            let uid = network.origins.keys().nth(nth).expect("a stream").clone();
            network.go(&uid);
        }
        // Somebody reads one of them somewhere.
        let readable: Vec<_> = network
            .book(relay)
            .streams()
            .map(|(uid, ..)| uid.clone())
            .collect();
        if let Some(uid) = readable.first() {
            let now = network.now;
            network.book(relay).reader_joined(uid, now);
            network.drain(relay);
        }
        if has_cuts && change % 50 == 25 {
            let (one, other) =
                links[usize::try_from(dice.below(links.len() as u64)).expect("small")];
            cut = Some((RelayId(one), RelayId(other)));
            network.cut(RelayId(one), RelayId(other));
        } else if change % 50 == 40
            && let Some((one, other)) = cut.take()
        {
            network.connect(one, other);
        }
        network.pass(f64::from(u32::try_from(dice.below(300)).expect("small")) / 1000.0);
        if dice.below(8) == 0 {
            network.pass(2.0);
            network.check(&format!("seed {seed}, change {change}"));
        }
    }
    // Where better ways were waited for.
    network.pass(20.0);
    network.check(&format!("seed {seed}, at the end"));
    let most = 500 * 6 * ids.len() + 40 * 20 * ids.len();
    assert!(
        network.announcements < most,
        "{} announcements",
        network.announcements
    );
    for uid in network.origins.keys().cloned().collect::<Vec<_>>() {
        network.go(&uid);
    }
    network.pass(2.0);
    network.check(&format!("seed {seed}, nothing left"));
    network.pass(60.0);
    assert_eq!(network.feeds.len(), 0);
    assert!(
        network
            .books
            .values()
            .all(|book| book.streams().count() == 0)
    );
}

#[test]
fn a_triangle_of_relays_agrees_within_two_seconds() {
    for seed in 0..4 {
        come_and_go(&[1, 2, 3], &[(1, 2), (2, 3), (3, 1)], seed);
    }
}

#[test]
fn a_ring_of_four_relays_agrees_within_two_seconds() {
    for seed in 0..4 {
        come_and_go(&[1, 2, 3, 4], &[(1, 2), (2, 3), (3, 4), (4, 1)], seed);
    }
}
