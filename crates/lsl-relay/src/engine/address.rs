//! Address of a server, as people write it. Spec: relay §12, §13.

use std::fmt;

/// What a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Redis or Valkey.
    Redis,
    /// NATS.
    Nats,
}

impl Scheme {
    /// Returns the name of such servers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::Nats => "NATS",
        }
    }
}

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// What it speaks.
    pub scheme: Scheme,
    /// Whether TLS is spoken.
    pub is_secure: bool,
    /// Name or address of the machine.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Number of the database.
    pub database: u32,
}

impl Address {
    /// Parses `redis://HOST[:PORT][/DATABASE]`, `rediss://` for TLS, or `nats://HOST[:PORT]`, `tls://` for TLS.
    ///
    /// # Errors
    /// A text that says what is expected.
    pub fn parse(url: &str) -> Result<Self, String> {
        let wrong = || {
            "url is redis://HOST[:PORT][/DATABASE], or rediss:// for TLS, or nats://HOST[:PORT] or tls:// for NATS; \
             name and password go into user and password_file"
                .to_owned()
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (kind, is_secure) = match scheme {
            "redis" => (Scheme::Redis, false),
            "rediss" => (Scheme::Redis, true),
            "nats" | "tls" if cfg!(feature = "nats") => (Scheme::Nats, scheme == "tls"),
            "nats" | "tls" => return Err(NO_NATS.to_owned()),
            _ => return Err(wrong()),
        };
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match place.strip_prefix('[') {
            Some(v6) => v6.split_once(']').ok_or_else(wrong)?,
            None => place.split_at(place.find(':').unwrap_or(place.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|it| *it != 0),
            None => port.is_empty().then_some(match kind {
                Scheme::Redis => 6379,
                Scheme::Nats => 4222,
            }),
        };
        let database = match database {
            "" => Some(0),
            _ if kind == Scheme::Nats => None,
            number => number.parse().ok(),
        };
        let is_host = |it: char| it.is_ascii_alphanumeric() || "-._:%".contains(it);
        if host.is_empty() || !host.chars().all(is_host) {
            return Err(wrong());
        }
        Ok(Self {
            scheme: kind,
            is_secure,
            host: host.to_owned(),
            port: port.ok_or_else(wrong)?,
            database: database.ok_or_else(wrong)?,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_v6 = self.host.contains(':');
        let (open, close) = if is_v6 { ("[", "]") } else { ("", "") };
        write!(f, "{open}{}{close}:{}", self.host, self.port)
    }
}

const NO_NATS: &str = "this lsl is built without NATS; from the sources: cargo install --locked --path \
                       crates/lsl-cli --features nats";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let shown = |url: &str| {
            let address = Address::parse(url)?;
            Ok::<_, String>((
                address.to_string(),
                address.is_secure,
                address.database,
                address.host,
            ))
        };
        let is = |text: &str, is_secure, database, host: &str| {
            Ok((text.to_owned(), is_secure, database, host.to_owned()))
        };
        assert_eq!(shown("redis://a.lan"), is("a.lan:6379", false, 0, "a.lan"));
        assert_eq!(shown("rediss://a:1/2"), is("a:1", true, 2, "a"));
        assert_eq!(shown("redis://[::1]"), is("[::1]:6379", false, 0, "::1"));
        assert_eq!(shown("redis://[::1]:7/"), is("[::1]:7", false, 0, "::1"));
        for wrong in [
            "a.lan",
            "http://a",
            "redis://",
            "redis://a:0",
            "redis://a:x",
            "redis://a:1/x",
            "redis://lsl:secret@a",
            "redis://[::1",
            "redis://[::1]x",
            "nats://a/1",
            "tls://lsl:secret@a",
        ] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
        let nats = (shown("nats://a"), shown("tls://a:1"));
        if cfg!(feature = "nats") {
            assert_eq!(nats, (is("a:4222", false, 0, "a"), is("a:1", true, 0, "a")));
        } else {
            assert!(nats.0.unwrap_err().contains("--features nats"));
        }
    }
}
