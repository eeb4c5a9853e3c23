//! `lsl deploy` from end to end: a real sshd and a real systemd of another user, in namespaces that
//! `crates/lsl-cli/tests/deploy/stage.sh` fills. Everything in them ends with the command.

use std::path::Path;

use xshell::{Shell, cmd};

use crate::Result;

/// Build the test, make the machine, run the tests whose name contains `filter`.
pub(crate) fn run(sh: &Shell, filter: Option<&str>) -> Result {
    let gaps = gaps(sh)?;
    if !gaps.is_empty() {
        let packages = "binutils iproute2 util-linux openssh-client openssh-server systemd";
        return crate::missing(
            &format!("for `lsl deploy`: {}", gaps.join(", ")),
            &format!("apt-get install {packages}; run as root, or let sudo need no password"),
        );
    }
    let test = executable(sh)?;
    let mut words: Vec<&str> = Vec::new();
    if !is_root(sh)? {
        words.extend(["sudo", "-n"]);
    }
    words.extend(["unshare", "--net", "--mount", "--pid", "--fork"]);
    words.extend(["--mount-proc", "--kill-child", "sh", NETWORK, "sh", STAGE]);
    words.push(&test);
    words.extend(filter);
    let (program, arguments) = words.split_first().ok_or("no command")?;
    Ok(cmd!(sh, "{program} {arguments...}").run()?)
}

/// What this machine lacks.
fn gaps(sh: &Shell) -> Result<Vec<String>> {
    let mut gaps = Vec::new();
    for tool in [
        "ip",
        "unshare",
        "setpriv",
        "ssh",
        "ssh-keygen",
        "strip",
        "systemctl",
        "systemd-analyze",
    ] {
        if cmd!(sh, "which {tool}")
            .quiet()
            .ignore_stdout()
            .ignore_stderr()
            .run()
            .is_err()
        {
            gaps.push(format!("no {tool}"));
        }
    }
    for path in ["/usr/sbin/sshd", "/usr/lib/systemd/systemd"] {
        if !Path::new(path).exists() {
            gaps.push(format!("no {path}"));
        }
    }
    if !is_root(sh)?
        && cmd!(sh, "sudo -n true")
            .quiet()
            .ignore_stderr()
            .run()
            .is_err()
    {
        gaps.push("no way to become root".into());
    }
    Ok(gaps)
}

fn is_root(sh: &Shell) -> Result<bool> {
    Ok(cmd!(sh, "id -u").quiet().read()? == "0")
}

/// The test program. Cargo itself cannot run it: root may have none.
fn executable(sh: &Shell) -> Result<String> {
    let built = cmd!(
        sh,
        "cargo test --workspace --locked --test deploy --no-run --message-format=json"
    )
    .read()?;
    let name = "\"executable\":\"";
    let found = built
        .lines()
        .filter(|line| line.contains("\"name\":\"deploy\""))
        .find_map(|line| line.split_once(name)?.1.split('"').next());
    Ok(found.ok_or("cargo built no test `deploy`")?.to_owned())
}

const NETWORK: &str = "crates/lsl-interop/netns.sh";
const STAGE: &str = "crates/lsl-cli/tests/deploy/stage.sh";
