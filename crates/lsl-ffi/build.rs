//! Names the library as programs linked against liblsl expect it. On Unix it stays loaded, because its
//! threads outlive `dlclose`; on Windows it exports what the table of the C ABI lists and nothing else.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

const TABLE: &str = "abi/abi.tsv";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LSL_RESOURCES");
    match env::var("CARGO_CFG_TARGET_OS").unwrap_or_default().as_str() {
        "linux" | "freebsd" => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liblsl.so.2");
            println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
        }
        // Found below whatever run path a program has; versions are those that liblsl has there.
        "macos" => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/liblsl.2.dylib");
            println!("cargo:rustc-cdylib-link-arg=-Wl,-compatibility_version,2.0.0");
            println!("cargo:rustc-cdylib-link-arg=-Wl,-current_version,1.18.0");
        }
        "windows" => windows()?,
        _ => {}
    }
    Ok(())
}

/// Gives the linker a module definition file, and the resources that `cargo xtask cross` compiled.
fn windows() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={TABLE}");
    let mut definition = "LIBRARY lsl.dll\nEXPORTS\n".to_owned();
    let table = fs::read_to_string(TABLE)?;
    for row in table.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let name = row.split('\t').nth(2).ok_or("a row without a name")?;
        writeln!(definition, "    {name}")?;
    }
    let file = Path::new(&env::var("OUT_DIR")?).join("lsl.def");
    fs::write(&file, definition)?;
    let option = match env::var("CARGO_CFG_TARGET_ENV")?.as_str() {
        "msvc" => "/DEF:",
        _ => "",
    };
    println!("cargo:rustc-cdylib-link-arg={option}{}", file.display());
    if let Ok(folder) = env::var("LSL_RESOURCES") {
        println!("cargo:rustc-cdylib-link-arg={folder}/lsl.dll.res");
    }
    Ok(())
}
