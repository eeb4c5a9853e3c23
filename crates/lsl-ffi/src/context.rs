//! The context of all objects that C creates: the process-wide one. In tests it is confined to this host
//! and meets no other program.

#[cfg(test)]
use std::cell::RefCell;
#[cfg(test)]
use std::sync::Arc;
#[cfg(not(test))]
use std::sync::OnceLock;

use lsl_core::Context;
#[cfg(test)]
use lsl_core::secure::Security;
#[cfg(not(test))]
use lsl_platform::fork::{Generation, PerProcess};

/// Returns the context of all objects of this library: the process-wide configuration and its sockets. The
/// first call reads the configuration and starts the log.
#[cfg(not(test))]
pub(crate) fn context() -> Context {
    static CONTEXT: PerProcess<OnceLock<Context>> = PerProcess::new();
    let (owner, first) = first();
    let make = || {
        if owner.is_current() {
            first.clone()
        } else {
            // A child gets sockets and keys of its own, and the locks of the inherited context may be in
            // the hands of threads that only its parent has.
            first.for_forked_child()
        }
    };
    CONTEXT.get().get_or_init(make).clone()
}

/// The context of the process that used the library first, and which that is.
#[cfg(not(test))]
fn first() -> &'static (Generation, Context) {
    static SHARED: OnceLock<(Generation, Context)> = OnceLock::new();
    let owner = crate::handle::owner();
    let mut messages = None;
    let shared = SHARED.get_or_init(|| {
        let (context, said) = crate::log::observe(Context::global);
        messages = said;
        (owner, context)
    });
    if let Some(messages) = messages {
        // Only now, because a log callback may call the library.
        crate::log::install(shared.1.config().log(), messages);
    }
    shared
}

/// Returns a context confined to this host, with a session and ports of this process. For tests.
#[cfg(test)]
pub(crate) fn context() -> Context {
    use std::sync::LazyLock;

    use lsl_core::config::Config;

    static LOOPBACK: LazyLock<Context> = LazyLock::new(|| {
        let mut config = Config::loopback();
        let process = std::process::id();
        config
            .set_session_id(&format!("lsl-ffi-{process}"))
            .expect("one line of text");
        let base = 24_000 + u16::try_from(process % 60).expect("small") * 400;
        config.set_ports(base, 399);
        config.set_multicast_port(base + 399);
        // Independent of the security configuration of this machine.
        Context::with_security(
            config,
            Arc::new(Security::off(Vec::new()).expect("no policy of the system")),
        )
    });
    OTHER
        .with_borrow(Clone::clone)
        .unwrap_or_else(|| LOOPBACK.clone())
}

/// Runs `body` with a context whose objects have this security configuration. For tests.
#[cfg(test)]
pub(crate) fn with_security<R>(security: &Arc<Security>, body: impl FnOnce() -> R) -> R {
    let config = context().config().clone();
    OTHER.set(Some(Context::with_security(config, Arc::clone(security))));
    let result = body();
    OTHER.set(None);
    result
}

#[cfg(test)]
thread_local! {
    static OTHER: RefCell<Option<Context>> = const { RefCell::new(None) };
}
