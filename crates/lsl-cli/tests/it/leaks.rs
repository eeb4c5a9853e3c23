//! No secret reaches a security log, nor what is made of it: keys, passphrases, samples, `desc`, contents of files and values of
//! other programs' settings, searched as they are, in hex and in base64. Spec: audit §7, test 3.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lsl_core::config::{Bind, Config};
use lsl_core::secure::{SecretKey, Security, keyfile};
use lsl_core::{ChannelFormat, Context, Outlet, StreamInfo};

use crate::lab::Lab;
use crate::machine::Machine;

const SEED: &[u8; 32] = b"known seed of a device's key, 32";
const PSK: &[u8; 32] = b"known key that all devices share";
const PASSPHRASE: &str = "PASSPHRASE-correct-horse";
const SAMPLE: &str = "SAMPLE-left-hand-moved";
const DESC: &str = "DESC-name-of-the-subject";
const CONTENT: &str = "CONTENT-of-a-locked-file";
const FOREIGN: &str = "FOREIGN-key-of-another-program";

fn base64(bytes: &[u8]) -> String {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1);
    let digits = 0..(bytes.len() * 8).div_ceil(6);
    let digit = |at: usize| (0..6).fold(0, |sum, next| sum << 1 | bit(6 * at + next));
    digits
        .map(|at| char::from(alphabet[usize::from(digit(at))]))
        .collect()
}

/// The ways in which bytes stand in a text, whatever stands around them.
fn forms(secret: &[u8]) -> Vec<Vec<u8>> {
    let digits: Vec<_> = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let hex = digits.concat();
    let mut forms = vec![
        secret.to_vec(),
        hex.to_uppercase().into_bytes(),
        hex.into_bytes(),
    ];
    for before in 0..3 {
        let shifted = [&[0; 2][..before], secret].concat();
        let text = base64(&shifted);
        // Without the digits that have bits of something else.
        let text = &text[(before * 8).div_ceil(6)..shifted.len() * 8 / 6];
        forms.push(text.as_bytes().to_vec());
        forms.push(text.replace('+', "-").replace('/', "_").into_bytes());
    }
    forms
}

fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|it| it == part)
}

/// Devices with known secrets do all that is logged.
fn scene(lab: &Lab) -> ([Machine<'_>; 2], String) {
    let [amp, rec] = ["amp1", "rec1"].map(|name| Machine::with_key(lab, name));
    let key = amp.file("device_key.pem");
    fs::remove_file(&key).unwrap();
    keyfile::write_new_key(&key, &SecretKey::from_seed(SEED), None).unwrap();
    for machine in [&amp, &rec] {
        machine.configure("audit_file = \"\"", "audit_file = \"audit.jsonl\"");
        fs::write(machine.file("lab.psk"), format!("{}=\n", base64(PSK))).unwrap();
        machine.set_mode("lab.psk", 0o600);
        machine.configure("psk_file = \"\"", "psk_file = \"lab.psk\"");
        let home = Path::new(&lab.path(machine.name)).join(".lsl_api");
        fs::create_dir(&home).unwrap();
        let foreign = format!("[security]\nenabled = true\nprivate_key = {FOREIGN}\n");
        fs::write(home.join("lsl_api.cfg"), foreign).unwrap();
    }
    let typed = format!("{PASSPHRASE}\n");
    amp.run_typing(&["key", "passwd"], &typed).ok();
    amp.run_typing(&["key", "passwd", "--remove"], &typed).ok();
    rec.run(&["key", "init", "--next"]).ok();
    amp.run(&["trust", "add", "rec1", &rec.key(), "--role", "inlet"])
        .ok();
    rec.run(&["trust", "add", "amp1", &amp.key(), "--role", "outlet"])
        .ok();

    let security = Arc::new(Security::from_file(&amp.file("lsl-secure.toml")).unwrap());
    let text = fs::read_to_string(lab.path("lsl_api.cfg")).unwrap();
    let mut config = Config::from_text(&text).unwrap();
    config.set_bind(Bind::Loopback);
    let context = Context::with_security(config, Arc::clone(&security));
    let format = ChannelFormat::String;
    let mut info = StreamInfo::new("Secret", "Markers", 1, 0.0, format, "secret").unwrap();
    info.desc_mut().set("subject", DESC);
    let outlet = Outlet::builder(info).context(&context).open().unwrap();
    let identity = lab.path("key.txt");
    let public = lab.run(&["key", "age", &identity]).ok().stdout;
    let (recording, is_over) = (lab.path("secret.xdf"), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                outlet.push(&[SAMPLE]).unwrap();
                thread::sleep(Duration::from_millis(10));
            }
        });
        let received = rec.run(&["recv", "Secret", "-o", "jsonl", "--count", "3"]);
        let info = rec.run(&["info", "Secret", "--xml"]);
        let record = ["record", "-o", &recording, "--duration", "1", "-r"];
        let recorded = rec.run(&[&record[..], &[public.trim(), "Secret"]].concat());
        // Whom nobody trusts.
        let refused = Machine::with_key(lab, "guest").run(&["recv", "Secret", "--timeout", "3"]);
        is_over.store(true, Ordering::Relaxed);
        assert!(received.ok().stdout.contains(SAMPLE));
        assert!(info.ok().stdout.contains(DESC));
        recorded.ok();
        assert_ne!(refused.status, Some(0));
    });
    drop(outlet);
    assert!(security.audit().flush(Duration::from_secs(20)));

    let plain = lab.write("notes.txt", CONTENT);
    let locked = format!("{plain}.age");
    let public = public.trim();
    rec.run(&["lock", "-r", public, &plain]).ok();
    rec.run(&["rotate", "-i", &identity, "-r", public, &locked])
        .ok();
    rec.run(&["verify", "-i", &identity, &locked]).ok();
    rec.run(&["unlock", "-i", &identity, "--force", &locked])
        .ok();
    let typed = format!("{PASSPHRASE}\n");
    rec.run_typing(&["lock", "--passphrase", "--force", &plain], &typed)
        .ok();
    rec.run_typing(&["unlock", "--force", &locked], "wrong\n");
    rec.run(&["config", "check"]);
    rec.run(&["config", "migrate"]);
    ([amp, rec], fs::read_to_string(identity).unwrap())
}

#[test]
fn no_secret_is_logged_or_exported() {
    // Secrets are found where they are.
    for form in forms(SEED) {
        assert!(form.len() >= 32 && has(&[b"x", &form[..], b"y"].concat(), &form));
    }
    let around = base64(&[b"ab", &SEED[..], b"c"].concat());
    assert!(forms(SEED).iter().any(|it| has(around.as_bytes(), it)));

    let lab = Lab::new();
    let (machines, identity) = scene(&lab);
    let identity = identity
        .lines()
        .find(|line| line.starts_with("AGE-SECRET-KEY-"))
        .unwrap();
    let mut written: Vec<(String, Vec<u8>)> = Vec::new();
    for machine in &machines {
        let log = machine.file("audit.jsonl");
        let text = fs::read(&log).unwrap();
        assert!(has(&text, b"handshake_ok"), "it has what it has to have");
        written.push((format!("log of {}", machine.name), text));
        let log = log.to_str().unwrap();
        for format in ["cbor", "json", "folded", "svg"] {
            for more in [&[][..], &["--pseudonyms"]] {
                let out = lab.path("exported");
                let export = ["audit", "export", log, "--format", format, "-o", &out];
                machine.run(&[&export[..], more].concat()).ok();
                written.push((format!("{format} {more:?}"), fs::read(&out).unwrap()));
            }
        }
        for command in [&["query"][..], &["tail", "-n", "1000"], &["summary"]] {
            let shown = machine.run(&[&["audit"], command, &[log]].concat()).ok();
            written.push((format!("{command:?}"), shown.stdout.into_bytes()));
        }
    }
    let events: Vec<_> = ["key_made", "recording_ended", "file_locked", "file_failed"].into();
    for event in events {
        let is_told = |(_, text): &(String, Vec<u8>)| has(text, event.as_bytes());
        assert!(written.iter().any(is_told), "{event} is part of the scene");
    }
    let secrets = [PASSPHRASE, SAMPLE, DESC, CONTENT, FOREIGN, identity];
    let secrets = secrets.iter().map(|text| text.as_bytes());
    for secret in secrets.chain([&SEED[..], &PSK[..]]) {
        for form in forms(secret) {
            for (place, text) in &written {
                let form_text = String::from_utf8_lossy(&form);
                assert!(!has(text, &form), "{form_text} in {place}");
            }
        }
    }
}
