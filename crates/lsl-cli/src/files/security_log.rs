//! The security log of the configuration, for commands that change what it is to tell of.

use lsl_core::secure::audit::{Audit, Event};
use lsl_core::secure::config::{Found, Settings, search};

use crate::ui::notice::note;

/// Opens the audit file of the configuration in use.
pub(crate) fn found() -> Option<Audit> {
    let Ok(Found::Settings { settings, .. }) = search() else {
        return None;
    };
    of(&settings)
}

/// Opens the audit file that settings name. A failure is reported and does not stop the command.
fn of(settings: &Settings) -> Option<Audit> {
    let path = settings.audit_file.as_ref()?;
    Audit::open(path, settings.audit_keep_days)
        .inspect_err(|error| note(format_args!("lsl: {error}; nothing is logged")))
        .ok()
}

/// Records what a command has done.
pub(crate) fn record(settings: &Settings, events: impl IntoIterator<Item = Event>) {
    if let Some(audit) = of(settings) {
        events.into_iter().for_each(|event| audit.record(event));
    }
}
