//! TCP without LSL, to know what the socket allows: the pushing thread writes, the pulling thread
//! reads, Nagle's delay is off. Samples look as on LSL's wire (a byte, a timestamp or none, values), so
//! the same number of bytes travels. Sealed, each push is one AES-256-GCM frame per reader.
//!
//! Not for real use: no peer is authenticated, and every reader of this file knows the key.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use lsl_cli::failure::{Failure, Outcome};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::number::Number;

/// Sending side, with one socket for each reader.
pub(super) struct RawSender {
    listener: TcpListener,
    readers: Vec<(TcpStream, Option<Cipher>)>,
    is_sealed: bool,
    frame: Vec<u8>,
    sealed: Vec<u8>,
    period_secs: f64,
}

impl RawSender {
    pub(super) fn open(is_sealed: bool, nominal_rate: f64) -> Outcome<Self> {
        Ok(Self {
            listener: TcpListener::bind(("127.0.0.1", 0))?,
            readers: Vec::new(),
            is_sealed,
            frame: Vec::new(),
            sealed: Vec::new(),
            period_secs: 1.0 / nominal_rate,
        })
    }

    pub(super) fn address(&self) -> Outcome<String> {
        Ok(self.listener.local_addr()?.to_string())
    }

    /// Takes in this many readers, which have connected already.
    pub(super) fn accept(&mut self, readers: u32) -> Outcome {
        for index in 0..readers {
            let (mut socket, _) = self.listener.accept()?;
            socket.set_nodelay(true)?;
            socket.write_all(&index.to_be_bytes())?;
            let cipher = self.is_sealed.then(|| Cipher::new(index)).transpose()?;
            self.readers.push((socket, cipher));
        }
        Ok(())
    }

    /// Sends samples, the last of which was taken at `stamp`.
    pub(super) fn push<T: Number>(&mut self, values: &[T], channels: usize, stamp: f64) -> Outcome {
        self.frame.clear();
        let samples = values.len() / channels;
        let first = stamp - self.period_secs * (samples - 1) as f64;
        for (index, sample) in values.chunks_exact(channels).enumerate() {
            if index == 0 {
                self.frame.push(STAMPED);
                self.frame.extend_from_slice(&first.to_ne_bytes());
            } else {
                self.frame.push(DEDUCED);
            }
            T::write(sample, &mut self.frame);
        }
        for (socket, cipher) in &mut self.readers {
            match cipher {
                Some(cipher) => {
                    cipher.seal(&self.frame, &mut self.sealed)?;
                    socket.write_all(&self.sealed)?;
                }
                None => socket.write_all(&self.frame)?,
            }
        }
        Ok(())
    }
}

/// Receiving side of one reader.
pub(super) struct RawReceiver {
    socket: TcpStream,
    cipher: Option<Cipher>,
    /// Bytes as they came; `start..end` is not used up.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Opened samples; `next..` is not used up.
    opened: Vec<u8>,
    next: usize,
    last_stamp: f64,
    period_secs: f64,
}

impl RawReceiver {
    pub(super) fn open(address: &str, is_sealed: bool, nominal_rate: f64) -> Outcome<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            // Its number follows, once the outlet has accepted.
            cipher: is_sealed.then(|| Cipher::new(0)).transpose()?,
            bytes: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            opened: Vec::new(),
            next: 0,
            last_stamp: 0.0,
            period_secs: 1.0 / nominal_rate,
        })
    }

    /// Waits for the outlet to take this reader in.
    pub(super) fn begin(&mut self, timeout: Duration) -> Outcome {
        let mut index = [0; 4];
        self.socket.read_exact(&mut index)?;
        self.socket.set_read_timeout(Some(timeout))?;
        if let Some(cipher) = &mut self.cipher {
            cipher.reader = u32::from_be_bytes(index);
        }
        Ok(())
    }

    /// Receives one sample; `None` when nothing came in the time given to `begin`.
    pub(super) fn pull<T: Number>(&mut self, values: &mut [T]) -> Outcome<Option<f64>> {
        loop {
            let taken = if self.cipher.is_some() {
                let taken = take(&self.opened, self.next, values);
                taken.inspect(|taken| self.next += taken.len)
            } else {
                let here = self.bytes.get(..self.end).unwrap_or_default();
                let taken = take(here, self.start, values);
                taken.inspect(|taken| self.start += taken.len)
            };
            if let Some(taken) = taken {
                self.last_stamp = taken.stamp.unwrap_or(self.last_stamp + self.period_secs);
                return Ok(Some(self.last_stamp));
            }
            if !self.open_frame()? && !self.read()? {
                return Ok(None);
            }
        }
    }

    /// Opens the next frame, if it is here as a whole.
    fn open_frame(&mut self) -> Outcome<bool> {
        let Some(cipher) = &mut self.cipher else {
            return Ok(false);
        };
        let here = self.bytes.get_mut(self.start..self.end).unwrap_or_default();
        let Some((header, rest)) = here.split_first_chunk_mut() else {
            return Ok(false);
        };
        let len = u32::from_be_bytes(*header) as usize;
        if len > LARGEST_FRAME {
            return Err(broken());
        }
        let Some(frame) = rest.get_mut(..len) else {
            let needed = len + header.len();
            if self.bytes.len() < needed {
                self.bytes.resize(2 * needed, 0);
            }
            return Ok(false);
        };
        let text = cipher.open(frame)?;
        self.opened.clear();
        self.opened.extend_from_slice(text);
        self.next = 0;
        self.start += len + header.len();
        Ok(true)
    }

    /// Reads available bytes, waiting for the first; false once the time is up.
    fn read(&mut self) -> Outcome<bool> {
        // The rest is part of one sample or frame: little.
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.bytes.len() {
            self.bytes.resize(2 * self.end, 0);
        }
        let room = self.bytes.get_mut(self.end..).unwrap_or_default();
        match self.socket.read(room) {
            Ok(0) => Err(Failure::Lost("the outlet closed the connection".into())),
            Ok(count) => {
                self.end += count;
                Ok(true)
            }
            Err(error) if is_timeout(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a read with a timeout ended because of it.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

struct Taken {
    len: usize,
    stamp: Option<f64>,
}

/// Takes a sample from these bytes, if all of it is there.
fn take<T: Number>(bytes: &[u8], start: usize, values: &mut [T]) -> Option<Taken> {
    let (kind, rest) = bytes.get(start..)?.split_first()?;
    let (stamp, rest) = match *kind {
        STAMPED => {
            let (stamp, rest) = rest.split_first_chunk()?;
            (Some(f64::from_ne_bytes(*stamp)), rest)
        }
        _ => (None, rest),
    };
    let data = rest.get(..values.len() * T::BYTES)?;
    T::read(data, values);
    let len = bytes.len() - start - rest.len() + data.len();
    Some(Taken { len, stamp })
}

/// One direction of one connection.
struct Cipher {
    key: LessSafeKey,
    reader: u32,
    counter: u64,
}

impl Cipher {
    fn new(reader: u32) -> Outcome<Self> {
        let key = UnboundKey::new(&AES_256_GCM, &[0x4c; 32]).map_err(|_| broken())?;
        Ok(Self {
            key: LessSafeKey::new(key),
            reader,
            counter: 0,
        })
    }

    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; 12];
        let (reader, counter) = nonce.split_at_mut(4);
        reader.copy_from_slice(&self.reader.to_be_bytes());
        counter.copy_from_slice(&self.counter.to_be_bytes());
        self.counter += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    fn seal(&mut self, text: &[u8], frame: &mut Vec<u8>) -> Outcome {
        frame.clear();
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(text);
        let nonce = self.nonce();
        let body = frame.get_mut(4..).unwrap_or_default();
        let sealed = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::empty(), body);
        let tag = sealed.map_err(|_| broken())?;
        frame.extend_from_slice(tag.as_ref());
        let len = u32::try_from(frame.len() - 4).map_err(|_| broken())?;
        if let Some(header) = frame.get_mut(..4) {
            header.copy_from_slice(&len.to_be_bytes());
        }
        Ok(())
    }

    fn open<'a>(&mut self, frame: &'a mut [u8]) -> Outcome<&'a [u8]> {
        let nonce = self.nonce();
        let opened = self.key.open_in_place(nonce, Aad::empty(), frame);
        opened.map(|text| &*text).map_err(|_| broken())
    }
}

fn broken() -> Failure {
    Failure::Runtime("a frame is not what was sent".into())
}

const DEDUCED: u8 = 1;
const STAMPED: u8 = 2;
const BUFFER_BYTES: usize = 256 * 1024;
/// Far more than any batch has.
const LARGEST_FRAME: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(is_sealed: bool, batch: usize) {
        let mut sender = RawSender::open(is_sealed, 100.0).unwrap();
        let address = sender.address().unwrap();
        let mut receivers: Vec<RawReceiver> = (0..2)
            .map(|_| RawReceiver::open(&address, is_sealed, 100.0).unwrap())
            .collect();
        sender.accept(2).unwrap();
        let values: Vec<i16> = (0..3 * batch).map(|n| i16::try_from(n).unwrap()).collect();
        for stamp in [50.0, 60.0] {
            sender.push(&values, 3, stamp).unwrap();
        }
        for receiver in &mut receivers {
            receiver.begin(Duration::from_millis(20)).unwrap();
            for end in [50.0, 60.0] {
                for (index, expected) in values.chunks(3).enumerate() {
                    let mut sample = [0_i16; 3];
                    let stamp = receiver.pull(&mut sample).unwrap().unwrap();
                    let before = 0.01 * (batch - 1 - index) as f64;
                    assert!((stamp + before - end).abs() < 1e-9, "{stamp}");
                    assert_eq!(sample, expected);
                }
            }
            assert!(receiver.pull(&mut [0_i16; 3]).unwrap().is_none());
        }
        drop(sender);
        assert!(receivers[0].pull(&mut [0_i16; 3]).is_err());
    }

    #[test]
    fn samples_arrive_as_they_were_sent() {
        for batch in [1, 5, 1000] {
            check(false, batch);
            check(true, batch);
        }
    }

    #[test]
    fn what_was_changed_on_the_way_is_refused() {
        let mut sealed = Vec::new();
        Cipher::new(1)
            .unwrap()
            .seal(b"sample", &mut sealed)
            .unwrap();
        let mut same = sealed[4..].to_vec();
        assert_eq!(Cipher::new(1).unwrap().open(&mut same).unwrap(), b"sample");
        let mut other = sealed[4..].to_vec();
        other[2] ^= 1;
        assert!(Cipher::new(1).unwrap().open(&mut other).is_err());
    }
}
