//! Reads a stream in chunks of whatever arrived in the last 100 ms, without allocating.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::time::Duration;

use lsl_core::{Inlet, Selector, resolve_blocking};

fn main() -> Result<(), Box<dyn Error>> {
    let found = resolve_blocking(
        &Selector::property("type", "EEG")?,
        1,
        Duration::from_secs(5),
    )?;
    let info = found
        .first()
        .ok_or("no stream of type EEG; start `send` in another terminal")?;
    let inlet = Inlet::new(info)?;
    inlet.blocking().open(Duration::from_secs(5))?;

    let channels = info.channel_count() as usize;
    let mut values = vec![0.0_f64; 1024 * channels];
    let mut timestamps = vec![0.0; 1024];
    loop {
        let samples = inlet.blocking().pull_chunk(
            &mut values,
            Some(&mut timestamps),
            Duration::from_millis(100),
        )?;
        let first_channel = values.iter().step_by(channels).take(samples);
        let peak = first_channel.fold(0.0_f64, |peak, value| peak.max(value.abs()));
        let dropped = inlet.stats().dropped;
        println!("{samples} samples, peak of channel 0: {peak:.3}, dropped so far: {dropped}");
    }
}
