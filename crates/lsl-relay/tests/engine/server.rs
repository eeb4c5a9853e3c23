//! Servers of Redis and Valkey for a moment, each with an address of its own on loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lsl_core::local_clock;
use lsl_relay::engine::resp::{Commands, Replies, Reply};

/// A kind of server, and what runs it.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub(crate) program: PathBuf,
}

impl Kind {
    /// Returns the kinds, and why one is missing.
    pub(crate) fn all() -> [(&'static str, Result<Self, String>); 2] {
        let found = |variable, name| program(variable, name).map(|program| Self { program });
        [
            ("redis", found("LSL_REDIS_SERVER", "redis-server")),
            ("valkey", found("LSL_VALKEY_SERVER", "valkey-server")),
        ]
    }
}

/// Returns the program that a variable names, else that of this name; or why there is none.
pub(crate) fn program(variable: &str, name: &str) -> Result<PathBuf, String> {
    let named = std::env::var_os(variable).map_or_else(|| name.into(), PathBuf::from);
    let runs = Command::new(&named).arg("--version").output();
    let is_there = runs.is_ok_and(|output| output.status.success());
    let missing = || format!("no {name}; name one by {variable}");
    is_there.then_some(named).ok_or_else(missing)
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    kind: Kind,
    options: Vec<String>,
    port: u16,
    child: Child,
    /// Folder of its own.
    folder: PathBuf,
}

impl Server {
    /// Starts a server with these options besides `--bind`, `--save` and the port, `{folder}` in which is its folder.
    pub(crate) fn start(kind: &Kind, options: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lsl-engine-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let options: Vec<_> = options.iter().map(|it| (*it).to_owned()).collect();
        let port = free_port();
        let child = run(kind, port, &options, &folder);
        let server = Self {
            kind: kind.clone(),
            options,
            port,
            child,
            folder,
        };
        server.wait();
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Ends it as `kill -9` does, and starts another one at the same address, which knows nothing.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = run(&self.kind, self.port, &self.options, &self.folder);
        self.wait();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Runs a command, and returns the reply.
    pub(crate) fn ask(&self, parts: &[&dyn AsRef<[u8]>]) -> Reply {
        let mut commands = Commands::default();
        commands.add(parts);
        self.ask_all(&commands).remove(0)
    }

    /// Runs commands, and returns the replies.
    pub(crate) fn ask_all(&self, commands: &Commands) -> Vec<Reply> {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.write_all(commands.bytes()).unwrap();
        read(&mut stream, commands.count()).unwrap()
    }

    fn wait(&self) {
        let until = local_clock() + 20.0;
        let answers = || {
            let mut stream = TcpStream::connect(self.address())?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
            read(&mut stream, 1)
        };
        while answers().is_err() {
            assert!(local_clock() < until, "{:?} does not answer", self.kind);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns a port that was free a moment ago, and is, but for chance.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn run(kind: &Kind, port: u16, options: &[String], folder: &Path) -> Child {
    let folder = folder.to_str().unwrap();
    let options = options.iter().map(|it| it.replace("{folder}", folder));
    Command::new(&kind.program)
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--port", &port.to_string(), "--dir", folder])
        .args(options)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn read(stream: &mut TcpStream, count: usize) -> std::io::Result<Vec<Reply>> {
    let (mut replies, mut found, mut bytes) = (Replies::default(), Vec::new(), vec![0; 1 << 16]);
    while found.len() < count {
        let read = stream.read(&mut bytes)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        replies.feed(&bytes[..read]);
        while let Some(reply) = replies.next_reply().map_err(std::io::Error::other)? {
            found.push(reply);
        }
    }
    Ok(found)
}
