//! The subcommands, one file or folder each: an arguments struct with a `run` method. None imports another.

pub(crate) mod at_rest;
pub(crate) mod audit;
pub(crate) mod benchmarks;
pub mod completions;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod deploy;
pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod info;
pub(crate) mod key;
pub(crate) mod list;
pub mod man;
pub(crate) mod play;
pub(crate) mod record;
pub(crate) mod recv;
pub(crate) mod relay;
pub(crate) mod security;
pub(crate) mod time;
pub(crate) mod trust;
pub(crate) mod watch;
pub(crate) mod xdf;
