//! A search for lost streams, which come and go while it runs: what it asks for, and how often. Spec: doctor §2.4.

use super::Search;
use crate::discovery::lost::LostQueries;
use crate::wire::discovery::QueryDatagram;

/// Queries and waves of a search for lost streams.
#[derive(Debug, Default)]
pub(super) struct Rescue {
    /// In place of the query of the search; empty: that one.
    queries: Vec<Vec<u8>>,
    /// Whether it is for one stream: then it waits no longer than liblsl does.
    is_single: bool,
    /// Number of times that the queries or the waves changed.
    revision: u64,
    /// When a stream was lost last, in seconds of `local_clock`.
    since: f64,
    /// Waves since then.
    waves: u32,
    /// From the last wave to the next one, in seconds.
    pub(super) period_secs: f64,
}

impl Rescue {
    /// Takes note of a wave.
    pub(super) fn begin_wave(&mut self, now: f64) {
        self.waves += 1;
        self.period_secs = if self.waves == 1 {
            SECOND_WAVE_SECS
        } else if self.is_single || now - self.since < PATIENCE_SECS {
            WAVE_SECS
        } else {
            LATER_WAVES_SECS
        };
    }
}

impl Search {
    /// Looks for lost streams: soon, and more rarely if several do not come back.
    #[must_use]
    pub fn for_lost_streams(mut self, now: f64) -> Self {
        self.rescue = Some(Rescue {
            since: now,
            period_secs: SECOND_WAVE_SECS,
            ..Rescue::default()
        });
        self
    }

    /// Asks for this from the next wave on, for every stream if there are no texts. Answers to what was asked before
    /// still count. That wave comes soon if streams were lost since the last call (`is_joined`).
    pub fn look_for(&mut self, lost: LostQueries, is_joined: bool, now: f64) {
        let Some(rescue) = &mut self.rescue else {
            return;
        };
        rescue.is_single = lost.is_single;
        if rescue.queries != lost.texts {
            rescue.queries = lost.texts;
            rescue.revision += 1;
        }
        if is_joined && rescue.waves > 0 {
            let last = self.next_multicast - rescue.period_secs;
            self.next_multicast = self.next_multicast.min(now.max(last + WAVE_SECS));
            self.next_unicast = self.next_unicast.min(self.next_multicast);
            rescue.period_secs = self.next_multicast - last;
            rescue.since = now;
            rescue.revision += 1;
        }
    }

    /// Returns the number of times that [`datagrams`](Self::datagrams) or the next wave changed;
    /// `None` if that never happens.
    pub fn revision(&self) -> Option<u64> {
        self.rescue.as_ref().map(|rescue| rescue.revision)
    }

    /// Returns all datagrams of a wave, when replies shall come to `return_port`.
    pub fn datagrams(&self, return_port: u16) -> Vec<Vec<u8>> {
        let rescue = self.rescue.as_ref().filter(|_| self.is_query_sent());
        let queries = rescue.map_or(&[][..], |rescue| &rescue.queries);
        let named = queries.iter().map(|query| {
            let datagram = QueryDatagram {
                query,
                return_port,
                id: &self.id,
            };
            datagram.to_bytes()
        });
        let own = self.datagram(return_port).filter(|_| queries.is_empty());
        let open = self.open_datagram(return_port);
        own.into_iter().chain(named).chain(open).collect()
    }
}

/// Times between waves, in seconds: after the first one, for a while, and then.
const SECOND_WAVE_SECS: f64 = 0.5;
const WAVE_SECS: f64 = 1.25;
const PATIENCE_SECS: f64 = 30.0;
const LATER_WAVES_SECS: f64 = 5.0;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::{Goal, SearchAction, WaveTimes};
    use super::*;
    use crate::discovery::asked::AskedHosts;

    fn search() -> Search {
        let goal = Goal::Continuous {
            forget_after_secs: 9.0,
        };
        Search::new(b"", WaveTimes::default(), goal, 0.0).for_lost_streams(0.0)
    }

    /// Times of the waves until `end`; a stream is lost at each of `joins`.
    fn waves(joins: &[f64], end: f64) -> Vec<f64> {
        waves_of(search(), joins, end)
    }

    fn waves_of(mut search: Search, joins: &[f64], end: f64) -> Vec<f64> {
        let (mut waves, mut now) = (Vec::new(), 0.0);
        let mut joins = joins.iter().copied().peekable();
        while now < end {
            match search.poll(now) {
                SearchAction::SendMulticast => waves.push(now),
                SearchAction::WaitUntil(at) => {
                    now = at;
                    if let Some(join) = joins.next_if(|join| *join <= at) {
                        now = join;
                        search.look_for(LostQueries::default(), true, now);
                    }
                }
                _ => {}
            }
        }
        waves
    }

    #[test]
    fn waves_come_soon_and_then_ever_more_rarely() {
        let alone = waves(&[], 60.0);
        assert_eq!(alone[..4], [0.0, 0.5, 1.75, 3.0]);
        assert!((28..32).contains(&alone.len()), "{alone:?}");
        // As liblsl looks for one.
        let mut single = search();
        let is_single = true;
        let texts = vec![b"name='a'".to_vec()];
        single.look_for(LostQueries { texts, is_single }, true, 0.0);
        let times = waves_of(single, &[], 60.0);
        assert!(times.is_sorted_by(|a, b| b - a <= 1.25), "{times:?}");
        // Another one is lost late, and then many.
        let later = waves(&[40.0], 44.0);
        let last: Vec<_> = later.iter().filter(|at| **at >= 40.0).collect();
        assert_eq!(last, [&40.0, &41.25, &42.5, &43.75]);
        let joins: Vec<_> = (0..200).map(|number| f64::from(number) * 0.1).collect();
        let often = waves(&joins, 20.0);
        assert!(often.len() <= 2 + 16, "{often:?}");
    }

    #[test]
    fn a_host_that_answers_every_wave_is_not_asked_over_tcp() {
        let host: SocketAddr = ([10, 0, 0, 1], 5).into();
        let mut search = search().with_id(7).with_fallback(AskedHosts::default());
        let mut now = 0.0;
        while now < 100.0 {
            search.remember([host], now);
            match search.poll(now) {
                SearchAction::SendMulticast => {
                    search.handle_datagram(host, b"7\r\nno info", now + 0.01);
                }
                SearchAction::WaitUntil(at) => now = at,
                SearchAction::ProbeTcp(_) => panic!("asked at {now}"),
                _ => {}
            }
        }
    }

    #[test]
    fn a_wave_asks_for_what_is_lost_then() {
        let mut search = search();
        let asked = |search: &Search| {
            let datagrams = search.datagrams(7).into_iter();
            datagrams
                .map(|each| String::from_utf8(each).unwrap())
                .collect::<Vec<_>>()
        };
        let everybody = asked(&search);
        assert_eq!((everybody.len(), search.revision()), (1, Some(0)));
        let lost = LostQueries {
            texts: vec![b"name='a'".to_vec(), b"name='b'".to_vec()],
            is_single: false,
        };
        search.look_for(lost, true, 0.0);
        let [a, b] = &asked(&search)[..] else {
            panic!("two datagrams");
        };
        assert!(a.contains("name='a'\r\n7 ") && b.contains("name='b'\r\n7 "));
        assert_eq!(search.revision(), Some(1));
        // Where names are to stay secret, everybody is asked.
        assert_eq!(asked(&search.with_open_query_alone(5)).len(), 1);
    }
}
