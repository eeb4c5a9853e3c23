//! Parsers of the text of one value, as liblsl reads it, and the way back. A parser reports every
//! oddity of the text; it fails only where liblsl rejects the whole file. Spec: lsl-protocol §12.

use std::fmt::{self, Display};
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use super::ini::trim;
use super::{HostPort, InterfaceAddress, Ipv6Mode, KnownPeer, MulticastGroup, ResolveScope};
use crate::text::{decimal_prefix, integer_prefix, saturating_i64};

/// Smallest and largest usable number, if limited.
pub(super) type Range = Option<(f64, f64)>;

/// Type that a key's value can have.
pub(super) trait Setting: Sized {
    /// Description of the accepted text, in words.
    const KIND: &'static str;

    /// Parses `text` and adds its oddities to `problems`. An error rejects the whole file.
    fn read(text: &str, range: Range, problems: &mut Vec<String>) -> Result<Self, String>;

    /// Writes text that reads back as this value.
    fn show(&self) -> String;
}

impl Setting for String {
    const KIND: &'static str = "text";

    fn read(text: &str, _: Range, problems: &mut Vec<String>) -> Result<Self, String> {
        if text.contains(" ;") {
            problems.push(
                "a comment cannot follow a value; it was taken as part of the text".to_owned(),
            );
        }
        Ok(text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl Setting for bool {
    const KIND: &'static str = "0 or 1";

    fn read(text: &str, _: Range, problems: &mut Vec<String>) -> Result<Self, String> {
        if !matches!(text, "0" | "1") {
            problems.push(format!(
                "only the exact text 1 means yes: '{text}' means no, write 0 or 1"
            ));
        }
        Ok(text == "1")
    }

    fn show(&self) -> String {
        u8::from(*self).to_string()
    }
}

impl Setting for i32 {
    const KIND: &'static str = "whole number";

    #[expect(
        clippy::cast_possible_truncation,
        reason = "an i32 moved towards an i32 bound"
    )]
    fn read(text: &str, range: Range, problems: &mut Vec<String>) -> Result<Self, String> {
        let (value, length) = leading_integer(text);
        note_rest(text, length, &value, problems);
        Ok(into_range(f64::from(value), range, problems) as Self)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for u32 {
    const KIND: &'static str = "whole number";

    fn read(text: &str, range: Range, problems: &mut Vec<String>) -> Result<Self, String> {
        let (low, high) = range.unwrap_or((0.0, 2_147_483_647.0));
        let value = i32::read(text, Some((low.max(0.0), high)), problems)?;
        Ok(Self::try_from(value).unwrap_or_default())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for u64 {
    const KIND: &'static str = "whole number";

    fn read(text: &str, range: Range, problems: &mut Vec<String>) -> Result<Self, String> {
        let length = text.bytes().take_while(u8::is_ascii_digit).count();
        let value = match text.get(..length).unwrap_or_default() {
            "" => 0,
            // Only a number that is too large fails.
            digits => digits.parse().unwrap_or(Self::MAX),
        };
        note_rest(text, length, &value, problems);
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "only numbers outside the range change, and its bounds are exact"
        )]
        match range {
            Some((low, _)) if (value as f64) < low => {
                Ok(into_range(value as f64, range, problems) as Self)
            }
            Some((_, high)) if value as f64 > high => {
                Ok(into_range(value as f64, range, problems) as Self)
            }
            _ => Ok(value),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for u16 {
    const KIND: &'static str = "whole number up to 65535";

    fn read(text: &str, _: Range, problems: &mut Vec<String>) -> Result<Self, String> {
        let (value, length) = leading_integer(text);
        note_rest(text, length, &value, problems);
        // liblsl cuts it to 16 bits without a check.
        let wrapped = Self::try_from(value.rem_euclid(1 << 16)).unwrap_or_default();
        if i32::from(wrapped) != value {
            problems.push(format!(
                "{value} does not fit 16 bits and wraps to {wrapped}"
            ));
        }
        Ok(wrapped)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for f64 {
    const KIND: &'static str = "seconds";

    fn read(text: &str, range: Range, problems: &mut Vec<String>) -> Result<Self, String> {
        let (value, length) = leading_decimal(text);
        note_rest(text, length, &value, problems);
        Ok(into_range(value, range, problems))
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl Setting for f32 {
    const KIND: &'static str = "seconds";

    #[expect(
        clippy::cast_possible_truncation,
        reason = "liblsl keeps this value in 32 bits"
    )]
    fn read(text: &str, range: Range, problems: &mut Vec<String>) -> Result<Self, String> {
        Ok(f64::read(text, range, problems)? as Self)
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl Setting for Ipv6Mode {
    const KIND: &'static str = "disable, allow or force";

    fn read(text: &str, _: Range, _: &mut Vec<String>) -> Result<Self, String> {
        match text {
            "disable" | "disabled" => Ok(Self::Disable),
            "allow" | "allowed" => Ok(Self::Allow),
            "force" | "forced" => Ok(Self::Force),
            _ => Err(format!("'{text}' is none of {}", Self::KIND)),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Disable => "disable",
            Self::Allow => "allow",
            Self::Force => "force",
        }
        .to_owned()
    }
}

impl Setting for ResolveScope {
    const KIND: &'static str = "machine, link, site, organization or global";

    fn read(text: &str, _: Range, _: &mut Vec<String>) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.name() == text)
            .ok_or_else(|| format!("'{text}' is none of {}", Self::KIND))
    }

    fn show(&self) -> String {
        self.name().to_owned()
    }
}

impl Setting for Option<IpAddr> {
    const KIND: &'static str = "address";

    fn read(text: &str, _: Range, problems: &mut Vec<String>) -> Result<Self, String> {
        let address = text.parse().ok();
        if address.is_none() && !text.is_empty() {
            problems.push(format!("'{text}' is not an IP address and was ignored"));
        }
        Ok(address)
    }

    fn show(&self) -> String {
        self.map(|address| address.to_string()).unwrap_or_default()
    }
}

impl Setting for MulticastGroup {
    const KIND: &'static str = "the last seven groups of an IPv6 address";

    fn read(text: &str, _: Range, problems: &mut Vec<String>) -> Result<Self, String> {
        let address: Ipv6Addr = format!("ff02:{text}").parse().unwrap_or_else(|_| {
            problems.push(format!(
                "'{text}' is not {}; the default is used",
                Self::KIND
            ));
            Self::default().with_prefix(0xff02)
        });
        let [_, tail @ ..] = address.segments();
        Ok(Self(tail))
    }

    fn show(&self) -> String {
        self.0.map(|group| format!("{group:X}")).join(":")
    }
}

/// Type of the members of a set.
pub(super) trait Item: Sized + Display {
    /// Description of the set's text, in words.
    const KIND: &'static str;

    /// Parses one member; the error is the reason.
    fn read(text: &str) -> Result<Self, String>;
}

impl<T: Item> Setting for Vec<T> {
    const KIND: &'static str = T::KIND;

    fn read(text: &str, _: Range, problems: &mut Vec<String>) -> Result<Self, String> {
        let Some(members) = text
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
        else {
            problems.push(format!(
                "a set is written {{a, b}}: '{text}' means no entries at all"
            ));
            return Ok(Self::new());
        };
        let mut values = Self::new();
        for member in members
            .split(',')
            .map(trim)
            .filter(|member| !member.is_empty())
        {
            match T::read(member) {
                Ok(value) => values.push(value),
                Err(reason) => problems.push(format!("{reason} and was ignored")),
            }
        }
        Ok(values)
    }

    fn show(&self) -> String {
        let members: Vec<String> = self.iter().map(ToString::to_string).collect();
        format!("{{{}}}", members.join(", "))
    }
}

impl Item for IpAddr {
    const KIND: &'static str = "{address, ...}";

    fn read(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("'{text}' is not an IP address"))
    }
}

impl Item for String {
    const KIND: &'static str = "{pattern, ...}";

    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Item for InterfaceAddress {
    const KIND: &'static str = "{address, IPv6 address%interface index, ...}";

    fn read(text: &str) -> Result<Self, String> {
        let (address, index) = text.split_once('%').unwrap_or((text, "0"));
        let fail = || format!("'{text}' is not the address of an interface");
        let address: IpAddr = address.parse().map_err(|_| fail())?;
        let index = index.parse().map_err(|_| fail())?;
        Ok(Self { address, index })
    }
}

impl Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            0 => write!(f, "{}", self.address),
            index => write!(f, "{}%{index}", self.address),
        }
    }
}

impl Item for KnownPeer {
    const KIND: &'static str = "{host, host:port, [IPv6 address]:port, IPv4 network/bits, ...}";

    fn read(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            text.parse().map(Self::Network)
        } else {
            text.parse().map(Self::Host)
        }
    }
}

impl Display for KnownPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => host.fmt(f),
            Self::Network(network) => network.fmt(f),
        }
    }
}

impl Item for HostPort {
    const KIND: &'static str = "{host, host:port, [IPv6 address]:port, ...}";

    fn read(text: &str) -> Result<Self, String> {
        let fail = || format!("'{text}' is not a host or host:port");
        let port = |digits: &str| match digits.parse::<u16>() {
            Ok(port) if port > 0 => Ok(Some(port)),
            _ => Err(fail()),
        };
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, tail) = rest.split_once(']').ok_or_else(fail)?;
            host.parse::<Ipv6Addr>().map_err(|_| fail())?;
            match tail.strip_prefix(':') {
                Some(digits) => (host, port(digits)?),
                None if tail.is_empty() => (host, None),
                None => return Err(fail()),
            }
        } else {
            match text.split_once(':') {
                // Two colons and more: a bare IPv6 address.
                Some((_, rest)) if rest.contains(':') => (text, None),
                Some((host, digits)) => (host, port(digits)?),
                None => (text, None),
            }
        };
        let blank = |c: char| c.is_whitespace() || c.is_control() || "{}[]/;".contains(c);
        if host.is_empty() || host.contains(blank) {
            return Err(fail());
        }
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text)
    }
}

impl Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) if self.host.contains(':') => write!(f, "[{}]:{port}", self.host),
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

/// Returns the longest leading decimal integer, saturated to 32 bits, and its length, or (0, 0).
fn leading_integer(text: &str) -> (i32, usize) {
    let Some(number) = integer_prefix(text.as_bytes()) else {
        return (0, 0);
    };
    let value = saturating_i64(number);
    let limit = if value < 0 { i32::MIN } else { i32::MAX };
    (i32::try_from(value).unwrap_or(limit), number.len())
}

/// Returns the longest leading decimal number and its length; (0.0, 0) if none.
fn leading_decimal(text: &str) -> (f64, usize) {
    let number = decimal_prefix(text.as_bytes()).unwrap_or_default();
    let value: f64 = number.parse().unwrap_or(0.0);
    (value.clamp(f64::MIN, f64::MAX), number.len())
}

fn note_rest(text: &str, length: usize, value: &dyn Display, problems: &mut Vec<String>) {
    let rest = text.get(length..).unwrap_or_default();
    if length == 0 {
        problems.push(format!("'{text}' is not a decimal number and means 0"));
    } else if !rest.is_empty() && !trim(rest).starts_with(';') {
        problems.push(format!(
            "'{rest}' after the number is ignored: the value is {value}"
        ));
    }
}

fn into_range(value: f64, range: Range, problems: &mut Vec<String>) -> f64 {
    let Some((low, high)) = range else {
        return value;
    };
    let clamped = value.clamp(low, high);
    if value < low || value > high {
        problems.push(format!(
            "{value} is outside {low} to {high}: {clamped} is used"
        ));
    }
    clamped
}

#[cfg(test)]
#[path = "values_tests.rs"]
mod tests;
