//! What runs programs for aarch64 here: qemu-user, and a private machine in which the kernel starts it
//! for every such program.

use std::path::{Path, PathBuf};

use xshell::{Shell, cmd};

use crate::Result;

/// Debian 12's own qemu 7.2 knows no `IP_MULTICAST_IF`, without which nothing is found.
const MAJOR: &str = "10";
const SUITE: &str = "bookworm-backports";
const MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

const FOLDER: &str = "target/tools/qemu";

/// Lays out the private machine.
pub(crate) const ENTER: &str = "xtask/src/emulate/enter.sh";

/// The static qemu, fetched from Debian if it is not there yet. Nothing is installed.
pub(crate) fn fetch(sh: &Shell) -> Result<PathBuf> {
    let folder = sh.current_dir().join(FOLDER);
    let qemu = folder.join("qemu-aarch64");
    if is_right(sh, &qemu) {
        return Ok(qemu);
    }
    sh.remove_path(&folder)?;
    for part in ["lists/partial", "cache/archives/partial"] {
        sh.create_dir(folder.join(part))?;
    }
    let sources = folder.join("sources.list");
    sh.write_file(
        &sources,
        format!("deb [arch=amd64 signed-by={KEYRING}] {MIRROR} {SUITE} main\n"),
    )?;
    // Of this machine's configuration of apt nothing is read that names sources, and nothing written.
    let options: Vec<String> = [
        format!("Dir::Etc::sourcelist={}", sources.display()),
        "Dir::Etc::sourceparts=-".to_owned(),
        "Dir::Etc::preferencesparts=-".to_owned(),
        format!("Dir::State::lists={}", folder.join("lists").display()),
        format!("Dir::Cache={}", folder.join("cache").display()),
        "APT::Sandbox::User=".to_owned(),
        "Acquire::Languages=none".to_owned(),
        "Acquire::Retries=3".to_owned(),
    ]
    .into_iter()
    .flat_map(|option| ["-o".to_owned(), option])
    .collect();
    let update = &options;
    cmd!(sh, "apt-get -q {update...} update").run()?;
    {
        let _inside = sh.push_dir(&folder);
        cmd!(sh, "apt-get -q {options...} download qemu-user").run()?;
    }
    let package = sh
        .read_dir(&folder)?
        .into_iter()
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or("apt-get downloaded nothing")?;
    // One of fifty programs; the package unpacked whole takes 400 MB.
    let archive = folder.join("qemu.tar");
    let tree = cmd!(sh, "dpkg-deb --fsys-tarfile {package}")
        .quiet()
        .output()?;
    sh.write_file(&archive, tree.stdout)?;
    cmd!(
        sh,
        "tar -x -f {archive} -C {folder} --strip-components=3 ./usr/bin/qemu-aarch64"
    )
    .run()?;
    for waste in [archive, package, folder.join("lists"), folder.join("cache")] {
        sh.remove_path(waste)?;
    }
    if is_right(sh, &qemu) {
        Ok(qemu)
    } else {
        Err(format!("qemu-user of {SUITE} is not version {MAJOR}").into())
    }
}

fn is_right(sh: &Shell, qemu: &Path) -> bool {
    cmd!(sh, "{qemu} --version")
        .quiet()
        .ignore_stderr()
        .read()
        .is_ok_and(|said| said.contains(&format!("version {MAJOR}.")))
}

/// The words that run a command on a private machine without any network.
pub(crate) fn enter(sh: &Shell, qemu: &Path) -> Vec<String> {
    let script = sh.current_dir().join(ENTER);
    vec![
        "sh".to_owned(),
        script.display().to_string(),
        qemu.display().to_string(),
    ]
}
