//! Thousands of made-up adverts: a recorder of everything neither runs out of memory or descriptors, nor
//! does it miss a real stream, nor say in the end that anything was lost.

use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

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

impl Forger {
    /// One with so many streams.
    fn new(lab: &Lab, streams: usize) -> Self {
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
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let (ends, said) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (over, count) = (Arc::clone(&ends), Arc::clone(&said));
        thread::spawn(move || forge(&socket, &session, port, streams, &over, &count));
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
    socket: &UdpSocket,
    session: &str,
    silent: u16,
    streams: usize,
    over: &AtomicBool,
    said: &AtomicUsize,
) {
    let mut buffer = [0; 4096];
    while !over.load(Ordering::Relaxed) {
        let Ok((len, from)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let query = String::from_utf8_lossy(&buffer[..len]);
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
        for _ in 0..streams {
            let number = said.fetch_add(1, Ordering::Relaxed) % streams;
            // Half of them at a port that nobody listens on.
            let data = if number.is_multiple_of(2) { silent } else { 1 };
            let answer = format!(
                "{id}\r\n<?xml version=\"1.0\"?>\n<info><name>Forged{number}</name><type>EEG</type>\
                 <channel_count>8</channel_count><channel_format>float32</channel_format>\
                 <source_id>forged-{number}</source_id><nominal_srate>100</nominal_srate>\
                 <version>1.100000000000000</version><created_at>1.0</created_at>\
                 <uid>00000000-0000-4000-8000-{number:012}</uid><session_id>{session}</session_id>\
                 <hostname>here</hostname><v4address>127.0.0.1</v4address>\
                 <v4data_port>{data}</v4data_port><v4service_port>{data}</v4service_port>\
                 <v6address></v6address><v6data_port>0</v6data_port>\
                 <v6service_port>0</v6service_port><desc /></info>"
            );
            let _ = socket.send_to(answer.as_bytes(), (from.ip(), port));
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
    let forger = Forger::new(&lab, FORGED);
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

/// The stream was not in the verdict any more once its advert had gone.
#[test]
fn a_named_stream_that_never_connected_is_told_when_its_advert_has_gone() {
    let lab = Lab::new();
    let path = lab.path("gone.xdf");
    let _first = lab.start(&generate("First", &[]));
    let forger = Forger::new(&lab, 1);
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
