//! `lsl trust add`: one more entry in the trust file, by a key that came some safe way, or by a key
//! fetched from an outlet and compared by people.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use lsl_core::secure::config::Settings;
use lsl_core::secure::trust::{Date, Network, Peer, TrustList, TrustedRole};
use lsl_core::secure::{
    Cause, Error, Local, OsRandom, PublicKey, SecretKey, Suites, files, keyfile, trust_changes,
};
use lsl_doctor::collect::probe::KeyProbe;
use lsl_proto::describe::stream_queries;
use zeroize::Zeroizing;

use super::edit;
use crate::failure::{Failure, Outcome};
use crate::files::device::{EMPTY_TRUST, check_name, trust_add};
use crate::files::place::{PlaceArgs, SecurityConfig};
use crate::files::security_log;
use crate::files::trust::{TrustFile, expiry};
use crate::ui::notice::note;
use crate::ui::text::printable;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Add {
    /// What to call the device here
    #[arg(value_name = "NAME")]
    name: String,

    /// Its public key, lsl-ed25519:..., or the address of one of its outlets, to fetch the key from
    #[arg(value_name = "KEY|HOST:PORT", allow_hyphen_values = true)]
    key: String,

    /// What it may be: outlet, and we may read its streams; inlet, and it may read ours; relay: both, and
    /// links with our relays. Default: both
    #[arg(long, value_enum, value_name = "ROLE")]
    role: Option<Role>,

    /// Last day (UTC) on which it may connect, such as 2027-12-31
    #[arg(long, value_name = "DATE")]
    not_after: Option<Date>,

    /// Network that it must connect from, such as 10.1.0.0/16; may be repeated
    #[arg(long, value_name = "NET")]
    from: Vec<Network>,

    /// Only trust it for streams that match this predicate, such as "name='EEG'" or "type='EEG'": it may
    /// serve, read and sign no others; may be repeated
    #[arg(long, value_name = "PREDICATE", value_parser = predicate)]
    streams: Vec<String>,

    /// With HOST:PORT: trust whoever answers there now, without comparing. Only on a network where
    /// nobody can stand in between; else give the key itself
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    Outlet,
    Inlet,
    Both,
    Relay,
}

const EXAMPLES: &str = "\
Examples:
  lsl trust add amp1 lsl-ed25519:... --role outlet      we read its streams
  lsl trust add rec1 lsl-ed25519:... --role inlet       it reads ours
  lsl trust add guest lsl-ed25519:... --not-after 2027-03-31 --from 10.1.0.0/16
  lsl trust add amp1 lsl-ed25519:... --role outlet --streams \"name='EEG'\"
  lsl trust add amp1 192.168.1.20:16572 --role outlet   asks that outlet (see `lsl list`) for its key

`lsl key init` and `lsl key show` print this line on the other machine. For a key that is there under that name,
--role changes the role. A key is not secret, and one
with a wrong letter is unknown, not dangerous. A key fetched from an address may be anybody's: compare
the fingerprint with what `lsl key show` says on that machine before you answer yes.";

impl Add {
    pub(super) fn run(&self) -> Outcome {
        check_name(&self.name)?;
        let wanted = KeySource::parse(&self.key)?;
        let place = self.place.find()?;
        let path = place.trust_file()?;
        if path.symlink_metadata().is_err() {
            files::create(path, EMPTY_TRUST.as_bytes())?;
        }
        let file = TrustFile::read(path)?;
        let key = match &wanted {
            KeySource::Key(key) => *key,
            KeySource::Address(address) => fetch(&place, address)?,
        };
        if let Some(known) = file
            .list
            .find(&key)
            .filter(|known| self.only_changes(known))
        {
            return self.change_role(&file, known, &place.settings);
        }
        Self::refuse_known(&place, &file, &key)?;
        if matches!(wanted, KeySource::Address(_)) {
            self.confirm(&key)?;
        }
        let peer = Peer {
            name: self.name.clone(),
            key,
            role: self.role(),
            not_after: self.not_after,
            from: self.from.clone(),
            streams: self.streams.clone(),
        };
        let text = edit::append(&file.text, &peer.to_toml());
        let peers = [file.list.peers(), std::slice::from_ref(&peer)].concat();
        let list = TrustList::from_peers(peers)?;
        file.replace(&text, &list)?;
        security_log::record(&place.settings, trust_changes(&file.list, &list));
        self.report(&file, &peer);
        Ok(())
    }

    fn role(&self) -> TrustedRole {
        match self.role {
            Some(Role::Outlet) => TrustedRole::Outlet,
            Some(Role::Inlet) => TrustedRole::Inlet,
            Some(Role::Both) | None => TrustedRole::Both,
            Some(Role::Relay) => TrustedRole::Relay,
        }
    }

    /// Whether nothing is asked for but another role of an entry, as messages advise.
    fn only_changes(&self, known: &Peer) -> bool {
        let has_limits =
            self.not_after.is_some() || !self.from.is_empty() || !self.streams.is_empty();
        let is_other = self.role.is_some() && self.role() != known.role;
        known.name == self.name && is_other && !has_limits
    }

    fn change_role(&self, file: &TrustFile<'_>, known: &Peer, settings: &Settings) -> Outcome {
        let mut peers = file.list.peers().to_vec();
        let index = peers.iter().position(|peer| peer.key == known.key);
        let index = index.unwrap_or(peers.len());
        let text = edit::set_role(&file.text, index, self.role().name()).unwrap_or_default();
        if let Some(peer) = peers.get_mut(index) {
            peer.role = self.role();
        }
        let expected = TrustList::from_peers(peers)?;
        file.replace(&text, &expected)?;
        security_log::record(settings, trust_changes(&file.list, &expected));
        if let Some(peer) = expected.find(&known.key) {
            self.report(file, peer);
        }
        Ok(())
    }

    fn refuse_known(place: &SecurityConfig, file: &TrustFile<'_>, key: &PublicKey) -> Outcome {
        if let Some(known) = file.list.find(key) {
            return Err(Failure::Usage(format!(
                "this key is already there: '{}', role {}, in {}.\nTo change the entry, edit that \
                 file, or: lsl trust remove {}",
                printable(&known.name),
                known.role.name(),
                file.path.display(),
                key.fingerprint()
            )));
        }
        if place.public_key_if_open().as_ref() == Some(key) {
            return Err(Failure::Usage(
                "this is the key of this machine itself. Programs on one machine trust each other \
                 without an entry.\nIf it is meant to be another machine's, that one has a copy of \
                 this one's key, from a copied disk image perhaps:\nmove device_key.pem away there \
                 and make a new key with `lsl key init`."
                    .into(),
            ));
        }
        Ok(())
    }

    /// Has people compare the fingerprint.
    fn confirm(&self, key: &PublicKey) -> Outcome {
        note(format_args!(
            "The outlet at {} has the key\n\n  {key}\n  {}\n\nIt may be anybody's who can answer \
             there. Run `lsl key show` on {}, at its screen or by ssh, and compare\nthe whole \
             fingerprint.",
            printable(&self.key),
            key.fingerprint(),
            printable(&self.name)
        ));
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            // With the key: asked again, another device may answer.
            return Err(Failure::Usage(format!(
                "nothing was written: there is nobody to ask whether the fingerprint is right. \
                 Compare it, then run this\nwith the key in place of the address:\n\n  {}{}\n",
                trust_add(&self.name, key),
                match self.role {
                    Some(Role::Outlet) => " --role outlet",
                    Some(Role::Inlet) => " --role inlet",
                    Some(Role::Both) => " --role both",
                    Some(Role::Relay) => " --role relay",
                    None => "",
                }
            )));
        }
        let mut stderr = io::stderr().lock();
        let _ = write!(stderr, "Is it the same? [y/N] ").and_then(|()| stderr.flush());
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            Ok(())
        } else {
            Err(Failure::Runtime("nothing was written".into()))
        }
    }

    fn report(&self, file: &TrustFile<'_>, peer: &Peer) {
        let name = printable(&peer.name);
        note(format_args!(
            "{name} ({}) is trusted as {}, in {}",
            peer.key.fingerprint(),
            match peer.role {
                TrustedRole::Outlet => "outlet: we may read its streams",
                TrustedRole::Inlet => "inlet: it may read our streams",
                TrustedRole::Both => "both outlet and inlet",
                TrustedRole::Relay => "relay: both, and it may link with relays of ours",
            },
            file.path.display()
        ));
        if !peer.streams.is_empty() {
            note(format_args!(
                "It may serve, read and sign only streams that match {}.",
                printable(&peer.streams.join(" or "))
            ));
        }
        if self.role.is_none() {
            note(format_args!(
                "Without --role, {name} may also read this machine's streams. For one direction \
                 alone: --role outlet or inlet."
            ));
        }
        let others = file.list.peers().iter();
        for other in others.filter(|it| it.name == peer.name && it.key != peer.key) {
            note(format_args!(
                "{name} is also the name of another key, which stays trusted. If it is not used any \
                 more: lsl trust remove {}",
                other.key.fingerprint()
            ));
        }
        if let Some(warning) = expiry(peer, file.today()) {
            note(warning);
        }
    }
}

/// Refuses a text that is no predicate before it is written down.
fn predicate(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err(
            "a blank predicate names no stream; for every stream leave --streams out".into(),
        );
    }
    (stream_queries().check)(text)?;
    Ok(text.to_owned())
}

/// Meaning of KEY|HOST:PORT on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum KeySource {
    Key(PublicKey),
    Address(String),
}

impl KeySource {
    /// Parses KEY|HOST:PORT. A text that is neither may be secret and is not repeated.
    fn parse(text: &str) -> Outcome<Self> {
        let text = text.trim();
        if text.starts_with(KEY_PREFIX) {
            return text.parse().map(Self::Key).map_err(|error: Error| {
                let why = match error {
                    Error::Session { detail, .. } => detail.into_owned(),
                    other => other.to_string(),
                };
                Failure::Usage(format!(
                    "this is no key: {why}. Copy the whole text that `lsl key show --public` prints \
                     on the other machine, {KEY_PREFIX} and 44 characters."
                ))
            });
        }
        if is_private(text) || is_private_file(text) {
            return Err(Failure::Usage(PRIVATE.into()));
        }
        if text.starts_with("SHA256:") {
            return Err(Failure::Usage(format!(
                "this is a fingerprint; an entry needs the key itself, {KEY_PREFIX}..., which `lsl \
                 key show` prints on the other machine"
            )));
        }
        if text.starts_with("ssh-") {
            return Err(Failure::Usage(format!(
                "this is an SSH key; LSL has keys of its own, {KEY_PREFIX}..., which `lsl key show` \
                 prints on the other machine"
            )));
        }
        let port = text
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse::<u16>().ok());
        match port {
            Some(1..) => Ok(Self::Address(text.to_owned())),
            _ => Err(Failure::Usage(format!(
                "neither a key ({KEY_PREFIX}..., printed by `lsl key show` on the other machine) nor \
                 the address of an outlet (HOST:PORT, see `lsl list`)"
            ))),
        }
    }
}

/// Recognises a private key, in PEM or the base64 inside it.
fn is_private(text: &str) -> bool {
    let is_inside = |start: &&str| text.starts_with(*start) && !text.contains(':');
    text.contains("PRIVATE KEY") || PKCS8_STARTS.iter().any(is_inside)
}

/// Recognises a file with a private key, whatever its permissions.
fn is_private_file(text: &str) -> bool {
    let path = Path::new(text);
    let head = || {
        let mut head = Zeroizing::new(Vec::new());
        let file = File::open(path)?;
        file.take(KEY_FILE_LEN).read_to_end(&mut head)?;
        Ok::<_, io::Error>(is_private(&String::from_utf8_lossy(&head)))
    };
    path.is_file() && head().unwrap_or(false)
}

/// Asks an outlet for its key, and tells it nothing about us: the key used here is made for this and
/// forgotten.
fn fetch(place: &SecurityConfig, address: &str) -> Outcome<PublicKey> {
    let psk = place
        .settings
        .psk_file
        .as_deref()
        .map(keyfile::read_psk)
        .transpose()?;
    let local = Arc::new(Local {
        key: SecretKey::generate(&mut OsRandom)?,
        psk,
        suites: Suites::of_this_cpu(),
        pad_to: 0,
    });
    let addresses = address
        .to_socket_addrs()
        .map_err(|error| Failure::Usage(format!("{}: {error}", printable(address))))?;
    let mut last = None;
    for address in addresses {
        match KeyProbe::at(address, Arc::clone(&local), &|| false) {
            Ok(knock) => {
                let key = knock.peer();
                knock.refuse(Cause::NotAuthorised);
                return Ok(key);
            }
            Err(error) => last = Some(error),
        }
    }
    let why = match last {
        Some(error @ (Error::Refused { .. } | Error::Io { .. })) => error.to_string(),
        Some(error) if error.cause() == Cause::PeerNotSecure => {
            "there is no encrypted outlet there".to_owned()
        }
        Some(error) if error.cause() == Cause::DecryptFailed => {
            "it has another pre-shared key (psk_file), or one of the two has none".to_owned()
        }
        Some(error) => error.to_string(),
        None => "the host has no address".to_owned(),
    };
    Err(Failure::Runtime(format!(
        "no key from {}: {why}",
        printable(address)
    )))
}

const KEY_PREFIX: &str = "lsl-ed25519:";
/// First characters of a PKCS#8 Ed25519 key in base64: version 1, version 2, encrypted.
const PKCS8_STARTS: [&str; 4] = [
    "MC4CAQAwBQYDK2Vw",
    "MFECAQEwBQYDK2Vw",
    "MHICAQEwBQYDK2Vw",
    "MIG",
];
/// Bytes read of a file, more than any key file has.
const KEY_FILE_LEN: u64 = 4096;
const PRIVATE: &str = "\
This is a PRIVATE key. It must never leave its machine, and no command asks for it.
What other machines need is the public one: `lsl key show --public` prints it there.
If the private key was sent or copied anywhere, or is in your shell's history now, count it as stolen:
make a new one on its machine (`lsl key init --next`) and remove the old one everywhere
(`lsl trust remove`). Nothing was written.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_key_is_explained_and_not_repeated() {
        let check = |text: &str, part: &str| {
            let message = KeySource::parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
            let repeated = text.len() > KEY_PREFIX.len() && message.contains(text);
            assert!(!repeated, "{message}");
        };
        check("", "neither a key");
        check("u4ZWHk0w", "neither a key");
        check("amp1", "neither a key");
        check("amp1:", "neither a key");
        check("amp1:0", "neither a key");
        check("amp1:99999", "neither a key");
        check("SHA256:47DEQpj8HBSa", "fingerprint");
        check("ssh-ed25519 AAAAC3NzaC1lZDI1", "SSH");
        check("lsl-ed25519:", "no key");
        check("lsl-ed25519:AAAA", "no key");
        check("lsl-ed25519:!!!!", "no key");
        check("-----BEGIN PRIVATE KEY-----", "PRIVATE");
        check("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIG", "PRIVATE");
        check("MC4CAQAwBQYDK2VwBCIEIBvF", "PRIVATE");
        check("MFECAQEwBQYDK2VwBCIEIBvF", "PRIVATE");
    }

    #[test]
    fn addresses() {
        for text in ["amp1:16572", "10.0.0.7:16572", "[fe80::1]:1"] {
            assert_eq!(
                KeySource::parse(text).unwrap(),
                KeySource::Address(text.into())
            );
        }
    }
}
