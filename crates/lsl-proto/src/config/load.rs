//! Finds the configuration and explains it: search order, and a diagnostic for every setting that
//! is ignored or misleading. Reading goes through `Files`; nothing else touches the system.
//! Spec: lsl-protocol §12.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::ini;
use super::{Bind, Config, EncryptionRequest, Origin, keys};

/// Access to the system, as far as loading needs it.
pub trait Files {
    /// Reads the whole content of a file.
    ///
    /// # Errors
    /// As the system gives them.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Returns an environment variable, if set.
    fn variable(&self, name: &str) -> Option<String>;

    /// Returns the home directory of this process's user, even if the environment names none.
    fn account_home(&self) -> Option<PathBuf>;

    /// Returns the working directory, if it is known.
    fn current_dir(&self) -> Option<PathBuf>;

    /// Returns whether this user may enter a directory, and so learn its contents.
    fn may_enter(&self, directory: &Path) -> bool;

    /// Returns whether the program has more rights than the user who started it. That user can
    /// forge the environment, the home and the working directory. Spec: LSS/1 §11.
    fn has_raised_rights(&self) -> bool;
}

/// Settings that a program makes before the configuration is first used.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Configuration text; preferred to all files (`lsl_set_config_content`).
    pub content: Option<String>,
    /// File name; the file named by the environment comes before it (`lsl_set_config_filename`).
    pub file: Option<PathBuf>,
}

/// Candidate that a configuration or a diagnostic comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// Text supplied by the program.
    Content,
    /// The file named by the environment variable `LSLAPICFG`.
    Environment(PathBuf),
    /// The file named by the program.
    Api(PathBuf),
    /// `lsl_api.cfg` in the working directory.
    WorkingDirectory(PathBuf),
    /// `lsl_api/lsl_api.cfg` in the home directory.
    Home(PathBuf),
    /// The file `/etc/lsl_api/lsl_api.cfg`, for all users.
    System(PathBuf),
    /// `.lsl_api/lsl_api.cfg` in the home directory, the file of Secure LSL. Its settings are not
    /// used. Spec: audit §5.
    SecureLsl(PathBuf),
    /// Built-in values, as no candidate was usable.
    Defaults,
}

impl Source {
    /// Returns the path; `None` unless it is a file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Content | Self::Defaults => None,
            Self::Environment(path)
            | Self::Api(path)
            | Self::WorkingDirectory(path)
            | Self::Home(path)
            | Self::System(path)
            | Self::SecureLsl(path) => Some(path),
        }
    }

    /// Returns whether exactly this file was asked for, so that its absence is worth a word.
    fn is_named(&self) -> bool {
        matches!(self, Self::Environment(_) | Self::Api(_))
    }

    fn origin(&self, line: usize) -> Origin {
        match self.path() {
            Some(path) => Origin::File {
                path: path.to_owned(),
                line,
            },
            None => Origin::Content { line },
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.path()) {
            (Self::Environment(_), Some(path)) => write!(f, "{} (LSLAPICFG)", path.display()),
            (_, Some(path)) => write!(f, "{}", path.display()),
            (Self::Content, None) => f.write_str("configuration content"),
            (_, None) => f.write_str("built-in defaults"),
        }
    }
}

/// Severity of a diagnostic, in rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// A setting has no effect, or another one than it seems.
    Warning,
    /// A whole candidate was not used.
    Error,
}

/// Remark about a configuration, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Severity; `Error` means that `source` was not used.
    pub severity: Severity,
    /// Candidate that the remark is about.
    pub source: Source,
    /// Counted from 1; `None` for remarks about the whole.
    pub line: Option<usize>,
    /// The remark, in one sentence.
    pub text: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}, line {line}: {}", self.source, self.text),
            None => write!(f, "{}: {}", self.source, self.text),
        }
    }
}

/// Result of loading: the configuration of the process and its origin.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The effective configuration; always usable.
    pub config: Config,
    /// Candidate that the configuration comes from.
    pub source: Source,
    /// Remarks about that candidate and the ones before it, in order.
    pub diagnostics: Vec<Diagnostic>,
}

/// Loads the first candidate that can be read and parsed, else the defaults. Never fails: mistakes
/// are reported in the diagnostics.
pub fn load(files: &dyn Files, overrides: &Overrides) -> Loaded {
    let mut diagnostics = Vec::new();
    let mut rejected_request = None;
    let content = overrides
        .content
        .as_ref()
        .map(|text| (Source::Content, text.clone()));
    let texts = content.into_iter().map(Ok).chain(
        candidates(files, overrides)
            .into_iter()
            .filter_map(|source| read(files, source).transpose()),
    );
    for text in texts {
        let rejected = match text {
            Ok((source, text)) => match load_text(&text, &source) {
                Ok((mut config, remarks)) => {
                    diagnostics.extend(remarks);
                    config.encryption_request = rejected_request.or(config.encryption_request);
                    return Loaded {
                        config,
                        source,
                        diagnostics,
                    };
                }
                Err(diagnostic) => {
                    // A mistake in a file must not turn streams that it asks to encrypt into plaintext.
                    let request = EncryptionRequest::of_settings(&text, &source).map(Box::new);
                    rejected_request = rejected_request.or(request);
                    diagnostic
                }
            },
            Err(diagnostic) => diagnostic,
        };
        diagnostics.push(rejected);
    }
    Loaded {
        config: Config {
            encryption_request: rejected_request,
            file: home_folder(files).map(|folder| folder.join(FILE_NAME)),
            ..Config::default()
        },
        source: Source::Defaults,
        diagnostics,
    }
}

/// Reads one configuration text, naming it `source` in origins and diagnostics.
///
/// # Errors
/// The reason for which the whole text is rejected.
pub fn load_text(text: &str, source: &Source) -> Result<(Config, Vec<Diagnostic>), Diagnostic> {
    let remark = |severity, line, text| Diagnostic {
        severity,
        source: source.clone(),
        line,
        text,
    };
    let assignments = ini::parse(text).map_err(|error| {
        remark(
            Severity::Error,
            Some(error.line),
            format!("{}; nothing of it is used", error.reason),
        )
    })?;
    let mut config = Config {
        encryption_request: EncryptionRequest::of_settings(text, source).map(Box::new),
        file: source.path().map(Path::to_owned),
        ..Config::default()
    };
    let mut remarks = Vec::new();
    for ini::Assignment { key, value, line } in assignments {
        let mut problems = Vec::new();
        if key == "log.file" && matches!(source, Source::WorkingDirectory(_)) {
            // Whoever can put a file beside the data would choose where this program writes.
            let text = "log.file: ignored in a file of the working directory; set it in \
                        ~/lsl_api/lsl_api.cfg, or name this file in LSLAPICFG";
            remarks.push(remark(Severity::Warning, Some(line), text.to_owned()));
            continue;
        }
        let known = config
            .apply(&key, &value, source.origin(line), &mut problems)
            .map_err(|reason| {
                let text = format!("{key}: {reason}; nothing of it is used");
                remark(Severity::Error, Some(line), text)
            })?;
        if !known {
            problems.push(unknown(&key));
        }
        remarks.extend(problems.into_iter().map(|problem| {
            let text = if known {
                format!("{key}: {problem}")
            } else {
                problem
            };
            remark(Severity::Warning, Some(line), text)
        }));
        if keys::find(&key).is_some_and(|(_, key)| !key.effective) {
            let text = format!("{key}: accepted for compatibility, has no effect here");
            remarks.push(remark(Severity::Note, Some(line), text));
        }
    }
    if text.contains(char::REPLACEMENT_CHARACTER) {
        let text = "the text is not UTF-8; other characters were replaced".to_owned();
        remarks.push(remark(Severity::Warning, None, text));
    }
    let advice = advice(&config).into_iter().map(str::to_owned);
    remarks.extend(advice.map(|text| remark(Severity::Warning, None, text)));
    Ok((config, remarks))
}

fn candidates(files: &dyn Files, overrides: &Overrides) -> Vec<Source> {
    let own = overrides.file.clone().map(Source::Api);
    let system = Source::System("/etc/lsl_api/lsl_api.cfg".into());
    if files.has_raised_rights() {
        return own.into_iter().chain([system]).collect();
    }
    let working = files.current_dir().unwrap_or_default().join(FILE_NAME);
    let home = home_folder(files).map(|folder| folder.join(FILE_NAME));
    [
        files
            .variable("LSLAPICFG")
            .map(|path| Source::Environment(path.into())),
        own,
        Some(Source::WorkingDirectory(working)),
        home.map(Source::Home),
        Some(system),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the user's folder in which [`load`] looks; `None` if it looks into none.
pub fn home_folder(files: &dyn Files) -> Option<PathBuf> {
    home(files).map(|home| home.join("lsl_api"))
}

/// Returns the home directory, as liblsl finds it; an empty or relative `HOME` counts as unset.
/// `None` with raised rights.
pub(super) fn home(files: &dyn Files) -> Option<PathBuf> {
    if files.has_raised_rights() {
        return None;
    }
    let variable = |name| files.variable(name).filter(|value| !value.is_empty());
    variable("HOME")
        .filter(|home| Path::new(home).is_absolute())
        .or_else(|| variable("USERPROFILE"))
        .or_else(|| Some(variable("HOMEDRIVE")? + &variable("HOMEPATH")?))
        .map(PathBuf::from)
}

/// Reads a candidate. `None` if the file does not exist and was not asked for by name.
fn read(files: &dyn Files, source: Source) -> Result<Option<(Source, String)>, Diagnostic> {
    let Some(path) = source.path() else {
        return Ok(None);
    };
    match files.read(path) {
        Ok(content) => {
            let text = String::from_utf8_lossy(&content).into_owned();
            Ok(Some((source, text)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && !source.is_named() => Ok(None),
        // A home that may not be entered counts as absent; that of a service is often somebody else's.
        Err(_)
            if matches!(source, Source::Home(_))
                && !home(files).is_none_or(|home| files.may_enter(&home)) =>
        {
            let text = "not looked for, because this user may not enter the home directory";
            Err(Diagnostic {
                severity: Severity::Note,
                source,
                line: None,
                text: text.to_owned(),
            })
        }
        Err(error) => {
            let text = format!("cannot be read ({error}); the next candidate is tried");
            Err(Diagnostic {
                severity: Severity::Error,
                source,
                line: None,
                text,
            })
        }
    }
}

fn unknown(path: &str) -> String {
    let Some(near) = keys::suggest(path) else {
        return format!("unknown key '{path}' is ignored");
    };
    let name = path.rsplit_once('.').map_or(path, |(_, name)| name);
    if near.name == name {
        format!(
            "'{path}' is ignored: {name} belongs in section [{}]",
            near.section
        )
    } else {
        format!(
            "unknown key '{path}' is ignored, did you mean '{}'?",
            near.path()
        )
    }
}

/// Returns warnings about combinations of settings that cannot work.
fn advice(config: &Config) -> Vec<&'static str> {
    let (ports, multicast, tuning) = (config.ports(), config.multicast(), config.tuning());
    let last_port = u32::from(ports.base_port) + u32::from(ports.port_range);
    let families_differ = !multicast.addresses_override.is_empty()
        && config.bind() == Bind::All
        && config.multicast_targets().is_empty();
    [
        (ports.base_port == 0).then_some(
            "ports.BasePort 0 takes any free port: known peers cannot find this host, and outlets \
             of liblsl become unreachable",
        ),
        (last_port > 1 << 16)
            .then_some("ports.PortRange reaches beyond port 65535; the rest is not used"),
        (ports.port_range == 0 && !ports.allow_random_ports)
            .then_some("no port is left: ports.PortRange is 0 and random ports are not allowed"),
        (ports.multicast_port == 0)
            .then_some("ports.MulticastPort 0: no stream can be found by multicast"),
        multicast.listen_address.is_some_and(|address| !address.is_unspecified()).then_some(
            "multicast.ListenAddress stops outlets on Linux from hearing multicast queries; leave \
             it out and use multicast.Interfaces",
        ),
        families_differ.then_some(
            "multicast.AddressesOverride has no address of a family that ports.IPv6 permits",
        ),
        (tuning.time_update_min_probes > tuning.time_probe_count).then_some(
            "tuning.TimeUpdateMinProbes exceeds TimeProbeCount: no time correction will ever be \
             accepted",
        ),
        (!matches!(tuning.protocol_version, 100 | 110))
            .then_some("tuning.UseProtocolVersion: only 100 and 110 exist"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

const FILE_NAME: &str = "lsl_api.cfg";

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
