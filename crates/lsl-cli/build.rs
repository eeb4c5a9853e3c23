//! Gives `lsl.exe` its version and manifest, where `cargo xtask cross` compiled them, and tells the linker of
//! macOS where it described frameworks: those that nothing calls are left out.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LSL_RESOURCES");
    let Ok(folder) = std::env::var("LSL_RESOURCES") else {
        return;
    };
    match std::env::var("CARGO_CFG_TARGET_OS")
        .unwrap_or_default()
        .as_str()
    {
        "windows" => {
            println!("cargo:rerun-if-changed={folder}/lsl.exe.res");
            println!("cargo:rustc-link-arg-bins={folder}/lsl.exe.res");
        }
        "macos" => {
            println!("cargo:rustc-link-arg-bins=-F{folder}");
            println!("cargo:rustc-link-arg-bins=-Wl,-dead_strip_dylibs");
        }
        _ => {}
    }
}
