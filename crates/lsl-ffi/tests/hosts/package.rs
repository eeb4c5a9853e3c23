//! The library as an installed package: found by CMake and pkg-config, and put in liblsl's place
//! below a program that was built against liblsl itself.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::stage::{Outcome, Stage, libraries_from, run, source_of};
use crate::{Need, Test};

/// The folder with liblsl's public headers.
const HEADERS: &str = "LSL_HOSTS_LIBLSL_HEADERS";

/// The real liblsl to link with.
const LIBLSL: &str = "LSL_HOSTS_LIBLSL";

pub(crate) fn tests() -> Vec<Test> {
    let test = |name: &str, needs: &[Need], run: fn(&Stage) -> Outcome| Test {
        name: format!("package/{name}"),
        needs: needs.to_vec(),
        run: Box::new(run),
    };
    vec![
        test("cmake", &[Need::Tool("cmake"), Need::Tool("c++")], cmake),
        test("lslver", &[Need::Tool("cc")], lslver),
        test(
            "pkg-config",
            &[Need::Tool("pkg-config"), Need::Tool("cc")],
            pkg_config,
        ),
        test("static library", &[Need::Tool("cc")], static_library),
        test(
            "replaces liblsl below a C++ program",
            &[
                Need::Tool("c++"),
                Need::Variable(HEADERS),
                Need::Variable(LIBLSL),
            ],
            |stage| replacement(stage, "replacement", &Stage::path(HEADERS)?),
        ),
        test(
            "our lsl_cpp.h, with liblsl and with ours",
            &[Need::Tool("c++"), Need::Variable(LIBLSL)],
            |stage| replacement(stage, "cpp", &stage.prefix()?.join("include")),
        ),
        test(
            "liblsl's lsl_cpp.h on our header",
            &[Need::Tool("c++"), Need::Variable(HEADERS)],
            their_cpp_on_our_c,
        ),
    ]
}

fn cmake(stage: &Stage) -> Outcome {
    let folder = stage.folder("cmake")?;
    let build = folder.join("build");
    let mut configure = Command::new("cmake");
    configure
        .arg("-S")
        .arg(source_of("package"))
        .arg("-B")
        .arg(&build)
        .arg(format!("-DCMAKE_PREFIX_PATH={}", stage.prefix()?.display()));
    run(configure, &folder.join("configure.log"), LIMIT)?;
    let mut make = Command::new("cmake");
    make.arg("--build").arg(&build);
    run(make, &folder.join("build.log"), LIMIT)?;
    let said = Stage::run(Command::new(build.join("consumer")), &folder)?;
    contains(&said, "lsl-rs")?;
    let installed = folder.join("installed");
    let mut install = Command::new("cmake");
    install
        .arg("--install")
        .arg(&build)
        .arg("--prefix")
        .arg(&installed);
    run(install, &folder.join("install.log"), LIMIT)?;
    // What the functions of LSLCMake did: a program, its library and a file in the project's folder.
    let installed = installed.join("consumer");
    let said = Stage::run(Command::new(installed.join("program")), &folder)?;
    contains(&said, "works with lsl-rs")?;
    let is_file =
        |name: &str| fs::symlink_metadata(installed.join(name)).is_ok_and(|file| file.is_file());
    for name in ["liblsl.so.2", "consumer.c"] {
        if !is_file(name) {
            return Err(format!(
                "{name} was not installed in {}",
                installed.display()
            ));
        }
    }
    let packing = fs::read_to_string(build.join("CPackConfig.cmake"));
    contains(
        &packing.map_err(|error| error.to_string())?,
        "consumer-1.2-",
    )
}

/// In three lines: the version, the library, its clock.
fn lslver(stage: &Stage) -> Outcome {
    let folder = stage.folder("lslver")?;
    let program = stage.compile("cc", "../pkg/lslver.c", &["-Wpedantic"], &folder)?;
    let said = Stage::run(Command::new(program), &folder)?;
    let lines: Vec<&str> = said.lines().collect();
    match lines.as_slice() {
        ["LSL version: 118", library, clock]
            if library.contains("lsl-rs") && clock.parse::<f64>().is_ok() =>
        {
            Ok(())
        }
        _ => Err(format!("it said:\n{said}")),
    }
}

fn pkg_config(stage: &Stage) -> Outcome {
    let folder = stage.folder("pkg-config")?;
    let lib = stage.prefix()?.join("lib");
    let mut ask = Command::new("pkg-config");
    ask.args(["--cflags", "--libs", "lsl >= 1.18"]);
    ask.env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
    let flags = run(ask, &folder.join("pkg-config.log"), LIMIT)?;
    let program = folder.join("program");
    let mut compile = Command::new("cc");
    compile
        .arg(source_of("package/consumer.c"))
        .arg("-o")
        .arg(&program)
        .args(flags.split_whitespace());
    run(compile, &folder.join("compile.log"), LIMIT)?;
    let mut command = Command::new(&program);
    libraries_from(&mut command, lib);
    contains(&Stage::run(command, &folder)?, "lsl-rs")
}

/// The library inside the program, which needs no file of ours at run time.
fn static_library(stage: &Stage) -> Outcome {
    let folder = stage.folder("static")?;
    let prefix = stage.prefix()?;
    let program = folder.join("program");
    let mut compile = Command::new("cc");
    compile
        .arg("-DLIBLSL_STATIC")
        .arg("-I")
        .arg(prefix.join("include"))
        .arg(source_of("package/consumer.c"))
        .arg(prefix.join("lib/liblsl.a"))
        .arg("-o")
        .arg(&program)
        .args(["-lpthread", "-ldl", "-lm"]);
    run(compile, &folder.join("compile.log"), LIMIT)?;
    contains(&Stage::run(Command::new(program), &folder)?, "lsl-rs")
}

/// Built against the headers in a folder, linked with liblsl, run with ours.
fn replacement(stage: &Stage, name: &str, headers: &Path) -> Outcome {
    let folder = stage.folder(name)?;
    let liblsl = Stage::path(LIBLSL)?;
    // The name that programs ask the dynamic linker for.
    let theirs = folder.join("theirs");
    fs::create_dir(&theirs).map_err(|error| error.to_string())?;
    fs::copy(&liblsl, theirs.join("liblsl.so.2")).map_err(|error| error.to_string())?;
    let program = folder.join("program");
    let mut compile = Command::new("c++");
    compile
        .arg("-I")
        .arg(headers)
        .arg(source_of("package/program.cpp"))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&theirs)
        .args(["-l:liblsl.so.2", "-lpthread"]);
    run(compile, &folder.join("compile.log"), LIMIT)?;
    // With the library it was made for it must work, or it proves nothing about ours.
    let said = run_with(&program, &theirs, &folder)?;
    contains(&said, "works with git:")?;
    let said = run_with(&program, &stage.prefix()?.join("lib"), &folder)?;
    contains(&said, "works with lsl-rs")
}

/// The same program against our `lsl_c.h`, with only `lsl_cpp.h` taken from liblsl.
fn their_cpp_on_our_c(stage: &Stage) -> Outcome {
    let folder = stage.folder("cpp-on-ours")?;
    let header = Stage::path(HEADERS)?.join("lsl_cpp.h");
    fs::copy(header, folder.join("lsl_cpp.h")).map_err(|error| error.to_string())?;
    let wrapper = format!("-I{}", folder.display());
    let program = stage.compile("c++", "package/program.cpp", &[&wrapper], &folder)?;
    contains(
        &Stage::run(Command::new(program), &folder)?,
        "works with lsl-rs",
    )
}

fn run_with(program: &Path, libraries: &Path, folder: &Path) -> Outcome<String> {
    let mut command = Command::new(program);
    libraries_from(&mut command, libraries);
    Stage::run(command, folder)
}

fn contains(said: &str, wanted: &str) -> Outcome {
    if said.contains(wanted) {
        Ok(())
    } else {
        Err(format!("no \"{wanted}\" in what it said:\n{said}"))
    }
}

const LIMIT: Duration = Duration::from_mins(2);
