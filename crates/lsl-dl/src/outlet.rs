//! Outlets of a foreign library, which send streams.

use crate::element::Element;
use crate::{Error, Info, Object, c_count, check, check_sample, whole_samples};

/// Outlet that sends one stream.
#[derive(Debug)]
pub struct Outlet {
    object: Object,
    channels: u32,
}

impl Outlet {
    /// Announces the stream and serves it. Buffers `max_buffered_secs` for slow readers.
    ///
    /// # Errors
    /// [`Error::Refused`] if the library cannot serve it.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn open(info: &Info, max_buffered_secs: i32) -> Result<Self, Error> {
        let lsl = &info.object.lsl;
        // SAFETY: the info is alive; the call copies it.
        let handle =
            unsafe { (lsl.symbols.lsl_create_outlet)(info.object.handle, 0, max_buffered_secs) };
        let destroy = lsl.symbols.lsl_destroy_outlet;
        Ok(Self {
            object: Object::new(lsl, handle, destroy, "lsl_create_outlet")?,
            channels: info.channels,
        })
    }

    /// Returns whether the stream has readers.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn have_consumers(&self) -> bool {
        // SAFETY: the outlet is alive.
        unsafe { (self.object.lsl.symbols.lsl_have_consumers)(self.object.handle) != 0 }
    }

    /// Waits until the stream has a reader. Returns false after `timeout_secs`.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn wait_for_consumers(&self, timeout_secs: f64) -> bool {
        let wait = self.object.lsl.symbols.lsl_wait_for_consumers;
        // SAFETY: the outlet is alive and cannot be destroyed while it is borrowed.
        unsafe { wait(self.object.handle, timeout_secs) != 0 }
    }

    /// Sends one sample at once; `timestamp` in seconds of the local clock.
    ///
    /// # Errors
    /// [`Error::Length`], and [`Error::Code`] if the library reports one.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn push<T: Element>(&self, values: &[T], timestamp: f64) -> Result<(), Error> {
        check_sample(values.len(), self.channels)?;
        let push = T::typed(&self.object.lsl.symbols).push_sample;
        // SAFETY: the outlet is alive and reads as many values as it has channels, which were
        // counted.
        let code = unsafe { push(self.object.handle, values.as_ptr(), timestamp, 1) };
        check("lsl_push_sample", code)
    }

    /// Sends samples at once. The values of one sample are contiguous; `timestamp` belongs to the last
    /// sample.
    ///
    /// # Errors
    /// [`Error::Length`], and [`Error::Code`] if the library reports one.
    #[expect(unsafe_code, reason = "a C function")]
    pub fn push_chunk<T: Element>(&self, values: &[T], timestamp: f64) -> Result<(), Error> {
        whole_samples(values.len(), self.channels)?;
        let push = T::typed(&self.object.lsl.symbols).push_chunk;
        let count = c_count(values.len())?;
        // SAFETY: the outlet is alive; as many values are announced as there are.
        let code = unsafe { push(self.object.handle, values.as_ptr(), count, timestamp, 1) };
        check("lsl_push_chunk", code)
    }
}
