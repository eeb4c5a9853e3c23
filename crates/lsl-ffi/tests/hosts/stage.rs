//! What this machine offers to a host, and how one is built and run on it.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Need;
use crate::keys::VARIABLE;

/// What a test answers with; the text is all that its reader gets.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// The stage that `cargo xtask hosts` made, as found in the environment.
pub(crate) struct Stage {
    /// The installed library: `lib`, `include`.
    prefix: Option<PathBuf>,
    /// Where programs are built and leave their logs.
    scratch: PathBuf,
}

impl Stage {
    pub(crate) fn from_env() -> Self {
        Self {
            prefix: env::var_os("LSL_HOSTS_PREFIX").map(PathBuf::from),
            scratch: Path::new(env!("CARGO_TARGET_TMPDIR")).join("hosts"),
        }
    }

    /// Why a test with these needs cannot run, if so.
    pub(crate) fn reason_against(&self, needs: &[Need]) -> Option<String> {
        if self.prefix.is_none() {
            return Some("no private network here: run `cargo xtask hosts`".to_owned());
        }
        needs.iter().find_map(|need| match need {
            Need::Tool(tool) => {
                let paths = env::var_os("PATH").unwrap_or_default();
                let is_there = env::split_paths(&paths).any(|path| path.join(tool).is_file());
                (!is_there).then(|| format!("no {tool} on the path"))
            }
            Need::Variable(name) => env::var_os(name)
                .is_none()
                .then(|| format!("no {name} in the environment")),
            Need::Setuid => self.against_setuid().map(str::to_owned),
        })
    }

    /// Why a program cannot be given the rights of somebody else here.
    fn against_setuid(&self) -> Option<&'static str> {
        let read = |file| fs::read_to_string(file).unwrap_or_default();
        // A namespace of an ordinary user has nobody but himself.
        if read("/proc/self/uid_map").split_whitespace().nth(2) != Some("4294967295") {
            return Some("not run as root");
        }
        if !read("/proc/self/status").contains("NoNewPrivs:\t0") {
            return Some("programs cannot gain rights here");
        }
        let mounts = read("/proc/self/mounts");
        let mounts = mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?, fields.nth(1)?))
        });
        let above = mounts.filter(|(place, _)| self.scratch.starts_with(place));
        let (_, options) = above.max_by_key(|(place, _)| place.len())?;
        let forbids = options.split(',').any(|option| option == "nosuid");
        forbids.then_some("the file system knows no setuid programs")
    }

    pub(crate) fn prefix(&self) -> Outcome<&Path> {
        self.prefix.as_deref().ok_or_else(|| "no stage".to_owned())
    }

    /// A path that the stage gives by variable.
    pub(crate) fn path(variable: &str) -> Outcome<PathBuf> {
        let path = env::var_os(variable).ok_or_else(|| format!("no {variable}"))?;
        Ok(PathBuf::from(path))
    }

    /// An empty folder for a test.
    pub(crate) fn folder(&self, name: &str) -> Outcome<PathBuf> {
        let folder = self.scratch.join(name.replace(['/', ' '], "-"));
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {error}", folder.display()));
            }
            _ => {}
        }
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(folder)
    }

    /// Compile a source of `tests/` against the installed library and link it.
    pub(crate) fn compile(
        &self,
        compiler: &str,
        source: &str,
        options: &[&str],
        into: &Path,
    ) -> Outcome<PathBuf> {
        let prefix = self.prefix()?;
        let program = into.join("program");
        let mut command = Command::new(compiler);
        command
            .args(["-g", "-O1", "-Wall", "-Wextra"])
            .args(options)
            .arg("-I")
            .arg(prefix.join("include"))
            .arg(source_of(source))
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(prefix.join("lib"))
            .args(["-llsl", "-lpthread", "-ldl"])
            .arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
        run(command, &into.join("compile.log"), COMPILE_LIMIT)?;
        Ok(program)
    }

    /// Run a program in a session of its own, so that tests at the same time do not meet.
    pub(crate) fn run(mut command: Command, into: &Path) -> Outcome<String> {
        let config = into.join("lsl_api.cfg");
        let session = into.file_name().unwrap_or_default().to_string_lossy();
        fs::write(&config, format!("[lab]\nSessionID = {session}\n"))
            .map_err(|error| format!("{}: {error}", config.display()))?;
        command.env("LSLAPICFG", config);
        // Whatever the user of this machine has.
        command.env("HOME", into);
        let has_keys = command.get_envs().any(|(name, _)| name == VARIABLE);
        if !has_keys {
            command.env_remove(VARIABLE);
        }
        run(command, &into.join("run.log"), RUN_LIMIT)
    }
}

/// A file below `tests/`.
pub(crate) fn source_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

/// Runs a command to its end, which must be a good one and come in time; what it said.
#[expect(
    clippy::disallowed_methods,
    reason = "how long a process may run is no LSL time"
)]
pub(crate) fn run(mut command: Command, log: &Path, limit: Duration) -> Outcome<String> {
    let name = command.get_program().to_owned();
    let fail = |what: &str| {
        let said = fs::read_to_string(log).unwrap_or_default();
        format!("{}: {what}\n{said}", Path::new(&name).display())
    };
    let output = File::create(log).map_err(|error| fail(&error.to_string()))?;
    let errors = output
        .try_clone()
        .map_err(|error| fail(&error.to_string()))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(|error| fail(&error.to_string()))?;
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break,
            Ok(Some(status)) => return Err(fail(&status.to_string())),
            Err(error) => return Err(fail(&error.to_string())),
            Ok(None) if begin.elapsed() > limit => {
                // It may just have ended by itself.
                let _ = child.kill();
                let _ = child.wait();
                return Err(fail(&format!("still running after {limit:?}")));
            }
            Ok(None) => thread::sleep(Duration::from_millis(20)),
        }
    }
    Ok(fs::read_to_string(log).unwrap_or_default())
}

/// Adds a folder in front of where a program's libraries are searched.
pub(crate) fn libraries_from(command: &mut Command, folder: impl AsRef<OsStr>) {
    command.env("LD_LIBRARY_PATH", folder);
}

const COMPILE_LIMIT: Duration = Duration::from_mins(2);

/// Far more than any host needs, even under valgrind on a loaded machine.
pub(crate) const RUN_LIMIT: Duration = Duration::from_secs(400);
