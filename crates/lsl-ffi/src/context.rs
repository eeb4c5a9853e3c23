//! The context of everything C makes: the process-wide one. In tests it is one that cannot leave this
//! host and meets no other program.

#[cfg(test)]
use std::cell::RefCell;
#[cfg(test)]
use std::sync::Arc;
#[cfg(not(test))]
use std::sync::OnceLock;

use lsl_core::Context;
#[cfg(test)]
use lsl_core::secure::Security;

/// What all objects of this library share: the process-wide configuration and its sockets. The first
/// call reads the configuration and starts the log.
#[cfg(not(test))]
pub(crate) fn context() -> Context {
    let first = first();
    let forks = crate::handle::fork_generation();
    let mut generation = &FIRST;
    loop {
        let (made_after, context) = generation.context.get_or_init(|| (forks, first.clone()));
        if *made_after == forks {
            return context.clone();
        }
        // A child gets sockets and keys of its own, and the locks of the inherited context may be in
        // the hands of threads that only its parent has.
        generation = generation.next.get_or_init(|| {
            let next = Generation::default();
            // Nobody else has seen it yet.
            let _ = next.context.set((forks, first.for_forked_child()));
            Box::new(next)
        });
    }
}

/// The contexts of a process and of its children, and after how many forks each was made.
#[cfg(not(test))]
#[derive(Default)]
struct Generation {
    context: OnceLock<(u32, Context)>,
    next: OnceLock<Box<Self>>,
}

#[cfg(not(test))]
static FIRST: Generation = Generation {
    context: OnceLock::new(),
    next: OnceLock::new(),
};

/// The context of the process that used the library first.
#[cfg(not(test))]
fn first() -> &'static Context {
    static SHARED: OnceLock<Context> = OnceLock::new();
    let mut messages = None;
    let shared = SHARED.get_or_init(|| {
        let (context, said) = crate::log::observe(Context::global);
        messages = said;
        context
    });
    if let Some(messages) = messages {
        // Only now, because a log callback may call the library.
        crate::log::install(shared.config().log(), messages);
    }
    shared
}

/// In tests: nothing but this host, in a session and on ports of this process.
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
        // Whatever the user of this machine has.
        Context::with_security(
            config,
            Arc::new(Security::off(Vec::new()).expect("no policy of the system")),
        )
    });
    OTHER
        .with_borrow(Clone::clone)
        .unwrap_or_else(|| LOOPBACK.clone())
}

/// In tests: runs `body` with a context whose objects have this security configuration.
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
