//! Remote control over TCP, as LabRecorder's: a line is a command, and the answer to each is the two
//! bytes `OK`, whatever came of it. Our own commands answer with a line of JSON.
//!
//! `select` takes what the command line takes: a name, KEY=VALUE or an XPath predicate, which has
//! `contains()` and `starts-with()`. No regular expressions: only whoever records could evaluate them,
//! so every stream of the network would have to answer and be looked at, while a predicate is answered
//! by the outlets that fit, now and when they appear; and the command would carry a crate for this
//! alone.
//!
//! Only this machine may connect unless a token is set. Paths stay below the folder for recordings.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use super::template::Fields;
use crate::failure::{Failure, Outcome};
use crate::note::note;
use crate::table::printable;

/// What somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    SelectAll,
    SelectNone,
    Select(String),
    Start,
    Stop,
    Update,
    /// Keys and values, as they came.
    Filename(Vec<(String, String)>),
    Status,
    Streams,
    Mark(String),
    Quit,
    /// Nothing we know; LabRecorder says OK to it.
    Unknown(String),
}

/// A command, and where its answer goes.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) command: Command,
    /// A line of JSON; LabRecorder's own commands want none.
    pub(super) answer: Option<Sender<String>>,
    /// Closes once the answer is on its way.
    pub(super) answered: Receiver<()>,
}

impl Command {
    pub(super) fn parse(line: &str) -> Self {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match (word.to_ascii_lowercase().as_str(), rest) {
            ("select", "all") => Self::SelectAll,
            ("select", "none") => Self::SelectNone,
            ("select", which) if !which.is_empty() => Self::Select(which.to_owned()),
            ("start", "") => Self::Start,
            ("stop", "") => Self::Stop,
            ("update", "") => Self::Update,
            ("filename", parts) => Self::Filename(pairs(parts)),
            ("status", "") => Self::Status,
            ("streams", "") => Self::Streams,
            ("mark", text) => Self::Mark(text.to_owned()),
            ("quit", "") => Self::Quit,
            _ => Self::Unknown(line.to_owned()),
        }
    }

    /// Whether it is one of ours, which answers with JSON.
    fn is_ours(&self) -> bool {
        matches!(
            self,
            Self::Select(_) | Self::Status | Self::Streams | Self::Mark(_) | Self::Quit
        )
    }
}

/// `{key:value} {key:value}`; a value may have colons and backslashes.
fn pairs(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        let Some(end) = rest[start..].find('}') else {
            break;
        };
        if let Some((key, value)) = rest[start + 1..start + end].split_once(':') {
            found.push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
        rest = &rest[start + end + 1..];
    }
    found
}

/// What the next recording is called, as far as others may say.
#[derive(Debug, Clone)]
pub(super) struct Naming {
    /// Nothing is recorded outside.
    pub(super) allowed: PathBuf,
    /// Below that.
    pub(super) root: PathBuf,
    pub(super) template: String,
    pub(super) fields: Fields,
}

impl Naming {
    /// Takes over what a client says. What it must not say is left as it is, and told.
    pub(super) fn apply(&mut self, pairs: &[(String, String)]) -> Outcome {
        let mut refused = None;
        for (key, value) in pairs {
            let fields = &mut self.fields;
            match key.as_str() {
                "root" => match confined(&self.allowed, value) {
                    Ok(root) => self.root = root,
                    Err(failure) => refused = Some(failure),
                },
                "template" => self.template.clone_from(value),
                "participant" => fields.participant.clone_from(value),
                "session" => fields.session.clone_from(value),
                "task" => fields.task.clone_from(value),
                "acquisition" => fields.acquisition.clone_from(value),
                "modality" => fields.modality.clone_from(value),
                "run" => match value.parse() {
                    Ok(run) => fields.run = Some(run),
                    Err(_) => {
                        refused = Some(Failure::Usage(format!("run '{value}' is no number")));
                    }
                },
                _ => refused = Some(Failure::Usage(format!("filename knows no '{key}'"))),
            }
        }
        refused.map_or(Ok(()), Err)
    }
}

/// A folder that a client names, if it lies in the one for recordings.
fn confined(allowed: &Path, root: &str) -> Outcome<PathBuf> {
    let outside = || {
        Failure::Usage(format!(
            "root '{}' is not below {}, which --root allows; recordings stay where they were",
            printable(root),
            allowed.display()
        ))
    };
    let absolute = std::path::absolute(allowed)?;
    let wanted = absolute.join(root);
    if root.contains('\\') || wanted.components().any(|part| part == Component::ParentDir) {
        return Err(outside());
    }
    // Folders that are there may be links; those that are not will be made.
    let real = |path: &Path| {
        let known = path
            .ancestors()
            .find_map(|it| Some((it, it.canonicalize().ok()?)));
        known.map(|(known, real)| match path.strip_prefix(known) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            _ => real,
        })
    };
    match (real(&absolute), real(&wanted)) {
        (Some(allowed), Some(wanted)) if wanted.starts_with(&allowed) => Ok(wanted),
        _ => Err(outside()),
    }
}

/// Starts to listen; commands arrive at the other end of the channel.
///
/// # Errors
/// [`Failure::Usage`] for an address that others can reach without a token, [`Failure::Runtime`] if the
/// port is taken.
pub(super) fn listen(
    address: &str,
    token: Option<String>,
) -> Outcome<(SocketAddr, Receiver<Request>)> {
    let address = if address.contains(':') {
        address.to_owned()
    } else {
        format!("{address}:{PORT}")
    };
    let listener = TcpListener::bind(&address)
        .map_err(|error| Failure::Runtime(format!("--rcs {address}: {error}")))?;
    let local = listener.local_addr()?;
    if !local.ip().is_loopback() && token.is_none() {
        return Err(Failure::Usage(format!(
            "--rcs {address}: others can reach this address, and nothing of it is encrypted; set \
             --rcs-token-file, or stay on 127.0.0.1 and use `ssh -L`"
        )));
    }
    let (sender, receiver) = mpsc::channel();
    let token: Option<Arc<str>> = token.map(Into::into);
    thread::Builder::new()
        .name("lsl-remote".into())
        .spawn(move || accept(&listener, &sender, token.as_ref()))
        .map_err(|error| Failure::Runtime(format!("cannot start a thread: {error}")))?;
    Ok((local, receiver))
}

fn accept(listener: &TcpListener, sender: &Sender<Request>, token: Option<&Arc<str>>) {
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of descriptors, say: not to be asked again in a hurry.
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        if clients.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS {
            clients.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (sender, token, counter) = (sender.clone(), token.cloned(), Arc::clone(&clients));
        let served = thread::Builder::new()
            .name("lsl-rcs".into())
            .spawn(move || {
                // A client that goes is none of our business.
                let _ = serve(&stream, &sender, token.as_deref());
                counter.fetch_sub(1, Ordering::Relaxed);
            });
        if served.is_err() {
            clients.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn serve(stream: &TcpStream, sender: &Sender<Request>, token: Option<&str>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut writer = stream;
    let mut reader = BufReader::new(stream);
    let mut is_known = token.is_none();
    let mut line = Vec::new();
    loop {
        line.clear();
        let len = reader
            .by_ref()
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)?;
        // A last line without its end is no command: who knows what is missing.
        if len == 0 || line.last() != Some(&b'\n') {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if let (false, Some(token)) = (is_known, token) {
            is_known = text
                .strip_prefix("auth ")
                .is_some_and(|given| is_equal(given.trim(), token));
            if !is_known {
                writer.write_all(b"{\"error\":\"auth TOKEN comes first\"}\n")?;
                return Ok(());
            }
            writer.write_all(b"OK")?;
            continue;
        }
        let command = Command::parse(text);
        let (answer, words) = if command.is_ours() {
            let (answer, words) = mpsc::channel();
            (Some(answer), Some(words))
        } else {
            (None, None)
        };
        // Closed when this command is done with.
        let (_written, answered) = mpsc::channel();
        let request = Request {
            command,
            answer,
            answered,
        };
        if sender.send(request).is_err() {
            return Ok(());
        }
        match words.map(|words| words.recv()) {
            None => writer.write_all(b"OK")?,
            Some(Ok(answer)) => writer.write_all(format!("{answer}\n").as_bytes())?,
            Some(Err(_)) => return Ok(()),
        }
    }
}

/// Takes as long for a wrong text as for a right one.
fn is_equal(given: &str, wanted: &str) -> bool {
    let differences = given
        .bytes()
        .zip(wanted.bytes())
        .fold(given.len() ^ wanted.len(), |sum, (a, b)| {
            sum | usize::from(a ^ b)
        });
    differences == 0
}

/// The token of a file: its first line.
pub(super) fn read_token(path: &Path) -> Outcome<String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Runtime(format!("{}: {error}", path.display())))?;
    let token = text.lines().next().unwrap_or_default().trim().to_owned();
    if token.len() < SHORTEST_TOKEN {
        return Err(Failure::Usage(format!(
            "{}: a token of at least {SHORTEST_TOKEN} letters, please",
            path.display()
        )));
    }
    Ok(token)
}

/// Says what came of a command that is answered with OK all the same.
pub(super) fn complain(failure: &Failure) {
    note(format_args!("lsl record: remote control: {failure}"));
}

/// LabRecorder's.
const PORT: u16 = 22345;
const MAX_LINE: u64 = 1 << 16;
const MAX_CLIENTS: usize = 16;
const SHORTEST_TOKEN: usize = 16;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_labrecorder_reads_them() {
        let check = |line: &str, expected: Command| assert_eq!(Command::parse(line), expected);
        check("select all\n", Command::SelectAll);
        check("select none", Command::SelectNone);
        check("select type='EEG'", Command::Select("type='EEG'".into()));
        check("start\r\n", Command::Start);
        check("stop", Command::Stop);
        check("update", Command::Update);
        check("mark Eyes  closed", Command::Mark("Eyes  closed".into()));
        check("hello", Command::Unknown("hello".into()));
        let line = "filename {root:C:\\Data\\} {template:exp%n\\%p_block_%b.xdf}{Run:2} \
                    {participant:P003} {task:Memory Guided}";
        let pairs = [
            ("root", "C:\\Data\\"),
            ("template", "exp%n\\%p_block_%b.xdf"),
            ("run", "2"),
            ("participant", "P003"),
            ("task", "Memory Guided"),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        check(line, Command::Filename(pairs.to_vec()));
        check("filename {root", Command::Filename(Vec::new()));
    }

    #[test]
    fn folders_outside_are_refused() {
        let base = std::env::temp_dir().join(format!("lsl-remote-{}", std::process::id()));
        let allowed = base.join("allowed");
        std::fs::create_dir_all(allowed.join("in")).unwrap();
        let real = allowed.canonicalize().unwrap();
        let good = |root: &str| confined(&allowed, root).unwrap();
        assert_eq!(good("in"), real.join("in"));
        assert_eq!(good("in/new/er"), real.join("in/new/er"));
        assert_eq!(good(""), real);
        assert_eq!(good(allowed.to_str().unwrap()), real);
        #[cfg(unix)]
        std::os::unix::fs::symlink(&base, allowed.join("out")).unwrap();
        for bad in [
            "..",
            "../x",
            "in/../../x",
            "/etc",
            "C:\\Data\\",
            "out",
            "out/x",
        ] {
            assert!(confined(&allowed, bad).is_err(), "{bad}");
        }
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(is_equal("abc", "abc"));
        for (given, wanted) in [("abd", "abc"), ("ab", "abc"), ("abcd", "abc"), ("", "a")] {
            assert!(!is_equal(given, wanted));
        }
    }
}
