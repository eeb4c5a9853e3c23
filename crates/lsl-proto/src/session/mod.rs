//! State machines of the two roles. They take bytes, wire results and `now`; `lsl-core` owns
//! the sockets and the timers.

pub mod custody;
pub mod fanout;
pub mod inlet;
pub mod recover;
