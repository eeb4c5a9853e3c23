//! Files of ours in other people's programs, and theirs here: `age` (in `LSL_STOCK_AGE`) and `rage` (in
//! `LSL_STOCK_RAGE`). Run by `cargo xtask at-rest`; without a program its cases are ignored and say so.
#![expect(clippy::print_stdout, reason = "a test runner talks to its user")]
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};
use lsl_xdf::at_rest::{
    Decrypting, Encrypting, End, Ending, Identities, KeyPair, Options, Passphrase, Recipients,
    Rewrap, Work, lock_stream, rotate,
};

type Outcome = Result<(), Failed>;
type Case = fn(&Stage) -> Outcome;

const CASES: [(&str, Case); 6] = [
    ("opens_ours", opens_ours),
    ("is_opened_by_us", is_opened_by_us),
    ("opens_ours_with_ssh_keys", ssh_keys),
    ("opens_what_was_rotated", opens_rotated),
    ("gives_the_whole_chunks_of_ours", gives_whole_chunks),
    ("opens_ours_with_a_passphrase", opens_passphrase),
];

const CHUNK: usize = 64 * 1024;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (name, variable) in [("age", "LSL_STOCK_AGE"), ("rage", "LSL_STOCK_RAGE")] {
        let program = env::var_os(variable).map(PathBuf::from);
        if program.is_none() {
            println!("stock_age: {name} ignored: {variable} names no program");
        }
        for (case, run) in CASES {
            let program = program.clone();
            let ignored = program.is_none();
            let full_name = format!("{name}_{case}");
            let stage = full_name.clone();
            let trial = Trial::test(full_name, move || {
                run(&Stage::new(&stage, program.ok_or("no program")?)?)
            });
            trials.push(trial.with_ignored_flag(ignored));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A program and a folder to use it in.
struct Stage {
    program: PathBuf,
    folder: PathBuf,
}

impl Stage {
    fn new(name: &str, program: PathBuf) -> Result<Self, Failed> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        Ok(Self { program, folder })
    }

    /// A file in the folder with this content.
    fn file(&self, name: &str, content: &[u8]) -> Result<PathBuf, Failed> {
        let path = self.folder.join(name);
        fs::write(&path, content)?;
        Ok(path)
    }

    fn identity_file(&self, pair: &KeyPair) -> Result<PathBuf, Failed> {
        self.file("identity.txt", pair.identity.as_bytes())
    }

    /// What the program prints, given `input`.
    fn run(&self, arguments: &[&std::ffi::OsStr], input: &[u8]) -> Result<Output, Failed> {
        let mut child = Command::new(&self.program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().ok_or("no input")?;
        let input = input.to_vec();
        // It may print before it has read everything, and end before that too.
        let feeder = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output()?;
        let _ = feeder.join();
        Ok(output)
    }

    fn decrypt(&self, identity: &Path, file: &[u8]) -> Result<Output, Failed> {
        self.run(&["-d".as_ref(), "-i".as_ref(), identity.as_ref()], file)
    }
}

fn opens_ours(stage: &Stage) -> Outcome {
    let pair = KeyPair::generate();
    let identity = stage.identity_file(&pair)?;
    for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 4 * CHUNK, 9 * CHUNK + 77] {
        let plain = bytes(len);
        let recipients = recipients(&pair)?;
        for threads in [None, Some(0), Some(2)] {
            let file = match threads {
                None => encrypt(&plain, &recipients)?,
                Some(threads) => {
                    let mut file = Vec::new();
                    let work = Work {
                        threads,
                        ..Work::quiet()
                    };
                    lock_stream(&plain[..], &mut file, &recipients, &work)?;
                    file
                }
            };
            expect(&stage.decrypt(&identity, &file)?, &plain)?;
        }
    }
    Ok(())
}

fn is_opened_by_us(stage: &Stage) -> Outcome {
    let pair = KeyPair::generate();
    let mut identities = Identities::new();
    identities.add("test", &pair.identity)?;
    for len in [0, 1, CHUNK, CHUNK + 1, 9 * CHUNK + 77] {
        let plain = bytes(len);
        let arguments = ["-e".as_ref(), "-r".as_ref(), pair.recipient.as_ref()];
        let output = stage.run(&arguments, &plain)?;
        let (read, end) = decrypt(&output.stdout, &identities)?;
        if read != plain || end != End::Whole {
            return Err(format!("{len} bytes came back as {} and {end:?}", read.len()).into());
        }
    }
    Ok(())
}

fn ssh_keys(stage: &Stage) -> Outcome {
    let plain = bytes(1000);
    let lock = |public: &Path| {
        let arguments = ["-e".as_ref(), "-R".as_ref(), public.as_ref()];
        stage.run(&arguments, &plain)
    };
    let public = key_file("ssh_ed25519.pub");
    let mut recipients = Recipients::new();
    recipients.add_file(&public)?;
    // OpenSSH's rules for permissions are not git's.
    let private = stage.file("ssh_ed25519", &fs::read(key_file("ssh_ed25519"))?)?;
    let ours = encrypt(&plain, &recipients)?;
    expect(&stage.decrypt(&private, &ours)?, &plain)?;

    let mut identities = Identities::new();
    identities.add_file(&private, &mut |_| None)?;
    if decrypt(&lock(&public)?.stdout, &identities)? != (plain.clone(), End::Whole) {
        return Err("theirs came back changed".into());
    }

    let theirs = lock(&key_file("ssh_rsa.pub"))?.stdout;
    match Decrypting::new(&theirs[..], &identities, Ending::Strict) {
        Err(error) if error.to_string().contains("1 ssh-rsa key") => Ok(()),
        other => Err(format!("a file locked to an RSA key: {other:?}").into()),
    }
}

fn opens_rotated(stage: &Stage) -> Outcome {
    let (old, new) = (KeyPair::generate(), KeyPair::generate());
    let plain = bytes(5 * CHUNK + 3);
    let arguments = ["-e".as_ref(), "-r".as_ref(), old.recipient.as_ref()];
    let theirs = stage.run(&arguments, &plain)?.stdout;
    let path = stage.file("sub.xdf.age", &theirs)?;
    let mut identities = Identities::new();
    identities.add("test", &old.identity)?;
    let outcomes = rotate(
        std::slice::from_ref(&path),
        &identities,
        &recipients(&new)?,
        Rewrap::Header,
        &Options::default(),
    );
    for outcome in outcomes {
        outcome.result?;
    }
    let rotated = fs::read(&path)?;
    expect(
        &stage.decrypt(&stage.identity_file(&new)?, &rotated)?,
        &plain,
    )?;
    let refused = stage.decrypt(&stage.identity_file(&old)?, &rotated)?;
    if refused.status.success() {
        return Err("the old key still opens it".into());
    }
    Ok(())
}

fn gives_whole_chunks(stage: &Stage) -> Outcome {
    let pair = KeyPair::generate();
    let identity = stage.identity_file(&pair)?;
    let plain = bytes(3 * CHUNK + 500);
    // As a killed recorder leaves it.
    let mut file = Vec::new();
    let mut writer = Encrypting::new(&mut file, &recipients(&pair)?)?;
    writer.write_all(&plain)?;
    drop(writer);
    for cut in [0, 1, 1000] {
        let stump = &file[..file.len() - cut];
        let output = stage.decrypt(&identity, stump)?;
        let whole = if cut == 0 { 3 } else { 2 } * CHUNK;
        if output.status.success() {
            return Err("a cut off file was called whole".into());
        }
        if output.stdout != plain[..whole] {
            return Err(format!("{} bytes instead of {whole}", output.stdout.len()).into());
        }
    }
    Ok(())
}

/// The programs read passphrases from a terminal only; `script` gives them one.
fn opens_passphrase(stage: &Stage) -> Outcome {
    let plain = bytes(1000);
    let recipients = Recipients::with_passphrase(&Passphrase::new("open sesame".into()));
    let file = stage.file("sub.xdf.age", &encrypt(&plain, &recipients)?)?;
    let output = stage.folder.join("sub.xdf");
    let command = format!(
        "'{}' -d -o '{}' '{}'",
        stage.program.display(),
        output.display(),
        file.display()
    );
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        // rage would ask with a window, or any other program of that name.
        .env("PINENTRY_PROGRAM", "")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .ok_or("no input")?
        .write_all(b"open sesame\n")?;
    let told = child.wait_with_output()?;
    if !told.status.success() || fs::read(&output)? != plain {
        return Err(format!("{}: {}", told.status, String::from_utf8_lossy(&told.stdout)).into());
    }
    Ok(())
}

fn expect(output: &Output, plain: &[u8]) -> Outcome {
    if output.status.success() && output.stdout == plain {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let len = output.stdout.len();
    Err(format!(
        "{len} bytes instead of {}, {}: {said}",
        plain.len(),
        output.status
    )
    .into())
}

fn recipients(pair: &KeyPair) -> Result<Recipients, Failed> {
    let mut recipients = Recipients::new();
    recipients.add("test", &pair.recipient)?;
    Ok(recipients)
}

fn encrypt(plain: &[u8], recipients: &Recipients) -> Result<Vec<u8>, Failed> {
    let mut writer = Encrypting::new(Vec::new(), recipients)?;
    writer.write_all(plain)?;
    Ok(writer.finish()?)
}

fn decrypt(file: &[u8], identities: &Identities) -> Result<(Vec<u8>, End), Failed> {
    let mut reader = Decrypting::new(file, identities, Ending::Tolerant)?;
    let mut plain = Vec::new();
    reader.read_to_end(&mut plain)?;
    Ok((plain, reader.end().ok_or("no end")?))
}

fn key_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/vectors/keys")
        .join(name)
}

/// Bytes that repeat nowhere near a chunk's length.
fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|index| (index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
        .collect()
}
