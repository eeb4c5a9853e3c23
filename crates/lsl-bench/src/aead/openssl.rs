//! `openssl speed` of this machine, as others publish it: sealing alone, with 13 bytes that are not encrypted.

use std::collections::BTreeMap;
use std::process::Command;

use lsl_cli::failure::{Failure, Outcome};
use lsl_core::secure::Suite;

/// Its version, if it is there.
pub(super) fn version() -> Option<String> {
    let asked = Command::new(PROGRAM).arg("version").output().ok()?;
    let text = String::from_utf8(asked.stdout).ok()?;
    asked.status.success().then(|| text.trim().to_owned())
}

/// One turn of a cipher, of at least a second; with or without the processor's instructions for AES.
pub(super) fn measure(
    suite: Suite,
    size: u32,
    secs: f64,
    has_instructions: bool,
) -> Outcome<BTreeMap<String, f64>> {
    let name = match suite {
        Suite::ChaCha20Poly1305 => "chacha20-poly1305",
        Suite::Aes256Gcm => "aes-256-gcm",
    };
    let (secs, bytes) = (format!("{:.0}", secs.max(1.0)), size.to_string());
    let mut command = Command::new(PROGRAM);
    command.args(["speed", "-mr", "-elapsed", "-seconds", &secs]);
    command.args(["-bytes", &bytes, "-aead", "-evp", name]);
    if !has_instructions {
        command.env("OPENSSL_ia32cap", WITHOUT_AES);
    }
    let output = command.output()?;
    let rate = String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(rate);
    let rate = rate.filter(|rate| *rate > 0.0 && output.status.success());
    let rate = rate.ok_or_else(|| {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or_default();
        Failure::Runtime(format!("openssl speed gives no figure: {last}"))
    })?;
    let values = [
        ("seal_ns", f64::from(size) / rate * 1e9),
        ("seal_mb_per_s", rate / 1e6),
    ];
    Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
}

/// Bytes per second, of a line such as `+F:25:AES-256-GCM:57424952.48`.
fn rate(line: &str) -> Option<f64> {
    line.strip_prefix("+F:")?.rsplit(':').next()?.parse().ok()
}

const PROGRAM: &str = "openssl";
/// Neither AES-NI nor PCLMULQDQ, as the page has it that this is held against.
const WITHOUT_AES: &str = "~0x200000200000000";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        assert_eq!(rate("+F:25:AES-256-GCM:57424952.48"), Some(57_424_952.48));
        assert_eq!(rate("+H:31"), None);
        assert_eq!(rate("+F:25:AES-256-GCM:"), None);
    }
}
