//! Offers an 8-channel EEG stream at 100 Hz and pushes noise until stopped with Ctrl-C.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::thread::sleep;
use std::time::Duration;

use lsl_core::{ChannelFormat, Outlet, Result, StreamInfo, local_clock};

fn main() -> Result<()> {
    let rate = 100.0;
    let info =
        StreamInfo::new("ExampleEEG", "EEG", 8, rate, ChannelFormat::Float32, "example-eeg-1")?;
    let outlet = Outlet::new(info)?;
    println!("sending ExampleEEG; start `receive` in another terminal");

    let start = local_clock();
    for n in 0_u32.. {
        // Absolute points in time, so that delays do not add up.
        let due = start + f64::from(n) / rate;
        sleep(Duration::from_secs_f64((due - local_clock()).max(0.0)));
        let sample: [f32; 8] = std::array::from_fn(|channel| {
            let hertz = 8.0 + channel as f64;
            (due * hertz * std::f64::consts::TAU).sin() as f32
        });
        outlet.push_at(&sample, due)?;
    }
    Ok(())
}
