//! What an outlet gives itself: a random uid (RFC 9562 version 4) and its host's name.

use crate::{Error, Result};

/// A new uid, 36 lower-case characters. Spec: lsl-protocol §2.1.
///
/// # Errors
/// [`Error::Io`] if the system gives no random numbers.
pub fn random() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::io(
            "no random numbers",
            std::io::Error::other(error.to_string()),
        )
    })?;
    Ok(text(bytes))
}

/// A number nobody can guess; 0 if the system gives none, which only makes it guessable.
pub(crate) fn random_number() -> u32 {
    getrandom::u32().unwrap_or(0)
}

/// The host's name as raw bytes.
pub(crate) fn hostname() -> Vec<u8> {
    lsl_platform::process::hostname()
}

fn text(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_variant_are_in_place() {
        assert_eq!(text([0; 16]), "00000000-0000-4000-8000-000000000000");
        assert_eq!(text([0xFF; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn two_uids_differ() {
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
