//! The few facts lsl-core asks of the operating system: the shared clock, waiting on one descriptor,
//! which process this is and whether it was forked, how many descriptors it may have, which network
//! interfaces it has, and a line typed without being seen; and two things that every crate needs alike, the
//! calendar and the escaping of foreign text. Nothing here knows LSL's protocol.
//!
//! Modules that have little in common between Unix and Windows have a file of their own for Windows, in
//! `windows/`, with the same names in it. What a system cannot do is an error there that says so. "Other
//! systems" in ARCHITECTURE.md says what is missing where.
//!
//! Unsafe code only in `fork`, for the one page that the kernel must clear, for hooks and for values that a
//! child makes anew, in `locked`, for the pages of keys, in `directories` and `files`, for the databases of
//! users and groups, in `cancel`, `usage`, `arrival`, `tap`, `exit` and `termination`, and in the
//! macro of `probe`; and where another system than Linux
//! gives its clock, its name or its privileges to nobody else, or what Unix has safe functions for.
#![deny(unsafe_code)]

mod access;
#[cfg(any(windows, test))]
#[cfg_attr(
    not(windows),
    expect(dead_code, reason = "used on Windows, tested everywhere")
)]
mod acl;
#[cfg_attr(windows, path = "windows/append.rs")]
pub mod append;
pub mod arrival;
pub mod calendar;
pub mod cancel;
#[cfg(target_os = "linux")]
pub mod changes;
pub mod clock;
#[cfg_attr(windows, path = "windows/descriptors.rs")]
pub mod descriptors;
pub mod directories;
#[cfg_attr(windows, path = "windows/disk.rs")]
pub mod disk;
pub mod event_count;
pub mod exit;
#[cfg_attr(windows, path = "windows/files.rs")]
pub mod files;
pub mod fork;
pub mod interfaces;
#[cfg_attr(windows, path = "windows/limits.rs")]
pub mod limits;
pub mod locked;
pub mod module;
pub mod neighbours;
pub mod notify;
pub mod port_holders;
pub mod power;
#[cfg_attr(windows, path = "windows/privilege.rs")]
pub mod privilege;
pub mod probe;
pub mod process;
mod readiness;
pub mod reentry;
pub mod registry;
pub mod remedy;
pub mod routes;
#[cfg_attr(windows, path = "windows/signal.rs")]
pub mod signal;
pub mod socket;
pub mod stderr;
pub mod stream;
#[cfg(target_os = "linux")]
pub mod tap;
pub mod terminal;
#[cfg_attr(windows, path = "windows/termination.rs")]
pub mod termination;
mod text;
pub mod udp_sockets;
pub mod usage;
#[cfg_attr(windows, path = "windows/wait.rs")]
pub mod wait;
#[cfg(windows)]
#[path = "windows/wide.rs"]
mod wide;
