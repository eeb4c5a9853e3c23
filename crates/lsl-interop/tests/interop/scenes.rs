//! What is played between an outlet and an inlet, whoever these are.

use lsl_core::local_clock;

use crate::cell::{
    Announcement, Cell, Correction, Outcome, OutletEnd, Topic, Transfer, stamped_sample, transfer,
};
use crate::lab::{Family, Lab, Library, Protocol, Setup};
use crate::side::{Route, Side};
use crate::values::Format;

/// Values of one format, bit by bit.
pub(crate) fn exchange(route: Route, format: Format, how: Transfer) -> Cell {
    let run = move |lab: &Lab, id: &str| {
        let mut outlet = route.outlet(lab, &Announcement::new(id, format))?;
        let mut inlet = route.inlet(lab, id)?;
        transfer(&mut *outlet, &mut *inlet, format, route.spoken(), how)?;
        route.check_encryption(lab, &mut *inlet)
    };
    route.cell(how.topic(), format.name(), Box::new(run))
}

/// Every format in both transfers.
pub(crate) fn exchanges(route: Route) -> impl Iterator<Item = Cell> {
    Format::ALL
        .into_iter()
        .flat_map(move |format| Transfer::ALL.map(|how| exchange(route, format, how)))
}

/// The numeric formats from a synchronous outlet.
pub(crate) fn synchronous(route: Route) -> impl Iterator<Item = Cell> {
    let formats = Format::ALL.into_iter().filter(|f| *f != Format::Text);
    formats.map(move |format| {
        let run = move |lab: &Lab, id: &str| {
            let mut stream = Announcement::new(id, format);
            stream.synchronous = true;
            let mut outlet = route.outlet(lab, &stream)?;
            let mut inlet = route.inlet(lab, id)?;
            for how in Transfer::ALL {
                transfer(&mut *outlet, &mut *inlet, format, route.spoken(), how)?;
            }
            Ok(())
        };
        route.cell(Topic::Sync, format.name(), Box::new(run))
    })
}

/// A stream whose name and description have characters that need escaping or more than one byte.
pub(crate) fn described(id: &str) -> Announcement {
    let mut stream = Announcement::new(id, Format::Int8);
    stream.name = format!("Ströme & <{id}>");
    stream.desc = vec![
        ("maker".to_owned(), "Müller & Söhne <β> \"q\"".to_owned()),
        ("face".to_owned(), "\u{1f642} \u{4f60}\u{597d}".to_owned()),
    ];
    stream
}

/// The description arrives as it was given.
pub(crate) fn metadata(route: Route) -> Cell {
    let run = move |lab: &Lab, id: &str| {
        let stream = described(id);
        let _outlet = route.outlet(lab, &stream)?;
        let xml = route.inlet(lab, id)?.full_xml()?;
        let xml = String::from_utf8_lossy(&xml);
        for wanted in [
            format!("<name>Ströme &amp; &lt;{id}&gt;</name>").as_str(),
            "<maker>Müller &amp; Söhne &lt;β&gt; \"q\"</maker>",
            "<face>\u{1f642} \u{4f60}\u{597d}</face>",
        ] {
            if !xml.contains(wanted) {
                return Err(format!("no {wanted} in the full information:\n{xml}"));
            }
        }
        Ok(())
    };
    route.cell(Topic::Metadata, "", Box::new(run))
}

/// Both ends run on one clock, so the correction must be nearly nothing.
pub(crate) fn clock(route: Route) -> Cell {
    let run = move |lab: &Lab, id: &str| {
        let _outlet = route.outlet(lab, &Announcement::new(id, Format::Float32))?;
        nearly_nothing(CLOCK_TRIES, || route.inlet(lab, id)?.time_correction())
    };
    route.cell(Topic::Clock, "", Box::new(run))
}

/// Two clocks that count from different moments: what is added one way is taken away the other way.
pub(crate) fn clocks(route: Route) -> Cell {
    let back = Route {
        from: route.to,
        to: route.from,
    };
    let run = move |lab: &Lab, id: &str| {
        nearly_nothing(WINE_CLOCK_TRIES, || {
            let mut sum = Correction {
                offset_secs: 0.0,
                uncertainty_secs: Some(0.0),
            };
            for (route, way) in [(route, "there"), (back, "back")] {
                let id = format!("{id} {way}");
                let _outlet = route.outlet(lab, &Announcement::new(&id, Format::Float32))?;
                let found = route.inlet(lab, &id)?.time_correction()?;
                sum.offset_secs += found.offset_secs;
                let both = sum.uncertainty_secs.zip(found.uncertainty_secs);
                sum.uncertainty_secs = both.map(|(one, other)| one + other);
            }
            Ok(sum)
        })
    };
    route.cell(Topic::Clock, "there and back", Box::new(run))
}

/// Measure until the offset of a stream on this machine is within the bound.
pub(crate) fn nearly_nothing(
    tries: u32,
    mut measure: impl FnMut() -> Outcome<Correction>,
) -> Outcome {
    let mut seen = Vec::new();
    for _ in 0..tries {
        let found = measure()?;
        // True at any load: what a round trip may hide is half of it.
        if let Some(uncertainty) = found.uncertainty_secs
            && found.offset_secs.abs() > uncertainty / 2.0 + CLOCK_ROUNDING_SECS
        {
            return Err(format!("{found:?} on one machine"));
        }
        if found.offset_secs.abs() < CLOCK_LIMIT_SECS {
            return Ok(());
        }
        seen.push(found);
    }
    Err(format!("every time too far off: {seen:?}"))
}

/// The outlet dies, a new one with the same source id takes over, the inlet goes on.
pub(crate) fn recovery(route: Route) -> Cell {
    let run = move |lab: &Lab, id: &str| succession(lab, id, route, route.from.1);
    route.cell(Topic::Recovery, "", Box::new(run))
}

/// As `recovery`, but the new outlet lives in the other address family.
pub(crate) fn crossing(from: Side, to: Side, first: Family) -> Cell {
    let setup = |family| Setup {
        protocol: Protocol::V110,
        family,
        session: "crossing",
        keys: None,
    };
    let second = match first {
        Family::V4 => Family::V6,
        Family::V6 | Family::Both => Family::V4,
    };
    let route = Route {
        from: (from, setup(first)),
        to: (to, setup(Family::Both)),
    };
    let run = move |lab: &Lab, id: &str| succession(lab, id, route, setup(second));
    let what = format!("then {}", second.name());
    route.cell(Topic::Recovery, &what, Box::new(run))
}

fn succession(lab: &Lab, id: &str, route: Route, successor: Setup) -> Outcome {
    let stream = Announcement::new(id, Format::Int32);
    let (side, setup) = route.from;
    let mut first = side.mortal_outlet(lab, setup, &stream)?;
    let mut inlet = route.inlet(lab, id)?;
    stamped_sample(&mut *first, &mut *inlet, stream.format, 100.5)?;
    // Its process starts now, so that only the outlet itself is late.
    if let Side::Foreign(library) = side {
        lab.peer(library, successor)?;
    }
    first.crash();
    let mut second = side.outlet(lab, successor, &stream)?;
    let back = local_clock();
    second.wait_for_consumers()?;
    let took = local_clock() - back;
    stamped_sample(&mut *second, &mut *inlet, stream.format, 200.5)?;
    route.check_encryption(lab, &mut *inlet)?;
    within(route.to.0.recovery_limit_secs(), took)
}

/// Whether an inlet that needed `took_secs` to read an outlet that is back was fast enough.
pub(crate) fn within(limit_secs: f64, took_secs: f64) -> Outcome {
    if took_secs <= limit_secs {
        Ok(())
    } else {
        Err(format!(
            "{took_secs:.2} s after the outlet was back, not within {limit_secs} s"
        ))
    }
}

/// Forty outlets in one process and ten processes with one each, found in one resolve.
pub(crate) fn crowd(host: Side, finder: Side) -> Cell {
    let setup = Setup {
        protocol: Protocol::V110,
        family: Family::Both,
        session: "crowd",
        keys: None,
    };
    let route = Route {
        from: (host, setup),
        to: (finder, setup),
    };
    let run = move |lab: &Lab, id: &str| {
        let stream = |index| Announcement::new(&format!("{id} {index}"), Format::Float32);
        let mut outlets: Vec<Box<dyn OutletEnd>> = Vec::new();
        let mut wanted = Vec::new();
        for index in 0..CROWD_OUTLETS + CROWD_PROCESSES {
            let stream = stream(index);
            outlets.push(if index < CROWD_OUTLETS {
                host.outlet(lab, setup, &stream)?
            } else {
                let library = Library::LIBLSL[index % Library::LIBLSL.len()];
                Side::Foreign(library).mortal_outlet(lab, setup, &stream)?
            });
            wanted.push(stream.source_id);
        }
        found_at_once(lab, finder, setup, id, wanted)
    };
    let mut cell = route.cell(Topic::Crowd, "", Box::new(run));
    cell.needs.extend(
        Library::LIBLSL
            .into_iter()
            .filter_map(|library| Side::Foreign(library).needs()),
    );
    cell
}

/// One resolve finds exactly the `wanted` source ids, which all start with `prefix`.
pub(crate) fn found_at_once(
    lab: &Lab,
    finder: Side,
    setup: Setup,
    prefix: &str,
    mut wanted: Vec<String>,
) -> Outcome {
    let predicate = format!("starts-with(source_id,'{prefix} ')");
    let limit = finder.resolve_limit();
    let mut found = finder.find(lab, setup, &predicate, wanted.len(), limit)?;
    found.sort();
    wanted.sort();
    if found == wanted {
        return Ok(());
    }
    wanted.retain(|id| !found.contains(id));
    Err(format!(
        "{} found, these are missing: {wanted:?}",
        found.len()
    ))
}

/// The bound that users were promised.
const CLOCK_LIMIT_SECS: f64 = 0.000_2;

/// Time stamps travel as decimal text.
const CLOCK_ROUNDING_SECS: f64 = 0.000_001;

/// A loaded machine may delay the probes of one estimate.
pub(crate) const CLOCK_TRIES: u32 = 5;

/// Wine's server has a part in each of two estimates.
const WINE_CLOCK_TRIES: u32 = 20;

pub(crate) const CROWD_OUTLETS: usize = 40;
pub(crate) const CROWD_PROCESSES: usize = 10;
