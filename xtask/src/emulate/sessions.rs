//! `lsl` for aarch64: alone, and in encrypted sessions with the one for this machine. Which cipher they
//! take must follow what the processors can: AES-GCM is for two that both have instructions for it.

use xshell::Shell;

use super::machine::{Kind, Machine};
use super::{Stage, passed};
use crate::Result;

const AES: &str = "AES-256-GCM";
const CHACHA: &str = "ChaCha20-Poly1305";

/// Who sends, who receives, and the cipher that must be theirs.
const SESSIONS: &[(Kind, Kind, &str)] = &[
    (Kind::Native, Kind::WithAes, AES),
    (Kind::WithAes, Kind::Native, AES),
    (Kind::Native, Kind::WithoutAes, CHACHA),
    (Kind::WithoutAes, Kind::Native, CHACHA),
];

/// Samples of a session.
const SAMPLES: usize = 500;

/// Run everything; how many checks passed.
pub(super) fn run(sh: &Shell, stage: &Stage) -> Result<usize> {
    // Without these instructions here, AES-GCM is nobody's choice and half of this proves nothing.
    let processor = sh.read_file("/proc/cpuinfo")?;
    let flags = processor.lines().find(|line| line.starts_with("flags"));
    let has = |flag| flags.is_some_and(|flags| flags.split_whitespace().any(|word| word == flag));
    if !has("aes") || !has("pclmulqdq") {
        return Err("the sessions need a processor with AES instructions".into());
    }
    Ok(demo(sh, stage)? + sessions(sh, stage)?)
}

fn demo(sh: &Shell, stage: &Stage) -> Result<usize> {
    let machine = Machine::new(sh, stage, "demo", Kind::WithAes)?;
    let said = machine.run(&["demo", "--duration", "3"])?;
    if !said.contains("Nothing was lost") {
        return Err(format!("lsl demo on aarch64:\n{said}").into());
    }
    Ok(passed("lsl demo on aarch64: nothing was lost"))
}

fn sessions(sh: &Shell, stage: &Stage) -> Result<usize> {
    let mut count = 0;
    for &(sender, receiver, cipher) in SESSIONS {
        session(sh, stage, sender, receiver, cipher).map_err(|error| {
            let (from, to) = (sender.name(), receiver.name());
            format!("{from} to {to}, {cipher}: {error}")
        })?;
        let (from, to) = (sender.name(), receiver.name());
        count += passed(&format!(
            "{from} to {to}: {SAMPLES} samples, {cipher}, nothing lost"
        ));
    }
    Ok(count)
}

fn session(sh: &Shell, stage: &Stage, from: Kind, to: Kind, cipher: &str) -> Result {
    let amplifier = Machine::new(sh, stage, "amplifier", from)?;
    let recorder = Machine::new(sh, stage, "recorder", to)?;
    let key = |machine: &Machine, name: &str| -> Result<String> {
        machine.run(&["key", "init", "--name", name])?;
        Ok(machine.run(&["key", "show", "--public"])?.trim().to_owned())
    };
    let sends = key(&amplifier, "amplifier")?;
    let receives = key(&recorder, "recorder")?;
    amplifier.run(&["trust", "add", "recorder", &receives, "--role", "inlet"])?;
    recorder.run(&["trust", "add", "amplifier", &sends, "--role", "outlet"])?;

    let samples = SAMPLES.to_string();
    let generate = "gen --name Session --pattern counter --format int32 --rate 500 --wait --count";
    let mut words: Vec<&str> = generate.split(' ').collect();
    words.push(&samples);
    let generator = amplifier.start(&words)?;
    let receive = "recv Session --timeout 20 --output jsonl --duration 60 --count";
    let mut words: Vec<&str> = receive.split(' ').collect();
    words.push(&samples);
    let said = recorder.run(&words)?;
    let sent = generator.finish()?;

    let received: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("\"v\":"))
        .collect();
    // The counter begins at 0 and steps by 1: nothing is missing, double or out of order.
    let in_order = (0..).zip(&received);
    let is_whole = received.len() == SAMPLES
        && in_order
            .into_iter()
            .all(|(number, line)| line.contains(&format!("\"v\":[{number},")));
    if !is_whole {
        return Err(format!("{} samples came:\n{said}\n{sent}", received.len()).into());
    }
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    if !words.contains(&format!("Encrypted: {cipher} with amplifier (")) {
        return Err(format!("not with {cipher}:\n{}", notes(&said)).into());
    }
    Ok(())
}

/// What a receiver says beside the samples.
fn notes(said: &str) -> String {
    let notes = said.lines().filter(|line| !line.contains("\"v\":"));
    notes.collect::<Vec<_>>().join("\n")
}
