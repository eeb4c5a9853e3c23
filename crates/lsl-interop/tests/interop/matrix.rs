//! The cells: what is exchanged, between whom, in which variants.
//!
//! Every cell is written once for two `Side`s. liblsl against liblsl comes first: if these fail, the
//! stage is broken and no other cell means anything.

use crate::cell::{
    Announcement, Cell, InletEnd, Outcome, OutletEnd, Transfer, stamped_sample, transfer,
};
use crate::lab::{Family, Lab, Library, Protocol, Setup};
use crate::values::Format;

/// Who plays an end of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// A release of liblsl in a peer process.
    Liblsl(Library),
}

impl Side {
    fn name(self) -> String {
        match self {
            Self::Liblsl(library) => format!("liblsl {}", library.name()),
        }
    }

    fn needs(self) -> Vec<Library> {
        match self {
            Self::Liblsl(library) => vec![library],
        }
    }

    fn outlet(self, lab: &Lab, setup: Setup, stream: &Announcement) -> Outcome<Box<dyn OutletEnd>> {
        match self {
            Self::Liblsl(library) => Ok(Box::new(lab.peer(library, setup)?.outlet(stream)?)),
        }
    }

    /// An outlet that may be crashed without taking other cells along.
    fn mortal_outlet(
        self,
        lab: &Lab,
        setup: Setup,
        stream: &Announcement,
    ) -> Outcome<Box<dyn OutletEnd>> {
        match self {
            Self::Liblsl(library) => Ok(Box::new(lab.spawn(library, setup)?.outlet(stream)?)),
        }
    }

    /// An open inlet on the only stream with this source id.
    fn inlet(self, lab: &Lab, setup: Setup, source_id: &str) -> Outcome<Box<dyn InletEnd>> {
        match self {
            Self::Liblsl(library) => Ok(Box::new(lab.peer(library, setup)?.inlet(source_id)?)),
        }
    }
}

/// From one side to the other. Each side has its own setup: 1.10 and 1.00 must meet, too.
#[derive(Clone, Copy)]
struct Route {
    from: (Side, Setup),
    to: (Side, Setup),
}

impl Route {
    /// The protocol that the two ends agree on.
    fn spoken(self) -> Protocol {
        let setups = [self.from.1, self.to.1];
        let is_old = setups.iter().any(|setup| setup.protocol == Protocol::V100);
        if is_old {
            Protocol::V100
        } else {
            Protocol::V110
        }
    }

    fn cell(self, what: &str, run: impl FnOnce(&Lab, &str) -> Outcome + Send + 'static) -> Cell {
        let ((from, from_setup), (to, to_setup)) = (self.from, self.to);
        Cell {
            name: format!(
                "{} {} to {} {}/{}/{what}",
                from.name(),
                from_setup.protocol.number(),
                to.name(),
                to_setup.protocol.number(),
                from_setup.family.name(),
            ),
            needs: [from.needs(), to.needs()].concat(),
            run: Box::new(run),
        }
    }

    fn outlet(self, lab: &Lab, stream: &Announcement) -> Outcome<Box<dyn OutletEnd>> {
        self.from.0.outlet(lab, self.from.1, stream)
    }

    fn inlet(self, lab: &Lab, source_id: &str) -> Outcome<Box<dyn InletEnd>> {
        self.to.0.inlet(lab, self.to.1, source_id)
    }
}

/// Every cell there is.
pub(crate) fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    let newest = Side::Liblsl(Library::V1_18_0);
    let older = Side::Liblsl(Library::V1_17_7);
    for family in Family::ALL {
        for protocol in Protocol::ALL {
            let setup = Setup { protocol, family };
            let route = Route {
                from: (newest, setup),
                to: (older, setup),
            };
            for format in Format::ALL {
                // IPv6 is about finding each other; one format shows that.
                if family == Family::V4 || format == Format::Float32 {
                    cells.extend(Transfer::ALL.map(|how| exchange(route, format, how)));
                }
            }
        }
        let setup = Setup {
            protocol: Protocol::V110,
            family,
        };
        let route = Route {
            from: (newest, setup),
            to: (older, setup),
        };
        cells.push(metadata(route));
        cells.push(clock(route));
        cells.push(recovery(route));
    }
    cells
}

/// Values of one format, bit by bit.
fn exchange(route: Route, format: Format, how: Transfer) -> Cell {
    route.cell(
        &format!("{}/{}", format.name(), how.name()),
        move |lab, id| {
            let mut outlet = route.outlet(lab, &Announcement::new(id, format))?;
            let mut inlet = route.inlet(lab, id)?;
            transfer(&mut *outlet, &mut *inlet, format, route.spoken(), how)
        },
    )
}

/// A description with characters that need escaping or more than one byte.
fn metadata(route: Route) -> Cell {
    route.cell("metadata", move |lab, id| {
        let mut stream = Announcement::new(id, Format::Int8);
        stream.name = format!("Ströme & <{id}>");
        stream.desc = vec![
            ("maker".to_owned(), "Müller & Söhne <β> \"q\"".to_owned()),
            ("face".to_owned(), "\u{1f642} \u{4f60}\u{597d}".to_owned()),
        ];
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
    })
}

/// Both ends run on one clock, so the correction must be nearly nothing.
fn clock(route: Route) -> Cell {
    route.cell("clock", move |lab, id| {
        let _outlet = route.outlet(lab, &Announcement::new(id, Format::Float32))?;
        let (offset, uncertainty) = route.inlet(lab, id)?.time_correction()?;
        if offset.abs() < 0.01 && (0.0..0.1).contains(&uncertainty) {
            Ok(())
        } else {
            Err(format!(
                "offset {offset} s ± {uncertainty} s on one machine"
            ))
        }
    })
}

/// The outlet's process dies, a new one with the same source id takes over, the inlet goes on.
fn recovery(route: Route) -> Cell {
    route.cell("recovery", move |lab, id| {
        let stream = Announcement::new(id, Format::Int32);
        let (side, setup) = route.from;
        let mut first = side.mortal_outlet(lab, setup, &stream)?;
        let mut inlet = route.inlet(lab, id)?;
        stamped_sample(&mut *first, &mut *inlet, stream.format, 100.5)?;
        first.crash();
        let mut second = route.outlet(lab, &stream)?;
        stamped_sample(&mut *second, &mut *inlet, stream.format, 200.5)
    })
}
