//! The handshake of a connection: which message is awaited until when, and which question is open.
//! Spec: LSS/1 §4.2, §5.7, §5.8.

use std::mem;
use std::sync::Arc;

use super::refusal;
use super::send::Unsent;
use super::work::{Done, Task};
use super::{Answer, Question, Work, WorkDone};
use crate::handshake::{
    Claim, HandshakeError, Initiator, MAX_M1_LEN, MAX_M2_M3_LEN, Responder, Trail, Unconfirmed,
    VerifiedInitiator, VerifiedResponder, WaitM3, alert,
};
use crate::policy::{REFUSAL_503, REFUSAL_505};
use crate::record::MAX_RECORD_LEN;
use crate::{Cause, Descriptor, Error, Local, PublicKey, Random, Result, Session};

/// Handshake machine of either role, until the session is established or it fails.
#[derive(Debug)]
pub(super) struct Handshake {
    step: Step,
    /// The awaited message, as far as it has come.
    input: Vec<u8>,
    out: Unsent,
    /// When what is awaited is late, and the text for that.
    deadline: (f64, &'static str),
    question: Option<Question>,
    peer_name: String,
    /// Request that an initiator sends with M3.
    request: Vec<u8>,
    /// Descriptor that a responder sends of its stream.
    descriptor: Arc<Descriptor>,
}

/// What is awaited: a message, or an answer.
#[derive(Debug)]
enum Step {
    AwaitM1(Responder),
    AwaitTurn(Responder, Vec<u8>),
    AwaitM2(Initiator),
    AwaitM3(WaitM3),
    AwaitDescriptor(Box<Unconfirmed>),
    Work,
    JudgeInitiator(Box<VerifiedInitiator>),
    JudgeResponder(VerifiedResponder),
    JudgeDescriptor(Session),
    /// The last flight is on its way.
    Deliver(Session),
    Spent,
}

impl Handshake {
    pub(super) fn initiator(
        trail: Arc<Trail>,
        local: Arc<Local>,
        request: &[u8],
        now: f64,
        random: &mut impl Random,
    ) -> Result<Self> {
        let (initiator, flight) = Initiator::start_on(trail, local, random)?;
        let deadline = (now + M2_SECS, "no answer to the hello");
        let mut handshake = Self::new(Step::AwaitM2(initiator), deadline);
        handshake.out.push(&flight);
        handshake.request = request.to_vec();
        Ok(handshake)
    }

    pub(super) fn responder(
        trail: Arc<Trail>,
        local: Arc<Local>,
        descriptor: Arc<Descriptor>,
        now: f64,
    ) -> Self {
        let step = Step::AwaitM1(Responder::on(trail, local));
        let mut handshake = Self::new(step, (now + M1_SECS, "no M1"));
        handshake.descriptor = descriptor;
        handshake
    }

    fn new(step: Step, deadline: (f64, &'static str)) -> Self {
        Self {
            step,
            input: Vec::new(),
            out: Unsent::default(),
            deadline,
            question: None,
            peer_name: String::new(),
            request: Vec::new(),
            descriptor: Arc::default(),
        }
    }

    pub(super) fn out(&mut self) -> &mut Unsent {
        &mut self.out
    }

    pub(super) fn take_question(&mut self) -> Option<Question> {
        self.question.take()
    }

    /// The session and its peer's name, once everything has been sent and accepted.
    pub(super) fn take_session(&mut self) -> Option<(Session, String)> {
        match mem::replace(&mut self.step, Step::Spent) {
            Step::Deliver(session) if self.out.is_empty() => {
                Some((session, mem::take(&mut self.peer_name)))
            }
            other => {
                self.step = other;
                None
            }
        }
    }

    /// Returns the largest value of the awaited message's length field.
    fn limit(&self) -> Option<usize> {
        match self.step {
            Step::AwaitM1(_) => Some(MAX_M1_LEN),
            Step::AwaitM2(_) | Step::AwaitM3(_) => Some(MAX_M2_M3_LEN),
            Step::AwaitDescriptor(_) => Some(MAX_RECORD_LEN),
            _ => None,
        }
    }

    pub(super) fn max_read(&self) -> usize {
        if self.limit().is_none() {
            return 0;
        }
        let missing = if self.is_refusal() {
            refusal::MOST_LINE.saturating_sub(self.input.len())
        } else {
            self.missing()
        };
        missing.min(MOST_READ)
    }

    /// Bytes that the awaited message lacks, as far as that can be told.
    fn missing(&self) -> usize {
        let whole = match self.input.first_chunk() {
            Some(len) => LEN_BYTES + usize::from(u16::from_be_bytes(*len)),
            None => LEN_BYTES,
        };
        whole.saturating_sub(self.input.len())
    }

    /// Whether a line of text comes in place of M2.
    fn is_refusal(&self) -> bool {
        matches!(self.step, Step::AwaitM2(_)) && self.input.starts_with(refusal::START)
    }

    pub(super) fn handle_input(&mut self, bytes: &[u8]) -> Result<(), HandshakeError> {
        if bytes.is_empty() {
            return Err(self.end_of_stream().into());
        }
        if bytes.len() > self.max_read() {
            return Err(internal("more bytes than were asked for").into());
        }
        self.input.extend_from_slice(bytes);
        if self.is_refusal() {
            let is_whole = self.max_read() == 0 || self.input.contains(&b'\n');
            return if is_whole {
                Err(refusal::refused(&self.input).into())
            } else {
                Ok(())
            };
        }
        let (Some(len), Some(most)) = (self.input.first_chunk(), self.limit()) else {
            return Ok(());
        };
        let len = usize::from(u16::from_be_bytes(*len));
        // The peer is told of a record that is too long, which takes its keys.
        if len > most && !matches!(self.step, Step::AwaitDescriptor(_)) {
            let text = format!("a message of {len} bytes");
            return Err(Error::session(Cause::Malformed, text).into());
        }
        if len > most || self.missing() == 0 {
            let message = mem::take(&mut self.input);
            return self.handle_message(message);
        }
        Ok(())
    }

    /// Takes one message or record, with its length field; whole, but for a record that is too long.
    fn handle_message(&mut self, mut message: Vec<u8>) -> Result<(), HandshakeError> {
        match mem::replace(&mut self.step, Step::Spent) {
            Step::AwaitM1(responder) => {
                responder.check_m1(&message).map_err(refused_hello)?;
                self.step = Step::AwaitTurn(responder, message);
                self.question = Some(Question::Turn);
            }
            Step::AwaitM2(initiator) => self.ask_for(Task::ReceiveM2(initiator, message)),
            Step::AwaitM3(wait) => self.ask_for(Task::ReceiveM3(wait, message)),
            Step::AwaitDescriptor(unconfirmed) => {
                let (session, descriptor) = unconfirmed.receive_descriptor(&mut message)?;
                self.step = Step::JudgeDescriptor(session);
                self.question = Some(Question::Descriptor(descriptor));
            }
            _ => return Err(internal("a message that nobody awaits").into()),
        }
        Ok(())
    }

    fn ask_for(&mut self, task: Task) {
        self.step = Step::Work;
        self.question = Some(Question::Work(Work(task)));
    }

    fn end_of_stream(&self) -> Error {
        match self.step {
            Step::AwaitM2(_) if self.input.is_empty() => {
                Error::session(Cause::PeerNotSecure, "closed during hello")
            }
            _ if self.is_refusal() => refusal::refused(&self.input),
            _ => Error::session(Cause::Truncated, "the connection ended in the handshake"),
        }
    }

    pub(super) fn handle_answer(&mut self, answer: Answer, now: f64) -> Result<(), HandshakeError> {
        match (mem::replace(&mut self.step, Step::Spent), answer) {
            (Step::AwaitTurn(responder, m1), Answer::Turn(Ok(()))) => {
                self.ask_for(Task::ReceiveM1(responder, m1));
            }
            (Step::AwaitTurn(..), Answer::Turn(Err(cause))) => return Err(no_turn(cause)),
            (Step::Work, Answer::Work(WorkDone(done))) => return self.handle_work(*done, now),
            (Step::JudgeInitiator(verified), Answer::PeerKey(Ok(name))) => {
                let (session, record) = verified.accept(&self.descriptor)?;
                self.peer_name = name;
                self.out.push(&record);
                self.deadline = (now + M3_SECS, "DESCRIPTOR is not taken");
                self.step = Step::Deliver(session);
            }
            (Step::JudgeInitiator(verified), Answer::PeerKey(Err(cause))) => {
                let error = refused_key("inlet", verified.peer(), cause);
                return Err(HandshakeError::told(error, verified.refuse(cause, "")));
            }
            (Step::JudgeResponder(verified), Answer::PeerKey(Ok(name))) => {
                self.peer_name = name;
                self.ask_for(Task::MakeM3(verified));
            }
            (Step::JudgeResponder(verified), Answer::PeerKey(Err(cause))) => {
                let error = refused_key("outlet", verified.peer(), cause);
                return Err(HandshakeError::told(error, verified.refuse(cause)));
            }
            (Step::JudgeDescriptor(session), Answer::Descriptor(Ok(()))) => {
                // Due at the same time.
                self.deadline.1 = "the request is not taken";
                self.step = Step::Deliver(session);
            }
            (Step::JudgeDescriptor(mut session), Answer::Descriptor(Err(cause))) => {
                let told = alert(&mut session.sealer, cause, "");
                return Err(HandshakeError::told(refused_stream(cause), told));
            }
            _ => return Err(internal("not the answer to the open question").into()),
        }
        Ok(())
    }

    fn handle_work(&mut self, done: Done, now: f64) -> Result<(), HandshakeError> {
        match done {
            Done::M1(greeted) => {
                let (wait, m2) = greeted?;
                self.out.push(&m2);
                self.deadline = (now + M3_SECS, "no M3");
                self.step = Step::AwaitM3(wait);
            }
            Done::M2(offer) => {
                let verified = offer?;
                self.question = Some(Question::PeerKey(verified.peer()));
                self.step = Step::JudgeResponder(verified);
            }
            Done::MadeM3(made) => {
                let (mut unconfirmed, mut flight) = made?;
                let sealer = unconfirmed.sealer();
                sealer.seal_data(&mem::take(&mut self.request), now, &mut flight)?;
                self.out.push(&flight);
                self.deadline = (now + DESCRIPTOR_SECS, "no DESCRIPTOR");
                self.step = Step::AwaitDescriptor(unconfirmed);
            }
            Done::M3(claim) => match claim? {
                Claim::Verified(verified) => {
                    self.question = Some(Question::PeerKey(verified.peer()));
                    self.step = Step::JudgeInitiator(verified);
                }
                Claim::Refused(cause) => {
                    let text = "(in place of the inlet's identity, so anybody may have sent it)";
                    let text = text.to_owned();
                    return Err(Error::Alert { cause, text }.into());
                }
            },
        }
        Ok(())
    }

    pub(super) fn poll_timeout(&self) -> Option<f64> {
        let is_timed =
            self.limit().is_some() || matches!(self.step, Step::AwaitTurn(..) | Step::Deliver(_));
        is_timed.then_some(self.deadline.0)
    }

    pub(super) fn handle_timeout(&mut self, now: f64) -> Result<(), HandshakeError> {
        if self.poll_timeout().is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        Err(match self.step {
            Step::AwaitTurn(..) => no_turn(Cause::Busy),
            _ => Error::session(Cause::Timeout, self.deadline.1).into(),
        })
    }
}

fn no_turn(cause: Cause) -> HandshakeError {
    let error = Error::session(cause, "a limit on handshakes");
    HandshakeError::told(error, REFUSAL_503)
}

fn refused_hello(error: Error) -> HandshakeError {
    match error.cause() {
        Cause::Version | Cause::NoCommonSuite => HandshakeError::told(error, REFUSAL_505),
        _ => error.into(),
    }
}

fn refused_key(role: &str, peer: PublicKey, cause: Cause) -> Error {
    let fingerprint = peer.fingerprint();
    Error::session(cause, format!("refused the {role} with key {fingerprint}"))
}

fn refused_stream(cause: Cause) -> Error {
    let text = match cause {
        Cause::DescriptorMismatch => "the outlet's stream is not the one that was resolved",
        _ => "no longer trusted",
    };
    Error::session(cause, text)
}

fn internal(text: &'static str) -> Error {
    Error::session(Cause::Internal, text)
}

/// Bytes of the length field of messages and records.
const LEN_BYTES: usize = 2;

/// Most bytes taken at once. Spec: LSS/1 §6.2.
const MOST_READ: usize = 2048;

const M1_SECS: f64 = 3.0;
const M2_SECS: f64 = 10.0;
/// From M2 to M3, and from M3 until the DESCRIPTOR is taken.
const M3_SECS: f64 = 5.0;
const DESCRIPTOR_SECS: f64 = 10.0;
