//! What must be true of files for macOS. Nothing here can run them, so that all that the system looks at
//! before it does is looked at: both halves, versions, libraries, exports and the signature.

use std::collections::BTreeSet;
use std::path::Path;

use object::macho::{self, LC_CODE_SIGNATURE, MH_DYLIB, MH_PIE, MachHeader64, PLATFORM_MACOS};
use object::read::NameOrOrdinal;
use object::read::macho::{CodeSignature, MachOFile64};
use object::read::macho::{FatArch as _, LoadCommandVariant, MachHeader as _, MachOFatFile32};
use object::{Architecture, BigEndian, Endianness, Object as _};
use sha2::{Digest as _, Sha256};
use xshell::Shell;

use crate::Result;
use crate::abi::{self, LIBLSL_VERSION};
use crate::macos::{LIBRARY, OLDEST};

/// What a program of ours may ask macOS for: libraries that every one has, and that zig brings names of.
const IMPORTS: &[&str] = &[
    "/usr/lib/libSystem.B.dylib",
    "/usr/lib/libcharset.1.dylib",
    "/usr/lib/libiconv.2.dylib",
];

/// Whatever is wrong with a program or library, in either half or because one is missing.
pub(super) fn problems(sh: &Shell, file: &Path) -> Result<Vec<String>> {
    let bytes = sh.read_binary_file(file)?;
    let halves = MachOFatFile32::parse(&*bytes)?;
    let is_library = file.extension().is_some_and(|end| end == "dylib");
    let mut problems = Vec::new();
    for wanted in [Architecture::Aarch64, Architecture::X86_64] {
        let mut found = Vec::new();
        match (halves.arches().iter()).find(|half| half.architecture() == wanted) {
            Some(half) => {
                let bytes = half.data(&*bytes)?;
                found = head_problems(bytes, is_library, wanted)?;
                if is_library {
                    found.extend(abi::against_table(sh, &exports(bytes)?)?);
                }
            }
            None => found.push("is not in it".to_owned()),
        }
        problems.extend(found.iter().map(|found| format!("{wanted:?}: {found}")));
    }
    Ok(problems)
}

/// Whatever is wrong with what the loader reads of one half.
fn head_problems(bytes: &[u8], is_library: bool, machine: Architecture) -> Result<Vec<String>> {
    let header = MachHeader64::<Endianness>::parse(bytes, 0)?;
    let endian = header.endian()?;
    let mut problems = Vec::new();
    // What the file says, in the words in which it is wanted.
    let mut said = BTreeSet::new();
    if header.filetype(endian) == MH_DYLIB {
        said.insert("a library".to_owned());
    } else if header.flags(endian).0 & MH_PIE.0 != 0 {
        said.insert("a program that runs at any address".to_owned());
    }
    let mut commands = header.load_commands(endian, bytes, 0)?;
    while let Some(command) = commands.next()? {
        match command.variant()? {
            LoadCommandVariant::IdDylib(id) => {
                let name = command.string(endian, id.dylib.name)?;
                said.insert(format!(
                    "called {}, {}, for programs since {}",
                    String::from_utf8_lossy(name),
                    version(id.dylib.current_version.get(endian)),
                    version(id.dylib.compatibility_version.get(endian)),
                ));
            }
            LoadCommandVariant::Dylib(import) => {
                let name = command.string(endian, import.dylib.name)?;
                let name = String::from_utf8_lossy(name);
                if !IMPORTS.contains(&&*name) {
                    problems.push(format!("it needs {name}, which not every macOS has"));
                }
                said.insert("imports".to_owned());
            }
            LoadCommandVariant::BuildVersion(build, _)
                if build.platform.get(endian) == PLATFORM_MACOS =>
            {
                said.insert(format!(
                    "for macOS since {}",
                    version(build.minos.get(endian))
                ));
            }
            LoadCommandVariant::Rpath(_) => problems.push("it has a run path".to_owned()),
            LoadCommandVariant::LinkeditData(place) if command.cmd() == LC_CODE_SIGNATURE => {
                let signature = place.code_signature(endian, bytes)?;
                if is_signed(bytes, &signature)? {
                    said.insert("signed".to_owned());
                } else {
                    problems.push("its signature is not that of its bytes".to_owned());
                }
            }
            _ => {}
        }
    }
    let mut wanted = vec!["imports".to_owned(), format!("for macOS since {OLDEST}.0")];
    if is_library {
        wanted.push("a library".to_owned());
        wanted.push(format!(
            "called {LIBRARY}, {LIBLSL_VERSION}, for programs since 2.0.0"
        ));
    } else {
        wanted.push("a program that runs at any address".to_owned());
    }
    // Nothing unsigned runs there.
    if machine == Architecture::Aarch64 {
        wanted.push("signed".to_owned());
    }
    let lacking = wanted.iter().filter(|wanted| !said.contains(*wanted));
    problems.extend(lacking.map(|wanted| format!("it is not \"{wanted}\", but {said:?}")));
    Ok(problems)
}

fn version(version: macho::Version) -> String {
    let (major, minor, update) = (version.major(), version.minor(), version.update());
    format!("{major}.{minor}.{update}")
}

/// What a library exports besides the table: zig's linker takes no list of exports. Nothing that programs call has
/// such a name, nor one that Rust made.
const UNCALLED: [&str; 3] = ["__dso_handle", "_mh_dylib_header", "rust_eh_personality"];
const MADE_BY_RUST: &str = "_R";

/// Names that programs can call, without the underscore that all of C have there.
fn exports(bytes: &[u8]) -> Result<BTreeSet<String>> {
    let file = MachOFile64::<Endianness>::parse(bytes)?;
    let mut names = BTreeSet::new();
    for export in file.exports()? {
        if let NameOrOrdinal::Name(name) = export?.name() {
            let name = String::from_utf8_lossy(name);
            let name = name.strip_prefix('_').unwrap_or(&name);
            if !name.starts_with(MADE_BY_RUST) && !UNCALLED.contains(&name) {
                names.insert(name.to_owned());
            }
        }
    }
    Ok(names)
}

/// Whether each page of the file has the checksum that its signature says, all up to the signature itself.
fn is_signed(bytes: &[u8], signature: &CodeSignature<'_>) -> Result<bool> {
    let mut blobs = signature.blobs();
    while let Some(blob) = blobs.next()? {
        let Some(directory) = blob.code_directory()? else {
            continue;
        };
        let header = directory.header();
        let code = bytes.get(..usize::try_from(directory.code_limit())?);
        let pages = code.ok_or("a signature of more than there is")?;
        let pages = pages.chunks(1 << header.page_size);
        if pages.len() != header.n_code_slots.get(BigEndian) as usize {
            return Ok(false);
        }
        for (index, page) in (0..).zip(pages) {
            if Sha256::digest(page)[..] != *directory.code_hash(index)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    Ok(false)
}
