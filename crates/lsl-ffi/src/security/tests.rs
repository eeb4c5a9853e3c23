use std::ffi::CString;
use std::sync::Arc;

use lsl_core::ChannelFormat;
use lsl_core::secure::trust::TrustList;
use lsl_core::secure::{SecretKey, config};

use super::*;
use crate::common::{lsl_library_info, shown};
use crate::context::with_security;
use crate::ext::{Consumer, lslx_outlet_consumers};
use crate::inlet::pull::lsl_pull_sample_f;
use crate::inlet::{lsl_create_inlet, lsl_destroy_inlet};
use crate::outlet::{lsl_create_outlet, lsl_destroy_outlet, lsl_get_info};
use crate::streaminfo::{
    lsl_destroy_streaminfo, lsl_get_xml, lsl_reset_uid, lsl_streaminfo_from_xml,
};
use crate::testing::{self, Stream, last_error, no_handle, take_text};

/// Builds a security configuration that demands encryption, of a device that trusts itself alone.
fn required(seed: u8) -> (Arc<Security>, String) {
    let key = SecretKey::from_seed(&[seed; 32]);
    let fingerprint = key.public().fingerprint().to_string();
    let mut settings = config::Settings::new(Policy::Required);
    settings.name = "device".to_owned();
    let security = Security::from_parts(settings, key, TrustList::default()).unwrap();
    (Arc::new(security), fingerprint)
}

fn told(text: *mut c_char) -> String {
    String::from_utf8(take_text(text)).unwrap()
}

/// Returns the only reader of an outlet.
fn reader(out: Handle) -> Consumer {
    let mut consumer = std::mem::MaybeUninit::<Consumer>::zeroed();
    // SAFETY: room for one.
    let count = unsafe { lslx_outlet_consumers(out, consumer.as_mut_ptr(), 1) };
    assert_eq!(count, 1);
    // SAFETY: zeros are a reader, too, and it was filled in.
    unsafe { consumer.assume_init() }
}

#[test]
fn a_program_without_configuration_is_told_so() {
    assert_eq!(lslx_security_policy(), 0);
    assert_eq!(told(lslx_security_text()), "policy off, no configuration");
    assert!(shown(lsl_library_info()).ends_with("/lsl-secure:LSS1;policy:off"));
    let stream = Stream::new("open to all", 1, 0.0, ChannelFormat::Int8);
    let info = lsl_get_info(stream.out);
    assert_eq!(lslx_info_encryption(info), 0);
    assert_eq!(told(lslx_info_fingerprint(info)), "");
    lsl_destroy_streaminfo(info);
    assert_eq!(lslx_is_encrypted(stream.inlet), 0);
    for text in [
        lslx_peer_fingerprint,
        lslx_peer_name,
        lslx_cipher,
        lslx_last_security_error,
    ] {
        assert_eq!(told(text(stream.inlet)), "");
    }
    let consumer = reader(stream.out);
    assert_eq!(consumer.encrypted, 0);
    // SAFETY: NUL-terminated.
    let fingerprint = unsafe { lslx_consumer_fingerprint(stream.out, consumer.address.as_ptr()) };
    assert_eq!(told(fingerprint), "");
}

#[test]
fn an_encrypted_stream_tells_with_whom() {
    let (security, fingerprint) = required(1);
    with_security(&security, || {
        assert_eq!(lslx_security_policy(), 2);
        let text = told(lslx_security_text());
        let expected =
            format!("policy required, no configuration, name device, fingerprint {fingerprint}");
        assert_eq!(text, expected);
        let stream = Stream::new("for some", 1, 0.0, ChannelFormat::Int8);
        let info = testing::resolved("for some");
        assert_eq!(lslx_info_encryption(info), 2);
        assert_eq!(told(lslx_info_fingerprint(info)), fingerprint);
        lsl_destroy_streaminfo(info);
        assert_eq!(lslx_is_encrypted(stream.inlet), 1);
        assert_eq!(told(lslx_peer_fingerprint(stream.inlet)), fingerprint);
        assert!(!told(lslx_cipher(stream.inlet)).is_empty());
        assert_eq!(told(lslx_last_security_error(stream.inlet)), "");
        let consumer = reader(stream.out);
        assert_eq!(consumer.encrypted, 1);
        let address = consumer.address.as_ptr();
        // SAFETY: NUL-terminated.
        let of_reader = unsafe { lslx_consumer_fingerprint(stream.out, address) };
        assert_eq!(told(of_reader), fingerprint);
        // SAFETY: NUL-terminated.
        let name = unsafe { lslx_consumer_name(stream.out, address) };
        assert_eq!(told(name), told(lslx_peer_name(stream.inlet)));
    });
}

#[test]
fn a_refused_inlet_says_why() {
    let out = testing::outlet("in plaintext", 1, 0.0, ChannelFormat::Int8);
    let (security, _) = required(2);
    let reader = with_security(&security, || testing::inlet("in plaintext", true));
    let mut ec = testing::UNSET;
    // SAFETY: `ec` may be written.
    unsafe { inlet::lsl_open_stream(reader, 5.0, &raw mut ec) };
    let why = told(lslx_last_security_error(reader));
    assert!(why.contains("does not offer encryption"), "{why}");
    assert_eq!(ec, -1);
    assert!(last_error().contains(&why), "{}", last_error());
    crate::guard::set_last_error("");
    let mut value = 0.0_f32;
    // SAFETY: room for one value.
    let stamp = unsafe { lsl_pull_sample_f(reader, &raw mut value, 1, 0.0, ptr::null_mut()) };
    assert_eq!((stamp.to_bits(), last_error()), (0, why));
    assert_eq!(lslx_is_encrypted(reader), 0);
    lsl_destroy_inlet(reader);
    lsl_destroy_outlet(out);
}

#[test]
fn what_a_stream_announces_is_only_read() {
    let plain = testing::info("announced", 1, 1.0, ChannelFormat::Int8);
    assert!(!lsl_reset_uid(plain).is_null());
    let plain = String::from_utf8(take_text(lsl_get_xml(plain))).unwrap();
    for (advert, policy, fingerprint) in [
        ("", 0, ""),
        ("<lsl_secure policy=\"migrate\"/>", 1, ""),
        (
            "<lsl_secure policy=\"required\" fp=\"SHA256:x\"/>",
            2,
            "SHA256:x",
        ),
        ("<lsl_secure/>", 2, ""),
        ("<lsl_secure policy=\"newer\"/>", 2, ""),
        ("<desc><lsl_secure policy=\"required\"/></desc>", 0, ""),
    ] {
        let xml = plain.replace("</info>", &format!("{advert}</info>"));
        let xml = CString::new(xml).unwrap();
        // SAFETY: NUL-terminated.
        let info = unsafe { lsl_streaminfo_from_xml(xml.as_ptr()) };
        assert_eq!(lslx_info_encryption(info), policy, "{advert}");
        assert_eq!(told(lslx_info_fingerprint(info)), fingerprint, "{advert}");
        lsl_destroy_streaminfo(info);
    }
}

#[test]
fn nothing_is_told_of_what_is_not_there() {
    let stream = Stream::new("nobody else", 1, 0.0, ChannelFormat::Int8);
    assert_eq!(lslx_info_encryption(no_handle()), -3);
    assert!(lslx_info_fingerprint(stream.out).is_null());
    assert_eq!(lslx_is_encrypted(stream.out), -3);
    for text in [
        lslx_peer_fingerprint,
        lslx_peer_name,
        lslx_cipher,
        lslx_last_security_error,
    ] {
        assert!(text(no_handle()).is_null());
    }
    for address in [c"".as_ptr(), c"127.0.0.1:1".as_ptr(), ptr::null()] {
        // SAFETY: NULL or NUL-terminated.
        assert!(unsafe { lslx_consumer_fingerprint(stream.out, address) }.is_null());
        // SAFETY: as above.
        assert!(unsafe { lslx_consumer_name(stream.inlet, address) }.is_null());
    }
}

/// Objects of one context never become those of another. How C programs without these functions notice a
/// broken configuration is tested in `tests/hosts`.
#[test]
fn an_info_of_elsewhere_makes_no_plaintext_outlet() {
    let (security, _) = required(3);
    let info = testing::info("still encrypted", 1, 0.0, ChannelFormat::Int8);
    with_security(&security, || {
        let out = lsl_create_outlet(info, 0, 360);
        let announced = lsl_get_info(out);
        assert_eq!(lslx_info_encryption(announced), 2);
        let reader = lsl_create_inlet(announced, 360, 0, 0);
        assert_eq!(lslx_is_encrypted(reader), 0, "not connected");
        lsl_destroy_inlet(reader);
        lsl_destroy_streaminfo(announced);
        lsl_destroy_outlet(out);
    });
    lsl_destroy_streaminfo(info);
}
