//! What a pushed chunk is stamped with. Seen with liblsl 1.17.7 and 1.18.0.

use lsl_core::{ChannelFormat, Context, Inlet, Pushthrough, Stamps, StreamInfo, local_clock};

use crate::lab::{self, SOON};

/// Stamps of all samples as two readers get them, of different wire formats where the outlet has both.
fn pushed_and_read(context: &Context, stamps: &[f64], synchronous: bool) -> Vec<f64> {
    let info = StreamInfo::new("stamped", "Test", 1, 100.0, ChannelFormat::Int32, "stamped");
    let outlet = lsl_core::Outlet::builder(info.unwrap())
        .context(context)
        .synchronous(synchronous)
        .open()
        .unwrap();
    let new = lab::inlet(context, "stamped");
    let mut config = context.config().clone();
    let version = if synchronous { "110" } else { "100" };
    config.set("tuning.UseProtocolVersion", version).unwrap();
    let old = Inlet::builder(&lab::find(context, "stamped"))
        .context(&lab::plaintext(config))
        .create()
        .unwrap();
    old.blocking().open(SOON).unwrap();
    lab::until("both are served", || outlet.consumers().len() == 2);
    let values = vec![7; stamps.len()];
    (outlet.push_chunk_with(&values, Stamps::Each(stamps), Pushthrough::Flush)).unwrap();
    let [by_new, by_old] = [new, old].map(|inlet| {
        let (mut values, mut read) = (vec![0; stamps.len()], vec![0.0; stamps.len()]);
        let pulled = inlet
            .blocking()
            .pull_chunk(&mut values, Some(&mut read), SOON);
        assert_eq!(pulled.unwrap(), stamps.len());
        read
    });
    assert_eq!(by_new, by_old, "one sample has one stamp");
    by_new
}

/// The clock ticks in nanoseconds, so that a thousand looks at it differ.
fn assert_taken_one_by_one(stamps: &[f64], begin: f64) {
    assert!(begin <= stamps[0]);
    assert!(stamps.is_sorted());
    assert!(stamps[0] < stamps[stamps.len() - 1]);
}

#[test]
fn a_chunk_whose_stamps_are_all_zero_is_stamped_sample_by_sample() {
    for synchronous in [false, true] {
        let begin = local_clock();
        let read = pushed_and_read(&lab::context(), &[0.0; 1000], synchronous);
        assert_taken_one_by_one(&read, begin);
    }
}

#[test]
fn only_zeros_among_a_chunks_stamps_mean_now() {
    let begin = local_clock();
    let mut stamps = [0.0; 1000];
    (stamps[1], stamps[2], stamps[3]) = (5.0, -1.0, 6.0);
    let mut read = pushed_and_read(&lab::context(), &stamps, false);
    let given: Vec<f64> = read.drain(1..4).collect();
    assert_eq!(given, [5.0, 5.0 + 1.0 / 100.0, 6.0]);
    assert_taken_one_by_one(&read, begin);
}

#[test]
fn forced_stamps_are_taken_sample_by_sample() {
    let context = lab::context_with(&[("tuning.ForceDefaultTimestamps", "1")]);
    let begin = local_clock();
    assert_taken_one_by_one(&pushed_and_read(&context, &[5.0; 1000], false), begin);
}
