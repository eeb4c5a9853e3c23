//! Chance that can be had again.

/// Splitmix64.
#[derive(Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Returns a number from 0 to 1, without 1.
    pub(crate) fn share(&mut self) -> f64 {
        let word = u32::try_from(self.next() >> 32).unwrap();
        f64::from(word) / (f64::from(u32::MAX) + 1.0)
    }

    /// Returns a number below `count`.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }

    /// Returns true with this probability.
    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        self.share() < probability
    }
}

/// Calls `run` with 20 seeds, or with the one of `SIM_SEED`. More: `SIM_SEEDS=100000`.
pub(crate) fn seeds(run: impl Fn(u64)) {
    struct Seed(u64);
    impl Drop for Seed {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("SIM_SEED={}", self.0);
            }
        }
    }
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|it| it.parse::<u64>().unwrap())
    };
    let count = number("SIM_SEEDS").unwrap_or(20);
    for seed in number("SIM_SEED").map_or(0..count, |seed| seed..seed + 1) {
        let seed = Seed(seed);
        run(seed.0);
    }
}
