//! The context of everything C makes: the process-wide one. In tests it is one that cannot leave this
//! host and meets no other program.

use lsl_core::Context;

/// What all objects of this library share: the process-wide configuration and its sockets. The first
/// call reads the configuration and starts the log.
#[cfg(not(test))]
pub(crate) fn context() -> Context {
    use std::sync::OnceLock;

    static SHARED: OnceLock<Context> = OnceLock::new();
    if let Some(shared) = SHARED.get() {
        return shared.clone();
    }
    let mut first = None;
    let shared = SHARED
        .get_or_init(|| {
            let (context, messages) = crate::log::observe(Context::global);
            first = messages;
            context
        })
        .clone();
    if let Some(messages) = first {
        // Only now, because a log callback may call the library.
        crate::log::install(shared.config().log(), messages);
    }
    shared
}

/// In tests: nothing but this host, in a session and on ports of this process.
#[cfg(test)]
pub(crate) fn context() -> Context {
    use lsl_core::config::Config;
    use std::sync::LazyLock;

    static LOOPBACK: LazyLock<Context> = LazyLock::new(|| {
        let mut config = Config::loopback();
        let process = std::process::id();
        config
            .set_session_id(&format!("lsl-ffi-{process}"))
            .expect("one line of text");
        let base = 24_000 + u16::try_from(process % 60).expect("small") * 400;
        config.set_ports(base, 399);
        config.set_multicast_port(base + 399);
        Context::new(config)
    });
    LOOPBACK.clone()
}
