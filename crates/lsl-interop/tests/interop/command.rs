//! Our `lsl` as its users run it: a process with arguments, output and an exit status.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use serde_json::Value;

use crate::cell::{Outcome, PATIENCE};
use crate::lab::{Lab, Setup};
use crate::values::{Format, Values};

/// A running `lsl`. Killed when dropped.
pub(crate) struct Lsl {
    child: Child,
    output: Receiver<String>,
    notes: Receiver<String>,
    /// What was read of `notes`, for messages.
    told: Vec<String>,
}

impl Lsl {
    /// `lsl gen` with a counter, which has announced its stream when this returns.
    pub(crate) fn generate(
        lab: &Lab,
        setup: Setup,
        source_id: &str,
        arguments: &[&str],
    ) -> Outcome<Self> {
        let always = ["gen", "--pattern", "counter", "--duration", LIFETIME_SECS];
        let identity = ["--name", source_id, "--source-id", source_id];
        let words = [&always[..], &identity, arguments].concat();
        let mut running = Self::start(lab, setup, &words)?;
        running.wait_for_note("Streaming")?;
        Ok(running)
    }

    /// `lsl recv` with a line of JSON for each sample; it still has to find its stream.
    pub(crate) fn receive(
        lab: &Lab,
        setup: Setup,
        source_id: &str,
        arguments: &[&str],
    ) -> Outcome<Self> {
        let stream = format!("source_id={source_id}");
        let always = [
            "recv",
            &stream,
            "--output",
            "jsonl",
            "--duration",
            LIFETIME_SECS,
        ];
        Self::start(lab, setup, &[&always[..], arguments].concat())
    }

    /// What a command that ends by itself prints.
    pub(crate) fn ask(lab: &Lab, setup: Setup, arguments: &[&str]) -> Outcome<String> {
        Self::start(lab, setup, arguments)?.output()
    }

    /// All that it prints; an error unless it ends well.
    pub(crate) fn output(self) -> Outcome<String> {
        let mut running = self;
        let mut lines = Vec::new();
        while let Some(line) = running.line()? {
            lines.push(line);
        }
        let lines = lines.join("\n");
        match running.finish() {
            Ok(()) => Ok(lines),
            Err(error) => Err(format!("{error}\n{lines}")),
        }
    }

    fn start(lab: &Lab, setup: Setup, arguments: &[&str]) -> Outcome<Self> {
        Self::spawn(lab.command(setup)?, arguments)
    }

    /// Start what `command` is, with these arguments.
    pub(crate) fn spawn(mut command: Command, arguments: &[&str]) -> Outcome<Self> {
        let mut child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("lsl: {error}"))?;
        let output = lines(child.stdout.take().ok_or("no stdout")?);
        let notes = lines(child.stderr.take().ok_or("no stderr")?);
        Ok(Self {
            child,
            output,
            notes,
            told: Vec::new(),
        })
    }

    /// The next line of stdout; `None` at its end.
    fn line(&mut self) -> Outcome<Option<String>> {
        match self.output.recv_timeout(PATIENCE) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(self.complaint("no line of output")),
        }
    }

    /// The next sample that `lsl recv` prints: its time stamp and values.
    pub(crate) fn sample(&mut self) -> Outcome<(f64, Vec<Value>)> {
        let Some(line) = self.line()? else {
            return Err(self.complaint("no more samples"));
        };
        let unreadable = || format!("not a sample: {line}");
        let mut sample: Value = serde_json::from_str(&line).map_err(|_| unreadable())?;
        match (sample["t"].as_f64(), sample["v"].take()) {
            (Some(stamp), Value::Array(values)) => Ok((stamp, values)),
            _ => Err(unreadable()),
        }
    }

    /// Wait until stderr says something with `text` in it.
    pub(crate) fn wait_for_note(&mut self, text: &str) -> Outcome {
        loop {
            match self.notes.recv_timeout(PATIENCE) {
                Ok(note) => {
                    let found = note.contains(text);
                    self.told.push(note);
                    if found {
                        return Ok(());
                    }
                }
                Err(_) => return Err(self.complaint(&format!("never said '{text}'"))),
            }
        }
    }

    /// Wait until the process has ended by itself, with success and without more output.
    pub(crate) fn finish(mut self) -> Outcome {
        if let Some(line) = self.line()? {
            return Err(self.complaint(&format!("unexpected output: {line}")));
        }
        // Its stdout is closed: it is about to exit.
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() {
            Ok(())
        } else {
            Err(self.complaint(&status.to_string()))
        }
    }

    /// End the process at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn complaint(&mut self, what: &str) -> String {
        self.told.extend(self.notes.try_iter());
        format!("lsl: {what}; it said: {}", self.told.join(" | "))
    }
}

impl Drop for Lsl {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Longer than any cell takes: should one be abandoned, its process still ends.
const LIFETIME_SECS: &str = "120";

/// Lines as they come, read by a thread so that a full pipe never stops the process.
fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// The values of one sample as `lsl recv --output jsonl` prints them.
pub(crate) fn read(format: Format, values: &[Value]) -> Option<Values> {
    if format == Format::Text {
        let texts = values.iter().map(|value| Some(value.as_str()?.into()));
        return Some(Values::Texts(texts.collect::<Option<_>>()?));
    }
    let mut bytes = Vec::new();
    for value in values {
        // What JSON has no number for is text. The shortest digits of an `f32` survive being an
        // `f64` in `Value`.
        let digits = value.as_str().map_or_else(|| value.to_string(), Into::into);
        match format {
            Format::Float32 => bytes.extend(digits.parse::<f32>().ok()?.to_le_bytes()),
            Format::Double64 => bytes.extend(digits.parse::<f64>().ok()?.to_le_bytes()),
            Format::Int64 => bytes.extend(digits.parse::<i64>().ok()?.to_le_bytes()),
            Format::Int32 => bytes.extend(digits.parse::<i32>().ok()?.to_le_bytes()),
            Format::Int16 => bytes.extend(digits.parse::<i16>().ok()?.to_le_bytes()),
            Format::Int8 => bytes.extend(digits.parse::<i8>().ok()?.to_le_bytes()),
            Format::Text => return None,
        }
    }
    Some(Values::Numbers(bytes))
}
