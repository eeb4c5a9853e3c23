//! What the head of a program says about where it runs: enough to refuse the wrong one before it is
//! copied.

use crate::failure::{Failure, Outcome};

/// An ELF program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) machine: Machine,
    /// The newest glibc it names; `None` for one that is linked statically.
    pub(super) glibc: Option<Glibc>,
}

/// What programs are built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    X86_64,
    Aarch64,
    Other(u16),
}

/// A version of the C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Glibc(pub(super) u32, pub(super) u32);

impl Machine {
    /// By what `uname -m` calls it.
    pub(super) fn from_uname(name: &str) -> Option<Self> {
        match name {
            "x86_64" | "amd64" => Some(Self::X86_64),
            "aarch64" | "arm64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// What Rust calls builds for it.
    pub(super) fn triple(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-gnu",
            Self::Aarch64 => "aarch64-unknown-linux-gnu",
            Self::Other(_) => "unknown",
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::X86_64 => f.write_str("x86_64"),
            Self::Aarch64 => f.write_str("aarch64"),
            Self::Other(number) => write!(f, "machine {number} of ELF"),
        }
    }
}

impl Glibc {
    /// Reads `2.36`, with whatever follows a third dot.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Some(Self(major, minor)),
            _ => None,
        }
    }
}

impl std::fmt::Display for Glibc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Reads the head of a program.
pub(super) fn read(bytes: &[u8]) -> Outcome<Program> {
    let not = |what: &str| Failure::Usage(format!("is {what}"));
    let byte = |at: usize| bytes.get(at).copied();
    if !bytes.starts_with(b"\x7fELF") {
        return Err(not("no Linux program (no ELF file)"));
    }
    let number = |at: usize| Some(u16::from_le_bytes([byte(at)?, byte(at + 1)?]));
    let (Some(kind), Some(machine)) = (number(16), number(18)) else {
        return Err(not("cut off"));
    };
    if byte(4) != Some(CLASS_64) || byte(5) != Some(LITTLE_ENDIAN) {
        return Err(not("for a 32-bit or big-endian machine"));
    }
    if kind != EXECUTABLE && kind != POSITION_INDEPENDENT {
        return Err(not("no program, but an object file or a core dump"));
    }
    Ok(Program {
        machine: match machine {
            62 => Machine::X86_64,
            183 => Machine::Aarch64,
            other => Machine::Other(other),
        },
        glibc: newest_glibc(bytes),
    })
}

/// The newest version among the names of the string table, where each stands between zero bytes.
/// Nothing else in a program has them there: Rust's texts do not end in zero.
fn newest_glibc(bytes: &[u8]) -> Option<Glibc> {
    bytes
        .split(|byte| *byte == 0)
        .filter_map(|text| text.strip_prefix(GLIBC_PREFIX))
        .filter_map(|version| Glibc::parse(std::str::from_utf8(version).ok()?))
        .max()
}

const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const EXECUTABLE: u16 = 2;
const POSITION_INDEPENDENT: u16 = 3;
const GLIBC_PREFIX: &[u8] = b"GLIBC_";

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The head of a program for this machine, with these names in it.
    pub(in crate::deploy) fn program(machine: u16, names: &[&str]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[16..18].copy_from_slice(&POSITION_INDEPENDENT.to_le_bytes());
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        for name in names {
            bytes.extend(name.bytes());
            bytes.push(0);
        }
        bytes
    }

    #[test]
    fn heads() {
        let names = ["GLIBC_2.2.5", "GLIBC_2.28", "GLIBC_2.9", "GLIBC_PRIVATE"];
        let program_of = |machine| read(&program(machine, &names)).unwrap();
        assert_eq!(
            program_of(183),
            Program {
                machine: Machine::Aarch64,
                glibc: Some(Glibc(2, 28)),
            }
        );
        assert_eq!(program_of(62).machine, Machine::X86_64);
        assert_eq!(program_of(40).machine, Machine::Other(40));
        assert_eq!(read(&program(62, &[])).unwrap().glibc, None);
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let check = |bytes: &[u8], part: &str| {
            let failure = read(bytes).unwrap_err();
            assert!(failure.to_string().contains(part), "{part} in {failure}");
        };
        check(b"", "no Linux program");
        check(b"#!/bin/sh\n", "no Linux program");
        check(b"MZ\x90", "no Linux program");
        check(b"\x7fELF\x02\x01", "cut off");
        let mut small = program(40, &[]);
        small[4] = 1;
        check(&small, "32-bit");
        let mut object = program(62, &[]);
        object[16] = 1;
        check(&object, "object file");
        // Nothing of any length may stop the program.
        let whole = program(62, &["GLIBC_2.34"]);
        for end in 0..whole.len() {
            let _ = read(&whole[..end]);
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
    fn this_very_program() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let program = read(&bytes).unwrap();
        assert_eq!(program.machine, Machine::X86_64);
        // Rust asks for 2.17 at least and this code for nothing newer than the machine has.
        assert!(program.glibc >= Some(Glibc(2, 17)), "{program:?}");
        assert!(program.glibc < Some(Glibc(3, 0)), "{program:?}");
    }

    #[test]
    fn versions_are_numbers() {
        assert!(Glibc::parse("2.9") < Glibc::parse("2.28"));
        assert_eq!(Glibc::parse("2.36-9+deb12u1"), None);
        assert_eq!(Glibc::parse("PRIVATE"), None);
    }
}
