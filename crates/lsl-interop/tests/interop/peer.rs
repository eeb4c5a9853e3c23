//! A foreign peer: `peer.py` or `pylsl_peer.py` with one liblsl in a process of its own, and the
//! streams in it.
//!
//! Requests carry an id and may be answered in any order, so many cells share one peer. Nothing here
//! knows what a cell wants to prove.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cell::{
    Announcement, Correction, Encryption, InletEnd, Outcome, OutletEnd, PATIENCE, Stamps,
};
use crate::values::{Values, from_hex, stamp_from_json, stamp_to_json};

/// A running peer. Killed when dropped.
pub(crate) struct Peer {
    child: Mutex<Child>,
    input: Mutex<Option<ChildStdin>>,
    waiting: Arc<Mutex<HashMap<u64, Sender<Value>>>>,
    next_id: AtomicU64,
    /// Where its liblsl wrote what it had to say.
    log: PathBuf,
}

impl Peer {
    /// Start the peer that `command` describes, logging to `log`.
    pub(crate) fn spawn(mut command: Command, log: PathBuf) -> Outcome<Arc<Self>> {
        let errors = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("no pipe from the peer")?;
        let waiting = Arc::new(Mutex::new(HashMap::new()));
        let readers_waiting = Arc::clone(&waiting);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(reply) = serde_json::from_str::<Value>(&line) else {
                    continue;
                };
                let id = reply["id"].as_u64().unwrap_or_default();
                let sender: Option<Sender<Value>> = locked(&readers_waiting).remove(&id);
                // A caller that gave up is no error.
                let _ = sender.map(|sender| sender.send(reply));
            }
            // The peer is gone: whoever still waits hears it at once.
            locked(&readers_waiting).clear();
        });
        Ok(Arc::new(Self {
            child: Mutex::new(child),
            input: Mutex::new(input),
            waiting,
            next_id: AtomicU64::new(1),
            log,
        }))
    }

    /// Send a command and wait for its answer; a reply with `error` is an `Err`.
    pub(crate) fn call(&self, request: Value) -> Outcome<Value> {
        let waited = self
            .start(request)?
            .recv_timeout(PATIENCE + Duration::from_secs(5));
        let reply = waited.map_err(|error| format!("peer: {error}, see {}", self.log.display()))?;
        match (reply["error"].as_str(), reply["text"].as_str()) {
            (Some(error), Some(text)) => Err(format!("{error}: {text}")),
            (Some(error), None) => Err(error.to_owned()),
            (None, _) => Ok(reply),
        }
    }

    fn start(&self, mut request: Value) -> Outcome<Receiver<Value>> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        request["id"] = json!(id);
        let (sender, receiver) = channel();
        locked(&self.waiting).insert(id, sender);
        let mut input = locked(&self.input);
        let input = input.as_mut().ok_or("the peer was stopped")?;
        writeln!(input, "{request}").map_err(|error| format!("peer: {error}"))?;
        Ok(receiver)
    }

    /// Whether the process has ended.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(locked(&self.child).try_wait(), Ok(Some(_)))
    }

    /// End the process at once, as a crash would.
    pub(crate) fn kill(&self) {
        locked(&self.input).take();
        let mut child = locked(&self.child);
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Announce a stream from this peer.
    pub(crate) fn outlet(self: &Arc<Self>, stream: &Announcement) -> Outcome<ForeignOutlet> {
        let desc: Value = stream
            .desc
            .iter()
            .map(|(name, text)| json!([name, text, []]))
            .collect();
        let reply = self.call(json!({
            "cmd": "outlet",
            "name": stream.name,
            "type": stream.stream_type,
            "channels": stream.channels,
            "rate": stream.rate,
            "format": stream.format.name(),
            "source_id": stream.source_id,
            "desc": desc,
            "flags": if stream.synchronous { SYNC_BLOCKING } else { 0 },
        }))?;
        Ok(ForeignOutlet {
            peer: Arc::clone(self),
            handle: reply["outlet"].clone(),
        })
    }

    /// The streams for which the predicate holds, as soon as there are `minimum`.
    fn resolve(&self, predicate: &str, minimum: usize, timeout: Duration) -> Outcome<Vec<Value>> {
        let reply = self.call(json!({
            "cmd": "resolve",
            "predicate": predicate,
            "minimum": minimum,
            "timeout": timeout.as_secs_f64(),
        }))?;
        Ok(reply["infos"].as_array().cloned().unwrap_or_default())
    }

    /// The source ids of `resolve`.
    pub(crate) fn find(
        &self,
        predicate: &str,
        minimum: usize,
        timeout: Duration,
    ) -> Outcome<Vec<String>> {
        let infos = self.resolve(predicate, minimum, timeout)?;
        let mut ids = Vec::new();
        for info in infos {
            let id = info["source_id"].as_str().and_then(from_hex);
            ids.push(String::from_utf8_lossy(&id.ok_or("a reply without source id")?).into_owned());
            self.call(json!({"cmd": "close", "handle": info["info"]}))?;
        }
        Ok(ids)
    }

    /// Find the one stream for which the predicate holds and open an inlet on it.
    pub(crate) fn inlet(self: &Arc<Self>, predicate: &str) -> Outcome<ForeignInlet> {
        let mut inlet = self.closed_inlet(predicate)?;
        inlet.open(PATIENCE)?;
        Ok(inlet)
    }

    /// As `inlet`, but not opened yet.
    pub(crate) fn closed_inlet(self: &Arc<Self>, predicate: &str) -> Outcome<ForeignInlet> {
        let infos = self.resolve(predicate, 1, PATIENCE)?;
        let [info] = infos.as_slice() else {
            return Err(format!("{} streams resolved instead of 1", infos.len()));
        };
        let reply = self.call(json!({"cmd": "inlet", "info": info["info"]}))?;
        self.call(json!({"cmd": "close", "handle": info["info"]}))?;
        Ok(ForeignInlet {
            peer: Arc::clone(self),
            handle: reply["inlet"].clone(),
        })
    }

    /// What the library in it wrote to the standard error output so far.
    pub(crate) fn said(&self) -> String {
        let said = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An outlet in a foreign peer.
pub(crate) struct ForeignOutlet {
    peer: Arc<Peer>,
    handle: Value,
}

impl Drop for ForeignOutlet {
    fn drop(&mut self) {
        // The peer may be dead already, on purpose or not.
        let _ = self
            .peer
            .call(json!({"cmd": "close", "handle": self.handle}));
    }
}

impl OutletEnd for ForeignOutlet {
    fn wait_for_consumers(&mut self) -> Outcome {
        let timeout = PATIENCE.as_secs_f64();
        let reply = self
            .peer
            .call(json!({"cmd": "consumers", "outlet": self.handle, "timeout": timeout}))?;
        if reply["found"] == true {
            Ok(())
        } else {
            Err("no consumer connected".to_owned())
        }
    }

    fn push(&mut self, sample: &Values, stamp: f64) -> Outcome {
        self.peer.call(json!({
            "cmd": "push",
            "outlet": self.handle,
            "data": sample.to_json(),
            "stamp": stamp_to_json(stamp),
        }))?;
        Ok(())
    }

    fn push_chunk(&mut self, samples: &Values, stamps: &Stamps) -> Outcome {
        let mut request =
            json!({"cmd": "push_chunk", "outlet": self.handle, "data": samples.to_json()});
        match stamps {
            Stamps::Last(stamp) => request["stamp"] = stamp_to_json(*stamp),
            Stamps::Each(stamps) => {
                request["stamps"] = stamps.iter().map(|stamp| stamp_to_json(*stamp)).collect();
            }
        }
        self.peer.call(request)?;
        Ok(())
    }

    fn crash(&mut self) {
        self.peer.kill();
    }
}

/// An open inlet in a foreign peer.
pub(crate) struct ForeignInlet {
    peer: Arc<Peer>,
    handle: Value,
}

impl ForeignInlet {
    /// Connect, or say why not in time.
    pub(crate) fn open(&mut self, timeout: Duration) -> Outcome {
        let timeout = timeout.as_secs_f64();
        let request = json!({"cmd": "open", "inlet": self.handle, "timeout": timeout});
        self.peer.call(request).map(drop)
    }

    /// The full information as XML, or why not in time.
    pub(crate) fn full_xml_within(&mut self, timeout: Duration) -> Outcome<Value> {
        let timeout = timeout.as_secs_f64();
        self.peer
            .call(json!({"cmd": "xml", "inlet": self.handle, "timeout": timeout}))
    }

    fn call(&self, command: &str, mut request: Value) -> Outcome<Value> {
        request["cmd"] = json!(command);
        request["inlet"] = self.handle.clone();
        request["timeout"] = json!(PATIENCE.as_secs_f64());
        self.peer
            .call(request)
            .map_err(|error| format!("{command}: {error}"))
    }
}

impl Drop for ForeignInlet {
    fn drop(&mut self) {
        let _ = self
            .peer
            .call(json!({"cmd": "close", "handle": self.handle}));
    }
}

impl InletEnd for ForeignInlet {
    fn pull(&mut self) -> Outcome<(f64, Values)> {
        let reply = self.call("pull", json!({}))?;
        stamp_from_json(&reply["stamp"])
            .zip(Values::from_json(&reply["data"]))
            .ok_or_else(|| "no sample came".to_owned())
    }

    fn pull_chunk(&mut self, samples: usize) -> Outcome<(Vec<f64>, Values)> {
        let reply = self.call("pull_chunk", json!({"samples": samples}))?;
        let stamps = reply["stamps"].as_array().ok_or("a reply without stamps")?;
        let stamps: Option<Vec<f64>> = stamps.iter().map(stamp_from_json).collect();
        let (stamps, values) = stamps
            .zip(Values::from_json(&reply["data"]))
            .ok_or("an unreadable reply")?;
        if stamps.len() == samples {
            Ok((stamps, values))
        } else {
            Err(format!("{} of {samples} samples came", stamps.len()))
        }
    }

    fn full_xml(&mut self) -> Outcome<Vec<u8>> {
        let reply = self.call("xml", json!({}))?;
        reply["xml"]
            .as_str()
            .and_then(from_hex)
            .ok_or_else(|| "no XML".to_owned())
    }

    fn time_correction(&mut self) -> Outcome<Correction> {
        let reply = self.call("time_correction", json!({}))?;
        Ok(Correction {
            offset_secs: stamp_from_json(&reply["offset"]).ok_or("an unreadable reply")?,
            uncertainty_secs: stamp_from_json(&reply["uncertainty"]),
        })
    }

    fn encryption(&mut self) -> Outcome<Option<Encryption>> {
        let reply = self.call("encryption", json!({}))?;
        let text = |name: &str| {
            let text = reply[name].as_str().map(str::to_owned);
            text.ok_or_else(|| format!("no {name}: {reply}"))
        };
        match reply["encrypted"].as_i64() {
            Some(0) => Ok(None),
            Some(1) => Ok(Some(Encryption {
                peer_name: text("name")?,
                fingerprint: text("fingerprint")?,
                cipher: text("cipher")?,
            })),
            _ => Err(format!("an unreadable reply: {reply}")),
        }
    }
}

/// A poisoned lock only says that another cell failed.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `transp_sync_blocking` of the C API, liblsl 1.18 and later.
const SYNC_BLOCKING: u32 = 4;
