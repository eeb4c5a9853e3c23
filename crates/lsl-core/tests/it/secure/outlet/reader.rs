//! An inlet made of a raw socket and the bare session: it says what a test wants said, when it wants.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use lsl_core::secure::handshake::{Initiator, Unconfirmed};
use lsl_core::secure::{
    Cause, Descriptor, Error, Local, Opener, OsRandom, Record, Result, Sealer, Session, Suite,
    Suites, TimeKeys,
};
use lsl_core::{Outlet, local_clock};

use crate::lab::SOON;
use crate::secure::people::key_of;

/// What a device with this name brings into handshakes.
pub fn local(who: &str) -> Arc<Local> {
    Arc::new(Local {
        key: key_of(who),
        psk: None,
        suites: Suites::of_this_cpu(),
        pad_to: 0,
    })
}

/// A connection to the data port, with deadlines.
pub fn dial(outlet: &Outlet) -> TcpStream {
    dial_from(Ipv4Addr::LOCALHOST.into(), outlet)
}

/// The same from another address of this host.
pub fn dial_from(source: IpAddr, outlet: &Outlet) -> TcpStream {
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, outlet.info().v4_data_port()));
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect_timeout(&target.into(), SOON).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_write_timeout(Some(SOON)).unwrap();
    stream
}

/// Everything until the outlet ends the connection.
pub fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert!(is_close(&error), "not closed: {error}");
    }
    bytes
}

/// Sends; that the outlet has closed meanwhile is its right.
pub fn say(stream: &mut TcpStream, bytes: &[u8]) {
    if let Err(error) = stream.write_all(bytes) {
        assert!(is_close(&error), "{error}");
    }
}

fn is_close(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}

/// Preamble and M1 of a device, and how it goes on.
pub fn hello(who: &str) -> (Initiator, Vec<u8>) {
    Initiator::start(local(who), &mut OsRandom).unwrap()
}

/// One message or record, whole.
pub fn message(stream: &mut TcpStream) -> Vec<u8> {
    let mut message = vec![0; 2];
    stream.read_exact(&mut message).unwrap();
    let len = usize::from(u16::from_be_bytes([message[0], message[1]]));
    message.resize(2 + len, 0);
    stream.read_exact(&mut message[2..]).unwrap();
    message
}

/// What a test uses of a session.
pub struct Halves {
    pub suite: Suite,
    pub sealer: Sealer,
    pub opener: Opener,
}

/// An inlet with a session.
pub struct Reader {
    pub stream: TcpStream,
    pub session: Halves,
    time: Option<TimeKeys>,
    pub descriptor: Descriptor,
    data: Vec<u8>,
    pub pongs: Vec<[f64; 3]>,
    pub closed: bool,
    pub alert: Option<Cause>,
}

impl Reader {
    /// A session with the outlet, and this request in it.
    pub fn open(outlet: &Outlet, who: &str, request: &[u8]) -> Self {
        Self::try_open(outlet, who, request).unwrap()
    }

    /// The same, if the outlet lets this device in.
    pub fn try_open(outlet: &Outlet, who: &str, request: &[u8]) -> Result<Self> {
        Self::over(dial(outlet), who, request)
    }

    pub fn over(mut stream: TcpStream, who: &str, request: &[u8]) -> Result<Self> {
        let (initiator, hello) = hello(who);
        stream.write_all(&hello).unwrap();
        let m2 = message(&mut stream);
        let verified = initiator.receive_m2(&m2).map_err(|offer| offer.error)?;
        let (unconfirmed, m3) = verified.accept()?;
        Self::confirm(stream, unconfirmed, m3, request)
    }

    fn confirm(
        mut stream: TcpStream,
        mut unconfirmed: Unconfirmed,
        m3: Vec<u8>,
        request: &[u8],
    ) -> Result<Self> {
        let mut flight = m3;
        unconfirmed
            .sealer()
            .seal_data(request, local_clock(), &mut flight)?;
        stream.write_all(&flight).unwrap();
        let mut record = message(&mut stream);
        let (session, descriptor) = unconfirmed.receive_descriptor(&mut record)?;
        let Session {
            suite,
            sealer,
            opener,
            time,
            ..
        } = session;
        Ok(Self {
            stream,
            session: Halves {
                suite,
                sealer,
                opener,
            },
            time: Some(time),
            descriptor,
            data: Vec::new(),
            pongs: Vec::new(),
            closed: false,
            alert: None,
        })
    }

    /// Asks for a feed with room for so many samples, and reads up to the first sample.
    pub fn feed(outlet: &Outlet, who: &str, samples: usize) -> Self {
        let mut reader = Self::open(outlet, who, &feed_request(outlet, samples));
        reader.skip_preamble();
        reader
    }

    pub fn skip_preamble(&mut self) {
        let head = loop {
            if let Some(at) = self.data.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.step(), "the feed ended");
        };
        assert!(self.data.starts_with(b"LSL/110 200 OK\r\n"));
        self.data.drain(..head);
        // The test patterns.
        for _ in 0..2 {
            self.sample().unwrap();
        }
    }

    /// Reads once from the socket; false at its end.
    pub fn step(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let received = match self.stream.read(&mut buffer) {
            Ok(received) => received,
            Err(error) => {
                assert!(is_close(&error), "nothing came: {error}");
                0
            }
        };
        if received == 0 {
            return false;
        }
        let Self {
            session,
            data,
            pongs,
            closed,
            alert,
            ..
        } = self;
        let opened = session.opener.receive(
            &mut buffer[..received],
            local_clock(),
            |record| -> Result<(), Error> {
                match record {
                    Record::Data(bytes) => data.extend_from_slice(bytes),
                    Record::Pong(times) => pongs.push(times),
                    Record::Close => *closed = true,
                    Record::Alert(cause, _) => *alert = Some(cause),
                    other => panic!("{other:?}"),
                }
                Ok(())
            },
        );
        match opened {
            Ok(()) | Err(Error::Alert { .. }) => {}
            Err(error) => panic!("our outlet's records are sound: {error}"),
        }
        true
    }

    /// The next sample of three floats with its timestamp; `None` if the feed ends.
    pub fn sample(&mut self) -> Option<(f64, [f32; 3])> {
        const BYTES: usize = 1 + 8 + 12;
        while self.data.len() < BYTES {
            if self.closed || !self.step() {
                return None;
            }
        }
        assert_eq!(self.data[0], 2, "a timestamp follows");
        let stamp = f64::from_ne_bytes(self.data[1..9].try_into().unwrap());
        let value = |at: usize| f32::from_ne_bytes(self.data[at..at + 4].try_into().unwrap());
        let values = [value(9), value(13), value(17)];
        self.data.drain(..BYTES);
        Some((stamp, values))
    }

    /// All DATA up to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.step() {}
        std::mem::take(&mut self.data)
    }

    /// The DATA that came so far.
    pub fn take_data(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.data)
    }

    /// The keys for clock probes; there is one use for them.
    pub fn take_time_keys(&mut self) -> TimeKeys {
        self.time.take().unwrap()
    }

    /// Seals and sends with `seal`.
    pub fn seal(&mut self, seal: impl FnOnce(&mut Halves, &mut Vec<u8>) -> Result<()>) {
        let mut out = Vec::new();
        seal(&mut self.session, &mut out).unwrap();
        self.stream.write_all(&out).unwrap();
    }

    /// Says CLOSE and that nothing more will be sent.
    pub fn close(&mut self) {
        self.seal(|session, out| session.sealer.seal_close(out));
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

/// Asks this outlet for a feed with room for so many samples.
pub fn feed_request(outlet: &Outlet, samples: usize) -> Vec<u8> {
    let uid = outlet.info().uid().into_owned();
    let order = lsl_proto::ByteOrder::NATIVE.code();
    format!(
        "LSL:streamfeed/110 {uid}\r\nNative-Byte-Order: {order}\r\nHas-IEEE754-Floats: 1\r\n\
         Supports-Subnormals: 1\r\nValue-Size: 4\r\nData-Protocol-Version: 110\r\n\
         Max-Buffer-Length: {samples}\r\nMax-Chunk-Length: 0\r\n\r\n"
    )
    .into_bytes()
}
