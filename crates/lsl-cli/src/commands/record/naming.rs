//! Names the next recording as clients ask, within limits. The file is visible, lies below the
//! folder for recordings, ends as recordings do and may replace only a recording.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use lsl_platform::remedy::typed;
use lsl_record::template::{self, Fields};
use lsl_xdf::at_rest::is_locked;
use lsl_xdf::chunk::MAGIC;

use crate::failure::{Failure, Outcome};
use crate::ui::text::printable;

/// Template and fields of the next name, which clients may change within limits.
#[derive(Debug, Clone)]
pub(super) struct Naming {
    /// Folder outside which nothing is recorded.
    pub(super) allowed: PathBuf,
    /// Folder of the template, inside `allowed`.
    pub(super) root: PathBuf,
    pub(super) template: String,
    pub(super) fields: Fields,
}

impl Naming {
    /// Applies the values of a client. Forbidden ones change nothing and make it fail.
    pub(super) fn apply(&mut self, pairs: &[(String, String)]) -> Outcome {
        let mut refused = None;
        for (key, value) in pairs {
            let fields = &mut self.fields;
            match key.as_str() {
                "root" => match confined(&self.allowed, value) {
                    Ok(root) => self.root = root,
                    Err(failure) => refused = Some(failure),
                },
                "template" => self.template = forced(value),
                "participant" => fields.participant.clone_from(value),
                "session" => fields.session.clone_from(value),
                "task" => fields.task.clone_from(value),
                "acquisition" => fields.acquisition.clone_from(value),
                "modality" => fields.modality.clone_from(value),
                "run" => match value.parse() {
                    Ok(run) => fields.run = Some(run),
                    Err(_) => {
                        refused = Some(Failure::Usage(format!("run '{value}' is no number")));
                    }
                },
                _ => refused = Some(Failure::Usage(format!("filename knows no '{key}'"))),
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// The file of the next recording, before it is known whether it is encrypted.
    ///
    /// # Errors
    /// [`Failure::Usage`] for one outside the folder for recordings, or hidden in it.
    pub(super) fn file(&self) -> Outcome<PathBuf> {
        let path = template::expand(&self.template, &self.fields, &self.root)?;
        let below = confined_folder(&self.allowed, &path)?;
        let named = path.strip_prefix(&self.root).unwrap_or(&path);
        if is_hidden(&below) || is_hidden(named) {
            return Err(Failure::Usage(format!(
                "{} has a part that begins with a dot: programs keep their settings in such files",
                printable(&path.display().to_string())
            )));
        }
        Ok(path)
    }
}

/// Returns the template with the ending `.xdf`. A recorder compresses nothing, and encrypted files
/// get their `.age` later.
fn forced(template: &str) -> String {
    let without = |text: &str, end: &str| -> Option<String> {
        let at = text.len().checked_sub(end.len())?;
        let is_end = text.get(at..)?.eq_ignore_ascii_case(end);
        is_end.then(|| text[..at].to_owned())
    };
    let text = template.trim();
    let text = without(text, ".age").unwrap_or_else(|| text.to_owned());
    if without(&text, ".xdf").is_some() {
        return text;
    }
    without(&text, ".xdfz").unwrap_or(text) + ".xdf"
}

/// Whether a name in a path is one that is not shown.
fn is_hidden(path: &Path) -> bool {
    path.components().any(
        |part| matches!(part, Component::Normal(name) if name.as_encoded_bytes().starts_with(b".")),
    )
}

/// Refuses to move anything but a recording out of the way.
///
/// # Errors
/// [`Failure::Usage`] for anything else that has this name.
pub(super) fn check_displaced(path: &Path) -> Outcome {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    let begins_as_one = || -> std::io::Result<bool> {
        let mut head = Vec::new();
        File::open(path)?.take(4).read_to_end(&mut head)?;
        // Empty: made by a recorder that ended in the same moment. Compressed: `.xdfz`.
        Ok(head.is_empty() || head == MAGIC || head.starts_with(&[0x1F, 0x8B]))
    };
    // A link is none either: it may lead anywhere.
    let is_recording =
        found.is_file() && (begins_as_one().unwrap_or(false) || is_locked(path).unwrap_or(false));
    if is_recording {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{} is there and is no recording; it stays where it is, and nothing is recorded",
        printable(&path.display().to_string())
    )))
}

/// A folder that a client names, if it lies in the one for recordings.
fn confined(allowed: &Path, root: &str) -> Outcome<PathBuf> {
    let outside = || {
        Failure::Usage(format!(
            "root '{}' is not below {}, which --root allows; recordings stay where they were",
            printable(root),
            allowed.display()
        ))
    };
    let climbs = |part| part == Component::ParentDir;
    if root.contains('\\') || Path::new(root).components().any(climbs) {
        return Err(outside());
    }
    let wanted = std::path::absolute(allowed)?.join(root);
    let found = real_inside(allowed, &wanted)?;
    Ok(typed(&found.ok_or_else(outside)?))
}

/// Returns the folder of a file, relative to the folder for recordings; fails if it lies elsewhere.
fn confined_folder(allowed: &Path, file: &Path) -> Outcome<PathBuf> {
    let folder = std::path::absolute(file)?;
    let folder = folder.parent().unwrap_or(&folder);
    let below = real_inside(allowed, folder)?.and_then(|found| {
        let allowed = real_inside(allowed, &std::path::absolute(allowed).ok()?).ok()??;
        Some(found.strip_prefix(allowed).ok()?.to_owned())
    });
    below.ok_or_else(|| {
        Failure::Usage(format!(
            "{} leads out of {}, which --root allows",
            printable(&file.display().to_string()),
            allowed.display()
        ))
    })
}

/// A folder without links in it, if it lies in another one.
fn real_inside(allowed: &Path, wanted: &Path) -> Outcome<Option<PathBuf>> {
    // Folders that are there may be links; those that are not will be made.
    let real = |path: &Path| {
        let known = path
            .ancestors()
            .find_map(|it| Some((it, it.canonicalize().ok()?)));
        known.map(|(known, real)| match path.strip_prefix(known) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            _ => real,
        })
    };
    let allowed = real(&std::path::absolute(allowed)?);
    let found = real(wanted);
    Ok(found.filter(|found| allowed.is_some_and(|allowed| found.starts_with(allowed))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_outside_are_refused() {
        let base = std::env::temp_dir().join(format!("lsl-remote-{}", std::process::id()));
        let allowed = base.join("allowed");
        fs::create_dir_all(allowed.join("in")).unwrap();
        let real = typed(&allowed.canonicalize().unwrap());
        let good = |root: &str| confined(&allowed, root).unwrap();
        assert_eq!(good("in"), real.join("in"));
        assert_eq!(good("in/new/er"), real.join("in/new/er"));
        assert_eq!(good(""), real);
        assert_eq!(good(allowed.to_str().unwrap()), real);
        for bad in ["..", "../x", "in/../../x", "/etc", "C:\\Data\\"] {
            assert!(confined(&allowed, bad).is_err(), "{bad}");
        }
        fs::remove_dir_all(&base).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn files_behind_links_and_roots_beside_us_are_told_apart() {
        let base = std::env::temp_dir().join(format!("lsl-confined-{}", std::process::id()));
        let allowed = base.join("allowed");
        fs::create_dir_all(&allowed).unwrap();
        fs::create_dir_all(base.join("outside")).unwrap();
        std::os::unix::fs::symlink("../outside", allowed.join("out")).unwrap();
        for bad in ["out", "out/x"] {
            assert!(confined(&allowed, bad).is_err(), "{bad}");
        }
        assert!(confined_folder(&allowed, &allowed.join("new/x.xdf")).is_ok());
        assert!(confined_folder(&allowed, &allowed.join("x.xdf")).is_ok());
        assert!(confined_folder(&allowed, &allowed.join("out/x.xdf")).is_err());
        assert!(confined_folder(&allowed, &allowed.join("out/new/x.xdf")).is_err());
        // `--root ../data` is a matter of whoever started us.
        let beside = base.join("outside/../allowed");
        let real = typed(&allowed.canonicalize().unwrap());
        assert_eq!(confined(&beside, "sub").unwrap(), real.join("sub"));
        assert!(confined(&beside, "../outside").is_err());
        fs::remove_dir_all(&base).unwrap();
    }
    #[test]
    fn names_of_clients_end_as_recordings_do() {
        for (given, expected) in [
            ("x.xdf", "x.xdf"),
            ("x.XDF ", "x.XDF"),
            ("x.xdfz", "x.xdf"),
            ("x.xdf.age", "x.xdf"),
            ("x.age", "x.xdf"),
            ("authorized_keys", "authorized_keys.xdf"),
            ("x.xdf.sh", "x.xdf.sh.xdf"),
            ("x.xdf[.%a]", "x.xdf[.%a].xdf"),
            ("\u{e4}ge", "\u{e4}ge.xdf"),
            ("", ".xdf"),
            ("xdf", "xdf.xdf"),
        ] {
            assert_eq!(forced(given), expected);
        }
    }

    #[test]
    fn nothing_hidden_is_recorded() {
        let root = std::env::temp_dir().join(format!("lsl-hidden-{}", std::process::id()));
        fs::create_dir_all(root.join(".ssh")).unwrap();
        let naming = |template: &str, participant: &str| Naming {
            allowed: root.clone(),
            root: root.clone(),
            template: forced(template),
            fields: Fields {
                participant: participant.into(),
                ..Fields::default()
            },
        };
        for (template, participant) in [
            (".bashrc", ""),
            (".ssh/authorized_keys", ""),
            ("a/.b/c.xdf", ""),
            ("%p/x.xdf", ".ssh"),
            ("%p.xdf", ".x"),
            ("a/", ""),
            (".xdf", ""),
        ] {
            let file = naming(template, participant).file();
            assert!(file.is_err(), "{template} {participant}: {file:?}");
        }
        assert_eq!(naming("a/%p", "b").file().unwrap(), root.join("a/b.xdf"));
        // The folder itself may be hidden, since whoever started us named it.
        let mut hidden = naming("x", "");
        hidden.allowed = root.join(".ssh");
        hidden.root = root.join(".ssh");
        assert_eq!(hidden.file().unwrap(), root.join(".ssh/x.xdf"));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn only_a_recording_makes_room() {
        let path = std::env::temp_dir().join(format!("lsl-room-{}.xdf", std::process::id()));
        assert!(check_displaced(&path).is_ok());
        for (content, makes_room) in [
            (&b"XDF:more"[..], true),
            (b"", true),
            (b"\x1f\x8b\x08", true),
            (b"age-encryption.org/v1\n-> X", true),
            (b"ssh-ed25519 AAAA", false),
            (b"XD", false),
        ] {
            fs::write(&path, content).unwrap();
            assert_eq!(check_displaced(&path).is_ok(), makes_room, "{content:?}");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(check_displaced(&path).is_err());
        fs::remove_dir(&path).unwrap();
    }
}
