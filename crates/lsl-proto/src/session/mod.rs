//! State machines that take bytes, wire results and `now`; `lsl-core` owns the sockets and the timers.

pub mod fanout;
