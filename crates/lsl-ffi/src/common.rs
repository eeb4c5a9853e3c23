//! `lsl/common.h`: versions, clock, configuration, strings, last error. Spec: c-abi §4.

use lsl_core::Context;

/// What all objects of this library share: the process-wide configuration and its sockets. The first
/// call reads the configuration.
#[cfg(not(test))]
pub(crate) fn context() -> Context {
    Context::global()
}

/// In tests: nothing but this host, in a session and on a port of this process.
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
        let base = 20_000 + u16::try_from(process % 400).expect("small") * 100;
        config.set_ports(base, 50);
        config.set_multicast_port(base + 99);
        Context::new(config)
    });
    LOOPBACK.clone()
}
