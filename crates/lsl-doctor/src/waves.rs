//! Questions whose answers say which copy of them was heard: each has an id of its own, which outlets repeat.

use lsl_proto::wire::discovery::{QueryDatagram, ReplyDatagram};

/// The ids of a run: 20 digits, as long as liblsl's, of which the last eight count the copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    nonce: u64,
}

impl Ids {
    /// Makes ids that nobody else has, as far as `random` is.
    pub fn new(random: u64) -> Self {
        // Twelve digits, of which the first is not 0.
        Self {
            nonce: 100_000_000_000 + random % 900_000_000_000,
        }
    }

    /// Returns a copy of the question for all streams of all sessions. Answers go to `port`.
    pub fn question(self, copy: usize, port: u16) -> Vec<u8> {
        self.question_for(b"", copy, port)
    }

    /// Returns a copy of a question for the streams that match.
    pub fn question_for(self, query: &[u8], copy: usize, port: u16) -> Vec<u8> {
        let id = format!("{}{copy:08}", self.nonce);
        QueryDatagram {
            query,
            return_port: port,
            id: id.as_bytes(),
        }
        .to_bytes()
    }

    /// Returns which copy a datagram answers, and the stream info in it; `None` if it answers none of this run.
    pub fn answer(self, datagram: &[u8]) -> Option<(usize, &[u8])> {
        let reply = ReplyDatagram::parse(datagram).ok()?;
        let id = std::str::from_utf8(reply.id).ok()?;
        let copy = id.strip_prefix(&self.nonce.to_string())?;
        let is_copy = copy.len() == 8 && copy.bytes().all(|byte| byte.is_ascii_digit());
        Some((copy.parse().ok().filter(|_| is_copy)?, reply.xml))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_its_copy() {
        let ids = Ids::new(u64::MAX);
        let question = ids.question(37, 16572);
        let parsed = QueryDatagram::parse(&question).unwrap();
        assert_eq!(
            (parsed.id.len(), parsed.return_port, parsed.query),
            (20, 16572, &b""[..])
        );
        let reply = ReplyDatagram {
            id: parsed.id,
            xml: b"<info/>",
        }
        .to_bytes();
        assert_eq!(ids.answer(&reply), Some((37, &b"<info/>"[..])));
        assert_eq!(Ids::new(5).answer(&reply), None);
        for broken in [
            &b""[..],
            b"\r\n",
            b"12\r\n<info/>",
            &reply[1..],
            &[reply[..19].to_vec(), b"\r\n".to_vec()].concat(),
        ] {
            assert_eq!(ids.answer(broken), None);
        }
    }
}
