//! The direction from the peer: which records came, and why no more will. Spec: LSS/1 §8.1, §8.2.

use lsl_secure::{Cause, Opener, Record};

use super::Heard;

/// The direction from the peer.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) opener: Opener,
    /// DATA that nobody took yet: at most what one read brought, and a record.
    pub(super) inbox: Vec<u8>,
    pub(super) taken: usize,
    pub(super) closed: bool,
    pub(super) told_key_updates: u64,
}

#[derive(Debug)]
pub(super) struct News {
    pub(super) heard: Heard,
    pub(super) ping: Option<f64>,
}

/// Why nothing more will be heard.
#[derive(Debug)]
pub(super) enum End {
    /// The peer says so.
    Peer { cause: Cause, text: String },
    /// Its records are not as they must be.
    Here(lsl_secure::Error),
    /// The connection ended without CLOSE.
    Stream(lsl_secure::Error),
}

impl Receiving {
    pub(super) fn new(opener: Opener) -> Self {
        Self {
            opener,
            inbox: Vec::new(),
            taken: 0,
            closed: false,
            told_key_updates: 0,
        }
    }

    pub(super) fn take(&mut self, bytes: &mut [u8], now: f64) -> Result<News, End> {
        let before = self.opener.totals().records;
        let Self {
            opener,
            inbox,
            closed,
            ..
        } = self;
        let (mut ping, mut alert) = (None, None);
        let opened = opener.receive(bytes, now, |record| {
            match record {
                Record::Data(data) => inbox.extend_from_slice(data),
                Record::Ping(t0) => ping = Some(t0),
                Record::Close => *closed = true,
                Record::Alert(cause, text) => alert = Some((cause, text.to_owned())),
                // The opener lets nothing else through that an inlet may not send.
                _ => {}
            }
            Ok(())
        });
        if let Some((cause, text)) = alert {
            return Err(End::Peer { cause, text });
        }
        opened.map_err(End::Here)?;
        let heard = if self.closed {
            Heard::Close
        } else if self.opener.totals().records > before {
            Heard::Records
        } else {
            Heard::Nothing
        };
        Ok(News { heard, ping })
    }

    pub(super) fn end_of_stream(&self) -> Result<News, End> {
        self.opener.end().map_err(End::Stream)?;
        Ok(News {
            heard: Heard::Close,
            ping: None,
        })
    }

    pub(super) fn take_inbox(&mut self, buffer: &mut [u8]) -> usize {
        let waiting = &self.inbox[self.taken..];
        let taken = waiting.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&waiting[..taken]);
        self.taken += taken;
        if self.taken == self.inbox.len() {
            self.inbox.clear();
            self.taken = 0;
        }
        taken
    }

    pub(super) fn discard_inbox(&mut self) -> usize {
        let discarded = self.inbox.len() - self.taken;
        self.inbox = Vec::new();
        self.taken = 0;
        discarded
    }

    pub(super) fn take_news(&mut self) -> u64 {
        let updates = self.opener.totals().key_updates;
        updates - std::mem::replace(&mut self.told_key_updates, updates)
    }
}
