//! Where an outlet is: at an address of its info, or where a race of connections reached it. Spec: doctor §2.3.

use std::net::SocketAddr;

use super::{Endpoint, Progress, Purpose, Recovery};
use crate::StreamInfo;

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

    /// Takes note of where the outlet of `info` was reached: all go there from now on. Returns whether somebody asks
    /// for its clock elsewhere, and is to be told.
    pub fn reached(&mut self, info: &StreamInfo, endpoint: Endpoint) -> bool {
        if info.uid_bytes() != self.present.uid_bytes() {
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

    pub(super) fn in_use(&self) -> Option<Endpoint> {
        (self.reached).or_else(|| self.endpoint_of(&self.present, self.is_v6))
    }

    pub(super) fn endpoint_of(&self, info: &StreamInfo, is_v6: Option<bool>) -> Option<Endpoint> {
        Endpoint::of(info, is_v6, (self.ipv6, self.scope_of))
    }
}
