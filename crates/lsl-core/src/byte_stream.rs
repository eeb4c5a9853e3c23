//! Connected sockets that any thread may read without blocking, registered with the reactor on demand.

#[cfg_attr(windows, path = "byte_stream/tcp_windows.rs")]
#[cfg_attr(not(windows), path = "byte_stream/tcp_unix.rs")]
mod tcp;

pub(crate) use tcp::{ByteStream, Socket};
