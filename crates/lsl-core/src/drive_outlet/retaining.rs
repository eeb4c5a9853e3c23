//! The outlets of a context that retain samples, and the look at them every ten seconds, which lets go what was
//! retained for long enough. Nobody looks while none does. Spec: resume §4.1.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lsl_platform::clock::local_clock;

use crate::drive_outlet::push::OutletShared;
use crate::net::monitor::lock_ignoring_poison;
use crate::net::runtime;

/// Outlets that retain something.
#[derive(Debug, Default)]
pub(crate) struct Retaining(Mutex<Outlets>);

#[derive(Debug, Default)]
struct Outlets {
    /// By their addresses, which stay theirs as long as they are in here.
    outlets: HashMap<usize, Weak<OutletShared>>,
    is_looked_after: bool,
}

impl Retaining {
    /// Looks after an outlet that begins to retain, unless that is done.
    pub(super) fn add(&self, outlet: &Arc<OutletShared>) {
        // Time stands still in models.
        if cfg!(lsl_loom) {
            return;
        }
        let mut state = lock_ignoring_poison(&self.0);
        let address = Arc::as_ptr(outlet).addr();
        let added = state.outlets.entry(address);
        added.or_insert_with(|| Arc::downgrade(outlet));
        if !std::mem::replace(&mut state.is_looked_after, true) {
            // Not the context, which ends with its last handle.
            let retaining = Arc::clone(outlet.identity.context.retaining());
            let started = runtime::spawn(async move { look_after(&retaining).await });
            state.is_looked_after = started.is_ok();
        }
    }

    /// Looks at each once. False if none is left.
    fn look(&self) -> bool {
        // Not under the lock: a look takes that of a fan-out, and the last handle of an outlet may go here.
        let outlets = std::mem::take(&mut lock_ignoring_poison(&self.0).outlets);
        let now = local_clock();
        let retains = |(_, outlet): &(usize, Weak<OutletShared>)| {
            let outlet = outlet.upgrade();
            outlet.is_some_and(|outlet| outlet.look_after_retention(now))
        };
        let outlets: Vec<_> = outlets.into_iter().filter(retains).collect();
        let mut state = lock_ignoring_poison(&self.0);
        // Admissions may have added some meanwhile.
        state.outlets.extend(outlets);
        state.is_looked_after = !state.outlets.is_empty();
        state.is_looked_after
    }
}

async fn look_after(retaining: &Retaining) {
    loop {
        tokio::time::sleep(runtime::until_next(PERIOD)).await;
        if !retaining.look() {
            return;
        }
    }
}

/// That of a context's look at its interfaces.
const PERIOD: Duration = Duration::from_secs(10);
