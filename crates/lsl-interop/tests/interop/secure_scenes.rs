//! Who may speak with whom: the table of LSS/1 §4.4 with real liblsl on the other end, its exact texts,
//! and that nobody who is refused disturbs the others.

use std::thread;
use std::time::Duration;

use lsl_core::xml::Attribute;
use lsl_core::{Inlet, StreamInfo, local_clock};

use crate::capture::has;
use crate::cell::{
    Announcement, CHANNELS, Cell, InletEnd, Outcome, OutletEnd, PATIENCE, Topic, Transfer,
};
use crate::keys::{Device, Keys, Policy};
use crate::lab::{Family, Lab, Library, Protocol, Setup};
use crate::ours::{self, OurOutlet};
use crate::scenes::exchange;
use crate::side::{Route, Side};
use crate::values::{Format, counter};

/// A side that knows nothing of keys.
pub(crate) fn legacy(protocol: Protocol) -> Setup {
    Setup::new(protocol, Family::V4).within("secure")
}

/// A side with keys.
pub(crate) fn keyed(device: Device, policy: Policy) -> Setup {
    legacy(Protocol::V110).with(Keys::new(device, policy))
}

/// With a memory of its own of who encrypted before.
fn scoped(device: Device, policy: Policy, scope: &'static str) -> Setup {
    let keys = Keys {
        scope,
        ..Keys::new(device, policy)
    };
    legacy(Protocol::V110).with(keys)
}

/// liblsl asks an outlet that only speaks with those it trusts. It is told why not (R1, in a version
/// that can be told), does not hammer, and somebody who is trusted receives every sample meanwhile.
pub(crate) fn refused_legacy(library: Library, protocol: Protocol) -> Cell {
    let amplifier = keyed(Device::Amplifier, Policy::Required);
    let route = Route {
        from: (Side::Ours, amplifier),
        to: (Side::Foreign(library), legacy(protocol)),
    };
    let run = move |lab: &Lab, id: &str| {
        let recorder = keyed(Device::Recorder, Policy::Required);
        let stream = Announcement::new(id, Format::Int32);
        let mut outlet = OurOutlet::open(&lab.context(amplifier)?, &stream)?;
        let mut trusted = Side::Ours.inlet(lab, recorder, id)?;
        let predicate = format!("source_id='{id}'");
        let port = ours::resolve(&lab.context(recorder)?, &predicate)?.v4_data_port();
        let peer = lab.spawn(library, route.to.1)?;
        outlet.wait_for_consumers()?;

        for ask in [Ask::Samples, Ask::Description] {
            let capture = lab.capture()?;
            let begin = local_clock();
            let mut inlet = peer.closed_inlet(&predicate)?;
            let asking = thread::spawn(move || match ask {
                Ask::Samples => inlet.open(ASKING),
                Ask::Description => inlet.full_xml_within(ASKING).map(drop),
            });
            let mut pushed = 0_u32;
            while !asking.is_finished() {
                outlet.push(&counter(Format::Int32, CHANNELS, pushed, 1), local_clock())?;
                pushed += 1;
                thread::sleep(Duration::from_millis(5));
            }
            let answer = asking.join().map_err(|_| "panicked")?;
            let is_timeout = |error: &String| error.starts_with("timeout");
            if !answer.as_ref().is_err_and(is_timeout) {
                return Err(format!("{ask:?}: {answer:?} instead of a time-out"));
            }
            let tries = capture.finish()?.sent_to(port).len();
            let tries = f64::from(u32::try_from(tries).unwrap_or(u32::MAX));
            let most = TRIES_PER_SEC * (local_clock() - begin) + 1.0;
            if !(1.0..=most).contains(&tries) {
                return Err(format!("{ask:?}: {tries} tries, not 1 to {most:.0}"));
            }
            without_gap(&mut *trusted, pushed)?;
        }
        if protocol == Protocol::V110 && !peer.said().contains(R1) {
            return Err(format!("no '{R1}' in what it said:\n{}", peer.said()));
        }
        if outlet.refused()? == 0 {
            return Err("the outlet has not counted anybody it refused".to_owned());
        }
        route
            .with(amplifier.keys, recorder.keys)
            .check_encryption(lab, &mut *trusted)
    };
    route.cell(Topic::Policy, "refused", Box::new(run))
}

/// What an inlet can ask an outlet for.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Samples,
    Description,
}

/// The trusted reader has every sample.
fn without_gap(trusted: &mut dyn InletEnd, pushed: u32) -> Outcome {
    for number in 0..pushed {
        let (_, got) = trusted.pull()?;
        if got != counter(Format::Int32, CHANNELS, number, 1) {
            return Err(format!("{got:?} instead of sample {number} of {pushed}"));
        }
    }
    Ok(())
}

/// Our inlets refuse an outlet of liblsl before they connect with it, and it does not notice.
pub(crate) fn refuses_legacy(library: Library) -> Cell {
    let route = Route {
        from: (Side::Foreign(library), legacy(Protocol::V110)),
        to: (Side::Ours, keyed(Device::Recorder, Policy::Required)),
    };
    let run = move |lab: &Lab, id: &str| {
        let stream = Announcement::new(id, Format::Int16);
        let mut outlet = route.outlet(lab, &stream)?;
        let context = lab.context(route.to.1)?;
        let info = ours::resolve(&context, &format!("source_id='{id}'"))?;
        let capture = lab.capture()?;
        let told = refusal(lab, route.to.1, &info)?;
        let traffic = capture.finish()?;
        told.is(&format!(
            "stream \"{}\" at {}:{} does not offer encryption and security.policy is \"required\"",
            stream.name,
            info.v4_address(),
            info.v4_data_port()
        ))?;
        let sent = traffic.sent_to(info.v4_data_port());
        if !sent.is_empty() {
            return Err(format!("{} connections to it", sent.len()));
        }
        unharmed(lab, id, &mut *outlet)
    };
    route.cell(Topic::Policy, "not advertised", Box::new(run))
}

/// A forged advert only makes our inlet find out that there is no encryption; it asks for nothing in
/// plaintext.
pub(crate) fn refuses_forced(library: Library) -> Cell {
    let route = Route {
        from: (Side::Foreign(library), legacy(Protocol::V110)),
        to: (Side::Ours, keyed(Device::Recorder, Policy::Required)),
    };
    let run = move |lab: &Lab, id: &str| {
        let mut outlet = route.outlet(lab, &Announcement::new(id, Format::Int16))?;
        let context = lab.context(route.to.1)?;
        let info = ours::resolve(&context, &format!("source_id='{id}'"))?;
        // As a reply that somebody else has changed on its way.
        let mut forged = info.clone();
        let document = forged.document_mut();
        let policy = Attribute {
            name: b"policy".to_vec(),
            value: b"required".to_vec(),
        };
        let element = document
            .child(document.root(), "info")
            .and_then(|info| document.append_element(info, "lsl_secure"));
        let is_forged = element.is_some_and(|element| document.append_attribute(element, policy));
        if !is_forged || forged.security_advert().is_none() {
            return Err("it is not forged".to_owned());
        }
        let capture = lab.capture()?;
        let told = refusal(lab, route.to.1, &forged)?;
        let traffic = capture.finish()?;
        told.is(&format!(
            "{}:{} is not an lsl-secure outlet (closed during hello); refusing plaintext because \
             security.policy is \"required\"",
            info.v4_address(),
            info.v4_data_port()
        ))?;
        let sent = traffic.sent_to(info.v4_data_port());
        if sent.is_empty() {
            return Err("nobody tried".to_owned());
        }
        for bytes in sent {
            let hello = bytes.starts_with(b"LSL:secure/1\r\n");
            if !hello || has(&bytes, b"LSL:streamfeed") || has(&bytes, id.as_bytes()) {
                return Err(format!("sent: {:?}", String::from_utf8_lossy(&bytes)));
            }
        }
        unharmed(lab, id, &mut *outlet)
    };
    route.cell(Topic::Policy, "forged advert", Box::new(run))
}

/// Who was encrypted once is not believed to be without encryption now, and who never was, is read.
pub(crate) fn remembers(library: Library) -> Cell {
    let route = Route {
        from: (Side::Foreign(library), legacy(Protocol::V110)),
        to: (
            Side::Ours,
            scoped(Device::Recorder, Policy::Migrate, "remembers"),
        ),
    };
    let run = move |lab: &Lab, id: &str| {
        let stream = Announcement::new(id, Format::Int32);
        let secure = keyed(Device::Amplifier, Policy::Required);
        {
            let mut outlet = Side::Ours.outlet(lab, secure, &stream)?;
            let mut inlet = route.inlet(lab, id)?;
            outlet.wait_for_consumers()?;
            route
                .with(secure.keys, route.to.1.keys)
                .check_encryption(lab, &mut *inlet)?;
        }
        let _impostor = route.outlet(lab, &stream)?;
        // The first one may still be announced for a moment.
        let predicate = format!("source_id='{id}' and not(lsl_secure)");
        let info = ours::resolve(&lab.context(route.to.1)?, &predicate)?;
        refusal(lab, route.to.1, &info)?.is(&format!(
            "stream \"{}\" was encrypted before ({}) but offers only plaintext now: possible \
             downgrade; refused",
            stream.name,
            lab.keyring().fingerprint(Device::Amplifier)?
        ))
    };
    route.cell(Topic::Policy, "encrypted before", Box::new(run))
}

/// A program without keys is told what it is that it meets.
pub(crate) fn keyless() -> Cell {
    let route = Route {
        from: (Side::Ours, keyed(Device::Amplifier, Policy::Required)),
        to: (Side::Ours, legacy(Protocol::V110)),
    };
    let run = move |lab: &Lab, id: &str| {
        let stream = Announcement::new(id, Format::Int8);
        let _outlet = route.outlet(lab, &stream)?;
        let info = ours::resolve(&lab.context(route.to.1)?, &format!("source_id='{id}'"))?;
        let told = refusal(lab, route.to.1, &info)?;
        let name = &stream.name;
        told.has(&format!(
            "stream \"{name}\" is encrypted and this program has no key; searched "
        ))?;
        told.has("; run: lsl key init")
    };
    route.cell(Topic::Policy, "no key", Box::new(run))
}

/// Somebody whom the outlet does not know learns who has to be told what, and gets nothing.
pub(crate) fn stranger() -> Cell {
    let route = Route {
        from: (Side::Ours, keyed(Device::Amplifier, Policy::Required)),
        to: (Side::Ours, keyed(Device::Stranger, Policy::Required)),
    };
    let run = move |lab: &Lab, id: &str| {
        let _outlet = route.outlet(lab, &Announcement::new(id, Format::Int8))?;
        let info = ours::resolve(&lab.context(route.to.1)?, &format!("source_id='{id}'"))?;
        let told = refusal(lab, route.to.1, &info)?;
        let fingerprint = lab.keyring().fingerprint(Device::Amplifier)?;
        told.has(&format!(
            "\"amplifier\" ({fingerprint}) does not trust this device; there run: lsl trust add \
             stranger lsl-ed25519:"
        ))
    };
    route.cell(Topic::Policy, "stranger", Box::new(run))
}

/// A device that may only send is not allowed to receive.
pub(crate) fn wrong_role() -> Cell {
    let route = Route {
        from: (Side::Ours, keyed(Device::Recorder, Policy::Required)),
        to: (Side::Ours, keyed(Device::Amplifier, Policy::Required)),
    };
    let run = move |lab: &Lab, id: &str| {
        let _outlet = route.outlet(lab, &Announcement::new(id, Format::Int8))?;
        let info = ours::resolve(&lab.context(route.to.1)?, &format!("source_id='{id}'"))?;
        refusal(lab, route.to.1, &info)?.has("role")
    };
    route.cell(Topic::Policy, "wrong role", Box::new(run))
}

/// The combinations that go in plaintext or encrypted, by the policies of both ends.
pub(crate) fn combinations() -> Vec<Cell> {
    let liblsl = Library::LIBLSL.map(Side::Foreign);
    let amplifier = |policy| (Side::Ours, keyed(Device::Amplifier, policy));
    let recorder = |policy, scope| (Side::Ours, scoped(Device::Recorder, policy, scope));
    let mut cells = Vec::new();
    let mut add = |from, to| {
        let route = Route { from, to };
        for how in Transfer::ALL {
            cells.push(exchange(route, Format::Double64, how));
        }
    };
    for library in liblsl {
        let there = (library, legacy(Protocol::V110));
        for policy in [Policy::Off, Policy::Migrate] {
            add(amplifier(policy), there);
            add(there, recorder(policy, "combinations"));
        }
        let old = (library, legacy(Protocol::V100));
        add(amplifier(Policy::Migrate), old);
    }
    for policies in [
        [Policy::Migrate, Policy::Migrate],
        [Policy::Migrate, Policy::Required],
        [Policy::Required, Policy::Migrate],
        [Policy::Off, Policy::Migrate],
        [Policy::Migrate, Policy::Off],
        [Policy::Off, Policy::Off],
    ] {
        let [from, to] = policies;
        add(amplifier(from), recorder(to, "combinations"));
    }
    cells
}

/// What an inlet says of why it is not connected.
#[derive(Debug)]
struct Refusal(String);

impl Refusal {
    fn is(&self, text: &str) -> Outcome {
        if self.0 == text {
            Ok(())
        } else {
            Err(format!("it said '{}' instead of '{text}'", self.0))
        }
    }

    fn has(&self, text: &str) -> Outcome {
        if self.0.contains(text) {
            Ok(())
        } else {
            Err(format!("no '{text}' in '{}'", self.0))
        }
    }
}

/// Tries to connect with what cannot be connected with; the call that fails must say why. Without
/// recovery, which would look for another outlet.
fn refusal(lab: &Lab, setup: Setup, info: &StreamInfo) -> Outcome<Refusal> {
    let inlet = Inlet::builder(info)
        .context(&lab.context(setup)?)
        .recover(false)
        .create()
        .map_err(|error| error.to_string())?;
    let Err(error) = inlet.blocking().open(ASKING) else {
        return Err(format!("it connected: {:?}", inlet.encryption()));
    };
    let reason = inlet.last_security_error().ok_or("no reason is known")?;
    if !error.to_string().contains(&reason) {
        return Err(format!("the call said '{error}', not '{reason}'"));
    }
    Ok(Refusal(reason))
}

/// The outlet still serves those it did before.
fn unharmed(lab: &Lab, id: &str, outlet: &mut dyn OutletEnd) -> Outcome {
    let reader = Side::Foreign(Library::V1_18_0);
    let mut inlet = reader.inlet(lab, legacy(Protocol::V110), id)?;
    outlet.wait_for_consumers()?;
    let sample = counter(Format::Int16, CHANNELS, 7, 1);
    outlet.push(&sample, 7.5)?;
    let (stamp, got) = inlet.pull()?;
    if got == sample && stamp.to_bits() == 7.5_f64.to_bits() {
        Ok(())
    } else {
        Err(format!("{got:?} at {stamp}"))
    }
}

/// What liblsl shows of R1.
const R1: &str = "The other party sent an error: LSL/110 403 Encryption required: this outlet only \
                  accepts lsl-secure sessions";

/// How often somebody who is refused may come back.
const TRIES_PER_SEC: f64 = 2.0;

/// For how long somebody tries who cannot succeed.
const ASKING: Duration = Duration::from_secs(5);

const _: () = assert!(ASKING.as_secs() < PATIENCE.as_secs());
