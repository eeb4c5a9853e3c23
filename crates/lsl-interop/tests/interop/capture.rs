//! What went over the wire while a cell ran: a recording of all interfaces of the namespace, and the
//! searches in it.
//!
//! TCP streams are put together again, so that nothing hides at the border of two segments. A recording
//! with dropped frames is an error, since what is searched in it might be in the gap.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::Value;

use crate::cell::Outcome;

/// A running recording. Killed when dropped.
pub(crate) struct Capture {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
    file: PathBuf,
}

impl Capture {
    /// Begin to record into `file` with the command that runs `capture.py`.
    pub(crate) fn start(mut command: Command, file: PathBuf) -> Outcome<Self> {
        let mut child = command
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("capture.py: {error}"))?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("no pipe from capture.py")?;
        let mut capture = Self {
            child,
            input,
            output: BufReader::new(output),
            file,
        };
        match capture.line()?.trim() {
            "ready" => Ok(capture),
            other => Err(format!("capture.py said '{other}'")),
        }
    }

    /// End the recording and read it.
    pub(crate) fn finish(mut self) -> Outcome<Traffic> {
        drop(self.input.take());
        let summary = self.line()?;
        let summary: Value = serde_json::from_str(&summary).map_err(|error| error.to_string())?;
        if summary["dropped"] != 0 {
            return Err(format!("the recording has gaps: {summary}"));
        }
        let bytes = fs::read(&self.file).map_err(|error| error.to_string())?;
        let traffic = Traffic::read(&bytes).ok_or("an unreadable recording")?;
        if summary["frames"] == traffic.frames.len() {
            Ok(traffic)
        } else {
            Err(format!("{summary}, but {} are there", traffic.frames.len()))
        }
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .map_err(|error| format!("capture.py: {error}"))?;
        Ok(line)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // It has ended by itself if all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A recording that was read.
pub(crate) struct Traffic {
    frames: Vec<Vec<u8>>,
    streams: Vec<Stream>,
}

/// One direction of a TCP connection.
struct Stream {
    to_port: u16,
    /// By position behind the first byte.
    segments: Vec<(u32, Vec<u8>)>,
}

impl Traffic {
    fn read(file: &[u8]) -> Option<Self> {
        let mut rest = file.get(HEADER_LEN..)?;
        let mut frames = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_le_bytes(*rest.get(8..)?.first_chunk()?) as usize;
            frames.push(rest.get(16..16 + length)?.to_vec());
            rest = rest.get(16 + length..)?;
        }
        let streams = assemble(&frames);
        Some(Self { frames, streams })
    }

    /// Whether these bytes were sent, by whatever protocol.
    pub(crate) fn contains(&self, bytes: &[u8]) -> bool {
        self.frames.iter().any(|frame| has(frame, bytes))
            || self
                .streams
                .iter()
                .any(|stream| has(&stream.bytes(), bytes))
    }

    /// Whether some frame has both.
    pub(crate) fn contains_together(&self, first: &[u8], second: &[u8]) -> bool {
        let mut frames = self.frames.iter();
        frames.any(|frame| has(frame, first) && has(frame, second))
    }

    /// What was sent to this TCP port, connection by connection.
    pub(crate) fn sent_to(&self, port: u16) -> Vec<Vec<u8>> {
        let to = self.streams.iter().filter(|stream| stream.to_port == port);
        to.map(Stream::bytes).collect()
    }
}

/// Whether `bytes` are somewhere in it.
pub(crate) fn has(hay: &[u8], bytes: &[u8]) -> bool {
    let Some((first, rest)) = bytes.split_first() else {
        return true;
    };
    let mut from = 0;
    while let Some(at) = hay[from..].iter().position(|byte| byte == first) {
        from += at + 1;
        if hay[from..].starts_with(rest) {
            return true;
        }
    }
    false
}

impl Stream {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (at, segment) in &self.segments {
            // Sent again, or seen on its way out and in: what is known already is left out.
            let known = bytes.len().saturating_sub(*at as usize);
            bytes.extend(segment.iter().skip(known));
        }
        bytes
    }
}

/// The directions of all connections whose beginning was recorded.
fn assemble(frames: &[Vec<u8>]) -> Vec<Stream> {
    let mut streams: Vec<Stream> = Vec::new();
    // By addresses and ports of both ends: the first sequence number and the place in `streams`.
    let mut open: HashMap<Vec<u8>, (u32, usize)> = HashMap::new();
    for segment in frames.iter().filter_map(|frame| segment(frame)) {
        let known = open.get(&segment.ends).copied();
        if segment.is_first && known.is_none_or(|(first, _)| first != segment.sequence) {
            open.insert(segment.ends, (segment.sequence, streams.len()));
            streams.push(Stream {
                to_port: segment.to_port,
                segments: Vec::new(),
            });
        } else if let Some((first, index)) = known
            && !segment.payload.is_empty()
        {
            let at = segment.sequence.wrapping_sub(first).wrapping_sub(1);
            streams[index].segments.push((at, segment.payload.to_vec()));
        }
    }
    for stream in &mut streams {
        stream.segments.sort_by_key(|(at, _)| *at);
    }
    // Answers begin with a SYN, too, but nobody asks for the ports they go to.
    streams
}

struct Segment<'a> {
    ends: Vec<u8>,
    to_port: u16,
    sequence: u32,
    is_first: bool,
    payload: &'a [u8],
}

/// The TCP segment in an Ethernet frame.
fn segment(frame: &[u8]) -> Option<Segment<'_>> {
    let packet = frame.get(14..)?;
    let (addresses, transport) = match frame.get(12..14)? {
        [0x08, 0x00] if packet.get(9) == Some(&TCP) => {
            let header = usize::from(packet.first()? & 15) * 4;
            let total = usize::from(u16::from_be_bytes(*packet.get(2..)?.first_chunk()?));
            // Short frames are filled up; those that the card would have to cut have no length.
            let total = if total == 0 { packet.len() } else { total };
            (packet.get(12..20)?, packet.get(header..total)?)
        }
        [0x86, 0xdd] if packet.get(6) == Some(&TCP) => {
            let length = usize::from(u16::from_be_bytes(*packet.get(4..)?.first_chunk()?));
            let end = if length == 0 {
                packet.len()
            } else {
                40 + length
            };
            (packet.get(8..40)?, packet.get(40..end)?)
        }
        _ => return None,
    };
    let header = usize::from(transport.get(12)? >> 4) * 4;
    Some(Segment {
        ends: [addresses, transport.get(..4)?].concat(),
        to_port: u16::from_be_bytes(*transport.get(2..)?.first_chunk()?),
        sequence: u32::from_be_bytes(*transport.get(4..)?.first_chunk()?),
        is_first: transport.get(13)? & SYN != 0,
        payload: transport.get(header..)?,
    })
}

/// Bytes before the first record of a pcap file.
const HEADER_LEN: usize = 24;

const TCP: u8 = 6;
const SYN: u8 = 2;
