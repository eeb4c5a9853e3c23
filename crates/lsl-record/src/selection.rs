//! Which streams are recorded: those that were asked for, at the start and when they appear later. A
//! stream that returns goes on under its number; two that look alike are recorded both.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lsl_core::{
    ChannelFormat, Context, ContinuousResolver, ResolverEvent, Selector, Timeout, local_clock,
};
use lsl_xdf::at_rest::Cancel;
use lsl_xdf::decode::MAX_SAMPLE_BYTES;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::event::{Event, Events};
use crate::halt::Halt;
use crate::live::{Live, StreamState, StreamStatus};
use crate::queue::{Job, Queue, Slot};
use crate::shared::{Claims, Common, StreamSettings};
use crate::strangers::{Advert, MOST_TRIED, StrangerEvents, TURN_SECS, Turns, Waiting};
use crate::stream;

/// Streams that are asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wishes {
    /// Streams to record; without any wish at all everything.
    pub(crate) wanted: Vec<LabelledSelector>,
    /// Streams that must be there at the start.
    pub(crate) required: Vec<LabelledSelector>,
    /// Streams that may be absent at the start.
    pub(crate) watched: Vec<LabelledSelector>,
    /// Whether streams that appear later are left out.
    pub(crate) only_now: bool,
}

/// A selector with its label, as the caller names it.
#[derive(Debug, Clone)]
pub(crate) struct LabelledSelector {
    pub(crate) label: String,
    pub(crate) selector: Selector,
}

impl Wishes {
    /// Whether nothing is asked for.
    fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.required.is_empty() && self.watched.is_empty()
    }
}

impl LabelledSelector {
    pub(crate) fn new(label: impl Into<String>, selector: Selector) -> Self {
        let label = label.into();
        Self { label, selector }
    }

    /// Every stream of the session.
    fn everything() -> Self {
        Self::new("*", Selector::all())
    }
}

/// One wish, and what fulfils it.
struct Wish {
    label: String,
    is_everything: bool,
    is_required: bool,
    /// Whether it makes sense to wait for it at the start.
    is_expected: bool,
    resolver: ContinuousResolver,
    found: HashMap<Vec<u8>, Advert>,
    fulfilled: Fulfilled,
}

/// Degree to which a wish was ever fulfilled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fulfilled {
    Never,
    /// Fulfilled by an advert, which anybody can make.
    ByAdvert,
    /// Fulfilled by a stream that was connected.
    ByStream,
}

impl Wish {
    fn is_met(&self) -> bool {
        self.fulfilled >= Fulfilled::ByAdvert
    }

    fn is_proven(&self) -> bool {
        self.fulfilled == Fulfilled::ByStream
    }

    fn fulfil(&mut self, fulfilled: Fulfilled) {
        self.fulfilled = self.fulfilled.max(fulfilled);
    }
}

/// The search for streams; goes on as long as it exists.
pub(crate) struct Search {
    wishes: Vec<Wish>,
    only_now: bool,
    /// Whether a stream came or went since the last question.
    has_changed: bool,
}

impl Search {
    /// Starts one resolver for each wish.
    pub(crate) fn start(context: &Context, wishes: &Wishes) -> lsl_core::Result<Self> {
        let mut all = Vec::new();
        let mut add =
            |wanted: &LabelledSelector, is_required, is_expected| -> lsl_core::Result<()> {
                let LabelledSelector { label, selector } = wanted;
                all.push(Wish {
                    label: label.clone(),
                    is_everything: *selector == Selector::all(),
                    is_required,
                    is_expected,
                    resolver: ContinuousResolver::in_context(context, selector, FORGET_AFTER)?,
                    found: HashMap::new(),
                    fulfilled: Fulfilled::Never,
                });
                Ok(())
            };
        for wanted in &wishes.required {
            add(wanted, true, true)?;
        }
        for wanted in &wishes.wanted {
            add(wanted, false, true)?;
        }
        for wanted in &wishes.watched {
            add(wanted, false, false)?;
        }
        if wishes.is_empty() {
            // Nothing at all is nothing to begin with.
            add(&LabelledSelector::everything(), false, true)?;
        }
        Ok(Self {
            wishes: all,
            only_now: wishes.only_now,
            has_changed: false,
        })
    }

    /// Waits for the expected streams, at the longest for `limit_secs`, but long enough that all
    /// present outlets have answered.
    pub(crate) fn settle(&mut self, limit_secs: f64, cancel: &Cancel) {
        let start = local_clock();
        let mut complete_at = None;
        loop {
            self.look();
            let now = local_clock();
            let is_complete = self
                .wishes
                .iter()
                .all(|wish| wish.is_met() || !wish.is_expected);
            if is_complete {
                complete_at.get_or_insert(now);
            }
            // A predicate may have several answers, and only time tells whether these are all.
            let settled =
                complete_at.is_some_and(|at| now >= (at + SETTLE).max(start + FIRST_LOOK));
            if settled || now >= start + limit_secs || cancel.is_cancelled() {
                return;
            }
            thread::sleep(NAP);
        }
    }

    /// Updates the streams found by each wish.
    pub(crate) fn look(&mut self) {
        for wish in &mut self.wishes {
            while let Some(event) = wish.resolver.next_event_blocking(Timeout::NOW) {
                self.has_changed = true;
                match event {
                    ResolverEvent::Appeared(info) | ResolverEvent::Changed(info) => {
                        wish.fulfil(Fulfilled::ByAdvert);
                        let uid = info.uid_bytes().to_vec();
                        let sender = wish.resolver.sender_of(&uid);
                        wish.found.insert(uid, Advert { info, sender });
                    }
                    ResolverEvent::Lost(info) => {
                        wish.found.remove(info.uid_bytes());
                    }
                    _ => {}
                }
            }
        }
    }

    /// Returns true if no stream is found.
    pub(crate) fn is_empty(&self) -> bool {
        self.wishes.iter().all(|wish| wish.found.is_empty())
    }

    /// The streams that are there, each once, and whether they are required.
    fn all(&self) -> impl Iterator<Item = Waiting<'_>> {
        self.wishes.iter().enumerate().flat_map(move |(at, wish)| {
            let is_new = move |uid: &Vec<u8>| {
                let mut before = self.wishes.iter().take(at);
                !before.any(|wish| wish.found.contains_key(uid))
            };
            let found = wish.found.iter().filter(move |(uid, _)| is_new(uid));
            found.map(|(_, advert)| (advert, wish.is_required))
        })
    }

    /// Which wishes for more than everything it fulfils.
    fn named(&self, uid: &[u8]) -> Vec<usize> {
        let wishes = self.wishes.iter().enumerate();
        wishes
            .filter(|(_, wish)| !wish.is_everything && wish.found.contains_key(uid))
            .map(|(at, _)| at)
            .collect()
    }

    fn answers(&self, uid: &[u8]) -> bool {
        self.wishes.iter().any(|wish| wish.found.contains_key(uid))
    }

    /// Returns labels of required wishes that were never found.
    pub(crate) fn missing(&self) -> Vec<&str> {
        let unmet = |wish: &&Wish| wish.is_required && !wish.is_met();
        let missing = self.wishes.iter().filter(unmet);
        missing.map(|wish| wish.label.as_str()).collect()
    }

    /// Marks the wishes whose streams were connected.
    fn note_proven(&mut self, streams: &[Arc<Live>]) {
        if self.wishes.iter().all(Wish::is_proven) {
            return;
        }
        for live in streams.iter().filter(|live| !live.is_unproven()) {
            let uid = live.lock().info.uid_bytes().to_vec();
            for (at, wish) in self.wishes.iter_mut().enumerate() {
                if live.named.contains(&at) || wish.found.contains_key(&uid) {
                    wish.fulfil(Fulfilled::ByStream);
                }
            }
        }
    }

    /// Returns expected wishes that were advertised and never connected. The wish for everything is
    /// left out, as anybody can advertise streams.
    fn unproven(&self) -> impl Iterator<Item = (usize, &Wish)> {
        let wishes = self.wishes.iter().enumerate();
        wishes.filter(|(_, wish)| {
            !wish.is_everything && wish.is_expected && wish.is_met() && !wish.is_proven()
        })
    }

    /// Returns labels of wishes that are not required and not fulfilled yet.
    pub(crate) fn awaited(&self) -> Vec<&str> {
        let unmet = |wish: &&Wish| !wish.is_required && !wish.is_met() && !wish.is_everything;
        let awaited = self.wishes.iter().filter(unmet);
        awaited.map(|wish| wish.label.as_str()).collect()
    }
}

/// Runtime whose drop never waits for its tasks: tokio panics where that happens inside another runtime.
struct Background(Option<Runtime>);

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The streams of one recording.
pub(crate) struct Session {
    search: Search,
    common: Common,
    halt: watch::Sender<Halt>,
    spawner: Handle,
    /// Held: its tasks end with it.
    _runtime: Background,
    streams: Vec<Arc<Live>>,
    tasks: HashMap<Slot, JoinHandle<()>>,
    next_slot: Slot,
    turns: Turns,
    /// Whether adverts wait for their turn.
    is_crowded: bool,
    /// Outlets that look like a stream which has another one, and since when.
    doubtful: HashMap<Vec<u8>, f64>,
    /// Outlets of which it was said that they cannot be recorded.
    unfit: HashSet<Vec<u8>>,
    /// Whether there is a file.
    is_recording: bool,
}

impl Session {
    /// Records the streams found so far and later.
    pub(crate) fn begin(
        context: &Context,
        search: Search,
        queue: &Queue,
        events: &Events,
        settings: StreamSettings,
    ) -> io::Result<Self> {
        let (halt, halted) = watch::channel(Halt::Go);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("lsl-record")
            .enable_time()
            .build()?;
        let common = Common {
            context: context.clone(),
            queue: queue.clone(),
            claims: Arc::new(Claims::default()),
            events: events.clone(),
            stranger_events: Arc::new(StrangerEvents::new(events)),
            settings,
            halt: halted,
            end: Arc::default(),
        };
        let mut session = Self {
            search,
            common,
            halt,
            spawner: runtime.handle().clone(),
            _runtime: Background(Some(runtime)),
            streams: Vec::new(),
            tasks: HashMap::new(),
            next_slot: 0,
            turns: Turns::default(),
            is_crowded: false,
            doubtful: HashMap::new(),
            unfit: HashSet::new(),
            is_recording: false,
        };
        session.search.has_changed = true;
        session.look();
        Ok(session)
    }

    /// Returns the recorded streams, in the order in which they began.
    pub(crate) fn streams(&self) -> &[Arc<Live>] {
        &self.streams
    }

    pub(crate) fn search(&self) -> &Search {
        &self.search
    }

    /// Adds streams that have appeared. Call it a few times a second.
    pub(crate) fn look(&mut self) {
        self.search.look();
        self.search.note_proven(&self.streams);
        self.look_after_silent_ones();
        self.offer_outlets();
        self.forget_strangers();
        let is_new = std::mem::take(&mut self.search.has_changed);
        if !is_new && !self.is_crowded && self.doubtful.is_empty() {
            return;
        }
        let now = local_clock();
        let (search, claims) = (&self.search, &self.common.claims);
        self.doubtful
            .retain(|uid, _| search.answers(uid) && !claims.is_claimed(uid));
        self.unfit.retain(|uid| search.answers(uid));
        // One that never was connected is no reason to doubt another one.
        let proven = |live: &&Arc<Live>| !live.is_unproven();
        let proven: Vec<&Arc<Live>> = self.streams.iter().filter(proven).collect();
        let mut waiting = Vec::new();
        for (advert, is_required) in search.all() {
            let uid = advert.uid();
            if claims.is_claimed(uid) || self.unfit.contains(uid) {
                continue;
            }
            let is_twin = |live: &&&Arc<Live>| live.identity.is_of(&advert.info);
            let twins: Vec<&&Arc<Live>> = proven.iter().filter(is_twin).collect();
            if !twins.is_empty() {
                // One that is away takes it by itself. One that flows may not know yet that its outlet has
                // gone; if that still answers later, there are two.
                let since = *self.doubtful.entry(uid.to_vec()).or_insert(now);
                if let Some(twin) = twins.iter().find(|twin| twin.lock().is_away) {
                    // Its task gives up the silent one, and is offered this one.
                    twin.replace();
                    continue;
                }
                let is_free = twins.iter().all(|twin| {
                    let status = twin.lock();
                    status.state == StreamState::Recording
                        && search.answers(status.info.uid_bytes())
                });
                if !is_free || now - since <= DOUBT_SECS {
                    continue;
                }
            }
            if !search.only_now || (twins.is_empty() && !self.is_recording) {
                waiting.push((advert, is_required));
            }
        }
        let room = MOST_TRIED.saturating_sub(self.unproven().count());
        self.is_crowded = waiting.len() > room;
        let mut chosen = self.turns.sort(waiting);
        chosen.truncate(room);
        // The order of the network means nothing to people.
        chosen.sort_by_cached_key(|(advert, is_required)| {
            let info = &advert.info;
            let texts = [info.name_bytes(), info.hostname_bytes(), info.uid_bytes()];
            (!is_required, texts.map(<[u8]>::to_vec))
        });
        let copied = |(advert, is_required): Waiting<'_>| (advert.clone(), is_required);
        let chosen: Vec<(Advert, bool)> = chosen.into_iter().map(copied).collect();
        for (advert, is_required) in chosen {
            if self.doubtful.remove(advert.uid()).is_some() {
                let name = advert.info.name().into_owned();
                self.common.stranger_events.push(Event::Twin(name));
            }
            self.turns.note_tried(&advert);
            self.add(advert, is_required);
        }
    }

    /// Returns streams known from adverts alone.
    fn unproven(&self) -> impl Iterator<Item = &Arc<Live>> {
        self.streams.iter().filter(|live| live.is_unproven())
    }

    /// Whether it is known of everything that is there whether it can be connected.
    pub(crate) fn is_clear(&self) -> bool {
        let is_clear = |live: &Arc<Live>| {
            let status = live.lock();
            status.has_header || matches!(status.state, StreamState::Refused(_))
        };
        !self.is_crowded && self.streams.iter().all(is_clear)
    }

    /// Returns required labels without a stream that was ever connected.
    pub(crate) fn unmet(&mut self) -> Vec<String> {
        self.search.note_proven(&self.streams);
        let wishes = self.search.wishes.iter();
        let unmet = wishes.filter(|wish| wish.is_required && !wish.is_proven());
        unmet.map(|wish| wish.label.clone()).collect()
    }

    /// Names outlets to each stream that was lost, if there are any: its own, or successors.
    fn offer_outlets(&self) {
        for live in &self.streams {
            let (is_lost, uid) = {
                let status = live.lock();
                let is_lost = status.has_header
                    && matches!(status.state, StreamState::Lost | StreamState::Refused(_));
                let uid = status.info.uid_bytes().to_vec();
                (is_lost, uid)
            };
            if !is_lost {
                continue;
            }
            let claims = &self.common.claims;
            let own_or_successor = |(advert, _): &Waiting<'_>| {
                advert.uid() == uid
                    || live.identity.is_of(&advert.info)
                        && !claims.is_of_another(advert.uid(), live.slot)
            };
            let found = self.search.all().filter(own_or_successor).collect();
            live.candidates().offer(found);
        }
    }

    /// Gives up streams that never were connected: those whose advert is gone, and while others wait those
    /// that had their turn.
    fn forget_strangers(&mut self) {
        let now = local_clock();
        let (search, is_crowded) = (&self.search, self.is_crowded);
        let is_over = |live: &Arc<Live>| {
            let status = live.lock();
            let is_advertised = search.answers(status.info.uid_bytes());
            let had_turn = status.failures > 0 || now - live.since > TURN_SECS;
            !is_advertised || (is_crowded && had_turn)
        };
        // One may have been connected just now.
        let gone = self.unproven().filter(|it| is_over(it) && it.give_up());
        let gone: Vec<Arc<Live>> = gone.cloned().collect();
        for live in gone {
            if let Some(task) = self.tasks.remove(&live.slot) {
                task.abort();
            }
            let uid = live.lock().info.uid_bytes().to_vec();
            self.common.claims.release(&uid, live.slot);
            self.streams.retain(|other| other.slot != live.slot);
            self.search.has_changed = true;
        }
    }

    /// Notes that there is a file from now on.
    pub(crate) fn note_recording(&mut self) {
        self.is_recording = true;
    }

    /// Marks silent streams: a pulled cable ends no connection.
    fn look_after_silent_ones(&self) {
        for live in &self.streams {
            let mut status = live.lock();
            let is_silent = status.state == StreamState::Recording
                && status.idle_secs.is_none_or(|secs| secs > SILENT_SECS)
                && status.has_header
                && !self.search.answers(status.info.uid_bytes());
            if is_silent && !status.is_away {
                let name = status.info.name().into_owned();
                self.common.events.push(Event::Silent(name));
            }
            status.is_away = is_silent;
        }
    }

    fn add(&mut self, advert: Advert, is_required: bool) {
        let info = &advert.info;
        let most = MAX_SAMPLE_BYTES / info.channel_format().value_size().max(1);
        if !(1..=most).contains(&(info.channel_count() as usize))
            || info.channel_format() == ChannelFormat::Undefined
        {
            self.unfit.insert(info.uid_bytes().to_vec());
            let name = info.name().into_owned();
            self.common.stranger_events.push(Event::Unfit(name));
            return;
        }
        let slot = self.next_slot;
        if !self.common.claims.claim(info.uid_bytes(), slot) {
            return;
        }
        self.next_slot += 1;
        let named = self.search.named(info.uid_bytes());
        let mut live = Live::new(slot, info, is_required, self.is_recording);
        live.named = named;
        let live = Arc::new(live);
        self.streams.push(Arc::clone(&live));
        let task = stream::record(self.common.clone(), live, advert);
        self.tasks.insert(slot, self.spawner.spawn(task));
    }

    /// Says when the recording ends, by our clock: nothing that is stamped later is recorded. The first
    /// word counts.
    pub(crate) fn end_at(&self, end: f64) {
        let _ = self.common.end.set(end);
    }

    /// Ends all streams; they hand over samples up to `until`.
    pub(crate) fn halt(&self, halt: Halt) {
        if let Halt::Drain(until, _) = halt {
            self.end_at(until);
        }
        // Fails only if no stream is left.
        let _ = self.halt.send(halt);
    }

    /// Returns true once every stream has handed over its samples.
    pub(crate) fn is_over(&self) -> bool {
        self.tasks.values().all(JoinHandle::is_finished)
    }

    /// Ends the remaining streams and the writer's queue. Returns the streams, and labels of wishes
    /// that no stream stands for.
    pub(crate) fn end(mut self) -> (Vec<Arc<Live>>, Vec<String>) {
        for task in self.tasks.values() {
            task.abort();
        }
        self.search.note_proven(&self.streams);
        let none_connected = self.streams.iter().all(|live| live.is_unproven());
        for live in &self.streams {
            let status = live.status();
            if !status.has_header {
                // Anybody can advertise streams. A stream that was never connected is reported only
                // if it was wished for and no connected stream fulfils that wish, or if none was
                // connected.
                let is_met =
                    |wish: &usize| (self.search.wishes.get(*wish)).is_none_or(Wish::is_proven);
                live.lock().is_lost = none_connected || !live.named.iter().all(is_met);
                continue;
            }
            let slot = live.slot;
            for (name, text) in notes(&status) {
                self.common
                    .queue
                    .push_blocking(Job::Note { slot, name, text });
            }
        }
        self.common.queue.push_blocking(Job::Finish);
        let has_stream = |wish: usize| (self.streams.iter()).any(|live| live.named.contains(&wish));
        let lost = self.search.unproven().filter(|(at, _)| !has_stream(*at));
        let lost = lost.map(|(_, wish)| wish.label.clone()).collect();
        (self.streams, lost)
    }
}

/// Returns the texts of a footer, besides numbers.
fn notes(status: &StreamStatus) -> Vec<(&'static str, String)> {
    let mut notes = vec![(
        "writer",
        concat!("lsl-rs ", env!("CARGO_PKG_VERSION")).to_owned(),
    )];
    if let Some(offset) = status.to_ours() {
        // Seconds to add to this stream's timestamps to get seconds since 1970, UTC.
        let utc = lsl_platform::clock::utc_now().as_secs_f64() - local_clock() + offset;
        notes.push(("utc", format!("{utc:.6}")));
    }
    if status.failed_offsets > 0 {
        notes.push(("failed_offsets", status.failed_offsets.to_string()));
    }
    notes
}

const FORGET_AFTER: Timeout = Timeout::After(Duration::from_secs(5));
/// Outlets in reach answer within this time.
const FIRST_LOOK: f64 = 1.5;
const SETTLE: f64 = 0.3;
const NAP: Duration = Duration::from_millis(20);
/// Longer than an outlet that has gone is remembered.
const DOUBT_SECS: f64 = 6.0;
/// Longer than a busy sender pauses.
const SILENT_SECS: f64 = 5.0;
const WORKERS: usize = 2;
