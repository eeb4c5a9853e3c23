//! Two machines in a minute, as LSS/1 §3.6 promises: keys made and trusted with `lsl` alone, the mistake
//! that everybody makes first, then a stream.

use std::path::Path;
use std::process::Command;

use crate::cell::{Cell, Outcome, Place, Topic};
use crate::command::Lsl;
use crate::keys::new_folder;
use crate::lab::{Family, Lab, Need, Protocol, SECURE_CONFIG, Setup};

/// `lsl key init`, `lsl trust add`, `lsl trust check`, then `lsl gen` and `lsl recv`.
pub(crate) fn enrolment() -> Cell {
    let row = "secure: lsl key, lsl trust".to_owned();
    Cell {
        name: format!("{row}/two machines"),
        place: Place {
            row,
            topic: Topic::Policy,
        },
        needs: vec![Need::Command],
        run: Box::new(play),
    }
}

/// A machine that is set up by hand.
struct Machine<'a> {
    lab: &'a Lab,
    config: String,
}

impl<'a> Machine<'a> {
    fn new(lab: &'a Lab, name: &str) -> Outcome<Self> {
        let folder = new_folder(&format!("enrolment-{name}"))?;
        let folder = folder.to_str().ok_or("a strange folder")?;
        let made = Self {
            lab,
            config: format!("{folder}/lsl-secure.toml"),
        };
        let words = ["key", "init", "--dir", folder, "--name", name];
        let said = Lsl::spawn(lab.command(setup())?, &words)?.output()?;
        if !Path::new(&made.config).is_file() {
            return Err(format!("no {}; it said: {said}", made.config));
        }
        // The line for the other machines.
        let line = format!("lsl trust add {name} {}", made.public_key()?);
        if said.contains(&line) {
            Ok(made)
        } else {
            Err(format!("no '{line}' in:\n{said}"))
        }
    }

    fn command(&self) -> Outcome<Command> {
        let mut command = self.lab.command(setup())?;
        command.env(SECURE_CONFIG, &self.config);
        Ok(command)
    }

    fn ask(&self, words: &[&str]) -> Outcome<String> {
        Lsl::spawn(self.command()?, words)?.output()
    }

    fn public_key(&self) -> Outcome<String> {
        Ok(self.ask(&["key", "show", "--public"])?.trim().to_owned())
    }
}

fn setup() -> Setup {
    Setup::new(Protocol::V110, Family::V4).within("enrolment")
}

fn play(lab: &Lab, id: &str) -> Outcome {
    let amplifier = Machine::new(lab, "amp1")?;
    let recorder = Machine::new(lab, "rec1")?;
    let (amp_key, rec_key) = (amplifier.public_key()?, recorder.public_key()?);
    recorder.ask(&["trust", "add", "amp1", &amp_key, "--role", "outlet"])?;
    let words = [
        "gen",
        "--pattern",
        "counter",
        "--format",
        "int32",
        "--channels",
        "1",
    ];
    let identity = [
        "--name",
        "amp",
        "--source-id",
        id,
        "--duration",
        "100",
        "--rate",
        "100",
    ];
    let mut sender = Lsl::spawn(amplifier.command()?, &[&words[..], &identity].concat())?;
    sender.wait_for_note("Streaming")?;

    // One direction was forgotten: the text says what is to be done where.
    let check = ["trust", "check", "--timeout", "3"];
    let refused = match recorder.ask(&check) {
        Ok(said) => return Err(format!("all is said to be well: {said}")),
        Err(said) => said,
    };
    let remedy = format!("lsl trust add rec1 {rec_key}");
    if !refused.contains(&remedy) {
        return Err(format!("no '{remedy}' in:\n{refused}"));
    }

    // The running program sees the new entry.
    amplifier.ask(&["trust", "add", "rec1", &rec_key, "--role", "inlet"])?;
    let stream = format!("source_id={id}");
    let words = [
        "recv",
        &stream,
        "--output",
        "jsonl",
        "--count",
        "20",
        "--duration",
        "60",
    ];
    let mut receiver = Lsl::spawn(recorder.command()?, &words)?;
    let mut expected = None;
    for _ in 0..20 {
        let (_, values) = receiver.sample()?;
        let number = values.first().and_then(serde_json::Value::as_i64);
        let number = number.ok_or("a sample without number")?;
        if expected.is_some_and(|expected| expected != number) {
            return Err(format!("{number} instead of {expected:?}"));
        }
        expected = Some(number + 1);
    }
    receiver.finish()?;
    let said = recorder.ask(&check)?;
    if said.contains("amp1") {
        Ok(())
    } else {
        Err(format!("nothing of amp1 in:\n{said}"))
    }
}
