//! Requests for encryption in places where this library does not take them from: `[security]` in a
//! `lsl_api.cfg`, and `~/.lsl_api/lsl_api.cfg`, both of Secure LSL. They can only stop streams,
//! never switch encryption on or off. Spec: audit §5.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use super::load::{Files, Source, home};

/// A file that asks for encryption. Its `Display` is the error E7.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptionRequest {
    /// File or text that contains it.
    pub source: Source,
    /// Line of the first key in `[security]`, counted from 1.
    pub line: Option<usize>,
    /// Names of the keys in `[security]`; values are left out, they may be secret.
    pub keys: Vec<String>,
}

impl fmt::Display for EncryptionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        f.write_str(
            " asks for encryption ([security]), which this library does not take from there; nothing \
             streams, because it would be plaintext. To encrypt: lsl config migrate. To stay in \
             plaintext: enabled = false there, or policy = \"off\" in lsl-secure.toml",
        )
    }
}

impl EncryptionRequest {
    /// Returns the request of a `lsl_api.cfg`, valid or not: one that has keys in `[security]` and
    /// does not switch them off.
    pub fn of_settings(text: &str, source: &Source) -> Option<Self> {
        Self::of_secure_lsl(text, source).filter(|request| !request.keys.is_empty())
    }

    /// Returns the request of Secure LSL's own file: it counts unless it switches encryption off.
    pub fn of_secure_lsl(text: &str, source: &Source) -> Option<Self> {
        let section = Section::of(text);
        (!section.is_off).then(|| Self {
            source: source.clone(),
            line: section.line,
            keys: section.keys,
        })
    }
}

/// Returns the text of a file without its `[security]`.
pub fn without_encryption_request(text: &str) -> String {
    let mut inside = None;
    let outside = text.split_inclusive('\n').filter(|line| {
        inside = is_header(line).or(inside);
        inside != Some(true) && assignment(line, inside).is_none()
    });
    outside.collect()
}

/// Finds the request of `~/.lsl_api/lsl_api.cfg`, Secure LSL's file, which counts unless it
/// switches encryption off.
///
/// Also looks in the account's home: an `lsl-secure.toml` there counts if no variable names a home.
pub fn encryption_request_in_home(files: &dyn Files) -> Option<EncryptionRequest> {
    if files.has_raised_rights() {
        return None;
    }
    let named = home(files);
    let account = files
        .account_home()
        .filter(|home| Some(home) != named.as_ref());
    let mut homes = named.into_iter().chain(account);
    homes.find_map(|home| request_below(files, &home))
}

fn request_below(files: &dyn Files, home: &Path) -> Option<EncryptionRequest> {
    if !files.may_enter(home) {
        return None;
    }
    let file = home.join(".lsl_api").join("lsl_api.cfg");
    let text = match files.read(&file) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return None;
        }
        // A file that cannot be read cannot switch it off.
        Err(_) => String::new(),
    };
    EncryptionRequest::of_secure_lsl(&text, &Source::SecureLsl(file))
}

/// Contents of `[security]`, read so that no mistake elsewhere in the file hides them.
#[derive(Default)]
struct Section {
    /// In file order; `line` is that of the first.
    keys: Vec<String>,
    line: Option<usize>,
    is_off: bool,
}

impl Section {
    fn of(text: &str) -> Self {
        let mut section = Self::default();
        let (mut inside, mut said_on) = (None, false);
        for (index, line) in text.lines().enumerate() {
            if let Some(is_security) = is_header(line) {
                inside = Some(is_security);
                continue;
            }
            let Some((key, value)) = assignment(line, inside) else {
                continue;
            };
            section.line.get_or_insert(index + 1);
            section.keys.push(key.to_owned());
            if key.eq_ignore_ascii_case("enabled") {
                if is_no(value) {
                    section.is_off = true;
                } else {
                    said_on = true;
                }
            }
        }
        section.is_off &= !said_on;
        section
    }
}

/// Returns key and value that a line sets in `[security]`. `inside` is [`is_header`] of the last
/// header; above the first one, `security.key` means the same to the reader of settings.
fn assignment(line: &str, inside: Option<bool>) -> Option<(&str, &str)> {
    let line = line.trim_start_matches('\u{feff}').trim();
    // People write comments with '#', though it begins none for the readers of this file.
    if line.starts_with([';', '#']) {
        return None;
    }
    let (key, value) = line.split_once('=')?;
    let key = key.trim();
    if let Some(is_security) = inside {
        return is_security.then_some((key, value));
    }
    let (section, key) = key.split_once('.')?;
    let is_security = section.trim().eq_ignore_ascii_case("security");
    is_security.then_some((key.trim(), value))
}

/// Returns whether a header begins the section `[security]`; `None` if the line is no header.
fn is_header(line: &str) -> Option<bool> {
    let line = line.trim_start_matches('\u{feff}').trim();
    let header = line.strip_prefix('[')?;
    let name = header.split(']').next().unwrap_or(header);
    Some(name.trim().eq_ignore_ascii_case("security"))
}

fn is_no(value: &str) -> bool {
    let value = value.split([';', '#']).next().unwrap_or(value).trim();
    ["false", "0", "no", "off"]
        .iter()
        .any(|no| value.eq_ignore_ascii_case(no))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(usize, &[&str])>) {
        let found = EncryptionRequest::of_settings(text, &Source::Content);
        let found = found.map(|request| (request.line, request.keys));
        let expected = expected.map(|(line, keys)| {
            let keys = keys.iter().map(|&key| key.to_owned()).collect::<Vec<_>>();
            (Some(line), keys)
        });
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn keys_in_the_section_ask_for_encryption_unless_they_are_off() {
        check("", None);
        check("[lab]\nenabled = true", None);
        check("[security]\n; enabled = true\n# key = x\n\n", None);
        for on in ["true", "1", "yes", "on", "maybe", "falsehood", ""] {
            let text = format!("[lab]\nSessionID = a\n[security]\n\nenabled = {on}\n[log]\nx = 1");
            check(&text, Some((5, &["enabled"])));
        }
        for off in [
            "false",
            "0",
            "no",
            "off",
            "False",
            "OFF ; not now",
            "no # yet",
        ] {
            let text = format!("[security]\nenabled = {off}\nprivate_key = x\n");
            check(&text, None);
        }
        check("[security]\nprivate_key = x", Some((2, &["private_key"])));
        check("[security]\r\nenabled=true\r\n", Some((2, &["enabled"])));
        // Of contradicting values, the one that protects counts.
        check(
            "[security]\nenabled = false\n[lab]\n[Security ]\nenabled = 1",
            Some((2, &["enabled", "enabled"])),
        );
    }

    /// The reader of settings makes the same keys of both spellings.
    #[test]
    fn keys_before_the_first_header_may_name_the_section_themselves() {
        check("security.enabled = true", Some((1, &["enabled"])));
        check(
            "; a\nSecurity.private_key = x\n[security]\nenabled = 1",
            Some((2, &["private_key", "enabled"])),
        );
        check("security.enabled = off\nsecurity.key = x", None);
        check(
            "security.enabled = off\n[security]\nenabled = 1",
            Some((1, &["enabled", "enabled"])),
        );
        check("# security.enabled = true", None);
        check("enabled = true\n[lab]\nsecurity.enabled = true", None);
    }

    #[test]
    fn the_rest_of_a_file_is_kept_as_it_is() {
        let check = |text: &str, expected: &str| {
            assert_eq!(without_encryption_request(text), expected, "{text:?}");
        };
        check("", "");
        check("; a\n[lab]\r\nx = 1", "; a\n[lab]\r\nx = 1");
        check(
            "a = 1\n[security]\nkey = secret\n; b\n[lab]\nx = 1\n",
            "a = 1\n[lab]\nx = 1\n",
        );
        check(
            "security.enabled = 1\na = 1\n; security.x = 1\n Security.k=s\n[lab]\nsecurity.x = 1\n",
            "a = 1\n; security.x = 1\n[lab]\nsecurity.x = 1\n",
        );
        check("[ Security]\nk = s\n[lab]\n[security]\nk = s", "[lab]\n");
    }

    #[test]
    fn a_mistake_elsewhere_hides_nothing() {
        check(
            "[lab\ngarbage\n=\n[security\nenabled = 1",
            Some((5, &["enabled"])),
        );
        check("\u{feff}[security]\n  enabled = 1", Some((2, &["enabled"])));
    }
}
