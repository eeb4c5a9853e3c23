//! Reads what a relay has written to Redis, in either layout: one blocking connection for each reader, as a client of
//! River has.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lsl_cli::failure::{Failure, Outcome};
use lsl_core::relay::FrameCodec;
use lsl_core::{StreamInfo, local_clock};
use lsl_relay::engine::resp::{Commands, Replies, Reply};
use lsl_relay::engine::{packed, river};

use super::backend::PATIENCE;
use super::number::Number;
use super::via::{Store, Via};

/// Reader of one stream, the only one of its server.
pub(super) struct StoreReader {
    connection: Connection,
    layout: Layout,
    /// What came and was not pulled yet, from `taken` on.
    stamps: Vec<f64>,
    values: Vec<u8>,
    taken: usize,
}

enum Layout {
    Packed {
        key: String,
        codec: Box<FrameCodec>,
        next: u64,
    },
    River {
        reader: river::Reader,
        packing: river::Packing,
        /// Entries that are asked for at a time.
        most: usize,
    },
}

struct Connection {
    stream: TcpStream,
    replies: Replies,
    buffer: Vec<u8>,
}

impl StoreReader {
    /// Waits until the stream is there.
    pub(super) fn open(store: Store, rate: f64) -> Outcome<Self> {
        let stream = TcpStream::connect(("127.0.0.1", store.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut connection = Connection {
            stream,
            replies: Replies::default(),
            buffer: vec![0; READ_BYTES],
        };
        let until = local_clock() + PATIENCE.as_secs_f64();
        let layout = loop {
            let found = match store.via {
                Via::River => Layout::river(&mut connection, rate)?,
                _ => Layout::packed(&mut connection)?,
            };
            if let Some(layout) = found {
                break layout;
            }
            if local_clock() > until {
                return Err(Failure::NotFound("the relay stores no stream".into()));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        };
        Ok(Self {
            connection,
            layout,
            stamps: Vec::new(),
            values: Vec::new(),
            taken: 0,
        })
    }

    /// Receives as many samples as there are timestamps, or fewer when no more came for a while.
    pub(super) fn pull<T: Number>(
        &mut self,
        values: &mut [T],
        timestamps: &mut [f64],
    ) -> Outcome<usize> {
        let channels = values.len() / timestamps.len().max(1);
        let bytes = channels * T::BYTES;
        let mut pulled = 0;
        while pulled < timestamps.len() {
            if self.taken == self.stamps.len() && !self.fetch()? {
                break;
            }
            let count = (timestamps.len() - pulled).min(self.stamps.len() - self.taken);
            let stamps = self.stamps.get(self.taken..self.taken + count);
            let raw = self
                .values
                .get(self.taken * bytes..(self.taken + count) * bytes);
            let to = pulled..pulled + count;
            if let (Some(from), Some(to)) = (stamps, timestamps.get_mut(to.clone())) {
                to.copy_from_slice(from);
            }
            let room = values.get_mut(to.start * channels..to.end * channels);
            if let (Some(raw), Some(room)) = (raw, room) {
                T::read(raw, room);
            }
            self.taken += count;
            pulled += count;
        }
        Ok(pulled)
    }

    /// Asks for the next samples, and waits for them; false if none came.
    fn fetch(&mut self) -> Outcome<bool> {
        self.stamps.clear();
        self.values.clear();
        self.taken = 0;
        let (stamps, values) = (&mut self.stamps, &mut self.values);
        match &mut self.layout {
            Layout::Packed { key, codec, next } => {
                let (after, count) = (format!("{next}-1"), MOST_BATCHES.to_string());
                let ms = WAIT_MS.to_string();
                let found = self.connection.ask_one(&[
                    &"XREAD", &"BLOCK", &ms, &"COUNT", &count, &"STREAMS", &*key, &after,
                ])?;
                // The entries stand behind the key; without any there is nothing.
                let entries = found.list().and_then(<[_]>::first).and_then(Reply::list);
                let entries = entries.and_then(<[_]>::last).unwrap_or(&Reply::Nil);
                for frames in
                    packed::batches(std::slice::from_ref(entries), *next).map_err(wrong)?
                {
                    if frames.first != *next {
                        let text = format!("batch {} where {next} is due", frames.first);
                        return Err(Failure::Lost(text));
                    }
                    codec.decode(&frames, stamps, values)?;
                    *next = frames.end();
                }
            }
            Layout::River {
                reader,
                packing,
                most,
            } => {
                let asked = reader.wait(*most, WAIT_MS);
                let replies = self.connection.ask(&asked)?;
                let reply = replies.first().unwrap_or(&Reply::Nil);
                let taken = reader.take(reply, |_, _, val| {
                    stamps.push(packing.unpack(val, values)?.unwrap_or(f64::NAN));
                    Ok(())
                });
                taken.map_err(wrong)?;
            }
        }
        Ok(!self.stamps.is_empty())
    }
}

impl Layout {
    fn packed(connection: &mut Connection) -> Outcome<Option<Self>> {
        let Some(key) = connection.key("lsl:{*}:m")? else {
            return Ok(None);
        };
        let described = connection.ask_one(&[&"HGETALL", &key])?;
        let xml = described.field("xml").and_then(Reply::bytes);
        let info = xml.map(StreamInfo::from_xml).transpose()?;
        Ok(info.map(|info| Self::Packed {
            key: key.replace(":m", ":d"),
            codec: FrameCodec::new(&info).into(),
            next: 0,
        }))
    }

    fn river(connection: &mut Connection, rate: f64) -> Outcome<Option<Self>> {
        let Some(key) = connection.key("*-metadata")? else {
            return Ok(None);
        };
        let name = river::described_by(&key).unwrap_or_default().to_owned();
        let described = connection.ask_one(&[&"HGETALL", &key])?;
        let metadata = river::Metadata::of_reply(&described).map_err(wrong)?;
        let Some(metadata) = metadata else {
            return Ok(None);
        };
        let packing = river::Packing::of_metadata(&name, &metadata, rate);
        let (packing, _) = packing.map_err(wrong)?;
        let most = REPLY_BYTES / metadata.schema.sample_len().max(1);
        Ok(Some(Self::River {
            reader: river::Reader::new(&name, &metadata),
            packing,
            most: most.clamp(1, MOST_ENTRIES),
        }))
    }
}

impl Connection {
    /// Returns the first key of this pattern.
    fn key(&mut self, pattern: &str) -> Outcome<Option<String>> {
        let reply = self.ask_one(&[&"KEYS", &pattern])?;
        let first = reply.list().and_then(<[_]>::first).and_then(Reply::text);
        Ok(first.map(str::to_owned))
    }

    fn ask_one(&mut self, words: &[&dyn AsRef<[u8]>]) -> Outcome<Reply> {
        let mut commands = Commands::default();
        commands.add(words);
        Ok(self.ask(&commands)?.pop().unwrap_or(Reply::Nil))
    }

    fn ask(&mut self, commands: &Commands) -> Outcome<Vec<Reply>> {
        self.stream.write_all(commands.bytes())?;
        let mut replies = Vec::with_capacity(commands.count());
        while replies.len() < commands.count() {
            let read = self.stream.read(&mut self.buffer)?;
            if read == 0 {
                return Err(Failure::Lost("Redis closed the connection".into()));
            }
            self.replies
                .feed(self.buffer.get(..read).unwrap_or_default());
            while let Some(reply) = self.replies.next_reply().map_err(wrong)? {
                if let Reply::Error(text) = reply {
                    return Err(Failure::Runtime(text));
                }
                replies.push(reply);
            }
        }
        Ok(replies)
    }
}

fn wrong(error: impl std::fmt::Display) -> Failure {
    Failure::Runtime(error.to_string())
}

/// As the relay's own reader asks for.
const REPLY_BYTES: usize = 2 << 20;
const MOST_ENTRIES: usize = 1000;
const MOST_BATCHES: usize = 8;

const WAIT_MS: u32 = 500;

const READ_BYTES: usize = 256 * 1024;

const BETWEEN_LOOKS: Duration = Duration::from_millis(3);
