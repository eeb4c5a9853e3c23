//! What must be true of files that leave this machine, read from the files themselves.

mod mach_o;

use std::collections::BTreeSet;
use std::path::Path;

use xshell::{Cmd, Shell, cmd};

use crate::cross::{self, Build, GLIBC, System};
use crate::{Result, abi};

/// What a program of ours may ask the dynamic linker for: glibc in its parts before 2.34, nothing else.
const NEEDED: &[&str] = &[
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libutil.so.1",
    "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2",
];

/// What a program of ours may ask Windows for: its own parts, and the C runtime that belongs to it. Never
/// a compiler's runtime, which users would have to install.
const IMPORTS: &[&str] = &[
    "advapi32.dll",
    "bcrypt.dll",
    "bcryptprimitives.dll",
    "iphlpapi.dll",
    "kernel32.dll",
    "ntdll.dll",
    "userenv.dll",
    "winmm.dll",
    "ws2_32.dll",
];
const IMPORTED_SETS: [&str; 2] = ["api-ms-win-core-", "api-ms-win-crt-"];

/// The largest that a stripped file for Windows may be, in bytes.
const LARGEST: [(&str, usize); 2] = [("lsl.dll", 7_000_000), ("lsl.exe", 15_000_000)];

/// Check the files of a build.
pub(crate) fn check(sh: &Shell, build: &Build) -> Result {
    let mut problems = Vec::new();
    let here = cross::machine_paths(sh)?;
    for file in build.files() {
        let mut found = match build.target.system {
            System::Linux { .. } => elf_problems(sh, file, build.target.machine)?,
            System::Windows => pe_problems(sh, file)?,
            System::MacOs => mach_o::problems(sh, file)?,
        };
        let bytes = sh.read_binary_file(file)?;
        for (name, most) in LARGEST {
            if file.ends_with(name) && bytes.len() > most {
                found.push(format!("it has {} bytes, more than {most}", bytes.len()));
            }
        }
        for (path, _) in &here {
            // With what lies in it: a checkout at `/src` is not meant by `crates/lsl-core/src`.
            let is_named = ["crates/", "target/", "registry/"].iter().any(|part| {
                let place = format!("{path}/{part}");
                (bytes.windows(place.len())).any(|bytes| bytes == place.as_bytes())
            });
            if is_named {
                found.push(format!("it names {path}, which is of this machine"));
            }
        }
        problems.extend(
            found
                .into_iter()
                .map(|problem| format!("{}: {problem}", file.display())),
        );
    }
    if let System::Linux { .. } = build.target.system {
        problems.extend(abi::library_problems(sh, &build.library)?);
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("not fit to leave:\n    {}", problems.join("\n    ")).into())
}

/// Whatever is wrong with a program or library for Windows.
pub(crate) fn pe_problems(sh: &Shell, file: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let listed = listing(cmd!(sh, "objdump -p {file}"))?;
    let is_library = file.extension().is_some_and(|end| end == "dll");
    let mut wanted = vec![
        "file format pei-x86-64",
        "HIGH_ENTROPY_VA",
        "DYNAMIC_BASE",
        "NX_COMPAT",
    ];
    if !is_library {
        wanted.push("(Windows CUI)");
    }
    let lacking = wanted.iter().filter(|word| !listed.contains(**word));
    problems.extend(lacking.map(|word| format!("objdump does not say {word}")));
    let imports = listed
        .lines()
        .filter_map(|line| line.trim().strip_prefix("DLL Name: "))
        .map(str::to_lowercase)
        .collect::<BTreeSet<_>>();
    for import in &imports {
        let is_known = IMPORTS.contains(&import.as_str())
            || IMPORTED_SETS.iter().any(|set| import.starts_with(set));
        if !is_known {
            problems.push(format!("it needs {import}, which not every Windows has"));
        }
    }
    if imports.is_empty() {
        problems.push("it imports nothing: was it read at all?".to_owned());
    }
    if is_library {
        problems.extend(abi::against_table(sh, &pe_exports(sh, file)?)?);
    }
    Ok(problems)
}

/// Names that a library for Windows exports: those in the last table of `objdump -p`.
pub(crate) fn pe_exports(sh: &Shell, file: &Path) -> Result<BTreeSet<String>> {
    let listed = listing(cmd!(sh, "objdump -p {file}"))?;
    let table = listed.split("[Ordinal/Name Pointer] Table").nth(1);
    let rows = table.unwrap_or_default().lines().skip(1);
    let names = rows
        .take_while(|row| row.contains(']'))
        .filter_map(|row| row.split_whitespace().last());
    Ok(names.map(str::to_owned).collect())
}

/// Places at which debuggers and BPF programs can look at a program or library. Spec: audit §2.
const PROBES: [&str; 5] = [
    "crypto_auditing:data",
    "crypto_auditing:new_context_with_data",
    "lsl:pull",
    "lsl:push",
    "lsl:send",
];

/// Whatever is wrong with what `readelf -nW` lists of the probes in a file: each is there once, and has a semaphore.
fn probe_problems(notes: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut provider = "";
    for line in notes.lines().map(str::trim) {
        if let Some((_, name)) = line.split_once("Provider: ") {
            provider = name;
        } else if let Some(name) = line.strip_prefix("Name: ") {
            found.push(format!("{provider}:{name}"));
        } else if line.starts_with("Location: ") {
            let address = line.rsplit("Semaphore: 0x").next().unwrap_or_default();
            if address.trim_start_matches('0').is_empty() {
                found.push("one without semaphore".to_owned());
            }
        }
    }
    found.sort_unstable();
    if found == PROBES {
        return Vec::new();
    }
    vec![format!("its probes are {found:?}, not {PROBES:?}")]
}

/// Whatever is wrong with a program or library for Linux.
fn elf_problems(sh: &Shell, file: &Path, machine: &str) -> Result<Vec<String>> {
    let mut problems = probe_problems(&listing(cmd!(sh, "readelf -nW {file}"))?);

    let header = listing(cmd!(sh, "readelf -hW {file}"))?;
    let made_for = header
        .lines()
        .find_map(|line| line.trim().strip_prefix("Machine:"))
        .ok_or("readelf names no machine")?
        .trim()
        .to_lowercase()
        .replace('-', "_");
    if !made_for.ends_with(machine) {
        problems.push(format!("it is for {made_for}, not for {machine}"));
    }
    if !header.contains("DYN (") {
        problems.push("it is not position independent".to_owned());
    }

    let symbols = listing(cmd!(sh, "objdump -T {file}"))?;
    match newest_glibc(&symbols) {
        None => problems.push("it uses nothing of glibc: was it read at all?".to_owned()),
        Some(newest) if newest > version(GLIBC) => {
            let newest: Vec<String> = newest.iter().map(u32::to_string).collect();
            let newest = newest.join(".");
            problems.push(format!("it needs glibc {newest}, newer than {GLIBC}"));
        }
        Some(_) => {}
    }

    let dynamic = listing(cmd!(sh, "readelf -dW {file}"))?;
    for (tag, trouble) in [
        ("TEXTREL", "it has text relocations"),
        ("(RPATH)", "it has an RPATH"),
        ("(RUNPATH)", "it has a RUNPATH"),
    ] {
        if dynamic.contains(tag) {
            problems.push(trouble.to_owned());
        }
    }
    if !dynamic.contains("BIND_NOW") && !dynamic.contains(" NOW") {
        problems.push("its relocations stay writable (no -z now)".to_owned());
    }
    for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        let name = line.split(['[', ']']).nth(1).unwrap_or(line);
        if !NEEDED.contains(&name) {
            problems.push(format!("it needs {name}, which not every machine has"));
        }
    }

    let segments = listing(cmd!(sh, "readelf -lW {file}"))?;
    let stack = segments.lines().find(|line| line.contains("GNU_STACK"));
    if !stack.is_some_and(|line| line.contains(" RW ")) {
        problems.push("its stack is executable".to_owned());
    }
    if !segments.contains("GNU_RELRO") {
        problems.push("it has no read-only relocations (RELRO)".to_owned());
    }
    let notes = listing(cmd!(sh, "readelf -nW {file}"))?;
    if !notes.contains("NT_GNU_BUILD_ID") {
        problems.push("it has no build id".to_owned());
    }
    Ok(problems)
}

/// What a tool says, in the language that is looked for.
fn listing(tool: Cmd<'_>) -> Result<String> {
    Ok(tool.env("LC_ALL", "C").quiet().read()?)
}

/// The newest `GLIBC_` version in a listing of `objdump -T`.
fn newest_glibc(symbols: &str) -> Option<Vec<u32>> {
    symbols
        .split("GLIBC_")
        .skip(1)
        .filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
            rest.get(..end.unwrap_or(rest.len()))
        })
        .map(version)
        .max()
}

/// Numbers in order, so that 2.9 is older than 2.28.
fn version(text: &str) -> Vec<u32> {
    text.split('.')
        .filter_map(|part| part.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_there_once_and_with_semaphores() {
        let note = |(place, probe): (usize, &&str)| {
            let (provider, name) = probe.split_once(':').unwrap();
            format!(
                "  stapsdt  0x41  NT_STAPSDT (SystemTap)\t    Provider: {provider}\n    Name: {name}\n    \
                 Location: 0x1, Base: 0x2, Semaphore: 0x{place:016x}\n    Arguments: -8@%rax\n"
            )
        };
        let good: String = (1..).zip(&PROBES).map(note).collect();
        assert_eq!(probe_problems(&good), [""; 0]);
        let bad: [String; 3] = [
            (0..).zip(&PROBES).map(note).collect(),
            (1..).zip(&PROBES[1..]).map(note).collect(),
            good.repeat(2),
        ];
        assert!(bad.iter().all(|notes| probe_problems(notes).len() == 1));
    }

    #[test]
    fn versions_are_numbers_not_texts() {
        let listing = "DF *UND* (GLIBC_2.9) a\nDF *UND* (GLIBC_2.28) b\nDF *UND* (GLIBC_2.2.5) c";
        assert_eq!(newest_glibc(listing), Some(vec![2, 28]));
        assert!(version("2.34") > version("2.28"));
        assert_eq!(newest_glibc("no symbols"), None);
    }
}
