//! The table's signatures held against both sides: lsl-ffi's Rust, by constants of function pointer
//! type that are compiled with the crate, and C headers, by the same in C.

use std::fmt::Write as _;
use std::path::Path;

use xshell::{Shell, cmd};

use super::{Function, INCLUDE, cpp};
use crate::{Result, hosts, zig};

/// C++ for Windows, by zig.
const WINDOWS_CXX: &[&str] = &["-m", "ziglang", "c++", "-target", "x86_64-windows-gnu"];

/// The C standards that the headers must satisfy.
const STANDARDS: &[&str] = &["c89", "c99", "c11", "c17"];

/// A module of lsl-ffi that compiles only if every function has the table's signature.
pub(super) fn in_rust(functions: &[Function]) -> Result<String> {
    let mut text = String::from(
        "//! Holds every exported function against `abi/abi.tsv`: a wrong type does not compile. Made by\n\
         //! `cargo xtask headers`, not by hand.\n\
         #![cfg_attr(not(test), expect(clippy::wildcard_imports, reason = \"every function there is\"))]\n\n\
         use std::ffi::{c_char, c_ulong, c_void};\n\n\
         use crate::handle::Handle;\n\
         use crate::inlet::{pull::*, pull_text::*, *};\n\
         use crate::outlet::{push::*, push_text::*, *};\n\
         use crate::{common::*, ext::*, log::*, resolver::*, resume::*, security::*, streaminfo::*, xml::*};\n\n",
    );
    for function in functions {
        let parameters = function
            .parameters
            .iter()
            .map(|parameter| rust_type(c_type(parameter)));
        let parameters: Vec<String> = parameters.collect::<Result<_>>()?;
        let result = match function.returns.as_str() {
            "void" => String::new(),
            returns => format!(" -> {}", rust_type(returns)?),
        };
        let (name, parameters) = (&function.name, parameters.join(", "));
        let abi = if waits(function) { "C-unwind" } else { "C" };
        writeln!(
            text,
            "const _: unsafe extern \"{abi}\" fn({parameters}){result} = {name};"
        )?;
    }
    Ok(text)
}

/// Whether a thread may be cancelled in a call, which glibc does by unwinding (`lsl-ffi/src/turns.rs`).
fn waits(function: &Function) -> bool {
    let is_limit = |name: &str| matches!(name, "double timeout" | "double wait_time");
    function.parameters.iter().any(|name| is_limit(name))
}

/// The type of a parameter: what stands before its name.
fn c_type(parameter: &str) -> &str {
    parameter
        .trim_end_matches(|c: char| c.is_alphanumeric() || c == '_')
        .trim_end()
}

fn rust_type(c_type: &str) -> Result<String> {
    if let Some(pointee) = c_type.strip_suffix('*') {
        let pointee = pointee.trim_end();
        return Ok(match pointee.strip_prefix("const ") {
            // A caller's array of texts: nothing is written into it, though its C type would allow it.
            Some(pointee) if pointee.ends_with('*') => {
                let pointee = pointee.trim_end_matches(['*', ' ']);
                format!("*const *const {}", rust_type(pointee)?)
            }
            Some(pointee) => format!("*const {}", rust_type(pointee)?),
            None => format!("*mut {}", rust_type(pointee)?),
        });
    }
    let plain = match c_type {
        "void" => "c_void",
        "char" => "c_char",
        "float" => "f32",
        "double" => "f64",
        "int16_t" => "i16",
        "int32_t" | "lsl_channel_format_t" | "lsl_transport_options_t" => "i32",
        "int64_t" => "i64",
        "uint32_t" => "u32",
        "uint64_t" => "u64",
        "unsigned long" => "c_ulong",
        "lsl_streaminfo"
        | "lsl_xml_ptr"
        | "lsl_outlet"
        | "lsl_inlet"
        | "lsl_continuous_resolver" => "Handle",
        "lslx_log_callback" => "Option<LogCallback>",
        "lslx_inlet_stats_t" => "InletStats",
        "lslx_inlet_health_t" => "InletHealth",
        "lslx_discovery_stats_t" => "DiscoveryStats",
        "lslx_outlet_stats_t" => "OutletStats",
        "lslx_consumer_t" => "Consumer",
        "lslx_gap_t" => "Gap",
        other => return Err(format!("no Rust type is known for {other}").into()),
    };
    Ok(plain.to_owned())
}

/// What a C compiler has against the headers: ours in every standard, and liblsl's, which must declare
/// the same types for the functions they know.
pub(super) fn compile(sh: &Shell, functions: &[Function]) -> Result<Vec<String>> {
    let folder = sh.current_dir().join("target/abi");
    let mut problems = headers(sh, functions, "cc", ("c++", &[]))?;
    problems.extend(against_liblsl(sh, functions, &folder)?);
    Ok(problems)
}

/// What compilers for Windows have against our headers: `cc`, and zig.
pub(super) fn compile_for_windows(
    sh: &Shell,
    functions: &[Function],
    cc: &str,
) -> Result<Vec<String>> {
    let python = zig::python(sh)?.display().to_string();
    headers(sh, functions, cc, (&python, WINDOWS_CXX))
}

fn headers(
    sh: &Shell,
    functions: &[Function],
    cc: &str,
    (cxx, of_cxx): (&str, &[&str]),
) -> Result<Vec<String>> {
    let folder = sh.current_dir().join("target/abi");
    let mut problems = Vec::new();
    for header in ["lsl_c.h", "lslx.h"] {
        let includes = format!("#include \"{header}\"\n#include \"lsl/common.h\"\n");
        let is_known = |f: &Function| header == "lslx.h" || f.name.starts_with("lsl_");
        let known = functions.iter().filter(|function| is_known(function));
        let source = folder.join(header).with_extension("c");
        sh.write_file(&source, in_c(&includes, known)?)?;
        // Not `-fsyntax-only`, for which zig builds all of its C library.
        let object = source.with_extension("o");
        let options = ["-Wall", "-Wextra", "-Werror", "-c", "-I", INCLUDE];
        for standard in STANDARDS {
            let standard = format!("-std={standard}");
            let run = cmd!(
                sh,
                "{cc} {standard} -pedantic {options...} {source} -o {object}"
            );
            problems.extend(run.run().err().map(|error| format!("{header}: {error}")));
        }
        let run = cmd!(
            sh,
            "{cxx} {of_cxx...} {options...} -x c++ {source} -o {object}"
        );
        problems.extend(run.run().err().map(|error| format!("{header}: {error}")));
    }
    problems.extend(cpp::compile(sh, (cxx, of_cxx)));
    Ok(problems)
}

fn against_liblsl(sh: &Shell, functions: &[Function], folder: &Path) -> Result<Vec<String>> {
    let include = match hosts::headers(sh) {
        Ok(include) => include,
        Err(error) if crate::is_gate() => return Err(error),
        Err(error) => {
            println!("abi: SKIPPED, no headers of liblsl to compare with: {error}");
            return Ok(Vec::new());
        }
    };
    let header = sh.read_file(include.join("lsl_c.h"))?;
    let declared = |function: &&Function| {
        header
            .match_indices(&function.name)
            .any(|(at, name)| header[at + name.len()..].starts_with('('))
    };
    let known: Vec<_> = functions.iter().filter(declared).collect();
    println!(
        "abi: {} signatures are in liblsl's header, too",
        known.len()
    );
    let source = folder.join("liblsl.c");
    // That release had no name for the flags yet, which are 32 bits wide.
    let includes = "#include \"lsl_c.h\"\ntypedef int32_t lsl_transport_options_t;\n";
    sh.write_file(&source, in_c(includes, known.into_iter())?)?;
    let run = cmd!(
        sh,
        "cc -Werror=incompatible-pointer-types -fsyntax-only -I {include} {source}"
    );
    let error = run.run().err();
    let mut problems = cpp::against_liblsl(sh, &include)?;
    problems.extend(error.map(|error| format!("liblsl's header: {error}")));
    Ok(problems)
}

/// A C file that compiles only if the headers declare these functions with these types.
fn in_c<'a>(includes: &str, functions: impl Iterator<Item = &'a Function>) -> Result<String> {
    let mut text = includes.to_owned();
    let mut body = String::new();
    for function in functions {
        let types: Vec<&str> = function.parameters.iter().map(|p| c_type(p)).collect();
        let types = if types.is_empty() {
            "void".to_owned()
        } else {
            types.join(", ")
        };
        let (returns, name) = (&function.returns, &function.name);
        writeln!(text, "extern {returns} (*const check_{name})({types});")?;
        writeln!(body, "{returns} (*const check_{name})({types}) = {name};")?;
    }
    text.push_str(&body);
    Ok(text)
}
