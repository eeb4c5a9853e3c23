use std::io;
use std::net::{Ipv4Addr, Shutdown};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lsl_proto::config::Config;
use lsl_proto::inlet::Run;
use lsl_proto::outlet::frames::{FrameCodec, Frames};
use lsl_proto::wire::sequence::ReplayFrom;
use lsl_secure::config::Settings;
use lsl_secure::trust::{self, TrustList, TrustedRole};
use lsl_secure::{PublicKey, SecretKey, Security};

use super::handler::Refused;
use super::*;
use crate::byte_stream::pipe;
use crate::byte_stream::substream::OpenSubstream;
use crate::drive_outlet::handshake;
use crate::drive_outlet::origin::Origin;
use crate::drive_outlet::past::{Past, ReadPast, ReadingPast};
use crate::{Generation, History, Inlet, Outlet, Position, Retain};

/// Says whether a peer counts as one of this machine.
#[derive(Debug)]
struct Teller;

impl Handler for Teller {
    async fn stream(&self, _: &[u8], _: Option<ReplayFrom>, _: &Peer) -> Result<Served, Refused> {
        Err(Refused::NotFound)
    }

    fn shortinfo(&self, _: &[u8], peer: &Peer) -> Vec<u8> {
        format!("{}", peer.is_local()).into_bytes()
    }

    fn fullinfo(&self, _: &[u8], _: &Peer) -> Option<Vec<u8>> {
        None
    }

    fn clock(&self, _: &[u8], _: &Peer) -> Option<Arc<StreamClock>> {
        None
    }

    async fn serve(&self, _: PortRequest, _: Peer, duplex: Duplex) {
        duplex.close(None).await;
    }
}

fn answer(is_insecure: bool, from: &'static str, request: &'static [u8]) -> String {
    let security = Security::off(Vec::new()).unwrap();
    let context = Context::with_security(Config::loopback(), Arc::new(security));
    let (told, is_told) = std::sync::mpsc::channel();
    let asking = async move {
        let info = StreamInfo::new("hub", "", 0, 0.0, ChannelFormat::String, "").unwrap();
        let face = Face {
            shared: Arc::new(Shared {
                identity: Identity::of_port(context, info).unwrap(),
                handler: Teller,
                places: Arc::new(Semaphore::new(1)),
                scope: Scope::default(),
            }),
            is_insecure,
        };
        let (mut peer, mut stream) = pipe::pair();
        stream.register().unwrap();
        peer.register().unwrap();
        let from = from.parse().unwrap();
        tokio::spawn(async move { handshake::serve(stream, from, &face).await });
        peer.writer().send_all(request).await.unwrap();
        let (mut answer, mut buffer) = (Vec::new(), [0; 100]);
        while let length @ 1.. = peer.read(&mut buffer).await.unwrap() {
            answer.extend_from_slice(&buffer[..length]);
        }
        told.send(String::from_utf8(answer).unwrap()).unwrap();
    };
    runtime::spawn(asking).unwrap();
    is_told.recv_timeout(SOON).unwrap()
}

#[test]
fn plaintext_is_for_this_machine_and_for_addresses_that_are_called_insecure() {
    let feed = b"LSL:streamfeed/110 u\r\nMax-Buffer-Length: 1\r\n\r\n";
    let question = b"LSL:shortinfo\r\n\r\n";
    for from in [
        "127.0.0.1:1",
        "127.8.8.8:1",
        "[::1]:1",
        "[::ffff:127.0.0.1]:1",
    ] {
        assert_eq!(answer(false, from, question), "true");
    }
    for from in ["192.0.2.1:1", "[2001:db8::1]:1"] {
        assert_eq!(answer(false, from, question), "");
        assert_eq!(answer(false, from, b"LSL:watch/1\r\n\r\n"), "");
        let refused = String::from_utf8(REFUSAL_403.to_vec()).unwrap();
        assert_eq!(answer(false, from, feed), refused);
        assert_eq!(answer(true, from, question), "false");
        assert_eq!(answer(true, from, feed), "LSL/110 404 Not found");
    }
}

/// Context under `required`, which trusts the peer of the link.
fn context() -> Context {
    let peer = trust::Peer {
        name: "site B".into(),
        key: key(),
        role: TrustedRole::Relay,
        not_after: None,
        from: Vec::new(),
        streams: Vec::new(),
    };
    let trust = TrustList::from_peers(vec![peer]).unwrap();
    let settings = Settings::new(Policy::Required);
    let security = Security::from_parts(settings, SecretKey::from_seed(&[5; 32]), trust);
    Context::with_security(Config::loopback(), Arc::new(security.unwrap()))
}

/// The one stream of a relay, and who asked for it.
#[derive(Debug)]
struct Relay {
    outlet: Arc<Outlet>,
    clock: Arc<StreamClock>,
    asked: Mutex<Vec<Option<u64>>>,
    /// Documents that were asked for.
    documents: AtomicUsize,
    /// Numbers of the samples that are kept elsewhere.
    past: Mutex<Option<Range<u64>>>,
}

/// Samples of these numbers, but for each hundredth, whose values and timestamps are their numbers.
#[derive(Debug)]
struct Kept(Range<u64>);

impl ReadPast for Kept {
    fn read(&mut self, from: u64, until: u64) -> ReadingPast<'_> {
        let numbers = from.max(self.0.start)..until.min(self.0.end);
        Box::pin(async move {
            // As a disk has it.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let numbers: Vec<_> = numbers
                .skip_while(|n| n.is_multiple_of(100))
                .take_while(|n| !n.is_multiple_of(100))
                .take(30)
                .map(|n| i16::try_from(n).unwrap())
                .collect();
            let Some(first) = numbers.first() else {
                return Ok(None);
            };
            let mut frames = Frames {
                first: u64::from(first.unsigned_abs()),
                ..Frames::default()
            };
            let stamps: Vec<_> = numbers.iter().copied().map(f64::from).collect();
            let values: Vec<_> = numbers.iter().flat_map(|it| it.to_ne_bytes()).collect();
            let codec = FrameCodec::new(&far());
            codec.encode(&stamps, &values, &mut frames).unwrap();
            Ok(Some(frames))
        })
    }
}

fn far() -> StreamInfo {
    let format = ChannelFormat::Int16;
    let mut info = StreamInfo::new("far", "EEG", 1, 0.0, format, "far-1").unwrap();
    info.reset_uid("uid-of-far");
    info.set_created_at(1.0);
    info
}

impl Relay {
    fn new(context: &Context) -> Arc<Self> {
        Self::beginning_at(context, 7)
    }

    fn beginning_at(context: &Context, next: u64) -> Arc<Self> {
        let clock = Arc::new(StreamClock::default());
        let generation = Generation::parse(b"0-a").unwrap();
        let origin = Origin {
            first: Position { generation, next },
            clock: Arc::clone(&clock),
        };
        let retain = Retain {
            seconds: 30.0,
            bytes: 1 << 20,
            unread: true,
        };
        let outlet = Outlet::builder(far()).context(context).retain(retain);
        Arc::new(Self {
            outlet: Arc::new(outlet.relayed(origin).unwrap()),
            clock,
            asked: Mutex::default(),
            documents: AtomicUsize::new(0),
            past: Mutex::default(),
        })
    }

    fn keep(&self, numbers: Range<u64>) {
        *self.past.lock().unwrap() = Some(numbers);
    }

    fn push(&self, value: i16) {
        let stamp = f64::from(value);
        self.outlet
            .push_run(&value.to_ne_bytes(), &[stamp])
            .unwrap();
    }
}

impl Handler for Arc<Relay> {
    async fn stream(
        &self,
        uid: &[u8],
        _: Option<ReplayFrom>,
        peer: &Peer,
    ) -> Result<Served, Refused> {
        self.asked.lock().unwrap().push(peer.link);
        if uid != self.outlet.info().uid_bytes() {
            return Err(Refused::NotFound);
        }
        let past = self.past.lock().unwrap().clone();
        let past = past.map(|samples| Past {
            oldest: samples.start,
            since: None,
            reader: Box::new(Kept(samples)),
        });
        let outlet = Arc::clone(&self.outlet);
        Ok(Served { outlet, past })
    }

    fn shortinfo(&self, query: &[u8], peer: &Peer) -> Vec<u8> {
        format!("{:?} {}", peer.link, query.escape_ascii()).into_bytes()
    }

    fn fullinfo(&self, uid: &[u8], _: &Peer) -> Option<Vec<u8>> {
        self.documents.fetch_add(1, Ordering::Relaxed);
        Some(match uid {
            b"large" => vec![b'x'; 2 * pipe::CAPACITY],
            _ => self.outlet.info().to_xml(),
        })
    }

    fn clock(&self, _: &[u8], _: &Peer) -> Option<Arc<StreamClock>> {
        Some(Arc::clone(&self.clock))
    }

    async fn serve(&self, request: PortRequest, peer: Peer, mut duplex: Duplex) {
        let text = format!("{:?} {request:?}", peer.link);
        tokio::io::AsyncWriteExt::write_all(&mut duplex, text.as_bytes())
            .await
            .unwrap();
        duplex.close(None).await;
    }
}

/// A link of a peer with this key to a relay's port, as if both were in one process.
#[derive(Debug)]
struct Link {
    port: Port,
    peer: Peer,
    opened: Mutex<Vec<Arc<dyn Substream>>>,
}

impl Link {
    fn new(context: &Context, relay: &Arc<Relay>) -> Arc<Self> {
        let options = PortOptions {
            listen: vec![(Ipv4Addr::LOCALHOST, 0).into()],
            insecure: Vec::new(),
            id: "0123456789abcdef".into(),
            name: "hub".into(),
            // Substreams need none.
            most_connections: 0,
        };
        // Not of this machine: a link is no stranger wherever it comes from.
        let address = "192.0.2.1:1".parse().unwrap();
        Arc::new(Self {
            port: Port::open(context, &options, Arc::clone(relay)).unwrap(),
            peer: Peer {
                trusted: Some((key(), "site B".into())),
                link: Some(5),
                is_relay: true,
                ..Peer::unknown(address)
            },
            opened: Mutex::default(),
        })
    }

    /// Cuts all substreams off.
    fn reset(&self) {
        for substream in self.opened.lock().unwrap().drain(..) {
            substream.shut_down(Shutdown::Both);
        }
    }

    /// Asks through a substream of its own, and returns all that comes.
    async fn ask(&self, request: &[u8]) -> String {
        let mut stream = ByteStream::substream(self.open(request.to_vec()).unwrap());
        let (mut answer, mut buffer) = (Vec::new(), [0; 100]);
        while let length @ 1.. = stream.read(&mut buffer).await.unwrap() {
            answer.extend_from_slice(&buffer[..length]);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl OpenSubstream for Link {
    fn open(&self, request: Vec<u8>) -> io::Result<Arc<dyn Substream>> {
        let (near, far) = pipe::ends();
        self.port.serve(far, request, self.peer.clone());
        self.opened.lock().unwrap().push(Arc::clone(&near));
        Ok(near)
    }
}

fn key() -> PublicKey {
    SecretKey::from_seed(&[7; 32]).public()
}

/// Runs a test on the runtime of this crate, with a relay and a link to it.
fn through_link<F>(test: impl FnOnce(Context, Arc<Relay>, Arc<Link>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let context = context();
    let relay = Relay::new(&context);
    let link = Link::new(&context, &relay);
    let (told, is_told) = std::sync::mpsc::channel();
    let testing = test(context, relay, link);
    runtime::spawn(async move {
        testing.await;
        told.send(()).unwrap();
    })
    .unwrap();
    is_told.recv_timeout(SOON).unwrap();
}

/// Pulls so many samples of one value.
async fn pull(inlet: &Inlet, samples: usize) -> Vec<i16> {
    let (mut run, mut values) = (Run::default(), Vec::new());
    while values.len() < samples {
        assert!(inlet.pull_run(100, &mut run, SOON).await.unwrap());
        let (pairs, _) = run.values.as_chunks();
        values.extend(pairs.iter().map(|value| i16::from_ne_bytes(*value)));
    }
    values
}

#[test]
fn a_stream_is_read_through_a_link_and_goes_on_where_that_broke() {
    through_link(|context, relay, link| async move {
        let info = relay.outlet.info().clone();
        let inlet = |at: Option<Position>| {
            let link: Arc<dyn OpenSubstream> = link.clone();
            let builder = Inlet::builder(&info).context(&context);
            let builder = builder.recover(false).samples_first(true).through(link);
            match at {
                Some(at) => builder.resume_at(at),
                None => builder.history(History::Oldest),
            }
            .create()
            .unwrap()
        };
        relay.push(1);
        let first = inlet(None);
        assert_eq!(pull(&first, 1).await, [1]);
        // More than a substream takes at once.
        for value in 2..5000 {
            relay.push(value);
        }
        assert_eq!(pull(&first, 4998).await, (2..5000).collect::<Vec<_>>());
        let full = first.full_info(SOON).await.unwrap();
        assert_eq!(full.uid_bytes(), info.uid_bytes());
        let waits = Duration::from_millis(10);
        let correction = first.time_correction(waits).await;
        assert!(matches!(correction, Err(Error::Timeout { .. })));
        link.reset();
        let lost = first.pull_run(1, &mut Run::default(), SOON).await;
        assert!(matches!(lost, Err(Error::Lost { .. })));
        relay.push(5000);
        let second = inlet(first.position());
        assert_eq!(pull(&second, 1).await, [5000]);
        let (resumed, at) = (second.stats().resumed, second.position().unwrap());
        assert_eq!((resumed, at.next), (1, 7 + 5000));

        let other = SecretKey::from_seed(&[8; 32]).public();
        relay.outlet.end_readers(|_, peer| peer == Some(other));
        relay.push(5001);
        assert_eq!(pull(&second, 1).await, [5001]);
        relay.outlet.end_readers(|_, peer| peer == Some(key()));
        let lost = second.pull_run(1, &mut Run::default(), SOON).await;
        assert!(matches!(lost, Err(Error::Lost { .. })));
        assert_eq!(*relay.asked.lock().unwrap(), [Some(5); 2]);
    });
}

#[test]
fn what_is_kept_elsewhere_comes_first_and_what_the_outlet_retains_joins_it() {
    through_link(|context, _, _| async move {
        let relay = Relay::beginning_at(&context, 1000);
        let link = Link::new(&context, &relay);
        let read = |from: History| {
            let link: Arc<dyn OpenSubstream> = link.clone();
            let builder = Inlet::builder(relay.outlet.info()).context(&context);
            let builder = builder.recover(false).samples_first(true).through(link);
            builder.history(from).create().unwrap()
        };
        // Some are in both places.
        relay.keep(250..1010);
        (1000..1020).for_each(|value| relay.push(value));
        let is_missing = |n: &i16| (251..1000).contains(n) && n % 100 == 0;
        let expected: Vec<i16> = (250..1200).filter(|n| !is_missing(n)).collect();
        let inlet = read(History::Oldest);
        let pusher = Arc::clone(&relay);
        tokio::spawn(async move {
            for value in 1020..1200 {
                pusher.push(value);
                tokio::time::sleep(Duration::from_micros(100)).await;
            }
        });
        assert_eq!(pull(&inlet, expected.len()).await, expected);
        let stats = inlet.stats();
        assert_eq!(stats.lost_exact, 7);
        assert!(stats.replayed >= 1020 - 250 - 7, "{}", stats.replayed);

        for (from, first) in [
            (History::Samples(700), 501),
            (History::Samples(5000), 250),
            (History::Samples(10), 1190),
        ] {
            assert_eq!(pull(&read(from), 1).await[0], first);
        }
        let question = b"LSL:streamfeed/110 uid-of-far\r\nNative-Byte-Order: 1234\r\n\
            Max-Buffer-Length: 0\r\nLslx-Sequence: 1 oldest\r\n\r\n";
        let told = link.ask(question).await;
        assert!(told.contains("Lslx-Sequence: 1 0-a 250 1200\r\n"), "{told}");
    });
}

#[test]
fn a_stream_that_is_over_is_read_to_its_end() {
    through_link(|context, _, _| async move {
        let relay = Relay::beginning_at(&context, 700);
        let link = Link::new(&context, &relay);
        relay.keep(601..700);
        relay.outlet.close();
        let builder = Inlet::builder(relay.outlet.info()).context(&context);
        let inlet = builder
            .recover(false)
            .samples_first(true)
            .through(link.clone());
        let inlet = inlet.history(History::Oldest).create().unwrap();
        assert_eq!(pull(&inlet, 99).await, (601..700).collect::<Vec<_>>());
        // It does not ask for more.
        let lost = inlet.pull_run(1, &mut Run::default(), SOON).await;
        assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
        assert_eq!(*relay.asked.lock().unwrap(), [Some(5)]);
    });
}

#[test]
fn a_reader_of_the_past_that_may_not_read_any_more_is_ended() {
    through_link(|context, _, _| async move {
        let relay = Relay::beginning_at(&context, 30_000);
        let link = Link::new(&context, &relay);
        relay.keep(1..30_000);
        let request = "LSL:streamfeed/110 uid-of-far\r\nNative-Byte-Order: 1234\r\n\
            Max-Buffer-Length: 100\r\nLslx-Sequence: 1 oldest\r\n\r\n";
        let reader = link.open(request.as_bytes().to_vec()).unwrap();
        let mut stream = ByteStream::substream(reader);
        let mut buffer = [0; 100];
        assert_ne!(stream.read(&mut buffer).await.unwrap(), 0);
        assert_eq!(relay.outlet.consumers().len(), 1);
        // It waits for room, which there is not.
        relay.outlet.end_readers(|_, peer| peer == Some(key()));
        while stream
            .read(&mut buffer)
            .await
            .is_ok_and(|length| length > 0)
        {}
        while relay.outlet.have_consumers() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn requests_through_a_link_are_answered_as_at_the_port() {
    through_link(|context, relay, link| async move {
        let feed = b"LSL:streamfeed/110 u\r\nMax-Buffer-Length: 1\r\n\r\n";
        for (request, answer) in [
            (&b"LSL:shortinfo\r\nq\r\n"[..], "Some(5) q"),
            (b"LSL:watch/1\r\nq\r\n", "Some(5) Watch"),
            (feed, "LSL/110 404 Not found"),
            (b"LSL:secure/1\r\nM1", ""),
        ] {
            let told = link.ask(request).await;
            assert!(told.starts_with(answer), "{told}");
        }
        let mut unknown = relay.outlet.info().clone();
        unknown.reset_uid("u");
        let builder = Inlet::builder(&unknown).context(&context).recover(false);
        let inlet = builder.through(link.clone()).create().unwrap();
        let lost = inlet.open(SOON).await.unwrap_err().to_string();
        assert!(lost.contains("the outlet is another one"), "{lost}");

        assert_eq!(relay.clock.last_asked(), None);
        let begun = local_clock();
        let asking = link
            .open(b"LSL:timekeys/1 uid-of-far\r\n".to_vec())
            .unwrap();
        while relay.clock.last_asked().is_none_or(|asked| asked < begun) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        asking.shut_down(Shutdown::Write);
        let mut stream = ByteStream::substream(asking);
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    });
}

#[test]
fn documents_that_a_link_does_not_read_wait_for_each_other() {
    through_link(|_, relay, link| async move {
        let request = b"LSL:fullinfo large\r\n";
        let unread: Vec<_> = (0..5).map(|_| link.open(request.to_vec())).collect();
        while relay.documents.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            link.ask(b"LSL:shortinfo\r\nq\r\n").await;
        }
        assert_eq!(relay.documents.load(Ordering::Relaxed), 2);
        for substream in unread {
            let mut stream = ByteStream::substream(substream.unwrap());
            let mut length = 0;
            while let read @ 1.. = stream.read(&mut [0; 1000]).await.unwrap() {
                length += read;
            }
            assert_eq!(length, 2 * pipe::CAPACITY);
        }
        assert_eq!(relay.documents.load(Ordering::Relaxed), 5);
    });
}

const SOON: Duration = Duration::from_secs(20);
