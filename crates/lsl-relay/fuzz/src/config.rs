//! Text of `lsl-relay.toml`: never a panic, and a mistake has a line of the text.

use lsl_relay::config::Config;
use lsl_secure::trust::TrustList;

pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match Config::parse(text, &TrustList::default()) {
        Ok(config) => {
            assert!((1..=16).contains(&config.max_hops));
            assert!((0.0..=3600.0).contains(&config.linger_secs));
            assert!(config.connect.iter().all(|relay| relay.contains(':')));
        }
        Err(error) => {
            let lines = text.matches('\n').count() + 1;
            assert!((1..=lines).contains(&error.line), "{error}");
        }
    }
}
