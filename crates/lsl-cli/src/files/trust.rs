//! The trust file: which devices may exchange streams with this one.

use std::fs;
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use lsl_core::secure::files::{self, Content};
use lsl_core::secure::trust::{Date, Peer, TrustList, today};
use lsl_platform::{append, remedy};

use crate::failure::{Failure, Outcome};
use crate::ui::notice::note;
use crate::ui::text::printable;

/// Trust file as read: its text and its entries.
#[derive(Debug)]
pub(crate) struct TrustFile<'a> {
    pub(crate) path: &'a Path,
    pub(crate) text: String,
    pub(crate) list: TrustList,
}

impl<'a> TrustFile<'a> {
    /// Reads a trust file and checks its predicates.
    pub(crate) fn read(path: &'a Path) -> Outcome<Self> {
        let text = files::read_text(path, Content::Shared)?;
        let list = TrustList::parse(&text, path)?;
        list.check_streams(path, &lsl_proto::describe::stream_queries())?;
        Ok(Self {
            path,
            text: text.to_string(),
            list,
        })
    }

    /// Replaces the file by `text`, which must say exactly `expected`.
    pub(crate) fn replace(&self, text: &str, expected: &TrustList) -> Outcome {
        let list = TrustList::parse(text, self.path)?;
        if list.peers() != expected.peers() {
            return Err(Failure::Runtime(format!(
                "{}: this file is written in a way that cannot be changed automatically; edit it by \
                 hand",
                self.path.display()
            )));
        }
        // Two commands at once must not undo each other. The lock is the directory's, since the file
        // is another one afterwards; where there are no locks, looking again must do.
        let locked = fs::canonicalize(self.path)
            .map(|path| remedy::typed(&path))
            .and_then(|path| append::lock_folder(path.parent().unwrap_or(&path)));
        if let Err(error) = &locked
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            note(format_args!(
                "lsl: warning: {}: not locked against other commands like this one: {error}",
                self.path.display()
            ));
        }
        let now = files::read_text(self.path, Content::Shared)?;
        if *now != self.text {
            return Err(Failure::Runtime(format!(
                "{}: somebody else changed it just now; run the command again",
                self.path.display()
            )));
        }
        files::replace(self.path, text.as_bytes()).map_err(|error| {
            let text = error.to_string();
            if !text.contains(remedy::DENIED) {
                return Failure::Runtime(text);
            }
            let rights = remedy::WITH_RIGHTS;
            Failure::Runtime(format!("{text}; run it as its owner, or {rights}"))
        })
    }

    /// Returns the day by which its dates are judged.
    pub(crate) fn today(&self) -> Date {
        today_for(Some(self.path))
    }
}

/// Reads the list in a trust file.
pub(crate) fn read(path: &Path) -> Outcome<TrustList> {
    TrustFile::read(path).map(|file| file.list)
}

/// Returns the day by which the dates in a trust file are judged.
pub(crate) fn today_for(file: Option<&Path>) -> Date {
    let modified = file
        .and_then(|path| fs::metadata(path).ok()?.modified().ok())
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    today(lsl_platform::clock::utc_now(), modified)
}

/// Reports when an entry ends, if that is near or past.
pub(crate) fn expiry(peer: &Peer, today: Date) -> Option<String> {
    let name = printable(&peer.name);
    let last = peer.not_after?;
    Some(match peer.days_left_if_few(today)? {
        days @ ..0 => format!("{name} expired {} days ago ({last}): it is refused.", -days),
        0 => format!("{name} expires today ({last}, UTC)."),
        days => format!("{name} expires in {days} days ({last})."),
    })
}
