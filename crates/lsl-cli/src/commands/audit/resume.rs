//! Where an exporter that was stopped goes on: what its file holds whole. Spec: audit §1.4.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use super::cbor::{Group, take_group};
use super::context::Id;
use crate::failure::{Failure, Outcome};

/// What an exported file says of itself.
#[derive(Debug, Default)]
pub(super) struct Resumed {
    pub(super) boot_secs: i64,
    /// Connections that have a context.
    pub(super) sessions: HashSet<Id>,
    /// Number of the last line of each chain.
    pub(super) chains: HashMap<String, u64>,
}

/// The last line, as far as its groups are there.
#[derive(Debug, Default)]
struct Last {
    begins_at: u64,
    session: Option<Id>,
    line: Option<(String, u64)>,
}

/// Reads a file and cuts off its last line, which may lack groups. `None` for a file that holds nothing yet.
///
/// # Errors
/// It is no such file: nothing is cut off then.
pub(super) fn resume(file: &mut File) -> Outcome<Option<Resumed>> {
    let len = file.metadata()?.len();
    let (mut buffer, mut start, mut position) = (Vec::new(), 0, 0);
    let mut resumed: Option<Resumed> = None;
    let mut last = Last::default();
    file.seek(SeekFrom::Start(0))?;
    loop {
        let mut rest = buffer.get(start..).unwrap_or_default();
        let before = rest.len();
        let Some(group) = take_group(&mut rest) else {
            if position + (before as u64) < len && before < MAX_GROUP {
                buffer.drain(..start);
                start = 0;
                let mut more = file.by_ref().take(PIECE);
                more.read_to_end(&mut buffer)?;
                continue;
            }
            break;
        };
        start += before - rest.len();
        match &mut resumed {
            None => {
                let boot_secs = group.boot_secs.ok_or_else(foreign)?;
                resumed = Some(Resumed {
                    boot_secs,
                    ..Resumed::default()
                });
                last.begins_at = (before - rest.len()) as u64;
            }
            Some(resumed) => resumed.note(group, position, &mut last),
        }
        position += (before - rest.len()) as u64;
    }
    // A program that was stopped leaves the end of one write behind, nothing else does.
    let torn = buffer.get(start..).unwrap_or_default();
    let is_ours = resumed.is_some() || HEAD.iter().zip(torn).all(|(one, other)| one == other);
    if !is_ours || len - position > MAX_GROUP as u64 {
        return Err(foreign());
    }
    file.set_len(if resumed.is_some() { last.begins_at } else { 0 })?;
    Ok(resumed)
}

impl Resumed {
    fn note(&mut self, group: Group, position: u64, last: &mut Last) {
        let is_session = group.name == "lsl::session" && group.chain.is_none();
        let line = group.chain.zip(group.seq);
        // The context of a connection stands before its first line.
        let begins =
            is_session || (line.is_some() && (last.line.is_some() || last.session.is_none()));
        if begins {
            let before = std::mem::take(last);
            self.sessions.extend(before.session);
            self.chains.extend(before.line);
            last.begins_at = position;
        }
        if is_session {
            last.session = Some(group.context);
        }
        if line.is_some() {
            last.line = line;
        }
    }
}

fn foreign() -> Failure {
    Failure::Runtime(
        "not a file of `lsl audit export --follow`, or damaged; move it away, and export anew"
            .into(),
    )
}

/// First bytes of any file.
const HEAD: &[u8] = b"\xa4gcontextP";
/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;
/// A write is shorter: groups of 64 KiB and a line, whose parts stand in several of them.
const MAX_GROUP: usize = 4 << 20;
