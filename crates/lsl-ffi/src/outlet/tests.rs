#![expect(
    clippy::cast_precision_loss,
    reason = "small numbers that arrive exactly"
)]

use std::ffi::CStr;
use std::ptr::null;
use std::thread;
use std::time::Duration;

use lsl_core::FOREVER_SECS;

use super::push::*;
use super::push_text::*;
use super::*;
use crate::handle::Object;
use crate::inlet::pull::{lsl_pull_chunk_d, lsl_pull_sample_d, lsl_pull_sample_f};
use crate::inlet::{lsl_destroy_inlet, lsl_samples_available};
use crate::streaminfo::{lsl_destroy_streaminfo, lsl_get_created_at, lsl_get_uid};
use crate::testing::{self, SOON, Stream, UNSET, last_error, no_handle, on_thread, outlet, until};

/// Pulls exactly `samples` samples of one channel. Returns values and timestamps.
fn pulled(inlet: Handle, samples: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut values, mut stamps, mut ec) = (vec![0.0; samples], vec![0.0; samples], UNSET);
    let count = samples.try_into().unwrap();
    // SAFETY: room for that many of both.
    let got = unsafe {
        lsl_pull_chunk_d(
            inlet,
            values.as_mut_ptr(),
            stamps.as_mut_ptr(),
            count,
            count,
            SOON,
            &raw mut ec,
        )
    };
    assert_eq!((got, ec), (count, 0));
    (values, stamps)
}

/// Checks all eight push functions of a numeric type.
macro_rules! check_numeric {
    ($format:ident $c:ty:
     $sample:ident $sample_t:ident $sample_tp:ident
     $chunk:ident $chunk_t:ident $chunk_tp:ident $chunk_tn:ident $chunk_tnp:ident) => {{
        let name = stringify!($chunk_tnp);
        let stream = Stream::new(name, 1, 0.0, ChannelFormat::$format);
        let out = stream.out;
        let data = [1 as $c, 2 as $c, 3 as $c];
        let stamps = [7.0, -8.0, 9.0];
        let (data, each) = (data.as_ptr(), stamps.as_ptr());
        let before = lsl_core::local_clock();
        let codes = [
            // SAFETY: one channel, three values, three timestamps.
            unsafe { $sample(out, data) },
            // SAFETY: as above.
            unsafe { $sample_t(out, data, 4.0) },
            // SAFETY: as above.
            unsafe { $sample_tp(out, data, 5.0, 0) },
            // SAFETY: as above.
            unsafe { $chunk(out, data, 3) },
            // SAFETY: as above.
            unsafe { $chunk_t(out, data, 3, 6.0) },
            // SAFETY: as above.
            unsafe { $chunk_tp(out, data, 3, 6.5, 0) },
            // SAFETY: as above.
            unsafe { $chunk_tn(out, data, 3, each) },
            // SAFETY: as above.
            unsafe { $chunk_tnp(out, data, 3, each, -1) },
        ];
        assert_eq!(codes, [0; 8], "{name}");
        let (values, stamps) = pulled(stream.inlet, 18);
        let chunks = [1.0, 2.0, 3.0].repeat(5);
        assert_eq!(values, [vec![1.0; 3], chunks].concat(), "{name}");
        let after = lsl_core::local_clock();
        let now = |stamp: f64| (before..=after).contains(&stamp);
        assert!(now(stamps[0]) && now(stamps[3]) && now(stamps[4]) && now(stamps[5]));
        assert_eq!(stamps[1..3], [4.0, 5.0], "{name}");
        let chunks = [6.0, 6.0, 6.0, 6.5, 6.5, 6.5, 7.0, -8.0, 9.0, 7.0, -8.0, 9.0];
        assert_eq!(stamps[6..], chunks, "{name}");

        // Arguments that are refused, whatever the type.
        let codes = [
            // SAFETY: NULL is refused.
            unsafe { $sample(out, null()) },
            // SAFETY: as above.
            unsafe { $sample_tp(out, null(), 0.0, 1) },
            // SAFETY: as above.
            unsafe { $chunk(out, null(), 0) },
            // SAFETY: as above.
            unsafe { $chunk_tp(out, null(), 3, 0.0, 1) },
            // SAFETY: as above.
            unsafe { $chunk_tn(out, data, 3, null()) },
            // SAFETY: as above.
            unsafe { $chunk_tnp(out, data, 3, null(), 1) },
        ];
        assert_eq!(codes, [code::INTERNAL; 6], "{name}");
        for handle in [ptr::null_mut(), no_handle(), stream.inlet] {
            // SAFETY: three values.
            assert_eq!(unsafe { $chunk(handle, data, 3) }, code::ARGUMENT);
            // SAFETY: one value.
            assert_eq!(unsafe { $sample_tp(handle, data, 0.0, 1) }, code::ARGUMENT);
        }
        assert_eq!(lsl_samples_available(stream.inlet), 0);
    }};
}

#[test]
fn all_numeric_push_functions() {
    check_numeric!(Float32 f32:
        lsl_push_sample_f lsl_push_sample_ft lsl_push_sample_ftp
        lsl_push_chunk_f lsl_push_chunk_ft lsl_push_chunk_ftp lsl_push_chunk_ftn
        lsl_push_chunk_ftnp);
    check_numeric!(Double64 f64:
        lsl_push_sample_d lsl_push_sample_dt lsl_push_sample_dtp
        lsl_push_chunk_d lsl_push_chunk_dt lsl_push_chunk_dtp lsl_push_chunk_dtn
        lsl_push_chunk_dtnp);
    check_numeric!(Int64 i64:
        lsl_push_sample_l lsl_push_sample_lt lsl_push_sample_ltp
        lsl_push_chunk_l lsl_push_chunk_lt lsl_push_chunk_ltp lsl_push_chunk_ltn
        lsl_push_chunk_ltnp);
    check_numeric!(Int32 i32:
        lsl_push_sample_i lsl_push_sample_it lsl_push_sample_itp
        lsl_push_chunk_i lsl_push_chunk_it lsl_push_chunk_itp lsl_push_chunk_itn
        lsl_push_chunk_itnp);
    check_numeric!(Int16 i16:
        lsl_push_sample_s lsl_push_sample_st lsl_push_sample_stp
        lsl_push_chunk_s lsl_push_chunk_st lsl_push_chunk_stp lsl_push_chunk_stn
        lsl_push_chunk_stnp);
    check_numeric!(Int8 std::ffi::c_char:
        lsl_push_sample_c lsl_push_sample_ct lsl_push_sample_ctp
        lsl_push_chunk_c lsl_push_chunk_ct lsl_push_chunk_ctp lsl_push_chunk_ctn
        lsl_push_chunk_ctnp);
}

/// Checks all eight push functions of a kind of text; the brackets hold its arrays.
macro_rules! check_text {
    ([$($array:expr),+] [$($null:expr),+] [$($hole:expr),+]
     $sample:ident $sample_t:ident $sample_tp:ident
     $chunk:ident $chunk_t:ident $chunk_tp:ident $chunk_tn:ident $chunk_tnp:ident) => {{
        let name = stringify!($chunk_tnp);
        let stream = Stream::new(name, 1, 0.0, ChannelFormat::String);
        let out = stream.out;
        let stamps = [7.0, 8.0, 9.0];
        let each = stamps.as_ptr();
        let codes = [
            // SAFETY: one channel, three texts, three timestamps.
            unsafe { $sample(out, $($array),+) },
            // SAFETY: as above.
            unsafe { $sample_t(out, $($array,)+ 4.0) },
            // SAFETY: as above.
            unsafe { $sample_tp(out, $($array,)+ 5.0, 0) },
            // SAFETY: as above.
            unsafe { $chunk(out, $($array,)+ 3) },
            // SAFETY: as above.
            unsafe { $chunk_t(out, $($array,)+ 3, 6.0) },
            // SAFETY: as above.
            unsafe { $chunk_tp(out, $($array,)+ 3, 6.5, 0) },
            // SAFETY: as above.
            unsafe { $chunk_tn(out, $($array,)+ 3, each) },
            // SAFETY: as above.
            unsafe { $chunk_tnp(out, $($array,)+ 3, each, 1) },
        ];
        assert_eq!(codes, [0; 8], "{name}");
        let (values, stamps) = pulled(stream.inlet, 18);
        let chunks = [1.0, 2.0, 3.0].repeat(5);
        assert_eq!(values, [vec![1.0; 3], chunks].concat(), "{name}");
        assert_eq!(stamps[1..3], [4.0, 5.0], "{name}");
        let chunks = [6.0, 6.0, 6.0, 6.5, 6.5, 6.5, 7.0, 8.0, 9.0, 7.0, 8.0, 9.0];
        assert_eq!(stamps[6..], chunks, "{name}");

        let codes = [
            // SAFETY: NULL is refused.
            unsafe { $sample(out, $($null),+) },
            // SAFETY: as above.
            unsafe { $chunk(out, $($null,)+ 3) },
            // SAFETY: as above.
            unsafe { $chunk_tn(out, $($array,)+ 3, null()) },
            // SAFETY: as above.
            unsafe { $chunk_tnp(out, $($array,)+ 3, null(), 1) },
            // SAFETY: a NULL among the texts is refused.
            unsafe { $sample(out, $($hole),+) },
            // SAFETY: as above.
            unsafe { $chunk(out, $($hole,)+ 3) },
        ];
        assert_eq!(codes, [code::INTERNAL; 6], "{name}");
        // Nothing to push is no error, unlike with numbers.
        // SAFETY: NULL is not looked at.
        assert_eq!(unsafe { $chunk(out, $($null,)+ 0) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { $chunk_tnp(out, $($null,)+ 0, null(), 1) }, 0);
        // SAFETY: three texts.
        assert_eq!(unsafe { $chunk(no_handle(), $($array,)+ 3) }, code::ARGUMENT);
        assert_eq!(lsl_samples_available(stream.inlet), 0);
    }};
}

#[test]
fn all_text_push_functions() {
    let texts = [c"1".as_ptr(), c"2".as_ptr(), c"3".as_ptr()];
    let hole = [null(), c"2".as_ptr(), c"3".as_ptr()];
    let lengths = [1_u32; 3];
    let (texts, hole, lengths) = (texts.as_ptr(), hole.as_ptr(), lengths.as_ptr());
    check_text!([texts] [null()] [hole]
        lsl_push_sample_str lsl_push_sample_strt lsl_push_sample_strtp
        lsl_push_chunk_str lsl_push_chunk_strt lsl_push_chunk_strtp
        lsl_push_chunk_strtn lsl_push_chunk_strtnp);
    check_text!([texts, lengths] [texts, null()] [hole, lengths]
        lsl_push_sample_buf lsl_push_sample_buft lsl_push_sample_buftp
        lsl_push_chunk_buf lsl_push_chunk_buft lsl_push_chunk_buftp
        lsl_push_chunk_buftn lsl_push_chunk_buftnp);
}

#[test]
fn a_null_text_without_bytes_is_empty() {
    let stream = Stream::new("null-text", 1, 0.0, ChannelFormat::String);
    // SAFETY: one channel; NULL with length 0 is allowed.
    let code = unsafe { lsl_push_sample_buftp(stream.out, &null(), &0, 3.0, 1) };
    assert_eq!(code, 0);
    assert_eq!(pulled(stream.inlet, 1), (vec![0.0], vec![3.0]));
}

#[test]
fn chunks_must_be_whole_samples() {
    let out = outlet("whole", 4, 0.0, ChannelFormat::Float32);
    let (data, stamps) = ([0.0; 8], [1.0; 2]);
    // SAFETY: eight values, two timestamps.
    let push = |count| unsafe { lsl_push_chunk_d(out, data.as_ptr(), count) };
    assert_eq!([0, 4, 8].map(push), [0; 3]);
    assert_eq!([1, 3, 5, 7].map(push), [code::INTERNAL; 4]);
    assert!(last_error().contains("not a multiple of the stream's channel count (4)"));
    // SAFETY: as above.
    let code = unsafe { lsl_push_chunk_dtnp(out, data.as_ptr(), 6, stamps.as_ptr(), 1) };
    assert_eq!(code, code::INTERNAL);
    let texts = [c"".as_ptr(); 8];
    // SAFETY: eight texts.
    let push = |count| unsafe { lsl_push_chunk_strtp(out, texts.as_ptr(), count, 1.0, 1) };
    assert_eq!([0, 3, 8].map(push), [0, code::INTERNAL, 0]);
    // SAFETY: eight texts, two timestamps.
    let code = unsafe { lsl_push_chunk_strtnp(out, texts.as_ptr(), 7, stamps.as_ptr(), 1) };
    assert_eq!(code, code::INTERNAL);
    lsl_destroy_outlet(out);
}

#[test]
fn streams_without_format_or_channels() {
    let out = outlet("no-format", 2, 0.0, ChannelFormat::Undefined);
    let data = [1.0_f64; 2];
    let data = data.as_ptr();
    let text = [c"".as_ptr(); 2];
    // SAFETY: two values.
    assert_eq!(unsafe { lsl_push_sample_d(out, data) }, code::ARGUMENT);
    // SAFETY: two values.
    assert_eq!(unsafe { lsl_push_chunk_d(out, data, 2) }, code::ARGUMENT);
    // SAFETY: two texts.
    let code = unsafe { lsl_push_sample_str(out, text.as_ptr()) };
    assert_eq!(code, code::ARGUMENT);
    // SAFETY: samples of no bytes.
    assert_eq!(unsafe { lsl_push_sample_v(out, data.cast()) }, 0);
    lsl_destroy_outlet(out);

    let out = outlet("no-channels", 0, 0.0, ChannelFormat::Float32);
    // SAFETY: no value is read.
    assert_eq!(unsafe { lsl_push_sample_d(out, data) }, 0);
    // SAFETY: two values.
    assert_eq!(unsafe { lsl_push_chunk_d(out, data, 2) }, code::INTERNAL);
    lsl_destroy_outlet(out);
}

#[test]
fn raw_samples_are_refused_for_strings() {
    let out = outlet("raw-string", 1, 0.0, ChannelFormat::String);
    let data = [0_u8; 8];
    let data = data.as_ptr().cast();
    // SAFETY: refused before anything is read.
    assert_eq!(unsafe { lsl_push_sample_v(out, data) }, code::ARGUMENT);
    assert_eq!(
        // SAFETY: as above.
        unsafe { lsl_push_sample_vt(out, data, 1.0) },
        code::ARGUMENT
    );
    lsl_destroy_outlet(out);
    let stream = Stream::new("raw", 2, 0.0, ChannelFormat::Int16);
    let data = [258_i16, -2];
    assert_eq!(
        // SAFETY: two values of the stream's type.
        unsafe { lsl_push_sample_vt(stream.out, data.as_ptr().cast(), 5.0) },
        0
    );
    assert_eq!(
        // SAFETY: NULL is refused.
        unsafe { lsl_push_sample_v(stream.out, null()) },
        code::INTERNAL
    );
    let mut values = [0.0_f32; 2];
    let ec = ptr::null_mut();
    // SAFETY: room for two values.
    let stamp = unsafe { lsl_pull_sample_f(stream.inlet, values.as_mut_ptr(), 2, SOON, ec) };
    assert_eq!(
        (stamp.to_bits(), values),
        (5.0_f64.to_bits(), [258.0, -2.0])
    );
}

#[test]
fn timestamps_are_those_of_liblsl() {
    let stream = Stream::new("stamps", 1, 100.0, ChannelFormat::Double64);
    let data = [1.0, 2.0, 3.0, 4.0];
    let data = data.as_ptr();
    // The first deduced sample of a connection counts from 0.
    // SAFETY: one channel, four values, four timestamps.
    unsafe { lsl_push_sample_dt(stream.out, data, -1.0) };
    // SAFETY: as above.
    unsafe { lsl_push_chunk_dt(stream.out, data, 4, 200.0) };
    // A stamp of -1.0 is not special for more than one sample.
    // SAFETY: as above.
    unsafe { lsl_push_chunk_dt(stream.out, data, 4, -1.0) };
    let each = [10.0, -1.0, 0.0, f64::INFINITY];
    let before = lsl_core::local_clock();
    // SAFETY: as above.
    unsafe { lsl_push_chunk_dtn(stream.out, data, 4, each.as_ptr()) };
    let (_, stamps) = pulled(stream.inlet, 13);
    assert_eq!(stamps[0].to_bits(), 0.01_f64.to_bits());
    let first = 200.0 - 3.0 / 100.0;
    let chunk = [
        first,
        first + 0.01,
        first + 0.01 + 0.01,
        first + 0.01 + 0.01 + 0.01,
    ];
    assert_eq!(stamps[1..5], chunk);
    assert!((stamps[5] + 1.03).abs() < 1e-12 && (stamps[8] + 1.0).abs() < 1e-12);
    assert_eq!(stamps[9..11], [10.0, 10.01]);
    assert!((before..=lsl_core::local_clock()).contains(&stamps[11]));
    assert_eq!(stamps[12].to_bits(), f64::INFINITY.to_bits());
}

#[test]
fn held_samples_wait_for_a_push_that_flushes() {
    let stream = Stream::new("held", 1, 0.0, ChannelFormat::Double64);
    for n in 1..=3 {
        // SAFETY: one value.
        unsafe { lsl_push_sample_dtp(stream.out, &f64::from(n), f64::from(n), 0) };
    }
    thread::sleep(Duration::from_millis(50));
    assert_eq!(lsl_samples_available(stream.inlet), 0);
    // SAFETY: one value.
    unsafe { lsl_push_sample_dtp(stream.out, &4.0, 4.0, 7) };
    assert_eq!(pulled(stream.inlet, 4).1, [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn creation_is_refused_with_a_text() {
    let text = testing::info("refused", 1, 0.0, ChannelFormat::String);
    let refused = [
        (
            text,
            3,
            "transp_bufsize_samples and transp_bufsize_thousandths are mutually exclusive",
        ),
        (
            text,
            4,
            "Synchronous (zero-copy) mode is not supported for string-format streams",
        ),
        (ptr::null_mut(), 0, "this is not a stream info"),
        (no_handle(), 0, "this is not a stream info"),
    ];
    for (info, flags, reason) in refused {
        assert!(lsl_create_outlet_ex(info, 0, 360, flags).is_null());
        assert_eq!(last_error(), reason);
    }
    // Unknown flags, silly chunk sizes and buffers are accepted.
    for (chunk, buffer, flags) in [(-5, 0, 0), (i32::MAX, -3, 1), (1, i32::MIN, 2), (0, 1, 64)] {
        let out = lsl_create_outlet_ex(text, chunk, buffer, flags);
        assert!(!out.is_null(), "{}", last_error());
        lsl_destroy_outlet(out);
    }
    lsl_destroy_streaminfo(text);
}

#[test]
fn handles_of_the_wrong_kind_are_refused() {
    let stream = Stream::new("kinds", 1, 0.0, ChannelFormat::Int8);
    let info = lsl_get_info(stream.out);
    for handle in [ptr::null_mut(), no_handle(), stream.inlet, info] {
        lsl_destroy_outlet(handle);
        assert!(lsl_get_info(handle).is_null());
        assert_eq!(lsl_have_consumers(handle), 0);
        assert_eq!(lsl_wait_for_consumers(handle, FOREVER_SECS), 0);
        assert!(handle == info || lsl_create_outlet(handle, 0, 360).is_null());
    }
    assert!(matches!(handle::get(stream.inlet), Some(Object::Inlet(_))));
    lsl_destroy_inlet(stream.out);
    assert_eq!(lsl_have_consumers(stream.out), 1);
    lsl_destroy_streaminfo(info);
}

#[test]
fn destroying_twice_is_nothing() {
    let out = outlet("twice", 1, 0.0, ChannelFormat::Int8);
    lsl_destroy_outlet(out);
    lsl_destroy_outlet(out);
    assert_eq!(lsl_have_consumers(out), 0);
    // SAFETY: one value.
    assert_eq!(unsafe { lsl_push_sample_d(out, &1.0) }, code::ARGUMENT);
}

#[test]
fn destroying_wakes_who_waits() {
    for _ in 0..20 {
        let out = outlet("wakes", 1, 0.0, ChannelFormat::Int8);
        let waiting = on_thread(out, |out| lsl_wait_for_consumers(out, FOREVER_SECS));
        thread::sleep(Duration::from_millis(1));
        lsl_destroy_outlet(out);
        assert_eq!(waiting.join().unwrap(), 0);
    }
}

#[test]
fn consumers_are_counted() {
    let out = outlet("consumers", 1, 0.0, ChannelFormat::Int8);
    for timeout in [0.0, -1.0, f64::NAN, 0.01] {
        assert_eq!(lsl_wait_for_consumers(out, timeout), 0, "{timeout}");
    }
    assert_eq!(lsl_have_consumers(out), 0);
    let inlet = testing::inlet("consumers", true);
    testing::open(inlet);
    assert_eq!(lsl_wait_for_consumers(out, FOREVER_SECS), 1);
    assert_eq!(lsl_wait_for_consumers(out, f64::INFINITY), 1);
    assert_eq!(lsl_have_consumers(out), 1);
    lsl_destroy_inlet(inlet);
    until("the consumer left", || lsl_have_consumers(out) == 0);
    lsl_destroy_outlet(out);
}

#[test]
fn the_info_of_an_outlet_is_its_own() {
    let info = testing::info("own-info", 1, 0.0, ChannelFormat::Int8);
    let (first, second) = (
        lsl_create_outlet(info, 0, 360),
        lsl_create_outlet(info, 0, 360),
    );
    let infos = [info, lsl_get_info(first), lsl_get_info(second)];
    let uid = |info| {
        // SAFETY: a NUL-terminated text that lives as long as the info.
        let text = unsafe { CStr::from_ptr(lsl_get_uid(info)) };
        text.to_str().unwrap().to_owned()
    };
    assert_eq!(uid(info), "");
    assert_eq!(uid(infos[1]).len(), 36);
    assert_ne!(uid(infos[1]), uid(infos[2]));
    assert!(lsl_get_created_at(infos[1]) > 0.0);
    for info in infos {
        lsl_destroy_streaminfo(info);
    }
    lsl_destroy_outlet(first);
    lsl_destroy_outlet(second);
}

#[test]
fn synchronous_outlets_convert_and_write_before_they_return() {
    let info = testing::info("sync", 1, 0.0, ChannelFormat::Float32);
    let out = lsl_create_outlet_ex(info, 0, 360, 4);
    let inlet = testing::inlet("sync", false);
    testing::open(inlet);
    assert_eq!(lsl_wait_for_consumers(out, SOON), 1);
    let texts = [c"2.5".as_ptr()];
    // SAFETY: one value.
    assert_eq!(unsafe { lsl_push_sample_dtp(out, &1.5, 1.0, 0) }, 0);
    assert_eq!(
        // SAFETY: one text.
        unsafe { lsl_push_sample_strtp(out, texts.as_ptr(), 2.0, 0) },
        0
    );
    // SAFETY: one value; NULL is refused.
    assert_eq!(unsafe { lsl_push_chunk_f(out, null(), 1) }, code::INTERNAL);
    assert_eq!(pulled(inlet, 2), (vec![1.5, 2.5], vec![1.0, 2.0]));
    lsl_destroy_inlet(inlet);
    lsl_destroy_outlet(out);
    lsl_destroy_streaminfo(info);
}

#[test]
fn a_full_buffer_drops_the_oldest() {
    let info = testing::info("drops", 1, 0.0, ChannelFormat::Double64);
    let out = lsl_create_outlet_ex(info, 0, 360, 1);
    let resolved = testing::resolved("drops");
    // A capacity of one hangs in liblsl.
    for capacity in [1, 100] {
        let inlet = crate::inlet::lsl_create_inlet_ex(resolved, capacity, 0, 0, 1);
        testing::open(inlet);
        assert_eq!(lsl_wait_for_consumers(out, SOON), 1);
        for n in 1..=300 {
            // SAFETY: one value.
            unsafe { lsl_push_sample_dt(out, &f64::from(n), f64::from(n)) };
        }
        let newest = |inlet| {
            let mut value = 0.0;
            let ec = ptr::null_mut();
            // SAFETY: room for one value.
            while unsafe { lsl_pull_sample_d(inlet, &raw mut value, 1, SOON, ec) } < 300.0 {}
            value
        };
        let capacity = u32::try_from(capacity).unwrap();
        assert!(lsl_samples_available(inlet) <= capacity);
        assert_eq!(newest(inlet).to_bits(), 300.0_f64.to_bits());
        lsl_destroy_inlet(inlet);
        until("the consumer left", || lsl_have_consumers(out) == 0);
    }
    lsl_destroy_streaminfo(info);
    lsl_destroy_streaminfo(resolved);
    lsl_destroy_outlet(out);
}

#[test]
fn a_destroyed_outlet_returns_at_once() {
    let stream = Stream::new("at-once", 1, 0.0, ChannelFormat::Int8);
    let start = lsl_core::local_clock();
    lsl_destroy_outlet(stream.out);
    assert!(lsl_core::local_clock() - start < 1.0);
}
