//! How much stack pushes and pulls need. Only an optimised library says something about that: without
//! optimisation the same calls need three times as much.

use std::process::Command;

use crate::keys::{self, Ciphers};
use crate::stage::{Outcome, Stage, libraries_from};
use crate::{Need, Test};

/// The folder of an optimised `liblsl.so.2`.
const OPTIMISED: &str = "LSL_HOSTS_OPTIMISED";

/// Bytes of stack that a push or a pull may need.
const LIMIT: &str = "8192";

pub(crate) fn tests() -> Vec<Test> {
    let test = |name: &str, is_secure| Test {
        name: name.to_owned(),
        needs: vec![Need::Tool("cc"), Need::Variable(OPTIMISED)],
        run: Box::new(move |stage| small_stack(stage, is_secure)),
    };
    vec![
        test("smallstack/optimised", false),
        test("smallstack secure/optimised", true),
    ]
}

fn small_stack(stage: &Stage, is_secure: bool) -> Outcome {
    let name = if is_secure { "secure" } else { "plain" };
    let folder = stage.folder(&format!("smallstack-{name}"))?;
    let program = stage.compile("cc", "c/smallstack.c", &["-std=gnu11"], &folder)?;
    let mut command = Command::new(program);
    command.arg(LIMIT);
    libraries_from(&mut command, Stage::path(OPTIMISED)?);
    if is_secure {
        command.env(keys::VARIABLE, keys::device(&folder, Ciphers::All)?);
    }
    let said = Stage::run(command, &folder)?;
    let depths = said.lines().filter_map(|line| {
        let (call, bytes) = line.strip_suffix(" bytes")?.split_once(": ")?;
        Some((bytes.parse::<u32>().ok()?, call))
    });
    let (bytes, call) = depths.max().ok_or("nothing was measured")?;
    println!("    smallstack {name}: {call} needs most, {bytes} bytes of {LIMIT}");
    Ok(())
}
