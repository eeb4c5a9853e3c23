//! The runs whose results the pages keep: each once, on a quiet machine, and what they leave of it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::ui::notice::note;

use super::published::{Page, Part, Published};
use crate::machine::load;
use crate::report::load::read;
use crate::result::Results;
use crate::scratch::Folder;

/// Measures what is wanted and not there yet; what was measured on a busy machine is measured again on a quiet one.
pub(super) fn run(
    published: &Published,
    wanted: &[String],
    docs: &Path,
    machine: &str,
    anyway: bool,
) -> Outcome {
    let mut chosen = Vec::new();
    for (page, part) in published.parts() {
        let name = format!("{}/{}", page.name, part.name);
        if wanted.is_empty() || wanted.contains(&page.name) || wanted.contains(&name) {
            chosen.push((page, part));
        }
    }
    let is_known = |name: &&String| {
        let mut names = chosen.iter();
        names.any(|(page, part)| {
            page.name == **name || format!("{}/{}", page.name, part.name) == **name
        })
    };
    if let Some(unknown) = wanted.iter().find(|name| !is_known(name)) {
        return Err(Failure::NotFound(format!("no page or part {unknown}")));
    }
    for (page, part) in chosen {
        let busy = busy();
        match &busy {
            Some(busy) if !anyway => {
                return Err(Failure::Runtime(format!(
                    "the machine is busy ({busy}): end what runs on it, or measure with --anyway, which the page says"
                )));
            }
            _ => {}
        }
        let file = super::file_of(docs, page, &part.name, machine);
        let before = if file.exists() {
            Some(read(&file)?)
        } else {
            None
        };
        if before.is_some_and(|it| it.machine.busy.is_none() || busy.is_some()) {
            note(format_args!("lsl: {}/{} is there", page.name, part.name));
            continue;
        }
        let mut results = measure(page, part)?;
        slim(&mut results);
        results.machine.busy = busy;
        let mut text = serde_json::to_string_pretty(&results)?;
        text.push('\n');
        fs::create_dir_all(file.parent().unwrap_or(docs))?;
        fs::write(&file, text)?;
        note(format_args!("lsl: wrote {}", file.display()));
    }
    Ok(())
}

fn measure(page: &Page, part: &Part) -> Outcome<Results> {
    note(format_args!(
        "lsl: {}/{}, about {} minutes",
        page.name, part.name, part.minutes
    ));
    let own = std::env::current_exe()?;
    let program = match &part.program {
        None => own.clone(),
        Some([program, how]) => {
            let program = Path::new(program);
            if !program.exists() {
                let text = format!("{} is not there; build it: {how}", program.display());
                return Err(Failure::NotFound(text));
            }
            fs::canonicalize(program)?
        }
    };
    let library = own.with_file_name("liblsl.so");
    let folder = Folder::make(&std::env::temp_dir(), "evidence")?;
    let output = folder.path("results");
    let mut command = match &part.wire {
        None => Command::new(program),
        Some(profile) => {
            let mut command = Command::new("unshare");
            command.args(["-n", "-p", "-f", "--kill-child", "--mount-proc"]);
            command.args(["sh", "-c", WIRE, "wire.sh"]).arg(program);
            command.arg(profile).arg(folder.path("wire"));
            command
        }
    };
    let args = part.args.iter();
    command.args(args.map(|word| word.replace("{lib}", &library.display().to_string())));
    command.arg("--output").arg(&output);
    // Nothing of this user's settings and keys.
    command.env("HOME", folder.path("home"));
    command
        .env_remove("LSLAPICFG")
        .env_remove("LSL_SECURE_CONFIG");
    let status = command.status()?;
    if !status.success() {
        let text = format!("{}/{} failed: {status}", page.name, part.name);
        return Err(Failure::Runtime(text));
    }
    read(&output.join("results.json"))
}

/// Leaves what the pages show: no histograms, no name of the host, no folders of it.
pub(super) fn slim(results: &mut Results) {
    results.machine.host.clear();
    let words = results.args.iter_mut();
    let texts = words.chain(results.subjects.iter_mut().map(|it| &mut it.detail));
    for text in texts {
        *text = text.split(' ').map(cut).collect::<Vec<_>>().join(" ");
    }
    if let Some(place) = results.args.iter().position(|word| word == "--output") {
        results
            .args
            .drain(place..(place + 2).min(results.args.len()));
    }
    for cell in &mut results.cells {
        let rounds = cell.rounds.iter_mut();
        for measurement in rounds.flat_map(|round| &mut round.measurements) {
            measurement.histogram.clear();
        }
    }
}

pub(super) fn is_slim(results: &Results) -> bool {
    let mut slimmer = results.clone();
    slim(&mut slimmer);
    let text = |results: &Results| serde_json::to_string(results).ok();
    text(&slimmer) == text(results)
}

/// The file name of a path, and anything else as it is.
fn cut(word: &str) -> &str {
    let is_path = word.starts_with('/') || word.starts_with("./") || word.starts_with("../");
    match word.rsplit_once('/') {
        Some((_, name)) if is_path => name,
        _ => word,
    }
}

/// Says what else the machine does, if it is too much to measure beside.
fn busy() -> Option<String> {
    let before = ticks();
    thread::sleep(LOOK);
    let (all, stolen) = ticks()
        .zip(before)
        .map_or((0, 0), |((all, stolen), (all_before, stolen_before))| {
            (all - all_before, stolen - stolen_before)
        });
    let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
    let [load, ..] = load();
    let stolen = 100.0 * stolen as f64 / all.max(1) as f64;
    let is_busy = load / cores > MOST_LOAD || stolen > MOST_STOLEN;
    is_busy.then(|| format!("load {load:.1} on {cores} cores, {stolen:.1} % stolen"))
}

/// Ticks of all processors so far, and those that a hypervisor took.
fn ticks() -> Option<(u64, u64)> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .take(8)
        .filter_map(|text| text.parse().ok())
        .collect();
    Some((ticks.iter().sum(), *ticks.get(7)?))
}

/// Two namespaces on `lsl bench wire`, and `lsl bench net` between them.
const WIRE: &str = include_str!("wire.sh");
const LOOK: Duration = Duration::from_secs(10);
/// Of each core.
const MOST_LOAD: f64 = 0.3;
/// In percent.
const MOST_STOLEN: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::made_up;

    #[test]
    fn what_is_kept_names_no_host_and_no_folder() {
        let mut results = made_up();
        results.machine.host = "lab-pc-1".into();
        results.args = [
            "/x/lsl-bench",
            "latency",
            "--lib",
            "/x/y/liblsl.so",
            "--output",
            "/z",
        ]
        .map(str::to_owned)
        .to_vec();
        assert!(!is_slim(&results));
        slim(&mut results);
        assert_eq!(results.args, ["lsl-bench", "latency", "--lib", "liblsl.so"]);
        assert_eq!(results.machine.host, "");
        assert!(is_slim(&results));
    }
}
