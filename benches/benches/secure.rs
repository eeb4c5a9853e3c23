//! What encryption costs: `cargo bench -p lsl-benches --bench secure`. Records through real sessions,
//! handshakes and clock probes, and the pure Rust AEADs for comparison with ring below the records.
//! The whole run takes about two minutes.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};

use lsl_benches::cipher::{Cipher, Implementation};
use lsl_benches::handshake::Peers;
use lsl_platform::clock::local_clock;
use lsl_secure::handshake::{Initiator, PREAMBLE, Responder};
use lsl_secure::{Cause, OsRandom, Result, Session, Suites};

/// Payloads: from one int8 without time stamp, over 64 float32 with one (265 bytes), to the largest
/// record.
const SIZES: [usize; 7] = [2, 31, 136, 265, 1024, 8192, 16_384];

const SUITES: [(&str, Suites); 2] = [
    ("chacha20", Suites::ChaCha20Only),
    ("aes256gcm", Suites::Both),
];

const NOW: f64 = 1000.0;

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    records(&mut criterion)?;
    cold(&mut criterion)?;
    ciphers(&mut criterion);
    handshakes(&mut criterion)?;
    time_probes(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn records(criterion: &mut Criterion) -> Result<()> {
    for (name, suites) in SUITES {
        if suites == Suites::Both && Suites::of_this_cpu() != Suites::Both {
            // Never used on such a machine.
            continue;
        }
        let mut group = criterion.benchmark_group(format!("record/{name}"));
        for size in SIZES {
            let payload = vec![7; size];
            group.throughput(Throughput::Bytes(size as u64));

            let (_, mut outlet) = established(suites)?;
            let mut out = Vec::new();
            group.bench_with_input(
                BenchmarkId::new("seal", size),
                &payload,
                |bencher, payload| {
                    bencher.iter(|| {
                        out.clear();
                        outlet.sealer.seal_data(black_box(payload), NOW, &mut out)
                    });
                },
            );

            // Records open once and in order, so that each comes from its sealer.
            let (mut inlet, mut outlet) = established(suites)?;
            let mut failed = None;
            group.bench_with_input(
                BenchmarkId::new("open", size),
                &payload,
                |bencher, payload| {
                    bencher.iter_batched_ref(
                        || {
                            let mut record = Vec::new();
                            failed = outlet.sealer.seal_data(payload, NOW, &mut record).err();
                            record
                        },
                        |record| {
                            inlet.opener.receive(record, NOW, |record| {
                                black_box(&record);
                                Ok(())
                            })
                        },
                        BatchSize::SmallInput,
                    );
                },
            );
            if let Some(error) = failed {
                return Err(error);
            }
            // A bench of failing calls would look fast.
            assert!(
                inlet
                    .opener
                    .end()
                    .is_err_and(|error| error.cause() == Cause::Truncated)
            );
        }
        group.finish();
    }
    Ok(())
}

/// What a frame of 64 floats costs when it comes once a millisecond: nothing is in the caches any more,
/// and the core may have dozed. `asleep` waits between two frames; `evicted` reads through more memory
/// than the caches hold instead; `copy` is the least that a frame can cost, to be subtracted.
fn cold(criterion: &mut Criterion) -> Result<()> {
    const FRAME: [u8; 265] = [7; 265];
    let ballast = vec![1_u8; 64 << 20];
    let asleep = || std::thread::sleep(Duration::from_millis(1));
    let evicted = || {
        let bytes = ballast.iter().step_by(64);
        black_box(bytes.map(|&byte| u64::from(byte)).sum::<u64>());
    };
    let pauses: [(&str, &dyn Fn()); 3] =
        [("hot", &|| ()), ("asleep", &asleep), ("evicted", &evicted)];
    for (name, suites) in SUITES {
        if suites == Suites::Both && Suites::of_this_cpu() != Suites::Both {
            continue;
        }
        let mut group = criterion.benchmark_group(format!("cold/{name}"));
        for (when, pause) in pauses {
            let (_, mut outlet) = established(suites)?;
            let mut record = Vec::new();
            group.bench_function(BenchmarkId::new("seal", when), |bencher| {
                bencher.iter_custom(|times| {
                    timed(times, pause, || {
                        record.clear();
                        outlet.sealer.seal_data(black_box(&FRAME), NOW, &mut record)
                    })
                });
            });
            let (mut inlet, mut outlet) = established(suites)?;
            let mut failed = 0_u64;
            group.bench_function(BenchmarkId::new("open", when), |bencher| {
                bencher.iter_custom(|times| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..times {
                        record.clear();
                        let sealed = outlet.sealer.seal_data(&FRAME, NOW, &mut record);
                        failed += u64::from(sealed.is_err());
                        spent += timed(1, pause, || {
                            let opened = inlet.opener.receive(&mut record, NOW, |record| {
                                black_box(&record);
                                Ok(())
                            });
                            failed += u64::from(opened.is_err());
                        });
                    }
                    spent
                });
            });
            assert_eq!(failed, 0, "a bench of failing calls would look fast");
            group.bench_function(BenchmarkId::new("copy", when), |bencher| {
                bencher.iter_custom(|times| {
                    timed(times, pause, || {
                        record.clear();
                        record.extend_from_slice(black_box(&FRAME));
                    })
                });
            });
        }
        group.finish();
    }
    Ok(())
}

/// The time that `work` takes, `times` times, each after a pause that does not count.
fn timed<R>(times: u64, pause: &dyn Fn(), mut work: impl FnMut() -> R) -> Duration {
    let mut secs = 0.0;
    for _ in 0..times {
        pause();
        let start = local_clock();
        black_box(work());
        secs += local_clock() - start;
    }
    Duration::from_secs_f64(secs)
}

/// The ciphers below the records, of both libraries: type byte and payload, 2 bytes of AAD. Opening includes
/// a copy, since it destroys what it opens.
fn ciphers(criterion: &mut Criterion) {
    for implementation in [Implementation::Ring, Implementation::RustCrypto] {
        for suite in Suites::Both.list() {
            let name = format!("{}/{}", implementation.name(), suite.name());
            let mut group = criterion.benchmark_group(name);
            let cipher = Cipher::new(implementation, *suite).expect("the key has its length");
            for size in SIZES {
                group.throughput(Throughput::Bytes(size as u64));
                let mut text = vec![7; 1 + size];
                group.bench_function(BenchmarkId::new("seal", size), |bencher| {
                    bencher.iter(|| cipher.seal(0, black_box(b"12"), &mut text));
                });
                let seal = cipher
                    .seal(0, b"12", &mut text)
                    .expect("it is short enough");
                group.bench_function(BenchmarkId::new("open", size), |bencher| {
                    bencher.iter_batched_ref(
                        || text.clone(),
                        |text| cipher.open(0, black_box(b"12"), text, &seal),
                        BatchSize::SmallInput,
                    );
                });
            }
        }
    }
}

fn handshakes(criterion: &mut Criterion) -> Result<()> {
    let mut group = criterion.benchmark_group("handshake");
    let peers = Peers::new(Suites::ChaCha20Only);
    group.bench_function("both sides", |bencher| bencher.iter(|| peers.session()));
    peers.session()?;

    // What one connection costs an outlet before and after it knows who is there.
    let (_, flight) = Initiator::start(Arc::clone(&peers.inlet), &mut OsRandom)?;
    let m1 = &flight[PREAMBLE.len()..];
    group.bench_function("outlet/m1", |bencher| {
        bencher.iter(|| Responder::new(Arc::clone(&peers.outlet)).receive_m1(m1, &mut OsRandom));
    });
    let waiting = || peers.claim(&mut OsRandom, &mut OsRandom);
    waiting()?;
    group.bench_function("outlet/m3", |bencher| {
        bencher.iter_batched(
            || waiting().ok(),
            |waiting| waiting.map(|(wait, _, m3)| wait.receive_m3(&m3).is_ok()),
            BatchSize::SmallInput,
        );
    });
    group.finish();
    Ok(())
}

fn time_probes(criterion: &mut Criterion) -> Result<()> {
    let mut group = criterion.benchmark_group("time");
    let (inlet, outlet) = established(Suites::ChaCha20Only)?;
    let (mut prober, mut responder) = (inlet.time.into_prober(), outlet.time.into_responder());
    let mut is_answered = true;
    group.bench_function("probe, answer and receive", |bencher| {
        bencher.iter(|| {
            let probe = prober.probe(NOW).ok();
            let answer = probe.and_then(|probe| responder.answer(&probe, 5.0, || 5.0));
            let reply = answer.and_then(|answer| prober.receive(&answer, NOW, 0.128));
            is_answered &= reply.is_some();
            reply
        });
    });
    assert!(is_answered);
    group.finish();
    Ok(())
}

/// The inlet's and the outlet's end of a new session.
fn established(suites: Suites) -> Result<(Session, Session)> {
    Peers::new(suites).session()
}
