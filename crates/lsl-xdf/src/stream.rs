//! Headers and footers of files and streams, as typed values over an XML document whose unknown elements
//! are kept. Spec: recorder §1 (tags 1, 2, 6), §3.7.

use std::borrow::Cow;

use lsl_proto::xml::{Document, ElementRef, NodeId, NodeKind};
use lsl_proto::{ChannelFormat, StreamInfo};

use crate::decode::MAX_SAMPLE_BYTES;
use crate::markup;
use crate::{Error, Result};

/// Largest number of offsets or gaps listed in one footer; further ones are counted only. Offsets are in
/// chunks of their own anyway. Twice as many make a footer that is too long for our own reader.
pub const MAX_LISTED: usize = 20_000;

/// Header of a file, which describes the recording.
#[derive(Debug, Clone)]
pub struct FileHeader {
    document: Document,
}

impl FileHeader {
    /// Creates a header of XDF 1.0. `datetime` is the wall clock time when recording began, as ISO 8601
    /// with an offset from UTC (`2026-11-22T08:31:56+0100`), the form of other programs.
    pub fn new(datetime: &str) -> Self {
        let mut file = Self {
            document: Document::new(),
        };
        let root = file.document.root();
        file.document.append_element(root, "info");
        file.set("version", "1.0").set("datetime", datetime);
        file
    }

    /// Adds an element of text below `<info>`, or changes it.
    pub fn set(&mut self, name: &str, value: &str) -> &mut Self {
        set(&mut self.document, name, value.as_bytes());
        self
    }

    /// Returns the text of an element below `<info>`.
    pub fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        info(&self.document)?.get(name)
    }

    /// Borrows the whole document of the header.
    pub fn document(&self) -> &Document {
        &self.document
    }

    pub(crate) fn parse(text: &[u8]) -> Result<(Self, Option<&'static str>), String> {
        let parsed = markup::read(text)?;
        let flaw = markup::flaw(text, &parsed);
        let document = parsed.document;
        Ok((Self { document }, flaw))
    }

    /// Writes the header as XML for a file.
    pub(crate) fn to_xml(&self) -> Result<Vec<u8>> {
        markup::write(&self.document).ok_or_else(too_long)
    }
}

fn too_long() -> Error {
    Error::Argument(format!(
        "XML of more than {} MiB cannot be written",
        markup::MAX_XML_BYTES >> 20
    ))
}

fn info(document: &Document) -> Option<ElementRef<'_>> {
    let id = document.child(document.root(), "info")?;
    ElementRef::new(document, id)
}

fn set(document: &mut Document, name: &str, value: &[u8]) {
    let root = document.root();
    let Some(top) = document
        .child(root, "info")
        .or_else(|| document.append_element(root, "info"))
    else {
        return;
    };
    if let Some(old) = document.child(top, name) {
        document.remove(old);
    }
    append(document, top, name, value);
}

fn append(document: &mut Document, parent: NodeId, name: &str, value: &[u8]) {
    if let Some(id) = document.append_element(parent, name) {
        document.append_text(id, value);
    }
}

/// Header of a stream. The typed fields are read from the very text that goes into the file, so that writer
/// and reader compute with the same numbers.
#[derive(Debug, Clone)]
pub struct StreamHeader {
    document: Document,
    format: ChannelFormat,
    channels: usize,
    srate: f64,
}

impl StreamHeader {
    /// Creates the header for a stream info, with its `<desc>`. If that is too long for a header, `<desc>`
    /// is left out and says so.
    ///
    /// # Errors
    /// [`Error::Argument`] for a stream without format.
    pub fn from_info(info: &StreamInfo) -> Result<Self> {
        let text = write_or_shorten(info.document()).ok_or_else(too_long)?;
        let (header, _) = Self::parse(&text).map_err(Error::Argument)?;
        Ok(header)
    }

    /// Creates a minimal header, for streams without a stream info.
    ///
    /// # Errors
    /// [`Error::Argument`] for an invalid format or number.
    pub fn new(
        name: &str,
        stream_type: &str,
        channel_count: u32,
        nominal_srate: f64,
        format: ChannelFormat,
    ) -> Result<Self> {
        let info = StreamInfo::new(name, stream_type, channel_count, nominal_srate, format, "");
        let info = info.map_err(|error| Error::Argument(error.to_string()))?;
        Self::from_info(&info)
    }

    /// Parses the XML of a stream header chunk. Also returns the first fault that a strict reader refuses.
    pub(crate) fn parse(text: &[u8]) -> Result<(Self, Option<&'static str>), String> {
        let parsed = markup::read(text)?;
        let flaw = markup::flaw(text, &parsed);
        let document = parsed.document;
        let top = info(&document).ok_or("it has no <info>")?;
        // Nothing but XML's blanks: other control characters are not written again by a repair.
        let blanks = [' ', '\t', '\r', '\n'];
        let field = |name: &str| {
            let text = top.get(name).unwrap_or_default();
            text.trim_matches(blanks).to_owned()
        };
        let format = field("channel_format");
        let format = match format.as_str() {
            // Written by a few programs instead of LSL's name.
            "float" => ChannelFormat::Float32,
            "double" => ChannelFormat::Double64,
            name => name
                .parse()
                .map_err(|_| format!("{:?} is no channel format", short(name)))?,
        };
        let channels = field("channel_count");
        let channels: u32 = channels
            .parse()
            .map_err(|_| format!("{:?} is no number of channels", short(&channels)))?;
        // A value takes at least a byte, so samples of such a stream would be too long to read.
        let most = MAX_SAMPLE_BYTES / format.value_size().max(1);
        if channels as usize > most {
            return Err(format!(
                "{channels} channels are more than a sample can have, which is {most}"
            ));
        }
        let srate = field("nominal_srate");
        // It is missing for streams without a rate.
        let srate = if srate.is_empty() {
            0.0
        } else {
            srate
                .parse()
                .map_err(|_| format!("{:?} is no sampling rate", short(&srate)))?
        };
        Ok((
            Self {
                format,
                channels: channels as usize,
                srate,
                document,
            },
            flaw,
        ))
    }

    /// Writes the header as XML for a file, shortened if it is too long.
    ///
    /// # Errors
    /// [`Error::Argument`] if it is too long even then.
    pub fn to_xml(&self) -> Result<Vec<u8>> {
        write_or_shorten(&self.document).ok_or_else(too_long)
    }

    /// Returns the format of the values; never [`ChannelFormat::Undefined`].
    pub fn channel_format(&self) -> ChannelFormat {
        self.format
    }

    /// Returns the number of values per sample.
    pub fn channel_count(&self) -> usize {
        self.channels
    }

    /// Returns the samples per second as announced, 0 if they come at no fixed interval.
    pub fn nominal_srate(&self) -> f64 {
        self.srate
    }

    /// Returns the seconds between an elided timestamp and the one before it, in the arithmetic of readers.
    pub(crate) fn interval(&self) -> f64 {
        if self.srate > 0.0 {
            1.0 / self.srate
        } else {
            0.0
        }
    }

    /// Returns the text of an element below `<info>`: `name`, `type`, `source_id`, `hostname`, `uid`, ….
    pub fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        info(&self.document)?.get(name)
    }

    /// Adds an element of text below `<info>`, or changes it. Format, channels and rate are fixed.
    pub fn set(&mut self, name: &str, value: &str) -> &mut Self {
        if !matches!(name, "channel_format" | "channel_count" | "nominal_srate") {
            set(&mut self.document, name, value.as_bytes());
        }
        self
    }

    /// Returns the name of the stream; empty if there is none.
    pub fn name(&self) -> Cow<'_, str> {
        self.get("name").unwrap_or_default()
    }

    /// Returns the content type of the stream; empty if there is none.
    pub fn stream_type(&self) -> Cow<'_, str> {
        self.get("type").unwrap_or_default()
    }

    /// Borrows the whole document of the header, `<desc>` included.
    pub fn document(&self) -> &Document {
        &self.document
    }
}

/// Returns as much of a file's text as a message needs.
fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Writes a header. If it is too long, `<desc>` is left out, and if necessary everything that readers can
/// do without.
fn write_or_shorten(document: &Document) -> Option<Vec<u8>> {
    if let Some(text) = markup::write(document) {
        return Some(text);
    }
    let mut shorter = document.clone();
    let root = shorter.root();
    let top = shorter.child(root, "info")?;
    // Searched once: a sender may have put thousands behind thousands of others.
    let is_desc =
        |&id: &NodeId| shorter.kind(id) == Some(NodeKind::Element) && shorter.name(id) == b"desc";
    let descs: Vec<NodeId> = shorter.children(top).filter(is_desc).collect();
    for desc in descs {
        shorter.remove(desc);
    }
    let desc = shorter.append_element(top, "desc")?;
    append(&mut shorter, desc, "left_out", b"too long");
    if let Some(text) = markup::write(&shorter) {
        return Some(text);
    }
    let mut least = Document::new();
    let root = least.root();
    least.append_element(root, "info");
    for name in [
        "name",
        "type",
        "channel_count",
        "channel_format",
        "nominal_srate",
    ] {
        let text = info(document)?.get(name).unwrap_or_default();
        let text: String = text.chars().take(1000).collect();
        set(&mut least, name, text.as_bytes());
    }
    markup::write(&least)
}

/// Time without samples, as far as the recorder knows.
#[derive(Debug, Clone, PartialEq)]
pub struct Gap {
    /// Timestamp of the last sample before it.
    pub from: f64,
    /// Timestamp of the first sample after it.
    pub to: f64,
    /// Number of missing samples, if known.
    pub samples: Option<u64>,
    /// Reason of the gap, in words for people.
    pub reason: String,
}

/// Counts of a stream's written data, for its footer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Timestamp of the first sample.
    pub first: Option<f64>,
    /// Timestamp of the last sample in the file.
    pub last: Option<f64>,
    /// Number of samples in the file.
    pub samples: u64,
    /// Clock offsets, (time, value), the first [`MAX_LISTED`].
    pub offsets: Vec<(f64, f64)>,
    /// Number of clock offsets, listed or not.
    pub offset_count: u64,
    /// Gaps in the order of time, the first [`MAX_LISTED`].
    pub gaps: Vec<Gap>,
    /// Number of gaps, listed or not.
    pub gap_count: u64,
}

impl Tally {
    /// Counts samples by their timestamps.
    pub fn count(&mut self, stamps: &[f64]) {
        if let (Some(&first), Some(&last)) = (stamps.first(), stamps.last()) {
            self.first.get_or_insert(first);
            self.last = Some(last);
            self.samples += stamps.len() as u64;
        }
    }

    /// Counts a clock offset, and lists it if there is room.
    pub fn count_offset(&mut self, time: f64, value: f64) {
        self.offset_count += 1;
        if self.offsets.len() < MAX_LISTED {
            self.offsets.push((time, value));
        }
    }

    /// Counts a gap. It extends the gap before if that began at the same sample for the same reason. While
    /// a disk stays full, the footer must not outgrow the room that was kept for it.
    pub fn count_gap(&mut self, gap: Gap) {
        let listed = self.gaps.len() as u64;
        if let Some(last) = self.gaps.last_mut()
            && self.gap_count == listed
            && last.from.to_bits() == gap.from.to_bits()
            && last.reason == gap.reason
            && let (Some(samples), Some(more)) = (last.samples, gap.samples)
        {
            last.to = gap.to;
            last.samples = Some(samples.saturating_add(more));
            return;
        }
        self.gap_count += 1;
        if self.gaps.len() < MAX_LISTED {
            self.gaps.push(gap);
        }
    }

    /// Returns an upper limit for the bytes of its footer chunk.
    pub(crate) fn footer_len(&self) -> u64 {
        let gaps: u64 = self
            .gaps
            .iter()
            .map(|g| 200 + 6 * g.reason.len() as u64)
            .sum();
        1000 + 110 * self.offsets.len() as u64 + gaps
    }
}

/// Footer of a stream, which sums up its recorded data.
#[derive(Debug, Clone)]
pub struct StreamFooter {
    document: Document,
}

impl StreamFooter {
    /// Creates the footer of a stream with these counts.
    pub fn new(tally: &Tally) -> Self {
        let mut document = Document::new();
        let root = document.root();
        let Some(top) = document.append_element(root, "info") else {
            return Self { document };
        };
        let doc = &mut document;
        // Readers expect numbers; LabRecorder writes these for empty streams.
        let (first, last) = (tally.first.unwrap_or(0.0), tally.last.unwrap_or(0.0));
        append(doc, top, "first_timestamp", number(first).as_bytes());
        append(doc, top, "last_timestamp", number(last).as_bytes());
        append(
            doc,
            top,
            "sample_count",
            tally.samples.to_string().as_bytes(),
        );
        if let Some(list) = doc.append_element(top, "clock_offsets") {
            for &(time, value) in &tally.offsets {
                if let Some(offset) = doc.append_element(list, "offset") {
                    append(doc, offset, "time", number(time).as_bytes());
                    append(doc, offset, "value", number(value).as_bytes());
                }
            }
        }
        if tally.gap_count > 0
            && let Some(list) = doc.append_element(top, "gaps")
        {
            for gap in &tally.gaps {
                if let Some(entry) = doc.append_element(list, "gap") {
                    append(doc, entry, "from", number(gap.from).as_bytes());
                    append(doc, entry, "to", number(gap.to).as_bytes());
                    if let Some(samples) = gap.samples {
                        append(doc, entry, "n", samples.to_string().as_bytes());
                    }
                    append(doc, entry, "reason", gap.reason.as_bytes());
                }
            }
            append(
                doc,
                top,
                "gap_count",
                tally.gap_count.to_string().as_bytes(),
            );
        }
        Self { document }
    }

    /// Adds an element of text below `<info>`, or changes it.
    pub fn set(&mut self, name: &str, value: &str) -> &mut Self {
        set(&mut self.document, name, value.as_bytes());
        self
    }

    pub(crate) fn parse(text: &[u8]) -> Result<(Self, Option<&'static str>), String> {
        let parsed = markup::read(text)?;
        let flaw = markup::flaw(text, &parsed);
        let document = parsed.document;
        if info(&document).is_none() {
            return Err("it has no <info>".to_owned());
        }
        Ok((Self { document }, flaw))
    }

    /// Writes the footer as XML for a file.
    pub(crate) fn to_xml(&self) -> Result<Vec<u8>> {
        markup::write(&self.document).ok_or_else(too_long)
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        info(&self.document)?.get(name)?.trim().parse().ok()
    }

    /// Returns the text of an element below `<info>`, as [`set`](Self::set) makes one.
    pub fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        info(&self.document)?.get(name)
    }

    /// Returns the timestamp of the first sample, as the footer says.
    pub fn first_timestamp(&self) -> Option<f64> {
        self.number("first_timestamp")
    }

    /// Returns the timestamp of the last sample, as the footer says.
    pub fn last_timestamp(&self) -> Option<f64> {
        self.number("last_timestamp")
    }

    /// Returns the number of samples, as the footer says.
    pub fn sample_count(&self) -> Option<u64> {
        self.number("sample_count")
    }

    /// Returns the clock offsets that it lists, (time, value).
    pub fn clock_offsets(&self) -> Vec<(f64, f64)> {
        let number = |element: ElementRef<'_>, name: &str| element.get(name)?.trim().parse().ok();
        self.list("clock_offsets", "offset", |offset| {
            Some((number(offset, "time")?, number(offset, "value")?))
        })
    }

    /// Returns the gaps that it lists.
    pub fn gaps(&self) -> Vec<Gap> {
        let number = |element: ElementRef<'_>, name: &str| element.get(name)?.trim().parse().ok();
        self.list("gaps", "gap", |gap| {
            Some(Gap {
                from: number(gap, "from")?,
                to: number(gap, "to")?,
                samples: gap.get("n").and_then(|n| n.trim().parse().ok()),
                reason: gap.get("reason").unwrap_or_default().into_owned(),
            })
        })
    }

    fn list<T>(
        &self,
        list: &str,
        entry: &str,
        read: impl Fn(ElementRef<'_>) -> Option<T>,
    ) -> Vec<T> {
        let Some(list) = info(&self.document).and_then(|top| top.child(list)) else {
            return Vec::new();
        };
        list.children_named(entry).filter_map(read).collect()
    }

    /// Borrows the whole document of the footer.
    pub fn document(&self) -> &Document {
        &self.document
    }
}

/// Returns the shortest text that reads back as the same number, with an exponent where that is shorter.
fn number(value: f64) -> String {
    format!("{value:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_footer_with_full_lists_can_be_read() {
        let mut tally = Tally::default();
        for n in 0..u32::try_from(MAX_LISTED).unwrap() + 5 {
            let (from, to) = (f64::from(n) + 0.125, f64::from(n) + 0.5);
            tally.count_offset(from, to);
            let (samples, reason) = (Some(u64::from(n)), "lost".to_owned());
            tally.count_gap(Gap {
                from,
                to,
                samples,
                reason,
            });
        }
        let text = StreamFooter::new(&tally).to_xml().unwrap();
        let (footer, flaw) = StreamFooter::parse(&text).unwrap();
        assert_eq!(flaw, None);
        assert_eq!(footer.clock_offsets(), tally.offsets);
        assert_eq!(footer.gaps(), tally.gaps);
        assert_eq!(tally.gaps.len(), MAX_LISTED);
    }

    #[test]
    fn errors_quote_little_of_what_a_file_says() {
        for field in ["channel_format", "channel_count", "nominal_srate"] {
            let info = StreamInfo::new("n", "t", 1, 5.0, ChannelFormat::Int8, "").unwrap();
            let mut document = info.document().clone();
            set(&mut document, field, "x".repeat(1 << 20).as_bytes());
            let text = markup::write(&document).unwrap();
            let error = StreamHeader::parse(&text).unwrap_err();
            assert!(error.len() < 100, "{}", error.len());
        }
    }

    /// This takes minutes if every search begins at the front.
    #[test]
    fn a_header_that_is_too_long_for_its_many_descriptions_is_shortened() {
        let info = StreamInfo::new("n", "t", 1, 0.0, ChannelFormat::Int8, "").unwrap();
        let mut document = info.document().clone();
        let top = document.child(document.root(), "info").unwrap();
        for name in ["a", "desc"] {
            for _ in 0..250_000 {
                document.append_element(top, name).unwrap();
            }
        }
        append(
            &mut document,
            top,
            "desc",
            &vec![b'x'; markup::MAX_XML_BYTES],
        );
        let text = write_or_shorten(&document).unwrap();
        let (header, flaw) = StreamHeader::parse(&text).unwrap();
        assert_eq!((header.channel_count(), flaw), (1, None));
        let top = super::info(header.document()).unwrap();
        assert_eq!(top.children_named("desc").count(), 1);
    }
}
