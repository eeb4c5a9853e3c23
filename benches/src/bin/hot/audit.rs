//! Handshakes and what a security log adds to them. Spec: audit §3.

use std::time::Duration;

use lsl_benches::handshake::Peers;
use lsl_core::secure::{Audit, Suites};

use crate::sealing::Fixed;
use crate::{Result, check};

/// What is done with the events of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Log {
    /// There are none.
    None,
    /// Nobody wants them.
    Off,
    /// They are written to a file.
    On,
}

/// Shakes hands, and records it on behalf of both sides.
pub(crate) fn handshakes(times: usize, log: Log) -> Result {
    let peers = Peers::new(Suites::Both);
    let path = std::env::temp_dir().join(format!("lsl-hot-{}.jsonl", std::process::id()));
    let audit = match log {
        Log::None | Log::Off => Audit::default(),
        Log::On => Audit::open(&path, 0)?,
    };
    for _ in 0..times {
        let (session, _) = peers.shake_hands(&mut Fixed(1), &mut Fixed(2))?;
        if log != Log::None {
            peers.record(&audit, &session);
        }
    }
    let is_written = audit.flush(Duration::from_mins(1)) && audit.dropped() == 0;
    check(is_written && (audit.writes() > 0) == (log == Log::On))?;
    drop(audit);
    if log == Log::On {
        std::fs::remove_file(path)?;
    }
    Ok(())
}
