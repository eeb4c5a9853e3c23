//! Thousands of made-up adverts: a recorder of everything neither runs out of memory or descriptors, nor
//! does it miss a real stream, nor say in the end that anything was lost.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lsl_core::{ChannelFormat, Outlet, StreamInfo};

use crate::lab::Lab;
use crate::record::{
    Verdict, generate, nothing_is_missing, read, start, stream, until, until_recording,
};

/// Adverts that are made up.
const FORGED: usize = 3000;

/// Answers every search of a lab with streams that are not there.
struct Forger {
    ends: Arc<AtomicBool>,
    said: Arc<AtomicUsize>,
    /// Takes connections, and never says a word.
    _silent: TcpListener,
}

/// What is made up.
struct Forgery {
    /// Where it comes from.
    host: [u8; 4],
    streams: usize,
    /// What the streams say to be; `{}` stands for a number.
    identity: String,
}

/// So many streams of this host.
fn forged(streams: usize) -> Forgery {
    Forgery {
        host: [127, 0, 0, 1],
        streams,
        identity: "<name>Forged{}</name><type>EEG</type><channel_count>8</channel_count>\
                   <channel_format>float32</channel_format><source_id>forged-{}</source_id>\
                   <nominal_srate>100</nominal_srate><hostname>here</hostname>"
            .to_owned(),
    }
}

impl Forger {
    fn new(lab: &Lab, forgery: Forgery) -> Self {
        let configuration = std::fs::read_to_string(lab.path("lsl_api.cfg")).unwrap();
        let value = |key: &str| {
            let line = configuration.lines().find(|line| line.starts_with(key));
            let (_, value) = line.unwrap().split_once('=').unwrap();
            value.trim().to_owned()
        };
        let base: u16 = value("BasePort").parse().unwrap();
        let session = value("SessionID");
        // At the end of the range, so that outlets find a port of their own.
        let socket = UdpSocket::bind(("127.0.0.1", base + 22)).unwrap();
        let from = UdpSocket::bind((Ipv4Addr::from(forgery.host), 0)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let (ends, said) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (over, count) = (Arc::clone(&ends), Arc::clone(&said));
        let sockets = [socket, from];
        thread::spawn(move || forge(&sockets, &session, port, &forgery, &over, &count));
        Self {
            ends,
            said,
            _silent: silent,
        }
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

fn forge(
    [socket, from]: &[UdpSocket; 2],
    session: &str,
    silent: u16,
    forgery: &Forgery,
    over: &AtomicBool,
    said: &AtomicUsize,
) {
    let mut buffer = [0; 4096];
    while !over.load(Ordering::Relaxed) {
        let Ok((len, peer)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let query = String::from_utf8_lossy(&buffer[..len]);
        // Ports of labs may overlap.
        if !query.contains(session) {
            continue;
        }
        let Some(rest) = query.strip_prefix("LSL:shortinfo\r\n") else {
            continue;
        };
        let Some((port, id)) = rest.lines().nth(1).and_then(|line| line.split_once(' ')) else {
            continue;
        };
        let Ok(port) = port.trim().parse::<u16>() else {
            continue;
        };
        // In bursts that a socket has room for.
        for _ in 0..forgery.streams {
            let number = said.fetch_add(1, Ordering::Relaxed) % forgery.streams;
            let identity = forgery.identity.replace("{}", &number.to_string());
            // Half of them at a port that nobody listens on.
            let data = if number.is_multiple_of(2) { silent } else { 1 };
            let answer = format!(
                "{id}\r\n<?xml version=\"1.0\"?>\n<info>{identity}\
                 <version>1.100000000000000</version><created_at>1.0</created_at>\
                 <uid>00000000-0000-4000-8000-{number:012}</uid><session_id>{session}</session_id>\
                 <v4address>127.0.0.1</v4address>\
                 <v4data_port>{data}</v4data_port><v4service_port>{data}</v4service_port>\
                 <v6address></v6address><v6data_port>0</v6data_port>\
                 <v6service_port>0</v6service_port><desc /></info>"
            );
            let _ = from.send_to(answer.as_bytes(), (peer.ip(), port));
            if number.is_multiple_of(16) {
                thread::sleep(Duration::from_micros(500));
            }
        }
    }
}

/// What a process has: bytes of memory at the most, and descriptors now.
fn holdings(id: u32) -> Option<(u64, usize)> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    let descriptors = std::fs::read_dir(format!("/proc/{id}/fd")).ok()?.count();
    Some((kilobytes * 1024, descriptors))
}

#[test]
fn an_advert_flood_costs_little_and_hides_no_stream() {
    let lab = Lab::new();
    let path = lab.path("flood.xdf");
    let _first = lab.start(&generate("First", &[]));
    let recorder = start(&lab, &["-o", &path]);
    until_recording(&path, 5_000);
    let forger = Forger::new(&lab, forged(FORGED));
    let (mut most_bytes, mut most_descriptors) = (0, 0);
    let mut look = || {
        let (bytes, descriptors) = holdings(recorder.id()).unwrap();
        most_bytes = bytes.max(most_bytes);
        most_descriptors = descriptors.max(most_descriptors);
    };
    // Everything was advertised several times over.
    until("adverts", || {
        look();
        forger.said.load(Ordering::Relaxed) > 4 * FORGED
    });
    // A real one comes in the midst of it.
    let _second = lab.start(&generate("Second", &["--wait"]));
    until("the second stream", || {
        look();
        let loaded = std::fs::File::open(&path).map(lsl_xdf::load);
        loaded.unwrap().is_ok_and(|it| it.streams.len() >= 2)
    });
    recorder.interrupt();
    let ended = recorder.wait();
    drop(forger);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let loaded = read(&path);
    assert_eq!(loaded.streams.len(), 2);
    nothing_is_missing(stream(&loaded, "First"));
    let second = nothing_is_missing(stream(&loaded, "Second"));
    assert_eq!(second[0], 0, "its first samples");
    assert!(most_descriptors < 400, "{most_descriptors} descriptors");
    assert!(most_bytes < 200 << 20, "{most_bytes} bytes");
    // Nor is the terminal of the operator theirs.
    assert!(
        ended.stderr.lines().count() < 60,
        "{}",
        ended.stderr.lines().count()
    );
}

/// Each of the silent ones took ten seconds, and the real one came last.
#[test]
fn a_stream_returns_though_another_host_makes_up_silent_ones_that_look_like_it() {
    let lab = Lab::new();
    let path = lab.path("returns.xdf");
    let info = StreamInfo::new("Amp", "EEG", 1, 0.0, ChannelFormat::Int32, "amp").unwrap();
    let outlet = lab.outlet(info.clone());
    let hostname = outlet.info().hostname().into_owned();
    let recorder = start(&lab, &["-o", &path]);
    let push_until = |outlet: &Outlet, bytes: u64| {
        until("samples", || {
            outlet.push(&[1]).unwrap();
            std::fs::metadata(&path).is_ok_and(|file| file.len() > bytes)
        });
        std::fs::metadata(&path).unwrap().len()
    };
    let before = push_until(&outlet, 2_000);
    let identity = format!(
        "<name>Amp</name><type>EEG</type><channel_count>1</channel_count>\
         <channel_format>int32</channel_format><source_id>amp</source_id>\
         <nominal_srate>0</nominal_srate><hostname>{hostname}</hostname>"
    );
    let forger = Forger::new(
        &lab,
        Forgery {
            host: [127, 0, 0, 66],
            streams: 40,
            identity,
        },
    );
    until("adverts", || forger.said.load(Ordering::Relaxed) > 40);
    drop(outlet);
    let outlet = lab.outlet(info);
    push_until(&outlet, before + 500);
    recorder.interrupt();
    recorder.wait().with(0, &["'Amp' is back"]);
    assert_eq!(read(&path).streams.len(), 1);
}

/// The recorder waited for it as long as for the stream, and then did not begin.
#[test]
fn a_silent_advert_of_a_required_name_does_not_keep_a_recording_from_its_beginning() {
    let lab = Lab::new();
    let path = lab.path("required.xdf");
    let identity = forged(1).identity.replace("Forged{}", "First");
    let _forger = Forger::new(
        &lab,
        Forgery {
            identity,
            ..forged(1)
        },
    );
    let _first = lab.start(&generate("First", &[]));
    let words = ["--require", "First", "-o", &path, "--timeout", "20"];
    start(&lab, &[&words[..], &["--duration", "1"]].concat())
        .wait()
        .with(0, &["does not connect"]);
    nothing_is_missing(stream(&read(&path), "First"));
}

/// The stream was not in the verdict any more once its advert had gone.
#[test]
fn a_named_stream_that_never_connected_is_told_when_its_advert_has_gone() {
    let lab = Lab::new();
    let path = lab.path("gone.xdf");
    let _first = lab.start(&generate("First", &[]));
    let forger = Forger::new(&lab, forged(1));
    let words = ["First", "Forged0", "-o", &path, "--timeout", "2"];
    let watched = [
        "--watch",
        "Forged0",
        "First",
        "-o",
        &lab.path("watched.xdf"),
    ];
    let more = ["--duration", "9"];
    let recorder = start(&lab, &[&words[..], &more].concat());
    let watcher = start(&lab, &[&watched[..], &more].concat());
    until_recording(&path, 5_000);
    drop(forger);
    recorder
        .wait()
        .with(3, &["does not connect", "lost and not back: Forged0"]);
    watcher.wait().with(0, &["Forged0"]);
    nothing_is_missing(stream(&read(&path), "First"));
}
