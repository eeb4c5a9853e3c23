//! Peers that mean harm, or were written by somebody who never read the protocol. Whatever they do,
//! they cost bounded memory, are counted, and nobody else notices.
//!
//! Hostile inlets and strangers against our outlet are in `outlet` and `flood`, hostile outlets and responders
//! against our inlet and resolver in `inlet`, what they all cost in `memory`.

mod flood;
mod granting;
mod inlet;
mod memory;
mod outlet;
mod peer;
mod responder;

use lsl_core::{ChannelFormat, Context, Inlet, Outlet, StreamInfo};

use crate::lab::{self, SOON};

const CHANNELS: usize = 3;

fn info(name: &str) -> StreamInfo {
    let source = format!("src-{name}");
    StreamInfo::new(name, "Test", 3, 100.0, ChannelFormat::Float32, source).expect("valid info")
}

/// The outlet still serves: a new inlet finds it and gets exactly what is pushed.
fn assert_serves(context: &Context, outlet: &Outlet) {
    let inlet = lab::inlet(context, &outlet.info().name());
    assert_delivers(outlet, &inlet);
}

/// What is pushed comes out of this inlet, bit for bit and in order.
fn assert_delivers(outlet: &Outlet, inlet: &Inlet) {
    let mut pulled = [0.0_f32; CHANNELS];
    for n in 0..50_u8 {
        let sample = [f32::from(n), -0.0, f32::from_bits(u32::from(n) + 1)];
        let stamp = 1000.0 + f64::from(n) / 3.0;
        outlet.push_at(&sample, stamp).expect("pushes");
        let received = inlet.blocking().pull(&mut pulled, SOON).expect("pulls");
        assert_eq!(received, Some(stamp));
        assert_eq!(pulled.map(f32::to_bits), sample.map(f32::to_bits));
    }
}
