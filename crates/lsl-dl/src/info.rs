//! Descriptions of streams, and searches for them.

use std::ffi::{CStr, CString};

use crate::element::Format;
use crate::symbols::Handle;
use crate::{Error, Lsl, Object, check};

/// Description of a stream, owned by the caller.
#[derive(Debug)]
pub struct Info {
    pub(crate) object: Object,
    pub(crate) channels: u32,
    pub(crate) format: Option<Format>,
}

impl Lsl {
    /// Creates the description of a stream; `source_id` may be empty.
    ///
    /// # Errors
    /// [`Error::Nul`], and [`Error::Refused`] if the library rejects the description.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn stream_info(
        &self,
        name: &str,
        stream_type: &str,
        channels: u32,
        nominal_srate: f64,
        format: Format,
        source_id: &str,
    ) -> Result<Info, Error> {
        let (name, stream_type) = (CString::new(name)?, CString::new(stream_type)?);
        let source_id = CString::new(source_id)?;
        let count = i32::try_from(channels).unwrap_or(i32::MAX);
        // SAFETY: the texts end with NUL and live until the call returns, which copies them.
        let handle = unsafe {
            (self.symbols.lsl_create_streaminfo)(
                name.as_ptr(),
                stream_type.as_ptr(),
                count,
                nominal_srate,
                format as i32,
                source_id.as_ptr(),
            )
        };
        self.info(handle, "lsl_create_streaminfo")
    }

    /// Searches for one stream by the value of a property. Waits at most `timeout_secs`.
    ///
    /// # Errors
    /// [`Error::Nul`], and [`Error::Code`] if the library rejects the query.
    pub fn resolve_one(
        &self,
        property: &str,
        value: &str,
        timeout_secs: f64,
    ) -> Result<Option<Info>, Error> {
        let found = self.resolve_by(property, value, 1, 1, timeout_secs)?;
        Ok(found.into_iter().next())
    }

    /// Searches for streams by the value of a property. Returns at most `most` of them, as soon as there
    /// are `minimum`, at the latest after `timeout_secs`.
    ///
    /// # Errors
    /// [`Error::Nul`], and [`Error::Code`] if the library rejects the query.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn resolve_by(
        &self,
        property: &str,
        value: &str,
        minimum: u32,
        most: u32,
        timeout_secs: f64,
    ) -> Result<Vec<Info>, Error> {
        let (property, value) = (CString::new(property)?, CString::new(value)?);
        let minimum = i32::try_from(minimum).unwrap_or(i32::MAX);
        let mut handles = slots(most);
        // SAFETY: as many slots are announced as there are; the texts end with NUL and live until
        // the call returns.
        let found = unsafe {
            (self.symbols.lsl_resolve_byprop)(
                handles.as_mut_ptr(),
                most,
                property.as_ptr(),
                value.as_ptr(),
                minimum,
                timeout_secs,
            )
        };
        self.infos("lsl_resolve_byprop", &handles, found)
    }

    /// Searches for all streams during `wait_secs`. Returns at most `most`.
    ///
    /// # Errors
    /// [`Error::Code`] if the library reports one.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn resolve_all(&self, most: u32, wait_secs: f64) -> Result<Vec<Info>, Error> {
        let mut handles = slots(most);
        // SAFETY: as many slots are announced as there are.
        let found =
            unsafe { (self.symbols.lsl_resolve_all)(handles.as_mut_ptr(), most, wait_secs) };
        self.infos("lsl_resolve_all", &handles, found)
    }

    fn infos(
        &self,
        function: &'static str,
        handles: &[Handle],
        found: i32,
    ) -> Result<Vec<Info>, Error> {
        check(function, found)?;
        let found = usize::try_from(found).unwrap_or(0);
        let infos = handles.iter().take(found);
        infos.map(|handle| self.info(*handle, function)).collect()
    }

    /// Takes ownership of the handle that `made_by` returned.
    #[expect(unsafe_code, reason = "C functions")]
    pub(crate) fn info(&self, handle: Handle, made_by: &'static str) -> Result<Info, Error> {
        let destroy = self.symbols.lsl_destroy_streaminfo;
        let object = Object::new(self, handle, destroy, made_by)?;
        // SAFETY: the info is alive.
        let channels = unsafe { (self.symbols.lsl_get_channel_count)(object.handle) };
        // SAFETY: the info is alive.
        let format = unsafe { (self.symbols.lsl_get_channel_format)(object.handle) };
        Ok(Info {
            object,
            channels: u32::try_from(channels).unwrap_or(0),
            format: Format::from_code(format),
        })
    }
}

fn slots(number: u32) -> Vec<Handle> {
    vec![std::ptr::null_mut(); number as usize]
}

impl Info {
    /// Returns the name of the stream.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn name(&self) -> String {
        // SAFETY: the info is alive.
        let text = unsafe { (self.object.lsl.symbols.lsl_get_name)(self.object.handle) };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the text ends with NUL and is the info's, which is alive and only read.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }

    /// Returns the identifier that no other stream has.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn uid(&self) -> String {
        // SAFETY: the info is alive.
        let text = unsafe { (self.object.lsl.symbols.lsl_get_uid)(self.object.handle) };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the text ends with NUL and is the info's, which is alive and only read.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }

    /// Returns the number of values per sample.
    pub fn channels(&self) -> u32 {
        self.channels
    }

    /// Returns the format of the values; `None` for strings.
    pub fn format(&self) -> Option<Format> {
        self.format
    }

    /// Returns the whole description as XML.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn xml(&self) -> String {
        let lsl = &self.object.lsl;
        // SAFETY: the info is alive.
        let text = unsafe { (lsl.symbols.lsl_get_xml)(self.object.handle) };
        lsl.take_text(text)
    }
}
