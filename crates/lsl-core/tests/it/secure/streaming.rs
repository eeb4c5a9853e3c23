//! Encrypted streams carry what plaintext ones carry: all formats, chunks, several readers, recovery,
//! the full info and the clock.

use std::fmt::Debug;
use std::sync::Arc;

use lsl_core::secure::Policy;
use lsl_core::{
    BufferLength, ChannelFormat, Context, Echo, Inlet, Outlet, PullElement, PushElement, StreamInfo,
};

use super::people::{Place, info};
use crate::lab::{self, SOON};

fn shaped(name: &str, channels: usize, format: ChannelFormat) -> StreamInfo {
    let source = format!("src-{name}");
    StreamInfo::new(name, "Test", channels as u32, 100.0, format, source).unwrap()
}

/// Pushes one by one and as a chunk, pulls both ways.
fn round_trip<T, U>(
    outlet: &Context,
    inlet: &Context,
    format: ChannelFormat,
    values: &[T],
    expected: &[U],
) where
    T: PushElement + Copy,
    U: PullElement + Default + Clone + PartialEq + Debug,
{
    let name = format!("round-{format}");
    let outlet = lab::outlet(outlet, shaped(&name, values.len(), format));
    let inlet = lab::inlet(inlet, &name);
    assert!(inlet.encryption().is_some(), "{format}");
    outlet.push_at(values, 12.5).unwrap();
    outlet
        .push_chunk_at(&[values, values].concat(), 13.0)
        .unwrap();
    let mut pulled = vec![U::default(); expected.len()];
    let stamp = inlet.blocking().pull(&mut pulled, SOON).unwrap();
    assert_eq!((stamp, &*pulled), (Some(12.5), expected), "{format}");
    let mut chunk = vec![U::default(); 2 * expected.len()];
    let mut stamps = [0.0; 2];
    let taken = inlet
        .blocking()
        .pull_chunk(&mut chunk, Some(&mut stamps), SOON);
    assert_eq!(taken.unwrap(), 2, "{format}");
    assert_eq!(chunk, [expected, expected].concat(), "{format}");
    assert_eq!(stamps, [12.99, 12.99 + 1.0 / 100.0], "{format}");
}

#[test]
fn every_format_arrives_exactly() {
    let place = Place::new();
    let (amp, rec) = place.pair(Policy::Required, Policy::Required);
    let (o, i) = (&amp.context, &rec.context);
    let floats = [1.5_f32, -2.25, 1e-40];
    round_trip(o, i, ChannelFormat::Float32, &floats, &floats);
    let doubles = [0.1_f64, f64::MIN];
    round_trip(o, i, ChannelFormat::Double64, &doubles, &doubles);
    let long = [i64::MIN, -1, 7];
    round_trip(o, i, ChannelFormat::Int64, &long, &long);
    round_trip(o, i, ChannelFormat::Int32, &[i32::MIN, 7], &[i32::MIN, 7]);
    round_trip(o, i, ChannelFormat::Int16, &[i16::MIN, 7], &[i16::MIN, 7]);
    round_trip(o, i, ChannelFormat::Int8, &[i8::MIN, 7], &[i8::MIN, 7]);
    let texts = ["", "häß\0lich", "x"];
    let expected = texts.map(str::to_owned);
    round_trip(o, i, ChannelFormat::String, &texts, &expected);
}

const CHANNELS: usize = 10_000;

/// One sample is larger than a record, and a chunk larger than a read.
#[test]
fn samples_larger_than_records_arrive_whole() {
    let place = Place::new();
    let (amp, rec) = place.pair(Policy::Required, Policy::Required);
    let outlet = lab::outlet(&amp.context, shaped("wide", CHANNELS, ChannelFormat::Int32));
    let inlet = lab::inlet(&rec.context, "wide");
    let values: Vec<i32> = (0..).take(CHANNELS).collect();
    for n in 0..30_u8 {
        outlet.push_at(&values, f64::from(n) + 1.0).unwrap();
    }
    let mut pulled = vec![0_i32; CHANNELS];
    for n in 0..30_u8 {
        let stamp = inlet.blocking().pull(&mut pulled, SOON).unwrap();
        assert_eq!(stamp, Some(f64::from(n) + 1.0));
        assert_eq!(pulled, values);
    }
}

#[test]
fn several_readers_each_get_everything() {
    let place = Place::new();
    let (amp, rec) = place.pair(Policy::Required, Policy::Required);
    let other = place.side("amp", Policy::Required, &[]);
    let outlet = lab::outlet(&amp.context, info("shared"));
    // The third runs on the outlet's own machine, with its key.
    let readers = [
        lab::inlet(&rec.context, "shared"),
        lab::inlet(&rec.context, "shared"),
        lab::inlet(&other.context, "shared"),
    ];
    for n in 0..2000_u16 {
        outlet
            .push_at(&[f32::from(n); 3], f64::from(n) + 1.0)
            .unwrap();
    }
    for reader in &readers {
        let mut pulled = [0.0_f32; 3];
        for n in 0..2000_u16 {
            let stamp = reader.blocking().pull(&mut pulled, SOON).unwrap();
            assert_eq!(
                (stamp, pulled),
                (Some(f64::from(n) + 1.0), [f32::from(n); 3])
            );
        }
        assert_eq!(reader.stats().dropped, 0);
    }
    assert_eq!(outlet.consumers().len(), 3);
}

#[test]
fn a_synchronous_outlet_encrypts_too() {
    let place = Place::new();
    let (amp, rec) = place.pair(Policy::Required, Policy::Required);
    let outlet = Outlet::builder(info("sync"))
        .context(&amp.context)
        .synchronous(true)
        .open()
        .unwrap();
    let inlet = lab::inlet(&rec.context, "sync");
    assert!(inlet.encryption().is_some());
    for n in 0..500_u16 {
        outlet
            .push_at(&[f32::from(n); 3], f64::from(n) + 1.0)
            .unwrap();
    }
    let mut pulled = [0.0_f32; 3];
    for n in 0..500_u16 {
        let stamp = inlet.blocking().pull(&mut pulled, SOON).unwrap();
        assert_eq!(
            (stamp, pulled),
            (Some(f64::from(n) + 1.0), [f32::from(n); 3])
        );
    }
}

#[test]
fn a_restarted_outlet_is_found_again() {
    let place = Place::new();
    let (amp, rec) = place.pair(Policy::Required, Policy::Required);
    let first = lab::outlet(&amp.context, info("restarted"));
    let inlet = lab::inlet(&rec.context, "restarted");
    first.push_at(&[1.0_f32; 3], 1.0).unwrap();
    let mut pulled = [0.0_f32; 3];
    assert_eq!(inlet.blocking().pull(&mut pulled, SOON).unwrap(), Some(1.0));
    let info_before = inlet.blocking().full_info(SOON).unwrap();
    drop(first);
    let second = lab::outlet(&amp.context, info("restarted"));
    lab::until("the reader is back", || second.have_consumers());
    second.push_at(&[2.0_f32; 3], 2.0).unwrap();
    assert_eq!(inlet.blocking().pull(&mut pulled, SOON).unwrap(), Some(2.0));
    assert_eq!(inlet.stats().reconnects, 1);
    let info_now = inlet.blocking().full_info(SOON).unwrap();
    assert_ne!(info_now.uid_bytes(), info_before.uid_bytes());
    assert!(
        rec.audited("peer_changed").is_empty(),
        "the key is the same"
    );
}

#[test]
fn metadata_and_clock_come_with_the_feed() {
    let place = Place::new();
    let (amp, rec) = place.pair(Policy::Required, Policy::Required);
    let mut described = info("rich");
    let mut desc = described.desc_mut();
    desc.append_child("subject").set("id", "A & B < C");
    let outlet = lab::outlet(&amp.context, described);
    let inlet = Arc::new(lab::inlet(&rec.context, "rich"));
    let full = inlet.blocking().full_info(SOON).unwrap();
    let subject = full.desc_ref().unwrap().child("subject").unwrap();
    assert_eq!(subject.get("id").unwrap(), "A & B < C");
    let correction = inlet.blocking().time_correction(SOON).unwrap();
    assert!(correction.offset_secs.abs() <= correction.max_error_secs() + 1e-6);
    // Readers, not sessions.
    assert_eq!(outlet.consumers().len(), 1);
}

/// Nobody who did not read keeps the outlet from others, and who closed comes back.
#[test]
fn closing_and_opening_again_is_clean() {
    let place = Place::new();
    let (amp, rec) = place.pair(Policy::Required, Policy::Required);
    let outlet = lab::outlet(&amp.context, info("again"));
    let inlet = Inlet::builder(&lab::find(&rec.context, "again"))
        .context(&rec.context)
        .buffer(BufferLength::Samples(100))
        .create()
        .unwrap();
    for round in 0..5_u8 {
        inlet.blocking().open(SOON).unwrap();
        outlet
            .push_at(&[1.0_f32; 3], f64::from(round) + 1.0)
            .unwrap();
        let mut pulled = [0.0_f32; 3];
        let stamp = inlet.blocking().pull(&mut pulled, SOON).unwrap();
        assert_eq!(stamp, Some(f64::from(round) + 1.0));
        inlet.close();
        lab::until("the reader is gone", || !outlet.have_consumers());
    }
    let is_clean = |closed: &serde_json::Value| closed["clean"] == true;
    lab::until("all sessions are closed", || {
        rec.audited("session_closed").len() == 5 && amp.audited("session_closed").len() == 5
    });
    assert!(rec.audited("session_closed").iter().all(is_clean));
    let closed = amp.audited("session_closed");
    assert!(closed.iter().all(is_clean), "{closed:?}");
}

/// What was pushed before an answer through the session lies in the inlet when that answer is there.
#[test]
fn an_answer_through_the_session_comes_behind_the_samples() {
    let place = Place::new();
    let (amp, rec) = place.pair(Policy::Required, Policy::Required);
    let outlet = lab::outlet(&amp.context, shaped("asked", 1, ChannelFormat::Int32));
    let inlet = lab::inlet(&rec.context, "asked");
    for number in 0..20_usize {
        outlet.push(&[1_i32]).unwrap();
        assert_eq!(inlet.blocking().echo(SOON).unwrap(), Echo::InBand);
        lab::until("samples", || inlet.samples_available() == number + 1);
    }
}
