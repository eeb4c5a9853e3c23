//! The lines of a pair.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::observe::{Class, OtherSide};
use crate::table::Finding;

/// Who a side is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Hello {
    /// Version of the format.
    pub v: u32,
    /// Stands in all its datagrams.
    pub nonce: String,
    /// Its name.
    pub host: String,
    /// The address of the one that it talks to, as it sees it.
    pub sees: Option<IpAddr>,
    /// Ports at which it hears: 16569 or another, and one of the range.
    pub listens: Vec<u16>,
}

/// A way that a side will try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// What it leads to.
    pub class: Class,
    /// The interface by which it leaves, where it matters.
    pub interface: String,
    /// A group, a broadcast address, or the other machine.
    pub to: IpAddr,
    /// The port there.
    pub port: u16,
    /// Connects, instead of sending datagrams.
    pub is_tcp: bool,
}

/// What a side heard.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// For each path of the other's plan, how many datagrams arrived.
    pub heard: Vec<usize>,
}

/// What a side concludes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// What it is and heard.
    pub side: OtherSide,
    /// Its causes.
    pub findings: Vec<Finding>,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Message {
    Hello(Box<Hello>),
    Plan(Vec<Path>),
    Ready(usize),
    Counts(Counts),
    Report(Account),
    /// Why it ends early, or nothing.
    Bye(String),
}

/// Kinds of lines, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Hello,
    Plan,
    Ready,
    Counts,
    Report,
    Bye,
}

impl Message {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::Plan(_) => Kind::Plan,
            Self::Ready(_) => Kind::Ready,
            Self::Counts(_) => Kind::Counts,
            Self::Report(_) => Kind::Report,
            Self::Bye(_) => Kind::Bye,
        }
    }

    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}
