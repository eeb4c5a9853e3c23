//! The C library as others see it: its exports, its name, its headers and its layout when installed.
//!
//! `crates/lsl-ffi/abi/abi.tsv` is the one list of functions. The headers are made from it and from
//! their frames (`*.h.in`), because cbindgen would have to expand the macros that make the typed
//! families, which takes a nightly compiler, and could not name parameters there. So is `lsl.def`.
//! `lsl_cpp.h`, which declares nothing that the library exports, is written by hand.

mod cpp;
mod signatures;

use std::collections::BTreeSet;
use std::fmt::Write as _;
#[cfg(unix)]
pub(crate) use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use xshell::{Shell, cmd};

use crate::{Result, macos, windows};

const TABLE: &str = "crates/lsl-ffi/abi/abi.tsv";
const INCLUDE: &str = "crates/lsl-ffi/include";
const SIGNATURES: &str = "crates/lsl-ffi/src/signatures.rs";

/// What `lsl.dll` exports, for linkers.
pub(crate) const DEFINITION: &str = "crates/lsl-ffi/abi/lsl.def";

/// What `ldconfig` and every program linked against liblsl look for.
pub(crate) const SONAME: &str = "liblsl.so.2";

/// Headers and the frame each is made from.
const HEADERS: &[(&str, &str)] = &[
    ("lsl_c.h", "crates/lsl-ffi/abi/lsl_c.h.in"),
    ("lslx.h", "crates/lsl-ffi/abi/lslx.h.in"),
];

/// The header for C++.
const CPP_HEADER: &str = "lsl_cpp.h";

/// The names that liblsl splits its header into; programs include some of them alone.
const PARTS: &[&str] = &[
    "common",
    "types",
    "streaminfo",
    "xml",
    "outlet",
    "inlet",
    "resolver",
];

/// Columns of a header line.
const WIDTH: usize = 100;

/// A row of the table.
struct Function {
    section: String,
    returns: String,
    name: String,
    parameters: Vec<String>,
    comment: String,
}

/// Make the headers, or fail if the committed ones differ.
pub(crate) fn headers(sh: &Shell, check: bool) -> Result {
    let functions = table(sh)?;
    let include = Path::new(INCLUDE);
    let mut files = Vec::new();
    for (header, frame) in HEADERS {
        let text = fill(&sh.read_file(frame)?, &functions)?;
        files.push((include.join(header), text));
    }
    for part in PARTS {
        files.push((include.join(format!("lsl/{part}.h")), forward(part)));
    }
    files.push((SIGNATURES.into(), signatures::in_rust(&functions)?));
    let names: Vec<&str> = functions.iter().map(|f| f.name.as_str()).collect();
    let (library, names) = (windows::LIBRARY, names.join("\n    "));
    let definition = format!("LIBRARY {library}\nEXPORTS\n    {names}\n");
    files.push((DEFINITION.into(), definition));
    let mut stale = Vec::new();
    for (path, text) in files {
        if sh.read_file(&path).is_ok_and(|old| old == text) {
            continue;
        }
        if check {
            stale.push(path.display().to_string());
        } else {
            sh.write_file(&path, text)?;
            println!("headers: wrote {}", path.display());
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    let stale = stale.join(" ");
    Err(format!("{stale}: not what the table says; run `cargo xtask headers`").into())
}

/// Check headers and a fresh library against the table and liblsl's rules.
pub(crate) fn check(sh: &Shell) -> Result {
    headers(sh, true)?;
    let library = build(sh, Profile::Dev)?;
    let mut problems = library_problems(sh, &library)?;
    problems.extend(signatures::compile(sh, &table(sh)?)?);
    if problems.is_empty() {
        println!(
            "abi: {} exports what the table lists, as {SONAME}",
            library.display()
        );
        return Ok(());
    }
    Err(format!("abi:\n    {}", problems.join("\n    ")).into())
}

/// Fails if compilers for Windows, `cc` and zig's for C++, have anything against the headers.
pub(crate) fn compile_for_windows(sh: &Shell, cc: &str) -> Result {
    let problems = signatures::compile_for_windows(sh, &table(sh)?, cc)?;
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("headers:\n    {}", problems.join("\n    ")).into())
}

/// What is wrong with the exports and the name of a library.
pub(crate) fn library_problems(sh: &Shell, library: &Path) -> Result<Vec<String>> {
    let mut problems = exports(sh, library)?;
    problems.extend(identity(sh, library)?);
    Ok(problems)
}

/// How the library is compiled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Dev,
    Dist,
}

/// Build the library; where its shared form lies.
pub(crate) fn build(sh: &Shell, profile: Profile) -> Result<PathBuf> {
    if profile == Profile::Dev {
        return Ok(crate::programs(sh)?.join("liblsl.so"));
    }
    // Cargo's own folder for this profile is where the packages lie.
    cmd!(
        sh,
        "cargo build --locked --profile dist --target-dir target/cross -p lsl-ffi"
    )
    .run()?;
    Ok(sh.current_dir().join("target/cross/dist/liblsl.so"))
}

/// Build the library and lay it out below `prefix` as packages and build systems expect it.
pub(crate) fn install(sh: &Shell, prefix: &Path, profile: Profile) -> Result {
    let library = build(sh, profile)?;
    let prefix = sh.current_dir().join(prefix);
    lay_out(sh, &library, &prefix, "lib")?;
    sh.copy_file(library.with_extension("a"), prefix.join("lib/liblsl.a"))?;
    println!("install: {SONAME} below {}", prefix.display());
    Ok(())
}

/// Packages are made on Linux alone.
#[cfg(not(unix))]
pub(crate) fn symlink(_to: impl AsRef<Path>, _path: impl AsRef<Path>) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Lay a built library out below `prefix`, itself in the folder `libdir` there; a DLL in `bin`, and in
/// `libdir` what programs are linked with.
pub(crate) fn lay_out(sh: &Shell, library: &Path, prefix: &Path, libdir: &str) -> Result {
    let lib = prefix.join(libdir);
    sh.create_dir(&lib)?;
    let ends_with = |wanted| library.extension().is_some_and(|end| end == wanted);
    let (is_dll, is_dylib) = (ends_with("dll"), ends_with("dylib"));
    let (file, linking) = if is_dll {
        let bin = prefix.join("bin");
        sh.create_dir(&bin)?;
        sh.copy_file(library, bin.join(windows::LIBRARY))?;
        windows::import_libraries(sh, &lib)?;
        let file = format!("bin/{}", windows::LIBRARY);
        (
            file,
            format!("IMPORTED_IMPLIB \"${{_lsl_prefix}}/{libdir}/lsl.lib\""),
        )
    } else {
        let (real, loaded, linked) = if is_dylib {
            let real = format!("liblsl.{LIBLSL_VERSION}.dylib");
            (real, macos::LIBRARY, "liblsl.dylib")
        } else {
            (format!("liblsl.so.{LIBLSL_VERSION}"), SONAME, "liblsl.so")
        };
        sh.copy_file(library, lib.join(&real))?;
        let name = loaded.trim_start_matches("@rpath/");
        for name in [name, linked] {
            let path = lib.join(name);
            sh.remove_path(&path)?;
            symlink(&real, &path)?;
        }
        (
            format!("{libdir}/{name}"),
            format!("IMPORTED_SONAME \"{loaded}\""),
        )
    };
    // From the folder of the library back to the prefix; both kinds of file find it by their own place.
    let up = vec![".."; libdir.split('/').count()].join("/");
    for (from, to) in [
        ("lsl.pc.in", "pkgconfig/lsl.pc"),
        ("LSLCMake.cmake", "cmake/LSL/LSLCMake.cmake"),
        ("LSLConfig.cmake.in", "cmake/LSL/LSLConfig.cmake"),
        (
            "LSLConfigVersion.cmake.in",
            "cmake/LSL/LSLConfigVersion.cmake",
        ),
    ] {
        let text = sh.read_file(Path::new("crates/lsl-ffi/pkg").join(from))?;
        let text = text
            .replace("@VERSION@", LIBLSL_VERSION)
            .replace("@LIBDIR@", libdir)
            .replace("@FILE@", &file)
            .replace("@LINKING@", &linking)
            .replace("@UP@", &up);
        // Of the static library, which is there on Linux alone.
        let is_there = !is_dll && !is_dylib;
        let lines = (text.lines()).filter(|line| is_there || !line.starts_with("Libs.private"));
        sh.write_file(lib.join(to), lines.collect::<Vec<_>>().join("\n") + "\n")?;
    }
    sh.create_dir(prefix.join("include"))?;
    for header in HEADERS
        .iter()
        .map(|(header, _)| *header)
        .chain([CPP_HEADER])
    {
        sh.copy_file(
            Path::new(INCLUDE).join(header),
            prefix.join("include").join(header),
        )?;
    }
    for part in PARTS {
        sh.write_file(prefix.join(format!("include/lsl/{part}.h")), forward(part))?;
    }
    Ok(())
}

/// The liblsl whose place ours takes; packages that ask for a version mean this one.
pub(crate) const LIBLSL_VERSION: &str = "1.18.0";

fn table(sh: &Shell) -> Result<Vec<Function>> {
    let text = sh.read_file(TABLE)?;
    let rows = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    rows.map(|row| {
        let columns: Vec<&str> = row.split('\t').collect();
        let [section, returns, name, parameters, comment] = columns.as_slice() else {
            return Err(format!("{TABLE}: not five columns: {row}").into());
        };
        Ok(Function {
            section: (*section).to_owned(),
            returns: (*returns).to_owned(),
            name: (*name).to_owned(),
            parameters: parameters
                .split(';')
                .map(|parameter| parameter.trim().to_owned())
                .filter(|parameter| !parameter.is_empty())
                .collect(),
            comment: (*comment).to_owned(),
        })
    })
    .collect()
}

/// The frame with the declarations of a section in place of each `@section@` line.
fn fill(frame: &str, functions: &[Function]) -> Result<String> {
    let mut text = String::new();
    for line in frame.lines() {
        let section = line
            .strip_prefix('@')
            .and_then(|line| line.strip_suffix('@'));
        let Some(section) = section else {
            writeln!(text, "{line}")?;
            continue;
        };
        let of_section: Vec<_> = functions.iter().filter(|f| f.section == section).collect();
        if of_section.is_empty() {
            return Err(format!("no functions of section {section}").into());
        }
        for function in of_section {
            declare(&mut text, function)?;
        }
    }
    Ok(text)
}

fn declare(text: &mut String, function: &Function) -> Result {
    if !function.comment.is_empty() {
        if !text.ends_with("\n\n") {
            writeln!(text)?;
        }
        write_comment(text, &function.comment)?;
    }
    let space = if function.returns.ends_with('*') {
        ""
    } else {
        " "
    };
    let head = format!("LIBLSL_C_API {}{space}{}(", function.returns, function.name);
    let parameters = if function.parameters.is_empty() {
        "void".to_owned()
    } else {
        function.parameters.join(", ")
    };
    if head.len() + parameters.len() + 2 <= WIDTH {
        writeln!(text, "{head}{parameters});")?;
        return Ok(());
    }
    write!(text, "{head}")?;
    let mut column = WIDTH;
    for (index, parameter) in function.parameters.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // Two columns for what follows a parameter.
        if column + 1 + parameter.len() + 2 > WIDTH {
            write!(text, "{comma}\n    {parameter}")?;
            column = 4 + parameter.len();
        } else {
            write!(text, "{comma} {parameter}")?;
            column += 2 + parameter.len();
        }
    }
    writeln!(text, ");")?;
    Ok(())
}

fn write_comment(text: &mut String, comment: &str) -> Result {
    let lines = wrapped(comment, WIDTH - 8);
    if let [line] = lines.as_slice() {
        writeln!(text, "/** {line} */")?;
        return Ok(());
    }
    writeln!(text, "/**")?;
    for line in lines {
        writeln!(text, " * {line}")?;
    }
    writeln!(text, " */")?;
    Ok(())
}

/// The words of a text in lines of at most `width` columns.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, String::len);
        if line > 0 && line + 1 + word.len() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

fn forward(part: &str) -> String {
    format!(
        "/* For programs that include <lsl/{part}.h>: it is all in one file. */\n#include \"../lsl_c.h\"\n"
    )
}

/// Every difference between what the library exports and what the table lists.
fn exports(sh: &Shell, library: &Path) -> Result<Vec<String>> {
    let listing = cmd!(sh, "nm -D --defined-only {library}").quiet().read()?;
    let mut problems = Vec::new();
    let mut exported = BTreeSet::new();
    for line in listing.lines() {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [_, kind, name] = columns.as_slice() else {
            return Err(format!("nm says: {line}").into());
        };
        if name.contains('@') {
            problems.push(format!("{name} has a symbol version; liblsl has none"));
        }
        if *kind != "T" {
            problems.push(format!("{name} is exported, but no function (nm: {kind})"));
        }
        exported.insert((*name).to_owned());
    }
    problems.extend(against_table(sh, &exported)?);
    Ok(problems)
}

/// Every difference between these names and those of the table.
pub(crate) fn against_table(sh: &Shell, exported: &BTreeSet<String>) -> Result<Vec<String>> {
    let listed = table(sh)?.into_iter().map(|f| f.name).collect();
    let missing = BTreeSet::difference(&listed, exported);
    let mut problems: Vec<String> = missing
        .map(|name| format!("{name} is not exported"))
        .collect();
    let extra = exported.difference(&listed);
    problems.extend(extra.map(|name| format!("{name} is exported, but not in the table")));
    Ok(problems)
}

/// What the dynamic linker reads: the name, and that the library stays loaded.
fn identity(sh: &Shell, library: &Path) -> Result<Vec<String>> {
    let dynamic = cmd!(sh, "readelf -dW {library}").quiet().read()?;
    let mut problems = Vec::new();
    if !dynamic.contains(&format!("Library soname: [{SONAME}]")) {
        problems.push(format!("the SONAME is not {SONAME}"));
    }
    if !dynamic.contains("NODELETE") {
        problems.push("not linked with -z nodelete".to_owned());
    }
    if dynamic.contains("(VERDEF)") {
        problems.push("symbol versions are defined; liblsl has none".to_owned());
    }
    Ok(problems)
}
