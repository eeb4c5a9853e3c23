//! Hands the streams that rules have kept to history and engine. Spec: relay §2, §9, §12.

use std::collections::HashSet;

use lsl_core::Outlet;
use lsl_core::relay::Tap;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::book::Uid;

/// Somebody who keeps streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeper {
    History,
    Engine,
}

impl Keeper {
    /// In the order in which the directory names them.
    pub(super) const ALL: [Self; 2] = [Self::History, Self::Engine];
}

/// News of a stream for one who keeps it. A numbering ends where its tap does.
#[derive(Debug)]
pub(super) enum Kept {
    /// A numbering begins here, in place of one before.
    Begin(Uid, Tap),
    /// It is kept no more, by a change of the rules.
    Stop(Uid),
    /// The stream is gone.
    Gone(Uid),
}

/// Those who keep streams, and which. What keeps one holds it by a rule: it needs no reader.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    all: [Keeping; 2],
}

#[derive(Debug, Default)]
struct Keeping {
    /// As many news at a time as there are streams; none for one who is not there.
    news: Option<UnboundedSender<Kept>>,
    uids: HashSet<Uid>,
}

impl Keepers {
    /// Adds one who keeps streams from now on: before the directory has any.
    pub(super) fn add(&mut self, keeper: Keeper) -> UnboundedReceiver<Kept> {
        let (news, told) = unbounded_channel();
        self.of(keeper).news = Some(news);
        told
    }

    /// Takes over what the directory says of a stream; `outlet` is what it passes through, if it flows.
    pub(super) fn keep(
        &mut self,
        keeper: Keeper,
        uid: &Uid,
        is_kept: bool,
        outlet: Option<&Outlet>,
    ) {
        let keeping = self.of(keeper);
        if is_kept && keeping.uids.insert(uid.clone()) {
            if let Some(outlet) = outlet {
                keeping.begin(uid, outlet);
            }
        } else if !is_kept && keeping.uids.remove(uid) {
            keeping.tell(Kept::Stop(uid.clone()));
        }
    }

    /// Notes that a stream passes through this outlet from now on.
    pub(super) fn begin(&mut self, uid: &Uid, outlet: &Outlet) {
        for keeping in self.all.iter().filter(|it| it.uids.contains(uid)) {
            keeping.begin(uid, outlet);
        }
    }

    /// Notes that a stream is gone.
    pub(super) fn gone(&mut self, uid: &Uid) {
        for keeping in &mut self.all {
            if keeping.uids.remove(uid) {
                keeping.tell(Kept::Gone(uid.clone()));
            }
        }
    }

    fn of(&mut self, keeper: Keeper) -> &mut Keeping {
        let [history, engine] = &mut self.all;
        match keeper {
            Keeper::History => history,
            Keeper::Engine => engine,
        }
    }
}

impl Keeping {
    fn begin(&self, uid: &Uid, outlet: &Outlet) {
        self.tell(Kept::Begin(uid.clone(), outlet.tap(0)));
    }

    fn tell(&self, news: Kept) {
        if let Some(told) = &self.news {
            // It ends with the relay.
            let _ = told.send(news);
        }
    }
}
