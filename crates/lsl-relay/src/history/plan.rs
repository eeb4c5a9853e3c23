//! Which segments go. Spec: relay §9.

/// Limits of what is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Age in seconds beyond which samples go.
    pub max_age_secs: f64,
    /// Bytes of all segments.
    pub max_bytes: u64,
    /// Bytes that stay free on the disk.
    pub min_free_bytes: u64,
}

impl Limits {
    /// Returns the bytes and the seconds after which a new segment begins: small parts of what is kept, as whole
    /// segments go.
    pub fn of_segment(&self) -> (u64, f64) {
        let bytes = (self.max_bytes / PARTS).clamp(LEAST_BYTES, MOST_BYTES);
        (
            bytes,
            (self.max_age_secs / 4.0).clamp(LEAST_SECS, MOST_SECS),
        )
    }
}

/// A closed segment on the disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stored {
    /// Number of the segment.
    pub number: u64,
    /// Bytes that it takes, with its index.
    pub bytes: u64,
    /// Time at which it was written last, in seconds of a clock that nobody sets.
    pub written: f64,
}

/// What is to be done for the limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Segments that go, oldest first.
    pub remove: Vec<u64>,
    /// Whether nothing may be written even then: too little is free.
    pub is_full: bool,
}

/// Says which of the closed segments go, oldest first in `stored`. `open_bytes` is the size of the open one, which
/// never goes; `free_bytes` is unknown on some systems. `now` is of the clock that `stored` has: one that people and
/// servers set would make all segments old at once.
pub fn plan(
    stored: &[Stored],
    open_bytes: u64,
    free_bytes: Option<u64>,
    limits: &Limits,
    now: f64,
) -> Plan {
    let mut total = stored
        .iter()
        .fold(open_bytes, |sum, it| sum.saturating_add(it.bytes));
    let mut free = free_bytes.unwrap_or(u64::MAX);
    let mut remove = Vec::new();
    for segment in stored {
        let is_old = now - segment.written > limits.max_age_secs;
        if !is_old && total <= limits.max_bytes && free >= limits.min_free_bytes {
            break;
        }
        total = total.saturating_sub(segment.bytes);
        free = free.saturating_add(segment.bytes);
        remove.push(segment.number);
    }
    Plan {
        remove,
        is_full: free < limits.min_free_bytes,
    }
}

/// Parts of `max_bytes` that segments are, at the least.
const PARTS: u64 = 16;

const LEAST_BYTES: u64 = 64 << 10;
const MOST_BYTES: u64 = 256 << 20;
const LEAST_SECS: f64 = 5.0;
const MOST_SECS: f64 = 3600.0;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        max_age_secs: 100.0,
        max_bytes: 1000,
        min_free_bytes: 50,
    };

    fn stored() -> Vec<Stored> {
        let segment = |number| Stored {
            number,
            bytes: 200,
            written: f64::from(u32::try_from(number).expect("small")) * 10.0,
        };
        (1..=4).map(segment).collect()
    }

    fn removed(open: u64, free: u64, now: f64) -> (Vec<u64>, bool) {
        let Plan { remove, is_full } = plan(&stored(), open, Some(free), &LIMITS, now);
        (remove, is_full)
    }

    #[test]
    fn the_oldest_go_for_each_limit_and_the_open_one_never() {
        assert_eq!(removed(200, 50, 110.0), (vec![], false));
        assert_eq!(removed(201, 50, 110.0), (vec![1], false));
        assert_eq!(removed(200, 50, 120.5), (vec![1, 2], false));
        assert_eq!(removed(200, 0, 50.0), (vec![1], false));
        assert_eq!(removed(5000, 50, 50.0), (vec![1, 2, 3, 4], false));
        assert_eq!(plan(&stored(), 0, None, &LIMITS, 0.0), Plan::default());
    }

    #[test]
    fn a_disk_is_full_only_if_nothing_is_left_to_go() {
        let limits = Limits {
            min_free_bytes: 900,
            ..LIMITS
        };
        let full = plan(&stored(), 10, Some(99), &limits, 0.0);
        assert_eq!((full.remove.len(), full.is_full), (4, true));
        let fits = plan(&stored(), 10, Some(100), &limits, 0.0);
        assert_eq!((fits.remove.len(), fits.is_full), (4, false));
    }

    #[test]
    fn segments_are_small_parts_of_what_is_kept() {
        let parts = |max_bytes, max_age_secs| {
            let limits = Limits {
                max_age_secs,
                max_bytes,
                ..LIMITS
            };
            limits.of_segment()
        };
        assert_eq!(parts(20 << 30, 600.0), (256 << 20, 150.0));
        assert_eq!(parts(16 << 20, 1e6), (1 << 20, 3600.0));
        assert_eq!(parts(0, 0.0), (64 << 10, 5.0));
    }
}
