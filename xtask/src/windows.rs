//! What a build for Windows has that others have not: resources, and import libraries. The tools for both
//! are zig's, which write the same bytes each time.

use std::path::{Path, PathBuf};

use xshell::{Shell, cmd};

use crate::{Result, abi, cross, zig};

pub(crate) const TRIPLE: &str = "x86_64-pc-windows-gnu";

/// The library's name everywhere: in the file, in import libraries and on the disk.
pub(crate) const LIBRARY: &str = "lsl.dll";

/// Compiles the resources of `lsl.dll` and `lsl.exe` below `folder`; where they lie, for `LSL_RESOURCES`.
pub(crate) fn resources(sh: &Shell, folder: &Path) -> Result<PathBuf> {
    let python = zig::python(sh)?;
    let folder = folder.join("resources");
    sh.write_file(folder.join("manifest.xml"), MANIFEST)?;
    let version = cross::version(sh)?;
    let (liblsl, words) = (abi::LIBLSL_VERSION, "Lab Streaming Layer");
    for (file, kind, product, more) in [
        (LIBRARY, 2, liblsl, ""),
        ("lsl.exe", 1, version.as_str(), "1 24 \"manifest.xml\"\n"),
    ] {
        let [numbers, product_numbers] =
            [&version, product].map(|version| version.replace('.', ",") + ",0");
        let source = folder.join(format!("{file}.rc"));
        // In American English and UTF-16, as everybody's are.
        sh.write_file(
            &source,
            format!(
                "{more}1 VERSIONINFO\nFILEVERSION {numbers}\nPRODUCTVERSION {product_numbers}\n\
                 FILEOS 0x40004\nFILETYPE {kind}\n{{\nBLOCK \"StringFileInfo\"\n{{\nBLOCK \"040904b0\"\n{{\n\
                 VALUE \"CompanyName\", \"lsl-rs developers\"\n\
                 VALUE \"FileDescription\", \"{words} (lsl-rs)\"\n\
                 VALUE \"FileVersion\", \"{version}\"\n\
                 VALUE \"InternalName\", \"lsl\"\n\
                 VALUE \"LegalCopyright\", \"MIT OR Apache-2.0\"\n\
                 VALUE \"OriginalFilename\", \"{file}\"\n\
                 VALUE \"ProductName\", \"lsl-rs\"\n\
                 VALUE \"ProductVersion\", \"{product}\"\n}}\n}}\n\
                 BLOCK \"VarFileInfo\"\n{{\nVALUE \"Translation\", 0x409, 1200\n}}\n}}\n"
            ),
        )?;
        let output = folder.join(format!("{file}.res"));
        cmd!(
            sh,
            "{python} -m ziglang rc /:auto-includes none {source} {output}"
        )
        .quiet()
        .run()?;
    }
    Ok(folder)
}

/// Writes what programs are linked with into `folder`: for MSVC and for MinGW the same file under two
/// names, and the list of names that it is made from.
pub(crate) fn import_libraries(sh: &Shell, folder: &Path) -> Result {
    let python = zig::python(sh)?;
    let definition = folder.join("lsl.def");
    sh.copy_file(abi::DEFINITION, &definition)?;
    let library = folder.join("lsl.lib");
    cmd!(
        sh,
        "{python} -m ziglang dlltool -m i386:x86-64 -d {definition} -D {LIBRARY} -l {library}"
    )
    .quiet()
    .run()?;
    sh.copy_file(&library, folder.join("liblsl.dll.a"))?;
    Ok(())
}

/// Text is UTF-8, paths may be long, nothing asks for an administrator; Windows 10 and newer.
const MANIFEST: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<assembly xmlns="urn:schemas-microsoft-com:asm.v1" manifestVersion="1.0">
  <trustInfo xmlns="urn:schemas-microsoft-com:asm.v3">
    <security>
      <requestedPrivileges>
        <requestedExecutionLevel level="asInvoker" uiAccess="false"/>
      </requestedPrivileges>
    </security>
  </trustInfo>
  <compatibility xmlns="urn:schemas-microsoft-com:compatibility.v1">
    <application>
      <supportedOS Id="{8e0f7a12-bfb3-4fe8-b9a5-48fd50a15a9a}"/>
    </application>
  </compatibility>
  <application xmlns="urn:schemas-microsoft-com:asm.v3">
    <windowsSettings>
      <activeCodePage xmlns="http://schemas.microsoft.com/SMI/2019/WindowsSettings">UTF-8</activeCodePage>
      <longPathAware xmlns="http://schemas.microsoft.com/SMI/2016/WindowsSettings">true</longPathAware>
    </windowsSettings>
  </application>
</assembly>
"#;
