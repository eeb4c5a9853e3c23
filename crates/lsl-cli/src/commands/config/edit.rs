//! `lsl config set`, `add` and `remove`: change one key of the file in use, and nothing else of it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lsl_core::config::{Config, Overrides, Severity, Source, SystemFiles, load, load_text};
use lsl_core::secure::files::replace;
use lsl_platform::files::{Who, create_new};
use lsl_proto::config::{home_folder, ini};

use crate::failure::{Failure, Outcome};
use crate::files::place::SETTINGS_NAME;
use crate::globals::Globals;
use crate::ui::text::printable;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  lsl config set lab.SessionID lab2
  lsl config set ports.PortRange 128

Changes the file in use, or makes ~/lsl_api/lsl_api.cfg. Comments and all other lines stay.")]
pub(super) struct Set {
    /// Full name of the key, such as lab.SessionID; `lsl config show` lists them
    #[arg(value_name = "KEY")]
    key: String,

    /// Its new value, as it stands in a file
    #[arg(value_name = "VALUE")]
    value: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  lsl config add lab.KnownPeers 192.168.1.20
  lsl config add lab.Relay hub.lab

Changes the file in use, or makes ~/lsl_api/lsl_api.cfg. Comments and all other lines stay.")]
pub(super) struct Add {
    /// Full name of a key whose value is a set, such as lab.KnownPeers
    #[arg(value_name = "KEY")]
    key: String,

    /// What to add to the set
    #[arg(value_name = "VALUE")]
    value: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  lsl config remove lab.KnownPeers 192.168.1.20   this one
  lsl config remove lab.KnownPeers                all: the default holds again")]
pub(super) struct Remove {
    /// Full name of the key
    #[arg(value_name = "KEY")]
    key: String,

    /// What to take out of a set; without it the line goes, and the default holds
    #[arg(value_name = "VALUE")]
    value: Option<String>,
}

impl Set {
    pub(super) fn run(&self, globals: &Globals) -> Outcome {
        change(globals, &self.key, |_| Ok(Some(self.value.clone())))
    }
}

impl Add {
    pub(super) fn run(&self, globals: &Globals) -> Outcome {
        change(globals, &self.key, |value| {
            let mut items = items(&self.key, value)?;
            let added = self.value.trim().to_owned();
            if added.is_empty() || added.contains([',', '{', '}']) {
                return Err(Failure::Usage(
                    "name one value at a time, without braces".into(),
                ));
            }
            if !items.contains(&added) {
                items.push(added);
            }
            Ok(Some(format!("{{{}}}", items.join(", "))))
        })
    }
}

impl Remove {
    pub(super) fn run(&self, globals: &Globals) -> Outcome {
        change(globals, &self.key, |value| {
            let Some(removed) = &self.value else {
                return Ok(None);
            };
            let mut items = items(&self.key, value)?;
            let before = items.len();
            items.retain(|item| item != removed.trim());
            if items.len() == before {
                let (key, removed) = (printable(&self.key), printable(removed));
                return Err(Failure::NotFound(format!(
                    "{key} has no {removed}; it is {value}"
                )));
            }
            Ok((!items.is_empty()).then(|| format!("{{{}}}", items.join(", "))))
        })
    }
}

/// Changes a key of the file in use to what `new` makes of its value; none removes its line.
fn change(
    globals: &Globals,
    key: &str,
    new: impl FnOnce(&str) -> Outcome<Option<String>>,
) -> Outcome {
    let (path, text) = target(globals)?;
    let source = Source::Api(path.clone());
    let wrong = |wrong| Failure::Runtime(format!("{wrong}; correct this line, then run it again"));
    let (before, remarks) = load_text(&text, &source).map_err(wrong)?;
    let entry = before.entries().into_iter().find(|entry| entry.key == key);
    let value = entry.map(|entry| entry.value).unwrap_or_default();
    let new = new(&value)?;
    let mut wanted = before.clone();
    // Says what is wrong with key or value, and what is meant.
    let default = Config::default()
        .entries()
        .into_iter()
        .find(|entry| entry.key == key);
    let text_of_new = new
        .clone()
        .or_else(|| default.map(|entry| entry.value))
        .unwrap_or_default();
    wanted
        .set(key, &text_of_new)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    if new
        .as_deref()
        .is_some_and(|new| new.trim().is_empty() || new.contains(['\r', '\n']))
    {
        return Err(Failure::Usage(format!(
            "an empty value cannot be written; lsl config remove {key}"
        )));
    }
    let edited = edited(&text, key, new.as_deref())
        .map_err(|error| Failure::Runtime(format!("{}: {error}", path.display())))?;
    let (after, new_remarks) = load_text(&edited, &source).map_err(wrong)?;
    let values = |config: &Config| {
        let entries = config
            .entries()
            .into_iter()
            .map(|entry| (entry.key, entry.value));
        entries.collect::<Vec<_>>()
    };
    if values(&after) != values(&wanted) {
        return Err(Failure::Runtime(format!(
            "{} cannot be changed without changing more of it; edit it by hand",
            path.display()
        )));
    }
    let mut out = io::stdout().lock();
    let shown = printable(&path.display().to_string());
    if edited == text {
        writeln!(out, "{shown}: {key} is {value} already")?;
        return Ok(out.flush()?);
    }
    write(&path, edited.as_bytes())?;
    match new {
        Some(new) => writeln!(out, "{shown}: {key} = {}", printable(&new))?,
        None => writeln!(out, "{shown}: {key} has its default again: {text_of_new}")?,
    }
    for remark in new_remarks
        .iter()
        .filter(|it| it.severity >= Severity::Warning)
    {
        if !remarks.iter().any(|old| old.text == remark.text) {
            writeln!(out, "warning: {remark}")?;
        }
    }
    writeln!(
        out,
        "Programs that are running must be started again to read it."
    )?;
    Ok(out.flush()?)
}

/// The file to change and its text; one that is to be made has none.
fn target(globals: &Globals) -> Outcome<(PathBuf, String)> {
    let path = if let Some(path) = globals.config_file() {
        Some(path.to_owned())
    } else {
        let loaded = load(&SystemFiles, &Overrides::default());
        let mut wrong = loaded.diagnostics.iter();
        if let Some(wrong) = wrong.find(|it| it.severity == Severity::Error) {
            // It may be the one that is meant; the next one would be changed in its place.
            return Err(Failure::Runtime(format!("{wrong}; correct this first")));
        }
        loaded.source.path().map(Path::to_owned)
    };
    let path = match path {
        Some(path) => path,
        // Elsewhere no program would read it.
        None => home_folder(&SystemFiles)
            .ok_or_else(|| {
                Failure::Runtime(
                    "no program would read a file of this user, because HOME is not set; name a \
                     file: --config FILE"
                        .into(),
                )
            })?
            .join(SETTINGS_NAME),
    };
    match fs::read(&path) {
        Ok(bytes) => {
            let text = String::from_utf8(bytes).map_err(|_| {
                Failure::Runtime(format!("{} is no UTF-8; edit it by hand", path.display()))
            })?;
            Ok((path, text))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((path, String::new())),
        Err(error) => Err(Failure::Runtime(format!("{}: {error}", path.display()))),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Outcome {
    if path.exists() {
        return Ok(replace(path, bytes)?);
    }
    let failed = |error: io::Error| Failure::Runtime(format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut file = create_new(path, Who::Everybody).map_err(failed)?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(|error| {
            // Half a file would be read by all programs.
            let _ = fs::remove_file(path);
            failed(error)
        })
}

/// The elements of a set.
fn items(key: &str, value: &str) -> Outcome<Vec<String>> {
    let inner = value
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    let inner = inner.ok_or_else(|| {
        let key = printable(key);
        Failure::Usage(format!(
            "{key} is no key with a set of values; `lsl config set {key} VALUE` sets it"
        ))
    })?;
    let items = inner
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty());
    Ok(items.map(str::to_owned).collect())
}

/// Returns the text of a file with another value of a key; none removes its line.
fn edited(text: &str, key: &str, value: Option<&str>) -> Result<String, ini::SyntaxError> {
    let assignments = ini::parse(text)?;
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let (section, name) = key.split_once('.').unwrap_or(("", key));
    let found = assignments
        .iter()
        .find(|it| it.key == key)
        .map(|it| it.line - 1);
    match (found, value) {
        (Some(at), None) => {
            lines.remove(at);
        }
        (None, None) => {}
        (Some(at), Some(value)) => {
            let old = lines.get(at).map_or("", String::as_str);
            // As it was written: with its blanks, and with the section in front of it or not.
            let head = old
                .split_once('=')
                .map_or(name, |(head, _)| head)
                .to_owned();
            let blank = if head.ends_with([' ', '\t']) { " " } else { "" };
            let rest = if old.ends_with('\n') { end } else { "" };
            if let Some(line) = lines.get_mut(at) {
                *line = format!("{head}={blank}{value}{rest}");
            }
        }
        (None, Some(value)) => {
            let line = format!("{name} = {value}{end}");
            if let Some(last) = lines.last_mut().filter(|last| !last.ends_with('\n')) {
                last.push_str(end);
            }
            if let Some(at) = place_in(&lines, section) {
                lines.insert(at, line);
            } else {
                if !lines.is_empty() {
                    lines.push(end.to_owned());
                }
                lines.extend([format!("[{section}]{end}"), line]);
            }
        }
    }
    Ok(lines.concat())
}

/// Behind which line a new key of this section belongs: its last key, or its header.
fn place_in(lines: &[String], section: &str) -> Option<usize> {
    let mut is_inside = false;
    let mut place = None;
    for (at, line) in lines.iter().enumerate() {
        if let Some(rest) = line.strip_prefix('[') {
            is_inside = rest
                .split_once(']')
                .is_some_and(|(name, _)| name == section);
        }
        if is_inside && !line.trim().is_empty() && !line.starts_with(';') {
            place = Some(at + 1);
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, key: &str, value: Option<&str>, expected: &str) {
        assert_eq!(edited(text, key, value).unwrap(), expected);
        let again = edited(expected, key, value).unwrap();
        assert_eq!(again, expected, "a second time");
    }

    #[test]
    fn one_line_changes() {
        let new = Some("new");
        check("", "lab.SessionID", new, "[lab]\nSessionID = new\n");
        check(
            "; c\n",
            "lab.SessionID",
            new,
            "; c\n\n[lab]\nSessionID = new\n",
        );
        check(
            "; c\n[lab]\n; d\nSessionID=old\n\n[log]\nlevel = 1\n",
            "lab.SessionID",
            new,
            "; c\n[lab]\n; d\nSessionID=new\n\n[log]\nlevel = 1\n",
        );
        check(
            "[lab]\r\nSessionID = old\r\n",
            "lab.SessionID",
            new,
            "[lab]\r\nSessionID = new\r\n",
        );
        check(
            "lab.SessionID = old",
            "lab.SessionID",
            new,
            "lab.SessionID = new",
        );
        check(
            "[lab]\nKnownPeers = {a}\n\n; about log\n[log]\nlevel = 1",
            "lab.SessionID",
            new,
            "[lab]\nKnownPeers = {a}\nSessionID = new\n\n; about log\n[log]\nlevel = 1\n",
        );
        check("[lab]", "lab.SessionID", new, "[lab]\nSessionID = new\n");
        check(
            "[lab]\nSessionID = x\n;end\n",
            "lab.SessionID",
            None,
            "[lab]\n;end\n",
        );
        check("[lab]\n", "lab.SessionID", None, "[lab]\n");
        assert!(edited("words\n", "lab.SessionID", new).is_err());
    }

    #[test]
    fn sets_have_items() {
        assert_eq!(items("k", "{a, b:1}").unwrap(), ["a", "b:1"]);
        assert_eq!(items("k", "{}").unwrap(), [""; 0]);
        assert!(items("k", "site").is_err());
    }
}
