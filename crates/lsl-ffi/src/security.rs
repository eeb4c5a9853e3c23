//! Encryption as C programs see it: the policy of this process, announcements of streams, identities of
//! peers, and reasons of refusals. All functions are named `lslx_`; liblsl has none of them. Makes no
//! decision. Spec: LSS/1 §3, §4.4, §7.1, §11.

use std::ffi::c_char;
use std::ptr;

#[cfg(not(test))]
use lsl_core::Context;
use lsl_core::Encryption;
use lsl_core::secure::{Policy, Security};

use crate::context::context;
use crate::ext::counted;
use crate::guard::{code, fail, guard};
use crate::handle::Handle;
use crate::memory::{Outcome, refuse};
use crate::outlet::info_of;
use crate::{inlet, outlet, strings};

/// Returns the policy of this process for all connections: 0 plaintext only (`off`), 1 both (`migrate`), 2
/// encrypted only (`required`). -4 if the security configuration exists but cannot be used: nothing streams
/// then, and `lsl_last_error` names file, line and remedy. Reads the configuration. Spec: LSS/1 §4.3, §11.
#[unsafe(no_mangle)]
pub extern "C" fn lslx_security_policy() -> i32 {
    counted(|| {
        let context = context();
        let security = context.security().map_err(|error| fail(&error))?;
        Ok(number(security.policy()))
    })
}

/// Describes the security of this process for people, or the error in its configuration. An example:
/// `policy required, configuration ~/lsl_api/lsl-secure.toml, name amp1, fingerprint SHA256:…`. For the
/// caller to release; NULL without memory. Spec: LSS/1 §11.
#[unsafe(no_mangle)]
pub extern "C" fn lslx_security_text() -> *mut c_char {
    guard(ptr::null_mut(), || {
        let text = match context().security() {
            Ok(security) => describe(security),
            Err(error) => error.to_string(),
        };
        strings::allocate(text.as_bytes())
    })
}

/// Returns the encryption that a stream announces: 0 none, 1 it accepts both, 2 it accepts nothing else. A
/// hint, which peers can forge. -3 for anything but an info. Spec: LSS/1 §7.1.
#[unsafe(no_mangle)]
pub extern "C" fn lslx_info_encryption(info: Handle) -> i32 {
    counted(|| {
        let advert = info_of(info)?.security_advert();
        Ok(advert.map_or(0, |advert| match advert.policy.as_str() {
            "migrate" => number(Policy::Migrate),
            // Values of later versions are no invitation to plaintext.
            _ => number(Policy::Required),
        }))
    })
}

/// Returns the fingerprint that a stream announces, or an empty text. Claimed, not proven: see
/// [`lslx_peer_fingerprint`]. For the caller to release; NULL for anything but an info. Spec: LSS/1 §7.1.
#[unsafe(no_mangle)]
pub extern "C" fn lslx_info_fingerprint(info: Handle) -> *mut c_char {
    text(|| {
        let advert = info_of(info)?.security_advert();
        Ok(advert
            .and_then(|advert| advert.fingerprint)
            .unwrap_or_default())
    })
}

/// Returns 1 if the inlet's data connection is encrypted, 0 in plaintext or without a connection. Negative:
/// an error code.
#[unsafe(no_mangle)]
pub extern "C" fn lslx_is_encrypted(inlet: Handle) -> i32 {
    counted(|| Ok(i32::from(of_inlet(inlet)?.is_some())))
}

/// Returns the fingerprint of the key with which the outlet proved its identity, as `SHA256:…`. For the
/// caller to release: an empty text without an encrypted connection, NULL for anything but an inlet.
/// Spec: LSS/1 §3.1.
#[unsafe(no_mangle)]
pub extern "C" fn lslx_peer_fingerprint(inlet: Handle) -> *mut c_char {
    text(|| Ok(of_inlet(inlet)?.map_or_else(String::new, |found| found.fingerprint)))
}

/// Returns the name of that key's owner in the trust file of this process. As [`lslx_peer_fingerprint`].
#[unsafe(no_mangle)]
pub extern "C" fn lslx_peer_name(inlet: Handle) -> *mut c_char {
    text(|| Ok(of_inlet(inlet)?.map_or_else(String::new, |found| found.peer_name)))
}

/// Returns the cipher in use, such as `AES-256-GCM`. As [`lslx_peer_fingerprint`]. Spec: LSS/1 §5.4.
#[unsafe(no_mangle)]
pub extern "C" fn lslx_cipher(inlet: Handle) -> *mut c_char {
    text(|| Ok(of_inlet(inlet)?.map_or("", |found| found.suite).to_owned()))
}

/// Returns the cause and remedy if security keeps the inlet from connecting. For the caller to release: an
/// empty text if all is well, NULL for anything but an inlet. Unlike `lsl_last_error` the same from every
/// thread. Spec: LSS/1 §4.4.
#[unsafe(no_mangle)]
pub extern "C" fn lslx_last_security_error(inlet: Handle) -> *mut c_char {
    text(|| {
        Ok(inlet::find(inlet)?
            .inlet
            .last_security_error()
            .unwrap_or_default())
    })
}

/// Returns the fingerprint of the reader at `address` (as `lslx_outlet_consumers` gives it). For the caller
/// to release: an empty text for a reader in plaintext, NULL if there is no such reader.
///
/// # Safety
/// `address` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lslx_consumer_fingerprint(
    out: Handle,
    address: *const c_char,
) -> *mut c_char {
    text(|| {
        // SAFETY: the caller vouches for it.
        let found = unsafe { of_consumer(out, address) }?;
        Ok(found.map_or_else(String::new, |found| found.fingerprint))
    })
}

/// Returns the name of that reader in the trust file of this process. As [`lslx_consumer_fingerprint`].
///
/// # Safety
/// `address` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lslx_consumer_name(out: Handle, address: *const c_char) -> *mut c_char {
    text(|| {
        // SAFETY: the caller vouches for it.
        let found = unsafe { of_consumer(out, address) }?;
        Ok(found.map_or_else(String::new, |found| found.peer_name))
    })
}

/// Returns the policy of the process without reading `lsl_api.cfg`; `None` if the security configuration is
/// broken.
#[cfg(not(test))]
pub(crate) fn policy_of_process() -> Option<Policy> {
    let security = Context::security_of_process().ok()?;
    Some(security.policy())
}

/// Returns the policy of the context of tests, independent of this machine's configuration.
#[cfg(test)]
pub(crate) fn policy_of_process() -> Option<Policy> {
    Some(context().security().ok()?.policy())
}

/// Returns the name of a policy in the configuration file.
pub(crate) fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Off => "off",
        Policy::Migrate => "migrate",
        Policy::Required => "required",
    }
}

fn number(policy: Policy) -> i32 {
    match policy {
        Policy::Off => 0,
        Policy::Migrate => 1,
        Policy::Required => 2,
    }
}

fn describe(security: &Security) -> String {
    let mut parts = vec![format!("policy {}", policy_name(security.policy()))];
    parts.push(match security.file() {
        Some(file) => format!("configuration {}", file.display()),
        None => "no configuration".to_owned(),
    });
    if let Some(settings) = security.settings() {
        parts.push(format!("name {}", settings.name));
    }
    if let Some(local) = security.local() {
        parts.push(format!("fingerprint {}", local.key.public().fingerprint()));
    }
    parts.join(", ")
}

fn of_inlet(inlet: Handle) -> Outcome<Option<Encryption>> {
    Ok(inlet::find(inlet)?.inlet.encryption())
}

/// # Safety
/// `address` is NULL or a NUL-terminated text.
unsafe fn of_consumer(out: Handle, address: *const c_char) -> Outcome<Option<Encryption>> {
    let consumers = outlet::find(out)?.outlet.consumers();
    // SAFETY: the caller vouches for it.
    let address = unsafe { strings::bytes(address) }.unwrap_or_default();
    let mut consumers = consumers.into_iter();
    let found = consumers.find(|consumer| consumer.peer.to_string().as_bytes() == address);
    match found {
        Some(consumer) => Ok(consumer.encryption),
        None => Err(refuse(code::ARGUMENT, "no reader connects from there")),
    }
}

/// Runs a call that returns a text for the caller to release.
fn text(body: impl FnOnce() -> Outcome<String>) -> *mut c_char {
    guard(ptr::null_mut(), || match body() {
        Ok(text) => strings::allocate(text.as_bytes()),
        Err(_) => ptr::null_mut(),
    })
}

#[cfg(test)]
mod tests;
