//! The stream of the operator's remarks.

use lsl_core::ChannelFormat;
use lsl_xdf::{StreamHeader, Strings};

use crate::queue::{Job, Queue, Refused, Slot};

/// Reason why a text event is missing in the file. It is counted.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// Too much waits for the disk; the next one may be taken.
    #[error("the disk does not keep up")]
    Full,
    /// The recording has ended and takes no marks.
    #[error("the recording has ended")]
    Closed,
    /// The stream of text events has no valid header.
    #[error(transparent)]
    Header(#[from] lsl_xdf::Error),
}

type Result<T = (), E = MarkError> = std::result::Result<T, E>;

/// Text events, as a stream of the recording from the first one on.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Whether the stream is in the file.
    has_begun: bool,
}

impl Marks {
    /// Records a text event of this moment.
    ///
    /// # Errors
    /// Nobody takes it. It is counted as missing then.
    pub(crate) fn add(&mut self, queue: &Queue, now: f64, text: &str) -> Result {
        let added = self.try_to_add(queue, now, text);
        if added.is_err() {
            queue.progress().note_unwritten(1);
        }
        added
    }

    fn try_to_add(&mut self, queue: &Queue, now: f64, text: &str) -> Result {
        if !self.has_begun {
            let mut header = StreamHeader::new(MARKS, "Markers", 1, 0.0, ChannelFormat::String)?;
            header.set(
                "hostname",
                &String::from_utf8_lossy(&lsl_platform::process::hostname()),
            );
            let header = Box::new(header);
            let slot = MARK_SLOT;
            // The writer takes a stream that it has already for the same.
            push(queue, Job::Stream { slot, header })?;
            // The clock is ours.
            push(
                queue,
                Job::Offset {
                    slot,
                    time: now,
                    value: 0.0,
                },
            )?;
            self.has_begun = true;
        }
        let values: Strings = [text].into_iter().collect();
        push(
            queue,
            Job::Samples {
                slot: MARK_SLOT,
                stamps: vec![now],
                values: values.into(),
                bytes: text.len(),
            },
        )
    }
}

fn push(queue: &Queue, job: Job) -> Result {
    queue.try_push(job).map_err(|refused| match refused {
        Refused::Full(_) => MarkError::Full,
        Refused::Closed => MarkError::Closed,
    })
}

const MARKS: &str = "lsl-record";
const MARK_SLOT: Slot = Slot::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(slot: Slot) -> Job {
        let values: Strings = ["12345678"].into_iter().collect();
        Job::Samples {
            slot,
            stamps: vec![0.0],
            values: values.into(),
            bytes: 8,
        }
    }

    #[test]
    fn a_mark_that_nobody_takes_is_told_and_counted() {
        let (queue, receiver) = Queue::with_room(8);
        let mut marks = Marks::default();
        queue.try_push(samples(0)).unwrap();
        // The stream is taken, its first mark is not.
        let error = marks.add(&queue, 1.0, "lost").unwrap_err();
        assert!(error.to_string().contains("does not keep up"), "{error}");
        assert_eq!(queue.progress().unwritten(), 1);
        let taken: Vec<Job> = receiver.try_iter().collect();
        assert!(matches!(
            taken.as_slice(),
            [Job::Samples { .. }, Job::Stream { .. }, Job::Offset { .. }]
        ));
        for job in &taken {
            queue.progress().note_taken(job);
        }
        marks.add(&queue, 2.0, "kept").unwrap();
        assert!(matches!(receiver.try_recv(), Ok(Job::Samples { .. })));
        drop(receiver);
        let error = marks.add(&queue, 3.0, "late").unwrap_err();
        assert!(error.to_string().contains("has ended"), "{error}");
        assert_eq!(queue.progress().unwritten(), 2);
    }

    #[test]
    fn a_stream_that_was_not_taken_comes_again() {
        let (queue, receiver) = Queue::new();
        let mut marks = Marks::default();
        let offset = || Job::Offset {
            slot: 0,
            time: 0.0,
            value: 0.0,
        };
        while queue.try_push(offset()).is_ok() {}
        assert!(marks.add(&queue, 1.0, "lost").is_err());
        receiver.try_iter().for_each(drop);
        marks.add(&queue, 2.0, "kept").unwrap();
        assert!(matches!(receiver.try_recv(), Ok(Job::Stream { .. })));
    }
}
