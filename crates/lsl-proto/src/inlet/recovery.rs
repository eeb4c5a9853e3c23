//! Where an inlet connects: its outlet, the pauses after failures, and the search for a successor of an
//! outlet that is gone. Three tasks connect, each for its purpose; this machine tells them where and when.
//! Spec: lsl-protocol §2.4, §3.5, §10.

use std::sync::Arc;

use lsl_secure::trust::TrustList;

use super::successor::{Refused, is_described_alike, is_same_stream};
use super::suspicion::{Doubt, Suspicion};
use crate::config::{Config, Ipv6Mode};
use crate::{Error, Result, StreamInfo};
use state::Rescues;

pub use super::endpoint::{Endpoint, is_unreachable};
pub use super::suspicion::Flow;
use place::Trial;
pub use state::InletState;

/// Purpose of a connection to the outlet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The samples of the stream.
    Feed,
    /// Probes of the outlet's clock, and the session that seals them.
    Clock,
    /// The full info, which is fetched once.
    FullInfo,
}

const PURPOSES: [Purpose; 3] = [Purpose::Feed, Purpose::Clock, Purpose::FullInfo];

/// Number of an attempt of an inlet; never used again.
pub type AttemptId = u64;

/// One attempt to connect. It lasts for as long as the connection does.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Name in what the machine is told of it.
    pub id: AttemptId,
    /// Purpose that the connection shall serve.
    pub purpose: Purpose,
    /// The stream as its present outlet describes it.
    pub info: Arc<StreamInfo>,
    /// Where to connect; `None` if no address is known or allowed.
    pub endpoint: Option<Endpoint>,
    /// Number of changes of outlet or address so far.
    pub moves: u64,
}

impl Attempt {
    /// Returns where to connect.
    ///
    /// # Errors
    /// [`Error::Protocol`] if no address is known or allowed.
    pub fn address(&self) -> Result<Endpoint> {
        let unknown = || Error::Protocol("no address of the outlet is known".into());
        self.endpoint.ok_or_else(unknown)
    }
}

/// Event that the machine has to know.
#[derive(Debug)]
pub enum Input {
    /// Connections of this purpose are wanted from now on; an attempt that is under way is nobody's any more.
    Wanted(Purpose),
    /// They are not wanted any more. Without a feed its failures are forgotten.
    Done(Purpose),
    /// The task that got this attempt has ended: another one of its purpose may begin.
    Returned(AttemptId),
    /// The feed flows: earlier failures are forgotten.
    Connected,
    /// A handshake for the feed failed.
    Refused(AttemptId),
    /// An attempt came to nothing, or its connection ended.
    Failed(AttemptId, Failure),
    /// Streams that answered to [`Action::Search`].
    Found(Vec<StreamInfo>),
    /// Whether the outlet answered to [`Action::AskByTcp`], [`Action::AskByUdp`] or [`Action::AskBoth`].
    InPlace(bool),
    /// Whether the feed's connection may still lead to the outlet, after [`Action::Probe`].
    Probed(bool),
    /// The network changed, or this machine slept; perhaps the address of this end of the feed's connection is gone.
    Changed {
        /// What the feed says.
        flow: Flow,
        /// Whether that address is gone.
        is_cut: bool,
    },
    /// The present trust list: before what it may change, and in answer to [`Action::LookAtTrust`]; `None` if
    /// there is none to be had.
    Trust(Option<Arc<TrustList>>),
}

/// Kind of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Failure {
    /// A reason of the network or of the protocol.
    Connection,
    /// The same, of a feed that can go on where it broke: every moment counts. Spec: resume §5.7.
    Resumable,
    /// A reason of security: wrong key, no trust or no place.
    Security {
        /// Pause before the next attempt in seconds, unless the trust list changes.
        delay_secs: f64,
        /// Whether the outlet only has no place just now.
        is_busy: bool,
    },
    /// The outlet is there, but its full info is not complete yet.
    NotReady,
}

/// Work for the driver, which answers with an [`Input`]. It takes the place of the work before.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Search for [`sought`](Recovery::sought) until somebody answers, and at least for so many seconds, so
    /// that a second candidate is noticed: [`Input::Found`].
    Search(f64),
    /// Ask the outlet at the address in use by TCP whether it is there: [`Input::InPlace`].
    AskByTcp,
    /// Ask it by UDP whether it is there and as we know it: [`Input::InPlace`].
    AskByUdp,
    /// Ask it by UDP, and by TCP if that brings no answer: [`Input::InPlace`].
    AskBoth,
    /// Have the system probe the feed's connection, and end it if nobody answers: [`Input::Probed`].
    Probe,
    /// Read the trust list again: [`Input::Trust`].
    LookAtTrust,
}

/// Change that people and callers are told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A successor has taken the place of the outlet.
    Adopted,
    /// So many outlets could be the one that was lost; the search goes on until only one is left.
    Ambiguous(usize),
    /// The stream is lost for good.
    Lost,
}

/// The outlet of an inlet, and the state of its connections to it.
///
/// [`handle`](Self::handle) and [`handle_timeout`](Self::handle_timeout) change it; then
/// [`poll_connect`](Self::poll_connect) gives the attempts that may begin, and
/// [`poll_action`](Self::poll_action) the work to do. Times are seconds of `local_clock`.
#[derive(Debug)]
pub struct Recovery {
    present: Arc<StreamInfo>,
    ipv6: Ipv6Mode,
    /// Looks up the interface that a link-local address names.
    scope_of: fn(&str) -> u32,
    is_recoverable: bool,
    watchdog_interval_secs: f64,
    watchdog_threshold_secs: f64,
    /// Whether IPv6 is in use; kept across a recovery if possible.
    is_v6: Option<bool>,
    /// Where the present outlet was reached last, if any of its ways may be taken.
    reached: Option<Endpoint>,
    /// Of each purpose, in their order.
    trials: [Trial; 3],
    /// Number of changes of outlet or address so far.
    moves: u64,
    /// Tries in a row to connect the feed that came to nothing.
    failures: u32,
    /// Tries to go on with the feed where it broke, since it flowed.
    redials: u32,
    /// Time of the last of them.
    redialled_at: f64,
    /// Whether the outlet took the place of another.
    is_adopted: bool,
    /// Successors that could not be read, since there was a feed.
    refused: Refused,
    /// Trust list under which they were refused.
    trust: Option<Arc<TrustList>>,
    /// When to look for another trust list, while a pause may end with it.
    look_at: f64,
    last_attempt: AttemptId,
    /// Of each purpose, in their order.
    connections: [Progress; 3],
    /// Next pause for a full info that is not complete, in seconds.
    not_ready_secs: f64,
    /// Watchdog of an attempt of the feed.
    watch: Option<Watchdog>,
    /// The same for one that flowed; `None` if connections are left alone.
    suspicion: Option<Suspicion>,
    /// Work whose answer is awaited.
    action: Option<Action>,
    /// Whether the driver has it.
    is_given: bool,
    /// Number of rounds of searches begun so far.
    rounds: u64,
    /// The outlet as a search found it elsewhere.
    found: Option<Box<StreamInfo>>,
    /// Shortest duration of the next round of the search.
    round_secs: f64,
    /// Outlets that could be the one that is looked for, as of the last round.
    candidates: usize,
    rescues: Rescues,
}

#[derive(Debug, Clone, Copy)]
struct Watchdog {
    since: f64,
    next_look: f64,
    /// Whether the outlet does not answer where it was.
    is_missed: bool,
}

/// Progress of the connections of one purpose.
#[derive(Debug, Clone, Copy, Default)]
enum Progress {
    #[default]
    Unwanted,
    /// An attempt may begin at once.
    Ready,
    Trying(AttemptId),
    /// Waits for the outlet or its successor to be found, and then, if it is the same, so many seconds.
    Searching {
        pause_secs: f64,
        is_security: bool,
        /// Number of the last round begun before the failure. Its answers may be older.
        after_round: u64,
    },
    Paused {
        until: f64,
        is_security: bool,
    },
}

impl Recovery {
    /// Starts with the outlet that `info` describes. `scope_of` returns the index of a named interface, 0
    /// if there is none.
    pub fn new(
        info: StreamInfo,
        config: &Config,
        is_recoverable: bool,
        scope_of: fn(&str) -> u32,
    ) -> Self {
        let tuning = config.tuning();
        Self {
            present: Arc::new(info),
            ipv6: config.ports().ipv6,
            scope_of,
            is_recoverable,
            watchdog_interval_secs: tuning.watchdog_check_interval_secs.max(0.1),
            watchdog_threshold_secs: tuning.watchdog_time_threshold_secs,
            is_v6: None,
            reached: None,
            trials: Default::default(),
            moves: 0,
            failures: 0,
            redials: 0,
            redialled_at: f64::NEG_INFINITY,
            is_adopted: false,
            refused: Refused::default(),
            trust: None,
            look_at: f64::INFINITY,
            last_attempt: 0,
            connections: Default::default(),
            not_ready_secs: NOT_READY_SECS,
            watch: None,
            suspicion: config.lab().self_healing.then(Suspicion::default),
            action: None,
            is_given: false,
            rounds: 0,
            found: None,
            round_secs: FIRST_ROUND_SECS,
            candidates: 0,
            rescues: Rescues::default(),
        }
    }

    /// Takes an event. One of an attempt that is over, and an answer that nobody waits for, change nothing.
    pub fn handle(&mut self, input: Input, now: f64) -> Option<Notice> {
        let notice = self.on_input(input, now);
        self.end_unwanted_search();
        notice
    }

    fn end_unwanted_search(&mut self) {
        if !self.is_searching() {
            // Nobody waits for it any more, and it must not move those who are well.
            let is_search =
                |action: &mut Action| matches!(action, Action::Search(_) | Action::AskByTcp);
            self.action.take_if(is_search);
            self.found = None;
            self.round_secs = FIRST_ROUND_SECS;
            self.candidates = 0;
        }
    }

    fn on_input(&mut self, input: Input, now: f64) -> Option<Notice> {
        match (input, &self.action) {
            (Input::Wanted(purpose), _) => {
                let progress = self.progress(purpose);
                if matches!(progress, Progress::Unwanted | Progress::Trying(_)) {
                    *progress = Progress::Ready;
                }
                if purpose == Purpose::FullInfo {
                    self.not_ready_secs = NOT_READY_SECS;
                }
            }
            (Input::Returned(id), _) => {
                if let Some(progress) = self.trying(id) {
                    *progress = Progress::Ready;
                }
            }
            (Input::Done(purpose), _) => {
                *self.progress(purpose) = Progress::Unwanted;
                self.trials[purpose as usize] = Trial::default();
                if purpose == Purpose::Feed {
                    self.end_watch();
                    self.forget_failures();
                }
            }
            (Input::Connected, _) => {
                self.rescues.count += u64::from(self.rescues.is_found);
                self.forget_failures();
                self.trials[Purpose::Feed as usize] = Trial::default();
                if let Some(suspicion) = self.suspicion.as_mut().filter(|_| self.is_recoverable) {
                    suspicion.watch(now);
                }
            }
            (Input::Refused(id), _) if self.is_current(id) && self.is_adopted => {
                // As the present outlet it would keep the inlet from the one that it lost.
                self.refused.note(self.present.uid_bytes());
            }
            (Input::Failed(id, failure), _) => return self.on_failed(id, failure, now),
            (Input::Found(answers), Some(Action::Search(_))) => {
                return self.on_answers(answers, now);
            }
            (Input::InPlace(is_there), Some(Action::AskByTcp)) => {
                let found = self.found.take().filter(|_| !is_there);
                // Same outlet, other address: the host moved to another network.
                let has_moved = found.map(|found| self.move_to(*found)).is_some();
                self.end_search(has_moved, now);
            }
            (Input::InPlace(is_there), Some(Action::AskByUdp)) => {
                self.action = None;
                self.miss(!is_there);
            }
            (Input::InPlace(is_there), Some(Action::AskBoth)) => {
                self.action = None;
                self.miss(!is_there);
                if let Some(suspicion) = &mut self.suspicion {
                    suspicion.answered(is_there, now);
                }
            }
            (Input::Probed(may_flow), Some(Action::Probe)) => {
                self.action = None;
                if !may_flow {
                    self.reconnect();
                }
            }
            (Input::Changed { flow, is_cut }, _) => {
                if let Some(suspicion) = &mut self.suspicion
                    && suspicion.check(&flow, is_cut, now)
                {
                    self.end_pauses(|_, is_security| !is_security);
                }
            }
            (Input::Trust(trust), action) => {
                if let Some(Action::LookAtTrust) = action {
                    self.action = None;
                    self.look_at = now + TRUST_CHECK_SECS;
                }
                let is_known =
                    |trust| (self.trust.as_ref()).is_some_and(|known| Arc::ptr_eq(known, trust));
                if trust.as_ref().is_some_and(|trust| !is_known(trust)) {
                    self.trust = trust;
                    self.refused = Refused::default();
                    self.end_pauses(|_, is_security| is_security);
                }
            }
            _ => {}
        }
        None
    }

    /// Does what is due; `flow` is what the feed says.
    pub fn handle_timeout(&mut self, flow: &Flow, now: f64) {
        self.end_pauses(|until, _| until <= now);
        let watched = self.suspicion.as_mut().filter(|_| self.watch.is_some());
        let doubts = watched.map(|suspicion| suspicion.look(flow, now, self.action.is_none()));
        let (has_come, doubt) = doubts.unwrap_or_default();
        if has_come {
            self.miss(false);
            self.end_unwanted_search();
        }
        match doubt {
            Some(Doubt::Ask) => self.begin(Action::AskBoth),
            Some(Doubt::Probe) => self.begin(Action::Probe),
            Some(Doubt::Reconnect) => self.reconnect(),
            None => {}
        }
        if self.action.is_some() {
            return;
        }
        let next_look = self.next_watch(now);
        match &mut self.watch {
            Some(watch) if watch.next_look <= now => {
                watch.next_look = next_look;
                let quiet_secs = now - flow.last_arrival.unwrap_or(watch.since).max(watch.since);
                if quiet_secs > self.watchdog_threshold_secs {
                    self.begin(Action::AskByUdp);
                }
            }
            _ if self.look_at <= now => self.begin(Action::LookAtTrust),
            _ => {}
        }
    }

    /// Returns the attempt that may begin for this purpose. The clock waits for a feed that seems to be
    /// hopeless: sockets and probes for each of thousands of streams that were made up.
    pub fn poll_connect(&mut self, purpose: Purpose, now: f64) -> Option<Attempt> {
        let is_blocked = purpose == Purpose::Clock && self.is_hopeless();
        if is_blocked || !matches!(self.progress(purpose), Progress::Ready) {
            return None;
        }
        self.last_attempt += 1;
        *self.progress(purpose) = Progress::Trying(self.last_attempt);
        if purpose == Purpose::Feed && self.is_recoverable {
            self.watch = Some(Watchdog {
                since: now,
                next_look: self.next_watch(now),
                is_missed: false,
            });
            if let Some(suspicion) = &mut self.suspicion {
                suspicion.rest();
            }
        }
        Some(Attempt {
            id: self.last_attempt,
            purpose,
            info: Arc::clone(&self.present),
            endpoint: self.endpoint_for(purpose),
            moves: self.moves,
        })
    }

    /// Returns whether this attempt goes on. If not, its connection is to be dropped.
    pub fn is_current(&self, id: AttemptId) -> bool {
        self.connections.iter().any(|progress| progress.is(id))
    }

    /// Ends an attempt that did all it was for: its purpose is not wanted any more. Returns false if it was
    /// over before; then another one begins.
    pub fn finish(&mut self, id: AttemptId) -> bool {
        let trying = self.connections.iter().position(|it| it.is(id));
        let Some(purpose) = trying else { return false };
        self.connections[purpose] = Progress::Unwanted;
        self.trials[purpose] = Trial::default();
        true
    }

    /// Returns the next work for the driver, each once. A search waits for no other work: it answers the
    /// watchdog's question too, and the trust file is looked at after it.
    pub fn poll_action(&mut self) -> Option<Action> {
        let is_search = matches!(self.action, Some(Action::Search(_) | Action::AskByTcp));
        if self.is_searching() && !is_search {
            if let (Some(suspicion), Some(Action::AskBoth | Action::Probe)) =
                (&mut self.suspicion, &self.action)
            {
                suspicion.interrupted();
            }
            self.rounds += 1;
            self.begin(Action::Search(self.round_secs));
        }
        let is_given = std::mem::replace(&mut self.is_given, true);
        self.action.clone().filter(|_| !is_given)
    }

    /// Returns whether an answer to some work is awaited. If not, that work is to be dropped.
    pub fn has_action(&self) -> bool {
        self.action.is_some()
    }

    /// Gives the last work once more, because whoever had it is gone.
    pub fn repeat_action(&mut self) {
        self.is_given = false;
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<f64> {
        let watched = self.suspicion.as_ref().filter(|_| self.watch.is_some());
        let mut due = watched.map_or(f64::INFINITY, Suspicion::next_look);
        if self.action.is_none() {
            due = due.min(self.watch.map_or(due, |watch| watch.next_look));
            due = due.min(self.look_at);
        }
        for progress in &self.connections {
            if let Progress::Paused { until, .. } = progress {
                due = due.min(*until);
            }
        }
        due.is_finite().then_some(due)
    }

    /// Returns the stream as its present outlet describes it.
    pub fn info(&self) -> &Arc<StreamInfo> {
        &self.present
    }

    /// Returns the number of changes of outlet or address so far.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Returns whether the feed seems to be hopeless: it waits for its turn, and its clock for the feed.
    pub fn is_hopeless(&self) -> bool {
        self.failures >= HOPELESS_FAILURES
    }

    fn progress(&mut self, purpose: Purpose) -> &mut Progress {
        &mut self.connections[purpose as usize]
    }

    fn trying(&mut self, id: AttemptId) -> Option<&mut Progress> {
        self.connections.iter_mut().find(|progress| progress.is(id))
    }

    fn is_searching(&self) -> bool {
        let is_searching = |progress| matches!(progress, &Progress::Searching { .. });
        self.connections.iter().any(is_searching) || self.watch.is_some_and(|watch| watch.is_missed)
    }

    fn begin(&mut self, action: Action) {
        self.action = Some(action);
        self.is_given = false;
    }

    fn end_watch(&mut self) {
        self.watch = None;
        let is_about_feed = |action: &mut Action| {
            matches!(action, Action::AskByUdp | Action::AskBoth | Action::Probe)
        };
        self.action.take_if(is_about_feed);
    }

    /// Ends the feed's connection, which leads nowhere, and has another one made.
    fn reconnect(&mut self) {
        let feed = self.progress(Purpose::Feed);
        if matches!(feed, Progress::Trying(_)) {
            *feed = Progress::Ready;
        }
    }

    /// Has a feed's outlet looked for, or not any more, although its connection lasts.
    fn miss(&mut self, is_missed: bool) {
        if let Some(watch) = &mut self.watch {
            watch.is_missed = is_missed;
        }
    }

    fn end_pauses(&mut self, is_over: impl Fn(f64, bool) -> bool) {
        let mut is_watched = false;
        for progress in &mut self.connections {
            if let Progress::Paused { until, is_security } = *progress {
                if is_over(until, is_security) {
                    *progress = Progress::Ready;
                } else {
                    is_watched |= is_security;
                }
            }
        }
        if !is_watched {
            self.look_at = f64::INFINITY;
        }
    }

    /// Waits before the next attempt; that of a feed ever longer, the more often it failed.
    fn pause(&mut self, purpose: Purpose, secs: f64, is_security: bool, now: f64) {
        let doublings = self.failures.checked_sub(HOPELESS_FAILURES + 1);
        let doublings = doublings.filter(|_| purpose == Purpose::Feed);
        let more_secs = doublings.map_or(0.0, |doublings| {
            RETRY_SECS * f64::from(1_u32 << doublings.min(MAX_DOUBLINGS))
        });
        if is_security {
            self.look_at = self.look_at.min(now + TRUST_CHECK_SECS);
        }
        *self.progress(purpose) = if secs + more_secs > 0.0 {
            let until = now + secs + more_secs;
            Progress::Paused { until, is_security }
        } else {
            Progress::Ready
        };
    }

    /// Returns when the watchdog looks next: those of all inlets do in the same moment.
    fn next_watch(&self, now: f64) -> f64 {
        now + self.watchdog_interval_secs - now % self.watchdog_interval_secs
    }

    fn forget_failures(&mut self) {
        (self.failures, self.redials) = (0, 0);
        self.rescues.is_found = false;
        self.refused = Refused::default();
    }

    fn on_failed(&mut self, id: AttemptId, failure: Failure, now: f64) -> Option<Notice> {
        let purpose = (PURPOSES.into_iter()).find(|purpose| self.progress(*purpose).is(id))?;
        let is_clock = purpose == Purpose::Clock;
        let (pause_secs, is_security, is_there) = match failure {
            Failure::Security {
                delay_secs,
                is_busy,
            } => (delay_secs, true, is_busy && !is_clock),
            Failure::NotReady if purpose == Purpose::FullInfo => {
                let secs = self.not_ready_secs;
                self.not_ready_secs = (2.0 * secs).min(LONGEST_NOT_READY_SECS);
                (secs, false, true)
            }
            Failure::NotReady | Failure::Connection | Failure::Resumable => {
                (RETRY_SECS, false, false)
            }
        };
        if self.has_strayed(purpose, is_there) {
            return None;
        }
        if failure == Failure::Resumable && self.redials < REDIALS {
            self.redials += 1;
            self.redialled_at = now.max(self.redialled_at + REDIAL_SECS);
            self.pause(purpose, self.redialled_at - now, false, now);
            return None;
        }
        self.leave_way(purpose, is_there);
        if purpose == Purpose::Feed {
            self.end_watch();
            // A refusal has pauses of its own.
            self.failures = self.failures.saturating_add(u32::from(!is_security));
            let is_hopeless = self.is_hopeless();
            let clock = self.progress(Purpose::Clock);
            if is_hopeless && !matches!(clock, Progress::Unwanted) {
                *clock = Progress::Ready;
            }
        }
        if is_there || (is_clock && !self.is_recoverable) {
            self.pause(purpose, pause_secs, is_security, now);
        } else if self.is_recoverable {
            *self.progress(purpose) = Progress::Searching {
                pause_secs,
                is_security,
                after_round: self.rounds,
            };
        } else {
            *self.progress(purpose) = Progress::Unwanted;
            return Some(Notice::Lost);
        }
        None
    }

    /// Returns the stream to search for. The answer of a present outlet that was refused would not do.
    pub fn sought(&self) -> StreamInfo {
        let mut sought = (*self.present).clone();
        if self.refused.contains(sought.uid_bytes()) {
            sought.reset_uid("");
        }
        sought
    }

    /// Judges the answers to a search. Those that the recovery query does not select are nobody's, or a lie.
    fn on_answers(&mut self, mut answers: Vec<StreamInfo>, now: f64) -> Option<Notice> {
        self.refused.leave_out(&self.present, &mut answers);
        answers.retain(|answer| is_same_stream(&self.present, answer));
        let known = |answer: &StreamInfo| answer.uid_bytes() == self.present.uid_bytes();
        let known = answers.iter().position(known);
        let candidates = answers.len();
        if candidates != 1 && known.is_none() {
            self.action = None;
            self.round_secs = LATER_ROUNDS_SECS;
            let before = std::mem::replace(&mut self.candidates, candidates);
            let is_news = candidates > 1 && before <= 1;
            return is_news.then_some(Notice::Ambiguous(candidates));
        }
        let found = answers.swap_remove(known.unwrap_or(0));
        if known.is_none() {
            self.is_adopted = true;
            self.move_to(found);
            self.end_search(true, now);
            return Some(Notice::Adopted);
        }
        // Somebody may have hidden from us that it encrypts, or make that up now.
        let data = |endpoint: Option<Endpoint>| endpoint.map(|it| it.data);
        let is_there = data(self.endpoint_of(&found, self.is_v6)) == data(self.in_use());
        let missed = self.suspicion.as_ref();
        let is_missed = missed.is_some_and(|it| it.is_missed_since(now));
        if is_there && is_described_alike(&found, &self.present) {
            self.end_search(false, now);
        } else if !is_there && is_missed {
            // Asked a moment ago, it did not answer where it was.
            self.move_to(found);
            self.end_search(true, now);
        } else {
            self.found = Some(Box::new(found));
            self.begin(Action::AskByTcp);
        }
        None
    }

    /// Goes on with the outlet that `info` describes.
    fn move_to(&mut self, info: StreamInfo) {
        self.moves += 1;
        self.reached = None;
        self.trials = Default::default();
        self.present = Arc::new(info);
    }

    /// Lets all go on who wait for the search: at once if the outlet is another one or elsewhere, and else
    /// after their pauses, but for those who failed since it began. Attempts of the outlet that was are over.
    fn end_search(&mut self, has_moved: bool, now: f64) {
        let rounds = self.rounds;
        // One that only did not answer for a while still has its connection.
        self.rescues.is_found |= self.is_feed_sought() && (has_moved || self.watch.is_none());
        self.candidates = 0;
        for purpose in PURPOSES {
            match *self.progress(purpose) {
                Progress::Searching {
                    pause_secs,
                    is_security,
                    after_round,
                } if has_moved || after_round < rounds => {
                    let pause_secs = if has_moved { 0.0 } else { pause_secs };
                    self.pause(purpose, pause_secs, is_security, now);
                }
                Progress::Trying(_) | Progress::Paused { .. } if has_moved => {
                    *self.progress(purpose) = Progress::Ready;
                }
                _ => {}
            }
        }
        let next_look = self.next_watch(now);
        if let Some(suspicion) = self.suspicion.as_mut().filter(|_| !has_moved) {
            suspicion.found_in_place(now);
        }
        self.watch = self.watch.filter(|_| !has_moved).map(|watch| Watchdog {
            next_look,
            is_missed: false,
            ..watch
        });
        self.round_secs = FIRST_ROUND_SECS;
        self.action = None;
    }
}

impl Progress {
    fn is(&self, id: AttemptId) -> bool {
        matches!(self, Self::Trying(tried) if *tried == id)
    }
}

/// From so many tries in a row on a feed counts as hopeless.
const HOPELESS_FAILURES: u32 = 2;

/// Tries at the same address before there is a search: the first at once.
const REDIALS: u32 = 2;

/// Least time between two of them in seconds.
const REDIAL_SECS: f64 = 0.1;

/// Pause before connecting again to an outlet that answers queries but refused the connection, in seconds.
const RETRY_SECS: f64 = 0.5;

/// How long the first round of a search collects answers, so that a second candidate is noticed. liblsl waits
/// twice as long; answers come within milliseconds, and samples are being lost meanwhile.
const FIRST_ROUND_SECS: f64 = 0.5;

/// The same for later rounds, when there were several.
const LATER_ROUNDS_SECS: f64 = 5.0;

/// How often a pause after a refusal looks at the trust file.
const TRUST_CHECK_SECS: f64 = 1.0;

/// First pause before asking again an outlet that is not ready (Q13); it doubles each time.
const NOT_READY_SECS: f64 = 0.1;

const LONGEST_NOT_READY_SECS: f64 = 5.0;

/// Of the pause between tries, up to 8 s.
const MAX_DOUBLINGS: u32 = 4;

mod place;
mod state;

#[cfg(test)]
mod tests;
