//! Reports streams as they appear, change and vanish, without polling (async).
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::time::Duration;

use lsl_core::{ContinuousResolver, ResolverEvent, Result, Selector};

#[tokio::main(flavor = "current_thread")]
#[expect(
    clippy::disallowed_methods,
    reason = "the attribute enters the runtime of this program"
)]
async fn main() -> Result<()> {
    let resolver = ContinuousResolver::new(&Selector::all(), Duration::from_secs(5))?;
    println!("watching; start `send` or `markers` in another terminal");
    loop {
        match resolver.next_event().await {
            ResolverEvent::Appeared(info) => println!("+ {} ({})", info.name(), info.hostname()),
            ResolverEvent::Changed(info) => println!("* {} ({})", info.name(), info.hostname()),
            ResolverEvent::Lost(info) => println!("- {} ({})", info.name(), info.hostname()),
            other => println!("{other:?}"),
        }
    }
}
