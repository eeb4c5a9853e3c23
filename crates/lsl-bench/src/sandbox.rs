//! The private folder in which measured processes work: a configuration of their own, so that nothing leaves
//! the host and nothing on it interferes, and keys made for the run.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::path::PathBuf;

use lsl_cli::failure::Outcome;
use lsl_core::secure::{OsRandom, SecretKey, keyfile};
use lsl_platform::files::{Who, create_directory, create_new};

use super::child::Environment;
use super::scratch::Folder;

/// A temporary folder with the configurations of the processes; removed when dropped.
#[derive(Debug)]
pub(super) struct Sandbox {
    folder: Folder,
    /// Lab session of the run.
    session: String,
    base_port: u16,
    ports: u16,
}

impl Sandbox {
    /// Makes it. Streams of the run get `ports` ports on the loopback interface; a liblsl outlet takes
    /// two.
    pub(super) fn make(ports: u16) -> Outcome<Self> {
        let folder = Folder::make(&std::env::temp_dir(), "run")?;
        let free = UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let sandbox = Self {
            folder,
            session: format!("lsl-bench-{}", std::process::id()),
            base_port: free.min(u16::MAX - 2 * (ports + 1)),
            ports,
        };
        for folder in ["home", "secure"] {
            create_directory(&sandbox.path(folder), Who::Owner)?;
        }
        let settings = configuration(&sandbox.session, sandbox.base_port, ports, "");
        sandbox.write("lsl_api.cfg", &settings)?;
        let key = SecretKey::generate(&mut OsRandom)?;
        keyfile::write_new_key(&sandbox.path("secure/device_key.pem"), &key, None)?;
        sandbox.write("secure/trusted_peers.toml", "")?;
        sandbox.write("secure/lsl-secure.toml", SECURE_CONFIG)?;
        Ok(sandbox)
    }

    /// Returns the environment of processes that are to encrypt, or not to.
    pub(super) fn environment(&self, secure: bool) -> Environment {
        let os = |path: PathBuf| Some(OsString::from(path));
        let config = secure.then(|| self.path("secure/lsl-secure.toml").into());
        vec![
            ("LSLAPICFG", os(self.path("lsl_api.cfg"))),
            ("LSL_SECURE_CONFIG", config),
            ("SUDO_USER", None),
            // Folder without any keys.
            ("HOME", os(self.path("home"))),
        ]
    }

    /// Writes a file anew, and returns where it is.
    pub(super) fn rewrite(&self, name: &str, text: &str) -> Outcome<PathBuf> {
        let path = self.path(name);
        if path.exists() {
            fs::remove_file(&path)?;
        }
        self.write(name, text)?;
        Ok(path)
    }

    /// Returns the configuration of a process that finds streams through the relay at this port alone.
    pub(super) fn beyond(&self, relay: u16) -> Outcome<PathBuf> {
        let relay = format!("Relay = {{127.0.0.1:{relay}}}\n");
        let base = self.base_port + self.ports + 1;
        let settings = configuration(&self.session, base, self.ports, &relay);
        self.rewrite("beyond.cfg", &settings)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    fn write(&self, name: &str, text: &str) -> Outcome {
        Ok(create_new(&self.path(name), Who::Owner)?.write_all(text.as_bytes())?)
    }
}

/// One host, found by asking its ports one by one: multicast may not work on a loopback interface.
fn configuration(session: &str, base_port: u16, ports: u16, relay: &str) -> String {
    format!(
        "[ports]\nBasePort = {base_port}\nPortRange = {ports}\nMulticastPort = {}\n\
         IPv6 = disable\n\n\
         [multicast]\nResolveScope = machine\n\n\
         [lab]\nSessionID = {session}\nKnownPeers = {{127.0.0.1}}\n{relay}\n\
         [log]\nlevel = -2\n",
        base_port + ports
    )
}

/// Configuration of a device that trusts only itself.
const SECURE_CONFIG: &str = "[security]\nname = \"benchmark\"\npolicy = \"required\"\n\
                             key_file = \"device_key.pem\"\n\
                             trusted_peers = \"trusted_peers.toml\"\n";
