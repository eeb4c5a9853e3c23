//! Receivers of a stream of `lsl gen`, in words.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use lsl_core::Outlet;

use crate::ui::notice::note;
use crate::ui::text::printable;

/// Receivers of a stream, to report changes.
#[derive(Debug, Default)]
pub(super) struct Audience {
    /// A blank and the name of the stream, where there are several.
    of: String,
    /// Peer, samples sent, samples dropped.
    known: BTreeMap<SocketAddr, (u64, u64)>,
    reported: u64,
    looked: f64,
}

impl Audience {
    /// Creates an empty audience. `name` is that of the stream, where there are several.
    pub(super) fn new(name: Option<&str>) -> Self {
        Self {
            of: name.map_or_else(String::new, |name| format!(" '{}'", printable(name))),
            ..Self::default()
        }
    }

    pub(super) fn next_look(&self) -> f64 {
        self.looked + LOOK_PERIOD_SECS
    }

    pub(super) fn look(&mut self, outlet: &Outlet, now: f64) {
        if now < self.next_look() {
            return;
        }
        self.looked = now;
        // Before the list, so that no consumer in it is counted as unseen.
        let seen = outlet.stats().consumers_seen;
        let mut names = BTreeMap::new();
        let present: BTreeMap<_, _> = outlet
            .consumers()
            .into_iter()
            .map(|consumer| {
                let name = consumer.encryption.map(|encryption| encryption.peer_name);
                names.extend(name.map(|name| (consumer.peer, format!(" ({})", printable(&name)))));
                (consumer.peer, (consumer.sent, consumer.dropped))
            })
            .collect();
        let gone = self
            .known
            .iter()
            .filter(|(peer, _)| !present.contains_key(*peer));
        for (peer, (sent, dropped)) in gone {
            note(format_args!(
                "- {peer} left{} after {sent} samples, {dropped} dropped",
                self.of
            ));
        }
        for peer in present
            .keys()
            .filter(|peer| !self.known.contains_key(*peer))
        {
            let name = names.get(peer).map_or("", String::as_str);
            note(format_args!(
                "+ {peer}{name} receives{}; {} in all",
                self.of,
                present.len()
            ));
            self.reported += 1;
        }
        let unseen = seen.saturating_sub(self.reported);
        if unseen > 0 {
            note(format_args!(
                "  {unseen} more came and left{} at once",
                self.of
            ));
            self.reported += unseen;
        }
        self.known = present;
    }
}

const LOOK_PERIOD_SECS: f64 = 0.25;
