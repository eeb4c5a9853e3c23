//! Sends event markers: a string stream with no fixed rate.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::thread::sleep;
use std::time::Duration;

use lsl_core::{ChannelFormat, IRREGULAR_RATE, Outlet, Result, StreamInfo};

fn main() -> Result<()> {
    let info = StreamInfo::new(
        "ExampleMarkers",
        "Markers",
        1,
        IRREGULAR_RATE,
        ChannelFormat::String,
        "example-markers-1",
    )?;
    let outlet = Outlet::new(info)?;
    for trial in 1_u32.. {
        let marker = format!("trial-{trial}/start");
        outlet.push(&[marker.as_str()])?;
        println!("sent {marker} ({} readers)", outlet.consumers().len());
        sleep(Duration::from_secs(1));
    }
    Ok(())
}
