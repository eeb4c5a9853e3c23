//! Describes the channels of a stream, offers it, and reads the description back over the network.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::time::Duration;

use lsl_core::{ChannelFormat, Inlet, Outlet, Selector, StreamInfo, resolve_blocking};

fn main() -> Result<(), Box<dyn Error>> {
    let labels = ["C3", "Cz", "C4"];
    let mut info = StreamInfo::new(
        "ExampleMeta",
        "EEG",
        3,
        250.0,
        ChannelFormat::Float32,
        "example-meta-1",
    )?;
    let mut desc = info.desc_mut();
    desc.set("manufacturer", "ACME");
    let mut channels = desc.child("channels");
    for label in labels {
        let mut channel = channels.append_child("channel");
        channel
            .set("label", label)
            .set("unit", "microvolts")
            .set("type", "EEG");
    }
    let _outlet = Outlet::new(info)?;

    let mine = Selector::property("source_id", "example-meta-1")?;
    let found = resolve_blocking(&mine, 1, Duration::from_secs(5))?;
    let inlet = Inlet::new(found.first().ok_or("the stream was not found")?)?;
    let full = inlet.blocking().full_info(Duration::from_secs(5))?;
    println!("{}", String::from_utf8_lossy(&full.to_xml()));
    Ok(())
}
