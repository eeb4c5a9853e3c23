//! Chooses the program to copy: this one, or one that was built for the other machine.

use std::fs;
use std::path::{Path, PathBuf};

use lsl_platform::remedy::word;
use sha2::{Digest, Sha256};

use super::elf::{self, Machine, Program};
use super::machine::Remote;
use crate::failure::{Failure, Outcome};

/// A program that will run on the other machine, as far as its head tells.
#[derive(Debug, Clone)]
pub(super) struct Build {
    pub(super) path: PathBuf,
    /// SHA-256 of `bytes`, in hexadecimal digits.
    pub(super) checksum: String,
    pub(super) bytes: Vec<u8>,
}

impl Build {
    /// Reads the program in or at `from`, else this one, and checks that it fits.
    pub(super) fn choose(from: Option<&Path>, remote: &Remote) -> Outcome<Self> {
        let wanted = remote.machine;
        let path = match from {
            Some(path) if path.is_dir() => in_directory(path, wanted)?,
            Some(path) => path.to_owned(),
            None if here() == Some(wanted) => std::env::current_exe()?,
            None => return Err(none_for(wanted)),
        };
        let bytes = fs::read(&path)
            .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        let program = elf::read(&bytes).map_err(|failure| {
            let advice = if path.to_string_lossy().ends_with(".tar.gz") {
                "; unpack it and name the directory"
            } else {
                ""
            };
            Failure::Usage(format!("{} {failure}{advice}", path.display()))
        })?;
        check(program, remote).map_err(|text| {
            Failure::Usage(format!("{} {text}.\n{}", path.display(), advice(wanted)))
        })?;
        Ok(Self {
            checksum: checksum(&bytes),
            path,
            bytes,
        })
    }
}

/// Returns the kind of this machine, if a copy of this program could run elsewhere.
fn here() -> Option<Machine> {
    let is_linux = std::env::consts::OS == "linux";
    is_linux
        .then(|| Machine::from_uname(std::env::consts::ARCH))
        .flatten()
}

/// Finds the build for `wanted` in a directory that `cargo xtask cross` or a release archive filled.
fn in_directory(directory: &Path, wanted: Machine) -> Outcome<PathBuf> {
    let triple = wanted.triple();
    let candidates = [
        format!("{triple}/release/lsl"),
        format!("lsl-rs-{}-{triple}/bin/lsl", env!("CARGO_PKG_VERSION")),
        "bin/lsl".into(),
        "lsl".into(),
        "release/lsl".into(),
    ];
    let mut others = Vec::new();
    for candidate in &candidates {
        let path = directory.join(candidate);
        let Ok(bytes) = fs::read(&path) else { continue };
        match elf::read(&bytes) {
            Ok(program) if program.machine == wanted => return Ok(path),
            Ok(program) => others.push(format!("{candidate} is for {}", program.machine)),
            Err(failure) => others.push(format!("{candidate} {failure}")),
        }
    }
    let found = if others.is_empty() {
        format!("there is none of {}", candidates.join(", "))
    } else {
        others.join(", ")
    };
    Err(Failure::Usage(format!(
        "{}: no `lsl` for {wanted}: {found}.\n{}",
        directory.display(),
        advice(wanted)
    )))
}

fn check(program: Program, remote: &Remote) -> Result<(), String> {
    if program.machine != remote.machine {
        return Err(format!(
            "is for {}, the machine is {}",
            program.machine, remote.machine
        ));
    }
    match (program.glibc, remote.glibc) {
        (Some(needed), Some(there)) if needed > there => {
            Err(format!("needs glibc {needed}, the machine has {there}"))
        }
        (Some(needed), None) => Err(format!(
            "needs glibc {needed}, the machine has another C library"
        )),
        _ => Ok(()),
    }
}

fn none_for(wanted: Machine) -> Failure {
    Failure::Usage(format!(
        "the machine is {wanted}, this program is for {} on {}.\n{}",
        std::env::consts::ARCH,
        std::env::consts::OS,
        advice(wanted)
    ))
}

/// Explains where a fitting build comes from.
fn advice(wanted: Machine) -> String {
    let triple = wanted.triple();
    format!(
        "Name a build with --from PATH: the directory of an unpacked lsl-rs-{}-{triple}.tar.gz, or, in \
         the source tree, after `cargo xtask cross {triple}`: --from {}",
        env!("CARGO_PKG_VERSION"),
        word("target/cross")
    )
}

/// Computes SHA-256 as `sha256sum` prints it.
pub(super) fn checksum(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let digits = digest.iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::deploy::elf::Glibc;
    use crate::commands::deploy::elf::tests::program;
    use crate::commands::deploy::machine::tests::PI;

    #[test]
    fn checksums_are_those_of_sha256sum() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(checksum(b"abc"), expected);
    }

    #[test]
    fn machine_and_library_must_fit() {
        let remote = Remote::read(PI).unwrap();
        let of = |machine, glibc| Program { machine, glibc };
        assert_eq!(
            check(of(Machine::Aarch64, Some(Glibc(2, 28))), &remote),
            Ok(())
        );
        assert_eq!(check(of(Machine::Aarch64, None), &remote), Ok(()));
        let refused = |program, remote: &Remote, part: &str| {
            let text = check(program, remote).unwrap_err();
            assert!(text.contains(part), "{part} in {text}");
        };
        refused(of(Machine::X86_64, None), &remote, "is for x86_64");
        let newer = of(Machine::Aarch64, Some(Glibc(2, 39)));
        refused(newer, &remote, "needs glibc 2.39, the machine has 2.36");
        let musl = Remote {
            glibc: None,
            ..remote
        };
        refused(
            of(Machine::Aarch64, Some(Glibc(2, 28))),
            &musl,
            "another C library",
        );
    }

    #[test]
    fn directories_are_searched_for_the_right_machine() {
        let root = std::env::temp_dir().join(format!("lsl-build-{}", std::process::id()));
        let place = |path: &str, bytes: &[u8]| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        let remote = Remote::read(PI).unwrap();
        let choose = || Build::choose(Some(&root), &remote);
        fs::create_dir_all(&root).unwrap();
        let nothing = choose().unwrap_err().to_string();
        assert!(nothing.contains("cargo xtask cross aarch64"), "{nothing}");
        place("lsl", &program(62, &["GLIBC_2.28"]));
        let other = choose().unwrap_err().to_string();
        assert!(other.contains("lsl is for x86_64"), "{other}");
        place("bin/lsl", &program(183, &["GLIBC_2.28"]));
        assert_eq!(choose().unwrap().path, root.join("bin/lsl"));
        let cross = "aarch64-unknown-linux-gnu/release/lsl";
        place(cross, &program(183, &["GLIBC_2.40"]));
        let newer = choose().unwrap_err().to_string();
        assert!(newer.contains("needs glibc 2.40"), "{newer}");
        place(cross, &program(183, &["GLIBC_2.28"]));
        assert_eq!(choose().unwrap().path, root.join(cross));
        fs::remove_dir_all(&root).unwrap();
    }
}
