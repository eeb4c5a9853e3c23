//! The port of a relay on this host, as far as programs use it: a directory, and feeds that come from real outlets.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lsl_core::StreamInfo;
use lsl_proto::query::Query;
use lsl_proto::wire::directory::{Record, Withdrawal};

/// A stream behind the relay.
#[derive(Debug, Clone)]
pub struct Served {
    pub uid: Vec<u8>,
    pub xml: Vec<u8>,
    pub outlet: SocketAddr,
}

impl Served {
    /// What a relay gives out of the stream that `found` describes, whose outlet it reads.
    pub fn of(found: &StreamInfo) -> Self {
        let outlet = SocketAddr::from((Ipv4Addr::LOCALHOST, found.v4_data_port()));
        let uid = found.uid();
        let mark =
            format!("<lsl_relay v=\"1\" origin=\"{uid}\" path=\"00112233445566aa\"/></info>");
        let xml = String::from_utf8(found.relayed().to_xml()).unwrap();
        Self {
            uid: found.uid_bytes().to_vec(),
            xml: xml.replace("</info>", &mark).into_bytes(),
            outlet,
        }
    }

    pub fn matches(&self, query: &[u8]) -> bool {
        let query = Query::parse(query).unwrap();
        let info = StreamInfo::from_xml(&self.xml).unwrap();
        info.matches(&query).unwrap()
    }

    pub fn record(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let (uid, xml) = (&self.uid[..], &self.xml[..]);
        Record::Stream { uid, xml }.append_to(&mut out).unwrap();
        out
    }
}

/// A relay without encryption, until dropped.
pub struct Port {
    pub address: SocketAddr,
    state: Arc<State>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    streams: Mutex<Vec<Served>>,
    requests: Mutex<Vec<String>>,
    /// Connections made before the last change of it are over.
    cuts: AtomicU64,
}

const ENDED: u64 = u64::MAX;

impl Port {
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let accepting = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            let mut serving = Vec::new();
            for stream in listener.incoming() {
                if accepting.cuts.load(Ordering::Acquire) == ENDED {
                    break;
                }
                let state = Arc::clone(&accepting);
                let stream = stream.unwrap();
                serving.push(std::thread::spawn(move || {
                    let cut = state.cuts.load(Ordering::Acquire);
                    // That the reader left is its right.
                    let _ = state.serve(stream, cut);
                }));
            }
            for thread in serving {
                thread.join().unwrap();
            }
        });
        Self {
            address,
            state,
            thread: Some(thread),
        }
    }

    pub fn offer(&self, served: Served) {
        self.state.streams.lock().unwrap().push(served);
    }

    pub fn withdraw(&self, uid: &[u8]) {
        let mut streams = self.state.streams.lock().unwrap();
        streams.retain(|served| served.uid != uid);
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.state.cuts.fetch_add(1, Ordering::AcqRel);
    }

    /// First lines of the requests so far that begin so.
    pub fn requests(&self, begin: &str) -> usize {
        let requests = self.state.requests.lock().unwrap();
        requests
            .iter()
            .filter(|line| line.starts_with(begin))
            .count()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.state.cuts.store(ENDED, Ordering::Release);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok());
        }
    }
}

impl State {
    fn is_cut(&self, cut: u64) -> bool {
        self.cuts.load(Ordering::Acquire) != cut
    }

    fn serve(&self, mut stream: TcpStream, cut: u64) -> std::io::Result<()> {
        stream.set_read_timeout(Some(TICK))?;
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        while !is_complete(&request) {
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => request.extend_from_slice(&buffer[..length]),
                Err(_) if self.is_cut(cut) => return Ok(()),
                Err(_) => {}
            }
        }
        let text = String::from_utf8_lossy(&request).into_owned();
        let mut lines = text.split("\r\n");
        let command = lines.next().unwrap_or_default().to_owned();
        self.requests.lock().unwrap().push(command.clone());
        if command.starts_with("LSL:watch/1") {
            let query = lines.next().unwrap_or_default().as_bytes().to_vec();
            return self.watch(&mut stream, command.contains(" once"), &query, cut);
        }
        let (command, uid) = command.split_once(' ').unwrap_or_default();
        let streams = self.streams.lock().unwrap().clone();
        let served = streams
            .into_iter()
            .find(|served| served.uid == uid.as_bytes());
        match (command, served) {
            ("LSL:fullinfo", Some(served)) => stream.write_all(&served.xml),
            ("LSL:streamfeed/110", Some(served)) => {
                let mut outlet = TcpStream::connect(served.outlet)?;
                outlet.set_read_timeout(Some(TICK))?;
                outlet.write_all(&request)?;
                while !self.is_cut(cut) {
                    match outlet.read(&mut buffer) {
                        Ok(0) => return Ok(()),
                        Ok(length) => stream.write_all(&buffer[..length])?,
                        Err(_) => {}
                    }
                }
                Ok(())
            }
            ("LSL:streamfeed/110", None) => stream.write_all(b"LSL/110 404 Not found\r\n\r\n"),
            _ => Ok(()),
        }
    }

    fn watch(
        &self,
        stream: &mut TcpStream,
        is_once: bool,
        query: &[u8],
        cut: u64,
    ) -> std::io::Result<()> {
        let mut told: Vec<Vec<u8>> = Vec::new();
        let mut is_known = false;
        while !self.is_cut(cut) {
            let mut out = Vec::new();
            let streams = self.streams.lock().unwrap().clone();
            for served in &streams {
                if !told.contains(&served.uid) && served.matches(query) {
                    out.extend_from_slice(&served.record());
                    told.push(served.uid.clone());
                }
            }
            told.retain(|uid| {
                let is_there = streams.iter().any(|served| served.uid == *uid);
                let reason = Withdrawal::Ended;
                if !is_there {
                    Record::Gone { uid, reason }.append_to(&mut out).unwrap();
                }
                is_there
            });
            if !std::mem::replace(&mut is_known, true) {
                Record::Known.append_to(&mut out).unwrap();
            }
            stream.write_all(&out)?;
            if is_once {
                return Ok(());
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }
}

fn is_complete(request: &[u8]) -> bool {
    let lines = request.windows(2).filter(|end| end == b"\r\n").count();
    match request {
        [b'L', b'S', b'L', b':', b'w', ..] => lines >= 2,
        [b'L', b'S', b'L', b':', b's', ..] => request.ends_with(b"\r\n\r\n"),
        _ => lines >= 1,
    }
}

const TICK: Duration = Duration::from_millis(10);
