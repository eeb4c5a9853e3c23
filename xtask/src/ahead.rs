//! Builds what later steps of the gate want while earlier ones wait for sockets and clocks: at idle
//! priority, so that it takes only time that nothing else wants. The steps themselves then find their
//! work done, or wait for the rest of it; what fails here fails there again, and is told there.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use xshell::Shell;

use crate::{Result, cross, systems};

const LOG: &str = "target/tools/ahead.log";

/// The builds, in the order in which steps want them.
pub(crate) fn run(sh: &Shell) {
    let builds: [fn(&Shell) -> Result; 3] = [|sh| cross::run(sh, None), crate::msrv, systems::run];
    for build in builds {
        if let Err(error) = build(sh) {
            println!("ahead: {error}");
        }
    }
}

/// This task in a process of its own, that ends with the gate.
pub(crate) struct Ahead(Child);

impl Ahead {
    /// Without it the gate is only slower, so nothing here is an error of the gate.
    pub(crate) fn start(sh: &Shell) -> Option<Self> {
        let started = || -> Result<Child> {
            let log = sh.current_dir().join(LOG);
            sh.create_dir(log.parent().ok_or("no folder")?)?;
            let log = File::create(log)?;
            // A session of its own, so that its compilers can be ended with it.
            let mut command = Command::new("setsid");
            command.args(["chrt", "--idle", "0", "nice", "-n", "19"]);
            command.arg(std::env::current_exe()?).arg("ahead");
            command.current_dir(sh.current_dir());
            command.stdout(log.try_clone()?).stderr(log);
            Ok(command.spawn()?)
        };
        started()
            .inspect_err(|error| println!("ahead: {error}"))
            .ok()
            .map(Self)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Its compilers too; it may be done already.
        let group = format!("-{}", self.0.id());
        let kill = Command::new("kill")
            .args(["-s", "TERM", "--", &group])
            .stderr(Stdio::null())
            .status();
        drop(kill);
        drop(self.0.wait());
    }
}
