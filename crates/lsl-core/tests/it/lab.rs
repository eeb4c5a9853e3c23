//! A laboratory for one test: a context of its own on loopback, with its own ports and session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use lsl_core::config::Config;
use lsl_core::secure::Security;
use lsl_core::{Context, Inlet, Outlet, Selector, StreamInfo};

/// Far more than anything here takes; only a hang reaches it.
pub const SOON: Duration = Duration::from_secs(20);

/// A context whose streams no other test and no other program sees.
pub fn context() -> Context {
    context_with(&[])
}

/// The same with other settings, as `section.Key` and value.
pub fn context_with(settings: &[(&str, &str)]) -> Context {
    plaintext(config_with(settings))
}

/// A configuration with ports and a session of its own.
pub fn config_with(settings: &[(&str, &str)]) -> Config {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Below the ports that the system gives away, and each range once in a process: tests at the same time
    // must not meet.
    let process = u16::try_from(std::process::id() % 97).expect("small");
    let range = (process * 7 + number) % 750;
    let mut config = Config::loopback();
    config.set_ports(17_000 + range * 20, 20);
    config
        .set_session_id(&format!("it-{}-{number}", std::process::id()))
        .expect("valid session id");
    for (key, value) in settings {
        config.set(key, value).expect("valid setting");
    }
    config
}

/// A context without encryption, whatever the home of whoever runs the tests says.
pub fn plaintext(config: Config) -> Context {
    let off = Security::off(Vec::new()).expect("no policy of the system");
    Context::with_security(config, Arc::new(off))
}

/// An outlet with default settings.
pub fn outlet(context: &Context, info: StreamInfo) -> Outlet {
    Outlet::builder(info)
        .context(context)
        .open()
        .expect("outlet opens")
}

/// Finds the stream of this name.
pub fn find(context: &Context, name: &str) -> StreamInfo {
    let selector = Selector::property("name", name).expect("valid name");
    let found = context
        .resolve_blocking(&selector, 1, SOON)
        .expect("resolves");
    found
        .into_iter()
        .next()
        .unwrap_or_else(|| panic!("{name} was not found"))
}

/// An open inlet with default settings on the stream of this name.
pub fn inlet(context: &Context, name: &str) -> Inlet {
    let inlet = Inlet::builder(&find(context, name))
        .context(context)
        .create()
        .expect("inlet is made");
    inlet.blocking().open(SOON).expect("inlet opens");
    inlet
}

/// Waits until a condition holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = lsl_core::local_clock() + SOON.as_secs_f64();
    let mut looks = 0;
    while !holds() {
        assert!(lsl_core::local_clock() < deadline, "in vain: {what}");
        looks += 1;
        if looks < 1000 {
            std::thread::yield_now();
        } else {
            // What lasts longer leaves the processors to the tests beside it.
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}
