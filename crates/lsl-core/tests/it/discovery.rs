//! Discovery and clock service as peers in the field use them, and what strangers may cost.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use lsl_core::config::{Bind, Source, load_text};
use lsl_core::{ChannelFormat, ContinuousResolver, Inlet, ResolverEvent, Selector, StreamInfo};

use crate::lab::{self, SOON};

fn info(name: &str) -> StreamInfo {
    StreamInfo::new(
        name,
        "T",
        1,
        0.0,
        ChannelFormat::Int32,
        format!("src-{name}"),
    )
    .unwrap()
}

#[test]
fn a_peer_that_is_added_is_asked_by_a_search_that_runs() {
    let context = lab::context();
    let outlet = lab::outlet(&context, info("added"));
    let mut config = lab::config_with(&[]);
    config
        .set_session_id(&context.config().lab().session_id)
        .unwrap();
    let elsewhere = lab::plaintext(config);
    let resolver =
        ContinuousResolver::in_context(&elsewhere, &Selector::all(), Duration::from_mins(1));
    let resolver = resolver.unwrap();
    assert!(elsewhere.add_known_peer("amp pc").is_err());
    let port = outlet.info().v4_service_port();
    elsewhere
        .add_known_peer(&format!("127.0.0.1:{port}"))
        .unwrap();
    let event = resolver.next_event_blocking(SOON).unwrap();
    assert!(
        matches!(&event, ResolverEvent::Appeared(info) if info.name() == "added"),
        "{event:?}"
    );
}

/// Whether somebody answers a clock probe at this port, from that port.
fn tells_time(address: IpAddr, port: u16, limit: Duration) -> bool {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    socket.connect((address, port)).unwrap();
    socket.set_read_timeout(Some(limit)).unwrap();
    let _ = socket.send(b"LSL:timedata\r\n7 1.5\r\n");
    let mut reply = [0; 200];
    let length = socket.recv(&mut reply).unwrap_or(0);
    reply[..length].starts_with(b" 7 1.5 ")
}

#[test]
fn each_outlet_tells_time_at_its_data_port_to_inlets_of_liblsl_1_12() {
    let context = lab::context();
    let mut outlets: Vec<_> = (0..3)
        .map(|number| lab::outlet(&context, info(&format!("old-{number}"))))
        .collect();
    for outlet in &outlets {
        let info = outlet.info();
        let ports = [
            (
                IpAddr::from(Ipv4Addr::LOCALHOST),
                info.v4_data_port(),
                info.v4_service_port(),
            ),
            (
                Ipv6Addr::LOCALHOST.into(),
                info.v6_data_port(),
                info.v6_service_port(),
            ),
        ];
        for (address, data, service) in ports.into_iter().filter(|ports| ports.1 != 0) {
            assert!(tells_time(address, data, SOON), "{address} {data}");
            assert_eq!(data, service);
        }
    }
    // An outlet that is gone leaves its port to others, and the rest answers on.
    let gone = outlets.remove(1).info().v4_data_port();
    lab::until("the port of a closed outlet is free", || {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, gone)).is_ok()
    });
    for outlet in &outlets {
        let port = outlet.info().v4_data_port();
        assert!(tells_time(Ipv4Addr::LOCALHOST.into(), port, SOON), "{port}");
    }
}

#[test]
fn numbers_that_nobody_pulls_take_no_more_memory_than_is_allowed() {
    const CHANNELS: usize = 1024;
    const SAMPLES: u64 = 400;
    let context = lab::context_with(&[("tuning.InletBufferLimit", "1")]);
    let info = StreamInfo::new("wide", "T", 1024, 0.0, ChannelFormat::Double64, "src-wide");
    let outlet = lab::outlet(&context, info.unwrap());
    let inlet = lab::inlet(&context, "wide");
    let sample = [1.5_f64; CHANNELS];
    for _ in 0..SAMPLES {
        outlet.push(&sample).unwrap();
    }
    lab::until("all samples", || inlet.stats().samples == SAMPLES);
    let stats = inlet.stats();
    assert_eq!(stats.available, (1 << 20) / (8 * CHANNELS));
    assert_eq!(stats.dropped, SAMPLES - stats.available as u64);
}

#[test]
fn an_outlet_has_as_many_readers_as_it_may() {
    let context = lab::context_with(&[("tuning.MaxConsumers", "2")]);
    let outlet = lab::outlet(&context, info("popular"));
    let first = lab::inlet(&context, "popular");
    let _second = lab::inlet(&context, "popular");
    let third = Inlet::builder(&lab::find(&context, "popular")).context(&context);
    let third = third.create().unwrap();
    assert_eq!(third.try_pull(&mut [0]).unwrap(), None);
    lab::until("a refusal", || outlet.stats().refused > 0);
    assert_eq!(outlet.consumers().len(), 2);
    // Whoever waits gets the place of one who leaves.
    drop(first);
    third.blocking().open(SOON).unwrap();
    lab::until("the change", || outlet.consumers().len() == 2);
}

#[test]
fn known_peers_are_read_again_while_a_search_runs() {
    let session = ("lab.SessionID", "it-known-peers-edited");
    let outlets: Vec<_> = ["first", "second"]
        .map(|name| {
            let context = lab::context_with(&[session]);
            lab::outlet(&context, info(name))
        })
        .into();
    let peers = outlets.iter().map(|outlet| {
        let port = outlet.info().v4_service_port();
        format!("127.0.0.1:{port}")
    });
    let peers: Vec<String> = peers.collect();
    let folder = std::env::temp_dir().join(format!("lsl-known-peers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("lsl_api.cfg");
    let write = |peers: &[String]| {
        let text = format!("[lab]\nKnownPeers = {{{}}}\n", peers.join(", "));
        std::fs::write(&file, text).unwrap();
    };
    let text = format!(
        "[lab]\n{} = {}\n[ports]\nBasePort = 12000\n",
        "SessionID", session.1
    );
    let (mut config, _) = load_text(&text, &Source::Api(file.clone())).unwrap();
    config.set_bind(Bind::Loopback);
    let context = lab::plaintext(config);
    // What was written since the program began counts from the start of a search.
    write(&peers[..1]);
    let resolver =
        ContinuousResolver::in_context(&context, &Selector::all(), Duration::from_mins(1));
    let resolver = resolver.unwrap();
    for (number, expected) in (1..).zip(["first", "second"]) {
        write(&peers[..number]);
        let event = resolver.next_event_blocking(SOON).unwrap();
        assert!(
            matches!(&event, ResolverEvent::Appeared(info) if info.name() == expected),
            "{event:?}"
        );
    }
    drop(resolver);
    std::fs::remove_dir_all(folder).unwrap();
}
