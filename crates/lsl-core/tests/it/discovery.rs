//! Discovery and clock service as peers in the field use them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use lsl_core::{ChannelFormat, StreamInfo};

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
