//! Messages between client and server: requests and replies, one line of JSON each. Numbers that
//! would make a server work too much are refused by it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of this conversation; both sides must have the same.
pub(super) const VERSION: u32 = 1;

/// Requests of the client to the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(super) enum ControlRequest {
    /// Opens the conversation with the client's version.
    Hello { version: u32 },
    /// Offer a stream, and one that answers pings.
    Offer(Offer),
    /// Start pushing all samples: an inlet is connected.
    Push,
    /// Read the client's stream with this source id and send its samples back, so many of them.
    Echo { source_id: String, count: u32 },
    /// Close the streams of this offer.
    End,
}

/// Parameters of the stream to offer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) channels: u32,
    /// Rate of the stream in samples per second.
    pub(super) rate: f64,
    pub(super) samples: u64,
    pub(super) secure: bool,
}

/// Replies of the server to the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub(super) enum Reply {
    /// Answers the hello: its own version and that of `lsl`.
    Hello { version: u32, lsl: String },
    /// The source ids of both streams.
    Offered { stream: String, echo: String },
    /// All pushed, with this much processor time.
    Pushed {
        samples: u64,
        cpu_secs: f64,
        /// Metrics of the server's side; an older one has none.
        #[serde(default)]
        values: BTreeMap<String, f64>,
    },
    /// So many samples came back to the server.
    Echoed { count: u32 },
    /// The streams are closed, as asked.
    Ended,
    /// The request was not carried out.
    Failed { reason: String },
}

impl Offer {
    /// Whether a server does that.
    pub(super) fn check(&self) -> Result<(), String> {
        let secs = self.samples as f64 / self.rate;
        if !(1..=MAX_CHANNELS).contains(&self.channels) {
            Err(format!("channels must be 1 to {MAX_CHANNELS}"))
        } else if !(0.1..=MAX_RATE).contains(&self.rate) {
            Err(format!("the rate must be 0.1 to {MAX_RATE} Hz"))
        } else if !(0.0..=MAX_SECS).contains(&secs) {
            Err(format!("a stream lasts at most {MAX_SECS} s"))
        } else {
            Ok(())
        }
    }
}

pub(super) const MAX_CHANNELS: u32 = 4096;
pub(super) const MAX_RATE: f64 = 100_000.0;
pub(super) const MAX_SECS: f64 = 3600.0;
/// Samples that a server sends back.
pub(super) const MAX_ECHOES: u32 = 100_000;
/// Default port of servers, outside of LSL's range.
pub(super) const PORT: u16 = 16_690;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        let offer = Offer {
            channels: 64,
            rate: 1000.0,
            samples: 30_000,
            secure: true,
        };
        let text = serde_json::to_string(&ControlRequest::Offer(offer.clone())).unwrap();
        assert_eq!(
            text,
            r#"{"request":"offer","channels":64,"rate":1000.0,"samples":30000,"secure":true}"#
        );
        let heard: ControlRequest = serde_json::from_str(&text).unwrap();
        assert_eq!(heard, ControlRequest::Offer(offer));
        assert!(serde_json::from_str::<ControlRequest>(r#"{"request":"format_disk"}"#).is_err());
        let text = serde_json::to_string(&Reply::Ended).unwrap();
        assert_eq!(text, r#"{"reply":"ended"}"#);
    }

    #[test]
    fn a_server_has_limits() {
        let offer = |channels, rate, samples| Offer {
            channels,
            rate,
            samples,
            secure: false,
        };
        assert!(offer(64, 1000.0, 30_000).check().is_ok());
        for (channels, rate, samples) in [
            (0, 1000.0, 1),
            (4097, 1000.0, 1),
            (1, 0.0, 1),
            (1, f64::NAN, 1),
            (1, -1.0, 1),
            (1, 1e9, 1),
            (1, 1000.0, 3_600_001),
            (1, 1000.0, u64::MAX),
        ] {
            let text = format!("{channels} {rate} {samples}");
            assert!(offer(channels, rate, samples).check().is_err(), "{text}");
        }
    }
}
