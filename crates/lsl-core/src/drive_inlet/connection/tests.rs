use std::net::Ipv4Addr;
use std::sync::mpsc;

use lsl_proto::clock::PostProcessor;
use lsl_proto::config::Config;
use lsl_proto::inlet::{Feed, FeedDecoder, FeedOptions};
use lsl_proto::outlet::request::OutletOptions;
use lsl_proto::outlet::retention::Retain;
use lsl_proto::outlet::{Pushthrough, Stamps};
use lsl_secure::audit::Span;
use lsl_secure::config::Settings;
use lsl_secure::connection::Question;
use lsl_secure::handshake::Trail;
use lsl_secure::trust::TrustList;
use lsl_secure::{Local, OsRandom, Policy, Role, SecretKey, Security, SessionEntry, Suites};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::byte_stream::pipe;
use crate::drive_inlet::feed_state::FeedState;
use crate::drive_inlet::session::Ending;
use crate::drive_outlet::handshake;
use crate::drive_outlet::push::OutletShared;
use crate::net::secure_driver::proceed;
use crate::net::select2::{Either, select2};

fn local() -> Arc<Local> {
    Arc::new(Local {
        key: SecretKey::from_seed(&[7; 32]),
        psk: None,
        suites: Suites::ChaCha20Only,
        pad_to: 0,
    })
}

fn descriptor() -> Descriptor {
    Descriptor {
        uid: b"u".to_vec(),
        name: b"n".to_vec(),
        stream_type: Vec::new(),
        source_id: Vec::new(),
        hostname: Vec::new(),
        session_id: Vec::new(),
        channel_count: 1,
        nominal_srate: 0.0,
        channel_format: 1,
        created_at: 1.0,
    }
}

/// An encrypted connection, and the outlet's end of it.
async fn pair() -> (Connection, ByteStream, Handshake) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let outlet = tokio::spawn(async move {
        let mut stream = ByteStream::tcp(listener.accept().await.unwrap().0).unwrap();
        let mut preamble = [0; 14];
        // It comes in one go, as it was sent.
        assert_eq!(stream.read(&mut preamble).await.unwrap(), preamble.len());
        let mut connection = Handshake::responder(local(), descriptor().into(), local_clock());
        let mut reply = None;
        while let Some(question) =
            asked(proceed(&mut stream, &mut connection, reply).await.unwrap())
        {
            reply = Some(question);
        }
        (stream, connection)
    });
    let stream = ByteStream::tcp(TcpStream::connect(address).await.unwrap()).unwrap();
    let exchange = Exchange::TimeKeys;
    let started = Handshake::initiator(local(), exchange.request(), local_clock(), &mut OsRandom);
    let mut connection = Connection::secure(stream, address, exchange, started.unwrap());
    let mut reply = None;
    let info = loop {
        match connection.proceed(reply).await.unwrap() {
            Event::Established(info) => break info,
            event => reply = asked(event),
        }
    };
    let security = required();
    let live = SessionEntry {
        peer: info.peer,
        role: Role::Outlet,
        remote: address.ip(),
        local: address.ip(),
        stream: descriptor(),
        span: Span::begin(),
    };
    let ending = Arc::new(Ending::default());
    let registration = Registration {
        guard: security.register(live, |_| {}).unwrap(),
        security,
        peers: Arc::default(),
        ending,
        peer: address,
        trail: Arc::new(Trail::begin(Role::Inlet, 0.0, None)),
    };
    connection.begin_session(info, descriptor(), registration);
    let (stream, outlet) = outlet.await.unwrap();
    (connection, stream, outlet)
}

/// A configuration that requires encryption and trusts nobody.
fn required() -> Arc<Security> {
    let settings = Settings::new(Policy::Required);
    let key = SecretKey::from_seed(&[7; 32]);
    Arc::new(Security::from_parts(settings, key, TrustList::default()).unwrap())
}

/// The answer of somebody who trusts everybody; `None` to the session.
fn asked(event: Event) -> Option<Answer> {
    match event {
        Event::Question(Question::Turn) => Some(Answer::Turn(Ok(()))),
        Event::Question(Question::PeerKey(_)) => Some(Answer::PeerKey(Ok("peer".to_owned()))),
        Event::Question(Question::Descriptor(_)) => Some(Answer::Descriptor(Ok(()))),
        Event::Established(_) => None,
        other => panic!("{other:?}"),
    }
}

/// Reads as an outlet does, and answers PINGs. Returns how the session ended.
async fn attend(stream: &mut ByteStream, connection: &mut Handshake) -> lsl_secure::Result<()> {
    let mut buffer = [0; 512];
    loop {
        let received = stream.read(&mut buffer).await.unwrap();
        connection.handle_input(&mut buffer[..received], local_clock(), |_| Ok(()))?;
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Ping { t0, t1 } => connection.sender().unwrap().pong(t0, t1),
                Event::Closed => return Ok(()),
                _ => {}
            }
        }
        let writer = stream.writer();
        let _ = connection.flush(local_clock, |bytes| writer.try_write(bytes, Caller::Push));
    }
}

fn on_runtime<R: Send + 'static>(task: impl Future<Output = R> + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    runtime::spawn(async move { sender.send(task.await).unwrap() }).unwrap();
    receiver.recv_timeout(Duration::from_mins(1)).unwrap()
}

#[test]
fn who_loses_trust_is_told_and_ends() {
    let (error, alert) = on_runtime(async {
        let (mut connection, mut stream, mut session) = pair().await;
        connection.session().unwrap().end(Cause::Revoked);
        let error = connection.hold().await;
        let alert = attend(&mut stream, &mut session)
            .await
            .unwrap_err()
            .to_string();
        (error, alert)
    });
    assert!(matches!(error, Error::Security(_)), "{error}");
    assert!(error.to_string().contains("revoked"), "{error}");
    // Two causes have the code 10; the first of them is what is understood.
    assert!(alert.contains("code 10"), "{alert}");
}

#[test]
fn the_clock_has_its_pings_sent_and_their_answers() {
    let answers = on_runtime(async {
        let (mut connection, mut stream, mut session) = pair().await;
        let reading = tokio::spawn(async move { attend(&mut stream, &mut session).await });
        let pings = Arc::clone(&connection.session().unwrap().pings);
        let asking = async {
            let mut answers = Vec::new();
            for _ in 0..3 {
                // The reader sleeps by then, or not: both ways it is sent.
                tokio::task::yield_now().await;
                let t0 = local_clock();
                pings.ask(t0);
                answers.push((t0, pings.answer().await));
            }
            answers
        };
        let answers = match select2(asking, connection.hold()).await {
            Either::First(answers) => answers,
            Either::Second(error) => panic!("the session ended: {error}"),
        };
        reading.await.unwrap().unwrap();
        answers
    });
    assert_eq!(answers.len(), 3);
    for (asked, pong) in answers {
        let [t0, t1, t2] = pong.times;
        assert_eq!(t0.to_bits(), asked.to_bits());
        // Both ends have the same clock here.
        assert!(t0 <= t1 && t1 <= t2 && t2 <= pong.opened_at, "{pong:?}");
    }
}

/// An outlet that sends and never reads costs no memory for questions.
#[test]
fn pings_do_not_pile_up_before_an_outlet_that_does_not_read() {
    let most = on_runtime(async {
        let (mut connection, _stream, _session) = pair().await;
        // Nothing more goes out.
        let full = vec![0; 1 << 16];
        let writer = connection.writer().unwrap();
        while writer.try_write(&full, Caller::Push).is_ok() {}
        let pings = Arc::clone(&connection.session().unwrap().pings);
        let mut most = 0;
        for number in 0..1000 {
            pings.ask(f64::from(number));
            let poll = poll_fn(|context| Poll::Ready(connection.poll_signals(context)));
            assert!(poll.await.is_ok());
            let poll = poll_fn(|context| Poll::Ready(connection.poll_alarm(context)));
            assert!(poll.await.is_ok());
            let sender = connection
                .machine
                .session()
                .and_then(Handshake::sender)
                .unwrap();
            most = most.max(sender.unsent());
        }
        most
    });
    assert!((1..100).contains(&most), "{most} bytes wait");
}

/// What only its driver knows of a socket ends a handshake, too: no key is left, and nothing more is sent.
#[test]
fn a_handshake_ends_with_its_socket() {
    let (error, max_read, timeout) = on_runtime(async {
        // Not connected: sending says that the peer is gone, and reading that there was none.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.set_nonblocking(true).unwrap();
        let stream = TcpStream::from_std(socket.into()).unwrap();
        let stream = ByteStream::tcp(stream).unwrap();
        let peer = (Ipv4Addr::LOCALHOST, 1).into();
        let exchange = Exchange::TimeKeys;
        let started =
            Handshake::initiator(local(), exchange.request(), local_clock(), &mut OsRandom);
        let mut connection = Connection::secure(stream, peer, exchange, started.unwrap());
        let error = connection.proceed(None).await.unwrap_err();
        let machine = &connection.machine;
        (error, machine.max_read(), machine.poll_timeout())
    });
    assert!(matches!(error, lsl_secure::Error::Io { .. }), "{error:?}");
    assert_eq!((max_read, timeout), (0, None));
}

#[test]
fn a_session_that_failed_says_so_also_if_its_inlet_is_closed_before_its_task_knows() {
    let alert = on_runtime(async {
        let (connection, mut stream, mut outlet) = pair().await;
        let processing = PostProcessor::new(0.0, 0.0);
        let shape = (1, crate::ChannelFormat::Int8);
        let feed = Feed::new(SampleRing::new(1, 0), processing, shape, false);
        let mut state = FeedState::new(feed);
        state.connection = Some(Box::new(connection));
        let error = lsl_secure::Error::session(Cause::Revoked, "in between");
        state.disconnect = Some(Disconnect::Session(error));
        assert!(matches!(state.end().finish(), Some(Error::Security(_))));
        attend(&mut stream, &mut outlet)
            .await
            .unwrap_err()
            .to_string()
    });
    assert!(alert.contains("code 10"), "{alert}");
}

/// Both drivers over a stream that is no socket. It counts as protected: the outlet serves plain bytes
/// although it requires encryption, as inside a link.
#[test]
fn samples_arrive_over_any_stream() {
    for synchronous in [false, true] {
        feed_in_memory(synchronous);
    }
}

fn feed_in_memory(synchronous: bool) {
    // Far more than the stream holds.
    let values: Vec<i32> = (0..10_000).collect();
    let context = crate::Context::with_security(Config::loopback(), required());
    let format = crate::ChannelFormat::Int32;
    let mut info = crate::StreamInfo::new("pipe", "", 1, 0.0, format, "pipe").unwrap();
    info.set_version(110);
    let options = OutletOptions {
        capacity_samples: values.len(),
        chunk_samples: 1,
        synchronous,
        retain: Retain::NOTHING,
    };
    let wishes = FeedOptions {
        version: 110,
        max_buffer_samples: 100_000,
        max_chunk_samples: 0,
    };
    let pushed = values.clone();
    let received = on_runtime(async move {
        let peer = (Ipv4Addr::LOCALHOST, 1).into();
        let exchange = Exchange::Feed(Box::new(FeedDecoder::new(&info, wishes)));
        let outlet = Arc::new(OutletShared::new(context, info, options).unwrap());
        let (near, far) = pipe::pair();
        let serving = Arc::clone(&outlet);
        let served = tokio::spawn(async move { handshake::serve(far, peer, &serving).await });
        let mut connection = Connection::plain(near, peer, exchange).await.unwrap();
        served.await.unwrap().unwrap();
        let mut ring = SampleRing::new(pushed.len(), 4 * pushed.len());
        // A synchronous push waits for the reader.
        let pushing = std::thread::spawn(move || {
            (outlet.push(&pushed, pushed.len(), Stamps::Now, Pushthrough::Flush)).unwrap();
            outlet.close();
        });
        let ended = connection.ended(&mut ring).await;
        pushing.join().unwrap();
        assert!(matches!(ended, Disconnect::Closed), "{ended:?}");
        let mut received = Vec::new();
        while let Some((_, raw)) = ring.front() {
            received.push(i32::from_ne_bytes(raw.try_into().unwrap()));
            ring.pop_many(1);
        }
        received
    });
    assert_eq!(received, values);
}
