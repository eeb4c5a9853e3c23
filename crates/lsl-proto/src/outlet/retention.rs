//! What an outlet retains of its samples, and for how long: limits, whether it retains at all, and what each
//! source may ask to be sent again. Spec: resume §4.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::{Host, TokenBucket};

/// Limits on what one outlet retains.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retain {
    /// Seconds after which samples go; 0 retains nothing.
    pub seconds: f64,
    /// Largest size in bytes.
    pub bytes: usize,
    /// Whether to retain also while no reader that could ask for it is or was just there.
    pub unread: bool,
}

impl Retain {
    /// Retains nothing, and grants no feed.
    pub const NOTHING: Self = Self {
        seconds: 0.0,
        bytes: 0,
        unread: false,
    };
}

/// What the outlets of a process may retain together.
#[derive(Debug)]
pub struct Share {
    total_bytes: usize,
    /// Number of outlets that retain something.
    armed: AtomicUsize,
}

impl Share {
    /// Creates the share of so many bytes in all.
    pub fn new(total_bytes: usize) -> Self {
        Self {
            total_bytes,
            armed: AtomicUsize::new(0),
        }
    }
}

/// Retention of one outlet. Its times are seconds of `local_clock`.
#[derive(Debug)]
pub struct Retention {
    limits: Retain,
    share: Arc<Share>,
    /// Whether readers that lag hold no more than the limit in bytes, either.
    bounds_readers: bool,
    created_at: f64,
    /// End of the retention, unless somebody reads.
    armed_until: Option<f64>,
    /// What each source may still be sent again, in bytes, with the time of its last use.
    budgets: Vec<(Host, TokenBucket, f64)>,
    refused: u64,
}

impl Retention {
    /// Begins to retain for a while, so that readers who come back after a restart get everything.
    pub fn new(limits: Retain, share: Arc<Share>, now: f64) -> Self {
        let mut retention = Self {
            limits,
            share,
            bounds_readers: false,
            created_at: now,
            armed_until: None,
            budgets: Vec::new(),
            refused: 0,
        };
        retention.prolong(now);
        retention
    }

    /// Has readers that lag hold no more than may be retained in bytes, whatever they asked for. Spec: relay §8.
    pub fn bound_readers(&mut self) {
        self.bounds_readers = true;
    }

    #[inline]
    pub(crate) fn bounds_readers(&self) -> bool {
        self.bounds_readers
    }

    /// Returns the limits.
    pub fn limits(&self) -> &Retain {
        &self.limits
    }

    /// Returns how often a source had asked for more than it may.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns whether the outlet was created in the last so many seconds.
    pub fn is_younger_than(&self, secs: f64, now: f64) -> bool {
        now - self.created_at <= secs
    }

    /// Returns whether samples are retained.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.armed_until.is_some()
    }

    /// Retains from `now` on, or for longer: somebody reads who can ask for it.
    pub fn prolong(&mut self, now: f64) {
        if self.armed_until.is_none() {
            self.share.armed.fetch_add(1, Ordering::Relaxed);
        }
        let until = now + self.limits.seconds;
        self.armed_until = Some(self.armed_until.map_or(until, |it| it.max(until)));
    }

    /// Ends the retention if it is time for it.
    pub fn expire(&mut self, now: f64) {
        if !self.limits.unread && self.armed_until.is_some_and(|until| until < now) {
            self.disarm();
        }
    }

    /// Retains nothing more, and leaves its share to others.
    pub(crate) fn disarm(&mut self) {
        if self.armed_until.take().is_some() {
            self.share.armed.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns how many bytes may be retained now, whatever the other outlets do.
    #[inline]
    pub fn most_bytes(&self) -> usize {
        let outlets = self.share.armed.load(Ordering::Relaxed).max(1);
        let share = self.share.total_bytes / outlets;
        self.limits.bytes.min(share.max(LEAST_BYTES))
    }

    /// Returns the time of the oldest push that is retained.
    #[inline]
    pub fn oldest(&self, now: f64) -> f64 {
        now - self.limits.seconds
    }

    /// Returns the time in seconds for which samples gather in one block.
    pub fn block_secs(&self) -> f64 {
        self.limits.seconds / 8.0
    }

    /// Takes what is sent again from the budget of its reader, or what is left of that. Returns how much.
    pub fn charge(&mut self, host: Host, bytes: usize, now: f64) -> usize {
        let bucket = self.budget(host, now);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and less than was asked for"
        )]
        let granted = bytes.min(bucket.level(now).max(0.0) as usize);
        #[expect(clippy::cast_precision_loss, reason = "no limit is that large")]
        bucket.charge(granted as f64, now);
        self.refused += u64::from(granted < bytes);
        granted
    }

    /// Gives back what was not sent.
    #[expect(clippy::cast_precision_loss, reason = "no limit is that large")]
    pub fn refund(&mut self, host: Host, bytes: usize, now: f64) {
        self.budget(host, now).charge(-(bytes as f64), now);
    }

    #[expect(clippy::cast_precision_loss, reason = "no limit is that large")]
    fn budget(&mut self, host: Host, now: f64) -> &mut TokenBucket {
        let index = self.budgets.iter().position(|(of, ..)| *of == host);
        let index = index.unwrap_or_else(|| {
            let oldest = self.budgets.iter().enumerate();
            let oldest = oldest.min_by(|(_, a), (_, b)| a.2.total_cmp(&b.2));
            if let Some((oldest, _)) = oldest.filter(|_| self.budgets.len() >= MOST_SOURCES) {
                self.budgets.swap_remove(oldest);
            }
            let bytes = self.limits.bytes as f64;
            self.budgets
                .push((host, TokenBucket::new(bytes / 2.0, bytes * 4.0), now));
            self.budgets.len() - 1
        });
        let (_, bucket, used) = &mut self.budgets[index];
        *used = now;
        bucket
    }
}

impl Drop for Retention {
    fn drop(&mut self) {
        self.disarm();
    }
}

/// An outlet retains as much, however many there are.
const LEAST_BYTES: usize = 64 * 1024;

/// Sources whose budgets are remembered.
const MOST_SOURCES: usize = 256;
