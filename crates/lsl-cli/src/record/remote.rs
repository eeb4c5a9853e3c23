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
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lsl_core::local_clock;

use super::remark::say;
use super::template::Fields;
use crate::failure::{Failure, Outcome};
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
    let climbs = |part| part == Component::ParentDir;
    if root.contains('\\') || Path::new(root).components().any(climbs) {
        return Err(outside());
    }
    let wanted = std::path::absolute(allowed)?.join(root);
    real_inside(allowed, &wanted)?.ok_or_else(outside)
}

/// A file that a template names, if it lies in the folder for recordings.
pub(super) fn confined_file(allowed: &Path, file: &Path) -> Outcome {
    let folder = std::path::absolute(file)?;
    let folder = folder.parent().unwrap_or(&folder);
    match real_inside(allowed, folder)? {
        Some(_) => Ok(()),
        None => Err(Failure::Usage(format!(
            "{} leads out of {}, which --root allows",
            file.display(),
            allowed.display()
        ))),
    }
}

/// A folder without links in it, if it lies in another one.
fn real_inside(allowed: &Path, wanted: &Path) -> Outcome<Option<PathBuf>> {
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
    let allowed = real(&std::path::absolute(allowed)?);
    let found = real(wanted);
    Ok(found.filter(|found| allowed.is_some_and(|allowed| found.starts_with(allowed))))
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
    let (sender, receiver) = mpsc::sync_channel(MAX_REQUESTS);
    let token: Option<Arc<str>> = token.map(Into::into);
    thread::Builder::new()
        .name("lsl-remote".into())
        .spawn(move || accept(&listener, &sender, token.as_ref()))
        .map_err(|error| Failure::Runtime(format!("cannot start a thread: {error}")))?;
    Ok((local, receiver))
}

fn accept(listener: &TcpListener, sender: &SyncSender<Request>, token: Option<&Arc<str>>) {
    let clients = Arc::new(Clients::default());
    for stream in listener.incoming() {
        let Ok(stream) = stream.map(Arc::new) else {
            // Out of descriptors, say: not to be asked again in a hurry.
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let Some(client) = clients.admit(&stream) else {
            say("lsl record: remote control: too many connections; a new one is refused.");
            continue;
        };
        let (sender, token, all) = (sender.clone(), token.cloned(), Arc::clone(&clients));
        let number = client.number;
        let served = thread::Builder::new()
            .name("lsl-rcs".into())
            .spawn(move || {
                // A client that goes is none of our business.
                let _ = serve(&client, &sender, token.as_deref());
                all.leave(client.number);
            });
        if served.is_err() {
            clients.leave(number);
        }
    }
}

/// A connection.
#[derive(Debug)]
struct Client {
    number: u64,
    stream: Arc<TcpStream>,
    /// When it was last obeyed; `None` if it never was.
    obeyed: Mutex<Option<f64>>,
}

impl Client {
    fn obeyed(&self) -> Option<f64> {
        *self.obeyed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_obeyed(&self) {
        let mut obeyed = self.obeyed.lock().unwrap_or_else(PoisonError::into_inner);
        *obeyed = Some(local_clock());
    }
}

/// Connections, the oldest first.
#[derive(Debug, Default)]
struct Clients {
    list: Mutex<Vec<Arc<Client>>>,
    count: AtomicU64,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Client>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in. If there is no room, one that nothing was heard of makes it: whoever keeps
    /// connections open does not lock the operator out, who may think for long before the first command.
    fn admit(&self, stream: &Arc<TcpStream>) -> Option<Arc<Client>> {
        let mut list = self.lock();
        if list.len() >= MAX_CLIENTS {
            let idle = list.iter().position(|client| client.obeyed().is_none());
            let quiet = |list: &[Arc<Client>]| {
                let all = list.iter().enumerate();
                let obeyed = all.filter_map(|(at, client)| Some((client.obeyed()?, at)));
                let (obeyed, at) = obeyed.min_by(|(one, _), (other, _)| one.total_cmp(other))?;
                (local_clock() - obeyed > QUIET_SECS).then_some(at)
            };
            let at = idle.or_else(|| quiet(&list))?;
            let gone = list.remove(at);
            // Its thread reads the end.
            let _ = gone.stream.shutdown(Shutdown::Both);
        }
        let client = Arc::new(Client {
            number: self.count.fetch_add(1, Ordering::Relaxed),
            stream: Arc::clone(stream),
            obeyed: Mutex::new(None),
        });
        list.push(Arc::clone(&client));
        Some(client)
    }

    fn leave(&self, number: u64) {
        self.lock().retain(|client| client.number != number);
    }
}

/// Whether a line comes from a browser: pages of others can make it send here whatever they like, as
/// the body of a request, and the first lines of that cannot be left out.
fn is_http(line: &str) -> bool {
    let is_version = |word: &str| {
        starts_with(word, "HTTP/")
            && word
                .bytes()
                .skip(5)
                .all(|c| c.is_ascii_digit() || c == b'.')
    };
    let request = line.rsplit_once(' ');
    request.is_some_and(|(_, last)| is_version(last)) || starts_with(line, "Host:")
}

fn starts_with(text: &str, start: &str) -> bool {
    let head = text.as_bytes().get(..start.len());
    head.is_some_and(|head| head.eq_ignore_ascii_case(start.as_bytes()))
}

fn serve(
    client: &Client,
    sender: &SyncSender<Request>,
    token: Option<&str>,
) -> std::io::Result<()> {
    let stream = &*client.stream;
    stream.set_nodelay(true)?;
    if token.is_some() {
        stream.set_read_timeout(Some(AUTH_LIMIT))?;
    }
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
        if is_http(text) {
            say("lsl record: remote control: a web page tried to send commands; refused.");
            return Ok(());
        }
        if let (false, Some(token)) = (is_known, token) {
            is_known = text
                .strip_prefix("auth ")
                .is_some_and(|given| is_equal(given.trim(), token));
            if !is_known {
                writer.write_all(b"{\"error\":\"auth TOKEN comes first\"}\n")?;
                return Ok(());
            }
            stream.set_read_timeout(None)?;
            client.note_obeyed();
            writer.write_all(b"OK")?;
            continue;
        }
        client.note_obeyed();
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
    say(format_args!("lsl record: remote control: {failure}"));
}

/// LabRecorder's.
const PORT: u16 = 22345;
const MAX_LINE: u64 = 1 << 16;
const MAX_CLIENTS: usize = 16;
/// Commands that may wait; whoever sends more waits for them.
const MAX_REQUESTS: usize = 64;
/// How long somebody may take to name the token.
const AUTH_LIMIT: Duration = Duration::from_secs(10);
/// After so long without a command a connection may make room for another.
const QUIET_SECS: f64 = 60.0;
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

    #[cfg(unix)]
    #[test]
    fn files_behind_links_and_roots_beside_us_are_told_apart() {
        let base = std::env::temp_dir().join(format!("lsl-confined-{}", std::process::id()));
        let allowed = base.join("allowed");
        std::fs::create_dir_all(&allowed).unwrap();
        std::fs::create_dir_all(base.join("outside")).unwrap();
        std::os::unix::fs::symlink("../outside", allowed.join("out")).unwrap();
        assert!(confined_file(&allowed, &allowed.join("new/x.xdf")).is_ok());
        assert!(confined_file(&allowed, &allowed.join("x.xdf")).is_ok());
        assert!(confined_file(&allowed, &allowed.join("out/x.xdf")).is_err());
        assert!(confined_file(&allowed, &allowed.join("out/new/x.xdf")).is_err());
        // `--root ../data` is a matter of whoever started us.
        let beside = base.join("outside/../allowed");
        let real = allowed.canonicalize().unwrap();
        assert_eq!(confined(&beside, "sub").unwrap(), real.join("sub"));
        assert!(confined(&beside, "../outside").is_err());
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn browsers_are_recognised() {
        for line in [
            "POST / HTTP/1.1",
            "get /x http/1.0",
            "Host: localhost",
            "HOST:x",
        ] {
            assert!(is_http(line), "{line}");
        }
        for line in [
            "start",
            "mark HTTP",
            "select name='x HTTP/1.1'",
            "HTTP/1.1",
            "Hosts",
            "ä",
        ] {
            assert!(!is_http(line), "{line}");
        }
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(is_equal("abc", "abc"));
        for (given, wanted) in [("abd", "abc"), ("ab", "abc"), ("abcd", "abc"), ("", "a")] {
            assert!(!is_equal(given, wanted));
        }
    }
}
