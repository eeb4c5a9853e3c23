//! Encoding of chunks, appended to a buffer. Nothing here knows a file. Spec: recorder §1.

use lsl_proto::ChannelFormat;

use crate::chunk::{BOUNDARY_UUID, FIRST_PRIVATE_TAG, Tag, append_chunk, append_varlen};
use crate::stream::{FileHeader, StreamFooter, StreamHeader};
use crate::values::Values;
use crate::{Error, Result};

/// Appends the file header chunk; [`MAGIC`](crate::chunk::MAGIC) stands before it.
///
/// # Errors
/// [`Error::Argument`] if it is too long.
pub fn file_header(out: &mut Vec<u8>, header: &FileHeader) -> Result<()> {
    append_chunk(out, Tag::FileHeader, &[&header.to_xml()?]);
    Ok(())
}

/// Appends the chunk that introduces a stream, which stands before all others of that stream.
///
/// # Errors
/// [`Error::Argument`] if it is too long.
pub fn stream_header(out: &mut Vec<u8>, stream: u32, header: &StreamHeader) -> Result<()> {
    let xml = header.to_xml()?;
    append_chunk(out, Tag::StreamHeader, &[&stream.to_le_bytes(), &xml]);
    Ok(())
}

/// Appends the chunk that closes a stream.
///
/// # Errors
/// [`Error::Argument`] if it is too long.
pub fn stream_footer(out: &mut Vec<u8>, stream: u32, footer: &StreamFooter) -> Result<()> {
    let xml = footer.to_xml()?;
    append_chunk(out, Tag::StreamFooter, &[&stream.to_le_bytes(), &xml]);
    Ok(())
}

/// Appends a measured offset. `value` is added to the stream's clock to get the recorder's; `time` is the
/// stream's clock when it was measured (LabRecorder: recorder's now - offset).
pub fn clock_offset(out: &mut Vec<u8>, stream: u32, time: f64, value: f64) {
    append_chunk(
        out,
        Tag::ClockOffset,
        &[
            &stream.to_le_bytes(),
            &time.to_le_bytes(),
            &value.to_le_bytes(),
        ],
    );
}

/// Appends a boundary, where readers can resume.
pub fn boundary(out: &mut Vec<u8>) {
    append_chunk(out, Tag::Boundary, &[&BOUNDARY_UUID]);
}

/// Appends a private chunk, which other readers skip.
///
/// # Errors
/// [`Error::Argument`] for a tag below [`FIRST_PRIVATE_TAG`].
pub fn private(out: &mut Vec<u8>, tag: u16, content: &[u8]) -> Result<()> {
    if tag < FIRST_PRIVATE_TAG {
        let text =
            format!("tag {tag:#06x} is not private: those begin at {FIRST_PRIVATE_TAG:#06x}");
        return Err(Error::Argument(text));
    }
    append_chunk(out, Tag::Other(tag), &[content]);
    Ok(())
}

/// Encoder for the samples chunks of one stream.
///
/// A timestamp is left out where the arithmetic of readers, previous + 1 / rate, gives the same bits. The
/// first of a chunk never is: a chunk stands for itself, whatever is lost before it.
#[derive(Debug, Clone)]
pub struct SampleEncoder {
    stream: u32,
    format: ChannelFormat,
    channels: usize,
    interval: f64,
    content: Vec<u8>,
}

impl SampleEncoder {
    /// Creates an encoder for the stream of this number and header.
    pub fn new(stream: u32, header: &StreamHeader) -> Self {
        Self {
            stream,
            format: header.channel_format(),
            channels: header.channel_count(),
            interval: header.interval(),
            content: Vec::new(),
        }
    }

    /// Checks that the values make one sample of the stream per timestamp.
    ///
    /// # Errors
    /// [`Error::Argument`] if they do not.
    pub fn check(&self, stamps: &[f64], values: &Values) -> Result<()> {
        if values.format() != self.format {
            let text = format!("{} values for a {} stream", values.format(), self.format);
            return Err(Error::Argument(text));
        }
        if stamps.len().checked_mul(self.channels) != Some(values.len()) {
            let text = format!(
                "{} values are not {} samples of {} channels",
                values.len(),
                stamps.len(),
                self.channels
            );
            return Err(Error::Argument(text));
        }
        Ok(())
    }

    /// Appends one chunk with the samples `from..`, of about `limit` bytes and at least one sample. Returns
    /// the number of samples taken; 0 only if none is left.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub fn chunk(
        &mut self,
        out: &mut Vec<u8>,
        stamps: &[f64],
        values: &Values,
        from: usize,
        limit: usize,
    ) -> Result<usize> {
        self.check(stamps, values)?;
        self.content.clear();
        let mut last: Option<f64> = None;
        let mut taken = 0;
        for (index, &stamp) in stamps.iter().enumerate().skip(from) {
            if self.content.len() >= limit && taken > 0 {
                break;
            }
            match last {
                Some(last) if self.is_implied(last, stamp) => self.content.push(0),
                _ => {
                    self.content.push(8);
                    self.content.extend_from_slice(&stamp.to_le_bytes());
                }
            }
            last = Some(stamp);
            let first = index * self.channels;
            values.append_le(first..first + self.channels, &mut self.content);
            taken += 1;
        }
        if taken > 0 {
            let mut count = Vec::with_capacity(9);
            append_varlen(&mut count, taken as u64);
            let stream = self.stream.to_le_bytes();
            append_chunk(out, Tag::Samples, &[&stream, &count, &self.content]);
        }
        Ok(taken)
    }

    fn is_implied(&self, last: f64, stamp: f64) -> bool {
        self.interval > 0.0 && (last + self.interval).to_bits() == stamp.to_bits()
    }
}
