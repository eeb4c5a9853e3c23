//! The race of connections to one outlet: where it was found goes first, its other addresses if that takes long, and
//! the first again by the interface of its network, if the system sends there by another one, as with a VPN. Whoever
//! is established first wins. Spec: doctor §2.3.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;

use super::endpoint::Endpoint;
use crate::Error;

/// Result of [`Race::poll`]: what the driver has to do now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Connect there.
    Connect(Endpoint),
    /// Say by which interfaces addresses have to be reached: [`bind`](Race::bind).
    FindDevices,
    /// Nothing before this time, unless a connection is established or [`failed`](Race::failed).
    WaitUntil(f64),
    /// All connections failed, or the first one was refused and the others are silent.
    Failed,
}

/// Connections to one outlet, of which one is wanted. Times are seconds of `local_clock`.
#[derive(Debug)]
pub struct Race {
    first: Option<Endpoint>,
    /// Those that were not begun yet, and when they are.
    waiting: VecDeque<(f64, Endpoint)>,
    /// When to look for devices, until that was done.
    devices_at: Option<f64>,
    /// Connections that are under way, and those that ended without a word from there.
    running: usize,
    silent: usize,
    /// When no connection is worth waiting for any more.
    gives_up_at: f64,
}

impl Race {
    /// Starts with these endpoints, best first.
    pub fn new(endpoints: impl IntoIterator<Item = Endpoint>, now: f64) -> Self {
        let pauses = [0.0, FIRST_PAUSE_SECS].into_iter();
        let pauses = pauses.chain(std::iter::repeat(NEXT_PAUSE_SECS));
        let due = pauses.scan(now, |at, pause| {
            *at += pause;
            Some(*at)
        });
        let waiting: VecDeque<_> = due.zip(endpoints).collect();
        Self {
            first: waiting.front().map(|(_, endpoint)| *endpoint),
            waiting,
            devices_at: Some(now + DEVICES_SECS),
            running: 0,
            silent: 0,
            gives_up_at: f64::INFINITY,
        }
    }

    /// Returns what to do at `now`. Ask again after doing it, and at the time of [`Step::WaitUntil`].
    pub fn poll(&mut self, now: f64) -> Step {
        if self.gives_up_at <= now {
            return Step::Failed;
        }
        let may_begin = self.running + self.silent < MAX_CONNECTIONS;
        if may_begin && self.devices_at.take_if(|at| *at <= now).is_some() {
            return Step::FindDevices;
        }
        if let Some(&(due, endpoint)) = self.waiting.front()
            && may_begin
            && due <= now
        {
            self.waiting.pop_front();
            self.running += 1;
            return Step::Connect(endpoint);
        }
        let next = self.waiting.front().map(|(due, _)| *due);
        let next = next.into_iter().chain(self.devices_at);
        let next = next.filter(|_| may_begin).reduce(f64::min);
        match next {
            None if self.running == 0 => Step::Failed,
            next => Step::WaitUntil(next.unwrap_or(f64::INFINITY).min(self.gives_up_at)),
        }
    }

    /// Takes, in answer to [`Step::FindDevices`], the index of the interface by which an address has to be reached;
    /// `None` where the system takes it by itself, or none is better than another.
    pub fn bind(&mut self, device_towards: impl Fn(SocketAddr) -> Option<u32>, now: f64) {
        for (_, endpoint) in &mut self.waiting {
            let device = endpoint.device;
            endpoint.device = device.or_else(|| device_towards(endpoint.data));
        }
        // Beside its connection that is under way.
        let unbound = self.first.filter(|first| first.device.is_none());
        if let Some(first) = unbound
            && let device @ Some(_) = device_towards(first.data)
        {
            self.waiting.push_front((now, Endpoint { device, ..first }));
        }
    }

    /// Takes note of a connection that came to nothing: the next one begins at once. If the first was refused, its
    /// host lives and the program is gone, most likely: all others begin, and have a moment.
    pub fn failed(&mut self, endpoint: Endpoint, error: &Error, now: f64) {
        self.running = self.running.saturating_sub(1);
        self.silent += usize::from(matches!(error, Error::Timeout { .. }));
        let is_first = self.first.is_some_and(|it| it.data == endpoint.data);
        let is_gone = is_first && is_refused(error);
        if is_gone {
            self.gives_up_at = self.gives_up_at.min(now + OTHERS_SECS);
        }
        let forward = if is_gone { self.waiting.len() } else { 1 };
        let next = self.waiting.iter_mut().take(forward).map(|(due, _)| due);
        for due in next.chain(&mut self.devices_at) {
            *due = due.min(now);
        }
    }
}

fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::ConnectionRefused)
}

/// When routes are looked at: a host on a network of ours accepts within milliseconds.
const DEVICES_SECS: f64 = 0.1;

/// From the first connection to the second, and from each to the next.
const FIRST_PAUSE_SECS: f64 = 0.25;
const NEXT_PAUSE_SECS: f64 = 0.15;

/// Connections of one race at a time. Those that nobody answered count, too, or it would last as long again.
const MAX_CONNECTIONS: usize = 4;

/// How long the others have after the first was refused: a network of ours takes milliseconds, and a second more if a
/// packet is lost, while a host that is not there takes all of a connection's limit, and the outlet is to be looked for.
const OTHERS_SECS: f64 = 1.25;

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(host: u8, device: Option<u32>) -> Endpoint {
        Endpoint {
            data: ([10, 0, 0, host], 1).into(),
            service: ([10, 0, 0, host], 2).into(),
            device,
        }
    }

    /// What a race does in its first two seconds, as `MILLISECONDS:HOST[@DEVICE]` and `MILLISECONDS:?`. A connection
    /// to a host of `refused` fails after 10 ms; devices are those of `devices`.
    fn race(hosts: &[u8], refused: &[u8], devices: &[(u8, u32)]) -> String {
        let mut now = 100.0;
        let endpoints = hosts.iter().map(|host| endpoint(*host, None));
        let mut race = Race::new(endpoints, now);
        let (mut done, mut ends) = (Vec::new(), Vec::<(f64, Endpoint)>::new());
        while now < 102.0 {
            let at = ((now - 100.0) * 1e3).round();
            match race.poll(now) {
                Step::Connect(endpoint) => {
                    let host = match endpoint.data.ip() {
                        std::net::IpAddr::V4(v4) => v4.octets()[3],
                        std::net::IpAddr::V6(_) => 0,
                    };
                    let device = endpoint.device.map(|it| format!("@{it}"));
                    done.push(format!("{at}:{host}{}", device.unwrap_or_default()));
                    if refused.contains(&host) {
                        ends.push((now + 0.01, endpoint));
                    }
                }
                Step::FindDevices => {
                    done.push(format!("{at}:?"));
                    let device = |to: SocketAddr| {
                        let mut all = devices.iter();
                        let found = all.find(|(host, _)| endpoint(*host, None).data == to);
                        found.map(|(_, device)| *device)
                    };
                    race.bind(device, now);
                }
                Step::WaitUntil(due) => {
                    let end = ends.iter().map(|(at, _)| *at).reduce(f64::min);
                    now = due.min(end.unwrap_or(f64::INFINITY)).min(102.0);
                    let error = Error::io("", ErrorKind::ConnectionRefused.into());
                    for (_, endpoint) in ends.extract_if(.., |(at, _)| *at <= now) {
                        race.failed(endpoint, &error, now);
                    }
                }
                Step::Failed => {
                    done.push(format!("{at}:failed"));
                    break;
                }
            }
        }
        done.join(" ")
    }

    #[test]
    fn connections_begin_one_after_the_other() {
        for (hosts, refused, devices, expected) in [
            // One way, and nothing else in the first 100 ms.
            (&[1][..], &[][..], &[][..], "0:1 100:?"),
            // Other addresses, at most four connections.
            (&[1, 2, 3, 4, 5, 6], &[], &[], "0:1 100:? 250:2 400:3 550:4"),
            // A route that leads away.
            (&[1, 2], &[], &[(1, 7)], "0:1 100:? 100:1@7 250:2"),
            (
                &[1, 2, 3, 4],
                &[],
                &[(1, 7), (2, 7)],
                "0:1 100:? 100:1@7 250:2@7 400:3",
            ),
            // Who is refused has the next one tried at once, as the system would have it and then as it has to be.
            (&[1], &[1], &[], "0:1 10:? 10:failed"),
            (&[1], &[1], &[(1, 7)], "0:1 10:? 10:1@7 20:failed"),
            // What dead addresses would hold up has a moment, and what is refused makes room.
            (
                &[1, 2, 3],
                &[1, 2],
                &[(2, 7)],
                "0:1 10:? 10:2@7 10:3 1260:failed",
            ),
            (
                &[1, 2, 3, 4, 5, 6],
                &[2, 3, 4],
                &[],
                "0:1 100:? 250:2 260:3 270:4 280:5 850:6",
            ),
            (&[1, 2], &[2], &[], "0:1 100:? 250:2"),
            (&[], &[], &[], "100:? 100:failed"),
        ] {
            assert_eq!(
                race(hosts, refused, devices),
                expected,
                "{hosts:?} {refused:?}"
            );
        }
    }

    #[test]
    fn a_host_that_is_silent_at_four_addresses_has_no_more_time() {
        let mut race = Race::new((1..=6).map(|host| endpoint(host, Some(7))), 0.0);
        let mut begun = Vec::new();
        loop {
            match race.poll(1.0) {
                Step::Connect(endpoint) => begun.push(endpoint),
                Step::FindDevices => {}
                step => break assert_eq!(step, Step::WaitUntil(f64::INFINITY)),
            }
        }
        assert_eq!(begun.len(), 4);
        for endpoint in begun {
            race.failed(endpoint, &Error::Timeout { operation: "" }, 5.0);
        }
        assert_eq!(race.poll(5.0), Step::Failed);
    }

    #[test]
    fn who_was_reached_by_an_interface_is_not_tried_by_it_again() {
        let mut race = Race::new([endpoint(1, Some(7))], 0.0);
        assert_eq!(race.poll(0.0), Step::Connect(endpoint(1, Some(7))));
        assert_eq!(race.poll(0.1), Step::FindDevices);
        race.bind(|_| Some(7), 0.1);
        assert_eq!(race.poll(0.2), Step::WaitUntil(f64::INFINITY));
    }
}
