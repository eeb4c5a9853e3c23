//! Every cell there is: which scenes between whom, in which variants.

use crate::cell::{Cell, Transfer};
use crate::command_scenes::{self, Keyed};
use crate::enrolment;
use crate::keys::{Device, Keys, Policy};
use crate::lab::{Family, Library, Protocol};
use crate::programs;
use crate::scenes::{
    clock, clocks, crossing, crowd, exchange, exchanges, metadata, recovery, synchronous,
};
use crate::secrecy::{Sight, recorded};
use crate::secure_scenes;
use crate::side::{Route, Side};
use crate::values::Format;

use Protocol::{V100, V110};

const NEWEST: Side = Side::Foreign(Library::V1_18_0);
const OLDER: Side = Side::Foreign(Library::V1_17_7);
const PYLSL: Side = Side::Foreign(Library::Pylsl);
const PYLSL_ON_OURS: Side = Side::Foreign(Library::PylslOnOurs);
const C_ABI: Side = Side::Foreign(Library::LslFfi);
const WINDOWS: Side = Side::Foreign(Library::Windows);
const C_ABI_OF_WINDOWS: Side = Side::Foreign(Library::LslDll);
const PYLSL_ON_WINDOWS: Side = Side::Foreign(Library::PylslOnDll);

/// liblsl against liblsl comes first: if these fail, the stage is broken and no other cell means
/// anything.
pub(crate) fn cells() -> Vec<Cell> {
    let mut cells = stage();
    for library in Library::LIBLSL {
        for family in Family::SINGLE {
            cells.extend(against(Side::Foreign(library), family));
        }
    }
    for library in Library::LIBLSL {
        cells.extend(dual_stack(Side::Foreign(library)));
    }
    cells.extend(against_pylsl());
    cells.extend(command());
    cells.extend(c_abi());
    cells.extend(programs::cells());
    cells.extend(secure());
    cells.extend(windows());
    cells
}

fn stage() -> Vec<Cell> {
    let mut cells = Vec::new();
    for family in Family::SINGLE {
        for protocol in Protocol::ALL {
            let route = Route::speaking(NEWEST, protocol, OLDER, protocol, family);
            if family == Family::V4 {
                cells.extend(exchanges(route));
            } else {
                // IPv6 is about finding each other; one format shows that.
                cells.extend(Transfer::ALL.map(|how| exchange(route, Format::Float32, how)));
            }
        }
        let route = Route::new(NEWEST, OLDER, family);
        cells.extend([metadata(route), clock(route), recovery(route)]);
    }
    cells.push(crossing(NEWEST, OLDER, Family::V4));
    cells.push(crossing(NEWEST, OLDER, Family::V6));
    cells
}

/// The promise of the project: ours against a release, both ways, everything that can differ.
fn against(theirs: Side, family: Family) -> Vec<Cell> {
    let mut cells = Vec::new();
    for protocol in Protocol::ALL {
        cells.extend(exchanges(Route::speaking(
            Side::Ours,
            V110,
            theirs,
            protocol,
            family,
        )));
        cells.extend(exchanges(Route::speaking(
            theirs,
            protocol,
            Side::Ours,
            V110,
            family,
        )));
    }
    // Ours held to 1.00: the negotiation seen from the other end.
    for route in [
        Route::speaking(Side::Ours, V100, theirs, V110, family),
        Route::speaking(theirs, V110, Side::Ours, V100, family),
    ] {
        for format in [Format::Double64, Format::Text] {
            cells.push(exchange(route, format, Transfer::Sample));
        }
    }
    for route in both_ways(theirs, family) {
        cells.extend([metadata(route), clock(route), recovery(route)]);
    }
    // liblsl's own inlets never notice the end of a 1.00 feed; ours must.
    cells.push(recovery(Route::speaking(
        theirs,
        V100,
        Side::Ours,
        V110,
        family,
    )));
    cells.extend(synchronous(Route::new(Side::Ours, theirs, family)));
    if theirs == NEWEST {
        cells.extend(synchronous(Route::new(theirs, Side::Ours, family)));
    }
    cells
}

/// Both families at once, as everybody is set up who configures nothing.
fn dual_stack(theirs: Side) -> Vec<Cell> {
    let mut cells = Vec::new();
    for route in both_ways(theirs, Family::Both) {
        cells.push(exchange(route, Format::Float32, Transfer::Sample));
        cells.extend([metadata(route), clock(route), recovery(route)]);
    }
    for first in Family::SINGLE {
        cells.push(crossing(Side::Ours, theirs, first));
        cells.push(crossing(theirs, Side::Ours, first));
    }
    cells.push(crowd(Side::Ours, theirs));
    cells.push(crowd(theirs, Side::Ours));
    cells
}

/// The Python classes, and ours with ourselves.
fn against_pylsl() -> Vec<Cell> {
    let mut cells = Vec::new();
    for route in both_ways(PYLSL, Family::V4) {
        cells.extend(exchanges(route));
        cells.extend([metadata(route), clock(route), recovery(route)]);
    }
    let route = Route::new(Side::Ours, Side::Ours, Family::Both);
    cells.extend(exchanges(route));
    cells.extend(synchronous(route));
    cells.extend([metadata(route), clock(route), recovery(route)]);
    cells.push(crowd(Side::Ours, Side::Ours));
    cells
}

/// Three libraries with one ABI, every pair in both roles, through the same C calls.
fn c_abi() -> Vec<Cell> {
    let libraries = [C_ABI, NEWEST, OLDER];
    let mut cells = Vec::new();
    for from in libraries {
        for to in libraries {
            // The stage has this pair already.
            if (from, to) == (NEWEST, OLDER) {
                continue;
            }
            let route = Route::new(from, to, Family::V4);
            cells.extend(exchanges(route));
            cells.extend([metadata(route), clock(route), recovery(route)]);
            if from != OLDER {
                cells.extend(synchronous(route));
            }
            if from != C_ABI && to != C_ABI {
                continue;
            }
            let old = Route::speaking(from, V100, to, V100, Family::V4);
            cells.extend(exchanges(old));
            let v6 = Route::new(from, to, Family::V6);
            cells.extend(Transfer::ALL.map(|how| exchange(v6, Format::Float32, how)));
            cells.push(recovery(v6));
        }
    }
    cells
}

/// Ours with ourselves, encrypted: all that works without keys, what may be seen of it, and who is
/// refused.
fn secure() -> Vec<Cell> {
    let amplifier = Some(Keys::new(Device::Amplifier, Policy::Required));
    let recorder = Some(Keys::new(Device::Recorder, Policy::Required));
    let encrypted = |from, to, family| Route::new(from, to, family).with(amplifier, recorder);
    let mut cells = Vec::new();
    for (from, to) in [
        (PYLSL_ON_OURS, PYLSL_ON_OURS),
        (C_ABI, C_ABI),
        (Side::Ours, PYLSL_ON_OURS),
        (PYLSL_ON_OURS, Side::Ours),
    ] {
        let v4 = encrypted(from, to, Family::V4);
        cells.extend(exchanges(v4));
        cells.extend([metadata(v4), clock(v4), recovery(v4)]);
        let v6 = encrypted(from, to, Family::V6);
        cells.extend(Transfer::ALL.map(|how| exchange(v6, Format::Float32, how)));
        cells.push(recovery(v6));
        let both = encrypted(from, to, Family::Both);
        cells.extend([metadata(both), clock(both)]);
        cells.extend(synchronous(both));
    }
    let minimal = |keys: Option<Keys>| {
        keys.map(|keys| Keys {
            is_minimal: true,
            ..keys
        })
    };
    let hidden = Route::new(PYLSL_ON_OURS, PYLSL_ON_OURS, Family::V4)
        .with(minimal(amplifier), minimal(recorder));
    cells.extend(Transfer::ALL.map(|how| exchange(hidden, Format::Text, how)));
    cells.extend([metadata(hidden), clock(hidden), recovery(hidden)]);

    for family in Family::SINGLE {
        let route = Route::new(PYLSL_ON_OURS, PYLSL_ON_OURS, family);
        for sight in [Sight::All, Sight::Discovery, Sight::Shape] {
            cells.push(recorded(route, sight));
        }
    }
    // Without keys nothing is different from before: real liblsl reads it.
    cells.push(recorded(
        Route::new(PYLSL_ON_OURS, NEWEST, Family::V4),
        Sight::All,
    ));

    for library in Library::LIBLSL {
        for protocol in Protocol::ALL {
            cells.push(secure_scenes::refused_legacy(library, protocol));
        }
        cells.push(secure_scenes::refuses_legacy(library));
        cells.push(secure_scenes::refuses_forced(library));
        cells.push(secure_scenes::remembers(library));
    }
    cells.extend([
        secure_scenes::keyless(),
        secure_scenes::stranger(),
        secure_scenes::wrong_role(),
    ]);
    cells.extend(secure_scenes::combinations());
    for other in [PYLSL_ON_OURS, Side::Ours] {
        for format in Format::ALL {
            cells.push(command_scenes::generate(
                other,
                Family::V4,
                format,
                Keyed::Yes,
            ));
            cells.push(command_scenes::receive(
                other,
                Family::V4,
                format,
                Keyed::Yes,
            ));
        }
    }
    cells.push(enrolment::enrolment());
    cells
}

/// Libraries for Windows in both roles. The first pair proves the stage; Wine has no IPv6 groups.
fn windows() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (one, other) in [
        (WINDOWS, NEWEST),
        (C_ABI_OF_WINDOWS, NEWEST),
        (C_ABI_OF_WINDOWS, Side::Ours),
        (C_ABI_OF_WINDOWS, WINDOWS),
    ] {
        for (from, to) in [(one, other), (other, one)] {
            for protocol in Protocol::ALL {
                let route = Route::speaking(from, protocol, to, protocol, Family::V4);
                cells.extend(exchanges(route));
            }
            let route = Route::new(from, to, Family::V4);
            cells.extend([metadata(route), recovery(route)]);
            if other == WINDOWS {
                cells.push(clock(route));
            }
        }
        if other != WINDOWS {
            cells.push(clocks(Route::new(one, other, Family::V4)));
        }
    }
    let amplifier = Some(Keys::new(Device::Amplifier, Policy::Required));
    let recorder = Some(Keys::new(Device::Recorder, Policy::Required));
    for (from, to) in [
        (PYLSL_ON_WINDOWS, Side::Ours),
        (Side::Ours, PYLSL_ON_WINDOWS),
    ] {
        let route = Route::new(from, to, Family::V4).with(amplifier, recorder);
        // pylsl itself refuses the last on Windows.
        for format in Format::ALL.into_iter().filter(|it| *it != Format::Int64) {
            cells.extend(Transfer::ALL.map(|how| exchange(route, format, how)));
        }
        cells.extend([metadata(route), recovery(route)]);
    }
    cells
}

/// Our `lsl` and everybody else.
fn command() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (other, family) in [
        (PYLSL, Family::V4),
        (PYLSL, Family::V6),
        (OLDER, Family::V4),
        (Side::Ours, Family::Both),
    ] {
        for format in Format::ALL {
            cells.push(command_scenes::generate(other, family, format, Keyed::No));
            cells.push(command_scenes::receive(other, family, format, Keyed::No));
        }
    }
    for other in [PYLSL, OLDER, Side::Ours] {
        cells.push(command_scenes::info(other));
        cells.push(command_scenes::time(other));
        cells.push(command_scenes::list(other));
        cells.push(command_scenes::generator_restart(other));
        cells.push(command_scenes::receiver_survives(other));
        cells.push(command_scenes::crowd(other));
    }
    cells
}

fn both_ways(theirs: Side, family: Family) -> [Route; 2] {
    [
        Route::new(Side::Ours, theirs, family),
        Route::new(theirs, Side::Ours, family),
    ]
}
