//! liblsl against liblsl: if these fail, the stage is broken and no other cell means anything.

use crate::cell::{Announcement, Cell, InletEnd as _, OutletEnd as _, Transfer, transfer};
use crate::lab::{Family, Library, Protocol, Setup};
use crate::values::{Format, Values};

const OUTLET: Library = Library::V1_18_0;
const INLET: Library = Library::V1_17_7;

pub(crate) fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for protocol in Protocol::ALL {
        for format in Format::ALL {
            for how in Transfer::ALL {
                cells.push(exchange(
                    Setup {
                        protocol,
                        family: Family::V4,
                    },
                    format,
                    how,
                ));
            }
        }
        // One format is enough to see that IPv6 multicast reaches both releases.
        cells.push(exchange(
            Setup {
                protocol,
                family: Family::V6,
            },
            Format::Float32,
            Transfer::Sample,
        ));
    }
    for family in Family::ALL {
        cells.push(metadata_and_clock(Setup {
            protocol: Protocol::V110,
            family,
        }));
    }
    cells
}

fn name(setup: Setup, rest: &str) -> String {
    let Setup { protocol, family } = setup;
    let (outlet, inlet) = (OUTLET.name(), INLET.name());
    format!(
        "liblsl {outlet} to liblsl {inlet}/{}/{}/{rest}",
        protocol.number(),
        family.name()
    )
}

fn exchange(setup: Setup, format: Format, how: Transfer) -> Cell {
    Cell {
        name: name(setup, &format!("{}/{}", format.name(), how.name())),
        needs: vec![OUTLET, INLET],
        run: Box::new(move |lab, id| {
            let mut outlet = lab
                .peer(OUTLET, setup)?
                .outlet(&Announcement::new(id, format))?;
            let mut inlet = lab.peer(INLET, setup)?.inlet(id)?;
            transfer(&mut outlet, &mut inlet, format, setup.protocol, how)
        }),
    }
}

fn metadata_and_clock(setup: Setup) -> Cell {
    Cell {
        name: name(setup, "metadata and clock"),
        needs: vec![OUTLET, INLET],
        run: Box::new(move |lab, id| {
            let mut stream = Announcement::new(id, Format::Int8);
            stream
                .desc
                .push(("maker".to_owned(), "Müller & Söhne <β>".to_owned()));
            let mut outlet = lab.peer(OUTLET, setup)?.outlet(&stream)?;
            let mut inlet = lab.peer(INLET, setup)?.inlet(id)?;
            let xml = inlet.full_xml()?;
            let wanted = "<maker>Müller &amp; Söhne &lt;β&gt;</maker>";
            if !String::from_utf8_lossy(&xml).contains(wanted) {
                return Err(format!("no {wanted} in the full information"));
            }
            let (offset, uncertainty) = inlet.time_correction()?;
            if offset.abs() > 0.01 || !(0.0..0.1).contains(&uncertainty) {
                return Err(format!(
                    "offset {offset} s ± {uncertainty} s on one machine"
                ));
            }
            // A sample after all that still arrives.
            outlet.push(&Values::Numbers(vec![1, 2, 3]), 1.0)?;
            let (_, got) = inlet.pull()?;
            if got == Values::Numbers(vec![1, 2, 3]) {
                Ok(())
            } else {
                Err(format!("{got:?}"))
            }
        }),
    }
}
