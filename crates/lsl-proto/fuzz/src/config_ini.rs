//! Configuration files. Input: the text.

use lsl_proto::config::{Config, ini};

pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(assignments) = ini::parse(&text) else {
        assert!(
            Config::from_text(&text).is_err(),
            "read what does not parse"
        );
        return;
    };
    for pair in assignments.windows(2) {
        assert!(pair[0].line < pair[1].line);
    }
    for assignment in &assignments {
        assert!(!assignment.key.is_empty() && !assignment.value.is_empty());
    }
    let Ok(config) = Config::from_text(&text) else {
        return;
    };
    // What `lsl config show` prints means what was read.
    let lines: Vec<String> = config
        .entries()
        .iter()
        .filter(|entry| !entry.value.is_empty())
        .map(|entry| format!("{} = {}", entry.key, entry.value))
        .collect();
    let again = Config::from_text(&lines.join("\n")).expect("own configuration");
    for (before, after) in config.entries().iter().zip(again.entries()) {
        // An empty value cannot be written into a file.
        if !before.value.is_empty() {
            assert_eq!(before.value, after.value, "{}", before.key);
        }
    }
}
