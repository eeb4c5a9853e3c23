//! The loom models of `lsl-proto` and `lsl-core`: every interleaving of the threads that share an outlet or an
//! inlet, up to loom's bounds. The cfg is ours, because `--cfg loom` makes tokio drop its `net` module.

use xshell::{Shell, cmd};

use crate::Result;

/// Run the models; that a crate has none is a failure, or a renamed module would look like a proof.
pub(crate) fn run(sh: &Shell) -> Result {
    // A target directory of its own: other flags would make cargo rebuild everything each time.
    let output = cmd!(
        sh,
        "cargo test --locked -p lsl-proto -p lsl-core --lib --profile loom --target-dir target/loom -- loom --nocapture"
    )
    .env("RUSTFLAGS", "--cfg lsl_loom")
    .ignore_status()
    .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err("a model failed".into());
    }
    let crates = text.lines().filter(|line| passed(line) > 0).count();
    if crates < 2 {
        return Err(format!("models of {crates} crates were run, not of 2").into());
    }
    Ok(())
}

/// How many tests libtest says have passed.
pub(crate) fn passed(output: &str) -> usize {
    let results = output.lines().filter_map(|line| {
        let (_, counts) = line.split_once("test result: ok. ")?;
        counts.split_whitespace().next()?.parse::<usize>().ok()
    });
    results.sum()
}

#[cfg(test)]
mod tests {
    use super::passed;

    #[test]
    fn a_run_without_tests_is_told_from_one_with() {
        let result = |passed| {
            format!("\ntest result: ok. {passed} passed; 0 failed; 0 ignored; 9 filtered out\n")
        };
        assert_eq!(passed(&result(0)), 0);
        assert_eq!(passed(&(result(3) + &result(0) + &result(2))), 5);
        assert_eq!(passed("error: could not compile"), 0);
    }
}
