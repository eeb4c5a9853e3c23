//! What all tasks of a relay share: the directory, the streams that are read, and who watches.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use lsl_core::relay::Port;
use lsl_core::{Context, Generation, Inlet, Outlet, Position, StreamInfo, local_clock};
use lsl_proto::limits::TokenBucket;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};

use crate::book::{Book, BookEvent, FaceId, Uid, WatcherId, Way};
use crate::id::RelayId;
use crate::link::{LinkId, Links};
use crate::shell::clocks::{AbortOnDrop, SourceClocks};
use crate::shell::engine;
use crate::shell::faces;
use crate::shell::history::History;
use crate::shell::limits::{Limits, Who};
use crate::shell::links::{self, Connection};
use crate::shell::offers::Change;
use crate::shell::pace::Pace;
use crate::shell::past::{Elsewhere, Feeds};
use crate::shell::rivers::Rivers;
use crate::shell::source::{self, Attempt};
use crate::shell::tap::{Keeper, Keepers};
use crate::shell::tasks::Tasks;
use crate::shell::totals::{Totals, Why};
use crate::shell::watch::{News, Outbox};

/// Shared by the tasks of a relay.
pub(super) struct Shared {
    pub(super) id: RelayId,
    pub(super) name: String,
    pub(super) context: Context,
    /// Contexts of the faces, by their numbers.
    pub(super) faces: Vec<Context>,
    pub(super) tasks: Tasks,
    pub(super) pace: Pace,
    pub(super) started: f64,
    /// Substreams that the relay of a link may have open.
    pub(super) substreams: AtomicU32,
    pub(super) totals: Totals,
    pub(super) history: Option<Arc<History>>,
    /// Feeds of the past at other relays.
    pub(super) past_feeds: Feeds,
    pub(super) elsewhere: Elsewhere,
    /// Outlets of streams that are over, for as long as they may have readers of the past.
    over: Mutex<Vec<Over>>,
    /// Set at the start, if there is one.
    pub(super) engine: OnceLock<engine::Running>,
    /// Told whenever the directory may have something due earlier, and of questions for clocks.
    pub(super) changed: Arc<Notify>,
    /// Taken by the end.
    port: Mutex<Option<Arc<Port>>>,
    state: Mutex<State>,
}

/// What the lock guards.
pub(super) struct State {
    pub(super) book: Book,
    pub(super) links: Links,
    pub(super) connections: HashMap<LinkId, Connection>,
    /// Tasks that dial.
    pub(super) dialling: HashMap<LinkId, AbortOnDrop>,
    /// Why the last attempt at an address failed, as people were told.
    pub(super) failures: HashMap<String, String>,
    /// Infos with addresses, as the searches of the faces found them.
    pub(super) found: HashMap<(FaceId, Uid), StreamInfo>,
    /// Where changes of what is offered go.
    offers: UnboundedSender<Change>,
    pub(super) flows: HashMap<Uid, Flow>,
    pub(super) keepers: Keepers,
    pub(super) clocks: SourceClocks,
    pub(super) rivers: Rivers,
    /// Those who watch, with the relay of the link they came through.
    pub(super) watchers: HashMap<WatcherId, (Option<RelayId>, Arc<Outbox>)>,
    pub(super) last_watcher: u64,
    pub(super) limits: Limits,
    /// Streams whose readers may have lost the right to read them, and until when their rights are looked at.
    pub(super) unsettled: HashMap<Uid, f64>,
    /// Streams that were not taken over because there are too many.
    pub(super) refused: u64,
    /// How often people are told.
    refusals: TokenBucket,
    /// Number of the last attempt to read a stream.
    last_attempt: u64,
}

/// A stream that is read, or was asked for.
pub(super) struct Flow {
    /// What its readers read; `None` until its numbers are known.
    pub(super) outlet: watch::Sender<Option<Arc<Outlet>>>,
    /// What reads it from a network or a link.
    pub(super) inlet: Weak<Inlet>,
    /// Held by the one attempt that reads the stream, until it is over in truth.
    turn: Arc<AsyncMutex<()>>,
    pub(super) numbers: Arc<Numbers>,
    pub(super) generation: Option<Generation>,
    /// Whether a reader asked for the past, before there was any here: one that was at this relay, or another,
    /// before. Then the source is asked for it.
    pub(super) wants_past: bool,
    /// Number of the attempt in whose hands the stream is, and its task.
    reading: Option<(u64, AbortOnDrop)>,
    /// Whether the directory counts a reader.
    is_counted: bool,
}

/// Outlet of a stream that is over.
struct Over {
    outlet: Arc<Outlet>,
    since: f64,
    /// Who asked for it, if it was made for one reader.
    for_one: Option<Who>,
}

/// Counters of a stream; samples unless said otherwise.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// Sequence number of the next sample.
    pub(super) next: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) lost_exact: AtomicU64,
    /// Interruptions whose loss nobody knows.
    pub(super) lost_unknown: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        (context, faces): (Context, Vec<Context>),
        (id, name): (RelayId, String),
        (book, links): (Book, Links),
        substreams: u32,
        (tasks, offers): (Tasks, UnboundedSender<Change>),
        history: Option<Arc<History>>,
    ) -> Self {
        let changed = Arc::new(Notify::new());
        Self {
            id,
            name,
            context,
            faces,
            tasks,
            pace: Pace::default(),
            started: local_clock(),
            substreams: substreams.into(),
            totals: Totals::default(),
            history,
            past_feeds: Feeds::default(),
            elsewhere: Elsewhere::default(),
            over: Mutex::default(),
            engine: OnceLock::new(),
            changed: Arc::clone(&changed),
            port: Mutex::default(),
            state: Mutex::new(State {
                book,
                links,
                connections: HashMap::new(),
                dialling: HashMap::new(),
                failures: HashMap::new(),
                found: HashMap::new(),
                offers,
                flows: HashMap::new(),
                keepers: Keepers::default(),
                clocks: SourceClocks::new(changed),
                rivers: Rivers::default(),
                watchers: HashMap::new(),
                last_watcher: 0,
                limits: Limits::default(),
                unsettled: HashMap::new(),
                refused: 0,
                refusals: TokenBucket::new(0.1, 10.0),
                last_attempt: 0,
            }),
        }
    }

    /// Looks at the state, which nothing may come of.
    pub(super) fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.lock())
    }

    /// Changes the state, and does what the directory wants then.
    pub(super) fn act<R>(self: &Arc<Self>, act: impl FnOnce(&mut State, f64) -> R) -> R {
        let mut state = self.lock();
        let before = state.due();
        let now = local_clock();
        let done = act(&mut state, now);
        let mut ended = Vec::new();
        loop {
            if let Some(event) = state.links.poll_event() {
                state.follow_links(&event, self, now);
            } else if let Some(event) = state.clocks.machine.poll_event() {
                state.follow_clocks(event, self, now);
            } else if let Some(event) = state.book.poll_event() {
                ended.extend(state.follow(event, self, now));
            } else {
                break;
            }
        }
        let due = state.due();
        drop(state);
        // Not for what is due later: the driver would wake itself again and again.
        if due.is_some_and(|due| before.is_none_or(|before| due < before)) {
            self.changed.notify_one();
        }
        // Closing outlets takes locks of their own.
        for outlet in ended.iter().filter_map(|flow| flow.outlet.borrow().clone()) {
            outlet.close();
            self.serve_over(outlet, None);
        }
        done
    }

    /// Whether one more outlet of a stream that is over may be made for a peer.
    pub(super) fn may_serve_over(&self, who: Who) -> bool {
        let over = self.served_over();
        let all = over.iter().filter(|it| it.for_one.is_some());
        let own = all.clone().filter(|it| it.for_one == Some(who));
        own.count() < MOST_OVER_OF_ONE && all.count() < MOST_OVER
    }

    /// Keeps the closed outlet of a stream that is over where the rights of its readers are looked at. `for_one` is
    /// who asked, if it was made for one reader.
    pub(super) fn serve_over(&self, outlet: Arc<Outlet>, for_one: Option<Who>) {
        self.served_over().push(Over {
            outlet,
            since: local_clock(),
            for_one,
        });
    }

    /// Returns these outlets.
    pub(super) fn over(&self) -> Vec<Arc<Outlet>> {
        let over = self.served_over();
        over.iter().map(|it| Arc::clone(&it.outlet)).collect()
    }

    /// Returns these outlets, but for those that nobody reads any more.
    fn served_over(&self) -> MutexGuard<'_, Vec<Over>> {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let now = local_clock();
        over.retain(|it| {
            let had_its_reader = it.for_one.is_some() && it.outlet.stats().consumers_seen > 0;
            it.outlet.have_consumers() || now < it.since + JOINING_SECS && !had_its_reader
        });
        over
    }

    /// Returns when the directory has something to do.
    pub(super) fn due(&self) -> Option<f64> {
        self.lock().due()
    }

    /// Returns the context in which a stream is read by this way.
    pub(super) fn context_of(&self, way: Way) -> &Context {
        let face = match way {
            Way::Direct(FaceId(face)) => self.faces.get(face),
            Way::Link(_) | Way::River => None,
        };
        face.unwrap_or(&self.context)
    }

    /// Returns the port while it is open.
    pub(super) fn port(&self) -> Option<Arc<Port>> {
        (self.port.lock().unwrap_or_else(PoisonError::into_inner)).clone()
    }

    /// Opens the port, or closes it. Returns the one before.
    pub(super) fn set_port(&self, port: Option<Arc<Port>>) -> Option<Arc<Port>> {
        let mut place = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut place, port)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns when the directory, the links or the clocks have something to do.
    fn due(&self) -> Option<f64> {
        let due = [
            self.book.poll_timeout(),
            self.links.poll_timeout(),
            self.clocks.machine.poll_timeout(),
        ];
        due.into_iter().flatten().reduce(f64::min)
    }

    /// Does what the directory wants. Returns the flow that ends by it.
    fn follow(&mut self, event: BookEvent, shared: &Arc<Shared>, now: f64) -> Option<Flow> {
        match event {
            BookEvent::Subscribe { uid, way } => {
                self.last_attempt += 1;
                let number = self.last_attempt;
                let flow = self.flow(&uid);
                let turn = Arc::clone(&flow.turn);
                let attempt = Attempt { uid, way, number };
                let reading = source::read(Arc::clone(shared), attempt, turn);
                let task = shared.tasks.spawn(reading);
                flow.reading = Some((number, AbortOnDrop(task)));
            }
            BookEvent::Unsubscribe(uid) => return self.end_flow(&uid, shared),
            BookEvent::Gone { uid, .. } => {
                self.clocks.gone(&uid);
                self.keepers.gone(&uid);
                return self.end_flow(&uid, shared);
            }
            BookEvent::Keep { uid, by } => {
                let outlet = self
                    .flows
                    .get(&uid)
                    .and_then(|flow| flow.outlet.borrow().clone());
                for (keeper, is_kept) in Keeper::ALL.into_iter().zip(by) {
                    self.keepers.keep(keeper, &uid, is_kept, outlet.as_deref());
                }
            }
            BookEvent::WayChanged { uid, way } => {
                self.clocks.machine.way_changed(&uid, way, now);
                self.unsettle(uid, now);
            }
            BookEvent::Changed(uid) => self.unsettle(uid, now),
            BookEvent::Announce { watcher, uid, xml } => self.tell(watcher, uid, News::Here(xml)),
            BookEvent::Withdraw {
                watcher,
                uid,
                reason,
            } => self.tell(watcher, uid, News::Gone(reason)),
            BookEvent::Synced(watcher) => {
                if let Some((_, outbox)) = self.watchers.get(&watcher) {
                    outbox.all_is_told();
                }
            }
            BookEvent::Refused { uid, way, why } => {
                self.refused += 1;
                shared.totals.refuse(Why::Streams);
                // One who makes up streams fills no log with them.
                if self.refusals.take(now) {
                    let (way, all) = (name_of(Some(way)), self.refused);
                    tracing::warn!("stream {uid} ({way}) is not taken over: {why} ({all} in all)");
                }
            }
            BookEvent::Ask { uid, way } => match way {
                Way::Direct(face) => faces::ask_again(shared, self, face, &uid),
                Way::Link(relay) => links::ask_again(shared, self, relay, uid),
                Way::River => self.rivers.ask_again(&uid),
            },
            // Whoever keeps the offers ends with the relay.
            BookEvent::Offer { face, uid } => drop(self.offers.send(Change::Offer(face, uid))),
            BookEvent::Unoffer { face, uid } => drop(self.offers.send(Change::Unoffer(face, uid))),
        }
        None
    }

    fn end_flow(&mut self, uid: &Uid, shared: &Shared) -> Option<Flow> {
        let flow = self.flows.remove(uid)?;
        if let Some(outlet) = &*flow.outlet.borrow() {
            shared.totals.retire(outlet);
        }
        Some(flow)
    }

    /// Has the rights of a stream's readers looked at.
    pub(super) fn unsettle(&mut self, uid: Uid, now: f64) {
        self.unsettled.insert(uid, now + SETTLING_SECS);
    }

    /// Has the rights of all readers looked at.
    pub(super) fn unsettle_all(&mut self, now: f64) {
        for uid in self.flows.keys().chain(self.clocks.lent()) {
            self.unsettled.insert(uid.clone(), now + SETTLING_SECS);
        }
    }

    fn tell(&self, watcher: WatcherId, uid: Uid, news: News) {
        if let Some((_, outbox)) = self.watchers.get(&watcher) {
            outbox.put(uid, news);
        }
    }

    /// Returns the flow of a stream, as yet without samples if there is none.
    pub(super) fn flow(&mut self, uid: &Uid) -> &mut Flow {
        self.flows.entry(uid.clone()).or_insert_with(|| Flow {
            outlet: watch::Sender::new(None),
            inlet: Weak::new(),
            turn: Arc::default(),
            numbers: Arc::default(),
            generation: None,
            wants_past: false,
            reading: None,
            is_counted: false,
        })
    }

    /// Returns the flow that an attempt reads; `None` if that is over.
    pub(super) fn reading(&mut self, attempt: &Attempt) -> Option<&mut Flow> {
        let flow = self.flows.get_mut(&attempt.uid);
        flow.filter(|flow| (flow.reading.as_ref()).is_some_and(|(it, _)| *it == attempt.number))
    }

    /// Returns where the outlet of a stream will be. Whoever waits there counts as a reader.
    pub(super) fn await_outlet(
        &mut self,
        uid: &Uid,
        wants_past: bool,
        now: f64,
    ) -> watch::Receiver<Option<Arc<Outlet>>> {
        let flow = self.flow(uid);
        flow.wants_past |= wants_past;
        let outlet = flow.outlet.subscribe();
        if !std::mem::replace(&mut flow.is_counted, true) {
            self.book.reader_joined(uid, now);
        }
        outlet
    }

    /// Tells the directory of streams that nobody reads any more, or somebody does again.
    pub(super) fn count_readers(&mut self, now: f64) {
        let mut changed = Vec::new();
        for (uid, flow) in &mut self.flows {
            let has_readers = flow.outlet.receiver_count() > 0
                || (flow.outlet.borrow().as_ref()).is_some_and(|outlet| outlet.have_consumers());
            if std::mem::replace(&mut flow.is_counted, has_readers) != has_readers {
                changed.push((uid.clone(), has_readers));
            }
        }
        for (uid, has_readers) in changed {
            if has_readers {
                self.book.reader_joined(&uid, now);
            } else {
                self.book.reader_left(&uid, now);
            }
        }
    }
}

impl Flow {
    /// Returns the position of the next sample, if any came.
    pub(super) fn position(&self) -> Option<Position> {
        let next = self.numbers.next.load(Ordering::Relaxed);
        let generation = self.generation?;
        Some(Position { generation, next })
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Time in seconds after a change in which readers may still join who were let in before it.
const SETTLING_SECS: f64 = 3.0;

/// Time in seconds for which readers of a stream that is over may still join.
const JOINING_SECS: f64 = 30.0;

/// Outlets of streams that are over that one peer has at a time, and all have.
const MOST_OVER_OF_ONE: usize = 256;
const MOST_OVER: usize = 4096;

/// Way of a stream in words, for logs and status.
pub(super) fn name_of(way: Option<Way>) -> String {
    match way {
        Some(Way::Direct(_)) => "direct".to_owned(),
        Some(Way::Link(relay)) => relay.to_string(),
        Some(Way::River) => "river".to_owned(),
        None => "none".to_owned(),
    }
}
