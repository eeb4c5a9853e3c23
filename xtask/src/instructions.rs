//! What the hot paths cost in instructions, counted by valgrind and held against a baseline in the
//! repository: `cargo xtask instructions`, a step of the gate.
//!
//! Instructions, because times mean nothing on shared machines while counts hardly change from run to
//! run. A count belongs to a compiler, so there is one baseline per version of it
//! (`benches/instructions`); without one nothing is compared, and the task says so.
//!
//! Why not gungraun, which does the same for functions: the counts that matter most are those of a C
//! program's push and pull through sockets, with another process at the other end and the library's own
//! thread at work, which it cannot take apart. Its baselines lie in `target/`, not in the repository, so
//! that the comparison would be ours anyway; and its runner must be installed (about 100 s) in exactly
//! the version of its crate. What is left is to run callgrind twice and subtract: here.
//!
//! Every count is the difference of two runs that differ only in how much they do, so that start and
//! set-up cancel out. `hot` (in `benches/src/bin`) does one path without sockets; `stream.c` (in
//! `benches/counts`) is one side of a stream over loopback, its own loop and its rest between two
//! pushes included. Valgrind presents a CPU of its own to `ring` and glibc, which differs from the real
//! one, but not from run to run.

mod baseline;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use xshell::{Shell, cmd};

use crate::{Result, interop, missing};
use baseline::{Baseline, Count};

/// Binaries, and a home without configuration.
const FOLDER: &str = "target/counts";

/// How often a hot path runs, in the first and in the second run.
const TIMES: [u64; 2] = [20, 120];

/// Pushes of a stream in the first and in the second run.
const PUSHES: [u64; 2] = [100, 900];

/// Both runs of a stream are made at least so often. Each keeps its least count: a query answered or a
/// thread woken more than once only adds, to the first run too, where it would make a sample look cheap.
const MIN_ATTEMPTS: usize = 2;

/// How often they are made at most, while a stream looks worse than it may.
const MAX_ATTEMPTS: usize = 6;

/// Count everything; compare with the baseline, or make it from what was counted.
pub(crate) fn run(sh: &Shell, update: bool) -> Result {
    for tool in ["valgrind", "cc"] {
        if cmd!(sh, "{tool} --version")
            .quiet()
            .ignore_stderr()
            .read()
            .is_err()
        {
            return missing(tool, &format!("apt-get install {tool}"));
        }
    }
    let programs = Programs::build(sh)?;
    let network = match interop::enter(sh) {
        Ok(words) => words,
        // Elsewhere the streams would meet those of the house.
        Err(error) => return missing("a private network", &error.to_string()),
    };
    let baseline = Baseline::read(sh)?;
    let mut counts = programs.hot_paths()?;
    subtract(&mut counts, "audit/none", &["audit/off", "audit/on"]);
    let sides = [("outlet", 1), ("inlet", 1), ("outlet", 64), ("inlet", 64)];
    let retaining = sides.map(|(role, batch)| (role, batch, true));
    let sides = sides.map(|(role, batch)| (role, batch, false));
    for (role, batch, retains) in sides.into_iter().chain(retaining) {
        let armed = if retains { "/armed" } else { "" };
        let case = format!("stream/{role}/{batch}{armed}");
        let mut least = [u64::MAX; 2];
        let mut instructions = 0;
        for attempt in 1..=MAX_ATTEMPTS {
            for (least, pushes) in least.iter_mut().zip(PUSHES) {
                let stream = programs.stream(&network, (role, batch, retains), pushes)?;
                *least = stream.min(*least);
            }
            let [few, many] = PUSHES;
            instructions = per_unit(least, (many - few) * batch);
            let is_enough = !update && !baseline.is_exceeded_by(&case, instructions);
            if is_enough && attempt >= MIN_ATTEMPTS {
                break;
            }
        }
        counts.push(Count { case, instructions });
    }
    if update {
        baseline.replace(sh, &counts)
    } else {
        baseline.compare(&counts)
    }
}

/// Builds the library as it is counted, optimised as for users.
pub(crate) fn library(sh: &Shell) -> Result<PathBuf> {
    cmd!(
        sh,
        "cargo build --locked --profile counts -p lsl-ffi -p lsl-benches --lib --bin hot"
    )
    .run()?;
    Ok(sh.current_dir().join(FOLDER).join("liblsl.so"))
}

/// What is run under valgrind.
struct Programs {
    root: PathBuf,
    hot: PathBuf,
    stream: PathBuf,
    library: PathBuf,
}

impl Programs {
    fn build(sh: &Shell) -> Result<Self> {
        let library = library(sh)?;
        let root = sh.current_dir();
        let folder = root.join(FOLDER);
        // Without a home of its own, the library would find the keys and settings of whoever runs this.
        sh.create_dir(folder.join("home"))?;
        for retains in [false, true] {
            sh.write_file(folder.join(config(retains)), CONFIGS[usize::from(retains)])?;
        }
        let stream = folder.join("stream");
        let strict = ["-std=c11", "-Wall", "-Wextra", "-Werror"];
        cmd!(
            sh,
            "cc {strict...} -D_POSIX_C_SOURCE=200809L -O2 -o {stream} benches/counts/stream.c -ldl"
        )
        .run()?;
        Ok(Self {
            hot: folder.join("hot"),
            library,
            stream,
            root,
        })
    }

    /// Every case of `hot`, as many at a time as there are cores.
    fn hot_paths(&self) -> Result<Vec<Count>> {
        let list = Command::new(&self.hot).arg("--list").output()?;
        let names = String::from_utf8(list.stdout)?;
        let waiting: Mutex<VecDeque<&str>> = Mutex::new(names.lines().collect());
        let counted = Mutex::new(Vec::new());
        let work = || -> Result<(), String> {
            loop {
                let next = waiting.lock().map_err(|_| "a thread died")?.pop_front();
                let Some(case) = next else { return Ok(()) };
                let count = |times: u64| {
                    let mut command = self.valgrind(&[]);
                    command.arg(&self.hot).args([case, &times.to_string()]);
                    instructions(command).map_err(|error| format!("{case}: {error}"))
                };
                let [few, many] = TIMES;
                let instructions = per_unit([count(few)?, count(many)?], many - few);
                let mut counted = counted.lock().map_err(|_| "a thread died")?;
                counted.push(Count {
                    case: case.to_owned(),
                    instructions,
                });
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| "a thread died")?)
        })?;
        let mut counts = counted.into_inner().map_err(|_| "a thread died")?;
        counts.sort_by_key(|count| names.lines().position(|name| name == count.case));
        Ok(counts)
    }

    /// Instructions of one side of a stream, from its start to its end; in an armed one the outlet retains samples.
    fn stream(
        &self,
        network: &[String],
        (role, batch, retains): (&str, u64, bool),
        pushes: u64,
    ) -> Result<u64> {
        let mut command = self.valgrind(network);
        command.env("LSLAPICFG", self.root.join(FOLDER).join(config(retains)));
        command.arg(&self.stream).arg(&self.library).arg(role);
        command.args([batch.to_string(), (pushes * batch).to_string()]);
        instructions(command).map_err(|error| format!("stream {role} {batch}: {error}").into())
    }

    /// Callgrind, to be given a program; behind `words`, if there are any.
    fn valgrind(&self, words: &[String]) -> Command {
        let callgrind = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];
        let mut all = words.iter().map(String::as_str).chain(["valgrind"]);
        let mut command = Command::new(all.next().unwrap_or("valgrind"));
        command
            .args(all)
            .args(callgrind)
            .current_dir(&self.root)
            .env("HOME", self.root.join(FOLDER).join("home"))
            .env_remove("LSLAPICFG")
            .env_remove("LSL_SECURE_CONFIG");
        command
    }
}

/// What callgrind says at its end that a program executed.
fn instructions(mut command: Command) -> Result<u64> {
    // Valgrind counts `rep movsb` once per byte, so without this a single copy of a chunk would look
    // worse than a copy of each sample.
    command.env("GLIBC_TUNABLES", NO_REP);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stdout);
        return Err(format!("{}: {printed}{said}", output.status).into());
    }
    collected(&said).ok_or_else(|| format!("no count from callgrind: {said}").into())
}

/// `==123== Collected : 4711`
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("Collected : "))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Name of the configuration of both sides of a stream.
fn config(retains: bool) -> &'static str {
    if retains { "armed.cfg" } else { "unarmed.cfg" }
}

/// Contents of both. What is retained is full before the first run in chunks ends, as after some seconds with the
/// default: steady state.
const CONFIGS: [&str; 2] = [
    "[tuning]\nRetainSeconds = 0\n",
    "[tuning]\nRetainSeconds = 30\nRetainBytes = 1048576\n",
];

/// Leaves of `cases` what they take more than `base`, of which a tenth would hide it.
fn subtract(counts: &mut [Count], base: &str, cases: &[&str]) {
    let found = counts.iter().find(|count| count.case == base);
    let base = found.map_or(0, |count| count.instructions);
    for count in counts
        .iter_mut()
        .filter(|it| cases.contains(&it.case.as_str()))
    {
        count.instructions = count.instructions.saturating_sub(base);
    }
}

/// What one of the units costs by which the second run did more, to the nearest instruction.
fn per_unit([few, many]: [u64; 2], units: u64) -> u64 {
    (many.saturating_sub(few) + units / 2) / units
}

/// Lets glibc copy and clear without instructions that repeat themselves.
const NO_REP: &str =
    "glibc.cpu.x86_rep_movsb_threshold=0x10000000:glibc.cpu.x86_rep_stosb_threshold=0x10000000";

/// Where the baselines lie.
fn folder(sh: &Shell) -> PathBuf {
    sh.current_dir().join(Path::new("benches/instructions"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_up_cancels_out() {
        assert_eq!(per_unit([1_000, 1_499], 100), 5);
        assert_eq!(per_unit([1_000, 1_000], 100), 0);
    }

    #[test]
    fn the_count_is_found_among_what_valgrind_says() {
        let text = "==7== Events    : Ir\n==7== Collected : 12458694\n==7== \n";
        assert_eq!(collected(text), Some(12_458_694));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
    }
}
