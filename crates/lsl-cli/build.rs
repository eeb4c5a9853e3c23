//! Gives `lsl.exe` its version and manifest, where `cargo xtask cross` compiled them.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LSL_RESOURCES");
    if let Ok(folder) = std::env::var("LSL_RESOURCES") {
        println!("cargo:rustc-link-arg-bins={folder}/lsl.exe.res");
    }
}
