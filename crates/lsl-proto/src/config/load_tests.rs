//! Search order over an invented file system, and diagnostics of odd files.

use std::collections::HashMap;

use super::super::values::Setting;
use super::super::{EncryptionRequest, encryption_request_in_home};
use super::Severity::{Error, Note, Warning};
use super::*;

/// A path in the home directory, which is an absolute one.
macro_rules! home {
    ($below:literal) => {
        if cfg!(windows) {
            concat!("C:/h", $below)
        } else {
            concat!("/h", $below)
        }
    };
}

const DRIVE: &str = if cfg!(windows) { "C:/" } else { "/" };

#[derive(Default)]
struct Fake {
    files: HashMap<PathBuf, Vec<u8>>,
    variables: HashMap<&'static str, &'static str>,
    account_home: Option<&'static str>,
    /// A directory that may not be entered.
    closed: Option<&'static str>,
    raised: bool,
}

impl Fake {
    fn new(files: &[(&str, &str)], variables: &[(&'static str, &'static str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| (path.into(), text.as_bytes().to_vec()))
            .collect();
        Self {
            files,
            variables: variables.iter().copied().collect(),
            ..Self::default()
        }
    }
}

impl Files for Fake {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if self.closed.is_some_and(|closed| path.starts_with(closed)) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.files
            .get(path)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn may_enter(&self, directory: &Path) -> bool {
        self.closed != directory.to_str()
    }

    fn has_raised_rights(&self) -> bool {
        self.raised
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).map(|&value| value.to_owned())
    }

    fn account_home(&self) -> Option<PathBuf> {
        self.account_home.map(PathBuf::from)
    }

    fn current_dir(&self) -> Option<PathBuf> {
        Some("/cwd".into())
    }
}

fn session(name: &str) -> String {
    format!("[lab]\nSessionID = {name}\n")
}

#[test]
fn candidates_are_tried_in_order() {
    let order = [
        "/env",
        "/api",
        "/cwd/lsl_api.cfg",
        home!("/lsl_api/lsl_api.cfg"),
        "/etc/lsl_api/lsl_api.cfg",
    ];
    let overrides = Overrides {
        content: Some(session("content")),
        file: Some("/api".into()),
    };
    let mut files = Fake::new(&[], &[("LSLAPICFG", "/env"), ("HOME", home!(""))]);
    for path in order {
        files.files.insert(path.into(), session(path).into_bytes());
    }
    let loaded = load(&files, &overrides);
    assert_eq!(loaded.source, Source::Content);
    assert_eq!(loaded.config.lab().session_id, "content");

    let mut overrides = Overrides {
        content: Some("garbage".to_owned()),
        ..overrides
    };
    for (index, path) in order.into_iter().enumerate() {
        let loaded = load(&files, &overrides);
        assert_eq!(loaded.config.lab().session_id, path);
        assert_eq!(loaded.source.path(), Some(Path::new(path)));
        let origin = loaded
            .config
            .entries()
            .into_iter()
            .find(|e| e.key == "lab.SessionID");
        let expected = Origin::File {
            path: path.into(),
            line: 2,
        };
        assert_eq!(origin.map(|entry| entry.origin), Some(expected));
        // The garbage and each broken file before this one, and nothing else.
        assert_eq!(
            loaded.diagnostics.len(),
            index + 1,
            "{:?}",
            loaded.diagnostics
        );
        assert!(loaded.diagnostics.iter().all(|d| d.severity == Error));
        files.files.insert(path.into(), b"[broken".to_vec());
    }
    let loaded = load(&files, &overrides);
    assert_eq!(
        (loaded.source, loaded.diagnostics.len()),
        (Source::Defaults, 6)
    );
    assert_eq!(loaded.config.values, Config::default().values);
    assert_eq!(
        loaded.config.peers_file(),
        Some(Path::new(home!("/lsl_api/lsl_api.cfg")))
    );

    overrides.content = None;
    files.files.clear();
    let loaded = load(&files, &overrides);
    let silent: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(
        silent.len(),
        2,
        "only files that somebody named are missed: {silent:?}"
    );
    assert!(
        silent[0].contains("/env (LSLAPICFG): cannot be read"),
        "{silent:?}"
    );
    assert!(
        load(&Fake::default(), &Overrides::default())
            .diagnostics
            .is_empty()
    );
}

#[test]
fn the_home_directory_is_found_as_on_windows() {
    for variables in [
        &[("HOME", home!("")), ("USERPROFILE", "/no")][..],
        &[("USERPROFILE", home!(""))],
        &[("HOMEDRIVE", DRIVE), ("HOMEPATH", "h")],
    ] {
        let loaded = load(
            &Fake::new(
                &[(home!("/lsl_api/lsl_api.cfg"), &session("home"))],
                variables,
            ),
            &Overrides::default(),
        );
        assert_eq!(loaded.config.lab().session_id, "home", "{variables:?}");
    }
}

/// A3: services and containers have such homes.
#[test]
fn a_useless_home_counts_as_unset_and_a_closed_one_as_absent() {
    // The working directory is none of the user's places.
    let relative = [
        ("lsl_api/lsl_api.cfg", &*session("relative")),
        ("data/lsl_api/lsl_api.cfg", &session("relative")),
        ("/u/lsl_api/lsl_api.cfg", &session("profile")),
    ];
    for home in ["", "data"] {
        let files = Fake::new(&relative, &[("HOME", home)]);
        let loaded = load(&files, &Overrides::default());
        assert_eq!(loaded.source, Source::Defaults, "{home}");
        let files = Fake::new(&relative, &[("HOME", home), ("USERPROFILE", "/u")]);
        let loaded = load(&files, &Overrides::default());
        assert_eq!(loaded.config.lab().session_id, "profile", "{home}");
    }
    let system = session("system");
    let files = [("/etc/lsl_api/lsl_api.cfg", &*system)];
    let mut files = Fake::new(&files, &[("HOME", home!(""))]);
    files.closed = Some(home!(""));
    let loaded = load(&files, &Overrides::default());
    assert_eq!(loaded.config.lab().session_id, "system");
    let [note] = &loaded.diagnostics[..] else {
        panic!("{:?}", loaded.diagnostics);
    };
    assert_eq!(note.severity, Note);
    assert!(note.text.contains("may not enter"), "{note}");
    // In a home that may be entered the file is somebody's mistake.
    files.closed = Some(home!("/lsl_api"));
    let loaded = load(&files, &Overrides::default());
    assert_eq!(loaded.diagnostics[0].severity, Error);
}

/// B7: the environment of a program with raised rights is its user's to forge.
#[test]
fn with_raised_rights_only_the_program_and_the_system_count() {
    let texts: Vec<(&str, String)> = [
        "/env",
        "/api",
        "/cwd/lsl_api.cfg",
        home!("/lsl_api/lsl_api.cfg"),
    ]
    .map(|path| (path, session(path)))
    .into();
    let on = "[security]\nenabled = true".to_owned();
    let mut files: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (*path, &**text)).collect();
    files.push((home!("/.lsl_api/lsl_api.cfg"), &on));
    let mut files = Fake::new(&files, &[("LSLAPICFG", "/env"), ("HOME", home!(""))]);
    let session_of = |files: &Fake, overrides: &Overrides| {
        load(files, overrides).config.lab().session_id.clone()
    };
    let mut overrides = Overrides::default();
    assert_eq!(session_of(&files, &overrides), "/env");
    assert!(encryption_request_in_home(&files).is_some());
    files.raised = true;
    assert_eq!(load(&files, &overrides).source, Source::Defaults);
    assert!(load(&files, &overrides).diagnostics.is_empty());
    assert_eq!(encryption_request_in_home(&files), None);
    let system = session("system").into_bytes();
    files
        .files
        .insert("/etc/lsl_api/lsl_api.cfg".into(), system);
    assert_eq!(session_of(&files, &overrides), "system");
    overrides.file = Some("/api".into());
    assert_eq!(session_of(&files, &overrides), "/api");
    overrides.content = Some(session("content"));
    assert_eq!(session_of(&files, &overrides), "content");
}

/// B5: whoever can put a file beside the data must not choose where this program writes.
#[test]
fn log_file_is_ignored_in_the_working_directory() {
    let text = "[log]\nfile = /var/log/lsl\nlevel = 1\n[lab]\nSessionID = x\n";
    let files = Fake::new(
        &[
            ("/cwd/lsl_api.cfg", text),
            (home!("/lsl_api/lsl_api.cfg"), text),
        ],
        &[("HOME", home!(""))],
    );
    let loaded = load(&files, &Overrides::default());
    let log = loaded.config.log();
    assert_eq!((log.file.as_str(), log.level), ("", 1));
    assert_eq!(loaded.config.lab().session_id, "x");
    let [warning] = &loaded.diagnostics[..] else {
        panic!("{:?}", loaded.diagnostics);
    };
    assert_eq!((warning.severity, warning.line), (Warning, Some(2)));
    assert!(warning.text.contains("log.file"), "{warning}");
    // Where somebody asked for the file it counts.
    for variables in [
        &[("LSLAPICFG", "/cwd/lsl_api.cfg")][..],
        &[("HOME", home!(""))],
    ] {
        let mut files = Fake::new(&[(home!("/lsl_api/lsl_api.cfg"), text)], variables);
        if variables[0].0 == "LSLAPICFG" {
            files.files.insert("/cwd/lsl_api.cfg".into(), text.into());
        }
        let loaded = load(&files, &Overrides::default());
        assert_eq!(loaded.config.log().file, "/var/log/lsl", "{variables:?}");
        assert_eq!(loaded.diagnostics, []);
    }
}

/// A4: the file in force, one that was rejected, and the one of Secure LSL.
#[test]
fn requests_for_encryption_are_found_where_secure_lsl_has_them() {
    let on = "[security]\nenabled = true\n";
    let broken = "[lab\n[security]\nenabled = true\n";
    let plain = session("plain");
    let request = |files: &[(&str, &str)]| {
        let files = Fake::new(files, &[("HOME", home!(""))]);
        let loaded = load(&files, &Overrides::default());
        let source = |request: &EncryptionRequest| request.source.to_string().replace('\\', "/");
        (
            loaded.config.encryption_request().map(source),
            encryption_request_in_home(&files).as_ref().map(source),
        )
    };
    let at = |path: &str| Some(path.to_owned());
    let (working, home) = ("/cwd/lsl_api.cfg", home!("/lsl_api/lsl_api.cfg"));
    let theirs = home!("/.lsl_api/lsl_api.cfg");
    assert_eq!(request(&[(home, &plain)]), (None, None));
    assert_eq!(request(&[(home, on)]), (at(home), None));
    assert_eq!(request(&[(working, &plain), (home, on)]), (None, None));
    assert_eq!(
        request(&[(working, broken), (home, &plain)]),
        (at(working), None)
    );
    assert_eq!(request(&[(working, broken)]), (at(working), None));
    assert_eq!(request(&[(theirs, on)]), (None, at(theirs)));
    // Secure LSL's file counts unless it switches encryption off.
    assert_eq!(request(&[(theirs, &plain)]), (None, at(theirs)));
    assert_eq!(request(&[(theirs, "")]), (None, at(theirs)));
    assert_eq!(
        request(&[(theirs, "[security]\nenabled = no")]),
        (None, None)
    );
    let mut files = Fake::new(&[], &[("HOME", home!(""))]);
    files.closed = Some(home!("/.lsl_api"));
    assert!(encryption_request_in_home(&files).is_some(), "unreadable");
    files.closed = Some(home!(""));
    assert_eq!(encryption_request_in_home(&files), None, "no home");
    let request = Config::from_text(on).unwrap();
    let text = request.encryption_request().unwrap().to_string();
    assert!(
        text.starts_with("configuration content, line 2 asks for encryption"),
        "{text}"
    );
    assert!(text.contains("lsl config migrate"), "{text}");
}

/// Without a usable `HOME` the `lsl-secure.toml` of the account's home counts, and so does this request.
#[test]
fn requests_in_the_home_of_the_account_count_whatever_home_says() {
    let on = "[security]\nenabled = true";
    let theirs = [("/account/.lsl_api/lsl_api.cfg", on)];
    let source = |files: &Fake| {
        let request = encryption_request_in_home(files)?;
        Some(request.source.path()?.to_owned())
    };
    for variables in [
        &[][..],
        &[("HOME", "")],
        &[("HOME", "data")],
        &[("USERPROFILE", "/u")],
    ] {
        let mut files = Fake::new(&theirs, variables);
        assert_eq!(source(&files), None, "{variables:?}");
        files.account_home = Some("/account");
        let found = Some("/account/.lsl_api/lsl_api.cfg".into());
        assert_eq!(source(&files), found, "{variables:?}");
        // Settings are looked for where liblsl looks for them, and there alone.
        let settings = "/account/lsl_api/lsl_api.cfg".into();
        files.files.insert(settings, session("account").into());
        let loaded = load(&files, &Overrides::default());
        assert_eq!(loaded.source, Source::Defaults, "{variables:?}");
        files.raised = true;
        assert_eq!(source(&files), None, "{variables:?}");
    }
    let mut files = Fake::new(&theirs, &[("HOME", home!(""))]);
    files.account_home = Some(home!(""));
    assert_eq!(source(&files), None);
}

/// `text` draws exactly one remark: this severity, this line, words that contain `part`.
fn check(text: &str, severity: Severity, line: impl Into<Option<usize>>, part: &str) {
    let remarks = match load_text(text, &Source::Content) {
        Ok((_, remarks)) => remarks,
        Err(diagnostic) => vec![diagnostic],
    };
    let [remark] = &remarks[..] else {
        panic!("{text:?}: {remarks:?}")
    };
    assert_eq!(
        (remark.severity, remark.line),
        (severity, line.into()),
        "{text:?}: {remark}"
    );
    assert!(remark.text.contains(part), "{text:?}: {remark}");
}

#[test]
fn unknown_keys_get_a_suggestion() {
    check(
        "[ports]\nBasePrt = 1",
        Warning,
        2,
        "did you mean 'ports.BasePort'?",
    );
    check(
        "[tuning]\nBasePort = 1",
        Warning,
        2,
        "belongs in section [ports]",
    );
    check("BasePort = 1", Warning, 1, "belongs in section [ports]");
    check(
        "[Ports]\nBasePort = 1",
        Warning,
        2,
        "belongs in section [ports]",
    );
    check(
        "[ports ]\nBasePort = 1",
        Warning,
        2,
        "belongs in section [ports]",
    );
    check("[lab]\nColour = 1", Warning, 2, "unknown key 'lab.Colour'");
}

#[test]
fn values_that_do_not_mean_what_they_say_are_explained() {
    check(
        "[ports]\nAllowRandomPorts = true",
        Warning,
        2,
        "'true' means no",
    );
    check(
        "[ports]\nPortRange = 8 ports",
        Warning,
        2,
        "' ports' after the number",
    );
    check("[ports]\nPortRange = 65544", Warning, 2, "wraps to 8");
    check(
        "[tuning]\nUseProtocolVersion = 120",
        Warning,
        2,
        "110 is used",
    );
    check("[tuning]\nTimeProbeInterval = 0", Warning, 2, "outside");
    if cfg!(not(windows)) {
        check("[tuning]\nTimerResolution = 5", Note, 2, "no effect");
    }
    check("[tuning]\nInletBufferReserveMs = 5", Note, 2, "no effect");
    check("[lab]\nKnownPeers = host", Warning, 2, "no entries at all");
    check("[lab]\nSessionID = \u{fffd}", Warning, None, "not UTF-8");
}

#[test]
fn combinations_that_cannot_work_are_explained() {
    let v6_only = "[multicast]\nAddressesOverride = {::1}\n[ports]\nIPv6 = disable";
    check(
        "[tuning]\nUseProtocolVersion = 105",
        Warning,
        None,
        "only 100 and 110",
    );
    check(
        "[tuning]\nTimeProbeCount = 5",
        Warning,
        None,
        "no time correction",
    );
    check(
        "[multicast]\nListenAddress = 10.0.0.1",
        Warning,
        None,
        "multicast.Interfaces",
    );
    check(v6_only, Warning, None, "family");
    check(
        "[ports]\nBasePort = 65530",
        Warning,
        None,
        "beyond port 65535",
    );
    check("[ports]\nBasePort = 0", Warning, None, "any free port");
    check("[ports]\nMulticastPort = 0", Warning, None, "by multicast");
    check(
        "[ports]\nPortRange = 0\nAllowRandomPorts = 0",
        Warning,
        None,
        "no port is left",
    );
}

#[test]
fn rejected_files_say_which_line() {
    check("[log]\nlevel = 10", Error, 2, "outside -3 to 9");
    check(
        "[ports]\nIPv6 = on",
        Error,
        2,
        "none of disable, allow or force",
    );
    check(
        "[multicast]\nResolveScope = lan",
        Error,
        2,
        "none of machine",
    );
    check("[ports]\n\nBasePort", Error, 3, "no '='");
}

#[test]
fn the_first_value_of_a_good_file_is_silent() {
    let text = "; lab 3\n[ports]\nBasePort = 17000 ; ours\nIPv6 = disabled\n[lab]\nKnownPeers = {a, b:17000}\n";
    let (config, remarks) = load_text(text, &Source::Content).unwrap();
    assert_eq!(remarks, []);
    assert_eq!(config.ports().base_port, 17000);
    assert_eq!(config.lab().known_peers.len(), 2);
}

#[test]
fn known_peers_are_read_again_unless_there_is_a_mistake() {
    let path = "lab/lsl_api.cfg";
    let source = Source::Api(path.into());
    let (mut config, _) =
        load_text("[lab]\nKnownPeers = {a}\n[ports]\nBasePort = 1", &source).unwrap();
    assert_eq!(config.peers_file(), Some(Path::new(path)));
    let mut check = |text: &str, expected: &str, problem: Option<&str>| {
        let error = config
            .reread_peers(text)
            .err()
            .map(|error| error.to_string());
        assert_eq!(error.is_some(), problem.is_some(), "{text}: {error:?}");
        assert!(
            error
                .unwrap_or_default()
                .contains(problem.unwrap_or_default()),
            "{text}"
        );
        assert_eq!(
            (
                Setting::show(&config.lab().known_peers),
                config.ports().base_port
            ),
            (expected.into(), 1)
        );
    };
    check(
        "[lab]\nKnownPeers = {b, 10.0.0.0/24}\nSession = x",
        "{b, 10.0.0.0/24}",
        None,
    );
    check(
        "[lab]\nKnownPeers = {c, h:x}",
        "{b, 10.0.0.0/24}",
        Some("h:x"),
    );
    check(
        "[lab]\nKnownPeers = {c}\n[log]\nlevel = 10",
        "{b, 10.0.0.0/24}",
        Some("level"),
    );
    check("", "{}", None);
    config.set_known_peers(&["d"]).unwrap();
    assert_eq!(config.peers_file(), None);
    assert_eq!(Config::default().peers_file(), None);
}
