//! What a debugger reads out of the probes while a stream is encrypted: a stand-in for BPF programs, which kernels of
//! test machines do not let run, and that no key is among it. Spec: audit §2, §7 tests 3 and 8.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use lsl_core::secure::{SecretKey, keyfile};

use crate::keys::{self, Ciphers};
use crate::stage::{Outcome, Stage, source_of};
use crate::{Need, Test};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test {
        name: "probes/gdb".to_owned(),
        needs: vec![Need::Tool("cc"), Need::Tool("gdb")],
        run: Box::new(probes),
    }]
}

/// Of the device's key.
const SEED: &[u8; 32] = b"known seed of a device's key, 32";

/// Contexts of each side, by the lowest byte of their words.
const CONTEXTS: [&str; 10] = [
    "lsl::session",
    "lsl::handshake",
    "lsl::key_exchange",
    "pk::generate",
    "pk::derive",
    "lsl::outlet_key",
    "lsl::inlet_key",
    "pk::sign",
    "pk::verify",
    "lsl::key_schedule",
];

fn probes(stage: &Stage) -> Outcome {
    let folder = stage.folder("probes")?;
    let program = stage.compile("cc", "c/probes.c", &["-std=gnu11"], &folder)?;
    let config = keys::device(&folder, Ciphers::All)?;
    let key = folder.join("device_key.pem");
    fs::remove_file(&key).map_err(|error| error.to_string())?;
    keyfile::write_new_key(&key, &SecretKey::from_seed(SEED), None)
        .map_err(|error| error.to_string())?;
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-x"])
        .arg(source_of("hosts/probes.gdb"))
        .arg(program)
        .env(keys::VARIABLE, config);
    let said = Stage::run(gdb, &folder)?;
    check(&said).map_err(|what| format!("{what}, in:\n{said}"))
}

fn check(said: &str) -> Outcome {
    // Bytes are printed in hex.
    let hex: Vec<_> = SEED.iter().map(|byte| format!("{byte:02x}")).collect();
    let seed = String::from_utf8_lossy(SEED);
    let is_told = said.contains(&hex.concat()) || said.contains(&*seed);
    expect("key", &is_told, &false)?;

    let ours = |line: &&str| line.contains("liblsl.so");
    let sites: Vec<&str> = said.lines().filter(ours).collect();
    let names = sites
        .iter()
        .filter_map(|line| line.split_whitespace().nth(2));
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    expect(
        "sites",
        &names[..],
        &["data", "new_context_with_data", "pull", "push", "send"][..],
    )?;

    let lines = said.lines().filter_map(|line| line.split_once('|'));
    let lines: Vec<Vec<&str>> = lines.map(|(_, line)| line.split('|').collect()).collect();
    let of = |probe| lines.iter().filter(move |line| line[0] == probe);
    expect(
        "exit",
        &of("exit").next().and_then(|line| line.get(1)),
        &Some(&"0"),
    )?;
    let numbers = |probe: &'static str| -> Vec<Vec<u64>> {
        let numbers =
            |line: &Vec<&str>| line[1..].iter().filter_map(|it| it.parse().ok()).collect();
        of(probe).map(numbers).collect()
    };

    // Two floats are 8 bytes, to one reader.
    for probe in ["push", "pull"] {
        let rest: Vec<_> = numbers(probe).iter().map(|it| it[1..].to_vec()).collect();
        expect(
            probe,
            &rest,
            &(0..3).map(|first| vec![first, 1, 8]).collect(),
        )?;
    }
    let [pushed, sent] = [numbers("push"), numbers("send")];
    for (pushed, sent) in pushed.iter().zip(&sent) {
        expect("send", &sent[..3], &pushed[..3])?;
        expect("bytes and readers", &(sent[3] > 8, sent[4]), &(true, 1))?;
    }
    expect("sent", &sent.len(), &3)?;

    // By the word of the session.
    let mut sides: BTreeMap<u64, Vec<(u64, u64, &str)>> = BTreeMap::new();
    for line in of("new") {
        let [context, parent] = [1, 2].map(|at| line[at].parse().unwrap_or(u64::MAX));
        let name = line[3]
            .strip_prefix("name=")
            .ok_or("a context without a name")?;
        let side = sides.entry(context & !0xff).or_default();
        side.push((context & 0xff, parent, name));
        if name == "lsl::close" {
            expect("session of a close", &sides.contains_key(&parent), &true)?;
        }
    }
    let is_closed = sides.values().any(|side| side[0].2 == "lsl::close");
    expect("close", &is_closed, &true)?;
    sides.retain(|_, side| side[0].2 == "lsl::session");
    expect("sides", &sides.len(), &2)?;
    for (session, mut side) in sides.clone() {
        side.sort_unstable();
        let is_outlet = of("new")
            .any(|line| line[1] == session.to_string() && line.contains(&"lsl::role=outlet"));
        let (own, theirs) = if is_outlet { (5, 6) } else { (6, 5) };
        let contexts = (0..).zip(CONTEXTS).map(|(part, name)| {
            let parent = match name {
                "lsl::session" => u64::MAX,
                "lsl::handshake" => session,
                "pk::generate" | "pk::derive" => session | 2,
                "pk::sign" => session | own,
                "pk::verify" => session | theirs,
                _ => session | 1,
            };
            (part, parent, name)
        });
        expect("contexts", &side, &contexts.collect())?;
        let results = of("data").find(|line| line[1] == (session | 1).to_string());
        let results = results.ok_or("nothing came of a handshake")?;
        let has = |text: &str| results.iter().any(|it| it.starts_with(text));
        for text in [
            "lsl::outcome=ok",
            "lsl::ciphersuite=",
            "lsl::policy=required",
            "lsl::peer_key=SHA256:",
        ] {
            expect(text, &has(text), &true)?;
        }
        let known = of("data").filter(|line| line[1] == session.to_string());
        let mut ids = known
            .flatten()
            .filter_map(|it| it.strip_prefix("lsl::session_id="));
        expect("session", &ids.next().map(str::len), &Some(32))?;
    }
    Ok(())
}

fn expect<T: PartialEq + std::fmt::Debug + ?Sized>(what: &str, found: &T, expected: &T) -> Outcome {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: {found:?} instead of {expected:?}"))
}
