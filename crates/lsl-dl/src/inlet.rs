//! Inlets of a foreign library, which receive streams.

use crate::element::Element;
use crate::{Error, Info, Object, TIMEOUT, c_count, check, check_sample, whole_samples};

/// Inlet that receives one stream.
#[derive(Debug)]
pub struct Inlet {
    object: Object,
    channels: u32,
}

impl Inlet {
    /// Creates an inlet for the stream, not yet connected, that does not recover from losses.
    ///
    /// # Errors
    /// [`Error::Refused`] if the library rejects the description.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn new(info: &Info, max_buffered_secs: i32) -> Result<Self, Error> {
        let lsl = &info.object.lsl;
        // SAFETY: the info is alive; the call copies it.
        let handle =
            unsafe { (lsl.symbols.lsl_create_inlet)(info.object.handle, max_buffered_secs, 0, 0) };
        let destroy = lsl.symbols.lsl_destroy_inlet;
        Ok(Self {
            object: Object::new(lsl, handle, destroy, "lsl_create_inlet")?,
            channels: info.channels,
        })
    }

    /// Connects to the outlet; waits at most `timeout_secs`.
    ///
    /// # Errors
    /// [`Error::Code`], also after a timeout.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn open_stream(&self, timeout_secs: f64) -> Result<(), Error> {
        let mut code = 0;
        let open = self.object.lsl.symbols.lsl_open_stream;
        // SAFETY: the inlet is alive; the code is written before the call returns.
        unsafe { open(self.object.handle, timeout_secs, &raw mut code) };
        check("lsl_open_stream", code)
    }

    /// Receives one sample into `values`. Returns its timestamp, or `None` after `timeout_secs`.
    ///
    /// # Errors
    /// [`Error::Length`], and [`Error::Code`] if the stream is lost.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn pull<T: Element>(
        &self,
        values: &mut [T],
        timeout_secs: f64,
    ) -> Result<Option<f64>, Error> {
        check_sample(values.len(), self.channels)?;
        let mut code = 0;
        let pull = T::typed(&self.object.lsl.symbols).pull_sample;
        let count = i32::try_from(values.len()).unwrap_or(i32::MAX);
        let buffer = values.as_mut_ptr();
        // SAFETY: the inlet is alive; no more values are announced than there is room for; the code
        // is written before the call returns.
        let timestamp = unsafe {
            pull(
                self.object.handle,
                buffer,
                count,
                timeout_secs,
                &raw mut code,
            )
        };
        if code != TIMEOUT {
            check("lsl_pull_sample", code)?;
        }
        Ok(Some(timestamp).filter(|timestamp| *timestamp != 0.0))
    }

    /// Receives samples into `values` and their times into `timestamps`, until both are full or
    /// `timeout_secs` have passed. Returns the number of samples.
    ///
    /// # Errors
    /// [`Error::Length`] unless there is a timestamp for each sample that fits, and [`Error::Code`] if the
    /// stream is lost.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn pull_chunk<T: Element>(
        &self,
        values: &mut [T],
        timestamps: &mut [f64],
        timeout_secs: f64,
    ) -> Result<usize, Error> {
        check_sample(
            timestamps.len(),
            whole_samples(values.len(), self.channels)?,
        )?;
        let mut code = 0;
        let pull = T::typed(&self.object.lsl.symbols).pull_chunk;
        let (room, samples) = (c_count(values.len())?, c_count(timestamps.len())?);
        let (buffer, stamps) = (values.as_mut_ptr(), timestamps.as_mut_ptr());
        let handle = self.object.handle;
        // SAFETY: the inlet is alive; no more is announced than there is room for; the code is
        // written before the call returns.
        let written = unsafe {
            pull(
                handle,
                buffer,
                stamps,
                room,
                samples,
                timeout_secs,
                &raw mut code,
            )
        };
        if code != TIMEOUT {
            check("lsl_pull_chunk", code)?;
        }
        let written = usize::try_from(written).unwrap_or(0).min(values.len());
        Ok(written / (self.channels.max(1) as usize))
    }

    /// Returns the number of samples that can be pulled without waiting.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn samples_available(&self) -> u32 {
        // SAFETY: the inlet is alive.
        unsafe { (self.object.lsl.symbols.lsl_samples_available)(self.object.handle) }
    }

    /// Returns the seconds to add to timestamps of the stream to convert them to the local clock.
    ///
    /// # Errors
    /// [`Error::Code`], also after a timeout.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn time_correction(&self, timeout_secs: f64) -> Result<f64, Error> {
        let mut code = 0;
        let ask = self.object.lsl.symbols.lsl_time_correction;
        // SAFETY: the inlet is alive; the code is written before the call returns.
        let offset = unsafe { ask(self.object.handle, timeout_secs, &raw mut code) };
        check("lsl_time_correction", code)?;
        Ok(offset)
    }

    /// Requests the complete description from the outlet.
    ///
    /// # Errors
    /// [`Error::Code`], also after a timeout.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn full_info(&self, timeout_secs: f64) -> Result<Info, Error> {
        let mut code = 0;
        let lsl = &self.object.lsl;
        let ask = lsl.symbols.lsl_get_fullinfo;
        // SAFETY: the inlet is alive; the code is written before the call returns.
        let handle = unsafe { ask(self.object.handle, timeout_secs, &raw mut code) };
        check("lsl_get_fullinfo", code)?;
        lsl.info(handle, "lsl_get_fullinfo")
    }

    /// Returns whether the connection is encrypted; `None` if the library cannot encrypt.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn is_encrypted(&self) -> Option<bool> {
        let ask = self.object.lsl.symbols.lslx_is_encrypted?;
        // SAFETY: the inlet is alive.
        Some(unsafe { ask(self.object.handle) } == 1)
    }

    /// Returns the reason why security refuses the stream, if there is one and the library tells it.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn last_security_error(&self) -> Option<String> {
        let lsl = &self.object.lsl;
        let ask = lsl.symbols.lslx_last_security_error?;
        // SAFETY: the inlet is alive.
        let text = unsafe { ask(self.object.handle) };
        Some(lsl.take_text(text)).filter(|text| !text.is_empty())
    }
}
