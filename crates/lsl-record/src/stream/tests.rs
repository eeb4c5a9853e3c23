use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, OnceLock};
use std::thread;

use lsl_core::config::Config;
use lsl_core::{Context, History, Outlet, Selector};

use lsl_xdf::Values;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::*;
use crate::event::Events;
use crate::live::{Identity, StreamStatus};
use crate::queue::{Queue, WriteProgress};
use crate::shared::{Claims, StreamSettings};
use crate::strangers::StrangerEvents;

fn context(name: &str) -> Context {
    context_with(name, &[])
}

fn context_with(name: &str, settings: &[(&str, &str)]) -> Context {
    let mut config = Config::loopback();
    let free = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    config.set_ports(port.min(u16::MAX - 24), 24);
    let session = format!("record-{name}-{}", std::process::id());
    config.set_session_id(&session).unwrap();
    for (key, value) in settings {
        config.set(key, value).unwrap();
    }
    Context::new(config)
}

fn advert(info: &StreamInfo, host: u8) -> Advert {
    Advert {
        info: info.clone(),
        sender: Some([127, 0, 0, host].into()),
    }
}

/// Says to be a stream, and to take connections at this port.
fn forge(info: &StreamInfo, uid: &str, port: u16) -> Advert {
    let xml = format!(
        "<?xml version=\"1.0\"?><info><name>{}</name><type>{}</type><channel_count>{}</channel_count>\
         <channel_format>int32</channel_format><source_id>{}</source_id><nominal_srate>{}</nominal_srate>\
         <version>1.1</version><created_at>1.0</created_at><uid>{uid}</uid><session_id>{}</session_id>\
         <hostname>{}</hostname><v4address>127.0.0.1</v4address><v4data_port>{port}</v4data_port>\
         <v4service_port>{port}</v4service_port><v6address></v6address><v6data_port>0</v6data_port>\
         <v6service_port>0</v6service_port><desc /></info>",
        info.name(),
        info.stream_type(),
        info.channel_count(),
        info.source_id(),
        info.nominal_srate(),
        info.session_id(),
        info.hostname(),
    );
    let forged = StreamInfo::from_xml(xml.as_bytes()).unwrap();
    assert_eq!(Identity::of(&forged), Identity::of(info));
    advert(&forged, 66)
}

/// Waits until `holds` is true, for 60 s at most.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = local_clock() + 60.0;
    while !holds() {
        assert!(local_clock() < deadline, "no {what} within 60 s");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Numbers that arrived at the writer, and how many are said to be missing.
fn collect(receiver: &Receiver<Job>, progress: &WriteProgress) -> (Vec<i32>, u64) {
    let (mut numbers, mut missing) = (Vec::new(), 0);
    while let Ok(job) = receiver.recv_timeout(Duration::from_secs(20)) {
        progress.note_taken(&job);
        match job {
            Job::Samples {
                values: Values::Int32(values),
                ..
            } => numbers.extend(values),
            Job::Gap { gap, .. } => missing += gap.samples.unwrap(),
            Job::Finish => return (numbers, missing),
            _ => {}
        }
    }
    panic!("the recording did not end");
}

/// Makes an outlet and resolves its info.
fn outlet(context: &Context, name: &str, rate: f64) -> (Outlet, StreamInfo) {
    let info = StreamInfo::new(name, "EEG", 1, rate, ChannelFormat::Int32, "").unwrap();
    let outlet = Outlet::builder(info).context(context).open().unwrap();
    let selector = Selector::property("name", name).unwrap();
    let found = context.resolve_blocking(&selector, 1, LIMIT).unwrap();
    (outlet, found[0].clone())
}

/// A stream that is recorded into no file.
struct Recorder {
    live: Arc<Live>,
    halt: watch::Sender<Halt>,
    end: Arc<OnceLock<f64>>,
    claims: Arc<Claims>,
    queue: Queue,
    events: Events,
    jobs: Receiver<Job>,
    task: JoinHandle<()>,
    _runtime: Runtime,
}

impl Recorder {
    /// Starts a recorder with room for so many bytes on the way to the file.
    fn start(context: Context, info: &StreamInfo, room: usize) -> Self {
        Self::start_with(context, info, room, History::Live)
    }

    /// As [`start`](Self::start), with so much of the past.
    fn start_with(context: Context, info: &StreamInfo, room: usize, history: History) -> Self {
        let events = Events::default();
        let (queue, jobs) = Queue::with_room(room);
        let (halt, halted) = watch::channel(Halt::Go);
        let end = Arc::default();
        let claims = Arc::new(Claims::default());
        assert!(claims.claim(info.uid_bytes(), 0));
        let common = Common {
            context,
            queue: queue.clone(),
            claims: Arc::clone(&claims),
            events: events.clone(),
            stranger_events: Arc::new(StrangerEvents::new(&Events::default())),
            settings: StreamSettings {
                buffer_secs: 1.0,
                stamps: Stamps::Raw,
                other_keys: OtherKeys::Refuse,
                history,
            },
            halt: halted,
            end: Arc::clone(&end),
        };
        let live = Arc::new(Live::new(0, info, false, false));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .unwrap();
        let task = runtime.spawn(record(common, Arc::clone(&live), advert(info, 1)));
        Self {
            live,
            halt,
            end,
            claims,
            queue,
            events,
            jobs,
            task,
            _runtime: runtime,
        }
    }

    fn wait(&self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the samples that [`collect`] finds once the task is over.
    fn end(self) -> (Vec<i32>, u64) {
        let progress = Arc::clone(self.queue.progress());
        let jobs = self.jobs;
        let collecting = thread::spawn(move || collect(&jobs, &progress));
        while !self.task.is_finished() {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(self.queue.push_blocking(Job::Finish));
        collecting.join().unwrap()
    }
}

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn what_no_memory_holds_is_counted_to_the_last_sample() {
    const COUNT: i32 = 5000;
    let context = context("slow");
    let (outlet, info) = outlet(&context, "slow", 100.0);
    // Room for a single job, and nobody takes it.
    let recorder = Recorder::start(context, &info, 1);
    assert!(outlet.blocking().wait_for_consumers(LIMIT));
    // Far more than a second of them, in portions that the outlet's own buffer for this reader holds.
    for number in 0..COUNT {
        outlet.push(&[number]).unwrap();
        if number % 50 == 49 {
            thread::sleep(Duration::from_millis(15));
        }
    }
    let end = local_clock();
    recorder.halt.send(Halt::Drain(end, end + 1.0)).unwrap();
    assert!(
        recorder.queue.progress().waiting_bytes() > 0 && !recorder.task.is_finished(),
        "the queue was never full"
    );
    let live = Arc::clone(&recorder.live);
    let (numbers, missing) = recorder.end();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "disorder");
    assert_eq!(*numbers.last().unwrap(), COUNT - 1);
    assert!(missing > 0, "nothing was dropped, so nothing was tested");
    let dropped_there = outlet.stats().dropped;
    assert_eq!(
        numbers.len() as u64 + missing + dropped_there,
        u64::from(COUNT.unsigned_abs())
    );
    assert_eq!(live.status().missing, missing);
}

/// Everything that came within two seconds was written.
#[test]
fn a_stream_whose_clock_was_never_measured_ends_at_the_end() {
    let context = context("unmeasured");
    let (outlet, info) = outlet(&context, "unmeasured", 0.0);
    // Nobody answers there, as where UDP is blocked.
    let deaf = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let port = |port: u16| format!("<v4service_port>{port}</v4service_port>");
    let deaf_port = port(deaf.local_addr().unwrap().port());
    let text = String::from_utf8(info.to_xml()).unwrap();
    let text = text
        .replace(&port(info.v4_service_port()), &deaf_port)
        .replace("<v4address />", "<v4address>127.0.0.1</v4address>");
    let info = StreamInfo::from_xml(text.as_bytes()).unwrap();
    let recorder = Recorder::start(context, &info, 1 << 20);
    recorder.wait(|it| it.live.lock().has_header);
    let end = local_clock();
    recorder.halt.send(Halt::Drain(end, end + 30.0)).unwrap();
    while !recorder.task.is_finished() {
        outlet.push(&[1]).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    assert!(local_clock() < end + 20.0, "it was recorded on");
    assert!(recorder.live.lock().offset_secs.is_none(), "not tested");
}

#[test]
fn an_end_before_the_planned_one_cuts_the_stream() {
    let context = context("early");
    let (outlet, info) = outlet(&context, "early", 100.0);
    let recorder = Recorder::start(context, &info, 1 << 20);
    recorder.wait(|it| it.live.lock().offset_secs.is_some());
    let end = local_clock();
    recorder.end.set(end + 1000.0).unwrap();
    recorder.halt.send(Halt::Drain(end, end + 30.0)).unwrap();
    // It waits for the last one, which shows that nothing before the end is missing.
    for (number, late) in [(1, -0.2), (2, -0.1), (3, 0.1), (4, 0.2)] {
        outlet.push_at(&[number], end + late).unwrap();
    }
    assert_eq!(recorder.end().0, [1, 2]);
}

#[test]
fn a_lost_stream_lets_go_of_forged_adverts_and_returns_among_silent_ones() {
    let context = context("forged");
    let info = StreamInfo::new("Amp", "EEG", 1, 100.0, ChannelFormat::Int32, "amp").unwrap();
    let selector = Selector::property("name", "Amp").unwrap();
    let open = |info: &StreamInfo| {
        let outlet = Outlet::builder(info.clone()).context(&context).open();
        let uid = outlet.as_ref().unwrap().info().uid().into_owned();
        let mut own = None;
        until("advert", || {
            let limit = Duration::from_secs(1);
            let found = context.resolve_blocking(&selector, 1, limit).unwrap();
            own = found.into_iter().find(|info| info.uid() == uid);
            own.is_some()
        });
        (outlet.unwrap(), own.unwrap())
    };
    let (outlet, own) = open(&info);
    let recorder = Recorder::start(context.clone(), &own, 1 << 20);
    let (live, claims) = (&recorder.live, &recorder.claims);
    until("stream", || live.state() == StreamState::Recording);
    drop(outlet);
    until("loss", || live.state() == StreamState::Lost);
    let offer = |adverts: &[Advert]| {
        let adverts = adverts.iter().map(|advert| (advert, false)).collect();
        live.candidates().offer(adverts);
    };
    // Nobody is there.
    let closed = forge(&own, "closed", 1);
    until("try", || {
        offer(std::slice::from_ref(&closed));
        live.lock().failures > 2
    });
    until("release", || !claims.is_claimed(b"closed"));
    assert!(claims.is_claimed(own.uid_bytes()));
    assert_eq!(
        live.status().info.uid(),
        own.uid(),
        "what was connected last"
    );
    // Whoever is there takes connections and says nothing, under twenty names.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    let named = |n| forge(&own, &format!("silent{n}"), port);
    let mut offered: Vec<_> = (0..20).map(named).collect();
    let (_outlet, successor) = open(&info);
    offered.push(advert(&successor, 1));
    until("return", || {
        offer(&offered);
        live.state() == StreamState::Recording
    });
    assert_eq!(live.status().info.uid(), successor.uid());
    let held = offered.iter().filter(|it| claims.is_claimed(it.uid()));
    assert_eq!(held.count(), 1);
}

/// Stands before an outlet, and cuts connections.
struct Cutter {
    port: u16,
    is_closed: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cutter {
    fn start(outlet: &StreamInfo) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let cutter = Self {
            port: listener.local_addr().unwrap().port(),
            is_closed: Arc::default(),
            connections: Arc::default(),
        };
        let (is_closed, connections) = (cutter.is_closed.clone(), cutter.connections.clone());
        let outlet = ("127.0.0.1", outlet.v4_data_port());
        thread::spawn(move || {
            for inlet in listener.incoming().flatten() {
                if is_closed.load(Ordering::Acquire) {
                    continue;
                }
                let outlet = TcpStream::connect(outlet).unwrap();
                for (from, to) in [(&inlet, &outlet), (&outlet, &inlet)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                connections.lock().unwrap().extend([inlet, outlet]);
            }
        });
        cutter
    }

    /// The same outlet, at our address.
    fn in_place_of(&self, info: &StreamInfo) -> StreamInfo {
        let port = |port: u16| format!("<v4data_port>{port}</v4data_port>");
        let text = String::from_utf8(info.to_shortinfo_xml()).unwrap();
        let text = text.replace(&port(info.v4_data_port()), &port(self.port));
        StreamInfo::from_xml(text.as_bytes()).unwrap()
    }

    fn close(&self, is_closed: bool) {
        self.is_closed.store(is_closed, Ordering::Release);
        for connection in self.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_stream_goes_on_where_its_connection_was_lost() {
    // An outlet that retains little, so that the last outage is too long.
    let settings = [
        ("ports.IPv6", "disable"),
        ("tuning.RetainSeconds", "60"),
        ("tuning.RetainBytes", "65536"),
    ];
    let context = context_with("resumed", &settings);
    let (outlet, info) = outlet(&context, "resumed", 100.0);
    let mut pushed = 0;
    let mut push = |count: i32| {
        for number in pushed..pushed + count {
            outlet.push(&[number]).unwrap();
        }
        pushed += count;
        pushed
    };
    push(300);
    let cutter = Cutter::start(&info);
    let own = cutter.in_place_of(&info);
    let past = History::Seconds(1.0);
    let recorder = Recorder::start_with(context, &own, 1 << 20, past);
    let live = &recorder.live;
    let until_taken = |count: i32| {
        until("sample", || {
            live.lock().samples == u64::from(count.unsigned_abs())
        });
    };
    until_taken(100);
    for count in [0, 100, 20_000] {
        until_taken(push(50) - 200);
        cutter.close(true);
        until("loss", || live.state() == StreamState::Lost);
        push(count);
        cutter.close(false);
        until("return", || {
            live.candidates().offer(vec![(&advert(&own, 1), false)]);
            live.state() == StreamState::Recording
        });
    }
    outlet.skip(7).unwrap();
    let last = push(1) - 1;
    let status = || live.status();
    until("last", || {
        let StreamStatus { samples, lost, .. } = status();
        samples + lost == u64::from(last.unsigned_abs()) + 1 + 7 - 200
    });
    recorder.halt.send(Halt::Now).unwrap();
    let (events, status) = (recorder.events.clone(), status());
    let (numbers, missing) = recorder.end();
    let lost = usize::try_from(status.lost).unwrap();
    assert!(lost > 7 + 1000, "{lost}");
    let first_lost = 200 + 100 + 100 + 150;
    let after = first_lost + i32::try_from(lost).unwrap() - 7;
    let expected: Vec<i32> = (200..first_lost).chain(after..=last).collect();
    assert!(
        numbers == expected,
        "{} of {}",
        numbers.len(),
        expected.len()
    );
    assert_eq!((missing, status.missing), (status.lost, 0));
    assert_eq!(
        (status.gaps, status.unknown_losses, status.reconnects),
        (2, 0, 3)
    );
    let told = std::iter::from_fn(|| events.next(lsl_core::Timeout::NOW));
    let told: Vec<_> = told
        .filter_map(|event| match event {
            Event::Returned { lost, .. } => Some(lost),
            Event::Missing { lost, reason, .. } if reason == "lost by the device" => {
                Some(Some(lost))
            }
            _ => None,
        })
        .collect();
    assert_eq!(told, [Some(0), Some(0), Some(status.lost - 7), Some(7)]);
}

#[test]
fn irregular_streams_may_burst() {
    let with = |channels, rate, secs, has_past| {
        let info = StreamInfo::new("n", "t", channels, rate, ChannelFormat::Int32, "").unwrap();
        buffer::<i32>(&info, secs, has_past).to_samples(rate)
    };
    let of = |channels, rate, secs| with(channels, rate, secs, false);
    assert_eq!(of(1, 0.0, 30.0), BURST_SAMPLES);
    // A sample of 8 kB and its stamp.
    assert_eq!(of(2000, 0.0, 30.0), BURST_BYTES / 8008);
    // Who asks for more gets it.
    assert_eq!(of(2000, 0.0, 100_000.0), 10_000_000);
    assert_eq!(of(1, 500.0, 30.0), 15_000);
    assert_eq!(with(1, 500.0, 30.0, true), 15_000 + BURST_SAMPLES);
}
