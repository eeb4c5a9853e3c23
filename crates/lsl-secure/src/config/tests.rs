//! Settings of a configuration, and every place and mistake of §11 (verification 35).

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::files::scratch::{Scratch, says};

fn parse(text: &str) -> Result<Settings> {
    Settings::parse(text, Path::new("/lab/etc/lsl-secure.toml"))
}

#[test]
fn the_sample_has_every_key_with_its_default() {
    let settings = parse(&sample("amp \"1\"")).unwrap();
    assert_eq!(settings.name, "amp \"1\"");
    let plain = parse("[security]\nname = \"amp \\\"1\\\"\"").unwrap();
    assert_eq!(format!("{settings:?}"), format!("{plain:?}"));
    // Every key of §11, also those that are commented out, once.
    for key in [
        "name",
        "policy",
        "migrate_until",
        "key_file",
        "trusted_peers",
        "allow_shared_key",
        "force_chacha20",
        "passphrase_file",
        "psk_file",
        "pin_peer",
        "discovery",
        "pad_to",
        "coalesce_us",
        "max_rtt_ms",
        "time_warn_ms",
        "audit_file",
        "audit_keep_days",
        "source_id",
    ] {
        let lines = SAMPLE.lines().map(|line| line.trim_start_matches('#'));
        let count = lines
            .filter(|line| line.starts_with(&format!("{key} = ")))
            .count();
        assert_eq!(count, 1, "{key}");
    }
    // What is commented out is right as well.
    let all: String = SAMPLE
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(code) if !code.starts_with(' ') => code,
            _ => line,
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    let settings = parse(&all).unwrap();
    assert_eq!(settings.migrate_until, "2027-06-30".parse().ok());
    assert_eq!(settings.plaintext_allow, ["old-amplifier-1"]);
}

#[test]
fn every_key_is_read() {
    let settings = parse(
        "[security]\nname = \"amp1\"\npolicy = \"migrate\"\nmigrate_until = 2027-06-30\n\
         key_file = \"k\"\ntrusted_peers = \"/abs/t\"\nallow_shared_key = true\n\
         force_chacha20 = true\npassphrase_file = \"p\"\npsk_file = \"../s\"\npin_peer = true\n\
         discovery = \"minimal\"\npad_to = 256\ncoalesce_us = 500\nmax_rtt_ms = 10\n\
         time_warn_ms = 2\naudit_file = \"log/a\"\naudit_keep_days = 90\n\
         [[plaintext_allow]]\nsource_id = \"a\"\n[[plaintext_allow]]\nsource_id = \"b\"\n",
    )
    .unwrap();
    let path = |text: &str| Some(PathBuf::from(text));
    assert_eq!(settings.name, "amp1");
    assert_eq!(settings.policy, Policy::Migrate);
    assert_eq!(settings.migrate_until, "2027-06-30".parse().ok());
    assert_eq!(settings.key_file, path("/lab/etc/k"));
    assert_eq!(settings.trusted_peers, path("/abs/t"));
    assert_eq!(settings.passphrase_file, path("/lab/etc/p"));
    assert_eq!(settings.psk_file, path("/lab/etc/../s"));
    assert_eq!(settings.audit_file, path("/lab/etc/log/a"));
    assert!(settings.allow_shared_key && settings.force_chacha20 && settings.pin_peer);
    assert_eq!(settings.discovery, Discovery::Minimal);
    assert_eq!((settings.pad_to, settings.coalesce_us), (256, 500));
    assert_eq!((settings.max_rtt_ms, settings.time_warn_ms), (10, 2));
    assert_eq!(settings.audit_keep_days, 90);
    assert_eq!(settings.plaintext_allow, ["a", "b"]);
}

#[test]
fn what_is_not_said_is_safe() {
    let settings = parse("[security]").unwrap();
    assert_eq!(settings.policy, Policy::Required);
    assert_eq!(settings.key_file, Some("/lab/etc/device_key.pem".into()));
    assert_eq!(
        settings.trusted_peers,
        Some("/lab/etc/trusted_peers.toml".into())
    );
    assert_eq!(settings.passphrase_file, None);
    assert_eq!(settings.psk_file, None);
    assert_eq!(settings.audit_file, None);
    assert!(!settings.allow_shared_key && !settings.force_chacha20 && !settings.pin_peer);
    assert_eq!(settings.discovery, Discovery::Open);
    assert_eq!((settings.pad_to, settings.coalesce_us), (0, 0));
    assert_eq!((settings.max_rtt_ms, settings.time_warn_ms), (128, 5));
    assert!(!settings.name.is_empty());
    // The example of the specification has a date beside another policy.
    parse("[security]\npolicy = \"required\"\nmigrate_until = \"2027-06-30\"").unwrap();
}

#[test]
fn mistakes_are_errors_with_file_line_and_remedy() {
    let check = |lines: &str, line: usize, words: &str| {
        let error = parse(&format!("[security]\n{lines}\n"))
            .expect_err(lines)
            .to_string();
        let start = format!("/lab/etc/lsl-secure.toml: line {line}: ");
        assert!(error.starts_with(&start), "{error}\nfor {lines}");
        assert!(error.contains(words), "{error}\nlacks {words}");
        assert!(
            error.contains(';') || error.contains(" is "),
            "no remedy: {error}"
        );
    };
    check("polcy = \"required\"", 2, "unknown field `polcy`");
    check(
        "policy = \"prefer\"",
        2,
        "\"required\", \"migrate\" or \"off\"",
    );
    check("policy = \"Required\"", 2, "unknown");
    check("policy = true", 2, "invalid type");
    check(
        "policy = \"off\"\npolicy = \"required\"",
        3,
        "duplicate key",
    );
    check("\npolicy = \"migrate\"", 3, "migrate_until = ");
    check(
        "policy = \"migrate\"\nmigrate_until = \"soon\"",
        3,
        "2027-12-31",
    );
    check("migrate_until = \"2027-02-30\"", 2, "2027-12-31");
    check("migrate_until = 2027-02-03T10:00:00", 2, "2027-12-31");
    check("name = \"\"", 2, "name");
    check("name = \"a\\u0007\"", 2, "control");
    check("discovery = \"closed\"", 2, "\"minimal\"");
    check("allow_shared_key = \"no\"", 2, "invalid type");
    for pad in ["1", "8", "17", "8192", "4095"] {
        check(&format!("pad_to = {pad}"), 2, "power of two");
    }
    check("pad_to = 65536", 2, "invalid value");
    check("pad_to = -16", 2, "invalid value");
    check("coalesce_us = 1000001", 2, "at most");
    check("max_rtt_ms = 0", 2, "max_rtt_ms");
    check("audit_keep_days = -1", 2, "invalid value");
    check("[[plaintext_allow]]\nsource_id = \"\"", 3, "source_id");
    check(
        "[[plaintext_allow]]\nname = \"a\"",
        3,
        "unknown field `name`",
    );
    check("[[plaintext_allow]]", 2, "missing field `source_id`");
    check("[secrity]", 2, "unknown field `secrity`");
    check("x", 2, "correct this line");
    // No table at all: a truncated file, or one of something else.
    for text in ["", "\n\n", "[[plaintext_allow]]\nsource_id = \"a\""] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains("[security]"), "{error}");
    }
    for pad in [0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096] {
        let text = format!("[security]\npad_to = {pad}");
        assert_eq!(parse(&text).unwrap().pad_to, pad);
    }
}

/// A machine with places of its own.
struct Machine {
    scratch: Scratch,
    places: Places,
}

impl Machine {
    fn new() -> Self {
        let scratch = Scratch::new();
        let places = Places {
            variable: None,
            home: Some(scratch.path("home")),
            home_is_closed: false,
            system: scratch.path("etc/lsl_api/lsl-secure.toml"),
            elevated: false,
        };
        Self { scratch, places }
    }

    fn user(self, text: &str) -> Self {
        self.scratch
            .write("home/lsl_api/lsl-secure.toml", text, 0o600);
        self
    }

    fn system(self, text: &str) -> Self {
        self.scratch
            .write("etc/lsl_api/lsl-secure.toml", text, 0o644);
        self
    }

    fn variable(mut self, name: &str, text: &str) -> Self {
        self.places.variable = Some(self.scratch.write(name, text, 0o600).into());
        self
    }

    /// Which file was found, by its path in the scratch directory, and its policy.
    fn found(&self) -> Option<(String, Policy)> {
        match self.places.search().unwrap() {
            Found::Nothing { .. } => None,
            Found::Settings { settings, file } => {
                let file = file.strip_prefix(&self.scratch).unwrap();
                Some((
                    file.display().to_string().replace('\\', "/"),
                    settings.policy,
                ))
            }
        }
    }

    fn refused(&self, words: &[&str]) {
        let error = self.places.search().expect_err("refused").to_string();
        for word in words {
            assert!(says(&error, word), "{error} lacks {word}");
        }
    }
}

const OFF: &str = "[security]\npolicy = \"off\"";
const MIGRATE: &str = "[security]\npolicy = \"migrate\"\nmigrate_until = \"2999-12-31\"";
const REQUIRED: &str = "[security]\npolicy = \"required\"";

#[test]
fn the_first_place_that_exists_decides() {
    let check = |machine: &Machine, expected: Option<(&str, Policy)>| {
        let expected = expected.map(|(file, policy)| (file.to_owned(), policy));
        assert_eq!(machine.found(), expected);
    };
    let user = "home/lsl_api/lsl-secure.toml";
    let system = "etc/lsl_api/lsl-secure.toml";
    check(&Machine::new(), None);
    check(&Machine::new().user(OFF), Some((user, Policy::Off)));
    check(
        &Machine::new().system(REQUIRED),
        Some((system, Policy::Required)),
    );
    check(
        &Machine::new().user(MIGRATE).system(OFF),
        Some((user, Policy::Migrate)),
    );
    check(
        &Machine::new().user(OFF).variable("v", MIGRATE),
        Some(("v", Policy::Migrate)),
    );
    // The system's policy is a floor for all of them.
    check(
        &Machine::new().user(OFF).system(REQUIRED),
        Some((user, Policy::Required)),
    );
    check(
        &Machine::new().user(OFF).system(MIGRATE),
        Some((user, Policy::Migrate)),
    );
    check(
        &Machine::new().user(REQUIRED).system(MIGRATE),
        Some((user, Policy::Required)),
    );
    check(
        &Machine::new().variable("v", OFF).system(REQUIRED),
        Some(("v", Policy::Required)),
    );
    // With raised rights only the system's place counts; not even looking at the others matters.
    let mut machine = Machine::new()
        .user("broken")
        .variable("v", "broken")
        .system(MIGRATE);
    machine.places.elevated = true;
    check(&machine, Some((system, Policy::Migrate)));
    let mut machine = Machine::new().user(REQUIRED);
    machine.places.elevated = true;
    check(&machine, None);
    // Without a home there is one place less.
    let mut machine = Machine::new().user(REQUIRED).system(OFF);
    machine.places.home = None;
    check(&machine, Some((system, Policy::Off)));
}

#[test]
fn migrate_ends_on_the_earlier_day() {
    let check = |user: &str, system: &str, expected: Option<&str>| {
        let until = |text: &str| match text {
            "" => OFF.to_owned(),
            day => format!("[security]\npolicy = \"migrate\"\nmigrate_until = \"{day}\""),
        };
        let machine = Machine::new().user(&until(user)).system(&until(system));
        let Found::Settings { settings, .. } = machine.places.search().unwrap() else {
            panic!("nothing found");
        };
        let expected = expected.map(|day| day.parse().unwrap());
        assert_eq!(settings.last_day_of_migrate(), expected, "{user} {system}");
    };
    check("2027-01-01", "2028-01-01", Some("2027-01-01"));
    check("2028-01-01", "2027-01-01", Some("2027-01-01"));
    check("2028-01-01", "", Some("2028-01-01"));
    check("", "2028-01-01", Some("2028-01-01"));
    check("", "", None);
}

#[test]
fn nothing_found_says_where_was_looked() {
    let machine = Machine::new();
    let Found::Nothing { searched } = machine.places.search().unwrap() else {
        panic!("found something");
    };
    let user = machine.scratch.path("home/lsl_api/lsl-secure.toml");
    assert_eq!(searched, [user, machine.places.system.clone()]);
}

#[test]
fn a_place_that_exists_and_cannot_be_used_is_an_error() {
    let user = "home/lsl_api/lsl-secure.toml";
    let system = "etc/lsl_api/lsl-secure.toml";
    // A broken file at each place, with good ones behind it.
    Machine::new()
        .user("x")
        .system(REQUIRED)
        .refused(&[user, "line 1"]);
    Machine::new()
        .user("")
        .system(OFF)
        .refused(&[user, "[security]"]);
    Machine::new()
        .variable("v", "x")
        .user(OFF)
        .refused(&["/v", "line 1"]);
    Machine::new().system("x").refused(&[system, "line 1"]);
    // Also where the system's file is only the floor.
    Machine::new()
        .user(REQUIRED)
        .system("x")
        .refused(&[system, "line 1"]);
    // Permissions.
    for mode in [0o660, 0o666, 0o602] {
        let machine = Machine::new().user(OFF).system(OFF);
        machine.scratch.chmod(user, mode);
        machine.refused(&[user, "chmod go-w"]);
        let machine = Machine::new().user(OFF).system(OFF);
        machine.scratch.chmod(system, mode);
        machine.refused(&[system, "chmod go-w"]);
    }
    // No file where one is named.
    let mut machine = Machine::new().user(OFF);
    machine.places.variable = Some(machine.scratch.path("none").into());
    machine.refused(&["/none", "cannot be read"]);
    let machine = Machine::new();
    fs::create_dir_all(machine.scratch.path(user)).unwrap();
    machine.refused(&[user, "not a regular file"]);
    // A home that is a file holds nothing.
    let machine = Machine::new();
    machine.scratch.write("home", "", 0o600);
    assert_eq!(machine.found(), None);
}

/// Or removing the file would be the way to plaintext.
#[test]
fn no_file_where_others_may_have_removed_it_is_an_error() {
    for (place, file) in [
        ("home/lsl_api", "home/lsl_api/lsl_api.cfg"),
        ("etc/lsl_api", "etc/lsl_api/lsl_api.cfg"),
    ] {
        let machine = Machine::new();
        machine.scratch.write(file, "", 0o644);
        for mode in [0o777, 0o772, 0o702] {
            machine.scratch.chmod(place, mode);
            machine.refused(&[place, "remove lsl-secure.toml", "chmod go-w", "LSLAPICFG"]);
        }
        for mode in [0o755, 0o700] {
            machine.scratch.chmod(place, mode);
            assert_eq!(machine.found(), None, "{mode:o}");
        }
    }
    // The floor may have been removed under a user's file, too.
    let machine = Machine::new().user(OFF);
    machine.scratch.write("etc/lsl_api/x", "", 0o644);
    machine.scratch.chmod("etc/lsl_api", 0o777);
    machine.refused(&["etc/lsl_api", "remove lsl-secure.toml"]);
}

#[test]
fn a_variable_that_leads_nowhere_is_an_error() {
    for (value, words) in [
        ("", "\"\""),
        ("lsl-secure.toml", "absolute"),
        ("./x", "absolute"),
    ] {
        let mut machine = Machine::new().system(OFF);
        machine.places.variable = Some(value.into());
        machine.refused(&["LSL_SECURE_CONFIG", words, "unset"]);
    }
}

/// A3: services and containers get the HOME of somebody else.
#[test]
fn a_home_that_may_not_be_entered_counts_as_absent_unless_there_is_a_floor() {
    let closed = |mut machine: Machine| {
        machine.places.home_is_closed = true;
        machine
    };
    let machine = closed(Machine::new());
    assert_eq!(machine.found(), None);
    let Found::Nothing { searched } = machine.places.search().unwrap() else {
        panic!("found something");
    };
    assert_eq!(searched.len(), 2, "{searched:?}");
    let system = "etc/lsl_api/lsl-secure.toml";
    let found = closed(Machine::new().system(OFF)).found();
    assert_eq!(found, Some((system.to_owned(), Policy::Off)));
    for floor in [MIGRATE, REQUIRED] {
        closed(Machine::new().system(floor)).refused(&[
            "may not enter",
            "home",
            system,
            "set HOME",
        ]);
    }
    closed(Machine::new().system("x")).refused(&[system, "line 1"]);
    // What is named counts as ever.
    let machine = closed(Machine::new().variable("v", REQUIRED));
    assert_eq!(machine.found(), Some(("v".to_owned(), Policy::Required)));
}

/// B8: an exception in a home file is one that the system makes, too.
#[test]
fn plaintext_allow_cannot_undercut_the_floor() {
    let allow = |policy: &str, sources: &[&str]| {
        let sources = sources.iter();
        let entries = sources.map(|id| format!("\n[[plaintext_allow]]\nsource_id = \"{id}\""));
        policy.to_owned() + &entries.collect::<String>()
    };
    let check = |user: &str, system: Option<&str>, expected: &[&str]| {
        let user = allow(user, &["a", "b"]);
        let machine = Machine::new().user(&user);
        let machine = match system {
            Some(text) => machine.system(text),
            None => machine,
        };
        let Found::Settings { settings, .. } = machine.places.search().unwrap() else {
            panic!("nothing found");
        };
        assert_eq!(settings.plaintext_allow, expected, "{user} {system:?}");
    };
    check(REQUIRED, None, &["a", "b"]);
    check(REQUIRED, Some(OFF), &["a", "b"]);
    for floor in [MIGRATE, REQUIRED] {
        for user in [OFF, MIGRATE, REQUIRED] {
            check(user, Some(floor), &[]);
            check(user, Some(&allow(floor, &["b", "c"])), &["b"]);
        }
    }
}

/// B8: whoever may write to the directory may put another file there, or take it away.
#[test]
fn a_configuration_in_a_directory_that_others_may_write_to_is_refused() {
    let user = "home/lsl_api";
    let machine = Machine::new().user(OFF);
    machine.scratch.chmod(user, 0o775);
    machine.refused(&[user, "mode 0775", "chmod go-w"]);
    machine.scratch.chmod(user, 0o755);
    assert!(machine.found().is_some());
    let machine = Machine::new().user(REQUIRED).system(REQUIRED);
    machine.scratch.chmod("etc/lsl_api", 0o775);
    machine.refused(&["etc/lsl_api", "chmod go-w"]);
}

#[test]
fn a_file_that_is_named_must_exist_and_keeps_the_floor() {
    let machine = Machine::new().system(REQUIRED);
    let named = machine.scratch.write("named", OFF, 0o600);
    assert_eq!(
        machine.places.read(&named).unwrap().policy,
        Policy::Required
    );
    assert!(machine.places.read(&machine.scratch.path("none")).is_err());
    let system = machine.places.system.clone();
    assert_eq!(
        machine.places.read(&system).unwrap().policy,
        Policy::Required
    );
    let mut places = machine.places.clone();
    places.elevated = true;
    let error = places.read(&named).unwrap_err().to_string();
    assert!(error.contains("raised rights"), "{error}");
    places.read(&system).unwrap();
}

#[test]
fn neither_the_current_directory_nor_other_files_count() {
    // Tests run in the crate's directory; the same names lie beside the places that count.
    let machine = Machine::new();
    machine.scratch.write("lsl-secure.toml", "broken", 0o600);
    machine
        .scratch
        .write("home/lsl-secure.toml", "broken", 0o600);
    machine.scratch.write(
        "home/lsl_api/lsl_api.cfg",
        "[security]\npolicy = off",
        0o600,
    );
    machine
        .scratch
        .write("home/lsl_api/security.toml", "broken", 0o600);
    assert_eq!(machine.found(), None);
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("[security]\n".to_owned()),
        Just("policy = \"off\"\n".to_owned()),
        Just("policy = \"migrate\"\nmigrate_until = 2027-01-01\n".to_owned()),
        Just("pad_to = 16\n".to_owned()),
        Just("[[plaintext_allow]]\nsource_id = \"a\"\n".to_owned()),
        "[a-z_]{1,12} = [0-9\"a-z]{0,6}\n",
        any::<String>(),
    ]
}

proptest! {
    /// Whatever the text: settings, or an error that names the file. `off` has to be written.
    #[test]
    fn no_text_is_too_much(pieces in prop::collection::vec(piece(), 0..12)) {
        let text = pieces.concat();
        match parse(&text) {
            Ok(settings) => {
                prop_assert!(settings.policy != Policy::Off || text.contains("\"off\""));
            }
            Err(error) => {
                prop_assert!(error.to_string().starts_with("/lab/etc/lsl-secure.toml: "));
            }
        }
    }
}

#[cfg(unix)]
mod unix;
