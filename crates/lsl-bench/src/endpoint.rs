//! The processes of a measurement: the hidden `lsl bench endpoint`, which reads a task and orders
//! from its input and writes events. It ends with its input, so none outlives the driver.

mod inlet;
mod outlet;

use std::io::{BufRead, Write};
use std::sync::mpsc;
use std::thread;

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use lsl_dl::Lsl;

use super::backend::foreign;
use super::job::{ChildEvent, LibraryInfo, Order, Task};
use super::number::with_format;

#[derive(Debug, Args)]
pub(super) struct Endpoint {}

impl Endpoint {
    #[expect(clippy::unused_self, reason = "as every other action")]
    pub(super) fn run(&self) -> Outcome {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        let task: Task = serde_json::from_str(&line)
            .map_err(|_| Failure::Usage("`lsl bench` starts its processes by itself".into()))?;
        let orders = Orders::listen();
        let outcome = match &task {
            Task::Probe(path) => probe(path),
            Task::Outlet(job) => with_format!(job.format.as_str(), run_outlet(job, &orders)),
            Task::Inlet(job) => with_format!(job.format.as_str(), run_inlet(job, &orders)),
            Task::Hog => loop {
                std::hint::black_box(());
            },
        };
        if let Err(failure) = outcome {
            tell(&ChildEvent::Failed(failure.to_string()))?;
        }
        // Ends without returning: a foreign library may take long to end, and the driver does not
        // wait.
        lsl_platform::exit::leave(0);
    }
}

use inlet::run as run_inlet;
use outlet::run as run_outlet;

fn probe(path: &std::path::Path) -> Outcome {
    let lsl = Lsl::load(path).map_err(foreign)?;
    tell(&ChildEvent::Library(LibraryInfo {
        version: lsl.library_version(),
        info: lsl.library_info(),
        ours: lsl.can_encrypt(),
    }))
}

/// Says it to the driver.
fn tell(event: &ChildEvent) -> Outcome {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    Ok(out.flush()?)
}

/// Orders of the driver, read from standard input.
struct Orders(mpsc::Receiver<Order>);

impl Orders {
    /// Listens on a thread of its own, which ends the process with the input.
    fn listen() -> Self {
        let (to_us, orders) = mpsc::channel();
        thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                let Ok(order) = serde_json::from_str(&line) else {
                    break;
                };
                if to_us.send(order).is_err() {
                    break;
                }
            }
            lsl_platform::exit::leave(0);
        });
        Self(orders)
    }

    fn next(&self) -> Outcome<Order> {
        let gone = |_| Failure::Lost("the driver is gone".into());
        self.0.recv().map_err(gone)
    }

    /// The order that is due.
    fn expect<T>(&self, wanted: impl Fn(Order) -> Option<T>) -> Outcome<T> {
        wanted(self.next()?).ok_or_else(|| Failure::Runtime("an order out of turn".into()))
    }
}
