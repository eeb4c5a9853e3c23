//! Questions to single ports by UDP, and who answers.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use lsl_core::{StreamInfo, local_clock};
use lsl_platform::socket::bind_device;

use super::budget::Budget;
use super::socket::{drain, open_in_range, why};
use crate::observe::peers::PortState;
use crate::observe::{PortsInUse, SendError};
use crate::waves::Ids;

/// A question to a port.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) to: SocketAddr,
    /// What is asked for; nothing asks for all streams.
    pub(super) query: Vec<u8>,
    /// Whether somebody is known to be there: it is asked again, as datagrams get lost.
    pub(super) is_known: bool,
}

/// What came.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// What each question brought; `None` if it was not asked.
    pub(super) answered: Vec<Option<PortState>>,
    /// Streams, and the address that each answer came from.
    pub(super) streams: Vec<(StreamInfo, IpAddr)>,
}

/// Asks all, by the interface of this index if there is one. As programs do: from a port of the range.
pub(super) fn ask(
    questions: &[Question],
    ports: PortsInUse,
    by: Option<u32>,
    budget: &Budget,
    patience: f64,
    stop: &dyn Fn() -> bool,
) -> Option<Answers> {
    let ids = Ids::new(super::wave::random()?);
    let mut sockets: Vec<(bool, UdpSocket, u16)> = Vec::new();
    for is_v4 in [true, false] {
        let open = || {
            let socket = open_in_range(is_v4, ports)?;
            if let Some(index) = by {
                bind_device(&socket, index, is_v4)?;
            }
            Ok::<_, std::io::Error>(socket)
        };
        if let Ok(socket) = open() {
            let port = socket.local_addr().ok()?.as_socket()?.port();
            sockets.push((is_v4, socket.into(), port));
        }
    }
    let mut answers = Answers {
        answered: vec![None; questions.len()],
        streams: Vec::new(),
    };
    for round in 0..ROUNDS {
        for (at, question) in questions.iter().enumerate() {
            let Some(answered) = answers.answered.get_mut(at) else {
                continue;
            };
            let is_due = round == 0 || question.is_known && *answered == Some(PortState::Silent);
            let socket = sockets.iter().find(|it| it.0 == question.to.is_ipv4());
            let Some((_, socket, port)) = socket.filter(|_| is_due && budget.datagrams(1) > 0)
            else {
                continue;
            };
            let datagram = ids.question_for(&question.query, at, *port);
            match socket.send_to(&datagram, question.to) {
                Ok(_) => {
                    answered.get_or_insert(PortState::Silent);
                }
                Err(error) if why(&error) == SendError::Unreachable => {
                    *answered = Some(PortState::Unreachable);
                }
                // Forbidden here: it says nothing about the other side.
                Err(_) => {}
            }
        }
        let deadline = local_clock() + ROUND_SECS * patience;
        while local_clock() < deadline && !stop() {
            for (_, socket, _) in &sockets {
                drain(socket, |datagram, from| {
                    let Some((at, xml)) = ids.answer(datagram) else {
                        return;
                    };
                    let Some(answered) = answers.answered.get_mut(at) else {
                        return;
                    };
                    *answered = Some(PortState::Open);
                    if answers.streams.len() < MOST_STREAMS
                        && let Ok(info) = StreamInfo::from_xml(xml)
                    {
                        answers.streams.push((info, from.ip()));
                    }
                });
            }
        }
        let missing = |(question, answered): (&Question, &Option<PortState>)| {
            question.is_known && *answered == Some(PortState::Silent)
        };
        if stop() || !questions.iter().zip(&answers.answered).any(missing) {
            break;
        }
    }
    Some(answers)
}

const ROUNDS: u32 = 3;
const ROUND_SECS: f64 = 0.35;
const MOST_STREAMS: usize = 10_000;
