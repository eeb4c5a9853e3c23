//! Python packages that know nothing of us, on our library: each check of the scripts in `python/` is a
//! cell, which passes if the script ends well.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::cell::{Cell, Outcome, Place, Topic};
use crate::keys::{Device, Keys, Policy};
use crate::lab::{Lab, Library, Need};

/// A script of `python/` and what it can be asked for.
struct Script {
    file: &'static str,
    /// Who is tried, as the report names it.
    row: &'static str,
    /// The library below the package.
    library: Library,
    /// The Python that can import the package.
    python: &'static str,
    checks: &'static [&'static str],
}

const PYLSL: &str = "LSL_INTEROP_PYLSL";
const PYLSL_PLOT: &str = "LSL_INTEROP_PYLSL_PLOT";
const MNE_LSL: &str = "LSL_INTEROP_MNE_LSL";
const WINDOWS: &str = "LSL_INTEROP_WINDOWS_PYTHON";
const WINDOWS_MNE_LSL: &str = "LSL_INTEROP_WINDOWS_MNE_LSL";

/// Every check of `pylsl_classes.py`.
const CLASSES: &[&str] = &[
    "library",
    "stream_info",
    "metadata",
    "temporaries",
    "samples",
    "chunks",
    "strings",
    "inlet_controls",
    "loss",
    "resolving",
    "continuous",
    "synchronous",
    "buffers",
    "threads",
    "lifecycle",
];

/// Every check of `mne_lsl_classes.py`.
const MNE_LSL_CLASSES: &[&str] = &["low_level", "player_and_stream", "annotations", "epochs"];

/// Pairs of pylsl's examples.
const EXAMPLES: &[&str] = &[
    "SendData",
    "SendDataAdvanced",
    "GetTimeCorrection",
    "SendStringMarkers",
    "HandleMetadata",
    "PerformanceTest",
];

const SCRIPTS: &[Script] = &[
    Script {
        file: "pylsl_classes.py",
        row: "pylsl 1.18.6 on lsl-ffi",
        library: Library::LslFfi,
        python: PYLSL,
        checks: CLASSES,
    },
    Script {
        file: "pylsl_examples.py",
        row: "pylsl's examples on lsl-ffi",
        library: Library::LslFfi,
        python: PYLSL,
        checks: EXAMPLES,
    },
    Script {
        file: "pylsl_examples.py",
        row: "pylsl's examples on lsl-ffi",
        library: Library::LslFfi,
        python: PYLSL_PLOT,
        checks: &["ReceiveAndPlot"],
    },
    Script {
        file: "mne_lsl_classes.py",
        row: "mne-lsl 1.14.0 on lsl-ffi",
        library: Library::LslFfi,
        python: MNE_LSL,
        checks: MNE_LSL_CLASSES,
    },
    Script {
        file: PROCESSES,
        row: "processes with pylsl on lsl-ffi",
        library: Library::LslFfi,
        python: PYLSL,
        checks: IDIOMS,
    },
    Script {
        file: "predicates.py",
        row: "predicates as liblsl answers them",
        library: Library::LslFfi,
        python: PYLSL,
        checks: &["every"],
    },
    Script {
        file: "extensions.py",
        row: "lslx from Python",
        library: Library::LslFfi,
        python: PYLSL,
        checks: &["event_loop", "counters", "encryption", "log"],
    },
    Script {
        file: "pylsl_classes.py",
        row: "pylsl 1.18.6 on Windows lsl-ffi",
        library: Library::LslDll,
        python: WINDOWS,
        checks: CLASSES,
    },
    Script {
        file: "pylsl_examples.py",
        row: "pylsl's examples on Windows lsl-ffi",
        library: Library::LslDll,
        python: WINDOWS,
        checks: EXAMPLES,
    },
    Script {
        file: PROCESSES,
        row: "processes with pylsl on Windows lsl-ffi",
        library: Library::LslDll,
        python: WINDOWS,
        // Nothing forks there, and no signal ends a call.
        checks: &["spawn_worker", "exit_with_streams"],
    },
    Script {
        file: "predicates.py",
        row: "predicates on Windows as liblsl answers them",
        library: Library::LslDll,
        python: WINDOWS,
        checks: &["every"],
    },
    Script {
        file: "extensions.py",
        row: "lslx from Python on Windows",
        library: Library::LslDll,
        python: WINDOWS,
        checks: &["event_loop", "counters", "encryption"],
    },
    Script {
        file: "mne_lsl_classes.py",
        row: "mne-lsl 1.14.0 on Windows lsl-ffi",
        library: Library::LslDll,
        python: WINDOWS_MNE_LSL,
        checks: MNE_LSL_CLASSES,
    },
];

/// How processes with streams begin and end; also held against liblsl itself.
const PROCESSES: &str = "pylsl_processes.py";
const IDIOMS: &[&str] = &[
    "fork_unopened",
    "fork_found",
    "fork_worker",
    "spawn_worker",
    "exit_with_streams",
    "interrupt_pull",
    "kill_pull",
];

/// The idioms on the real libraries: they are only worth keeping if they work there.
fn idioms_on_liblsl() -> impl Iterator<Item = Cell> {
    let libraries = Library::LIBLSL.iter().zip([
        "processes with pylsl on liblsl 1.18.0",
        "processes with pylsl on liblsl 1.17.7",
    ]);
    libraries.flat_map(|(&library, row)| {
        IDIOMS.iter().map(move |check| Cell {
            name: format!("{row}/{check}"),
            place: Place {
                row: row.to_owned(),
                topic: Topic::Program,
            },
            needs: vec![Need::Library(library), Need::Variable(PYLSL)],
            run: Box::new(move |lab, _| {
                let command = lab.foreign_program(library, PYLSL, PROCESSES, check)?;
                let name = format!("{PROCESSES}-{}", row.replace(' ', "-"));
                play(command, &Lab::log_file(&name, check, None))
            }),
        })
    })
}

/// Each check without keys, and as a device that sends to itself: nobody's program has to change.
pub(crate) fn cells() -> Vec<Cell> {
    let required = Keys::new(Device::Amplifier, Policy::Required);
    let each = SCRIPTS
        .iter()
        .flat_map(|script| script.checks.iter().map(move |check| (script, *check)));
    let each =
        each.flat_map(|(script, check)| [(script, check, None), (script, check, Some(required))]);
    each.map(|(script, check, keys)| {
        let how = if keys.is_some() { "secure: " } else { "" };
        let row = format!("{how}{}", script.row);
        Cell {
            name: format!("{row}/{check}"),
            place: Place {
                row,
                topic: Topic::Program,
            },
            needs: vec![Need::Library(script.library), Need::Variable(script.python)],
            run: Box::new(move |lab, _| {
                let Script {
                    library,
                    python,
                    file,
                    ..
                } = *script;
                let command = lab.program(library, python, file, check, keys)?;
                play(command, &Lab::log_file(file, check, keys))
            }),
        }
    })
    .chain(idioms_on_liblsl())
    .collect()
}

fn play(mut command: Command, log: &Path) -> Outcome {
    let said = || fs::read_to_string(log).unwrap_or_default();
    let output = File::create(log).map_err(|error| error.to_string())?;
    let errors = output.try_clone().map_err(|error| error.to_string())?;
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    match ends(command)? {
        End::Well if said().contains("panicked at") => Err(said()),
        End::Well => Ok(()),
        End::Badly => Err(said()),
        End::Never => Err(format!("still running after {LIMIT:?}\n{}", said())),
    }
}

enum End {
    Well,
    Badly,
    Never,
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a process may run is no LSL time"
)]
fn ends(mut command: Command) -> Outcome<End> {
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let begin = Instant::now();
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(End::Well),
            Some(_) => return Ok(End::Badly),
            None if begin.elapsed() > LIMIT => {
                // It may just have ended by itself.
                let _ = child.kill();
                let _ = child.wait();
                return Ok(End::Never);
            }
            None => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Far more than any check needs on a loaded machine.
const LIMIT: Duration = Duration::from_mins(2);
