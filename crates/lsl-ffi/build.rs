//! Names the library as programs linked against liblsl expect it, and keeps it loaded: its threads
//! outlive `dlclose`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if os == "linux" || os == "freebsd" {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liblsl.so.2");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
