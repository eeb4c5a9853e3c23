//! Fetching the full stream info, with its metadata, over TCP. Spec: lsl-protocol §6 (fullinfo).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::net::feed::InletShared;
use crate::net::link::send_all;
use crate::net::sockets;
use crate::wire::request::FULLINFO_REQUEST;
use crate::{Error, Result, StreamInfo};

/// Tries until the info of the present outlet is known or the stream lost.
pub(crate) async fn fetch(shared: Arc<InletShared>) {
    loop {
        let (endpoint, generation) = shared.source.endpoint();
        let result = match endpoint {
            None => Err(Error::Protocol("no address of the outlet is known".into())),
            Some(endpoint) => {
                let limited = tokio::time::timeout(EXCHANGE_LIMIT, exchange(endpoint.data)).await;
                limited.unwrap_or(Err(Error::Timeout { operation: "info" }))
            }
        };
        match result {
            Ok(mut info) => {
                let present = shared.source.info();
                info.fill_v4_address(present.v4_address_bytes());
                info.fill_v6_address(present.v6_address_bytes());
                shared
                    .full_info
                    .update(|state| state.known = Some((generation, info)));
                return;
            }
            // The outlet is up but not ready (Q13).
            Err(Error::InvalidInfo(reason)) => {
                tracing::debug!(reason, "full info not ready");
                tokio::time::sleep(NOT_READY_RETRY).await;
            }
            Err(error) => {
                if !shared.recover(generation, &error).await {
                    return;
                }
            }
        }
    }
}

async fn exchange(address: SocketAddr) -> Result<StreamInfo> {
    let io = |source| Error::io(format!("info connection to {address}"), source);
    let stream = sockets::tcp_connect(address, EXCHANGE_LIMIT).await?;
    send_all(&stream, FULLINFO_REQUEST).await.map_err(io)?;
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        stream.readable().await.map_err(io)?;
        match stream.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(received) => text.extend_from_slice(&buffer[..received]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(io(error)),
        }
        if text.len() > MAX_INFO_BYTES {
            return Err(Error::Protocol(format!(
                "the stream info is larger than {MAX_INFO_BYTES} bytes"
            )));
        }
    }
    let info = StreamInfo::from_xml(&text)?;
    if info.created_at() == 0.0 {
        return Err(Error::InvalidInfo("created_at is 0".into()));
    }
    Ok(info)
}

/// Largest stream info accepted from a peer.
const MAX_INFO_BYTES: usize = 16 << 20;

/// Time for one exchange.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(10);

const NOT_READY_RETRY: Duration = Duration::from_millis(100);
