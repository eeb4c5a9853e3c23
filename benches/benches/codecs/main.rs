//! What a sample, a stream info, a query or a timestamp costs, without sockets:
//! `cargo bench -p lsl-benches --bench codecs`. About four minutes; with `-- --quick` half a minute.

mod sample;
mod text;
mod timestamps;

use std::time::Duration;

use criterion::Criterion;
use lsl_core::Result;

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .configure_from_args();
    sample::codecs(&mut criterion)?;
    sample::chunks(&mut criterion);
    sample::values(&mut criterion);
    text::infos(&mut criterion)?;
    text::queries(&mut criterion)?;
    text::requests(&mut criterion);
    timestamps::postprocessing(&mut criterion);
    criterion.final_summary();
    Ok(())
}
