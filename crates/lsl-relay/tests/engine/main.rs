//! A relay that stores a stream in real servers of Redis, Valkey and, by the feature, NATS, which fail: each sample is
//! there once. A kind of server that is not on the machine makes tests ignored, with the reason printed. Spec: relay
//! §12.1, §12.3, §14 tests 12 and 17.
#![expect(clippy::print_stdout, reason = "a test runner talks to its user")]
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot run is a failed test"
)]
#![forbid(unsafe_code)]

#[cfg(feature = "nats")]
#[expect(
    clippy::disallowed_methods,
    reason = "tests wait for engines, which are async"
)]
mod nats;
mod proxy;
mod river;
mod server;
mod tests;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use lsl_core::config::Config;
use lsl_core::relay::FrameCodec;
use lsl_core::secure::trust::TrustList;
use lsl_core::{ChannelFormat, Context, Generation, Outlet, StreamInfo, local_clock};
use lsl_proto::wire::directory::{Record, RecordParser};
use lsl_relay::config::Config as RelayConfig;
use lsl_relay::engine::packed;
use lsl_relay::shell::Relay;
use serde_json::Value;

use server::{Kind, Server};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They wait most of the time.
    arguments.test_threads.get_or_insert(6);
    let mut trials = Vec::new();
    for (name, kind) in Kind::all() {
        if let Err(reason) = &kind {
            println!("engine: ignored on {name}: {reason}");
        }
        for (test, run) in tests::ALL {
            let (run, kind) = (*run, kind.clone());
            let trial = Trial::test(format!("{name}/{test}"), {
                let kind = kind.clone();
                move || {
                    run(&kind?);
                    Ok(())
                }
            });
            let is_missing = kind.is_err() || *test == "tls" && !has_tls(kind.as_ref().ok());
            if kind.is_ok() && is_missing {
                println!("engine: ignored: {name} without TLS, or no openssl, for {test}");
            }
            trials.push(trial.with_ignored_flag(is_missing));
        }
    }
    #[cfg(feature = "nats")]
    for (name, program) in nats::kinds() {
        if let Err(reason) = &program {
            println!("engine: ignored on {name}: {reason}");
        }
        for (test, run) in nats::ALL {
            let program = program.clone();
            let is_missing = program.is_err() || *test == "tls" && !has_openssl();
            let trial = Trial::test(format!("{name}/{test}"), move || {
                run(&program?);
                Ok(())
            });
            trials.push(trial.with_ignored_flag(is_missing));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Whether TLS can be tested: the server has it, and somebody makes certificates.
fn has_tls(kind: Option<&Kind>) -> bool {
    let refuses = |kind: &Kind| {
        let mut asked = Command::new(&kind.program);
        let asked = asked
            .args(["--port", "0", "--tls-port", "1"])
            .output()
            .unwrap();
        String::from_utf8_lossy(&asked.stdout).contains("Missing implement")
    };
    has_openssl() && kind.is_some_and(|kind| !refuses(kind))
}

fn has_openssl() -> bool {
    let openssl = Command::new("openssl").arg("version").output();
    openssl.is_ok()
}

/// Makes the files of a certificate for this machine, its key, and the certificate of who signed it.
fn certificates(folder: &Path) -> [String; 3] {
    std::fs::create_dir_all(folder).unwrap();
    let openssl = |line: &str| {
        let done = Command::new("openssl")
            .args(line.split(' '))
            .current_dir(folder)
            .output();
        let done = done.unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(&format!(
        "req -x509 {key} -keyout ca.key -out ca.crt -subj /CN=lsl-test-ca"
    ));
    openssl(&format!(
        "req {key} -keyout own.key -out own.csr -subj /CN=localhost"
    ));
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1\n";
    write(folder, "names", names);
    openssl(
        "x509 -req -in own.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out own.crt",
    );
    ["own.crt", "own.key", "ca.crt"].map(|name| folder.join(name).to_str().unwrap().to_owned())
}

const SOON: Duration = Duration::from_secs(20);

/// Number of appends that the longest test makes.
fn appends() -> u64 {
    let named = std::env::var("LSL_ENGINE_APPENDS").ok();
    named.map_or(300, |text| text.parse().unwrap())
}

/// A machine without any other, which a source and relays share.
fn context() -> Context {
    context_with(&[])
}

fn context_with(settings: &[(&str, &str)]) -> Context {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = u16::try_from(std::process::id() % 83).unwrap();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let base = 34_000 + (process * 7 + number) % 600 * 20;
    let mut config = Config::loopback();
    config.set_ports(base, 19);
    config.set_multicast_port(base + 19);
    config.set("ports.IPv6", "disable").unwrap();
    for (key, value) in settings {
        config.set(key, value).unwrap();
    }
    Context::new(config)
}

/// A relay whose engine is at this URL, with these lines in `[engine]`.
fn relay(context: &Context, url: &str, lines: &str) -> Relay {
    let text = format!(
        "[engine]\nurl = \"{url}\"\nflush_ms = 0\n{lines}\n[[rule]]\nmatch = \"type='{}'\"\nengine = true\n",
        kind()
    );
    let mut config = RelayConfig::parse(&text, &TrustList::default()).unwrap();
    config.listen = vec![(Ipv4Addr::LOCALHOST, 0).into()];
    Relay::start(context, &config, "hub", Vec::new()).unwrap()
}

/// Has one relay write a stream, which another one sees and goes on with when that ends. Returns stream and relay.
fn hand_over(url: &str) -> (Source, Relay) {
    let context = context();
    let mut source = Source::new(&context, "two");
    let first = relay(&context, url, "");
    until_read(&first);
    source.push_many(20);
    until_stored(&first, &source);
    let second = relay(&context, url, "");
    until_read(&second);
    until(&second, "it stands by", |it| it["standby"] == 1);
    source.push_many(20);
    until_stored(&first, &source);
    assert_eq!(engine(&second)["stored"], 0);
    drop(first);
    source.push_many(20);
    until(&second, "it writes", |it| {
        it["standby"] == 0 && it["waiting_bytes"] == 0
    });
    source.push_many(20);
    until(&second, "it wrote", |it| it["stored"].as_u64() >= Some(40));
    (source, second)
}

/// A type that no other process has.
fn kind() -> String {
    format!("Engine-{}", std::process::id())
}

/// A source whose samples are their sequence numbers.
struct Source {
    outlet: Outlet,
    info: StreamInfo,
    next: i32,
}

impl Source {
    fn new(context: &Context, name: &str) -> Self {
        let info = StreamInfo::new(name, kind(), 1, 0.0, ChannelFormat::Int32, name).unwrap();
        let outlet = Outlet::builder(info.clone())
            .context(context)
            .open()
            .unwrap();
        Self {
            outlet,
            info,
            next: 0,
        }
    }

    fn push(&mut self) {
        self.outlet.push(&[self.next]).unwrap();
        self.next += 1;
    }

    /// Pushes samples until so many appends may have been made, a little apart.
    fn push_many(&mut self, samples: u64) {
        for _ in 0..samples {
            self.push();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Pushes samples, no faster than they are stored.
    fn push_steadily(&mut self, samples: u64, relay: &Relay) {
        for _ in 0..samples / 10_000 {
            for _ in 0..10_000 {
                self.push();
            }
            until_stored(relay, self);
        }
    }

    fn pushed(&self) -> u64 {
        u64::try_from(self.next).unwrap()
    }
}

/// Documents of the streams that a relay tells of.
fn told(relay: &Relay, terms: &str) -> Vec<String> {
    let mut stream = TcpStream::connect(relay.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let request = format!("LSL:watch/1 {terms}\r\ntype='{}'\r\n", kind());
    stream.write_all(request.as_bytes()).unwrap();
    let (mut bytes, mut parser) = (Vec::new(), RecordParser::new());
    stream.read_to_end(&mut bytes).unwrap();
    let (mut rest, mut found) = (bytes.as_slice(), Vec::new());
    while let Some(record) = parser.next(&mut rest).unwrap() {
        if let Record::Stream { xml, .. } = record {
            found.push(String::from_utf8(xml.to_vec()).unwrap());
        }
    }
    found
}

/// An info that leads to the relay, as programs that asked it have one.
fn through(relay: &Relay, document: &str) -> StreamInfo {
    let mut info = StreamInfo::from_xml(document.as_bytes()).unwrap();
    info.fill_v4_address("127.0.0.1");
    // Nobody answers there.
    info.set_v4_ports(relay.addresses()[0].port(), 9);
    info
}

fn engine(relay: &Relay) -> Value {
    relay.status()["engine"].clone()
}

/// Waits until what the engine does is so.
fn until(relay: &Relay, what: &str, holds: impl Fn(&Value) -> bool) {
    let limit = local_clock() + 40.0;
    while !holds(&engine(relay)) {
        assert!(local_clock() < limit, "{what}: {}", engine(relay));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the relay reads the stream, so that the first sample is not missed.
fn until_read(relay: &Relay) {
    let limit = local_clock() + 40.0;
    let is_read = || relay.status()["streams"][0]["state"] == "flowing";
    while !is_read() {
        assert!(local_clock() < limit, "{}", relay.status());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn until_stored(relay: &Relay, source: &Source) {
    until(relay, "all is stored", |engine| {
        engine["waiting_bytes"] == 0 && engine["stored"].as_u64() >= Some(source.pushed())
    });
}

/// Reads all from a server as a reader does. Each sample must be there, and none twice unless that is said.
fn check(server: &Server, source: &Source, may_repeat: bool) {
    let generations = server.ask(&[&"KEYS", &"lsl:*:d"]);
    let [key] = generations.list().unwrap() else {
        panic!("{generations:?}");
    };
    let key = key.text().unwrap();
    let generation = &key["lsl:{".len()..key.len() - "}:d".len()];
    let generation = Generation::parse(generation.as_bytes()).unwrap();
    let codec = FrameCodec::new(&source.info);
    let mut next = 0;
    loop {
        let replies = server.ask_all(&packed::read(&generation, next, 64));
        let batches = packed::batches(&replies, next).unwrap();
        if batches.is_empty() {
            break;
        }
        for batch in batches {
            let (mut stamps, mut raw) = (Vec::new(), Vec::new());
            codec.decode(&batch, &mut stamps, &mut raw).unwrap();
            let values = raw.as_chunks().0.iter().map(|it| i32::from_ne_bytes(*it));
            for (number, value) in (batch.first..).zip(values) {
                assert_eq!(u64::try_from(value), Ok(number));
                assert!(may_repeat || number >= next, "{number} again");
                if number >= next {
                    assert_eq!(number, next, "samples are missing");
                    next += 1;
                }
            }
        }
    }
    assert_eq!(next, source.pushed());
}

/// Writes a file of a server's folder.
fn write(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}
