//! Offers an 8-channel EEG stream at 100 Hz and pushes noise until stopped with Ctrl-C.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::thread::sleep;
use std::time::Duration;

use lsl_core::{ChannelFormat, Outlet, Result, StreamInfo, local_clock};

fn main() -> Result<()> {
    let rate = 100.0;
    let info = StreamInfo::new(
        "ExampleEEG",
        "EEG",
        8,
        rate,
        ChannelFormat::Float32,
        "example-eeg-1",
    )?;
    let outlet = Outlet::new(info)?;
    println!("sending ExampleEEG; start `receive` in another terminal");

    let start = local_clock();
    for n in 0_u32.. {
        // Absolute points in time, so that delays do not add up.
        let due = start + f64::from(n) / rate;
        sleep(Duration::from_secs_f64((due - local_clock()).max(0.0)));
        // Any number type may be pushed; the stream's own is float32.
        let hertz = [8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
        let sample = hertz.map(|hertz: f64| (due * hertz * std::f64::consts::TAU).sin());
        outlet.push_at(&sample, due)?;
    }
    Ok(())
}
