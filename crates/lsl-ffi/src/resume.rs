//! Past, position and losses of a stream for C programs, all named `lslx_`. Spec: resume §6.

use std::ffi::c_char;

use lsl_core::{Generation, History, LostSamples, Position};

use crate::ext::counted;
use crate::guard::{code, fail};
use crate::handle::Handle;
use crate::memory::{refuse, status, store, with_slots};
use crate::{inlet, outlet, strings};

/// Samples that are missing; `lslx_gap_t`. Of fixed size, since C has arrays of them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Gap {
    /// Sequence number of the first missing sample; of the next sample if their number is unknown.
    pub sequence: u64,
    /// Number of missing samples; 0 if it is unknown.
    pub lost: u64,
    /// Timestamp of the sample before in seconds, as it was received; 0.0 if there was none.
    pub stamp_before: f64,
    /// 1 reader too slow, 2 lost before the relay, 3 lost by the device, 4 no longer retained, others unknown.
    pub reason: u32,
    pub reserved: u32,
}

impl From<LostSamples> for Gap {
    fn from(gap: LostSamples) -> Self {
        Self {
            sequence: gap.sequence,
            lost: gap.lost.unwrap_or(0),
            stamp_before: gap.stamp_before.unwrap_or(0.0),
            reason: gap.reason.code().into(),
            reserved: 0,
        }
    }
}

/// Has the inlet begin with the samples of so many seconds before it is opened, as far as the outlet has them;
/// -1.0: with all that it has. Returns 0, or an error code: -3 after the first call that needed the outlet.
#[unsafe(no_mangle)]
pub extern "C" fn lslx_inlet_history(inlet: Handle, seconds: f64) -> i32 {
    status(|| {
        let history = match seconds {
            -1.0 => History::Oldest,
            secs if secs >= 0.0 => History::Seconds(secs),
            _ => {
                let text = "the past is asked for in seconds, or by -1.0 for all of it";
                return Err(refuse(code::ARGUMENT, text));
            }
        };
        let asked = inlet::find(inlet)?.inlet.ask_history(history);
        asked.map_err(|error| fail(&error))
    })
}

/// Has the inlet begin where another one of the same stream ended: at what [`lslx_inlet_position`] said of that.
/// Returns 0, or an error code as [`lslx_inlet_history`].
///
/// # Safety
/// `generation` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lslx_inlet_resume_at(
    inlet: Handle,
    generation: *const c_char,
    next: u64,
) -> i32 {
    status(|| {
        // SAFETY: the caller vouches for it.
        let name = unsafe { strings::bytes(generation) }.unwrap_or_default();
        let generation = Generation::parse(name).ok_or_else(|| {
            let text = "a generation has 1 to 64 characters of 0-9, a-f and -";
            refuse(code::ARGUMENT, text)
        })?;
        let asked = (inlet::find(inlet)?.inlet).ask_from(Position { generation, next });
        asked.map_err(|error| fail(&error))
    })
}

/// Stores the number of the first sample that the inlet has not received yet, and the name of the numbering.
/// Returns 1, or 0 before the stream flows and if its samples have no numbers. Negative: an error code.
///
/// # Safety
/// `generation` is NULL (-4) or has room for 65 bytes; `next` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lslx_inlet_position(
    inlet: Handle,
    generation: *mut c_char,
    next: *mut u64,
) -> i32 {
    counted(|| {
        let position = inlet::find(inlet)?.inlet.position();
        // SAFETY: the caller vouches for it.
        let filled = unsafe {
            with_slots(generation, Generation::MAX_LEN + 1, |slots| {
                slots.fill(0);
                let name = position.as_ref().map_or("", |it| it.generation.as_str());
                for (slot, byte) in slots.iter_mut().zip(name.bytes()) {
                    *slot = byte.cast_signed() as c_char;
                }
                Ok(())
            })
        };
        filled?;
        // SAFETY: as above.
        unsafe { store(next, position.map_or(0, |position| position.next)) };
        Ok(i32::from(position.is_some()))
    })
}

/// Takes the oldest losses that nobody has taken yet, at most `capacity`, and returns their number. The inlet keeps
/// 1,024. Negative: an error code.
///
/// # Safety
/// `buffer` is NULL (which is legal with a capacity of 0, else -4) or has room for `capacity` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lslx_inlet_gaps(inlet: Handle, buffer: *mut Gap, capacity: u32) -> i32 {
    counted(|| {
        let object = inlet::find(inlet)?;
        if buffer.is_null() && capacity > 0 {
            return Err(refuse(code::INTERNAL, "an array is NULL"));
        }
        let gaps = object.inlet.take_gaps(capacity as usize);
        for (n, gap) in gaps.iter().enumerate() {
            let slot = buffer.wrapping_add(n);
            // SAFETY: within the capacity that the caller vouches for.
            unsafe { slot.write_unaligned((*gap).into()) };
        }
        Ok(i32::try_from(gaps.len()).unwrap_or(i32::MAX))
    })
}

/// Says that the device of the outlet lost so many samples before they could be pushed: readers of lsl-rs learn how
/// many, and others nothing. Returns 0, or an error code.
#[unsafe(no_mangle)]
pub extern "C" fn lslx_outlet_skip(out: Handle, samples: u64) -> i32 {
    status(|| {
        let skipped = outlet::find(out)?.outlet.skip(samples);
        skipped.map_err(|error| fail(&error))
    })
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use lsl_core::ChannelFormat;

    use super::*;
    use crate::inlet::lsl_destroy_inlet;
    use crate::inlet::pull::lsl_pull_sample_d;
    use crate::outlet::lsl_destroy_outlet;
    use crate::outlet::push::lsl_push_sample_d;
    use crate::testing::{self, SOON, last_error, no_handle};

    fn push(out: Handle, value: f64) {
        // SAFETY: one value.
        assert_eq!(unsafe { lsl_push_sample_d(out, &raw const value) }, 0);
    }

    fn pull(inlet: Handle) -> f64 {
        let mut value = 0.0;
        // SAFETY: room for one value.
        unsafe { lsl_pull_sample_d(inlet, &raw mut value, 1, SOON, ptr::null_mut()) };
        value
    }

    fn position(inlet: Handle) -> (i32, [c_char; 65], u64) {
        let (mut name, mut next) = ([1; 65], 7);
        // SAFETY: room for both.
        let known = unsafe { lslx_inlet_position(inlet, name.as_mut_ptr(), &raw mut next) };
        (known, name, next)
    }

    #[test]
    fn an_inlet_begins_with_the_past_and_another_goes_on_where_it_ended() {
        let out = testing::outlet("past", 1, 0.0, ChannelFormat::Double64);
        push(out, 1.0);
        push(out, 2.0);
        let first = testing::inlet("past", false);
        assert_eq!(lslx_inlet_history(first, -2.0), -3);
        assert_eq!(lslx_inlet_history(first, f64::NAN), -3);
        assert_eq!(lslx_inlet_history(first, -1.0), 0, "{}", last_error());
        assert_eq!(position(first), (0, [0; 65], 0));
        assert_eq!((pull(first), pull(first)), (1.0, 2.0));
        assert_eq!(lslx_inlet_history(first, 1.0), -3, "it was opened");
        let (known, name, next) = position(first);
        assert_eq!((known, next), (1, 2));
        lsl_destroy_inlet(first);
        push(out, 3.0);
        assert_eq!(lslx_outlet_skip(out, 4), 0);
        assert_eq!(lslx_outlet_skip(out, u64::MAX), -3);
        push(out, 8.0);
        let second = testing::inlet("past", false);
        // SAFETY: NULL, or a text.
        let resume_at = |name| unsafe { lslx_inlet_resume_at(second, name, next) };
        assert_eq!(resume_at(ptr::null()), -3);
        // SAFETY: a text.
        let too_far = unsafe { lslx_inlet_resume_at(second, name.as_ptr(), 1 << 63) };
        assert_eq!(too_far, -3);
        assert_eq!(resume_at(name.as_ptr()), 0);
        assert_eq!((pull(second), pull(second)), (3.0, 8.0));
        let none = Gap {
            sequence: 0,
            lost: 0,
            stamp_before: 0.0,
            reason: 0,
            reserved: 0,
        };
        let mut gaps = [none; 2];
        // SAFETY: NULL, or room for two.
        let lost = |inlet, buffer| unsafe { lslx_inlet_gaps(inlet, buffer, 2) };
        assert_eq!(lost(second, ptr::null_mut()), -4);
        assert_eq!(lost(second, gaps.as_mut_ptr()), 1);
        assert_eq!((gaps[0].sequence, gaps[0].lost, gaps[0].reason), (3, 4, 3));
        assert_eq!(lost(no_handle(), gaps.as_mut_ptr()), -3);
        lsl_destroy_inlet(second);
        lsl_destroy_outlet(out);
    }
}
