//! `lsl bench net`: latency between two machines. The server offers streams as the client asks for
//! them over a connection of its own; the samples travel as LSL does it.

mod client;
mod control;
mod line;
mod server;

use clap::{Args, Subcommand};
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::globals::Globals;
use lsl_core::config::{Bind, Config};
use lsl_core::secure::{Policy, Security};
use lsl_core::{ChannelFormat, Context, StreamInfo};
use std::sync::Arc;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Net {
    #[command(subcommand)]
    side: Side,
}

#[derive(Debug, Subcommand)]
enum Side {
    /// Offer streams to clients until Ctrl-C
    Server(server::Server),
    /// Measure against a server
    Client(client::Client),
}

const HELP: &str = "\
The client tells the server over a TCP connection which stream to offer. This control connection is
NOT encrypted and asks nobody who they are; it carries numbers, no data: whoever reaches its port can
make the server offer streams of made-up numbers while it runs. The samples travel over connections
of their own, encrypted with --secure on by the two machines' own keys (lsl key, lsl trust).

Latency is measured twice: from push to pull, with the inlet's time correction, which cannot be
better than the clocks are known; and as half the round trip of a sample that the server sends back,
which needs no clocks and includes both ways through both programs.

Examples:
  lsl bench net server                        on the first machine
  lsl bench net client lab-pc-1               on the second one
  lsl bench net client 10.0.0.7 --channels 64 --rate 1000 --duration 30 --iterations 5";

impl Net {
    pub(super) fn run(&self, globals: &Globals) -> Outcome {
        match &self.side {
            Side::Server(server) => server.run(globals),
            Side::Client(client) => client.run(globals),
        }
    }
}

/// The two ways to stream of this machine.
struct Ways {
    config: Config,
    /// Keys and policy of this machine's configuration.
    own: Arc<Security>,
}

impl Ways {
    fn new(globals: &Globals) -> Outcome<Self> {
        let context = globals.context()?;
        Ok(Self {
            config: context.config().clone(),
            own: Arc::clone(context.security()?),
        })
    }

    fn is_loopback(&self) -> bool {
        self.config.bind() == Bind::Loopback
    }

    /// Checks that this machine has the keys to encrypt.
    fn check(&self, secure: bool) -> Outcome {
        if secure && self.own.policy() == Policy::Off {
            return Err(Failure::Runtime(NO_KEY.into()));
        }
        Ok(())
    }

    /// A context that asks `peer` directly, too: multicast may not reach it.
    fn context(&self, secure: bool, peer: &str) -> Outcome<Context> {
        self.check(secure)?;
        let mut config = self.config.clone();
        let known = config.lab().known_peers.iter().map(ToString::to_string);
        let known: Vec<String> = known.chain([peer.to_owned()]).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        config.set_known_peers(&known)?;
        let security = if secure {
            Arc::clone(&self.own)
        } else {
            Arc::new(Security::off(Vec::new())?)
        };
        Ok(Context::with_security(config, security))
    }
}

/// Checks that a stream belongs to this benchmark and has so many channels. Others are refused: a
/// server returns the samples to any client, perhaps from one network to another.
fn is_ours(info: &StreamInfo, channels: u32) -> Outcome {
    if info.stream_type() != TYPE || info.channel_format() != ChannelFormat::Float32 {
        return Err(Failure::Runtime(
            "the stream found is not one of this benchmark".into(),
        ));
    }
    if info.channel_count() != channels {
        return Err(Failure::Runtime(
            "the stream found has other channels".into(),
        ));
    }
    Ok(())
}

/// A stream of this benchmark, by its source id.
fn info(name: &str, source_id: &str, channels: u32, rate: f64) -> Outcome<StreamInfo> {
    let format = ChannelFormat::Float32;
    Ok(StreamInfo::new(
        name, TYPE, channels, rate, format, source_id,
    )?)
}

/// The type of all streams of this benchmark.
const TYPE: &str = "lsl-bench";

const NO_KEY: &str = "this machine has no key, so nothing can be encrypted. On both machines:
  lsl key init
  lsl key show --public                    prints the key for the other machine
  lsl trust add OTHER KEY                  with the other machine's key
Or measure without encryption: --secure off";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_streams_of_this_benchmark_are_read() {
        let ours = info("lsl-bench-ping", "id", 4, 0.0).unwrap();
        assert!(is_ours(&ours, 4).is_ok());
        assert!(is_ours(&ours, 5).is_err());
        let other = StreamInfo::new("n", "EEG", 4, 0.0, ChannelFormat::Float32, "id").unwrap();
        assert!(is_ours(&other, 4).is_err());
    }
}
