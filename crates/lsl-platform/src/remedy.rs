//! Commands in messages, as people of this system type them.

use std::path::{Path, PathBuf, absolute};

/// Quotes a word of a command, so that it can be pasted into a shell of Unix.
pub fn word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns a path in the form that people type and commands take: without the `\\?\` that Windows puts before a
/// path whose links were resolved. It stays where the path would be too long without it or name something else,
/// as with devices (`aux`) and names that end with a dot.
pub fn typed(resolved: &Path) -> PathBuf {
    let text = resolved.to_str().filter(|_| cfg!(windows));
    let short = text.and_then(|text| text.strip_prefix(r"\\?\"));
    let short = short.filter(|short| short.len() < LONGEST_SHORT);
    let typed = short.map(|short| match short.strip_prefix(r"UNC\") {
        Some(server) => PathBuf::from(format!(r"\\{server}")),
        None => PathBuf::from(short),
    });
    let is_same = |typed: &PathBuf| absolute(typed).is_ok_and(|path| path.as_os_str() == typed);
    typed.filter(is_same).unwrap_or_else(|| resolved.to_owned())
}

/// Length from which a path of Windows, that of a folder, must have the long form; for files it is 260.
pub(crate) const LONGEST_SHORT: usize = 240;

/// Quotes a path for a shell of this system.
pub fn path(path: &Path) -> String {
    let text = typed(path).display().to_string();
    if cfg!(windows) {
        // No name has a quote in it.
        format!("\"{}\"", text.replace('"', ""))
    } else {
        word(&text)
    }
}

/// Returns the command that makes a folder, and those above it.
pub fn make_folder(folder: &Path) -> String {
    let command = if cfg!(windows) { "mkdir" } else { "mkdir -p" };
    format!("{command} {}", path(folder))
}

/// Returns the command that gives a file another name.
pub fn rename(from: &Path, to: &Path) -> String {
    let command = if cfg!(windows) { "move" } else { "mv" };
    format!("{command} {} {}", path(from), path(to))
}

/// Returns the command that removes a file.
pub fn remove(file: &Path) -> String {
    let command = if cfg!(windows) { "del" } else { "rm" };
    format!("{command} {}", path(file))
}

/// Returns a setting of the environment. In Windows quotes would be part of the path.
pub fn variable(name: &str, value: &Path) -> String {
    let value = path(value);
    let quotes: &[char] = if cfg!(windows) { &['"'] } else { &[] };
    format!("{name}={}", value.trim_matches(quotes))
}

/// Returns the command that takes a file away from all other users.
pub fn make_private(file: &Path) -> String {
    let file = path(file);
    if cfg!(windows) {
        format!("icacls {file} /inheritance:r /grant:r \"%USERNAME%:F\" \"*S-1-5-18:F\"")
    } else {
        format!("chmod 600 {file}")
    }
}

/// How a command is run that changes what belongs to the whole machine.
pub const WITH_RIGHTS: &str = if cfg!(windows) {
    "as administrator"
} else {
    "by sudo"
};

/// How a command is run that changes what belongs to one user.
pub const WITHOUT_RIGHTS: &str = if cfg!(windows) {
    "not as administrator"
} else {
    "without sudo"
};

/// End of the text of an error by which the system allows something to nobody but others.
pub const DENIED: &str = if cfg!(windows) {
    "(os error 5)"
} else {
    "(os error 13)"
};

/// User to whom the files of such a command belong.
pub const RIGHTFUL: &str = if cfg!(windows) {
    "this administrator"
} else {
    "root"
};

/// User who can give files away.
pub const GIVER: &str = if cfg!(windows) {
    "administrator"
} else {
    "root"
};

/// Command that gives a file to another user.
pub const GIVE: &str = if cfg!(windows) {
    "icacls /setowner"
} else {
    "chown"
};

/// Access to a file that is secret.
pub const SECRET: &str = if cfg!(windows) {
    "that nobody else can read"
} else {
    "mode 0600"
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_can_be_pasted() {
        let check = |text: &str, expected: &str| assert_eq!(word(text), expected);
        check("amp1", "amp1");
        check("/lab/lsl_api/key_2.pem", "/lab/lsl_api/key_2.pem");
        check("", "''");
        check("amp 1", "'amp 1'");
        check("$(reboot)", "'$(reboot)'");
        check("it's", r"'it'\''s'");
        check("~x", "'~x'");
    }

    #[test]
    #[cfg(windows)]
    fn paths_can_be_pasted() {
        let check = |text: &str, expected: &str| assert_eq!(path(Path::new(text)), expected);
        check(r"C:\amp 1\a&b", r#""C:\amp 1\a&b""#);
        check(r"\\?\C:\ProgramData\lsl_api", r#""C:\ProgramData\lsl_api""#);
        assert_eq!(variable("KEY", Path::new(r"C:\amp 1")), r"KEY=C:\amp 1");
    }

    #[test]
    #[cfg(windows)]
    fn resolved_paths_are_shown_as_people_type_them() {
        let check = |path: &str, expected: &str| {
            assert_eq!(typed(Path::new(path)).to_str(), Some(expected));
        };
        check(r"\\?\C:\lab\amp 1.xdf", r"C:\lab\amp 1.xdf");
        check(r"\\?\C:\", r"C:\");
        check(r"\\?\UNC\server\lab\x", r"\\server\lab\x");
        let long = format!(r"\\?\C:\{}", "x".repeat(240));
        for same in [
            r"C:\lab",
            r"\\?\C:\lab\x.",
            r"\\?\C:\lab\x ",
            r"\\?\C:\lab\aux",
            r"\\?\Volume{01}\x",
            &long,
        ] {
            check(same, same);
        }
        let folder = std::env::temp_dir().canonicalize().unwrap();
        assert!(folder.to_str().unwrap().starts_with(r"\\?\"));
        let shown = typed(&folder);
        assert!(!shown.to_str().unwrap().starts_with(r"\\?\") && shown.is_dir());
    }
}
