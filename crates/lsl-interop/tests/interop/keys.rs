//! Devices with keys: what a side of a cell is given when it is to encrypt. Every configuration lies in
//! a folder of its own, since the state of `migrate` is kept beside it.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use lsl_core::secure::trust::{Peer, TrustList, TrustedRole};
use lsl_core::secure::{OsRandom, PublicKey, SecretKey, keyfile};
use lsl_platform::files::{Who, create_directory, create_new};

use crate::cell::Outcome;
use crate::peer::locked;

/// Who a side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Device {
    /// Sends; trusted by the recorder to do so.
    Amplifier,
    /// Receives; trusted by the amplifier to do so.
    Recorder,
    /// Both trust it with nothing, it trusts both.
    Stranger,
}

impl Device {
    const ALL: [Self; 3] = [Self::Amplifier, Self::Recorder, Self::Stranger];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Amplifier => "amplifier",
            Self::Recorder => "recorder",
            Self::Stranger => "stranger",
        }
    }
}

/// `security.policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Policy {
    Off,
    Migrate,
    Required,
}

impl Policy {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Migrate => "migrate",
            Self::Required => "required",
        }
    }
}

/// The security configuration of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Keys {
    pub(crate) device: Device,
    pub(crate) policy: Policy,
    /// Whether discovery shows as little as it can.
    pub(crate) is_minimal: bool,
    /// Configurations of different scopes share the devices' keys, but no folder.
    pub(crate) scope: &'static str,
}

impl Keys {
    pub(crate) fn new(device: Device, policy: Policy) -> Self {
        Self {
            device,
            policy,
            is_minimal: false,
            scope: "all",
        }
    }

    /// As it is told in the name of a cell.
    pub(crate) fn name(self) -> String {
        let minimal = if self.is_minimal { " minimal" } else { "" };
        format!("{}{minimal}", self.policy.name())
    }

    fn config(self) -> String {
        let until = match self.policy {
            Policy::Migrate => "migrate_until = \"2199-12-31\"\n",
            Policy::Off | Policy::Required => "",
        };
        let discovery = if self.is_minimal { "minimal" } else { "open" };
        format!(
            "[security]\nname = \"{}\"\npolicy = \"{}\"\n{until}key_file = \"{KEY_FILE}\"\n\
             trusted_peers = \"{TRUST_FILE}\"\ndiscovery = \"{discovery}\"\n",
            self.device.name(),
            self.policy.name(),
        )
    }
}

/// The devices of this run and the configurations made so far.
#[derive(Default)]
pub(crate) struct Keyring {
    devices: OnceLock<Outcome<HashMap<Device, Made>>>,
    files: Mutex<HashMap<Keys, PathBuf>>,
}

/// A device's key.
struct Made {
    public: PublicKey,
    /// The key file, as it is copied to wherever the device is.
    pem: Vec<u8>,
}

impl Keyring {
    /// The configuration file for these keys, for `LSL_SECURE_CONFIG`.
    pub(crate) fn file(&self, keys: Keys) -> Outcome<PathBuf> {
        let mut files = locked(&self.files);
        if let Some(file) = files.get(&keys) {
            return Ok(file.clone());
        }
        let folder = new_folder(&format!(
            "{}-{}-{}",
            keys.scope,
            keys.device.name(),
            files.len()
        ))?;
        write_private(&folder.join(KEY_FILE), &self.made(keys.device)?.pem)?;
        let trusted = self.trusted_by(keys.device)?;
        write_private(&folder.join(TRUST_FILE), trusted.to_toml().as_bytes())?;
        let file = folder.join("lsl-secure.toml");
        write_private(&file, keys.config().as_bytes())?;
        files.insert(keys, file.clone());
        Ok(file)
    }

    /// As others see it.
    pub(crate) fn fingerprint(&self, device: Device) -> Outcome<String> {
        Ok(self.made(device)?.public.fingerprint().to_string())
    }

    /// What must never be sent: the private keys, in every form in which a program has them.
    pub(crate) fn secrets(&self) -> Outcome<Vec<Vec<u8>>> {
        let mut secrets = Vec::new();
        for device in [Device::Amplifier, Device::Recorder] {
            let pem = String::from_utf8_lossy(&self.made(device)?.pem).into_owned();
            for line in pem.lines().filter(|line| !line.starts_with('-')) {
                secrets.push(line.as_bytes().to_vec());
            }
            let seed = seed(&pem).ok_or("a key file that cannot be read")?;
            secrets.push(
                seed.iter()
                    .flat_map(|b| format!("{b:02x}").into_bytes())
                    .collect(),
            );
            secrets.push(seed);
        }
        Ok(secrets)
    }

    /// The recorder's public key, which only the amplifier may learn.
    pub(crate) fn hidden_identity(&self) -> Outcome<Vec<u8>> {
        Ok(self.made(Device::Recorder)?.public.as_bytes().to_vec())
    }

    fn made(&self, device: Device) -> Outcome<&Made> {
        let devices = self.devices.get_or_init(make);
        let devices = devices.as_ref().map_err(Clone::clone)?;
        devices
            .get(&device)
            .ok_or_else(|| "no such device".to_owned())
    }

    fn trusted_by(&self, device: Device) -> Outcome<TrustList> {
        let mut peers = Vec::new();
        for (other, role) in [
            (Device::Amplifier, TrustedRole::Outlet),
            (Device::Recorder, TrustedRole::Inlet),
        ] {
            if other != device {
                peers.push(Peer {
                    name: other.name().to_owned(),
                    key: self.made(other)?.public,
                    role,
                    not_after: None,
                    from: Vec::new(),
                    streams: Vec::new(),
                });
            }
        }
        TrustList::from_peers(peers).map_err(|error| error.to_string())
    }
}

fn make() -> Outcome<HashMap<Device, Made>> {
    let folder = new_folder("devices")?;
    let mut devices = HashMap::new();
    for device in Device::ALL {
        let text = |error: lsl_core::secure::Error| error.to_string();
        let key = SecretKey::generate(&mut OsRandom).map_err(text)?;
        let file = folder.join(device.name());
        keyfile::write_new_key(&file, &key, None).map_err(text)?;
        let pem = fs::read(&file).map_err(|error| error.to_string())?;
        let public = key.public();
        devices.insert(device, Made { public, pem });
    }
    Ok(devices)
}

/// A folder that only this user can look into, empty.
pub(crate) fn new_folder(name: &str) -> Outcome<PathBuf> {
    let parent =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("keys-{}", std::process::id()));
    let folder = parent.join(name.replace([' ', '/'], "-"));
    let fail = |error| format!("{}: {error}", folder.display());
    // Of an earlier process of this number, if at all.
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(error)),
        _ => {}
    }
    fs::create_dir_all(&parent).map_err(fail)?;
    create_directory(&folder, Who::Owner).map_err(fail)?;
    Ok(folder)
}

fn write_private(path: &Path, content: &[u8]) -> Outcome {
    use std::io::Write as _;
    let fail = |error| format!("{}: {error}", path.display());
    let mut file = create_new(path, Who::Owner).map_err(fail)?;
    file.write_all(content).map_err(fail)
}

/// The 32 bytes behind the header of the key in a PKCS#8 file.
fn seed(pem: &str) -> Option<Vec<u8>> {
    let lines = pem.lines().filter(|line| !line.starts_with('-'));
    let der = from_base64(&lines.collect::<String>())?;
    // OCTET STRING of 34 bytes: an OCTET STRING of 32 bytes.
    let header = [0x04, 0x22, 0x04, 0x20];
    let at = der.windows(4).position(|window| window == header)? + 4;
    der.get(at..at + 32).map(<[u8]>::to_vec)
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0, 0_u32);
    for digit in text.bytes().filter(|&digit| digit != b'=') {
        held = held << 6 | u32::try_from(DIGITS.find(char::from(digit))?).ok()?;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).ok()?);
        }
    }
    Some(bytes)
}

const KEY_FILE: &str = "device_key.pem";
const TRUST_FILE: &str = "trusted_peers.toml";
