//! What is played between our `lsl` and others.

use lsl_core::local_clock;
use serde_json::Value;

use crate::cell::{
    Announcement, CHANNELS, Cell, Correction, InletEnd, Outcome, OutletEnd, Place, Run, Stamps,
    Topic, same,
};
use crate::command::{Lsl, read};
use crate::keys::{Device, Keys, Policy};
use crate::lab::{Family, Lab, Need, Protocol, Setup};
use crate::scenes::{
    CLOCK_TRIES, CROWD_OUTLETS, CROWD_PROCESSES, described, found_at_once, nearly_nothing, within,
};
use crate::side::Side;
use crate::values::{Format, Values, counter, pattern};

/// `lsl gen` read by others: every number from the first on.
pub(crate) fn generate(reader: Side, family: Family, format: Format, keys: Keyed) -> Cell {
    let run = move |lab: &Lab, id: &str| {
        let (setup, readers) = keys.setups(family, Device::Amplifier, Device::Recorder);
        let (samples, rate) = (300, 1000.0);
        let end = match keys {
            Keyed::No => format!("--count {samples}"),
            // A generator that ends takes with it the connection that is asked for below.
            Keyed::Yes => String::new(),
        };
        let arguments = format!(
            "--wait --channels {CHANNELS} --format {} --rate {rate} {end}",
            format.name()
        );
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let sender = Lsl::generate(lab, setup, id, &arguments)?;
        let mut inlet = reader.inlet(lab, readers, id)?;
        let (stamps, values) = inlet.pull_chunk(samples as usize)?;
        let steps = stamps.windows(2).map(|pair| pair[1] - pair[0]);
        let worst = steps.fold(0.0, |worst: f64, step| worst.max((step - 1.0 / rate).abs()));
        if worst > STAMP_ROUNDING_SECS {
            return Err(format!("time stamps are off the rate by {worst} s"));
        }
        let expected = counter(format, CHANNELS, 0, samples);
        same("the counter", &stamps, &expected, &stamps, &values)?;
        match keys {
            Keyed::No => sender.finish(),
            Keyed::Yes => keys.check(&mut *inlet, Device::Amplifier),
        }
    };
    cell(
        &keys.row("lsl gen to"),
        reader,
        family,
        Topic::Chunk,
        format.name(),
        Box::new(run),
    )
}

/// Others' outlets read by `lsl recv`, then `lsl recv` ends by itself.
pub(crate) fn receive(sender: Side, family: Family, format: Format, keys: Keyed) -> Cell {
    let run = move |lab: &Lab, id: &str| {
        let (setup, senders) = keys.setups(family, Device::Recorder, Device::Amplifier);
        let mut outlet = sender.outlet(lab, senders, &Announcement::new(id, format))?;
        let rounds: u16 = 4;
        let count = rounds.to_string();
        let mut receiver = Lsl::receive(lab, setup, id, &["--count", &count])?;
        outlet.wait_for_consumers()?;
        for round in 0..rounds {
            let stamp = 345.678_9 + f64::from(round) / 7.0;
            outlet.push(&pattern(format, CHANNELS, round), stamp)?;
            let expected = pattern(format, CHANNELS, round).repaired();
            expect(&mut receiver, format, stamp, &expected)?;
        }
        receiver.finish()
    };
    cell(
        &keys.row("lsl recv from"),
        sender,
        family,
        Topic::Sample,
        format.name(),
        Box::new(run),
    )
}

/// Whether the command and the other end have keys and demand that all have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyed {
    No,
    Yes,
}

impl Keyed {
    /// Of the command, as this device, and of the other end.
    fn setups(self, family: Family, command: Device, other: Device) -> (Setup, Setup) {
        let plain = Setup::new(Protocol::V110, family);
        let keyed = |device| {
            let keys = Keys::new(device, Policy::Required);
            plain.within("secure").with(keys)
        };
        match self {
            Self::No => (plain, plain),
            Self::Yes => (keyed(command), keyed(other)),
        }
    }

    fn row(self, how: &str) -> String {
        match self {
            Self::No => how.to_owned(),
            Self::Yes => format!("secure: {how}"),
        }
    }

    fn check(self, inlet: &mut dyn InletEnd, device: Device) -> Outcome {
        if self == Self::No {
            return Ok(());
        }
        match inlet.encryption()? {
            Some(found) if found.peer_name == device.name() => Ok(()),
            other => Err(format!("not encrypted with {}: {other:?}", device.name())),
        }
    }
}

/// `lsl gen` is killed and started again; its readers go on.
pub(crate) fn generator_restart(reader: Side) -> Cell {
    let run = move |lab: &Lab, id: &str| {
        let setup = Setup::new(Protocol::V110, Family::Both);
        let format = Format::Int32;
        let arguments = "--format int32 --channels 1 --rate 100 --wait";
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let mut first = Lsl::generate(lab, setup, id, &arguments)?;
        let mut inlet = reader.inlet(lab, setup, id)?;
        let (stamps, values) = inlet.pull_chunk(10)?;
        same(
            "before",
            &stamps,
            &counter(format, 1, 0, 10),
            &stamps,
            &values,
        )?;
        first.kill();
        let _second = Lsl::generate(lab, setup, id, &arguments)?;
        let back = local_clock();
        // What was under way when the first one died still comes; the second counts from 0.
        let mut number = 9;
        while number != 0 {
            let next = last(&inlet.pull()?.1);
            if next != 0 && next != number + 1 {
                return Err(format!("{next} after {number}"));
            }
            number = next;
        }
        within(reader.recovery_limit_secs(), local_clock() - back)
    };
    cell(
        "lsl gen to",
        reader,
        Family::Both,
        Topic::Recovery,
        "",
        Box::new(run),
    )
}

/// An outlet's process dies and another one takes over; `lsl recv` goes on.
pub(crate) fn receiver_survives(sender: Side) -> Cell {
    let run = move |lab: &Lab, id: &str| {
        let setup = Setup::new(Protocol::V110, Family::Both);
        let stream = Announcement::new(id, Format::Int16);
        let mut first = sender.mortal_outlet(lab, setup, &stream)?;
        let mut receiver = Lsl::receive(lab, setup, id, &["--count", "2"])?;
        first.wait_for_consumers()?;
        let sample = pattern(stream.format, CHANNELS, 0);
        first.push(&sample, 100.5)?;
        expect(&mut receiver, stream.format, 100.5, &sample)?;
        if let Side::Foreign(library) = sender {
            lab.peer(library, setup)?;
        }
        first.crash();
        let mut second = sender.outlet(lab, setup, &stream)?;
        let back = local_clock();
        second.wait_for_consumers()?;
        let took = local_clock() - back;
        let sample = pattern(stream.format, CHANNELS, 1);
        second.push_chunk(&sample, &Stamps::Last(200.5))?;
        expect(&mut receiver, stream.format, 200.5, &sample)?;
        within(Side::Ours.recovery_limit_secs(), took)?;
        receiver.finish()
    };
    cell(
        "lsl recv from",
        sender,
        Family::Both,
        Topic::Recovery,
        "",
        Box::new(run),
    )
}

/// `lsl info` shows the name and description of others' streams.
pub(crate) fn info(sender: Side) -> Cell {
    let run = move |lab: &Lab, id: &str| {
        let setup = Setup::new(Protocol::V110, Family::Both);
        let stream = described(id);
        let _outlet = sender.outlet(lab, setup, &stream)?;
        let words = ["info", &format!("source_id={id}"), "--json"];
        let printed = json(&Lsl::ask(lab, setup, &words)?)?;
        let expected: Value = stream
            .desc
            .iter()
            .map(|(name, text)| (name.clone(), Value::from(text.as_str())))
            .collect();
        if printed["name"] == stream.name && printed["desc"] == expected {
            Ok(())
        } else {
            Err(format!("not {stream:?}: {printed}"))
        }
    };
    cell(
        "lsl info of",
        sender,
        Family::Both,
        Topic::Metadata,
        "",
        Box::new(run),
    )
}

/// `lsl time` finds others' clocks to be ours.
pub(crate) fn time(sender: Side) -> Cell {
    let run = move |lab: &Lab, id: &str| {
        let setup = Setup::new(Protocol::V110, Family::Both);
        let _outlet = sender.outlet(lab, setup, &Announcement::new(id, Format::Float32))?;
        nearly_nothing(CLOCK_TRIES, || {
            let words = ["time", &format!("source_id={id}"), "--json"];
            let printed = json(&Lsl::ask(lab, setup, &words)?)?;
            Ok(Correction {
                offset_secs: printed["offset_secs"].as_f64().ok_or("no offset")?,
                uncertainty_secs: printed["round_trip_secs"].as_f64(),
            })
        })
    };
    cell(
        "lsl time of",
        sender,
        Family::Both,
        Topic::Clock,
        "",
        Box::new(run),
    )
}

/// `lsl list` shows forty streams of one foreign process.
pub(crate) fn list(sender: Side) -> Cell {
    let run = move |lab: &Lab, id: &str| {
        let setup = Setup::new(Protocol::V110, Family::Both);
        let mut outlets = Vec::new();
        let mut wanted = Vec::new();
        for index in 0..CROWD_OUTLETS {
            let stream = Announcement::new(&format!("{id} {index:02}"), Format::Float32);
            outlets.push(sender.outlet(lab, setup, &stream)?);
            wanted.push(Value::from(stream.name));
        }
        let predicate = format!("starts-with(source_id,'{id} ')");
        let printed = json(&Lsl::ask(lab, setup, &["list", "--json", &predicate])?)?;
        let printed = printed.as_array().ok_or("not a list")?;
        let mut names: Vec<Value> = printed.iter().map(|row| row["name"].clone()).collect();
        names.sort_by_key(ToString::to_string);
        if names == wanted {
            Ok(())
        } else {
            Err(format!("{} streams listed: {names:?}", names.len()))
        }
    };
    cell(
        "lsl list of",
        sender,
        Family::Both,
        Topic::Crowd,
        "",
        Box::new(run),
    )
}

/// Forty outlets of ours in this process and ten `lsl gen`, found in one resolve.
pub(crate) fn crowd(finder: Side) -> Cell {
    let setup = Setup {
        protocol: Protocol::V110,
        family: Family::Both,
        session: "gen-crowd",
        keys: None,
    };
    let run = move |lab: &Lab, id: &str| {
        let mut outlets: Vec<Box<dyn OutletEnd>> = Vec::new();
        let mut processes = Vec::new();
        let mut wanted = Vec::new();
        for index in 0..CROWD_OUTLETS + CROWD_PROCESSES {
            let id = format!("{id} {index}");
            if index < CROWD_OUTLETS {
                let stream = Announcement::new(&id, Format::Float32);
                outlets.push(Side::Ours.outlet(lab, setup, &stream)?);
            } else {
                processes.push(Lsl::generate(lab, setup, &id, &[])?);
            }
            wanted.push(id);
        }
        found_at_once(lab, finder, setup, id, wanted)
    };
    cell(
        "lsl gen to",
        finder,
        Family::Both,
        Topic::Crowd,
        "",
        Box::new(run),
    )
}

fn cell(how: &str, other: Side, family: Family, topic: Topic, what: &str, run: Run) -> Cell {
    let row = format!("{how} {}/{}", other.name(), family.name());
    let separator = if what.is_empty() { "" } else { "/" };
    Cell {
        name: format!("{row}/{}{separator}{what}", topic.name()),
        place: Place { row, topic },
        needs: other.needs().into_iter().chain([Need::Command]).collect(),
        run,
    }
}

fn json(text: &str) -> Outcome<Value> {
    serde_json::from_str(text).map_err(|error| format!("{error} in {text}"))
}

fn expect(receiver: &mut Lsl, format: Format, stamp: f64, values: &Values) -> Outcome {
    let (got_stamp, got) = receiver.sample()?;
    let read = read(format, &got).ok_or_else(|| format!("unreadable values: {got:?}"))?;
    same("a printed sample", &[stamp], values, &[got_stamp], &read)
}

/// The last of some int32.
fn last(values: &Values) -> i32 {
    match values {
        Values::Numbers(bytes) => bytes
            .last_chunk()
            .map_or(0, |last| i32::from_le_bytes(*last)),
        Values::Texts(_) => 0,
    }
}

/// Stamps within a chunk are added up from the rate.
const STAMP_ROUNDING_SECS: f64 = 0.000_001;
