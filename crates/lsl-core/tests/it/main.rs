//! Integration tests over loopback. Nothing here multicasts or leaves the host: every test makes a
//! context of its own with `Config::loopback`.

mod corpus;
mod hostile;
mod lab;
mod streaming;
