//! Fetching the full stream info, with its metadata, over TCP. Spec: lsl-protocol §6 (fullinfo).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lsl_proto::describe::descriptor;
use lsl_proto::inlet::Exchange;
use lsl_proto::inlet::recovery::{Attempt, Input, Purpose};
use lsl_proto::wire::request::{FULLINFO_REQUEST, relayed_fullinfo_request};

use crate::drive_inlet::reach::Way;
use crate::drive_inlet::shared::InletShared;
use crate::net::monitor::lock_ignoring_poison;
use crate::{Error, Result, StreamInfo};

/// Tries until the info of the present outlet is known or the stream lost.
pub(crate) async fn fetch(shared: Arc<InletShared>) {
    shared.tell(Input::Wanted(Purpose::FullInfo));
    loop {
        let attempt = shared.next_attempt(Purpose::FullInfo).await;
        let present = &attempt.info;
        let asked = shared.attempt(attempt.id, ask(&shared, &attempt)).await;
        match asked {
            Some(Ok(mut info)) => {
                info.fill_v4_address(present.v4_address_bytes());
                info.fill_v6_address(present.v6_address_bytes());
                let info = (attempt.moves, Arc::new(info));
                drop((shared.facts).update(|facts| facts.full_info.replace(info)));
                // A caller that came after the outlet changed waits for the new one's: from this task, or from
                // another one that it starts.
                let mut tasks = lock_ignoring_poison(&shared.tasks);
                let recovery = &shared.source.recovery;
                if recovery.update(|recovery| recovery.finish(attempt.id)) {
                    tasks.info = None;
                    return;
                }
            }
            Some(Err(error)) if !shared.failed(&attempt, &error) => return,
            _ => {}
        }
    }
}

async fn ask(shared: &InletShared, attempt: &Attempt) -> Result<StreamInfo> {
    let present = &attempt.info;
    let ways = shared.ways(attempt)?;
    let address = ways.first().map(Way::peer);
    let address = address.ok_or_else(|| Error::Protocol("no address is known".into()))?;
    let asking = Box::pin(async {
        let exchange = |way: &Way| match way {
            Way::Outlet(_) => Exchange::reply(FULLINFO_REQUEST, MAX_INFO_BYTES),
            Way::Relay(_) | Way::Link => {
                let request = relayed_fullinfo_request(present.uid_bytes());
                Exchange::reply(&request, MAX_INFO_BYTES)
            }
        };
        let reaching = shared.reach(attempt, &ways, exchange, EXCHANGE_LIMIT);
        let (connection, _) = reaching.await?;
        connection.reply(EXCHANGE_LIMIT).await
    });
    let info = StreamInfo::from_xml(&shared.source.in_turn(address, asking).await?)?;
    if info.created_at() == 0.0 {
        return Err(Error::InvalidInfo("created_at is 0".into()));
    }
    // An outlet that ended leaves its port to the next one that starts on its host.
    if info.uid_bytes() != present.uid_bytes() {
        return Err(Error::Protocol("another outlet is at this address".into()));
    }
    check_content(shared, present, &info, address)?;
    Ok(info)
}

/// What came through a session must say what its DESCRIPTOR said, which was compared with `present`.
/// Without encryption anybody may say anything. Spec: LSS/1 §7.4.
fn check_content(
    shared: &InletShared,
    present: &StreamInfo,
    info: &StreamInfo,
    address: SocketAddr,
) -> Result<()> {
    if shared.source.peers().keys().key.is_none() {
        return Ok(());
    }
    let Some(field) = descriptor(info).differs_from(&descriptor(present)) else {
        return Ok(());
    };
    let text = format!(
        "the full info of \"{}\" has another {field} than the stream; refused",
        lsl_secure::audit::printable(present.name_bytes())
    );
    let security = shared.context.security()?;
    crate::drive_inlet::handshake::mismatch(security, present, address, &text);
    let peers = shared.source.peers();
    peers.failed(lsl_secure::Cause::DescriptorMismatch, &text);
    Err(Error::Security(text))
}

/// Largest stream info accepted from a peer, and largest other answer that grows with the channels.
pub(crate) const MAX_INFO_BYTES: usize = 16 << 20;

/// Longest duration of one exchange.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(10);
