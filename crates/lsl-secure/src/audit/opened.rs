//! The first line of a writer in a file: what program it is. Spec: audit §1.2.

use std::time::Duration;

use super::event::{Entry, Event, EventKind};
use super::line::hex_of;

/// Returns the event with which a writer begins in a file at the time `utc`. Of the program's file it has the name alone: folders are
/// those of a person.
pub(super) fn opened(utc: Duration) -> Entry {
    let program = std::env::current_exe().unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let mut event = Event::new(EventKind::LogOpened).with("exe", &*name);
    if let Some(id) = lsl_platform::module::build_id() {
        let digits: Vec<u8> = id.into_iter().flat_map(hex_of).collect();
        event = event.with("build_id", &*String::from_utf8_lossy(&digits));
    }
    Entry {
        event: event
            .with("lsl_version", env!("CARGO_PKG_VERSION"))
            .with("pid", u64::from(std::process::id())),
        utc,
        suppressed: None,
    }
}
