//! Programs with a security configuration, good and broken ones.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lsl_core::secure::{OsRandom, SecretKey, keyfile};
use lsl_platform::files::{Who, create_new};

use crate::stage::{Outcome, Stage};
use crate::{Need, Test};

/// Names the configuration of a process.
pub(crate) const VARIABLE: &str = "LSL_SECURE_CONFIG";

/// Which ciphers a device uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ciphers {
    All,
    /// Valgrind takes the tags of the hand-written AES-GCM for uninitialised memory, wrongly: the
    /// other end accepts them.
    ChaCha20,
}

/// Makes a device in a folder, which trusts nobody but itself; its configuration.
pub(crate) fn device(folder: &Path, ciphers: Ciphers) -> Outcome<PathBuf> {
    let text = |error: lsl_core::secure::Error| error.to_string();
    let key = SecretKey::generate(&mut OsRandom).map_err(text)?;
    keyfile::write_new_key(&folder.join("device_key.pem"), &key, None).map_err(text)?;
    write_private(&folder.join("trusted_peers.toml"), "")?;
    let config = folder.join("lsl-secure.toml");
    let forced = ciphers == Ciphers::ChaCha20;
    write_private(&config, &format!("{CONFIG}force_chacha20 = {forced}\n"))?;
    Ok(config)
}

pub(crate) fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = BROKEN
        .iter()
        .map(|(name, breaking, reasons)| Test {
            name: format!("brokenkeys/{name}"),
            needs: vec![Need::Tool("cc")],
            run: Box::new(move |stage| broken(stage, name, *breaking, reasons)),
        })
        .collect();
    tests.push(Test {
        name: "brokenkeys/empty variable".to_owned(),
        needs: vec![Need::Tool("cc")],
        run: Box::new(|stage| {
            let folder = stage.folder("brokenkeys-empty-variable")?;
            refused(stage, &folder, OsStr::new(""), &[VARIABLE])
        }),
    });
    tests.push(Test {
        name: "brokenkeys/foreign switch".to_owned(),
        needs: vec![Need::Tool("cc")],
        run: Box::new(foreign_switch),
    });
    tests.push(Test {
        name: "privileged/setuid".to_owned(),
        needs: vec![Need::Tool("cc"), Need::Tool("chown"), Need::Setuid],
        run: Box::new(privileged),
    });
    tests
}

/// What is done to the folder of a good configuration.
type Breaking = fn(&Path) -> Outcome;

/// Each with what the reason must name.
const BROKEN: &[(&str, Breaking, &[&str])] = &[
    ("no file", no_file, &["lsl-secure.toml"]),
    ("syntax", syntax, &["lsl-secure.toml", "line 2"]),
    (
        "unknown field",
        unknown_field,
        &["lsl-secure.toml", "polcy"],
    ),
    ("bad policy", bad_policy, &["lsl-secure.toml", "prefer"]),
    (
        "migrate without end",
        no_end,
        &["lsl-secure.toml", "migrate_until"],
    ),
    ("no key", no_key, &["device_key.pem"]),
    (
        "key for everybody",
        key_for_all,
        &["device_key.pem", "644", "chmod"],
    ),
    (
        "trust for everybody",
        trust_for_all,
        &["trusted_peers.toml"],
    ),
    ("no trust file", no_trust, &["trusted_peers.toml"]),
];

fn no_file(folder: &Path) -> Outcome {
    fs::remove_file(folder.join("lsl-secure.toml")).map_err(|error| error.to_string())
}

fn syntax(folder: &Path) -> Outcome {
    config(folder, "[security]\npolicy = \"required\n")
}

fn unknown_field(folder: &Path) -> Outcome {
    config(folder, &format!("{CONFIG}polcy = \"off\"\n"))
}

fn bad_policy(folder: &Path) -> Outcome {
    config(folder, &CONFIG.replace("required", "prefer"))
}

fn no_end(folder: &Path) -> Outcome {
    config(folder, &CONFIG.replace("required", "migrate"))
}

fn no_key(folder: &Path) -> Outcome {
    fs::remove_file(folder.join("device_key.pem")).map_err(|error| error.to_string())
}

fn key_for_all(folder: &Path) -> Outcome {
    mode(&folder.join("device_key.pem"), 0o644)
}

fn trust_for_all(folder: &Path) -> Outcome {
    mode(&folder.join("trusted_peers.toml"), 0o666)
}

fn no_trust(folder: &Path) -> Outcome {
    fs::remove_file(folder.join("trusted_peers.toml")).map_err(|error| error.to_string())
}

fn config(folder: &Path, text: &str) -> Outcome {
    fs::write(folder.join("lsl-secure.toml"), text).map_err(|error| error.to_string())
}

fn broken(stage: &Stage, name: &str, breaking: Breaking, reasons: &[&str]) -> Outcome {
    let folder = stage.folder(&format!("brokenkeys-{name}"))?;
    let config = device(&folder, Ciphers::All)?;
    breaking(&folder)?;
    refused(stage, &folder, config.as_os_str(), reasons)
}

/// The host finds that nothing streams, and the reason has all of `reasons`.
fn refused(stage: &Stage, folder: &Path, variable: &OsStr, reasons: &[&str]) -> Outcome {
    let program = stage.compile("cc", "c/brokenkeys.c", &["-std=gnu11"], folder)?;
    let mut command = Command::new(program);
    command.args(reasons).env(VARIABLE, variable);
    let said = Stage::run(command, folder)?;
    if said.contains("panicked at") {
        return Err(said);
    }
    Ok(())
}

/// A4: what Secure LSL is meant to encrypt does not leave in plaintext.
fn foreign_switch(stage: &Stage) -> Outcome {
    let folder = stage.folder("brokenkeys-foreign-switch")?;
    let file = folder.join(".lsl_api").join("lsl_api.cfg");
    let written = fs::create_dir(folder.join(".lsl_api"))
        .and_then(|()| fs::write(&file, "[security]\nenabled = true\n"));
    written.map_err(|error| error.to_string())?;
    let program = stage.compile("cc", "c/brokenkeys.c", &["-std=gnu11"], &folder)?;
    let mut command = Command::new(program);
    command.arg(&file).args(["line 2", "lsl config migrate"]);
    Stage::run(command, &folder).map(drop)
}

/// With the rights of another user the variables and the home directory count for nothing, for keys (LSS/1
/// §11) and for `lsl_api.cfg` (B7).
fn privileged(stage: &Stage) -> Outcome {
    let folder = stage.folder("privileged")?;
    let program = stage.compile("cc", "c/privileged.c", &["-std=gnu11"], &folder)?;
    let variable = device(&folder, Ciphers::All)?;
    let system = Path::new("/etc/lsl_api/lsl-secure.toml");
    let run = |words: [&str; 3], into: &str| {
        let into = folder.join(into);
        fs::create_dir(&into).map_err(|error| error.to_string())?;
        let mut command = Command::new(&program);
        command.args(words).env(VARIABLE, &variable);
        Stage::run(command, &into)
    };
    // First the proof that the variables would count: sessions are called like the folder.
    run(["0", "2", "plain"], "plain")?;
    let mut chown = Command::new("chown");
    chown.arg("65534").arg(&program);
    crate::stage::run(chown, &folder.join("chown.log"), crate::stage::RUN_LIMIT)?;
    mode(&program, 0o4755)?;
    if system.exists() {
        return Err(format!("{} would decide here", system.display()));
    }
    run(["1", "0", "default"], "setuid")?;
    Ok(())
}

#[cfg(unix)]
fn mode(path: &Path, mode: u32) -> Outcome {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(not(unix))]
fn mode(path: &Path, _mode: u32) -> Outcome {
    Err(format!("{}: files have no modes here", path.display()))
}

fn write_private(path: &Path, content: &str) -> Outcome {
    use std::io::Write as _;
    let fail = |error| format!("{}: {error}", path.display());
    let mut file = create_new(path, Who::Owner).map_err(fail)?;
    file.write_all(content.as_bytes()).map_err(fail)
}

const CONFIG: &str = "[security]\nname = \"host\"\npolicy = \"required\"\n\
                      key_file = \"device_key.pem\"\ntrusted_peers = \"trusted_peers.toml\"\n";
