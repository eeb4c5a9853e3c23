#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    clippy::many_single_char_names,
    reason = "small numbers that arrive exactly"
)]

use std::ffi::{c_char, c_ulong};
#[cfg(unix)]
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lsl_core::{FOREVER_SECS, InletState};

use super::pull::*;
use super::pull_text::*;
use super::*;
use crate::outlet::push::*;
use crate::outlet::push_text::*;
use crate::outlet::{
    lsl_create_outlet, lsl_destroy_outlet, lsl_get_info, lsl_have_consumers, lsl_wait_for_consumers,
};
use crate::streaminfo::{lsl_destroy_streaminfo, lsl_get_channel_count};
use crate::testing::{
    self, SOON, Stream, UNSET, last_error, no_handle, on_thread, outlet, take_text, until,
};

/// Pushes doubles, stamped 1.0, 2.0, ...
fn push(out: Handle, samples: &[&[f64]]) {
    let values = samples.concat();
    let stamps: Vec<f64> = (1..=samples.len()).map(|n| n as f64).collect();
    let count = values.len() as c_ulong;
    // SAFETY: that many values, and a timestamp for each sample.
    let code = unsafe { lsl_push_chunk_dtn(out, values.as_ptr(), count, stamps.as_ptr()) };
    assert_eq!(code, 0);
}

/// Pushes one sample of texts, stamped.
fn push_texts(out: Handle, texts: &[&[u8]], stamp: f64) {
    let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr().cast()).collect();
    let lengths: Vec<u32> = texts.iter().map(|text| text.len() as u32).collect();
    // SAFETY: as many texts as channels, with their lengths.
    let code = unsafe { lsl_push_sample_buftp(out, pointers.as_ptr(), lengths.as_ptr(), stamp, 1) };
    assert_eq!(code, 0);
}

fn available(inlet: Handle, samples: u32) {
    until("samples arrive", || lsl_samples_available(inlet) == samples);
}

/// Pulls into a buffer of `N` doubles. Returns timestamp, error code and buffer.
fn pull<const N: usize>(inlet: Handle, timeout: f64) -> (f64, i32, [f64; N]) {
    let (mut values, mut ec) = ([-7.0; N], UNSET);
    let count = i32::try_from(N).unwrap();
    // SAFETY: room for that many.
    let stamp =
        unsafe { lsl_pull_sample_d(inlet, values.as_mut_ptr(), count, timeout, &raw mut ec) };
    (stamp, ec, values)
}

/// Pulls a chunk into a buffer of `N` doubles. Returns values, error code, buffer and timestamps.
fn pull_chunk<const N: usize>(
    inlet: Handle,
    stamps: usize,
    timeout: f64,
) -> (c_ulong, i32, [f64; N], Vec<f64>) {
    let (mut values, mut times, mut ec) = ([-7.0; N], vec![-7.0; stamps], UNSET);
    let (data, place) = (values.as_mut_ptr(), times.as_mut_ptr());
    let (count, stamps) = (N as c_ulong, stamps as c_ulong);
    // SAFETY: room for that many of both.
    let pulled =
        unsafe { lsl_pull_chunk_d(inlet, data, place, count, stamps, timeout, &raw mut ec) };
    (pulled, ec, values, times)
}

/// Checks both pull functions of a numeric type, also with buffers of the wrong size.
macro_rules! check_numeric {
    ($c:ty: $sample:ident $chunk:ident) => {{
        let name = stringify!($chunk);
        let stream = Stream::new(name, 2, 0.0, ChannelFormat::Int8);
        let inlet = stream.inlet;
        let mut values = [9 as $c; 4];
        let mut stamps = [9.0; 2];
        let mut ec = UNSET;
        let (data, times, code) = (values.as_mut_ptr(), stamps.as_mut_ptr(), &raw mut ec);
        // SAFETY: a local variable.
        let taken = || unsafe { code.replace(UNSET) };
        // Without a sample a wrong count is no error, and nothing is written.
        for count in [2, 1, 3, 0, -1] {
            // SAFETY: as above.
            let stamp = unsafe { $sample(inlet, data, count, 0.0, code) };
            assert_eq!((stamp.to_bits(), taken()), (0, 0), "{name}");
        }
        push(
            stream.out,
            &[
                &[1.0, 2.0],
                &[3.0, 4.0],
                &[5.0, 6.0],
                &[7.0, 8.0],
                &[0.0; 2],
            ],
        );
        available(inlet, 5);
        // The refused sample is gone.
        // SAFETY: as above.
        let stamp = unsafe { $sample(inlet, data, 3, SOON, code) };
        assert_eq!((stamp.to_bits(), taken()), (0, -3), "{name}");
        // SAFETY: as above.
        let stamp = unsafe { $sample(inlet, data, 2, SOON, code) };
        assert_eq!((stamp.to_bits(), taken()), (2.0_f64.to_bits(), 0));
        assert_eq!(values, [3 as $c, 4 as $c, 9 as $c, 9 as $c], "{name}");
        // Sizes of chunks are internal errors, and take nothing.
        for (count, stamps) in [(3, 2), (1, 1), (4, 1), (4, 3), (2, 2)] {
            // SAFETY: as above.
            let pulled = unsafe { $chunk(inlet, data, times, count, stamps, SOON, code) };
            assert_eq!((pulled, taken()), (0, -4), "{name}");
        }
        // SAFETY: NULL is refused.
        let pulled = unsafe { $chunk(inlet, ptr::null_mut(), times, 4, 2, SOON, code) };
        assert_eq!((pulled, taken()), (0, -4), "{name}");
        // SAFETY: NULL for nothing.
        let pulled = unsafe { $chunk(inlet, ptr::null_mut(), ptr::null_mut(), 0, 5, SOON, code) };
        assert_eq!((pulled, taken()), (0, 0), "{name}");
        assert_eq!(lsl_samples_available(inlet), 3);
        // SAFETY: as above.
        let pulled = unsafe { $chunk(inlet, data, times, 4, 2, SOON, code) };
        assert_eq!((pulled, taken()), (4, 0), "{name}");
        assert_eq!(values, [5 as $c, 6 as $c, 7 as $c, 8 as $c], "{name}");
        assert_eq!(stamps, [3.0, 4.0], "{name}");
        // Without timestamps their number does not matter; only slots of samples are written.
        // SAFETY: as above.
        let pulled = unsafe { $chunk(inlet, data, ptr::null_mut(), 4, 77, 0.0, ptr::null_mut()) };
        assert_eq!(pulled, 2, "{name}");
        assert_eq!(values, [0 as $c, 0 as $c, 7 as $c, 8 as $c], "{name}");
        for handle in [ptr::null_mut(), no_handle(), stream.out] {
            // SAFETY: as above.
            let stamp = unsafe { $sample(handle, data, 2, SOON, code) };
            assert_eq!((stamp.to_bits(), taken()), (0, -3), "{name}");
            // SAFETY: as above.
            let pulled = unsafe { $chunk(handle, data, times, 4, 2, SOON, code) };
            assert_eq!((pulled, taken()), (0, -3), "{name}");
        }
    }};
}

#[test]
fn all_numeric_pull_functions() {
    check_numeric!(f32: lsl_pull_sample_f lsl_pull_chunk_f);
    check_numeric!(f64: lsl_pull_sample_d lsl_pull_chunk_d);
    check_numeric!(i64: lsl_pull_sample_l lsl_pull_chunk_l);
    check_numeric!(i32: lsl_pull_sample_i lsl_pull_chunk_i);
    check_numeric!(i16: lsl_pull_sample_s lsl_pull_chunk_s);
    check_numeric!(c_char: lsl_pull_sample_c lsl_pull_chunk_c);
}

#[test]
fn raw_pulls() {
    let stream = Stream::new("raw-pull", 2, 0.0, ChannelFormat::Int16);
    let mut values = [0_i16; 4];
    let pull = |inlet, data: *mut i16, bytes| {
        let mut ec = UNSET;
        // SAFETY: eight bytes of room.
        let stamp = unsafe { lsl_pull_sample_v(inlet, data.cast(), bytes, 0.0, &raw mut ec) };
        (stamp, ec)
    };
    let data = values.as_mut_ptr();
    assert_eq!(pull(stream.inlet, data, 5), (0.0, 0));
    push(stream.out, &[&[1.0, 2.0], &[3.0, 4.0]]);
    available(stream.inlet, 2);
    assert_eq!(pull(stream.inlet, data, 2), (0.0, -3));
    assert_eq!(pull(stream.inlet, data, 4), (2.0, 0));
    assert_eq!(values, [3, 4, 0, 0]);
    let text = Stream::new("raw-pull-text", 1, 0.0, ChannelFormat::String);
    let data = values.as_mut_ptr();
    assert_eq!(pull(text.inlet, data, 0), (0.0, -3));
    assert_eq!(pull(text.out, data, 0), (0.0, -3));
}

#[test]
fn texts_of_samples() {
    let stream = Stream::new("texts", 2, 0.0, ChannelFormat::String);
    let untouched: *mut c_char = ptr::without_provenance_mut(7);
    let (mut slots, mut lengths, mut ec) = ([untouched; 3], [7_u32; 3], UNSET);
    let code = &raw mut ec;
    // SAFETY: room for three of both.
    let mut str = |count, timeout| {
        // SAFETY: as above.
        let stamp =
            unsafe { lsl_pull_sample_str(stream.inlet, slots.as_mut_ptr(), count, timeout, code) };
        // SAFETY: a local variable.
        (stamp, unsafe { code.replace(UNSET) }, slots)
    };
    // Without a sample nothing is written and no count is wrong.
    for count in [2, 3, 1, 0, -1] {
        assert_eq!(str(count, 0.0), (0.0, 0, [untouched; 3]));
    }
    push_texts(stream.out, &[b"one", b"two"], 1.0);
    push_texts(stream.out, &[b"a\0b", b""], 2.0);
    push_texts(stream.out, &[b"a\0b", b""], 3.0);
    available(stream.inlet, 3);
    assert_eq!(str(1, SOON), (0.0, -3, [untouched; 3]));
    let (stamp, ec, [first, second, third]) = str(3, SOON);
    assert_eq!((stamp, ec, third), (2.0, 0, untouched));
    assert_eq!(
        (take_text(first), take_text(second)),
        (b"a".to_vec(), vec![])
    );
    let mut slots = [untouched; 3];
    // SAFETY: as above.
    let stamp = unsafe {
        lsl_pull_sample_buf(
            stream.inlet,
            slots.as_mut_ptr(),
            lengths.as_mut_ptr(),
            3,
            SOON,
            ptr::null_mut(),
        )
    };
    assert_eq!((stamp.to_bits(), lengths), (3.0_f64.to_bits(), [3, 0, 7]));
    // SAFETY: a text of three bytes.
    let text = unsafe { std::slice::from_raw_parts(slots[0].cast::<u8>(), 4) };
    assert_eq!(text, b"a\0b\0");
    assert_eq!(
        (take_text(slots[0]), take_text(slots[1])),
        (b"a".to_vec(), vec![])
    );
}

#[test]
fn texts_of_chunks() {
    let stream = Stream::new("text-chunks", 2, 0.0, ChannelFormat::String);
    let untouched: *mut c_char = ptr::without_provenance_mut(7);
    // SAFETY: room for four of both.
    let pull = |slots: &mut [*mut c_char; 4], lengths: *mut u32, count, timeout| {
        let (slots, mut ec) = (slots.as_mut_ptr(), UNSET);
        let (none, code) = (ptr::null_mut(), &raw mut ec);
        let pulled = if lengths.is_null() {
            // SAFETY: as above.
            unsafe { lsl_pull_chunk_str(stream.inlet, slots, none, count, 0, timeout, code) }
        } else {
            // SAFETY: as above.
            unsafe {
                lsl_pull_chunk_buf(stream.inlet, slots, lengths, none, count, 0, timeout, code)
            }
        };
        (pulled, ec)
    };
    let none = ptr::null_mut();
    // All slots are written on success, even without samples ...
    let (mut slots, mut lengths) = ([untouched; 4], [7; 4]);
    assert_eq!(pull(&mut slots, none, 4, 0.0), (0, 0));
    assert_eq!(slots, [none.cast(); 4]);
    slots = [untouched; 4];
    assert_eq!(pull(&mut slots, lengths.as_mut_ptr(), 4, 0.0), (0, 0));
    assert_eq!((slots, lengths), ([none.cast(); 4], [0; 4]));
    // ... and none on an error.
    (slots, lengths) = ([untouched; 4], [7; 4]);
    assert_eq!(pull(&mut slots, lengths.as_mut_ptr(), 3, 0.0), (0, -4));
    assert_eq!(pull(&mut slots, none, 1, 0.0), (0, -4));
    assert_eq!(pull(&mut slots, none, 0, 0.0), (0, 0));
    assert_eq!((slots, lengths), ([untouched; 4], [7; 4]));

    push_texts(stream.out, &[b"a\0b", b""], 1.0);
    available(stream.inlet, 1);
    assert_eq!(pull(&mut slots, lengths.as_mut_ptr(), 4, 0.0), (2, 0));
    assert_eq!(
        (&slots[2..], lengths),
        (&[none.cast(); 2][..], [3, 0, 0, 0])
    );
    assert_eq!(
        (take_text(slots[0]), take_text(slots[1])),
        (b"a".to_vec(), vec![])
    );
    push_texts(stream.out, &[b"c", b"d"], 2.0);
    push_texts(stream.out, &[b"e", b"f"], 3.0);
    assert_eq!(pull(&mut slots, none, 4, SOON), (4, 0));
    assert_eq!(slots.map(take_text), [b"c", b"d", b"e", b"f"]);

    // Of a stream of numbers, too.
    let numbers = Stream::new("number-chunks", 1, 0.0, ChannelFormat::Int32);
    push(numbers.out, &[&[-12.0]]);
    let (mut slots, mut stamp, mut ec) = ([untouched; 1], [0.0], UNSET);
    let (data, times) = (slots.as_mut_ptr(), stamp.as_mut_ptr());
    // SAFETY: room for one of both.
    let pulled = unsafe { lsl_pull_chunk_str(numbers.inlet, data, times, 1, 1, SOON, &raw mut ec) };
    assert_eq!((pulled, ec, stamp), (1, 0, [1.0]));
    assert_eq!(slots.map(take_text), [b"-12"]);
}

#[test]
fn chunks_wait_until_full_or_until_the_deadline() {
    let stream = Stream::new("full", 1, 0.0, ChannelFormat::Double64);
    push(stream.out, &[&[1.0], &[2.0]]);
    available(stream.inlet, 2);
    let start = lsl_core::local_clock();
    let (pulled, ec, values, stamps) = pull_chunk::<4>(stream.inlet, 4, 0.2);
    assert!(lsl_core::local_clock() - start >= 0.2);
    assert_eq!((pulled, ec), (2, 0));
    assert_eq!(
        (values, stamps),
        ([1.0, 2.0, -7.0, -7.0], vec![1.0, 2.0, -7.0, -7.0])
    );
    // Full before the deadline.
    let waiting = on_thread(stream.inlet, |inlet| {
        pull_chunk::<3>(inlet, 3, FOREVER_SECS)
    });
    for _ in 0..3 {
        push(stream.out, &[&[5.0]]);
        thread::sleep(Duration::from_millis(2));
    }
    let (pulled, ec, values, _) = waiting.join().unwrap();
    assert_eq!((pulled, ec, values), (3, 0, [5.0; 3]));
    // Not even one: 0.0, negative, NaN and tiny timeouts return at once.
    for timeout in [0.0, -1.0, f64::NAN, 1e-6] {
        assert_eq!(pull_chunk::<1>(stream.inlet, 1, timeout).0, 0, "{timeout}");
        assert_eq!(
            pull::<1>(stream.inlet, timeout),
            (0.0, 0, [-7.0]),
            "{timeout}"
        );
    }
}

#[test]
fn a_pull_that_waits_gets_the_sample() {
    for timeout in [FOREVER_SECS, f64::INFINITY, 1e10, SOON] {
        let stream = Stream::new("waits", 1, 0.0, ChannelFormat::Double64);
        let waiting = on_thread(stream.inlet, move |inlet| pull::<1>(inlet, timeout));
        push(stream.out, &[&[3.0]]);
        assert_eq!(waiting.join().unwrap(), (1.0, 0, [3.0]), "{timeout}");
    }
}

#[test]
fn a_stamp_of_zero_is_in_band() {
    let stream = Stream::new("zero", 1, 0.0, ChannelFormat::Double64);
    // Deduced on a fresh connection of an irregular stream.
    // SAFETY: one value.
    unsafe { lsl_push_sample_dt(stream.out, &8.0, -1.0) };
    available(stream.inlet, 1);
    assert_eq!(pull::<1>(stream.inlet, SOON), (0.0, 0, [8.0]));
}

#[test]
fn the_first_pull_opens() {
    let out = outlet("implicit", 1, 0.0, ChannelFormat::Double64);
    let inlet = testing::inlet("implicit", true);
    assert_eq!(
        (lsl_samples_available(inlet), lsl_inlet_flush(inlet)),
        (0, 0)
    );
    assert_eq!(lsl_have_consumers(out), 0);
    assert_eq!(pull::<1>(inlet, 0.0), (0.0, 0, [-7.0]));
    assert_eq!(lsl_wait_for_consumers(out, SOON), 1);
    push(out, &[&[1.0], &[2.0]]);
    assert_eq!(pull::<1>(inlet, SOON), (1.0, 0, [1.0]));
    available(inlet, 1);
    assert_eq!(
        (lsl_inlet_flush(inlet), lsl_samples_available(inlet)),
        (1, 0)
    );
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(out);
}

#[test]
fn a_closed_stream_can_be_opened_again() {
    let stream = Stream::new("reopened", 1, 0.0, ChannelFormat::Double64);
    push(stream.out, &[&[1.0], &[2.0]]);
    available(stream.inlet, 2);
    lsl_close_stream(stream.inlet);
    assert_eq!(lsl_samples_available(stream.inlet), 0);
    until("the consumer left", || lsl_have_consumers(stream.out) == 0);
    testing::open(stream.inlet);
    assert_eq!(lsl_wait_for_consumers(stream.out, SOON), 1);
    push(stream.out, &[&[3.0]]);
    assert_eq!(pull::<1>(stream.inlet, SOON), (1.0, 0, [3.0]));
    for handle in [ptr::null_mut(), no_handle(), stream.out] {
        lsl_close_stream(handle);
    }
}

#[test]
fn creation_is_refused_with_a_text() {
    let info = testing::info("inlet-refused", 1, 0.0, ChannelFormat::Int8);
    let blank = testing::info("inlet-blank", 0, 0.0, ChannelFormat::Int8);
    let undefined = testing::info("inlet-undefined", 1, 0.0, ChannelFormat::Undefined);
    let refused = [
        (
            info,
            -1,
            0,
            "The max_chunklen argument must not be smaller than 0.",
        ),
        (
            info,
            0,
            3,
            "transp_bufsize_samples and transp_bufsize_thousandths are mutually exclusive",
        ),
        (blank, 0, 0, "constructed (instead of resolved) stream_info"),
        (
            undefined,
            0,
            0,
            "constructed (instead of resolved) stream_info",
        ),
        (ptr::null_mut(), 0, 0, "this is not a stream info"),
    ];
    for (info, max_chunk, flags, reason) in refused {
        assert!(lsl_create_inlet_ex(info, 360, max_chunk, 1, flags).is_null());
        assert!(last_error().contains(reason), "{}", last_error());
    }
    // Flag 4 and unknown ones are ignored.
    let inlet = lsl_create_inlet_ex(info, -1, 5, 0, 4 + 64);
    assert!(!inlet.is_null());
    lsl_destroy_inlet(inlet);
    for info in [info, blank, undefined] {
        lsl_destroy_streaminfo(info);
    }
}

/// Returns the error codes of all calls that report one, with no time to wait.
fn all_codes(inlet: Handle) -> [i32; 6] {
    let mut ec = [UNSET; 6];
    let [a, b, c, d, e, f] = ec.each_mut().map(|place| &raw mut *place);
    let (mut value, mut text) = (0.0, ptr::null_mut());
    let value = &raw mut value;
    // SAFETY: all pointers are to local variables, good for one value.
    unsafe { lsl_open_stream(inlet, 0.0, a) };
    // SAFETY: as above.
    unsafe { lsl_time_correction(inlet, f64::NAN, b) };
    // SAFETY: as above.
    unsafe { lsl_time_correction_ex(inlet, value, value, -1.0, c) };
    // SAFETY: as above.
    unsafe { lsl_get_fullinfo(inlet, 0.0, d) };
    // SAFETY: as above.
    unsafe { lsl_pull_sample_d(inlet, value, 1, 0.0, e) };
    // SAFETY: as above.
    unsafe { lsl_pull_sample_str(inlet, &raw mut text, 1, 0.0, f) };
    ec
}

#[test]
fn codes_before_during_and_after_a_stream() {
    // This stream has no outlet.
    let info = testing::info("nobody", 1, 0.0, ChannelFormat::Int8);
    let inlet = lsl_create_inlet(info, 360, 0, 1);
    assert_eq!(all_codes(inlet), [-1, -1, -1, -1, 0, 0]);
    let mut ec = UNSET;
    for timeout in [0.01, f64::NAN, -3.0] {
        // SAFETY: a local variable.
        unsafe { lsl_open_stream(inlet, timeout, &raw mut ec) };
        assert_eq!(
            (ec, last_error()),
            (-1, "The open_stream() operation timed out.".into())
        );
    }
    // SAFETY: a local variable.
    assert!(unsafe { lsl_get_fullinfo(inlet, 0.01, &raw mut ec) }.is_null());
    assert_eq!(
        (ec, last_error()),
        (-1, "The info() operation timed out.".into())
    );
    // SAFETY: NULL is allowed.
    unsafe { lsl_time_correction(inlet, 0.01, ptr::null_mut()) };
    assert_eq!(last_error(), "The time_correction() operation timed out.");
    lsl_destroy_inlet(inlet);
    lsl_destroy_streaminfo(info);
    // Destroyed, made up, of another kind.
    for handle in [inlet, ptr::null_mut(), no_handle()] {
        assert_eq!(all_codes(handle), [-3; 6]);
        assert_eq!(lsl_set_postprocessing(handle, 15), -3);
        assert_eq!(lsl_smoothing_halftime(handle, 1.0), -3);
        assert_eq!(lsl_samples_available(handle), 0);
        assert_eq!(lsl_inlet_flush(handle), 0);
        assert_eq!(lsl_was_clock_reset(handle), 0);
        lsl_destroy_inlet(handle);
    }

    // Lost, with samples still there.
    let out = outlet("lost", 1, 0.0, ChannelFormat::Double64);
    let inlet = testing::inlet("lost", false);
    testing::open(inlet);
    push(out, &[&[1.0], &[2.0]]);
    available(inlet, 2);
    let blocked = on_thread(inlet, |inlet| pull_chunk::<9>(inlet, 9, FOREVER_SECS));
    until("the samples are taken", || {
        lsl_samples_available(inlet) == 0
    });
    lsl_destroy_outlet(out);
    // Values pulled before are delivered first; liblsl drops them.
    let (pulled, ec, ..) = blocked.join().unwrap();
    assert_eq!((pulled, ec), (2, 0));
    until("the loss is known", || all_codes(inlet) == [-2; 6]);
    assert_eq!(pull_chunk::<9>(inlet, 9, FOREVER_SECS).1, -2);
    assert!(last_error().contains("has been lost"));
    assert_eq!(
        (
            lsl_samples_available(inlet),
            lsl_set_postprocessing(inlet, 0)
        ),
        (0, 0)
    );
    lsl_destroy_inlet(inlet);
}

#[test]
fn a_blocked_pull_wakes_when_the_stream_is_lost() {
    let out = outlet("lost-blocked", 1, 0.0, ChannelFormat::Double64);
    let inlet = testing::inlet("lost-blocked", false);
    testing::open(inlet);
    let blocked = on_thread(inlet, |inlet| pull::<1>(inlet, FOREVER_SECS));
    thread::sleep(Duration::from_millis(20));
    lsl_destroy_outlet(out);
    assert_eq!(blocked.join().unwrap(), (0.0, -2, [-7.0]));
    lsl_destroy_inlet(inlet);
}

#[test]
fn closing_ends_an_open_of_another_thread() {
    // This stream has no outlet.
    let info = testing::info("closed-nobody", 1, 0.0, ChannelFormat::Int8);
    let inlet = lsl_create_inlet(info, 360, 0, 1);
    lsl_destroy_streaminfo(info);
    let opening = on_thread(inlet, |inlet| {
        let mut ec = UNSET;
        // SAFETY: a local variable.
        unsafe { lsl_open_stream(inlet, FOREVER_SECS, &raw mut ec) };
        (ec, last_error())
    });
    until("it is looked for", || {
        find(inlet).unwrap().inlet.health().state == InletState::Searching
    });
    // Into its second turn.
    thread::sleep(Duration::from_millis(1100));
    assert!(!opening.is_finished());
    lsl_close_stream(inlet);
    let text = "The open_stream() operation was interrupted by close_stream().";
    assert_eq!(opening.join().unwrap(), (code::TIMEOUT, text.into()));
    lsl_destroy_inlet(inlet);
}

#[test]
fn closed_under_a_pull_a_stream_stays_closed() {
    let stream = Stream::new("closed", 1, 0.0, ChannelFormat::Double64);
    push(stream.out, &[&[1.0]]);
    available(stream.inlet, 1);
    // Longer than a turn.
    let pulling = on_thread(stream.inlet, |inlet| pull_chunk::<2>(inlet, 2, 1.5));
    available(stream.inlet, 0);
    lsl_close_stream(stream.inlet);
    let is_read = || lsl_have_consumers(stream.out) == 1;
    until("the outlet has no reader", || !is_read());
    let (pulled, ec, ..) = pulling.join().unwrap();
    assert_eq!((pulled, ec, is_read()), (1, 0, false));
    // The next call connects.
    pull::<1>(stream.inlet, 0.0);
    until("the outlet has a reader", is_read);
    push(stream.out, &[&[2.0]]);
    assert_eq!(pull::<1>(stream.inlet, SOON), (1.0, 0, [2.0]));
}

#[test]
fn destroying_wakes_every_blocked_call() {
    let calls: [fn(Handle) -> i32; 6] = [
        |inlet| pull::<1>(inlet, FOREVER_SECS).1,
        |inlet| pull::<5>(inlet, FOREVER_SECS).1,
        |inlet| pull_chunk::<5>(inlet, 5, FOREVER_SECS).1,
        |inlet| {
            let mut ec = UNSET;
            // SAFETY: a local variable.
            unsafe { lsl_open_stream(inlet, FOREVER_SECS, &raw mut ec) };
            ec
        },
        |inlet| {
            let mut ec = UNSET;
            // SAFETY: a local variable.
            unsafe { lsl_time_correction(inlet, FOREVER_SECS, &raw mut ec) };
            ec
        },
        |inlet| {
            let mut ec = UNSET;
            // SAFETY: a local variable.
            unsafe { lsl_get_fullinfo(inlet, FOREVER_SECS, &raw mut ec) };
            ec
        },
    ];
    // This stream has no outlet: all calls wait for ever.
    let info = testing::info("blocked-nobody", 1, 0.0, ChannelFormat::Int8);
    for pause in [0, 1, 5, 20] {
        let inlet = lsl_create_inlet(info, 360, 0, 1);
        let blocked = calls.map(|call| on_thread(inlet, call));
        thread::sleep(Duration::from_millis(pause));
        lsl_destroy_inlet(inlet);
        lsl_destroy_inlet(inlet);
        for call in blocked {
            // A call that came too late finds no inlet.
            let code = call.join().unwrap();
            assert!(code == -2 || code == -3, "{code}");
        }
    }
    lsl_destroy_streaminfo(info);
    // With a connection, too.
    let stream = Stream::new("blocked", 1, 0.0, ChannelFormat::Int8);
    let blocked = on_thread(stream.inlet, |inlet| pull::<1>(inlet, FOREVER_SECS));
    thread::sleep(Duration::from_millis(20));
    lsl_destroy_inlet(stream.inlet);
    assert_eq!(blocked.join().unwrap().1, -2);
}

#[test]
fn time_and_info_of_a_stream() {
    let stream = Stream::new("time", 3, 0.0, ChannelFormat::Int8);
    let (mut remote, mut uncertainty, mut ec) = (0.0, -1.0, UNSET);
    let none: *mut f64 = ptr::null_mut();
    let code = &raw mut ec;
    // SAFETY: local variables, or NULL.
    let offset = unsafe {
        lsl_time_correction_ex(
            stream.inlet,
            &raw mut remote,
            &raw mut uncertainty,
            SOON,
            code,
        )
    };
    // SAFETY: as above.
    assert_eq!(unsafe { code.replace(UNSET) }, 0);
    assert!(offset.abs() < 0.1 && remote > 0.0 && (0.0..1.0).contains(&uncertainty));
    // SAFETY: as above.
    unsafe { lsl_time_correction_ex(stream.inlet, none, none, 0.0, code) };
    // SAFETY: as above.
    assert_eq!(unsafe { code.replace(UNSET) }, 0);
    // SAFETY: as above.
    let again = unsafe { lsl_time_correction(stream.inlet, 0.0, code) };
    // SAFETY: as above.
    assert_eq!(unsafe { code.replace(UNSET) }, 0);
    assert!(again.abs() < 0.1);
    assert_eq!(lsl_was_clock_reset(stream.inlet), 0);
    // SAFETY: as above.
    let info = unsafe { lsl_get_fullinfo(stream.inlet, SOON, code) };
    // SAFETY: as above.
    assert_eq!(unsafe { code.replace(UNSET) }, 0);
    assert_eq!(lsl_get_channel_count(info), 3);
    lsl_destroy_streaminfo(info);
}

#[test]
fn post_processing_is_accepted_as_it_comes() {
    let stream = Stream::new("processed", 1, 100.0, ChannelFormat::Double64);
    for flags in [0, 1, 2, 15, 16, u32::MAX, 4] {
        assert_eq!(lsl_set_postprocessing(stream.inlet, flags), 0);
    }
    for value in [90.0, 0.0, -1.0, f32::NAN] {
        assert_eq!(lsl_smoothing_halftime(stream.inlet, value), 0);
    }
    // 4 is the last one set: never backwards.
    for stamp in [5.0, 4.0, 6.0] {
        // SAFETY: one value.
        unsafe { lsl_push_sample_dt(stream.out, &0.0, stamp) };
    }
    assert_eq!(pull_chunk::<3>(stream.inlet, 3, SOON).3, [5.0, 5.0, 6.0]);
    // With clock synchronisation the first pull measures.
    lsl_set_postprocessing(stream.inlet, 1);
    let now = lsl_core::local_clock();
    // SAFETY: one value.
    unsafe { lsl_push_sample_dt(stream.out, &0.0, now) };
    let (stamp, ec, _) = pull::<1>(stream.inlet, SOON);
    assert!(ec == 0 && (stamp - now).abs() < 0.1, "{stamp} {now}");
}

#[test]
fn a_stream_is_recovered_from_another_outlet() {
    let first = outlet("recovered", 1, 0.0, ChannelFormat::Double64);
    let inlet = testing::inlet("recovered", true);
    testing::open(inlet);
    push(first, &[&[1.0], &[2.0]]);
    available(inlet, 2);
    lsl_destroy_outlet(first);
    assert_eq!(pull::<1>(inlet, SOON), (1.0, 0, [1.0]));
    assert_eq!(pull::<1>(inlet, SOON), (2.0, 0, [2.0]));
    assert_eq!(pull::<1>(inlet, 0.01), (0.0, 0, [-7.0]));
    let second = outlet("recovered", 1, 0.0, ChannelFormat::Double64);
    assert_eq!(lsl_wait_for_consumers(second, SOON), 1);
    push(second, &[&[3.0]]);
    assert_eq!(pull::<1>(inlet, SOON), (1.0, 0, [3.0]));
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(second);
}

#[test]
fn an_outlet_s_own_info_makes_an_inlet() {
    let info = testing::info("own", 1, 0.0, ChannelFormat::Double64);
    let out = lsl_create_outlet(info, 0, 360);
    let own = lsl_get_info(out);
    let inlet = lsl_create_inlet(own, 360, 0, 1);
    lsl_destroy_streaminfo(own);
    lsl_destroy_streaminfo(info);
    testing::open(inlet);
    push(out, &[&[1.0]]);
    assert_eq!(pull::<1>(inlet, SOON), (1.0, 0, [1.0]));
    lsl_destroy_outlet(out);
    lsl_destroy_inlet(inlet);
}

/// Checks in a forked child the objects of its parent. Returns 0, or the number of the check that failed.
#[cfg(unix)]
fn as_child(stream: &Stream) -> i32 {
    let mut value = [0.0];
    let mut ec = UNSET;
    // SAFETY: one value.
    if unsafe { lsl_push_sample_d(stream.out, value.as_ptr()) } != code::INTERNAL {
        return 1;
    }
    if lsl_have_consumers(stream.out) != 0 || lsl_wait_for_consumers(stream.out, SOON) != 0 {
        return 2;
    }
    // SAFETY: room for one value.
    unsafe { lsl_pull_sample_d(stream.inlet, value.as_mut_ptr(), 1, SOON, &raw mut ec) };
    if ec != code::LOST {
        return 3;
    }
    // SAFETY: a local variable.
    unsafe { lsl_open_stream(stream.inlet, SOON, &raw mut ec) };
    if ec != code::LOST || lsl_samples_available(stream.inlet) != 0 {
        return 4;
    }
    lsl_destroy_inlet(stream.inlet);
    lsl_destroy_outlet(stream.out);
    // SAFETY: a local variable.
    unsafe { lsl_open_stream(stream.inlet, SOON, &raw mut ec) };
    if ec == code::ARGUMENT { 0 } else { 5 }
}

#[cfg(unix)]
#[test]
fn a_forked_child_leaves_its_parent_s_objects_alone() {
    let stream = Stream::new("forked", 1, 0.0, ChannelFormat::Double64);
    // Fork while other threads use the table of handles.
    let stop = Arc::new(AtomicBool::new(false));
    let busy = [(); 2].map(|()| {
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            let info = testing::info("busy", 1, 0.0, ChannelFormat::Int8);
            let object = handle::remove(info).unwrap();
            while !stop.load(Ordering::Relaxed) {
                handle::remove(handle::insert(object.clone()));
            }
        })
    });
    for _ in 0..20 {
        // SAFETY: the child calls this library and `_exit` only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends a child that hangs.
            unsafe { libc::alarm(20) };
            let result = as_child(&stream);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(result) };
        }
        assert!(child > 0);
        let mut status = -1;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "the child hung: {status}");
        assert_eq!(libc::WEXITSTATUS(status), 0);
    }
    stop.store(true, Ordering::Relaxed);
    for thread in busy {
        thread.join().unwrap();
    }
    // The parent notices nothing.
    push(stream.out, &[&[4.0]]);
    assert_eq!(pull::<1>(stream.inlet, SOON), (1.0, 0, [4.0]));
}
