//! What a wire-tapper gets. A stream with marks in all that it says is sent while everything on the wire
//! is recorded; then the marks are searched. The same run without keys must find them, or the search
//! proves nothing.

use lsl_core::random_uid;

use crate::capture::Traffic;
use crate::cell::{Announcement, Cell, InletEnd, Outcome, OutletEnd, Stamps, Topic};
use crate::keys::{Device, Keys, Policy};
use crate::lab::Lab;
use crate::side::Route;
use crate::values::{Format, Values};

/// How much a wire-tapper is allowed to see.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sight {
    /// That there is a stream.
    Shape,
    /// What discovery shows.
    Discovery,
    /// Everything: no keys.
    All,
}

/// A recorded run of the ends of `route`, which is given the keys that `sight` asks for.
pub(crate) fn recorded(route: Route, sight: Sight) -> Cell {
    let keys = |device| {
        let mut keys = Keys::new(device, Policy::Required);
        keys.is_minimal = sight == Sight::Shape;
        (sight != Sight::All).then_some(keys)
    };
    let route = route.with(keys(Device::Amplifier), keys(Device::Recorder));
    let run = move |lab: &Lab, _: &str| {
        let marks = Marks::new()?;
        let capture = lab.capture()?;
        let uids = play(lab, route, &marks)?;
        let traffic = capture.finish()?;
        for uid in &uids {
            marks.search(lab, &traffic, uid, sight)?;
        }
        Ok(())
    };
    let what = match sight {
        Sight::All => "found without keys",
        Sight::Discovery | Sight::Shape => "",
    };
    let mut cell = route.cell(Topic::Secrecy, what, Box::new(run));
    if sight == Sight::All {
        cell.name = format!("secure: control: {}", cell.name);
    }
    cell
}

/// What is searched. All random and different, since other cells use the same wire, and letters and
/// digits only, which look the same in XML and are ordinary floats in either byte order.
struct Marks {
    name: String,
    source_id: String,
    /// What the inlet asks for.
    stream_type: String,
    desc: String,
    /// A sample of eight floats.
    sample: String,
    /// A sample of text.
    text: String,
}

impl Marks {
    fn new() -> Outcome<Self> {
        let mark = || match random_uid() {
            Ok(uid) => Ok(uid.replace('-', "")),
            Err(error) => Err(error.to_string()),
        };
        Ok(Self {
            name: mark()?,
            source_id: mark()?,
            stream_type: mark()?,
            desc: mark()?,
            sample: mark()?,
            text: mark()?,
        })
    }

    fn announcement(&self, format: Format) -> Announcement {
        let mut stream = Announcement::new(&self.source_id, format);
        stream.name = format!("<{}>", self.name);
        stream.stream_type.clone_from(&self.stream_type);
        stream.desc = vec![("subject".to_owned(), format!("<&> {}", self.desc))];
        stream
    }

    fn search(&self, lab: &Lab, traffic: &Traffic, uid: &str, sight: Sight) -> Outcome {
        let is_found = |text: &str| traffic.contains(text.as_bytes());
        // The recording has this outlet in it at all.
        if !is_found(uid) {
            return Err(format!("the recording does not have {uid}"));
        }
        let host = String::from_utf8_lossy(&lsl_platform::process::hostname()).into_owned();
        let host = format!("<hostname>{host}</hostname>");
        let marks = [
            ("name", Sight::Discovery, is_found(&self.name)),
            ("source id", Sight::Discovery, is_found(&self.source_id)),
            ("type", Sight::Discovery, is_found(&self.stream_type)),
            (
                "host name",
                Sight::Discovery,
                traffic.contains_together(uid.as_bytes(), host.as_bytes()),
            ),
            ("description", Sight::All, is_found(&self.desc)),
            ("sample", Sight::All, is_found(&self.sample)),
            ("text", Sight::All, is_found(&self.text)),
        ];
        for (what, needed, found) in marks {
            if found != (sight >= needed) {
                let not = if found { "" } else { "not " };
                return Err(format!("the {what} was {not}seen on the wire"));
            }
        }
        let keys = lab.keyring().secrets()?;
        if keys.iter().any(|key| traffic.contains(key)) {
            return Err("a private key was sent".to_owned());
        }
        if traffic.contains(&lab.keyring().hidden_identity()?) {
            return Err("the reader's public key was sent in clear".to_owned());
        }
        Ok(())
    }
}

/// Everything that an inlet can ask of a stream, for a stream of numbers and one of texts; the uids of
/// the outlets.
fn play(lab: &Lab, route: Route, marks: &Marks) -> Outcome<Vec<String>> {
    let mut uids = Vec::new();
    for format in [Format::Float32, Format::Text] {
        let mut stream = marks.announcement(format);
        let sample = match format {
            Format::Text => Values::Texts(vec![marks.text.clone().into_bytes()]),
            _ => Values::Numbers(marks.sample.clone().into_bytes()),
        };
        stream.channels = match &sample {
            Values::Texts(texts) => texts.len(),
            Values::Numbers(bytes) => bytes.len() / 4,
        };
        let (side, setup) = route.from;
        let mut outlet = side.mortal_outlet(lab, setup, &stream)?;
        let mut inlet = route.inlet_where(lab, &format!("type='{}'", marks.stream_type))?;
        outlet.wait_for_consumers()?;
        exchange(&mut *outlet, &mut *inlet, &sample)?;
        route.check_encryption(lab, &mut *inlet)?;
        let xml = String::from_utf8_lossy(&inlet.full_xml()?).into_owned();
        if !xml.contains(&format!("&lt;&amp;&gt; {}", marks.desc)) {
            return Err(format!("not the description:\n{xml}"));
        }
        inlet.time_correction()?;
        uids.push(between(&xml, "<uid>", "</uid>").ok_or("no uid")?);
        // Whoever lost a stream looks for it by everything that it was.
        outlet.crash();
        let mut outlet = side.mortal_outlet(lab, setup, &stream)?;
        outlet.wait_for_consumers()?;
        exchange(&mut *outlet, &mut *inlet, &sample)?;
    }
    Ok(uids)
}

fn exchange(outlet: &mut dyn OutletEnd, inlet: &mut dyn InletEnd, sample: &Values) -> Outcome {
    for round in 0..3 {
        let stamp = f64::from(round) + 0.5;
        outlet.push(sample, stamp)?;
        outlet.push_chunk(sample, &Stamps::Last(stamp + 0.25))?;
        for expected in [stamp, stamp + 0.25] {
            let (got_stamp, got) = inlet.pull()?;
            if got != *sample || got_stamp.to_bits() != expected.to_bits() {
                return Err(format!("{got:?} at {got_stamp} instead of {expected}"));
            }
        }
    }
    Ok(())
}

fn between(text: &str, before: &str, behind: &str) -> Option<String> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(behind)?.0.to_owned())
}
