//! Reading and writing the whole document. Spec: lsl-protocol §2.3, c-abi §5.4.

use super::endpoint::Family;
use super::{Fields, StreamInfo};
use crate::text::{decimal_prefix, integer_prefix, skip_space};
use crate::xml::{self, ElementRef, Limits};
use crate::{Error, Result};

impl StreamInfo {
    /// Writes the whole document, as `LSL:fullinfo` answers carry it.
    pub fn to_xml(&self) -> Vec<u8> {
        self.document.write()
    }

    /// Reads a short or full info of a peer or a file, under the default limits of [`xml::parse`].
    /// As in liblsl, a number is the longest valid prefix of its text.
    ///
    /// # Errors
    /// [`Error::InvalidInfo`] with liblsl's reason if it does not describe a stream. Broken markup
    /// is no error by itself: the part before it counts. The XML of a new info has no uid and is
    /// thus refused.
    pub fn from_xml(text: &[u8]) -> Result<Self> {
        Self::from_xml_with(text, &Limits::default())
    }

    /// Like [`from_xml`](Self::from_xml), under limits of the caller's choice.
    ///
    /// # Errors
    /// [`Error::InvalidInfo`], also when a limit is exceeded.
    pub fn from_xml_with(text: &[u8], limits: &Limits) -> Result<Self> {
        let parsed =
            xml::parse_with(text, limits).map_err(|e| Error::InvalidInfo(e.to_string()))?;
        let document = parsed.document;
        let info = document.child(document.root(), "info");
        let info = info.and_then(|id| ElementRef::new(&document, id));
        let fields = read_fields(&Texts(info)).map_err(Error::InvalidInfo)?;
        Ok(Self { fields, document })
    }
}

/// Texts of the children of `<info>`; a missing child reads as empty, the first of several counts.
struct Texts<'a>(Option<ElementRef<'a>>);

impl<'a> Texts<'a> {
    fn bytes(&self, name: &str) -> &'a [u8] {
        self.0
            .and_then(|info| info.child(name))
            .map_or(b"", ElementRef::text_bytes)
    }

    fn owned(&self, name: &str) -> Vec<u8> {
        self.bytes(name).to_vec()
    }

    fn int(&self, name: &str) -> Result<i32, String> {
        // The reason is the name of the C++ function that throws in liblsl.
        parse_int(self.bytes(name)).ok_or_else(|| "stoi".to_owned())
    }

    fn double(&self, name: &str) -> Result<f64, String> {
        parse_double(self.bytes(name)).ok_or_else(|| format!("Invalid value for {name}"))
    }

    fn port(&self, name: &str) -> Result<u16, String> {
        u16::try_from(self.int(name)?).map_err(|_| format!("{name} must be >=0 and <=65535"))
    }

    fn family(&self, [address, data_port, service_port]: [&str; 3]) -> Result<Family, String> {
        Ok(Family {
            address: self.owned(address),
            data_port: self.port(data_port)?,
            service_port: self.port(service_port)?,
        })
    }
}

/// Reads the fields in liblsl's order: the first mistake gives the reason.
fn read_fields(texts: &Texts<'_>) -> Result<Fields, String> {
    let name = texts.owned("name");
    if name.is_empty() {
        return Err("Received a stream info with empty <name> field.".to_owned());
    }
    let stream_type = texts.owned("type");
    let channel_count = u32::try_from(texts.int("channel_count")?)
        .map_err(|_| "channel_count must be >=0".to_owned())?;
    // Only the integer prefix is checked: -0.5 passes, .5 does not.
    if texts.int("nominal_srate")? < 0 {
        return Err("nominal_srate must be >=0".to_owned());
    }
    let nominal_srate = texts.double("nominal_srate")?;
    let format = String::from_utf8_lossy(texts.bytes("channel_format"));
    let channel_format = format
        .parse()
        .map_err(|_| format!("Invalid channel format {format}"))?;
    let source_id = texts.owned("source_id");
    let version = read_version(texts.double("version")?)
        .ok_or_else(|| "The version of the given stream info is invalid.".to_owned())?;
    let created_at = texts.double("created_at")?;
    let uid = texts.owned("uid");
    if uid.is_empty() {
        return Err("The UID of the given stream info is empty.".to_owned());
    }
    Ok(Fields {
        name,
        stream_type,
        channel_count,
        channel_format,
        source_id,
        nominal_srate,
        version,
        created_at,
        uid,
        session_id: texts.owned("session_id"),
        hostname: texts.owned("hostname"),
        v4: texts.family(["v4address", "v4data_port", "v4service_port"])?,
        v6: texts.family(["v6address", "v6data_port", "v6service_port"])?,
    })
}

/// Truncates exactly as every peer does: 1.15 is 114.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked before"
)]
fn read_version(version: f64) -> Option<u32> {
    let scaled = version * 100.0;
    (1.0..=f64::from(i32::MAX))
        .contains(&scaled)
        .then_some(scaled as u32)
}

/// Parses as C++ `stoi`: white space, a sign, decimal digits. `None` without digits or beyond an `int`.
pub(super) fn parse_int(text: &[u8]) -> Option<i32> {
    integer_prefix(skip_space(text))?.parse().ok()
}

/// Parses as C++ stream extraction of a `double`: white space, then [`decimal_prefix`]. `None` where
/// that is none, and for what overflows.
pub(super) fn parse_double(text: &[u8]) -> Option<f64> {
    let number: f64 = decimal_prefix(skip_space(text))?.parse().ok()?;
    number.is_finite().then_some(number)
}
