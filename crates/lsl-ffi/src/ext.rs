//! Additions to liblsl's functions, all named `lslx_`: a descriptor or event for event loops, counters,
//! readers, flushing. Programs that must also run with liblsl look them up at run time.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use lsl_core::{ClockSuspect, InletState, Timeout};
use lsl_platform::signal::{IS_DESCRIPTOR, Signal};

use crate::context::context;
use crate::guard::{code, fail, guard};
use crate::handle::Handle;
use crate::inlet::InletObject;
use crate::memory::{Outcome, refuse, status};
use crate::turns::{Progress, in_turns};
use crate::{inlet, kept, outlet, strings};

/// Counters of an inlet; `lslx_inlet_stats_t`. Fields are only ever added at the end.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct InletStats {
    /// Bytes of the structure. The caller sets its size, the library the number of bytes filled.
    pub size: u32,
    pub reserved: u32,
    /// Number of samples received so far.
    pub samples: u64,
    /// Bytes received on the data connection.
    pub bytes: u64,
    /// Samples dropped because they were not pulled in time.
    pub dropped: u64,
    /// Number of reconnections of the data connection after a loss.
    pub reconnects: u64,
    /// Samples waiting to be pulled.
    pub available: u64,
    /// Bytes of channel data waiting to be pulled.
    pub available_bytes: u64,
    /// Seconds since the last sample came, or a later connection was opened; -1.0 before either.
    pub idle_seconds: f64,
    /// Connections that went on without a loss where the one before them broke.
    pub resumed: u64,
    /// Samples received that had been pushed before their connection was made.
    pub replayed: u64,
    /// Samples known to be missing.
    pub lost_exact: u64,
    /// Interruptions whose loss cannot be told.
    pub lost_unknown: u64,
    /// Numberings of samples met, the first included.
    pub generations: u64,
}

/// Health of an inlet; `lslx_inlet_health_t`. Fields are only ever added at the end.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct InletHealth {
    /// Bytes of the structure. The caller sets its size, the library the number of bytes filled.
    pub size: u32,
    /// State of the data connection, one of `lslx_inlet_state_t`.
    pub state: u32,
    /// Seconds since the last sample came, or a later connection was opened; -1.0 before the first sample.
    pub silent_seconds: f64,
    /// Seconds that the stream may be silent; -1.0 if that is not known.
    pub expected_seconds: f64,
    /// What is wrong with its stamps, one of `lslx_clock_suspect_t`.
    pub clock: u32,
    pub reserved: u32,
}

/// Counters of the searches of this process; `lslx_discovery_stats_t`. Fields are only ever added at the end.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct DiscoveryStats {
    /// Bytes of the structure. The caller sets its size, the library the number of bytes filled.
    pub size: u32,
    pub reserved: u32,
    /// Waves of queries that began.
    pub waves: u64,
    /// Datagrams with a query that left.
    pub queries: u64,
    /// Answers that counted.
    pub answers: u64,
    /// Datagrams that the system dropped for lack of room.
    pub overruns: u64,
    /// Ports that were asked over TCP.
    pub tcp_probes: u64,
    /// Answers of streams over TCP.
    pub tcp_found: u64,
    /// Changes of interfaces or addresses.
    pub interface_changes: u64,
    /// Outlets that were gone and were found again, or their successors.
    pub rescued: u64,
    /// Streams of which there are two that cannot be told apart.
    pub conflicts: u64,
}

/// Counters of an outlet; `lslx_outlet_stats_t`. Fields are only ever added at the end.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct OutletStats {
    /// Bytes of the structure. The caller sets its size, the library the number of bytes filled.
    pub size: u32,
    pub reserved: u32,
    /// Samples pushed, with or without readers.
    pub samples: u64,
    /// Bytes handed to the readers' sockets.
    pub bytes: u64,
    /// Samples dropped because a reader was too slow.
    pub dropped: u64,
    /// Number of readers that ever connected.
    pub consumers_seen: u64,
    /// Connections ended because the peer broke the protocol, stalled or requested something that is not
    /// there.
    pub refused: u64,
    /// Bytes of encoded samples waiting for slow readers.
    pub backlog_bytes: u64,
    /// Connections that went on where the one before them broke.
    pub resumed: u64,
    /// Samples sent again, or for the first time to readers that asked for the past.
    pub replayed: u64,
    /// Readers that had asked for too much of that, and began live.
    pub replay_refused: u64,
    /// Bytes that are retained.
    pub retained_bytes: u64,
    /// Samples that the program said were lost before they came here.
    pub skipped: u64,
}

/// One reader of an outlet; `lslx_consumer_t`. Of fixed size, since C has arrays of them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Consumer {
    /// Remote address of its connection, `address:port`, NUL-terminated.
    pub address: [c_char; ADDRESS_BYTES],
    /// Samples handed to its socket.
    pub sent: u64,
    /// Samples dropped because it was too slow.
    pub dropped: u64,
    /// Number of samples waiting for it.
    pub behind: u64,
    /// 1 if its connection is encrypted, else 0.
    pub encrypted: u32,
    pub reserved: [u32; 5],
}

/// Has searches ask one more host or network directly, see [`Context::add_known_peer`]. Returns 0 or an error code: -3
/// also for what is no UTF-8.
///
/// [`Context::add_known_peer`]: lsl_core::Context::add_known_peer
///
/// # Safety
/// `peer` is NULL (-3) or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lslx_add_known_peer(peer: *const c_char) -> i32 {
    status(|| {
        // SAFETY: the caller vouches for it.
        let peer = unsafe { strings::bytes(peer) }.unwrap_or_default();
        let no_text = |_| refuse(code::ARGUMENT, "a known peer is written in UTF-8");
        let peer = std::str::from_utf8(peer).map_err(no_text)?;
        let added = context().add_known_peer(peer);
        added.map_err(|error| fail(&error))
    })
}

/// Returns a file descriptor for `poll` and event loops, readable while samples wait in the inlet or the
/// stream is lost. The same on every call. Starts to connect, as a pull does.
///
/// When it is readable: pull until nothing is left, then call [`lslx_inlet_fd_clear`]. It may become
/// readable for samples pulled at that very moment. It must not be read, written or closed; it ends with
/// the inlet. Errors: -2 lost, -3 not an inlet, -4 out of descriptors, or Windows, where
/// [`lslx_inlet_handle`] is.
#[unsafe(no_mangle)]
pub extern "C" fn lslx_inlet_fd(inlet: Handle) -> i32 {
    counted(|| {
        let object = inlet::find(inlet)?;
        if !IS_DESCRIPTOR {
            let text = "on Windows an inlet has no descriptor: wait for lslx_inlet_handle's event";
            return Err(refuse(code::INTERNAL, text));
        }
        Ok(signal_of(&object)?.descriptor())
    })
}

/// Returns an event of Windows, set while [`lslx_inlet_fd`] would be readable, for
/// `WaitForMultipleObjects` and its like. The same on every call, and to be treated as the descriptor: it
/// must not be set, reset or closed. NULL with a text in `lsl_last_error` on failure and on other systems.
#[unsafe(no_mangle)]
pub extern "C" fn lslx_inlet_handle(inlet: Handle) -> *mut c_void {
    guard(ptr::null_mut(), || {
        let event = inlet::find(inlet).and_then(|object| {
            if IS_DESCRIPTOR {
                let text =
                    "an inlet has an event on Windows alone: poll lslx_inlet_fd's descriptor";
                return Err(refuse(code::INTERNAL, text));
            }
            Ok(signal_of(&object)?.handle())
        });
        event.unwrap_or(ptr::null_mut())
    })
}

/// Makes the descriptor of [`lslx_inlet_fd`], or the event of [`lslx_inlet_handle`], unreadable until there
/// is news, and returns 0. It stays readable, with 1, if samples wait (left over or just arrived) or the
/// stream is lost. Negative: an error.
#[unsafe(no_mangle)]
pub extern "C" fn lslx_inlet_fd_clear(inlet: Handle) -> i32 {
    counted(|| {
        let object = inlet::find(inlet)?;
        let Some(Some(signal)) = object.signal.get() else {
            let text = "the inlet has no descriptor or event yet";
            return Err(refuse(code::ARGUMENT, text));
        };
        // Clear first: an event after the look at the inlet raises it again by itself.
        signal.clear();
        let ready = object.inlet.is_ready();
        if ready {
            signal.raise();
        }
        Ok(i32::from(ready))
    })
}

/// Fills `stats`, whose `size` the caller has set, with the counters of the inlet. Returns 0, or an error
/// code (-3 for a size below 8).
///
/// # Safety
/// `stats` is NULL (-4) or points to a structure of at least the size it says, aligned to 8 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lslx_inlet_stats(inlet: Handle, stats: *mut InletStats) -> i32 {
    status(|| {
        let now = inlet::find(inlet)?.inlet.stats();
        let filled = InletStats {
            samples: now.samples,
            bytes: now.bytes,
            dropped: now.dropped,
            reconnects: now.reconnects,
            available: now.available as u64,
            available_bytes: now.available_bytes as u64,
            idle_seconds: now.idle_secs.unwrap_or(-1.0),
            resumed: now.resumed,
            replayed: now.replayed,
            lost_exact: now.lost_exact,
            lost_unknown: now.lost_unknown,
            generations: now.generations,
            ..InletStats::default()
        };
        // SAFETY: the caller vouches for it; both structures begin with their size.
        unsafe { give(filled, stats) }
    })
}

/// Fills `health`, whose `size` the caller has set, with how the inlet is doing. Returns 0, or an error code (-3
/// for a size below 8).
///
/// # Safety
/// `health` is NULL (-4) or points to a structure of at least the size it says, aligned to 8 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lslx_inlet_health(inlet: Handle, health: *mut InletHealth) -> i32 {
    status(|| {
        let now = inlet::find(inlet)?.inlet.health();
        let filled = InletHealth {
            state: state_number(now.state),
            silent_seconds: now.silent_secs.unwrap_or(-1.0),
            expected_seconds: now.expected_secs.unwrap_or(-1.0),
            clock: now.clock.map_or(0, suspect_number),
            ..InletHealth::default()
        };
        // SAFETY: the caller vouches for it; both structures begin with their size.
        unsafe { give(filled, health) }
    })
}

fn state_number(state: InletState) -> u32 {
    match state {
        InletState::Connecting => 0,
        InletState::Connected => 1,
        InletState::Suspect => 2,
        InletState::Searching => 3,
        InletState::Ambiguous => 4,
        InletState::Lost => 5,
        _ => u32::MAX,
    }
}

fn suspect_number(suspect: ClockSuspect) -> u32 {
    match suspect {
        ClockSuspect::Unix => 1,
        ClockSuspect::Foreign => 2,
        ClockSuspect::Future => 3,
        ClockSuspect::Drifting => 4,
        _ => u32::MAX,
    }
}

/// Fills `stats`, whose `size` the caller has set, with the counters of all searches of this process. Returns 0, or
/// an error code (-3 for a size below 8). Reads the configuration if nothing did before.
///
/// # Safety
/// `stats` is NULL (-4) or points to a structure of at least the size it says, aligned to 8 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lslx_discovery_stats(stats: *mut DiscoveryStats) -> i32 {
    status(|| {
        let now = context().discovery();
        let filled = DiscoveryStats {
            waves: now.waves,
            queries: now.queries,
            answers: now.answers,
            overruns: now.overruns,
            tcp_probes: now.tcp_probes,
            tcp_found: now.tcp_found,
            interface_changes: now.interface_changes,
            rescued: now.rescued,
            conflicts: now.conflicts,
            ..DiscoveryStats::default()
        };
        // SAFETY: the caller vouches for it; both structures begin with their size.
        unsafe { give(filled, stats) }
    })
}

/// Fills `stats`, whose `size` the caller has set, with the counters of the outlet. Returns 0, or an error
/// code (-3 for a size below 8).
///
/// # Safety
/// `stats` is NULL (-4) or points to a structure of at least the size it says, aligned to 8 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lslx_outlet_stats(out: Handle, stats: *mut OutletStats) -> i32 {
    status(|| {
        let now = outlet::find(out)?.outlet.stats();
        let filled = OutletStats {
            samples: now.samples,
            bytes: now.bytes,
            dropped: now.dropped,
            consumers_seen: now.consumers_seen,
            refused: now.refused,
            backlog_bytes: now.backlog_bytes,
            resumed: now.resumed,
            replayed: now.replayed,
            replay_refused: now.replay_refused,
            retained_bytes: now.retained_bytes,
            skipped: now.skipped,
            ..OutletStats::default()
        };
        // SAFETY: the caller vouches for it; both structures begin with their size.
        unsafe { give(filled, stats) }
    })
}

/// Lists the current readers of the outlet in at most `capacity` entries of `buffer`. Returns the number of
/// readers, which may be larger. Negative: an error.
///
/// # Safety
/// `buffer` is NULL (which is legal with a capacity of 0, else -4) or has room for `capacity` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lslx_outlet_consumers(
    out: Handle,
    buffer: *mut Consumer,
    capacity: u32,
) -> i32 {
    counted(|| {
        let consumers = outlet::find(out)?.outlet.consumers();
        if buffer.is_null() && capacity > 0 {
            return Err(refuse(code::INTERNAL, "an array is NULL"));
        }
        for (n, consumer) in consumers.iter().take(capacity as usize).enumerate() {
            let mut entry = Consumer {
                address: [0; ADDRESS_BYTES],
                sent: consumer.sent,
                dropped: consumer.dropped,
                behind: consumer.behind,
                encrypted: u32::from(consumer.encryption.is_some()),
                reserved: [0; 5],
            };
            let peer = consumer.peer.to_string();
            let room = entry.address.iter_mut().take(ADDRESS_BYTES - 1);
            for (place, byte) in room.zip(peer.bytes()) {
                *place = byte.cast_signed() as c_char;
            }
            // SAFETY: within the capacity that the caller vouches for.
            let place = unsafe { buffer.add(n) };
            // SAFETY: as above.
            unsafe { place.write_unaligned(entry) };
        }
        Ok(i32::try_from(consumers.len()).unwrap_or(i32::MAX))
    })
}

/// Sends everything pushed so far, held or not. Waits until every reader's socket has it (1) or `timeout`
/// seconds passed (0). Negative: an error. For programs that end right after their last push.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn lslx_outlet_flush(out: Handle, timeout: f64) -> i32 {
    in_turns(timeout, |turn| {
        guard(Progress::Break(code::INTERNAL), || {
            let object = match outlet::find(out) {
                Ok(object) => object,
                Err(code) if turn.is_first => return Progress::Break(code),
                // The outlet was destroyed during the wait.
                Err(_) => return Progress::Break(0),
            };
            if object.outlet.blocking().flush(turn.timeout()) {
                return Progress::Break(1);
            }
            turn.nothing(0)
        })
    })
}

/// Returns the number of calls on nodes or texts of destroyed infos that the library had dropped already.
/// It is 0 in a program that keeps its infos long enough. Spec: c-abi §5.6.
#[unsafe(no_mangle)]
pub extern "C" fn lslx_dropped_reads() -> i32 {
    guard(0, kept::dropped_reads)
}

/// Returns the signal of an inlet, created once, and begins to connect.
fn signal_of(object: &InletObject) -> Outcome<&Signal> {
    let signal = object.signal.get_or_init(|| {
        let signal = Arc::new(Signal::new().ok()?);
        let raise = Arc::clone(&signal);
        object.inlet.set_notifier(move || raise.raise());
        // For samples that came before there was a notifier.
        if object.inlet.is_ready() {
            signal.raise();
        }
        Some(signal)
    });
    // A timeout is expected, since this call does not wait, and a lost stream raises the signal.
    drop(object.inlet.blocking().open(Timeout::NOW));
    let signal = signal.as_deref();
    signal.ok_or_else(|| refuse(code::INTERNAL, "no descriptor or event is to be had"))
}

/// Runs a call that returns a number of at least 0, or an error code.
pub(crate) fn counted(body: impl FnOnce() -> Outcome<i32>) -> i32 {
    match guard(Err(code::INTERNAL), body) {
        Ok(number) | Err(number) => number,
    }
}

/// A structure that begins with its size in bytes.
trait Sized32: Copy {
    fn with_size(self, size: u32) -> Self;
}

impl Sized32 for InletStats {
    fn with_size(self, size: u32) -> Self {
        Self { size, ..self }
    }
}

impl Sized32 for InletHealth {
    fn with_size(self, size: u32) -> Self {
        Self { size, ..self }
    }
}

impl Sized32 for DiscoveryStats {
    fn with_size(self, size: u32) -> Self {
        Self { size, ..self }
    }
}

impl Sized32 for OutletStats {
    fn with_size(self, size: u32) -> Self {
        Self { size, ..self }
    }
}

/// Copies the part of a structure that both sides know.
///
/// # Safety
/// `place` is NULL or points to a structure whose first four bytes are its size, which it has.
unsafe fn give<T: Sized32>(filled: T, place: *mut T) -> Outcome<()> {
    if place.is_null() {
        return Err(refuse(code::INTERNAL, "the structure is NULL"));
    }
    // SAFETY: the caller vouches for it.
    let size = unsafe { place.cast::<u32>().read_unaligned() } as usize;
    if size < 8 {
        return Err(refuse(
            code::ARGUMENT,
            "the size of the structure is not set",
        ));
    }
    let common = size.min(size_of::<T>());
    let filled = filled.with_size(u32::try_from(common).unwrap_or(0));
    let bytes = (&raw const filled).cast::<u8>();
    // SAFETY: both have at least that many bytes; ours is on the stack.
    unsafe { ptr::copy_nonoverlapping(bytes, place.cast(), common) };
    Ok(())
}

/// Bytes of any IPv6 address with scope, port and NUL.
const ADDRESS_BYTES: usize = 64;

#[cfg(test)]
mod tests;
