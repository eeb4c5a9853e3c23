//! The stage for what the README and the book show and plain tests cannot run: Python with pylsl and
//! mne-lsl, a compiler, packages, a clone; and the book itself.
//!
//! `crates/lsl-cli/tests/docs` types the commands. Each stage is told to it as `LSL_DOCS_STAGE`: lines of
//! variables, then the words that start a bash there.

use std::path::{Path, PathBuf};

use xshell::{Shell, cmd};

use crate::abi::{self, Profile};
use crate::{Result, interop, roots, xdf};

/// Makes a stage; how it is entered.
type Make = fn(&Shell) -> Result<Vec<String>>;

/// A stage that is there: its name and how it is entered.
type Entrance = (&'static str, Vec<String>);

/// Make the stages as far as this machine allows, type the commands, build the book.
pub(crate) fn run(sh: &Shell, update: bool) -> Result {
    // Pages show what `lsl bench` says too.
    cmd!(sh, "cargo build --workspace --locked --bin lsl-bench").run()?;
    if update {
        let run = cmd!(sh, "cargo test --workspace --locked --test docs generated");
        return Ok(run.env("LSL_DOCS_UPDATE", "1").run()?);
    }
    // The first command of the README, as it stands there.
    quick_release(cmd!(sh, "cargo run --release -p lsl-cli -- demo")).run()?;
    cmd!(sh, "cargo test --workspace --locked --test docs --no-run").run()?;

    let mut gaps = Vec::new();
    let mut entrances = Vec::new();
    for (name, make) in STAGES {
        match make(sh) {
            Ok(words) => entrances.push((*name, words)),
            Err(error) => gaps.push(format!("{name}: {error}")),
        }
    }
    let namespace = match interop::enter(sh) {
        Ok(words) => words,
        Err(error) => {
            gaps.push(format!("no private network: {error}"));
            entrances.clear();
            Vec::new()
        }
    };
    for gap in &gaps {
        println!("book: {gap}");
    }
    if crate::is_gate() && !gaps.is_empty() {
        return Err("the gate must not leave out commands of the book".into());
    }
    type_commands(sh, &namespace, &entrances)?;
    build(sh)
}

/// Stages by the name that pages use, and what makes each.
const STAGES: &[(&str, Make)] = &[
    ("python", python),
    ("dist", dist),
    ("debian", debian),
    ("c", c),
    ("ssh", ssh),
    ("build", clone),
    ("bench", bench),
];

/// Run the test in the private network.
fn type_commands(sh: &Shell, namespace: &[String], entrances: &[Entrance]) -> Result {
    let mut words = namespace.to_vec();
    let test = "cargo test --offline --workspace --locked --test docs";
    words.extend(test.split(' ').map(str::to_owned));
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let mut run = cmd!(sh, "{program} {arguments...}").env("LSL_DOCS_PREPARED", "1");
    for (name, words) in entrances {
        run = run.env(
            format!("LSL_DOCS_{}", name.to_uppercase()),
            words.join("\n"),
        );
    }
    Ok(run.run()?)
}

/// A venv of its own, in which wheels are installed and removed; it sees pylsl, mne-lsl and pyxdf where
/// other tests have them, because the private network has no registry.
fn python(sh: &Shell) -> Result<Vec<String>> {
    let wheel = dist_file(sh, "x86_64.whl")?;
    println!("book: python with {}", wheel.display());
    let venv = sh.current_dir().join("target/book-stage/venv");
    sh.remove_path(&venv)?;
    cmd!(sh, "python3 -m venv {venv}").run()?;
    let mut packages = interop::site_packages(sh)?;
    packages.push(xdf::site_packages(sh)?);
    let seen: Vec<String> = packages
        .iter()
        .map(|folder| folder.display().to_string())
        .collect();
    let own = sh
        .read_dir(venv.join("lib"))?
        .pop()
        .ok_or("the venv has no lib")?;
    sh.write_file(own.join("site-packages/zz-peers.pth"), seen.join("\n"))?;
    let mut words = vec![format!("PATH={}", venv.join("bin").display())];
    words.extend(["PIP_NO_INDEX=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "bash"].map(str::to_owned));
    Ok(words)
}

/// What `cargo xtask dist` made.
fn dist(sh: &Shell) -> Result<Vec<String>> {
    dist_file(sh, "x86_64-unknown-linux-gnu.tar.gz")?;
    Ok(vec!["bash".into()])
}

/// A small Debian, with our package where its commands are typed.
fn debian(sh: &Shell) -> Result<Vec<String>> {
    let package = dist_file(sh, "_amd64.deb")?;
    let share = sh.current_dir().join("target/book-stage/debian");
    sh.remove_path(&share)?;
    sh.create_dir(&share)?;
    for file in [&package, Path::new("xtask/book/debian.sh")] {
        sh.copy_file(file, &share)?;
    }
    roots::bash(sh, &share)
}

/// A file of `target/dist` by its end.
fn dist_file(sh: &Shell, end: &str) -> Result<PathBuf> {
    sh.read_dir("target/dist")
        .unwrap_or_default()
        .into_iter()
        .find(|path| path.to_string_lossy().ends_with(end))
        .ok_or_else(|| format!("no target/dist/*{end}; make it by: cargo xtask dist").into())
}

/// The library installed where a compiler and programs find it, as a package does.
fn c(sh: &Shell) -> Result<Vec<String>> {
    cmd!(sh, "cc --version").quiet().read()?;
    cmd!(sh, "c++ --version").quiet().read()?;
    cmd!(sh, "pkg-config --version").quiet().read()?;
    let prefix = Path::new("target/hosts/prefix");
    abi::install(sh, prefix, Profile::Dev)?;
    let lib = sh.current_dir().join(prefix).join("lib");
    Ok(vec![
        format!("PKG_CONFIG_PATH={}", lib.join("pkgconfig").display()),
        format!("LD_LIBRARY_PATH={}", lib.display()),
        "bash".into(),
    ])
}

/// A machine with an ssh server and a systemd, as the tests of `lsl deploy` have it, under a name.
fn ssh(sh: &Shell) -> Result<Vec<String>> {
    let place = |path: &str| sh.current_dir().join(path).display().to_string();
    let (network, stage) = (
        "crates/lsl-interop/netns.sh",
        "crates/lsl-cli/tests/deploy/stage.sh",
    );
    if !sh.path_exists(stage) {
        return Err(format!("no {stage}").into());
    }
    if cmd!(sh, "id -u").quiet().read()? != "0" {
        return Err("only root can make a machine with systemd".into());
    }
    cmd!(sh, "test -x /usr/sbin/sshd")
        .quiet()
        .run()
        .map_err(|_| "no sshd: apt-get install --no-install-recommends openssh-server")?;
    // ssh asks the password database for the home directory, so its settings have to be named.
    let folder = "target/book-stage/ssh";
    let wrapper = format!("{folder}/ssh");
    sh.write_file(
        &wrapper,
        "#!/bin/sh\nexec /usr/bin/ssh -F \"$HOME/.ssh/config\" \"$@\"\n",
    )?;
    cmd!(sh, "chmod 755 {wrapper}").quiet().run()?;
    let enter = "unshare --net --mount --pid --fork --mount-proc --kill-child sh";
    let mut words = vec![
        format!("PATH={}", place(folder)),
        format!("BASH_ENV={}", place("xtask/book/ssh.sh")),
    ];
    words.extend(enter.split(' ').map(str::to_owned));
    words.extend([place(network), "sh".into(), place(stage), "bash".into()]);
    Ok(words)
}

/// This repository. What gets installed goes where nobody else looks.
fn clone(sh: &Shell) -> Result<Vec<String>> {
    let root = sh.current_dir().join("target/book-stage/cargo");
    let mut words = vec![format!("CARGO_INSTALL_ROOT={}", root.display())];
    words.extend(homes()?);
    words.extend(QUICK.map(|(name, value)| format!("{name}={value}")));
    words.extend(["CARGO_NET_OFFLINE=true".into(), "bash".into()]);
    Ok(words)
}

/// The same, with another liblsl to compare with, and a `lsl` that measures once instead of for hours.
fn bench(sh: &Shell) -> Result<Vec<String>> {
    let theirs = interop::newest_liblsl(sh)?;
    let mut words = vec![format!("THEIRS={}", theirs.display())];
    words.extend(clone(sh)?);
    // A function of that shell: the commands put the real one in front of everything on PATH.
    let script = "xtask/book/bench.sh";
    words.insert(
        0,
        format!("BASH_ENV={}", sh.current_dir().join(script).display()),
    );
    Ok(words)
}

/// Where cargo and rustup are when HOME is somewhere else.
fn homes() -> Result<Vec<String>> {
    let home = std::env::var("HOME")?;
    let of = |name: &str, folder: &str| {
        std::env::var(name).unwrap_or_else(|_| format!("{home}/{folder}"))
    };
    Ok(vec![
        format!("CARGO_HOME={}", of("CARGO_HOME", ".cargo")),
        format!("RUSTUP_HOME={}", of("RUSTUP_HOME", ".rustup")),
    ])
}

/// The release profile without its optimisation, which takes minutes and changes nothing that these
/// commands show. `cargo xtask dist` builds with it.
const QUICK: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_DIST_LTO", "off"),
    ("CARGO_PROFILE_DIST_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_DIST_CODEGEN_UNITS", "256"),
];

fn quick_release(command: xshell::Cmd<'_>) -> xshell::Cmd<'_> {
    QUICK
        .into_iter()
        .fold(command, |command, (name, value)| command.env(name, value))
}

/// The book, where somebody has mdBook: the gate does not install it, since the test reads the same pages,
/// and their links, which mdBook does not.
fn build(sh: &Shell) -> Result {
    let has_mdbook = cmd!(sh, "mdbook --version")
        .quiet()
        .ignore_stderr()
        .read()
        .is_ok();
    if !has_mdbook {
        println!("book: not built; mdbook is missing: cargo install --locked mdbook@0.5.4");
        return Ok(());
    }
    cmd!(sh, "mdbook build docs").run()?;
    println!("book: target/book/index.html");
    Ok(())
}
