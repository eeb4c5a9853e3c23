//! Gives `lsl.exe` its version and manifest, where `cargo xtask cross` compiled them.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LSL_RESOURCES");
    let is_windows = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "windows");
    if let Ok(folder) = std::env::var("LSL_RESOURCES")
        && is_windows
    {
        println!("cargo:rerun-if-changed={folder}/lsl.exe.res");
        println!("cargo:rustc-link-arg-bins={folder}/lsl.exe.res");
    }
}
