//! Has an engine keep the streams that rules name. Spec: relay §12.

mod packed;
mod redis;
mod tls;
