//! The pages with what others published beside ours: their runs, and whether each page is that of its data.
//! `lsl bench evidence` does the work; here it is built and put where nobody disturbs it. Spec: audit §6.

use xshell::{Shell, cmd};

use crate::{Result, interop};

/// The scene of the wire: queries by multicast, clock probes and TCP pass it, plain and encrypted, and none too soon.
pub(crate) fn wire(sh: &Shell) -> Result {
    if cmd!(sh, "id -u").quiet().read()? != "0" {
        return crate::missing("root, who may make network devices", "sudo");
    }
    let bench = crate::programs(sh)?.join("lsl-bench");
    let unshare = "unshare -n -p -f --kill-child --mount-proc sh".split(' ');
    let script = "crates/lsl-bench/src/report/evidence/wire.sh";
    for (profile, least_us) in [("cable", 200.0), ("wifi", 2500.0)] {
        let folder = sh.create_temp_dir()?;
        let [place, output] = ["homes", "results"].map(|name| folder.path().join(name));
        let unshare = unshare.clone();
        let client = "--iterations 1 --duration 2 --pings 50 --output".split(' ');
        cmd!(
            sh,
            "env {unshare...} {script} {bench} {profile} {place} {client...} {output}"
        )
        .run()?;
        let results = sh.read_file(output.join("results.json"))?;
        let trips = results.split("\"half_round_trip_p50_us\": ").skip(1);
        let trips = trips.map(|rest| rest.split([',', '\n']).next().unwrap_or_default().parse());
        let trips = trips.collect::<Result<Vec<f64>, _>>()?;
        if trips.len() != 2 || trips.iter().any(|trip| *trip < least_us) {
            return Err(
                format!("{profile}: {trips:?} µs, half round trips below {least_us}").into(),
            );
        }
    }
    println!("wire: cable and wifi pass");
    Ok(())
}

/// Write the pages, or with `check` only see whether they are up to date; behind `run` are the parts to measure.
pub(crate) fn run(sh: &Shell, words: &[&str], check: bool) -> Result {
    if words == ["wire"] {
        return wire(sh);
    }
    let Some((&"run", parts)) = words.split_first() else {
        let check = check.then_some("--check");
        let run = "run --locked --quiet -p lsl-bench -- evidence".split(' ');
        return Ok(cmd!(sh, "cargo {run...} {check...} {words...}").run()?);
    };
    // As packages have it.
    let build = "build --locked --profile dist --target-dir target/bench -p lsl-ffi -p lsl-cli -p lsl-bench";
    let build = build.split(' ');
    cmd!(sh, "cargo {build...}").run()?;
    let namespace = interop::enter(sh)?;
    let (program, words) = namespace.split_first().ok_or("no command")?;
    let bench = sh.current_dir().join("target/bench/dist/lsl-bench");
    Ok(cmd!(sh, "{program} {words...} {bench} evidence --run {parts...}").run()?)
}
