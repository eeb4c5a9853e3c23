//! What people download: for each target an archive and a Python wheel, for Linux a Debian package, then
//! checksums and a bill of materials. The same sources and tools give the same bytes, wherever the checkout
//! lies: times are that of the commit, orders are by name, owners are nobody. Only those for macOS differ: what is
//! linked for it has a new number (LC_UUID) each time.

mod try_wheel;
mod wheel;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use xshell::{Shell, cmd};

use crate::cross::{self, Build, GLIBC, System, Target};
use crate::{Result, abi, macos, zig};

/// The product's name in packages.
const NAME: &str = "lsl-rs";

const DIST: &str = "target/dist";
const STAGE: &str = "target/dist/stage";
const SUMS: &str = "SHA256SUMS";

const CARGO_DEB: &str = "3.8.0";
const CARGO_CYCLONEDX: &str = "0.5.9";

const NO_PAGES: &str =
    "none of the targets runs on this machine; pages come from the command itself: dist linux";

/// What is the same for everything made in one run.
struct Release {
    version: String,
    /// The time that is written wherever a format wants one: seconds since 1970.
    epoch: String,
    /// Where cargo's tools are.
    search_path: std::ffi::OsString,
}

/// Build everything, or what is for `system`; to `prove` it, pack twice and fail unless both times gave the
/// same bytes, and try the wheel of this machine.
pub(crate) fn run(sh: &Shell, system: Option<&str>, prove: bool) -> Result {
    let release = Release {
        version: cross::version(sh)?,
        epoch: cross::epoch(sh)?,
        search_path: tools(sh)?,
    };
    let targets = cross::select(system)?;
    let is_linux = |target: &Target| matches!(target.system, System::Linux { .. });
    if targets.iter().any(is_linux) && !targets.iter().any(|target| is_for_this_machine(*target)) {
        return Err(NO_PAGES.into());
    }
    let builds = targets
        .into_iter()
        .map(|target| cross::build(sh, target))
        .collect::<Result<Vec<_>>>()?;
    let sums = pack(sh, &release, &builds)?;
    if prove && pack(sh, &release, &builds)? != sums {
        return Err("dist: packing twice gave different files".into());
    }
    if prove && builds.iter().any(|build| is_for_this_machine(build.target)) {
        try_wheel::run(sh, &release)?;
    }
    print!("{sums}");
    println!("dist: {} files in {DIST}", sums.lines().count());
    Ok(())
}

/// The search path with cargo-deb and cargo-cyclonedx. Of these versions: what they write is promised to
/// be the same again.
fn tools(sh: &Shell) -> Result<std::ffi::OsString> {
    let mut path = sh.current_dir().join("target/tools/bin").into_os_string();
    path.push(":");
    path.push(sh.var_os("PATH").unwrap_or_default());
    let lacking: Vec<String> = [("deb", CARGO_DEB), ("cyclonedx", CARGO_CYCLONEDX)]
        .into_iter()
        .filter(|(name, version)| {
            let asked = cmd!(sh, "cargo {name} --version").env("PATH", &path);
            let said = asked.quiet().ignore_stderr().read();
            !said.is_ok_and(|said| said.contains(version))
        })
        .map(|(name, version)| format!("cargo-{name}@{version}"))
        .collect();
    if lacking.is_empty() {
        return Ok(path);
    }
    Err(format!(
        "packing needs {0}; get it by: cargo install --locked --root target/tools {0}",
        lacking.join(" ")
    )
    .into())
}

/// Make all files anew; their checksums, as `sha256sum` writes them.
fn pack(sh: &Shell, release: &Release, builds: &[Build]) -> Result<String> {
    sh.remove_path(DIST)?;
    sh.create_dir(STAGE)?;
    let made_here = (builds.iter()).find(|build| is_for_this_machine(build.target));
    let pages = made_here.map(|build| pages(sh, build, release));
    let pages = pages.transpose()?;
    for build in builds {
        let bill = bill_of_materials(sh, release, build.target)?;
        match build.target.system {
            System::Linux { debian, multiarch } => {
                let pages = pages.as_ref().ok_or(NO_PAGES)?;
                let name = format!("{NAME}-{}-{}", release.version, build.target.triple);
                let tree = Path::new(STAGE).join(&name);
                lay_out(sh, build, &tree, "lib", &bill)?;
                lay_out_unix(sh, &tree, pages)?;
                archive(sh, release, &name)?;

                let tree = Path::new(STAGE).join("deb");
                sh.remove_path(&tree)?;
                lay_out(sh, build, &tree, &format!("lib/{multiarch}"), &bill)?;
                lay_out_unix(sh, &tree, pages)?;
                lay_out_as_liblsl(sh, &tree, build.target, multiarch)?;
                // Debian's zsh looks for what packages complete here, not in the folder of all others.
                let zsh = tree.join("share/zsh");
                std::fs::rename(zsh.join("site-functions"), zsh.join("vendor-completions"))?;
                deb(sh, release, build.target, debian)?;
            }
            System::Windows => {
                let name = format!("{NAME}-{}-Win_amd64", release.version);
                lay_out(sh, build, &Path::new(STAGE).join(&name), "lib", &bill)?;
                zip(sh, release, &name)?;
            }
            System::MacOs => {
                let name = format!("{NAME}-{}-macos-universal2", release.version);
                lay_out(sh, build, &Path::new(STAGE).join(&name), "lib", &bill)?;
                archive(sh, release, &name)?;
            }
        }
        wheel::pack(sh, release, build)?;
    }
    sh.remove_path(STAGE)?;
    sums(sh)
}

/// Whether what is built for `target` can be run here.
fn is_for_this_machine(target: Target) -> bool {
    matches!(target.system, System::Linux { .. }) && target.machine == std::env::consts::ARCH
}

/// What every target's users get, as it lies below a prefix such as `/usr`.
fn lay_out(sh: &Shell, build: &Build, prefix: &Path, libdir: &str, bill: &Path) -> Result {
    let bin = prefix.join("bin");
    sh.create_dir(&bin)?;
    for program in &build.programs {
        sh.copy_file(program, &bin)?;
    }
    abi::lay_out(sh, &build.library, prefix, libdir)?;
    let doc = prefix.join("share/doc").join(NAME);
    sh.create_dir(&doc)?;
    for file in ["README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        sh.copy_file(file, doc.join(file))?;
    }
    sh.copy_file("crates/lsl-ffi/COMPAT.md", doc.join("COMPAT.md"))?;
    sh.copy_file(bill, doc.join("bill-of-materials.cdx.json"))?;
    Ok(())
}

/// What liblsl's own package has besides, for programs that look nowhere else: links to the library in `lib`,
/// and `lslver`.
fn lay_out_as_liblsl(sh: &Shell, prefix: &Path, target: Target, multiarch: &str) -> Result {
    let lib = prefix.join("lib");
    for name in ["liblsl.so", abi::SONAME] {
        abi::symlink(format!("{multiarch}/{name}"), lib.join(name))?;
    }
    let python = zig::python(sh)?;
    let machine = format!("{}-linux-gnu.{GLIBC}", target.machine);
    let (include, linked) = (prefix.join("include"), lib.join(multiarch));
    let program = prefix.join("bin/lslver");
    cmd!(
        sh,
        "{python} -m ziglang cc -target {machine} -O2 -fPIE -pie -s -I {include}
            crates/lsl-ffi/pkg/lslver.c -o {program} -L {linked} -llsl"
    )
    .quiet()
    .run()?;
    Ok(())
}

/// Manual pages, completions and the service, in their places below the same prefix.
fn lay_out_unix(sh: &Shell, prefix: &Path, pages: &Path) -> Result {
    let share = prefix.join("share");
    cmd!(sh, "cp -r {pages}/. {share}").quiet().run()?;
    for (file, place) in [
        ("lsl@.service", "systemd/user/lsl@.service"),
        ("lsl-relay.service", "systemd/system/lsl-relay.service"),
        ("lsl.sysusers", "sysusers.d/lsl.conf"),
    ] {
        let place = prefix.join("lib").join(place);
        sh.create_dir(place.parent().ok_or("no folder")?)?;
        sh.copy_file(Path::new("crates/lsl-cli/systemd").join(file), place)?;
    }
    Ok(())
}

/// Manual pages and completions of `lsl`, from the program that knows its benchmarks too.
fn pages(sh: &Shell, build: &Build, release: &Release) -> Result<PathBuf> {
    let lsl_bench = build.programs.last().ok_or("no programs")?;
    let share = Path::new(STAGE).join("pages");
    let manual = share.join("man/man1");
    sh.create_dir(&manual)?;
    cmd!(sh, "{lsl_bench} man {manual}")
        .env("SOURCE_DATE_EPOCH", &release.epoch)
        .quiet()
        .ignore_stderr()
        .run()?;
    for (shell, file) in [
        ("bash", "bash-completion/completions/lsl"),
        ("zsh", "zsh/site-functions/_lsl"),
        ("fish", "fish/vendor_completions.d/lsl.fish"),
    ] {
        let text = cmd!(sh, "{lsl_bench} completions {shell}").quiet().read()?;
        sh.write_file(share.join(file), text + "\n")?;
    }
    Ok(share)
}

/// What is inside, by name, version, licence and checksum, for those who have to know (CycloneDX). The
/// programs and the library are built from the same crates; the benchmarks have all of them.
fn bill_of_materials(sh: &Shell, release: &Release, target: Target) -> Result<PathBuf> {
    let triple = target.triple;
    // Both halves are of the same crates.
    let crates_of = match target.system {
        System::MacOs => macos::HALVES[0],
        _ => triple,
    };
    let name = "lsl-rs-bill-of-materials";
    cmd!(
        sh,
        "cargo cyclonedx --quiet --format json --target {crates_of} --no-build-deps
            --override-filename {name}"
    )
    .env("PATH", &release.search_path)
    .env("SOURCE_DATE_EPOCH", &release.epoch)
    .quiet()
    .run()?;
    // It writes one beside every manifest of the workspace, with the path of this checkout.
    let mut text = None;
    for member in members(sh)? {
        let file = member.join(format!("{name}.json"));
        if member.ends_with("lsl-bench") {
            text = Some(sh.read_file(&file)?);
        }
        sh.remove_path(file)?;
    }
    let text = text.ok_or("cargo-cyclonedx wrote nothing for lsl-bench")?;
    let here = format!("path+file://{}/", sh.current_dir().display());
    let bill = format!("{NAME}-{}-{triple}.cdx.json", release.version);
    let bill = Path::new(DIST).join(bill);
    sh.write_file(&bill, text.replace(&here, "path+file:///lsl-rs/"))?;
    Ok(bill)
}

/// The folders of the workspace's packages.
fn members(sh: &Shell) -> Result<Vec<PathBuf>> {
    let mut members = sh.read_dir("crates")?;
    members.extend(["benches", "examples", "xtask"].map(|name| sh.current_dir().join(name)));
    members.retain(|member| sh.path_exists(member.join("Cargo.toml")));
    Ok(members)
}

fn archive(sh: &Shell, release: &Release, name: &str) -> Result {
    let output = sh.current_dir().join(DIST).join(format!("{name}.tar.gz"));
    let epoch = &release.epoch;
    let tar = output.with_extension("");
    cmd!(
        sh,
        "tar --create --file={tar} --directory={STAGE} --format=gnu --sort=name --mtime=@{epoch}
            --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX {name}"
    )
    .quiet()
    .run()?;
    // Without the name and time of what it compresses.
    cmd!(sh, "gzip -9 --no-name {tar}").quiet().run()?;
    Ok(())
}

/// An archive as Windows opens it, with the same bytes each time.
fn zip(sh: &Shell, release: &Release, name: &str) -> Result {
    let output = sh.current_dir().join(DIST).join(format!("{name}.zip"));
    let epoch = &release.epoch;
    let _inside = sh.push_dir(Path::new(STAGE).join(name));
    cmd!(sh, "python3 -c {ZIP} {output} {epoch}")
        .quiet()
        .run()?;
    Ok(())
}

/// Packs the folder it runs in: in the order of the names, all at one time in UTC. Zip has even seconds.
const ZIP: &str = "
import pathlib, sys, time, zipfile
when = time.gmtime(max(int(sys.argv[2]), 315532800))[:6]
with zipfile.ZipFile(sys.argv[1], 'x') as archive:
    for file in sorted(pathlib.Path().rglob('*')):
        if file.is_file():
            entry = zipfile.ZipInfo(file.as_posix(), when)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED, 9)
";

fn deb(sh: &Shell, release: &Release, target: Target, debian: &str) -> Result {
    let Release {
        version,
        epoch,
        search_path,
    } = release;
    let triple = target.triple;
    let output = Path::new(DIST).join(format!("{NAME}_{version}_{debian}.deb"));
    cmd!(
        sh,
        "cargo deb --quiet --package lsl-cli --no-build --no-strip --target {triple}
            --deb-version {version} --output {output}"
    )
    .env("PATH", search_path)
    .env("SOURCE_DATE_EPOCH", epoch)
    .quiet()
    .run()?;
    Ok(())
}

fn sums(sh: &Shell) -> Result<String> {
    let mut files = sh.read_dir(DIST)?;
    files.sort();
    let mut text = String::new();
    for file in files {
        let digest = Sha256::digest(sh.read_binary_file(&file)?);
        for byte in digest {
            write!(text, "{byte:02x}")?;
        }
        let name = file.file_name().ok_or("a file without a name")?;
        writeln!(text, "  {}", name.to_string_lossy())?;
    }
    sh.write_file(Path::new(DIST).join(SUMS), &text)?;
    Ok(text)
}
