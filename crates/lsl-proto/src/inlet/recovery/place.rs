//! Where an outlet is: at an address of its info, or where a race of connections reached it. Spec: doctor §2.3.

use std::net::SocketAddr;

use super::{Endpoint, Progress, Purpose, Recovery};
use crate::StreamInfo;

/// Which ways to the outlet are tried for a purpose. Addresses are given to other hosts, and anybody may answer a
/// search: a way that the info does not name may lead to another outlet.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Trial {
    ways: Ways,
    /// Whether an attempt was made again at once. Only one is for each connection, or who answers every search would
    /// have us dial twice as often.
    is_repeated: bool,
}

#[derive(Debug, Clone, Copy, Default)]
enum Ways {
    /// All of them.
    #[default]
    All,
    /// All, of which this one, that the info does not name, was the fastest. It is not known yet who is there.
    Unproven(SocketAddr),
    /// The addresses of the info alone, because it was somebody else there.
    Named(SocketAddr),
}

impl Recovery {
    /// Returns where to connect now, and counts it as being in use; `None` if no address is known or
    /// allowed.
    pub fn endpoint(&mut self) -> Option<Endpoint> {
        let endpoint = self.in_use();
        if let Some(endpoint) = endpoint {
            self.use_endpoint(endpoint);
        }
        endpoint
    }

    /// Returns where the outlet of `info` can be reached: at the address in use, `first`, then at those of the info,
    /// and then where it answered searches, too.
    pub fn endpoints(
        &self,
        info: &StreamInfo,
        first: SocketAddr,
        hosts: &[SocketAddr],
    ) -> Vec<Endpoint> {
        let reached = self.reached.filter(|reached| reached.data == first);
        let other = |is_v6| self.endpoint_of(info, Some(is_v6));
        let begin = reached.or_else(|| Endpoint::at(info, first));
        let begin = begin
            .filter(|begin| begin.data == first)
            .unwrap_or(Endpoint {
                data: first,
                service: first,
                device: None,
            });
        let own = [first.is_ipv6(), first.is_ipv4()].map(other);
        let others = hosts.iter().map(|host| Endpoint::at(info, *host));
        let mut all: Vec<Endpoint> = Vec::new();
        for endpoint in [Some(begin)].into_iter().chain(own).chain(others).flatten() {
            if all.iter().all(|known| known.data != endpoint.data) {
                all.push(endpoint);
            }
        }
        all
    }

    /// Prefers the family of `endpoint` from now on.
    pub fn use_endpoint(&mut self, endpoint: Endpoint) {
        self.is_v6 = Some(endpoint.data.is_ipv6());
    }

    /// As [`endpoint`](Self::endpoint), of an attempt.
    pub(super) fn endpoint_for(&mut self, purpose: Purpose) -> Option<Endpoint> {
        if self.stray(purpose).is_none() {
            self.endpoint()
        } else {
            self.endpoint_of(&self.present, self.is_v6)
        }
    }

    /// Returns where somebody else was in place of the outlet. Until the next attempt of this purpose only the
    /// addresses that the info names are tried for it.
    pub fn stray(&self, purpose: Purpose) -> Option<SocketAddr> {
        match self.trials[purpose as usize].ways {
            Ways::Named(stray) => Some(stray),
            Ways::All | Ways::Unproven(_) => None,
        }
    }

    /// Takes note of where the outlet of `info` was reached, for one purpose or to ask it something: all go there from
    /// now on, but what a feed has is its own to leave. Returns whether somebody asks for its clock elsewhere, and is
    /// to be told.
    pub fn reached(
        &mut self,
        info: &StreamInfo,
        endpoint: Endpoint,
        purpose: Option<Purpose>,
    ) -> bool {
        if info.uid_bytes() != self.present.uid_bytes() {
            return false;
        }
        let named = [false, true].map(|is_v6| self.endpoint_of(info, Some(is_v6)));
        let is_named = named.iter().flatten().any(|it| it.data == endpoint.data);
        if let Some(purpose @ (Purpose::Feed | Purpose::FullInfo)) = purpose
            && self.stray(purpose).is_none()
        {
            self.trials[purpose as usize].ways = if is_named {
                Ways::All
            } else {
                Ways::Unproven(endpoint.data)
            };
        }
        if purpose != Some(Purpose::Feed) && self.is_feed_trying() {
            return false;
        }
        let is_other = self.in_use() != Some(endpoint);
        self.use_endpoint(endpoint);
        self.reached = Some(endpoint);
        let clock = self.progress(Purpose::Clock);
        let is_elsewhere = is_other && matches!(clock, Progress::Trying(_));
        if is_elsewhere {
            *clock = Progress::Ready;
        }
        is_elsewhere
    }

    /// Has an attempt that failed at a way which the info does not name made again by those that it does: the first
    /// time at once, and returns true then. `is_there` says that it was the outlet.
    pub(super) fn has_strayed(&mut self, purpose: Purpose, is_there: bool) -> bool {
        let trial = &mut self.trials[purpose as usize];
        let Ways::Unproven(stray) = std::mem::take(&mut trial.ways) else {
            return false;
        };
        if is_there {
            return false;
        }
        trial.ways = Ways::Named(stray);
        if std::mem::replace(&mut trial.is_repeated, true) {
            return false;
        }
        self.leave_way(purpose, is_there);
        if purpose == Purpose::Feed {
            self.end_watch();
        }
        *self.progress(purpose) = Progress::Ready;
        true
    }

    /// Forgets where the outlet was reached, after an attempt of this purpose failed: it may lead nowhere. A feed that
    /// is there shows otherwise, and so does an outlet that said why.
    pub(super) fn leave_way(&mut self, purpose: Purpose, is_there: bool) {
        let is_used = purpose != Purpose::Feed && self.is_feed_trying();
        self.reached.take_if(|_| !is_there && !is_used);
    }

    fn is_feed_trying(&self) -> bool {
        matches!(
            self.connections[Purpose::Feed as usize],
            Progress::Trying(_)
        )
    }

    pub(super) fn in_use(&self) -> Option<Endpoint> {
        (self.reached).or_else(|| self.endpoint_of(&self.present, self.is_v6))
    }

    pub(super) fn endpoint_of(&self, info: &StreamInfo, is_v6: Option<bool>) -> Option<Endpoint> {
        Endpoint::of(info, is_v6, (self.ipv6, self.scope_of))
    }
}
