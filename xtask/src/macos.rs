//! What a build for macOS has that others have not: two halves, and frameworks that no SDK is there for.

use std::path::{Path, PathBuf};

use xshell::Shell;

use crate::Result;

/// Both halves in one file, as cargo-zigbuild calls it.
pub(crate) const TRIPLE: &str = "universal2-apple-darwin";
pub(crate) const HALVES: [&str; 2] = ["aarch64-apple-darwin", "x86_64-apple-darwin"];

/// The oldest that the builds run on, the first for both processors; also what the wheel's tag promises.
pub(crate) const OLDEST: &str = "11.0";

/// The library's name for programs, below the run path that each of them has.
pub(crate) const LIBRARY: &str = "@rpath/liblsl.2.dylib";

/// Describes to the linker, below `folder`, a framework that a crate of `lsl` asks for: without any function,
/// so that nothing links that calls one. The linker leaves it out, which `artefact` checks.
pub(crate) fn frameworks(sh: &Shell, folder: &Path) -> Result<PathBuf> {
    let folder = folder.join("frameworks");
    sh.write_file(
        folder.join("CoreFoundation.framework/CoreFoundation.tbd"),
        "--- !tapi-tbd\n\
         tbd-version: 4\n\
         targets: [ x86_64-macos, arm64-macos ]\n\
         install-name: '/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation'\n\
         ...\n",
    )?;
    Ok(folder)
}
