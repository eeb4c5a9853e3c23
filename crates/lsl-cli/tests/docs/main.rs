//! The README and the book, executed: every command that a page shows is typed into a shell, every
//! program it shows is run, every link leads somewhere.
//!
//! One test for each session of a page, which libtest cannot make; where a session's stage is not
//! there the test is reported as ignored, and `cargo xtask book` makes the stage. How pages say what
//! runs where stands in `typed/page.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(
    unix,
    expect(
        clippy::unwrap_used,
        reason = "a test that cannot run is a failed test"
    )
)]

#[cfg(unix)]
mod typed;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    typed::main()
}

/// There is no bash to type into.
#[cfg(not(unix))]
fn main() {}
