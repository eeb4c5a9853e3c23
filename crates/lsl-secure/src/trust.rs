//! Decides about one peer by the trust file. Spec: LSS/1 §3.2.
//!
//! Pure: text and dates come in, decisions go out. Reading and watching the file is `security`'s.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use crate::files::line_at;
use crate::keys::Role;
use crate::{Cause, Descriptor, Error, PublicKey, Result};

mod date;
mod network;
#[cfg(test)]
mod tests;

pub use date::{BUILD_DATE, today};
pub use lsl_platform::calendar::{Date, NotADate};
pub use network::Network;

/// Which roles a peer may play.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrustedRole {
    /// We may read its streams.
    Outlet,
    /// It may read our streams.
    Inlet,
    /// It may both serve and read streams.
    #[default]
    Both,
    /// The same, and it may link with a relay of ours. Spec: relay §3.1.
    Relay,
}

impl TrustedRole {
    /// Whether a peer with this entry may be `role`.
    pub fn allows(self, role: Role) -> bool {
        match self {
            Self::Outlet => role == Role::Outlet,
            Self::Inlet => role == Role::Inlet,
            Self::Both | Self::Relay => true,
        }
    }

    /// Whether a peer with this entry may link with a relay of ours. Spec: relay §3.1.
    pub fn allows_links(self) -> bool {
        self == Self::Relay
    }

    /// Returns the name in the file: `outlet`, `inlet`, `both`, `relay`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Outlet => "outlet",
            Self::Inlet => "inlet",
            Self::Both => "both",
            Self::Relay => "relay",
        }
    }
}

/// One `[[peer]]` entry of the trust file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// A label; identity is the key.
    pub name: String,
    /// Ed25519 public key that identifies the peer.
    pub key: PublicKey,
    /// Whether it may serve streams, read them, or both.
    pub role: TrustedRole,
    /// Last day (UTC) on which it may connect.
    pub not_after: Option<Date>,
    /// Networks it must come from; empty: anywhere.
    pub from: Vec<Network>,
    /// Which streams it may serve, read and sign: those that match one of these predicates; empty: all.
    /// Their language is that of [`StreamQueries`].
    pub streams: Vec<String>,
}

/// Query language of [`Peer::streams`]. A crate that knows streams provides it.
#[derive(Debug, Clone, Copy)]
pub struct StreamQueries {
    /// Returns the reason for which a text is no predicate.
    pub check: fn(&str) -> Result<(), String>,
    /// Whether a stream matches a predicate; what cannot be evaluated does not.
    pub matches: fn(&str, &Descriptor) -> bool,
}

impl Peer {
    /// Decides whether it may be `role` and come from `remote`. The date is left out: it counts at
    /// handshakes only.
    pub(crate) fn fits(&self, role: Role, remote: IpAddr) -> Result<(), Cause> {
        if !self.from.is_empty() && !self.from.iter().any(|network| network.contains(remote)) {
            Err(Cause::NotAuthorised)
        } else if !self.role.allows(role) {
            Err(Cause::RoleNotAllowed)
        } else {
            Ok(())
        }
    }

    /// Whether the entry covers this stream. Without a query language only an entry for all streams does.
    pub fn covers(&self, stream: &Descriptor, queries: Option<&StreamQueries>) -> bool {
        let matches = |text: &String| queries.is_some_and(|it| (it.matches)(text, stream));
        self.streams.is_empty() || self.streams.iter().any(matches)
    }

    /// Days until the last one, if that is near (30 days) or past. Negative: that many days ago.
    pub fn days_left_if_few(&self, today: Date) -> Option<i32> {
        let left = self.not_after?.days_since(today);
        (left <= 30).then_some(left)
    }
}

/// All trusted peers. Immutable; a changed file is a new list.
#[derive(Debug, Clone, Default)]
pub struct TrustList {
    peers: Vec<Peer>,
    by_key: HashMap<PublicKey, usize>,
}

impl PartialEq for TrustList {
    fn eq(&self, other: &Self) -> bool {
        self.peers == other.peers
    }
}

impl TrustList {
    /// Reads the text of a `trusted_peers.toml`. `path` is for messages.
    ///
    /// # Errors
    /// [`Error::File`] with line and remedy: syntax, unknown fields, weak or repeated keys.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let at = |offset: usize, reason: String| {
            Error::file(path, format!("line {}: {reason}", line_at(text, offset)))
        };
        let raw: RawFile =
            toml::from_str(text).map_err(|error| syntax_error(text, path, &error))?;
        let mut list = Self::default();
        for peer in raw.peer {
            let key_at = peer.key.span().start;
            let peer = peer
                .check()
                .map_err(|(offset, reason)| at(offset, reason))?;
            let name = peer.name.clone();
            if let Err(first) = list.add(peer) {
                return Err(at(
                    key_at,
                    format!("{name:?} has the same key as {first:?} before; remove one of the two"),
                ));
            }
        }
        Ok(list)
    }

    /// A list made by a program.
    ///
    /// # Errors
    /// If a key is there twice.
    pub fn from_peers(peers: Vec<Peer>) -> Result<Self> {
        let mut list = Self::default();
        for peer in peers {
            let name = peer.name.clone();
            list.add(peer).map_err(|first| {
                let detail =
                    format!("{name:?} has the same key as {first:?}; remove one of the two");
                Error::session(Cause::Internal, detail)
            })?;
        }
        Ok(list)
    }

    /// Returns the entries in the order of the file.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// The entry of a key.
    pub fn find(&self, key: &PublicKey) -> Option<&Peer> {
        self.peers.get(*self.by_key.get(key)?)
    }

    /// Checks that all predicates of `streams` parse. `path` is for messages.
    ///
    /// # Errors
    /// [`Error::File`] with the entry, the predicate and its fault.
    pub fn check_streams(&self, path: &Path, queries: &StreamQueries) -> Result<()> {
        for peer in &self.peers {
            for text in &peer.streams {
                if let Err(reason) = (queries.check)(text) {
                    let name = &peer.name;
                    let reason = format!(
                        "streams of {name:?}: {text:?} is no predicate: {reason}; write it as for `lsl \
                         list`, such as \"name='EEG'\""
                    );
                    return Err(Error::file(path, reason));
                }
            }
        }
        Ok(())
    }

    /// Writes the list in the format of `trusted_peers.toml`.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for peer in &self.peers {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&peer.to_toml());
        }
        text
    }

    /// Decides whether the owner of `key`, coming from `remote`, may be `role` today. IPv4-mapped
    /// addresses are IPv4.
    ///
    /// # Errors
    /// [`Cause::NotAuthorised`], [`Cause::RoleNotAllowed`], [`Cause::Expired`].
    pub fn decide(
        &self,
        key: &PublicKey,
        role: Role,
        remote: IpAddr,
        today: Date,
    ) -> Result<&Peer, Cause> {
        let peer = self.find(key).ok_or(Cause::NotAuthorised)?;
        peer.fits(role, remote)?;
        if peer.not_after.is_some_and(|last| last < today) {
            return Err(Cause::Expired);
        }
        Ok(peer)
    }

    /// Adds a peer, or gives the name of the one that has its key already.
    fn add(&mut self, peer: Peer) -> Result<(), String> {
        if let Some(first) = self.find(&peer.key) {
            return Err(first.name.clone());
        }
        self.by_key.insert(peer.key, self.peers.len());
        self.peers.push(peer);
        Ok(())
    }
}

impl Peer {
    /// Writes the entry as one `[[peer]]` of a `trusted_peers.toml`. The key comes last, so that an
    /// entry that is cut off lacks its key, which is an error, and not a limit, which would widen
    /// trust.
    pub fn to_toml(&self) -> String {
        let mut text = format!(
            "[[peer]]\nname = {}\nrole = \"{}\"\n",
            toml_string(&self.name),
            self.role.name()
        );
        // Writing to a string cannot fail.
        if let Some(last) = self.not_after {
            let _ = writeln!(text, "not_after = \"{last}\"");
        }
        if !self.from.is_empty() {
            let networks: Vec<_> = self.from.iter().map(|from| format!("\"{from}\"")).collect();
            let _ = writeln!(text, "from = [{}]", networks.join(", "));
        }
        if !self.streams.is_empty() {
            let streams: Vec<_> = self.streams.iter().map(|it| toml_string(it)).collect();
            let _ = writeln!(text, "streams = [{}]", streams.join(", "));
        }
        let _ = writeln!(text, "key = \"{}\"", self.key);
        text
    }
}

/// A basic string of TOML.
pub(crate) fn toml_string(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Converts an error of the TOML reader; the message names line and file.
pub(crate) fn syntax_error(text: &str, path: &Path, error: &toml::de::Error) -> Error {
    let line = error.span().map_or(1, |span| line_at(text, span.start));
    let what = error.message().replace('\n', ", ");
    Error::file(path, format!("line {line}: {what}; correct this line"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    peer: Vec<RawPeer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPeer {
    name: Spanned<String>,
    key: Spanned<String>,
    role: Option<Spanned<String>>,
    not_after: Option<Spanned<toml::Value>>,
    from: Option<Spanned<Vec<Spanned<String>>>>,
    streams: Option<Spanned<Vec<Spanned<String>>>>,
}

impl RawPeer {
    /// The peer, or where and why not.
    fn check(self) -> Result<Peer, (usize, String)> {
        let name = self.name.get_ref();
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
            let reason = "a name has 1 to 200 bytes and no control characters; choose another one";
            return Err((self.name.span().start, reason.to_owned()));
        }
        let key: PublicKey = self.key.get_ref().parse().map_err(|error: Error| {
            let why = match error {
                Error::Session { detail, .. } => detail.into_owned(),
                other => other.to_string(),
            };
            let remedy = "copy the whole line that `lsl key show` prints on the other machine";
            (
                self.key.span().start,
                format!("key of {name:?}: {why}; {remedy}"),
            )
        })?;
        let role = match self.role {
            None => TrustedRole::Both,
            Some(role) => match role.get_ref().as_str() {
                "outlet" => TrustedRole::Outlet,
                "inlet" => TrustedRole::Inlet,
                "both" => TrustedRole::Both,
                "relay" => TrustedRole::Relay,
                other => {
                    let reason = format!(
                        "role {other:?} is unknown; write \"outlet\", \"inlet\", \"both\" or \"relay\""
                    );
                    return Err((role.span().start, reason));
                }
            },
        };
        let not_after = self.not_after.map(|day| checked_date("not_after", &day));
        if let Some(from) = self.from.as_ref().filter(|from| from.get_ref().is_empty()) {
            // An empty list hardly means "from anywhere".
            let reason = "from names no network; remove this line if any address will do, or the \
                          entry if none will";
            return Err((from.span().start, reason.to_owned()));
        }
        if let Some(streams) = self.streams.as_ref().filter(|it| it.get_ref().is_empty()) {
            let reason = "streams names no stream; remove this line if any will do, or the entry if \
                          none will";
            return Err((streams.span().start, reason.to_owned()));
        }
        let streams = self.streams.iter().flat_map(Spanned::get_ref);
        let streams = streams.map(|text| {
            // A blank predicate is a mistake: an entry for every stream has no such line.
            if text.get_ref().trim().is_empty() || text.get_ref().len() > MAX_PREDICATE {
                let reason = "a predicate of streams has 1 to 1000 bytes, and not only blanks";
                return Err((text.span().start, reason.to_owned()));
            }
            Ok(text.get_ref().clone())
        });
        let from = self.from.iter().flat_map(Spanned::get_ref);
        let from = from.map(|network| {
            let parsed: Result<Network, _> = network.get_ref().parse();
            parsed.map_err(|reason| (network.span().start, reason))
        });
        Ok(Peer {
            name: name.clone(),
            key,
            role,
            not_after: not_after.transpose()?,
            from: from.collect::<Result<_, _>>()?,
            streams: streams.collect::<Result<_, _>>()?,
        })
    }
}

/// A date as TOML string or TOML local date, or where and why not.
pub(crate) fn checked_date(
    field: &str,
    value: &Spanned<toml::Value>,
) -> Result<Date, (usize, String)> {
    let date = match value.get_ref() {
        toml::Value::String(text) => text.parse().ok(),
        toml::Value::Datetime(day) if day.time.is_none() && day.offset.is_none() => day
            .date
            .and_then(|day| Date::from_ymd(i32::from(day.year), day.month.into(), day.day.into())),
        _ => None,
    };
    date.ok_or_else(|| {
        let reason = format!("{field} is not a day; write it as \"2027-12-31\"");
        (value.span().start, reason)
    })
}

/// Longest name in bytes, as in certificates (§3.5).
const MAX_NAME: usize = 200;

const MAX_PREDICATE: usize = 1000;
