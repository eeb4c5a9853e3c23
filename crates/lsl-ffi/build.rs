//! Names the library as programs linked against liblsl expect it. On Unix it stays loaded, because its
//! threads outlive `dlclose`; on Windows it exports what the table of the C ABI lists and nothing else.

use std::env;
use std::error::Error;

/// Made by `cargo xtask headers` of the table, as the headers are.
const DEFINITION: &str = "abi/lsl.def";

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

/// Gives the linker the module definition file, and the resources that `cargo xtask cross` compiled.
fn windows() -> Result<(), Box<dyn Error>> {
    let folder = env::var("CARGO_MANIFEST_DIR")?;
    let option = match env::var("CARGO_CFG_TARGET_ENV")?.as_str() {
        "msvc" => "/DEF:",
        _ => "",
    };
    println!("cargo:rerun-if-changed={DEFINITION}");
    println!("cargo:rustc-cdylib-link-arg={option}{folder}/{DEFINITION}");
    if let Ok(folder) = env::var("LSL_RESOURCES") {
        println!("cargo:rerun-if-changed={folder}/lsl.dll.res");
        println!("cargo:rustc-cdylib-link-arg={folder}/lsl.dll.res");
    }
    Ok(())
}
