//! Asks data ports for short infos over TCP, for searches. Spec: lsl-protocol §3.6, doctor §2.4.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lsl_platform::fork::PerProcess;
use lsl_proto::discovery::fallback::ProbeEnd;
use lsl_proto::discovery::search::{Received, Search};
use lsl_proto::wire::request::shortinfo_request;
use tokio::sync::Semaphore;

use crate::drive_discovery::search::Inbox;
use crate::drive_inlet::connection::exchange;
use crate::{Error, Result};

/// Asks a port for what the search looks for, and returns what came of it.
pub(super) async fn ask(inbox: Inbox, target: SocketAddr) -> (SocketAddr, ProbeEnd) {
    let is_wished = inbox.context.config().lab().resolve_over_tcp;
    let limit = if is_wished { WISHED_LIMIT } else { LIMIT };
    // Searches have bounds of their own; this one is for all that look for hosts that say nothing.
    let turns = PROBES.get_or_init(|| Semaphore::new(MAX_OF_PROCESS));
    let _turn = if is_wished {
        None
    } else {
        turns.acquire().await.ok()
    };
    let counters = inbox.context.discovery_counters();
    counters.tcp_probes.add(1);
    let request = {
        let search = inbox.monitor.lock();
        (search.is_query_sent()).then(|| shortinfo_request(search.query()))
    };
    let mut end = ProbeEnd::Silent;
    if let Some(request) = request {
        let answer = exchange(target, &request, MAX_ANSWER_BYTES, limit).await;
        end = judge(&inbox, target, &answer);
        if let Ok(xml) = answer
            && !xml.is_empty()
        {
            inbox.take_over_tcp(target, &xml);
        }
        if end == ProbeEnd::Refused {
            return (target, end);
        }
    }
    // What it shows to strangers, if its outlet may hide or our query is not sent.
    if let Some(prober) = &inbox.prober {
        let answer = exchange(target, OPEN_REQUEST, MAX_ANSWER_BYTES, limit).await;
        let mut open_end = judge(&inbox, target, &answer);
        if let Ok(xml) = answer
            && !prober.on_redacted(target, &xml)
        {
            let take = |search: &mut Search, now| search.handle_open_reply(target, &xml, now);
            let received = inbox.hand_in(take);
            if open_end == ProbeEnd::Answered && received == Received::Foreign {
                open_end = ProbeEnd::Accepted;
            }
        }
        if end != ProbeEnd::Answered {
            end = open_end;
        }
    }
    counters.tcp_found.add(u64::from(end == ProbeEnd::Answered));
    (target, end)
}

fn judge(inbox: &Inbox, target: SocketAddr, answer: &Result<Vec<u8>>) -> ProbeEnd {
    let end = match answer {
        Ok(xml) if xml.is_empty() => ProbeEnd::Accepted,
        Ok(_) => ProbeEnd::Answered,
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused => {
            ProbeEnd::Refused
        }
        Err(_) => ProbeEnd::Silent,
    };
    if end == ProbeEnd::Answered {
        inbox.context.known_hosts().connected(target);
    }
    end
}

/// Matches every outlet, also one that shows little. Spec: LSS/1 §7.3.
const OPEN_REQUEST: &[u8] = b"LSL:shortinfo\r\n\r\n";

const MAX_ANSWER_BYTES: usize = 65_536;

/// On a network where multicast works a host answers within milliseconds; a firewall that drops
/// packets must not hold a slot for minutes.
const WISHED_LIMIT: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(1);

static PROBES: PerProcess<Semaphore> = PerProcess::new();

/// Connections of this process to hosts that say nothing, under way at the same time.
const MAX_OF_PROCESS: usize = 64;
