//! When a frame arrives: the line is free, what it takes to send, the way, and nobody overtakes.

use clap::ValueEnum;

use crate::stats::SplitMix;

/// What a wire is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Profile {
    /// 1 Gbit/s, 0.2 to 0.6 ms one way
    Cable,
    /// 50 Mbit/s, 2.5 to 10 ms one way, and now and then 10 to 40 more: 802.11 repeats, and loses nothing
    Wifi,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Model {
    pub(super) delay_secs: f64,
    /// What is added on average: a sum of as many exponential times as `shape` says.
    pub(super) jitter_secs: f64,
    shape: u32,
    /// Of both.
    pub(super) most_secs: f64,
    pub(super) bytes_per_sec: f64,
    pub(super) loss: f64,
    /// Each so manyth burst is later by a time in this range.
    late: Option<(u64, [f64; 2])>,
}

impl Profile {
    pub(super) fn model(self) -> Model {
        match self {
            Self::Cable => Model {
                delay_secs: 0.2e-3,
                jitter_secs: 0.1e-3,
                shape: 1,
                most_secs: 0.6e-3,
                bytes_per_sec: 1e9 / 8.0,
                loss: 0.0,
                late: None,
            },
            Self::Wifi => Model {
                delay_secs: 2.5e-3,
                jitter_secs: 2.5e-3,
                shape: 2,
                most_secs: 10e-3,
                bytes_per_sec: 50e6 / 8.0,
                loss: 0.0,
                late: Some((50, [10e-3, 40e-3])),
            },
        }
    }
}

/// One direction of a wire.
#[derive(Debug)]
pub(super) struct Direction {
    model: Model,
    random: SplitMix,
    /// When the last frame came in, when the line has sent it, and when it arrives.
    came: f64,
    sent: f64,
    arrives: f64,
    bursts: u64,
}

impl Direction {
    pub(super) fn new(model: Model, seed: u64) -> Self {
        Self {
            model,
            random: SplitMix::new(seed),
            came: f64::NEG_INFINITY,
            sent: f64::NEG_INFINITY,
            arrives: f64::NEG_INFINITY,
            bursts: 0,
        }
    }

    /// Returns when a frame that comes now arrives; `None` if it is lost.
    pub(super) fn arrival(&mut self, now: f64, bytes: usize) -> Option<f64> {
        let is_new_burst = now - self.came > BURST_SECS;
        self.bursts += u64::from(is_new_burst);
        self.came = now;
        self.sent = self.sent.max(now) + bytes as f64 / self.model.bytes_per_sec;
        if self.random.share() < self.model.loss {
            return None;
        }
        let part = self.model.jitter_secs / f64::from(self.model.shape);
        let random = &mut self.random;
        let jitter = (0..self.model.shape).map(|_| -part * (1.0 - random.share()).ln());
        let jitter: f64 = jitter.sum();
        let mut way = (self.model.delay_secs + jitter).min(self.model.most_secs);
        if let Some((each, [least, most])) = self.model.late
            && is_new_burst
            && self.bursts.is_multiple_of(each)
        {
            way += least + (most - least) * self.random.share();
        }
        self.arrives = self.arrives.max(self.sent + way);
        Some(self.arrives)
    }
}

/// Frames that come closer are one burst.
const BURST_SECS: f64 = 0.5e-3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Ways of frames that come so far apart, in milliseconds.
    fn ways(model: Model, apart_secs: f64) -> Vec<f64> {
        let mut direction = Direction::new(model, 7);
        let mut last = 0.0;
        let frame = |number: u32| {
            let now = 1000.0 + f64::from(number) * apart_secs;
            let at = direction.arrival(now, 1000)?;
            assert!(at >= last, "a frame overtook another");
            last = at;
            Some((at - now) * 1e3)
        };
        (0..20_000).filter_map(frame).collect()
    }

    fn range(ways: &[f64]) -> [f64; 2] {
        let [least, most] = [f64::min, f64::max];
        [least, most].map(|of: fn(f64, f64) -> f64| ways.iter().copied().reduce(of).unwrap())
    }

    #[test]
    fn a_cable_and_wifi_are_as_the_page_has_them() {
        let cable = ways(Profile::Cable.model(), 0.01);
        let [least, most] = range(&cable);
        assert!(0.2 < least && most < 0.61, "{least} {most}");
        let mean = cable.iter().sum::<f64>() / cable.len() as f64;
        assert!((0.29..0.32).contains(&mean), "{mean}");
        let wifi = ways(Profile::Wifi.model(), 0.1);
        let [least, most] = range(&wifi);
        assert!(
            2.5 < least && (40.0..50.2).contains(&most),
            "{least} {most}"
        );
        let late = wifi.iter().filter(|way| **way > 12.5).count();
        assert!((300..=400).contains(&late), "{late}");
    }

    #[test]
    fn a_full_line_makes_frames_wait_and_loss_takes_its_share() {
        let mut model = Profile::Cable.model();
        model.bytes_per_sec = 1e6;
        // Each takes a millisecond and comes after half of one.
        let slow = ways(model, 0.5e-3);
        assert!(slow.last().unwrap() > &9_900.0);
        model.loss = 0.25;
        let kept = ways(model, 0.01).len();
        assert!((14_600..15_400).contains(&kept), "{kept}");
    }
}
