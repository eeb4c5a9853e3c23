use std::ffi::CStr;

use lsl_core::ChannelFormat;

use super::*;
use crate::inlet::pull::lsl_pull_sample_d;
use crate::inlet::{lsl_destroy_inlet, lsl_samples_available};
use crate::outlet::push::{lsl_push_sample_d, lsl_push_sample_dtp};
use crate::outlet::{lsl_destroy_outlet, lsl_wait_for_consumers};
use crate::testing::{self, SOON, Stream, last_error, no_handle, outlet, until};

/// What an event loop waits for.
#[cfg(unix)]
type Awaited = i32;
#[cfg(windows)]
type Awaited = *mut c_void;

/// Returns what the system has of both, having seen that the other is refused.
fn awaited(inlet: Handle) -> Awaited {
    #[cfg(unix)]
    let (awaited, refused) = (lslx_inlet_fd(inlet), lslx_inlet_handle(inlet).is_null());
    #[cfg(windows)]
    let (awaited, refused) = (lslx_inlet_handle(inlet), lslx_inlet_fd(inlet) == -4);
    assert!(refused);
    let other = ["lslx_inlet_handle", "lslx_inlet_fd"][usize::from(IS_DESCRIPTOR)];
    assert!(last_error().contains(other), "{}", last_error());
    awaited
}

/// Returns whether a descriptor becomes readable within `limit` milliseconds.
#[cfg(unix)]
fn readable(descriptor: Awaited, limit: i32) -> bool {
    let mut poll = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure.
    unsafe { libc::poll(&raw mut poll, 1, limit) == 1 }
}

/// Returns whether an event is set within `limit` milliseconds.
#[cfg(windows)]
fn readable(event: Awaited, limit: u32) -> bool {
    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn WaitForSingleObject(handle: Awaited, millis: u32) -> u32;
    }
    // SAFETY: the event of an inlet that is there.
    unsafe { WaitForSingleObject(event, limit) == 0 }
}

fn pull(inlet: Handle) -> f64 {
    let mut value = 0.0;
    // SAFETY: room for one value.
    unsafe { lsl_pull_sample_d(inlet, &raw mut value, 1, 0.0, ptr::null_mut()) };
    value
}

#[test]
fn the_descriptor_is_readable_while_there_is_something_to_pull() {
    let out = outlet("fd", 1, 0.0, ChannelFormat::Double64);
    let inlet = testing::inlet("fd", false);
    assert_eq!(lslx_inlet_fd_clear(inlet), -3);
    let descriptor = awaited(inlet);
    #[cfg(unix)]
    assert!(descriptor >= 0);
    #[cfg(windows)]
    assert!(!descriptor.is_null());
    assert_eq!(awaited(inlet), descriptor);
    // It connects by itself.
    assert_eq!(lsl_wait_for_consumers(out, SOON), 1);
    assert!(!readable(descriptor, 0));
    for value in [1.0, 2.0] {
        // SAFETY: one value.
        unsafe { lsl_push_sample_d(out, &raw const value) };
    }
    assert!(readable(descriptor, 20_000));
    until("samples arrive", || lsl_samples_available(inlet) == 2);
    assert_eq!(pull(inlet).to_bits(), 1.0_f64.to_bits());
    // One is left, so it stays readable.
    assert_eq!(lslx_inlet_fd_clear(inlet), 1);
    assert!(readable(descriptor, 0));
    assert_eq!(pull(inlet).to_bits(), 2.0_f64.to_bits());
    assert_eq!(lslx_inlet_fd_clear(inlet), 0);
    assert!(!readable(descriptor, 0));
    // And when the stream is lost.
    lsl_destroy_outlet(out);
    assert!(readable(descriptor, 20_000));
    assert_eq!(lslx_inlet_fd_clear(inlet), 1);
    lsl_destroy_inlet(inlet);
    assert_eq!((lslx_inlet_fd(inlet), lslx_inlet_fd_clear(inlet)), (-3, -3));
    assert!(lslx_inlet_handle(inlet).is_null());
}

#[test]
fn a_late_descriptor_knows_what_is_there() {
    let stream = Stream::new("late-fd", 1, 0.0, ChannelFormat::Double64);
    // SAFETY: one value.
    unsafe { lsl_push_sample_d(stream.out, &1.0) };
    until("the sample arrives", || {
        lsl_samples_available(stream.inlet) == 1
    });
    assert!(readable(awaited(stream.inlet), 0));
}

#[test]
fn counters_of_both_ends() {
    let stream = Stream::new("stats", 1, 0.0, ChannelFormat::Double64);
    let mut of_inlet = InletStats {
        size: u32::try_from(size_of::<InletStats>()).unwrap(),
        ..InletStats::default()
    };
    let mut of_outlet = OutletStats {
        size: u32::try_from(size_of::<OutletStats>()).unwrap(),
        ..OutletStats::default()
    };
    // SAFETY: one value.
    unsafe { lsl_push_sample_d(stream.out, &1.0) };
    until("the sample arrives", || {
        lsl_samples_available(stream.inlet) == 1
    });
    assert_eq!(
        // SAFETY: a structure of the size it says.
        unsafe { lslx_inlet_stats(stream.inlet, &raw mut of_inlet) },
        0
    );
    assert_eq!(
        // SAFETY: as above.
        unsafe { lslx_outlet_stats(stream.out, &raw mut of_outlet) },
        0
    );
    assert_eq!(
        (of_inlet.size, of_inlet.samples, of_inlet.available),
        (104, 1, 1)
    );
    assert_eq!(of_inlet.available_bytes, 8);
    assert!((0.0..SOON).contains(&of_inlet.idle_seconds));
    assert_eq!(
        (of_outlet.size, of_outlet.samples, of_outlet.consumers_seen),
        (96, 1, 1)
    );

    let mut health = InletHealth {
        size: u32::try_from(size_of::<InletHealth>()).unwrap(),
        ..InletHealth::default()
    };
    // SAFETY: a structure of the size it says.
    let filled = unsafe { lslx_inlet_health(stream.inlet, &raw mut health) };
    assert_eq!(
        (filled, health.size, health.state, health.clock),
        (0, 32, 1, 0)
    );
    assert!((0.0..SOON).contains(&health.silent_seconds));
    assert!(health.expected_seconds < 0.0, "an irregular stream");
    let mut searches = DiscoveryStats {
        size: u32::try_from(size_of::<DiscoveryStats>()).unwrap(),
        ..DiscoveryStats::default()
    };
    // SAFETY: as above.
    let filled = unsafe { lslx_discovery_stats(&raw mut searches) };
    assert_eq!((filled, searches.size), (0, 80));

    // A program built with a shorter structure gets no more than it knows.
    let mut short = [7_u64; 4];
    let place = short.as_mut_ptr().cast::<InletStats>();
    // SAFETY: the first field.
    unsafe { place.cast::<u32>().write(16) };
    // SAFETY: at least as long as it says.
    assert_eq!(unsafe { lslx_inlet_stats(stream.inlet, place) }, 0);
    assert_eq!(short, [16, 1, 7, 7]);
    // SAFETY: the first field.
    unsafe { place.cast::<u32>().write(4) };
    // SAFETY: at least as long as it says.
    assert_eq!(unsafe { lslx_inlet_stats(stream.inlet, place) }, -3);
    assert_eq!(
        // SAFETY: NULL is refused.
        unsafe { lslx_inlet_stats(stream.inlet, ptr::null_mut()) },
        -4
    );
    assert_eq!(
        // SAFETY: NULL is refused.
        unsafe { lslx_outlet_stats(no_handle(), ptr::null_mut()) },
        -3
    );
}

#[test]
fn consumers_are_listed() {
    let stream = Stream::new("listed", 1, 0.0, ChannelFormat::Double64);
    let second = testing::inlet("listed", false);
    testing::open(second);
    // SAFETY: NULL with no capacity is allowed.
    let count = unsafe { lslx_outlet_consumers(stream.out, ptr::null_mut(), 0) };
    assert_eq!(count, 2);
    // SAFETY: NULL is refused.
    let count = unsafe { lslx_outlet_consumers(stream.out, ptr::null_mut(), 1) };
    assert_eq!(count, -4);
    // SAFETY: one value.
    unsafe { lsl_push_sample_d(stream.out, &1.0) };
    until("the sample arrives", || lsl_samples_available(second) == 1);
    let blank = Consumer {
        address: [1; ADDRESS_BYTES],
        sent: 9,
        dropped: 9,
        behind: 9,
        encrypted: 9,
        reserved: [9; 5],
    };
    let mut entries = [blank; 3];
    // SAFETY: room for three.
    let count = unsafe { lslx_outlet_consumers(stream.out, entries.as_mut_ptr(), 1) };
    assert_eq!((count, entries[1].sent), (2, 9));
    // SAFETY: room for three.
    let count = unsafe { lslx_outlet_consumers(stream.out, entries.as_mut_ptr(), 3) };
    assert_eq!((count, entries[2].sent), (2, 9));
    for entry in &entries[..2] {
        // SAFETY: NUL-terminated.
        let address = unsafe { CStr::from_ptr(entry.address.as_ptr()) };
        let address: std::net::SocketAddr = address.to_str().unwrap().parse().unwrap();
        assert!(address.ip().is_loopback());
        assert_eq!((entry.sent, entry.dropped, entry.encrypted), (1, 0, 0));
        assert_eq!(entry.reserved, [0; 5]);
    }
    lsl_destroy_inlet(second);
}

#[test]
fn flushing_sends_what_was_held() {
    let stream = Stream::new("flushed", 1, 0.0, ChannelFormat::Double64);
    // SAFETY: one value.
    unsafe { lsl_push_sample_dtp(stream.out, &1.0, 1.0, 0) };
    assert_eq!(lslx_outlet_flush(stream.out, SOON), 1);
    until("the sample arrives", || {
        lsl_samples_available(stream.inlet) == 1
    });
    assert_eq!(lslx_outlet_flush(stream.inlet, SOON), -3);
}
