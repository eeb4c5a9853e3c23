//! What a push and a pull cost with sockets, over loopback and within one process:
//! `cargo bench -p lsl-benches --bench streaming`. About a minute.
//!
//! Only the calls are timed: between bursts the outlet waits until its readers have caught up. End to
//! end latency and throughput, with a process for each side, is what `lsl bench` measures.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use lsl_core::config::Config;
use lsl_core::secure::Security;
use lsl_core::{ChannelFormat, Context, Inlet, Outlet, Selector, StreamInfo, local_clock};

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const CHANNELS: [u16; 4] = [1, 8, 64, 256];
const READERS: [usize; 4] = [0, 1, 4, 16];
const CHUNK: usize = 64;

/// Pushes in a row before the readers are waited for; a short backlog, as a busy machine has it.
const BURST: u64 = 16;

/// Samples that wait in an inlet when pulling begins.
const FILL: usize = 1024;

/// Far more than anything here takes.
const SOON: Duration = Duration::from_secs(20);

fn main() -> Result {
    let mut criterion = Criterion::default()
        .sample_size(15)
        .warm_up_time(Duration::from_millis(150))
        .measurement_time(Duration::from_millis(400))
        .configure_from_args();
    push(&mut criterion)?;
    pull(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

/// `outlet/push/64/4`: one sample of 64 channels to four readers; `outlet/push-chunk/…`: 64 samples.
fn push(criterion: &mut Criterion) -> Result {
    for channels in CHANNELS {
        for readers in READERS {
            let (context, outlet) = offer(channels)?;
            let readers = (0..readers)
                .map(|_| Reader::start(&context, channels))
                .collect::<Result<Vec<_>>>()?;
            for (group, samples) in [("outlet/push", 1), ("outlet/push-chunk", CHUNK)] {
                let values = vec![1.5_f32; samples * usize::from(channels)];
                let mut group = criterion.benchmark_group(format!("{group}/{channels}"));
                group.throughput(Throughput::Elements(samples as u64));
                let mut failed: Option<Box<dyn Error + Send + Sync>> = None;
                group.bench_function(readers.len().to_string(), |bencher| {
                    bencher.iter_custom(|times| {
                        push_in_bursts(&outlet, &values, times).unwrap_or_else(|error| {
                            failed = Some(error);
                            Duration::from_nanos(1)
                        })
                    });
                });
                group.finish();
                if let Some(error) = failed {
                    return Err(error);
                }
            }
            let dropped = outlet.stats().dropped;
            if dropped > 0 {
                return Err(format!("{dropped} samples were dropped").into());
            }
        }
    }
    Ok(())
}

/// The time that pushing took, without the pauses for the readers.
fn push_in_bursts(outlet: &Outlet, values: &[f32], times: u64) -> Result<Duration> {
    let mut secs = 0.0;
    let mut left = times;
    while left > 0 {
        let burst = left.min(BURST);
        let start = local_clock();
        for _ in 0..burst {
            outlet.push_chunk(values)?;
        }
        secs += local_clock() - start;
        left -= burst;
        if !outlet.blocking().flush(SOON) {
            return Err("the readers do not keep up".into());
        }
    }
    Ok(Duration::from_secs_f64(secs))
}

/// `inlet/pull/64`: one sample out of an inlet's buffer; `inlet/pull-chunk/64`: 64 of them.
fn pull(criterion: &mut Criterion) -> Result {
    for channels in CHANNELS {
        let (context, outlet) = offer(channels)?;
        let inlet = connect(&context, channels)?;
        let width = usize::from(channels);
        let stock = vec![1.5_f32; FILL * width];
        for (group, samples) in [("inlet/pull", 1), ("inlet/pull-chunk", CHUNK)] {
            let mut values = vec![0.0_f32; samples * width];
            let mut timed = |times: u64| -> Result<Duration> {
                let mut secs = 0.0;
                let mut left = times;
                while left > 0 {
                    fill(&outlet, &inlet, &stock)?;
                    let calls = left.min((FILL / samples) as u64);
                    let start = local_clock();
                    for _ in 0..calls {
                        let pulled = if samples == 1 {
                            usize::from(inlet.try_pull(&mut values)?.is_some())
                        } else {
                            inlet.try_pull_chunk(&mut values, None)?
                        };
                        if pulled != samples {
                            return Err("the buffer was not full".into());
                        }
                    }
                    secs += local_clock() - start;
                    left -= calls;
                    inlet.flush();
                }
                Ok(Duration::from_secs_f64(secs))
            };
            let mut group = criterion.benchmark_group(group);
            group.throughput(Throughput::Elements(samples as u64));
            let mut failed: Option<Box<dyn Error + Send + Sync>> = None;
            group.bench_function(BenchmarkId::from_parameter(channels), |bencher| {
                bencher.iter_custom(|times| {
                    timed(times).unwrap_or_else(|error| {
                        failed = Some(error);
                        Duration::from_nanos(1)
                    })
                });
            });
            group.finish();
            if let Some(error) = failed {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Sends `stock` and waits until all of it is in the inlet's buffer.
fn fill(outlet: &Outlet, inlet: &Inlet, stock: &[f32]) -> Result {
    outlet.push_chunk(stock)?;
    let deadline = local_clock() + SOON.as_secs_f64();
    while inlet.samples_available() < FILL {
        if local_clock() > deadline {
            return Err("the samples did not arrive".into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// An outlet in a context of its own, which nobody else sees.
fn offer(channels: u16) -> Result<(Context, Outlet)> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = u16::try_from(std::process::id() % 37).unwrap_or_default();
    let mut config = Config::loopback();
    config.set_ports(16_700 + process * 400 + number % 20 * 20, 20);
    config.set_session_id(&format!("bench-{}-{number}", std::process::id()))?;
    let context = Context::with_security(
        config,
        Arc::new(Security::off(Vec::new()).expect("no policy of the system")),
    );
    let format = ChannelFormat::Float32;
    let info = StreamInfo::new("bench", "Bench", channels.into(), 1000.0, format, "bench")?;
    let outlet = Outlet::builder(info).context(&context).open()?;
    Ok((context, outlet))
}

/// An open inlet on the context's only outlet.
fn connect(context: &Context, channels: u16) -> Result<Inlet> {
    let selector = Selector::property("channel_count", channels.to_string())?;
    let found = context.resolve_blocking(&selector, 1, SOON)?;
    let info = found.first().ok_or("the outlet was not found")?;
    let inlet = Inlet::builder(info).context(context).create()?;
    inlet.blocking().open(SOON)?;
    Ok(inlet)
}

/// A thread that pulls whatever comes, until it is dropped.
struct Reader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result>>,
}

impl Reader {
    fn start(context: &Context, channels: u16) -> Result<Self> {
        let inlet = connect(context, channels)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut values = vec![0.0_f32; CHUNK * usize::from(channels)];
            while !stopped.load(Ordering::Relaxed) {
                (inlet.blocking()).pull_chunk(&mut values, None, Duration::from_millis(50))?;
            }
            Ok(())
        });
        let thread = Some(thread);
        Ok(Self { stop, thread })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            // A reader that failed early would make the pushes look cheap.
            assert!(matches!(ended, Ok(Ok(()))), "a reader failed: {ended:?}");
        }
    }
}
