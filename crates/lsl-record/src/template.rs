//! File names made from a template, as LabRecorder makes them: `%p` participant, `%s` session, `%b`
//! task (block), `%a` acquisition, `%m` modality, `%r` or `%n` run. Text in brackets is left out if
//! a placeholder in it has no value: `[_acq-%a]`.

use std::path::{Component, Path, PathBuf};

use lsl_xdf::at_rest::locked_name;

/// A folder layout of BIDS.
pub const BIDS: &str = "sub-%p/ses-%s/%m/sub-%p_ses-%s_task-%b[_acq-%a]_run-%r_%m.xdf";

/// The values of the placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    /// Participant, the value of `%p`.
    pub participant: String,
    /// Session, the value of `%s`.
    pub session: String,
    /// Task or block, the value of `%b`.
    pub task: String,
    /// Acquisition, the value of `%a`.
    pub acquisition: String,
    /// Modality, the value of `%m`.
    pub modality: String,
    /// `%r` and `%n`; `None`: the first that is free.
    pub run: Option<u32>,
}

/// Mistake in a template, or no free name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A placeholder that stands for nothing.
    #[error("%{0} stands for nothing; known are %p %s %b %a %m %r %n")]
    Placeholder(char),
    /// The template names no file, or one elsewhere.
    #[error("'{0}' does not name a file below the folder for recordings")]
    Outside(String),
    /// Every run number is taken.
    #[error("{0}: there are {LAST_RUN} runs already")]
    NoRunLeft(String),
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            participant: "P001".into(),
            session: "S001".into(),
            task: "Default".into(),
            acquisition: String::new(),
            modality: "eeg".into(),
            run: None,
        }
    }
}

impl Fields {
    fn value(&self, letter: char, run: u32) -> Option<String> {
        let text = match letter {
            'p' => &self.participant,
            's' => &self.session,
            'b' => &self.task,
            'a' => &self.acquisition,
            'm' => &self.modality,
            'r' | 'n' => return Some(format!("{run:03}")),
            _ => return None,
        };
        Some(safe(text))
    }
}

/// The path below `root` that a template makes, with the first run number that is free if none is
/// given. The template cannot lead out of `root`, nor can any value.
///
/// # Errors
/// For a template that names no file, leads elsewhere, or has unknown placeholders.
pub fn expand(template: &str, fields: &Fields, root: &Path) -> Result<PathBuf, TemplateError> {
    let counts = template.contains("%r") || template.contains("%n");
    let runs = match fields.run {
        Some(run) => run..=run,
        None if counts => 1..=LAST_RUN,
        None => 1..=1,
    };
    let is_chosen = runs.start() == runs.end();
    for run in runs {
        let path = root.join(fill(template, fields, run)?);
        // A run that was recorded encrypted counts, too.
        if is_chosen || !(path.exists() || locked_name(&path).exists()) {
            return Ok(path);
        }
    }
    Err(TemplateError::NoRunLeft(template.to_owned()))
}

/// Whether a path has placeholders.
pub fn is_template(path: &str) -> bool {
    path.contains('%')
}

fn fill(template: &str, fields: &Fields, run: u32) -> Result<PathBuf, TemplateError> {
    let mut text = String::new();
    let mut rest = template;
    while let Some(start) = rest.find('[') {
        let Some(end) = rest[start..].find(']') else {
            break;
        };
        replace(&rest[..start], fields, run, &mut text)?;
        let mut option = String::new();
        if replace(&rest[start + 1..start + end], fields, run, &mut option)? {
            text.push_str(&option);
        }
        rest = &rest[start + end + 1..];
    }
    replace(rest, fields, run, &mut text)?;
    // Templates are written on Windows, too.
    let text = text.replace('\\', "/");
    let path = Path::new(text.trim());
    let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if path.file_name().is_none() || !path.components().all(is_inside) {
        return Err(TemplateError::Outside(template.to_owned()));
    }
    Ok(path.components().map(portable).collect())
}

/// Appends a text with its placeholders replaced; false if one of them has no value.
fn replace(text: &str, fields: &Fields, run: u32, out: &mut String) -> Result<bool, TemplateError> {
    let mut complete = true;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let letter = letters.next().unwrap_or(' ');
        // LabRecorder makes everything lower case first.
        let Some(value) = fields.value(letter.to_ascii_lowercase(), run) else {
            return Err(TemplateError::Placeholder(letter));
        };
        complete &= !value.is_empty();
        out.push_str(&value);
    }
    Ok(complete)
}

/// A value as a part of a file name: without separators, and no name of a folder above.
fn safe(text: &str) -> String {
    let text: String = text.trim().chars().map(fit).collect();
    if text.chars().all(|c| c == '.') {
        text.replace('.', "-")
    } else {
        text
    }
}

/// Replaces what Windows allows in no name; a colon would lead to another drive there.
fn fit(c: char) -> char {
    if c.is_control() || "/\\:*?\"<>|".contains(c) {
        '-'
    } else {
        c
    }
}

/// Returns a part of a path as it can be on every system, since recordings travel: Windows drops dots and
/// spaces at the end, and gives some names to devices, whatever extension they have.
fn portable(part: Component<'_>) -> String {
    let text = part.as_os_str().to_string_lossy();
    if part == Component::CurDir {
        return text.into_owned();
    }
    let text: String = text.chars().map(fit).collect();
    let kept = text.trim_end_matches(['.', ' ']);
    let stem = text.split('.').next().unwrap_or_default().trim_end();
    let stem = stem.to_ascii_uppercase();
    let is_numbered = |port: &str| {
        let number = stem.strip_prefix(port).map(|rest| rest.chars());
        number.is_some_and(|mut it| {
            matches!(it.next(), Some('0'..='9' | '\u{b9}' | '\u{b2}' | '\u{b3}'))
                && it.next().is_none()
        })
    };
    let is_device = DEVICES.contains(&&*stem) || is_numbered("COM") || is_numbered("LPT");
    let before = if is_device { "_" } else { "" };
    format!("{before}{kept}{}", "-".repeat(text.len() - kept.len()))
}

const DEVICES: &[&str] = &["CON", "PRN", "AUX", "NUL", "CLOCK$", "CONIN$", "CONOUT$"];

/// LabRecorder tries no run number beyond this one.
const LAST_RUN: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        Fields {
            participant: "P003".into(),
            session: "S1".into(),
            task: "MemoryGuided".into(),
            run: Some(2),
            ..Fields::default()
        }
    }

    #[track_caller]
    fn check(template: &str, fields: &Fields, expected: &str) {
        let path = expand(template, fields, Path::new("/data")).unwrap();
        assert_eq!(path, Path::new("/data").join(expected));
    }

    #[test]
    fn placeholders_are_those_of_labrecorder() {
        check(
            BIDS,
            &fields(),
            "sub-P003/ses-S1/eeg/sub-P003_ses-S1_task-MemoryGuided_run-002_eeg.xdf",
        );
        let acquired = Fields {
            acquisition: "hd".into(),
            ..fields()
        };
        check(
            BIDS,
            &acquired,
            "sub-P003/ses-S1/eeg/sub-P003_ses-S1_task-MemoryGuided_acq-hd_run-002_eeg.xdf",
        );
        check(
            "exp%n\\%p_block_%b.xdf",
            &fields(),
            "exp002/P003_block_MemoryGuided.xdf",
        );
        check("%P_%B.xdf", &fields(), "P003_MemoryGuided.xdf");
        check("A[b].xdf", &fields(), "Ab.xdf");
        check("a[b.xdf", &fields(), "a[b.xdf");
    }

    #[test]
    fn no_value_and_no_template_leads_out() {
        let wild = Fields {
            participant: "../../etc".into(),
            session: "..".into(),
            ..fields()
        };
        check("%p/%s/x.xdf", &wild, "..-..-etc/--/x.xdf");
        for bad in [
            "../x.xdf",
            "a/../../x.xdf",
            "/etc/x.xdf",
            "\\x.xdf",
            "",
            "..",
            "%p/..",
            "%z.xdf",
            "x%",
        ] {
            assert!(expand(bad, &fields(), Path::new("/data")).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_name_is_one_that_windows_keeps_or_shortens() {
        for (template, expected) in [
            ("con/Aux.xdf", "_con/_Aux.xdf"),
            ("COM1/lpt\u{b9}.x.xdf", "_COM1/_lpt\u{b9}.x.xdf"),
            ("COM10/comb/nul0/NUL .a", "COM10/comb/nul0/_NUL .a"),
            ("./a. ./x.xdf..", "a---/x.xdf--"),
            ("CONIN$.xdf", "_CONIN$.xdf"),
            ("a/C:x.xdf", "a/C-x.xdf"),
            ("a/C:/b?.xdf", "a/C-/b-.xdf"),
        ] {
            check(template, &fields(), expected);
        }
    }

    #[test]
    fn the_first_free_run_is_taken() {
        let root = std::env::temp_dir().join(format!("lsl-template-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let free = Fields {
            run: None,
            ..fields()
        };
        let first = expand("run-%r.xdf", &free, &root).unwrap();
        assert_eq!(first, root.join("run-001.xdf"));
        std::fs::write(&first, "").unwrap();
        let second = expand("run-%r.xdf", &free, &root).unwrap();
        assert_eq!(second, root.join("run-002.xdf"));
        assert_eq!(expand("x.xdf", &free, &root).unwrap(), root.join("x.xdf"));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
