//! The program `lsl`. All of it is in the library, parts of which `lsl-bench` uses too.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    lsl_cli::run(std::env::args_os())
}
