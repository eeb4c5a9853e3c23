//! Readers that know nothing of retention: every byte that they get is the one that they always got. Spec: resume
//! §9, test 8.

use std::io::{Read, Write};
use std::net::TcpStream;

use lsl_core::{ChannelFormat, Pushthrough, Stamps};

use super::cutting::Cutter;
use super::{Ends, info};
use crate::lab;

/// Requests as liblsl 1.18.0 and 1.17.7 write them, up to the figure of their machine's speed
/// (`lsl-proto/tests/vectors/inlet110-float32.json`), in both byte orders, and that of old inlets.
fn requests() -> [Vec<u8>; 3] {
    let request = |order: u32| {
        format!(
            "LSL:streamfeed/110 \r\nNative-Byte-Order: {order}\r\nEndian-Performance: 4400000\r\n\
             Has-IEEE754-Floats: 1\r\nSupports-Subnormals: 1\r\nValue-Size: 4\r\n\
             Data-Protocol-Version: 110\r\nMax-Buffer-Length: 36000\r\nMax-Chunk-Length: 0\r\n\
             Hostname: host\r\nSource-Id: source\r\nSession-Id: session\r\n\r\n"
        )
        .into_bytes()
    };
    [
        request(1234),
        request(4321),
        b"LSL:streamfeed\r\n36000 0\r\n".to_vec(),
    ]
}

/// Records what readers get from one outlet, beside an inlet of ours that is cut if anything is retained.
fn record(retain_seconds: &str) -> Vec<Vec<u8>> {
    let settings = [
        ("ports.IPv6", "disable"),
        ("tuning.RetainSeconds", retain_seconds),
    ];
    let context = lab::context_with(&settings);
    let outlet = lab::outlet(&context, info("beside", 2, 100.0, ChannelFormat::Float32));
    let readers: Vec<_> = (requests().into_iter())
        .map(|request| {
            let address = ("127.0.0.1", outlet.info().v4_data_port());
            let mut reader = TcpStream::connect(address).unwrap();
            reader.write_all(&request).unwrap();
            reader
        })
        .collect();
    lab::until("all read", || outlet.consumers().len() == readers.len());
    let ends = Ends {
        outlet: context.clone(),
        inlet: context.clone(),
        complete_bytes: 0,
        _place: None,
    };
    let cutter = Cutter::start(&lab::find(&context, "beside"), 1, 0);
    cutter.rest(true);
    let inlet = (retain_seconds != "0").then(|| ends.inlet_through("beside", &cutter));
    for round in 0..20_u8 {
        // So that there is something to replay.
        cutter.stall(true);
        let value = f32::from(round);
        let values = [value, -value].repeat(50);
        let stamp = 10.0 * f64::from(round + 1);
        outlet.push_at(&values[..2], stamp).unwrap();
        outlet.push_chunk_at(&values, stamp + 1.0).unwrap();
        let stamps: Vec<_> = (0..50)
            .map(|at| stamp + 2.0 + 0.011 * f64::from(at))
            .collect();
        let held = Pushthrough::Hold;
        outlet
            .push_chunk_with(&values, Stamps::Each(&stamps), held)
            .unwrap();
        outlet
            .push_with(&values[..2], stamp + 3.0, Pushthrough::Flush)
            .unwrap();
        if let Some(inlet) = &inlet {
            cutter.cut();
            cutter.stall(false);
            lab::until("it is back", || inlet.stats().reconnects > round.into());
        }
    }
    assert_eq!(outlet.stats().resumed, inlet.as_ref().map_or(0, |_| 20));
    assert_eq!(outlet.stats().replayed > 0, inlet.is_some());
    let uid = outlet.info().uid().into_owned();
    drop(inlet);
    drop(outlet);
    let received = readers.into_iter().map(|mut reader| {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        // The name of the outlet, and what says when and where it is.
        without_identity(&bytes, &uid)
    });
    received.collect()
}

/// Takes the uid out of the header of protocol 1.10, and the document that begins a feed of 1.00.
fn without_identity(bytes: &[u8], uid: &str) -> Vec<u8> {
    let find = |what: &[u8]| bytes.windows(what.len()).position(|it| it == what);
    let (begin, end) = match find(b"</info>\n") {
        Some(end) => (0, end),
        None => find(uid.as_bytes()).map(|at| (at, at + uid.len())).unwrap(),
    };
    [&bytes[..begin], &bytes[end..]].concat()
}

#[test]
fn other_readers_get_every_byte_as_without_retention() {
    let (without, with) = (record("0"), record("30"));
    for (without, with) in without.iter().zip(&with) {
        assert!(without.len() > 20 * 102 * 9, "{}", without.len());
        assert!(without == with, "{} and {}", without.len(), with.len());
    }
}
