//! `cfg.file`: the file in use, and those that look like one and are not.

use std::path::{Path, PathBuf};

use lsl_core::config::{Config, Loaded, Origin, Severity, Source, SystemFiles, load_text};
use lsl_proto::config::home_folder;

use super::files;
use crate::observe::{ConfigSeen, FileSeen, Setting};

/// Looks at the configuration in use and around it.
pub(super) fn look(loaded: &Loaded) -> ConfigSeen {
    let in_use = loaded.source.path().map(Path::to_owned);
    let rejected = loaded
        .diagnostics
        .iter()
        .filter(|it| it.severity == Severity::Error);
    let rejected = rejected.filter_map(|it| {
        Some(FileSeen {
            path: it.source.path()?.to_owned(),
            problem: it.text.clone(),
            line: it.line,
            ..FileSeen::default()
        })
    });
    let changed = loaded
        .config
        .entries()
        .into_iter()
        .filter(|it| it.origin != Origin::Default);
    let changed = changed
        .filter(|it| it.value != it.default)
        .map(|it| Setting {
            origin: match it.origin {
                Origin::Api => "command line".to_owned(),
                origin => origin.to_string(),
            },
            key: it.key,
            value: it.value,
            default: it.default.to_owned(),
        });
    let places = places();
    ConfigSeen {
        rejected: rejected.collect(),
        misnamed: places
            .iter()
            .flat_map(|it| misnamed(it, &loaded.config))
            .collect(),
        hidden: hidden(&places, &loaded.source, &loaded.config),
        changed: changed.collect(),
        in_use,
    }
}

/// Folders in which `lsl_api.cfg` is looked for, in order.
fn places() -> Vec<PathBuf> {
    let working = std::env::current_dir().ok();
    let all = [
        working,
        home_folder(&SystemFiles),
        Some("/etc/lsl_api".into()),
    ];
    all.into_iter().flatten().collect()
}

/// Files of a folder that were to be the configuration.
fn misnamed(folder: &Path, config: &Config) -> Vec<FileSeen> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let right = folder.join(NAME);
    let is_there = right.is_file();
    let near = entries.take(MOST_ENTRIES).filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        let folded = name.to_ascii_lowercase();
        let is_near = name != NAME && (folded == NAME || NEAR_NAMES.contains(&folded.as_str()));
        // Where case does not matter it is the file in use.
        (is_near && !(folded == NAME && is_there)).then(|| FileSeen {
            path: folder.join(&name),
            problem: format!("it has to be called {NAME}"),
            belongs: (!is_there).then(|| right.clone()),
            settings: settings(&folder.join(&name), config),
            line: None,
        })
    });
    near.collect()
}

/// Files that would be read if the one in use were not there.
fn hidden(places: &[PathBuf], source: &Source, config: &Config) -> Vec<FileSeen> {
    if !matches!(source, Source::WorkingDirectory(_) | Source::Home(_)) {
        // Others were asked for by name, or have nothing behind them.
        return Vec::new();
    }
    let in_use = source.path();
    let later = places.iter().map(|folder| folder.join(NAME));
    let mut later = later.skip_while(|path| Some(path.as_path()) != in_use);
    later.next();
    let seen = later.filter(|path| path.is_file()).map(|path| FileSeen {
        settings: settings(&path, config),
        path,
        ..FileSeen::default()
    });
    seen.collect()
}

/// The settings of a file that decide what is found, and differ from those in use.
fn settings(path: &Path, in_use: &Config) -> Vec<(String, String)> {
    let Some(text) = files::text(path) else {
        return Vec::new();
    };
    let Ok((config, _)) = load_text(&text, &Source::Api(path.to_owned())) else {
        return Vec::new();
    };
    let both = config.entries().into_iter().zip(in_use.entries());
    let decides = both.filter(|(there, here)| {
        DECIDING.contains(&there.key.as_str())
            && there.value != there.default
            && there.value != here.value
    });
    decides.map(|(there, _)| (there.key, there.value)).collect()
}

const NAME: &str = "lsl_api.cfg";

/// What editors and file managers make of it.
const NEAR_NAMES: &[&str] = &[
    "lsl_api.cfg.txt",
    "lsl_api.txt",
    "lsl_api.cfg.cfg",
    "lsl_api.conf",
    "lsl_api.ini",
    "lsl_api",
];

/// Keys for whose sake somebody wrote the file.
const DECIDING: &[&str] = &["lab.KnownPeers", "lab.SessionID", "lab.Relay"];

/// A working directory may hold any number of files.
const MOST_ENTRIES: usize = 10_000;
