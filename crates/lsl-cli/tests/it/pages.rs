//! What packages carry besides the binary: manual pages and completions, made by the binary itself.

use std::collections::BTreeMap;
use std::process::Command;

use crate::lab::{Lab, Running};

#[test]
fn every_shown_subcommand_has_a_page() {
    let lab = Lab::new();
    let pages = write_pages(&lab, "man", None);
    let top = pages.get("lsl.1").unwrap();
    let help = lab.run(&["--help"]).ok().stdout;
    let commands = help.split_once("Commands:\n").unwrap().1;
    let commands: Vec<&str> = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.contains(&"gen"), "{help}");
    for command in &commands {
        let name = format!("lsl-{command}.1");
        let page = pages.get(&name).unwrap_or_else(|| panic!("no {name}"));
        assert!(
            page.starts_with(&format!(
                ".TH LSL-{} 1 \"\" \"lsl {}\" ",
                command.to_uppercase(),
                env!("CARGO_PKG_VERSION")
            )),
            "{page}"
        );
        for heading in ["NAME", "SYNOPSIS", "GLOBAL OPTIONS"] {
            assert!(page.contains(heading), "{heading} in {page}");
        }
        assert!(
            top.contains(&format!("lsl\\-{command}(1)")),
            "{command} in {top}"
        );
    }
    let generate = pages.get("lsl-gen.1").unwrap();
    let (_, examples) = generate.split_once(".SH EXAMPLES\n.nf\n").unwrap();
    assert!(examples.starts_with("  lsl gen "), "{examples}");
    assert!(pages.contains_key("lsl-key-init.1"), "{:?}", pages.keys());
    // Hidden ones: parts of a benchmark, and this very command.
    assert!(!pages.contains_key("lsl-man.1"), "{:?}", pages.keys());
}

#[test]
fn pages_are_the_same_bytes_each_time_and_dated_by_the_environment_alone() {
    let lab = Lab::new();
    let plain = write_pages(&lab, "one", None);
    assert_eq!(plain, write_pages(&lab, "two", None));
    let dated = write_pages(&lab, "dated", Some("1709251199"));
    for (name, page) in &dated {
        let undated = page.replace("\"2024-02-29\"", "\"\"");
        assert_ne!(page, &undated, "{name}");
        assert_eq!(plain.get(name), Some(&undated), "{name}");
    }
    let mut wrong = command(&lab, "wrong", Some("yesterday"));
    Running::start(&mut wrong)
        .wait()
        .refused(2, &["SOURCE_DATE_EPOCH", "'yesterday'"]);
}

#[test]
fn completions_know_subcommands_options_and_values() {
    let lab = Lab::new();
    for (shell, parts) in [
        ("bash", &["complete -F _lsl", "--known-peer", "counter"][..]),
        ("zsh", &["#compdef lsl", "--known-peer", "counter"]),
        ("fish", &["complete -c lsl", "-l known-peer", "counter"]),
    ] {
        let script = lab.run(&["completions", shell]).ok().stdout;
        for part in parts {
            assert!(script.contains(part), "{shell}: {part} in {script}");
        }
    }
    lab.run(&["completions", "tcsh"])
        .refused(2, &["[possible values: bash, zsh, fish]"]);
}

/// bash is on every machine that runs this repository's gate.
#[test]
#[cfg(target_os = "linux")]
fn bash_completes_with_it() {
    let lab = Lab::new();
    let script = lab.run(&["completions", "bash"]).ok().stdout;
    let file = lab.write("lsl.bash", &script);
    let ask = "source \"$1\"; COMP_WORDS=(lsl gen --pat); COMP_CWORD=2; COMP_LINE='lsl gen --pat'; \
               _lsl lsl --pat gen; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["--norc", "-c", ask, "bash", &file])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.trim(), "--pattern", "{output:?}");
}

fn command(lab: &Lab, name: &str, epoch: Option<&str>) -> Command {
    let mut command = lab.command(&["man", &lab.path(name)]);
    command.env_remove("SOURCE_DATE_EPOCH");
    if let Some(epoch) = epoch {
        command.env("SOURCE_DATE_EPOCH", epoch);
    }
    command
}

fn write_pages(lab: &Lab, name: &str, epoch: Option<&str>) -> BTreeMap<String, String> {
    Running::start(&mut command(lab, name, epoch)).wait().ok();
    let entries = std::fs::read_dir(lab.path(name)).unwrap();
    entries
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect()
}
