//! Reader for anything that gives bytes in order: a file, a pipe, a decrypting reader. Memory does not grow
//! with the file. Knows nothing of the meaning of the bytes.

use std::io::{self, Read};

use crate::decode::{Batch, DecodeStep, Decoder, Event, Located, Problem};
use crate::stream::{FileHeader, StreamFooter, StreamHeader};
use crate::values::Values;
use crate::{Error, Result};

/// Bytes that are read at once, and the first size of the window.
const PIECE: usize = 64 << 10;

/// Reader that yields the events of a file, one after the other.
///
/// ```
/// use lsl_xdf::{Event, Reader};
///
/// let mut reader = Reader::new(&b"XDF:"[..]);
/// while let Some(found) = reader.next()? {
///     if let Event::Samples(batch) = found.event {
///         println!("{} samples of stream {}", batch.stamps.len(), batch.stream);
///     }
/// }
/// # Ok::<(), lsl_xdf::Error>(())
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    decoder: Decoder,
    /// Memory for the window. Bytes not decoded yet are at `start..end`.
    window: Vec<u8>,
    start: usize,
    end: usize,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Creates a reader at the beginning of a file.
    pub fn new(input: R) -> Self {
        Self::with_decoder(input, Decoder::new())
    }

    /// Creates a reader with a decoder that was prepared, for instance with headers.
    pub fn with_decoder(input: R, decoder: Decoder) -> Self {
        Self {
            input,
            decoder,
            window: Vec::new(),
            start: 0,
            end: 0,
            ended: false,
        }
    }

    /// Returns the next event; `None` at the end of the file.
    ///
    /// # Errors
    /// [`Error::NotXdf`] at the beginning, and [`Error::Io`] of the input. A premature end of the file is a
    /// [`Problem`], no error.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator of results would have to end or repeat after an error; this does neither"
    )]
    pub fn next(&mut self) -> Result<Option<Located>> {
        loop {
            let window = self.window.get(self.start..self.end).unwrap_or_default();
            match self.decoder.step(window, self.ended)? {
                DecodeStep::Used(bytes, found) => {
                    self.start += bytes;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                DecodeStep::Need(bytes) => self.fill(bytes)?,
                DecodeStep::End => return Ok(None),
            }
        }
    }

    /// Borrows the decoder, which knows its position.
    pub fn decoder(&mut self) -> &mut Decoder {
        &mut self.decoder
    }

    /// Returns the bytes of memory that the window takes.
    pub fn window_capacity(&self) -> usize {
        self.window.capacity()
    }

    /// Reads until `need` bytes are in the window, or the input ends.
    fn fill(&mut self, need: usize) -> Result<()> {
        self.window.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        // A long sample is the exception; its memory is given back.
        if need <= 4 * PIECE && self.end <= 4 * PIECE && self.window.len() > 32 * PIECE {
            self.window.truncate(8 * PIECE);
            self.window.shrink_to_fit();
        }
        while self.end < need && !self.ended {
            // At most doubled: a claimed length is believed as its bytes arrive.
            let wanted = need.min(2 * self.end).max(self.end + PIECE);
            if self.window.len() < wanted {
                self.window.resize(wanted, 0);
            }
            let space = self.window.get_mut(self.end..).unwrap_or_default();
            let room = space.len();
            let got = loop {
                match self.input.read(space) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    got => break got.map_err(Error::io("read the recording"))?,
                }
            };
            self.end += got.min(room);
            self.ended = got == 0;
        }
        Ok(())
    }
}

/// Stream of a file, wholly in memory.
#[derive(Debug, Clone)]
pub struct LoadedStream {
    /// Number of the stream in the file.
    pub id: u32,
    /// Description of the stream; the last header if there are several.
    pub header: StreamHeader,
    /// The timestamp of each sample.
    pub stamps: Vec<f64>,
    /// Values of the samples, one sample after the other.
    pub values: Values,
    /// Clock offsets in the order of the file, (time, value).
    pub offsets: Vec<(f64, f64)>,
    /// The footer; the last one if there are several.
    pub footer: Option<StreamFooter>,
    /// Number of timestamps that stood in the file; the others were elided.
    pub full_stamps: usize,
}

/// A file wholly in memory, for small ones.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// Header of the file; `None` if it is missing or damaged.
    pub file_header: Option<FileHeader>,
    /// The streams in the order of their headers.
    pub streams: Vec<LoadedStream>,
    /// Number of boundaries in the file.
    pub boundaries: u64,
    /// Private chunks, tag and content, in order.
    pub private: Vec<(u16, Vec<u8>)>,
    /// Problems of the file, the first 10,000.
    pub problems: Vec<Problem>,
}

impl Loaded {
    /// Returns the stream of this number.
    pub fn stream(&self, id: u32) -> Option<&LoadedStream> {
        self.streams.iter().find(|stream| stream.id == id)
    }

    fn stream_mut(&mut self, id: u32) -> Option<&mut LoadedStream> {
        self.streams.iter_mut().find(|stream| stream.id == id)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::FileHeader(header) => self.file_header = Some(header),
            Event::StreamHeader { stream, header } => {
                let Some(values) = Values::new(header.channel_format()) else {
                    return;
                };
                match self.stream_mut(stream) {
                    Some(known) if known.values.format() == values.format() => {
                        known.header = header;
                    }
                    // Another stream of the same number: readers forget the first.
                    Some(known) => *known = LoadedStream::new(stream, header, values),
                    None => self.streams.push(LoadedStream::new(stream, header, values)),
                }
            }
            Event::Samples(Batch {
                stream,
                stamps,
                values,
                full_stamps,
            }) => {
                if let Some(known) = self.stream_mut(stream) {
                    known.stamps.extend(stamps);
                    known.values.extend_from(&values);
                    known.full_stamps += full_stamps;
                }
            }
            Event::ClockOffset {
                stream,
                time,
                value,
            } => {
                if let Some(known) = self.stream_mut(stream) {
                    known.offsets.push((time, value));
                }
            }
            Event::Boundary => self.boundaries += 1,
            Event::StreamFooter { stream, footer } => {
                if let Some(known) = self.stream_mut(stream) {
                    known.footer = Some(footer);
                }
            }
            Event::Private { tag, content } => self.private.push((tag, content)),
            Event::Orphan { .. } => {}
            Event::Problem(problem) => {
                if self.problems.len() < 10_000 {
                    self.problems.push(problem);
                }
            }
        }
    }
}

impl LoadedStream {
    fn new(id: u32, header: StreamHeader, values: Values) -> Self {
        Self {
            id,
            header,
            stamps: Vec::new(),
            values,
            offsets: Vec::new(),
            footer: None,
            full_stamps: 0,
        }
    }
}

/// Reads a whole file into memory.
///
/// # Errors
/// Those of [`Reader::next`].
pub fn load(input: impl Read) -> Result<Loaded> {
    let mut reader = Reader::new(input);
    let mut loaded = Loaded::default();
    while let Some(found) = reader.next()? {
        loaded.take(found.event);
    }
    Ok(loaded)
}
