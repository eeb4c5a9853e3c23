//! Evaluates the queries of others, at their expense. Every query has a little free work, which is more
//! than those of real programs need; what costs more is limited per host, per network and in total, so
//! that neither one host nor a thousand occupy the thread of the sockets. Spec: lsl-protocol §15.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::Result;
use crate::limits::{Host, TokenBucket};
use crate::query::{
    CHEAP_WORK, CHEAP_WORK_PER_STREAM, EvalError, Query, QueryCache, costly_work, parse_work,
};
use crate::xml::Document;

/// Parses and evaluates queries, within the limits of those who ask.
#[derive(Debug)]
pub struct Evaluator {
    cache: QueryCache,
    budget: QueryBudget,
    /// Counters since the evaluator was created.
    pub counters: EvaluationCounters,
}

/// Counters of queries that were evaluated or dropped.
#[derive(Debug, Default)]
pub struct EvaluationCounters {
    /// Texts that are no query.
    pub malformed: u64,
    /// Queries dropped because they were costly, and their host had no more work to spend.
    pub costly: u64,
    /// Work done, in the units of [`MAX_WORK`](crate::query::MAX_WORK).
    pub work: u64,
}

impl Evaluator {
    /// Makes an evaluator that remembers so many parsed queries (`tuning.MaxCachedQueries`).
    pub fn new(max_queries: usize) -> Self {
        Self {
            cache: QueryCache::new(max_queries),
            budget: QueryBudget::default(),
            counters: EvaluationCounters::default(),
        }
    }

    /// Returns whether the query of a TCP connection selects a document. It may cost as much as one that
    /// came over UDP.
    ///
    /// # Errors
    /// [`Error::Query`](crate::Error::Query) if it is none or may not cost what it does.
    pub fn selects(
        &mut self,
        text: &[u8],
        from: IpAddr,
        document: &Document,
        now: f64,
    ) -> Result<bool> {
        let mut account = QueryAccount::of(from);
        let query = self.parse(text, &mut account, now)?;
        Ok(self.evaluate(&query, document, &mut account, now)?)
    }

    /// Returns a parsed query, from the cache or at the expense of the account.
    pub(super) fn parse(
        &mut self,
        text: &[u8],
        account: &mut QueryAccount,
        now: f64,
    ) -> Result<Arc<Query>> {
        if let Some(query) = self.cache.get(text) {
            return Ok(query);
        }
        let price = parse_work(text.len());
        if !account.spend_cheap(price) {
            self.admit_costly(account, now)?;
            self.budget.charge(account.host, price, now);
        }
        self.counters.work += price;
        let parsed = self.cache.parse(text);
        Ok(parsed.inspect_err(|_| self.counters.malformed += 1)?)
    }

    /// Returns whether a query selects a document. Tries with the free work, and again with more if the
    /// host may spend it.
    pub(super) fn evaluate(
        &mut self,
        query: &Query,
        document: &Document,
        account: &mut QueryAccount,
        now: f64,
    ) -> Result<bool, EvalError> {
        let Some(info) = document.child(document.root(), "info") else {
            return Ok(false);
        };
        let within = |counters: &mut EvaluationCounters, work: &mut u64| {
            let allowed = *work;
            let matched = query.matches_within(document, info, work);
            let spent = allowed - *work;
            counters.work += spent;
            (matched, spent)
        };
        let (matched, spent) = within(&mut self.counters, &mut account.cheap);
        account.spent += spent;
        if matched != Err(EvalError::TooExpensive) {
            return matched;
        }
        self.admit_costly(account, now)?;
        let (matched, spent) = within(&mut self.counters, &mut costly_work(document.len()));
        account.spent += spent;
        self.budget.charge(account.host, spent, now);
        matched
    }

    fn admit_costly(&mut self, account: &QueryAccount, now: f64) -> Result<(), EvalError> {
        if self.budget.admits(account.host, now) {
            return Ok(());
        }
        self.counters.costly += 1;
        Err(EvalError::TooExpensive)
    }
}

/// Work that one query may spend and has spent.
#[derive(Debug)]
pub(super) struct QueryAccount {
    pub(super) host: Host,
    /// Rest of the free work.
    pub(super) cheap: u64,
    /// Work spent, for the sharing of the thread's time.
    pub(super) spent: u64,
}

impl QueryAccount {
    pub(super) fn of(address: IpAddr) -> Self {
        Self {
            host: address.into(),
            cheap: CHEAP_WORK,
            spent: 0,
        }
    }

    /// Spends free work. Returns false if there is not enough of it.
    fn spend_cheap(&mut self, work: u64) -> bool {
        self.spent += work;
        let left = self.cheap.checked_sub(work);
        self.cheap = left.unwrap_or(0);
        left.is_some()
    }

    /// Adds the free work, and the price, of looking at one more stream.
    pub(super) fn look(&mut self) {
        self.cheap += CHEAP_WORK_PER_STREAM;
        self.spent += LOOK_WORK;
    }
}

/// Limits costly work by token buckets per host, per network and for everybody. Work is paid after it was
/// done, so a bucket may fall below zero; that is paid before the next work begins.
#[derive(Debug, Default)]
struct QueryBudget {
    buckets: HashMap<(usize, IpAddr), TokenBucket>,
}

impl QueryBudget {
    /// Returns whether a host may begin something costly at `now`, in seconds of `local_clock`.
    fn admits(&self, host: Host, now: f64) -> bool {
        LEVELS.iter().enumerate().all(|(level, limit)| {
            let bucket = self.buckets.get(&(level, host.network(limit.prefix)));
            bucket.is_none_or(|bucket| bucket.ready_at(now) <= now)
        })
    }

    /// Pays for work that was done, at every level.
    fn charge(&mut self, host: Host, work: u64, now: f64) {
        if self.buckets.len() >= MAX_BUCKETS {
            self.buckets.retain(|_, bucket| !bucket.is_full(now));
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let work = work as f64;
        for (level, limit) in LEVELS.iter().enumerate() {
            let full = || TokenBucket::new(limit.rate, limit.capacity);
            let key = (level, host.network(limit.prefix));
            let bucket = self.buckets.entry(key).or_insert_with(full);
            bucket.charge(work, now);
        }
    }
}

/// Limit of the work of all hosts in a network together.
struct Limit {
    /// Length of the network's prefix, IPv4 and IPv6.
    prefix: (u32, u32),
    /// Work at once, in units.
    capacity: f64,
    /// Work a second, in units.
    rate: f64,
}

/// A million units are about two milliseconds: everybody together has a hundredth of the thread.
const LEVELS: [Limit; 3] = [
    Limit {
        prefix: (32, 64),
        capacity: 2.0e6,
        rate: 1.0e6,
    },
    Limit {
        prefix: (24, 48),
        capacity: 3.0e6,
        rate: 2.5e6,
    },
    Limit {
        prefix: (0, 0),
        capacity: 5.0e6,
        rate: 5.0e6,
    },
];

/// Buckets that are full again are forgotten from here on. What all may spend in the seconds that a
/// bucket takes to fill makes far fewer that are not.
const MAX_BUCKETS: usize = 4096;

/// Price of looking at a stream, whatever is asked about it.
const LOOK_WORK: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: &str) -> Host {
        address.parse::<IpAddr>().unwrap().into()
    }

    /// Units that these sources get in so many seconds, in evaluations of 100,000.
    fn spent(limits: &mut QueryBudget, sources: &[Host], secs: u32) -> u64 {
        let mut spent = 0;
        for millisecond in 0..secs * 1000 {
            let now = 100.0 + f64::from(millisecond) / 1000.0;
            for &source in sources {
                if limits.admits(source, now) {
                    limits.charge(source, 100_000, now);
                    spent += 100_000;
                }
            }
        }
        spent
    }

    #[test]
    fn costly_work_is_bounded_per_host_per_network_and_in_total() {
        let one = [source("10.0.0.1")];
        let network: Vec<Host> = (1..255).map(|n| source(&format!("10.0.0.{n}"))).collect();
        let same_64: Vec<Host> = (1..255).map(|n| source(&format!("fd00::{n:x}"))).collect();
        let everywhere: Vec<Host> = (1..255)
            .map(|n| source(&format!("10.{n}.0.1")))
            .chain((1..255).map(|n| source(&format!("fd00:{n:x}::1"))))
            .collect();
        for (sources, expected) in [
            (one.as_slice(), 2.0e6 + 10.0 * 1.0e6),
            (&same_64, 2.0e6 + 10.0 * 1.0e6),
            (&network, 3.0e6 + 10.0 * 2.5e6),
            (&everywhere, 5.0e6 + 10.0 * 5.0e6),
        ] {
            #[expect(clippy::cast_precision_loss, reason = "few")]
            let spent = spent(&mut QueryBudget::default(), sources, 10) as f64;
            assert!((spent - expected).abs() <= 2e5, "{spent} of {expected}");
        }
    }

    #[test]
    fn a_network_that_floods_leaves_work_for_others() {
        let mut limits = QueryBudget::default();
        let network: Vec<Host> = (1..255).map(|n| source(&format!("127.0.0.{n}"))).collect();
        spent(&mut limits, &network, 5);
        assert!(!limits.admits(source("127.0.0.77"), 105.0));
        assert!(limits.admits(source("127.1.0.1"), 105.0));
        assert!(limits.admits(source("fd00::1"), 105.0));
    }

    #[test]
    fn buckets_are_forgotten() {
        let mut limits = QueryBudget::default();
        for n in 0..20_000_u32 {
            let address = IpAddr::from(n.to_be_bytes());
            limits.charge(address.into(), 10_000, f64::from(n) / 500.0);
        }
        assert!(limits.buckets.len() <= MAX_BUCKETS + 3);
    }
}
