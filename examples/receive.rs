//! Finds an EEG stream and prints its samples, with timestamps on this computer's clock.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::time::Duration;

use lsl_core::{Inlet, ProcessingOptions, Selector, Timeout, resolve_blocking};

fn main() -> Result<(), Box<dyn Error>> {
    let found = resolve_blocking(
        &Selector::property("type", "EEG")?,
        1,
        Duration::from_secs(5),
    )?;
    let info = found
        .first()
        .ok_or("no stream of type EEG; start `send` in another terminal")?;
    println!("reading {} from {}", info.name(), info.hostname());

    let inlet = Inlet::builder(info)
        .processing(ProcessingOptions::CLOCKSYNC)
        .create()?;
    let mut sample = vec![0.0_f32; info.channel_count() as usize];
    while let Some(timestamp) = inlet.blocking().pull(&mut sample, Timeout::Forever)? {
        println!("{timestamp:.6} {sample:.3?}");
    }
    Ok(())
}
