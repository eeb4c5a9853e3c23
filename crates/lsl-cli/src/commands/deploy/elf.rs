//! Reads the head of a program: enough to refuse the wrong one before it is copied.

use crate::failure::{Failure, Outcome};

/// Properties of an ELF program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) machine: Machine,
    /// The newest glibc it names; `None` for one that is linked statically.
    pub(super) glibc: Option<Glibc>,
}

/// Kind of machine that programs are built for.
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
    /// Returns the machine of a name of `uname -m`.
    pub(super) fn from_uname(name: &str) -> Option<Self> {
        match name {
            "x86_64" | "amd64" => Some(Self::X86_64),
            "aarch64" | "arm64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Returns the target triple of Rust.
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
    /// Parses `2.36`; further parts are ignored.
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
    if !bytes.starts_with(b"\x7fELF") {
        return Err(not("no Linux program (no ELF file)"));
    }
    let (Some(kind), Some(machine)) = (number::<2>(bytes, 16), number::<2>(bytes, 18)) else {
        return Err(not("cut off"));
    };
    if bytes.get(4..6) != Some(&[CLASS_64, LITTLE_ENDIAN]) {
        return Err(not("for a 32-bit or big-endian machine"));
    }
    if kind != EXECUTABLE && kind != POSITION_INDEPENDENT {
        return Err(not("no program, but an object file or a core dump"));
    }
    Ok(Program {
        machine: match u16::try_from(machine) {
            Ok(62) => Machine::X86_64,
            Ok(183) => Machine::Aarch64,
            other => Machine::Other(other.unwrap_or(0)),
        },
        glibc: newest_glibc(bytes),
    })
}

/// Returns the newest version among the names that the loader looks up.
fn newest_glibc(bytes: &[u8]) -> Option<Glibc> {
    names(bytes)?
        .split(|byte| *byte == 0)
        .filter_map(|text| text.strip_prefix(GLIBC_PREFIX))
        .filter_map(|version| Glibc::parse(std::str::from_utf8(version).ok()?))
        .max()
}

/// Returns the string table of the dynamic section; `None` in a program that has none.
fn names(bytes: &[u8]) -> Option<&[u8]> {
    let segments = usize::try_from(number::<8>(bytes, 32)?).ok()?;
    let count = usize::try_from(number::<2>(bytes, 56)?).ok()?;
    // Kind, offset in the file, address in memory, size in the file.
    let segment = |index: usize| {
        let at = segments.checked_add(index * SEGMENT_LEN)?;
        let field = |offset: usize| number::<8>(bytes, at.checked_add(offset)?);
        Some((number::<4>(bytes, at)?, field(8)?, field(16)?, field(32)?))
    };
    let all = || (0..count).map_while(segment);
    let (_, dynamic, _, len) = all().find(|(kind, ..)| *kind == DYNAMIC)?;
    let dynamic = part(bytes, dynamic, len)?;
    let entry = |wanted: u64| {
        let entries = dynamic.chunks_exact(16);
        entries
            .filter(|entry| number::<8>(entry, 0) == Some(wanted))
            .find_map(|entry| number::<8>(entry, 8))
    };
    let (address, len) = (entry(STRING_TABLE)?, entry(STRING_TABLE_LEN)?);
    let offset = all().find_map(|(kind, offset, start, size)| {
        let within = address.checked_sub(start).filter(|within| *within < size)?;
        (kind == LOADED).then(|| offset.checked_add(within))?
    })?;
    part(bytes, offset, len)
}

fn part(bytes: &[u8], start: u64, len: u64) -> Option<&[u8]> {
    let end = usize::try_from(start.checked_add(len)?).ok()?;
    bytes.get(usize::try_from(start).ok()?..end)
}

/// Reads a little-endian number of `LEN` bytes.
fn number<const LEN: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(LEN)?)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)),
    )
}

const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const EXECUTABLE: u64 = 2;
const POSITION_INDEPENDENT: u64 = 3;
const SEGMENT_LEN: usize = 56;
/// Kind of a segment: loaded into memory.
const LOADED: u64 = 1;
const DYNAMIC: u64 = 2;
/// Kind of a dynamic entry: address of the string table.
const STRING_TABLE: u64 = 5;
const STRING_TABLE_LEN: u64 = 10;
const GLIBC_PREFIX: &[u8] = b"GLIBC_";

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A program for this machine as far as the loader reads it, with these names to look up; without
    /// any it is static.
    pub(in crate::commands::deploy) fn program(machine: u16, names: &[&str]) -> Vec<u8> {
        // One segment with the whole file at 0x1000, and the dynamic section.
        let count = if names.is_empty() { 1 } else { 2 };
        let dynamic = 64 + 2 * SEGMENT_LEN as u64;
        let strings = dynamic + 32;
        let text = names.iter().flat_map(|name| name.bytes().chain([0]));
        let text: Vec<u8> = std::iter::once(0).chain(text).collect();
        let len = strings + text.len() as u64;
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(16, 0);
        bytes.extend(3_u16.to_le_bytes());
        bytes.extend(machine.to_le_bytes());
        bytes.resize(32, 0);
        bytes.extend(64_u64.to_le_bytes());
        bytes.resize(56, 0);
        bytes.push(count);
        bytes.resize(64, 0);
        for (kind, start, address, len) in
            [(1_u64, 0, 0x1000, len), (2, dynamic, 0x1000 + dynamic, 32)]
        {
            for field in [kind, start, address, address, len, len, 0] {
                bytes.extend(field.to_le_bytes());
            }
        }
        for field in [5, 0x1000 + strings, 10, text.len() as u64] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(text);
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
        // Cut off or changed anywhere, a program must not make the reader panic.
        let whole = program(62, &["GLIBC_2.34"]);
        for end in 0..whole.len() {
            let _ = read(&whole[..end]);
            let mut wrong = whole.clone();
            wrong[end] = 0xff;
            let _ = read(&wrong);
        }
        let mut wrong = whole;
        wrong[32..40].fill(0xff);
        assert_eq!(read(&wrong).unwrap().glibc, None);
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
