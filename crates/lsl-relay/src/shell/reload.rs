//! Puts new settings in the place of those in use, and ends what they do not allow. Spec: relay §10, §13.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lsl_core::Outlet;
use lsl_core::secure::PublicKey;
use lsl_core::secure::trust::TrustList;

use crate::book::{Asker, Settings, Uid};
use crate::config::Config;
use crate::rules::{Bounds, Reader};
use crate::shell::clocks::Lent;
use crate::shell::state::{Shared, State};
use crate::shell::{Relay, audit};

impl Relay {
    /// Puts new settings in the place of those in use: links, rules, limits, what is published and imported, hops
    /// and lingering. Streams are announced or withdrawn within 0.1 s, feeds end within 5 s where the right to read is
    /// gone, and nobody else notices. What only a start can change stays as it is, and is logged. Spec: relay §13.
    pub fn reload(&mut self, config: &Config) {
        let now = &self.config;
        let stays = [
            ("[relay] listen", now.listen != config.listen),
            ("[local] between", now.between != config.between),
            (
                "[history] dir, recipients, identity",
                has_moved(now, config),
            ),
            ("[engine]", now.engine != config.engine),
            (
                "[metrics]",
                now.metrics != config.metrics || now.metrics_labels != config.metrics_labels,
            ),
        ];
        for (key, _) in stays.iter().filter(|(_, differs)| *differs) {
            tracing::warn!("the change of {key} takes effect when the relay is started again");
        }
        if let Some(port) = self.shared.port() {
            port.set_most_connections(config.limits.clients);
        }
        let substreams = &self.shared.substreams;
        substreams.store(config.limits.streams, Ordering::Relaxed);
        let (before, after) = (&self.config, config);
        let wants_others = (&before.import, before.max_hops) != (&after.import, after.max_hops);
        self.shared.act(|state, now| {
            let faces = self.shared.faces.len();
            let mut settings = settings(config, faces);
            // What was not started takes nothing.
            settings.keeps = keeps(before);
            state.book.set_settings(settings, now);
            state.links.set_most(config.limits.links);
            if wants_others {
                state.watch_anew();
            }
            // Trust may have changed, too.
            state.links.set_targets(&config.connect, now);
            state.unsettle_all(now);
        });
        if let (Some(history), Some(limits)) = (&self.shared.history, &config.history) {
            history.set_limits(limits);
        }
        end_feeds(&self.shared);
        self.config = config.clone();
    }
}

/// Whether there is a history, and an engine.
fn keeps(config: &Config) -> [bool; 2] {
    [config.history.is_some(), config.engine.is_some()]
}

/// Whether a history is wanted elsewhere, or encrypted otherwise.
fn has_moved(before: &Config, after: &Config) -> bool {
    let place = |it: &Config| {
        let it = it.history.as_ref();
        it.map(|it| (it.dir.clone(), it.recipients.clone(), it.identity.clone()))
    };
    place(before) != place(after)
}

/// Returns the settings of the directory of a relay with so many faces.
pub(super) fn settings(config: &Config, faces: usize) -> Settings {
    Settings {
        max_hops: config.max_hops,
        linger_secs: config.linger_secs,
        streams: config.limits.streams as usize,
        faces,
        reoffer: config.reoffer,
        keeps: keeps(config),
        publish: config.publish.clone(),
        import: config.import.clone(),
        rules: config.rules.clone(),
    }
}

/// Takes over which streams the trust file binds keys to, if it changed since `known`. Spec: relay §3.1.
pub(super) fn follow_trust(shared: &Arc<Shared>, known: &mut Option<Arc<TrustList>>) {
    let Ok(security) = shared.context.security() else {
        return;
    };
    let trust = security.trust();
    if known.as_ref().is_some_and(|it| Arc::ptr_eq(it, &trust)) {
        return;
    }
    let own = security.local().map(|local| local.key.public());
    let bounds = Bounds::of(&trust, own);
    *known = Some(trust);
    shared.act(|state, now| {
        let Some(of_links) = state.book.set_bounds(bounds, now) else {
            return;
        };
        state.unsettle_all(now);
        if of_links {
            state.watch_anew();
        }
    });
}

/// Ends the feeds of readers, and the questions for clocks, that may not read their stream any more.
pub(super) fn end_feeds(shared: &Arc<Shared>) {
    let (outlets, over): (Vec<(Uid, Arc<Outlet>)>, _) = shared.act(|state, now| {
        let over = state.take_back_clocks();
        let uids: Vec<_> = state.unsettled.keys().cloned().collect();
        state.unsettled.retain(|_, until| now < *until);
        let outlet = |uid: Uid| {
            let outlet = state.flows.get(&uid)?.outlet.borrow().clone()?;
            Some((uid, outlet))
        };
        (uids.into_iter().filter_map(outlet).collect(), over)
    });
    for Lent { uid, peer, .. } in over {
        let key = peer.trusted.as_ref().map(|(key, _)| key);
        audit::refused(shared, &uid, (peer.address, key), true);
    }
    for (uid, outlet) in outlets {
        end_readers(shared, &uid, &outlet, |state, asker| {
            state.book.may_read(&uid, asker)
        });
    }
    for outlet in shared.over() {
        let uid: Uid = outlet.info().uid().into_owned().into();
        end_readers(shared, &uid, &outlet, |state, asker| {
            state.book.may_read_past(outlet.info(), asker)
        });
    }
}

/// Ends the readers of an outlet that may not read it any more.
fn end_readers(
    shared: &Arc<Shared>,
    uid: &Uid,
    outlet: &Outlet,
    may_read: impl Fn(&State, Asker) -> bool,
) {
    outlet.end_readers(|address: SocketAddr, key: Option<PublicKey>| {
        let reader = match key {
            Some(key) => Reader::Key(key.fingerprint()),
            None if address.ip().to_canonical().is_loopback() => Reader::Local,
            None => Reader::Stranger,
        };
        let ends = shared.look(|state| {
            let link = state.link_at(address);
            !may_read(state, Asker { reader, link })
        });
        if ends {
            audit::refused(shared, uid, (address, key.as_ref()), true);
        }
        ends
    });
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use lsl_core::config::Config as LslConfig;
    use lsl_core::{ChannelFormat, Context, Inlet, StreamInfo, local_clock};
    use lsl_proto::query::Query;

    use super::*;

    fn context(ports: u16) -> Context {
        let mut config = LslConfig::loopback();
        let base = 12_000 + u16::try_from(std::process::id() % 70).expect("small") * 80 + ports;
        config.set_ports(base, 19);
        config.set_multicast_port(base + 19);
        config.set("ports.IPv6", "disable").expect("a setting");
        Context::new(config)
    }

    fn until(what: &str, secs: f64, mut holds: impl FnMut() -> bool) {
        let limit = local_clock() + secs;
        while !holds() {
            assert!(local_clock() < limit, "{what}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    #[test]
    fn what_is_published_no_more_ends_on_links_whatever_their_relays_do() {
        let mut config = Config::parse("", &TrustList::default()).expect("a configuration");
        config.listen = vec![(Ipv4Addr::LOCALHOST, 0).into()];
        let start = |context: &Context, config: &Config| {
            Relay::start(context, config, "relay", Vec::new()).expect("a relay")
        };
        let near = context(0);
        let mut one = start(&near, &config);
        let mut dialling = config.clone();
        dialling.connect = vec![one.addresses()[0].to_string()];
        let other = start(&context(20), &dialling);
        let format = ChannelFormat::Int8;
        let info = StreamInfo::new("published", "Test", 1, 1.0, format, "s").expect("an info");
        let source = Outlet::builder(info).context(&near).open().expect("open");
        let uid: Uid = source.info().uid().into();
        until("the link tells of it", 20.0, || {
            other.shared.look(|state| state.book.info(&uid).is_some())
        });
        let document = other.shared.look(|state| state.book.document(&uid));
        let mut info = StreamInfo::from_xml(&document.expect("known")).expect("an info");
        info.fill_v4_address("127.0.0.1");
        info.set_v4_ports(other.addresses()[0].port(), 9);
        let far = context(40);
        let inlet = Inlet::builder(&info)
            .context(&far)
            .create()
            .expect("an inlet");
        inlet
            .blocking()
            .open(std::time::Duration::from_secs(20))
            .expect("open");
        let has_readers = || {
            one.shared.look(|state| {
                let outlet = state.flows.get(&uid)?.outlet.borrow().clone()?;
                Some(outlet.have_consumers())
            }) == Some(true)
        };
        assert!(has_readers());
        config.publish = Some(Query::parse("false()").expect("a query"));
        // The other one neither sees that it is withdrawn, nor stops to read, until its silence ends the link.
        other.shared.look(|_| {
            one.reload(&config);
            until("the feed of the link ends", 5.0, || {
                one.shared.look(|state| {
                    let flow = state
                        .flows
                        .get(&uid)
                        .map(|flow| flow.outlet.borrow().clone());
                    flow.flatten().is_none_or(|outlet| !outlet.have_consumers())
                })
            });
        });
        // A program of this machine may read on.
        let local = Asker {
            reader: Reader::Local,
            link: None,
        };
        assert!(one.shared.look(|state| state.book.may_read(&uid, local)));
    }
}
