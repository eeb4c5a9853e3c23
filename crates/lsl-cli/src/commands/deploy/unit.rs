//! The systemd unit and the file that holds one instance's arguments. The unit's text is a file of
//! its own, which packages install as it is.

use crate::failure::{Failure, Outcome};

/// The unit as packages install it, for the program in /usr/bin.
const PACKAGED: &str = include_str!("../../../systemd/lsl@.service");
const PACKAGED_PROGRAM: &str = "ExecStart=/usr/bin/lsl ";
const HOME_PROGRAM: &str = "ExecStart=%h/.local/bin/lsl ";

/// Returns the unit for the program in a home directory.
pub(super) fn for_home() -> String {
    PACKAGED.replace(PACKAGED_PROGRAM, HOME_PROGRAM)
}

/// Returns the file of one instance: one line, read by systemd as `EnvironmentFile`.
pub(super) fn arguments_file(command: &[String]) -> Outcome<String> {
    Ok(format!("{VARIABLE}={}\n", arguments(command)?))
}

/// Returns the words of a file that [`arguments_file`] or a person wrote, as they stand there.
pub(super) fn arguments_in(file: &str) -> Option<&str> {
    let value = |line: &'_ str| line.trim().starts_with(VARIABLE);
    let line = file.lines().rfind(|line| value(line))?;
    line.split_once('=').map(|(_, words)| words.trim())
}

/// Quotes `command` for systemd, which reads the text twice. As a value in an environment file, a
/// backslash makes the next character plain and a quote counts only at the very start. As words,
/// quotes group and a backslash does the same once more.
fn arguments(command: &[String]) -> Outcome<String> {
    let words: Vec<String> = command
        .iter()
        .map(|word| {
            if word.chars().any(char::is_control) {
                return Err(Failure::Usage(format!(
                    "{word:?} has a line break or another control character, which the arguments of a \
                     service cannot have"
                )));
            }
            Ok(quoted(word).replace('\\', "\\\\"))
        })
        .collect::<Outcome<_>>()?;
    let mut text = words.join(" ");
    if text.starts_with('"') {
        text.insert(0, '\\');
    }
    Ok(text)
}

/// Quotes one word for systemd's splitter.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@+,%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let mut text = String::from('"');
    for character in word.chars() {
        if matches!(character, '"' | '\\') {
            text.push('\\');
        }
        text.push(character);
    }
    text.push('"');
    text
}

/// Reads the name of an instance, which becomes part of file and unit names.
pub(super) fn instance(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if text.is_empty() || text.len() > 64 || !text.chars().all(is_allowed) {
        return Err("1 to 64 letters, digits, _, - and ., please".into());
    }
    if text.starts_with(['-', '.']) {
        return Err("begin with a letter, a digit or _, please".into());
    }
    Ok(text.into())
}

const VARIABLE: &str = "LSL_ARGS";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_names_the_program() {
        assert_eq!(PACKAGED.matches(PACKAGED_PROGRAM).count(), 1);
        let unit = for_home();
        assert_eq!(unit.matches("%h/.local/bin/lsl ").count(), 1);
        assert!(!unit.contains("/usr/bin"), "{unit}");
    }

    /// A real systemd is asked about these by `cargo xtask deploy`.
    #[test]
    fn words_are_quoted_for_both_readers() {
        let check = |words: &[&str], expected: &str| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            assert_eq!(arguments(&words).unwrap(), expected);
        };
        check(&["gen", "--rate", "250"], "gen --rate 250");
        check(&["--name", "My Amp"], r#"--name "My Amp""#);
        check(&["x", ""], r#"x """#);
        check(&["x", "it's; #1 $HOME %i"], r#"x "it's; #1 $HOME %i""#);
        check(&["x", "a\"b"], r#"x "a\\"b""#);
        check(&["x", "a\\b"], r#"x "a\\\\b""#);
        // A value that began with a quote would lose it and the blank behind the other one.
        check(&["--session=my lab", "gen"], r#"\"--session=my lab" gen"#);
        check(&[""], r#"\"""#);
        for wrong in ["a\nb", "a\0", "\u{1b}[2J"] {
            let failure = arguments(&[wrong.to_owned()]).unwrap_err();
            assert_eq!(failure.status(), 2, "{failure}");
        }
    }

    #[test]
    fn arguments_are_found_again() {
        let file = arguments_file(&["gen".into(), "--name".into(), "My Amp".into()]).unwrap();
        assert_eq!(file, "LSL_ARGS=gen --name \"My Amp\"\n");
        assert_eq!(arguments_in(&file), Some("gen --name \"My Amp\""));
        assert_eq!(arguments_in("# nothing\n"), None);
    }

    #[test]
    fn instances_are_names() {
        for name in ["gen", "amp-1", "_x", "1.2"] {
            assert_eq!(instance(name).as_deref(), Ok(name));
        }
        for wrong in [
            "",
            "-x",
            ".x",
            "a b",
            "a/b",
            "a@b",
            "a;b",
            "$(x)",
            "ä",
            &"x".repeat(65),
        ] {
            assert!(instance(wrong).is_err(), "{wrong}");
        }
    }
}
